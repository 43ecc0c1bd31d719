"""A cost that a test holds a model and a step to: counted, never timed, so it says the same on every machine."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from luxmeter.calls import TraceResult, coverage, device_syncs, trace
from luxmeter.errors import UsageError, suggestion, warn_once
from luxmeter.model.analysis import analyze
from luxmeter.model.records import ModelCost
from luxmeter.render import amount, size

_MOST_PARTS = 3  # of the modules that cost most, in a message


class OverBudgetError(AssertionError):
    """Something costs more than a test allows: each thing in a line."""


class CostBudget:
    """What the pytest fixture `cost_budget` gives. Each method raises OverBudgetError, an AssertionError, that says by how much."""

    def model(
        self,
        model: Any,
        inputs: Any = None,
        *,
        macs: float | None = None,
        flops: float | None = None,
        params: float | None = None,
        peak_bytes: float | None = None,
        training_peak_bytes: float | None = None,
        **how: Any,
    ) -> ModelCost:
        """Hold a model to at most these costs of one call with `inputs`; `how` is as for `lux.analyze`. Gives the cost.

        Nothing is computed: it takes as long for a large model as for a small one. `peak_bytes` is what inference needs at
        once, `training_peak_bytes` what a training step does with the `optimizer` named in `how` (AdamW without one).
        """
        __tracebackhide__ = True  # of pytest: the failure is in the test, not here
        limits = {"macs": macs, "flops": flops, "params": params, "peak_bytes": peak_bytes,
                  "training_peak_bytes": training_peak_bytes}  # fmt: skip
        _check({name: limit for name, limit in limits.items() if limit is not None}, "model")
        if training_peak_bytes is not None:
            how.setdefault("backward", True)
        cost = analyze(model, inputs, **how)
        found = {"macs": cost.macs, "flops": cost.flops, "params": cost.params, "peak_bytes": cost.peak_bytes,
                 "training_peak_bytes": cost.memory.training_peak_bytes}  # fmt: skip
        if cost.unknown_ops and (macs is not None or flops is not None):
            names = ", ".join(op.name for op in cost.unknown_ops[:3])
            warn_once(
                "budget-without-formula",
                f"{cost.name} runs {names}, whose work nobody gave a formula for: it is missing from macs and flops.",
                "Give it one: docs/model-cost.md.",
                key=names,
            )
        over = [
            _over(name, found[name] or 0, limit, cost)
            for name, limit in limits.items()
            if limit is not None and (found[name] or 0) > limit
        ]
        _raise(f"{cost.name} for {_shapes(cost)}", over)
        return cost

    def step(
        self, *, calls: Mapping[str, int] | None = None, syncs: int | None = None, no_sync: bool = False
    ) -> AbstractContextManager[None]:
        """Trace what runs inside and hold it to at most so many calls of an API, and so many waits for the device.

        Names are those of a trace (`torch.nn.Linear`, `Tensor.item`, `torch.nn.functional.*`); all calls that match count
        together. `no_sync=True` is `syncs=0`.
        """
        limits = dict(calls or {})
        waits = 0 if no_sync else syncs
        _check({**limits, **({} if waits is None else {"syncs": waits})}, "step")
        return _Step(limits, waits)


class _Step(AbstractContextManager[None]):
    """Traces what runs inside; what raises there is not judged."""

    def __init__(self, limits: Mapping[str, int], waits: int | None) -> None:
        self._limits, self._waits, self._trace = limits, waits, trace()

    def __enter__(self) -> None:
        self._trace.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        __tracebackhide__ = True  # of pytest: the failure is in the test, not here
        self._trace.__exit__(kind, error, tb)
        if error is not None:
            return
        found = self._trace.result
        over = [_too_often(pattern, most, found) for pattern, most in self._limits.items()]
        if self._waits is not None:
            over.append(_too_many_waits(found, self._waits))
        _raise("this step", [line for line in over if line])


def _check(limits: Mapping[str, Any], what: str) -> None:
    __tracebackhide__ = True
    if not limits:
        raise UsageError(
            "empty-budget",
            f"cost_budget.{what}() was given no limit, and would pass whatever it costs.",
            "Say one: macs=, params=, peak_bytes=, or calls=, no_sync=True.",
        )
    for name, limit in limits.items():
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not limit >= 0:
            raise UsageError(
                "bad-budget",
                f"{name} is held to {limit!r}.",
                "Give a number of 0 or more, such as 2_500_000.",
            )


_TOLD_AS_TIMES = 10  # so many times a limit are no percents


def _over(name: str, found: float, limit: float, cost: ModelCost) -> str:
    show = size if name.endswith("_bytes") else amount
    times = found / limit if limit else 0.0
    by = (
        f", {times:.3g} times as much"
        if times >= _TOLD_AS_TIMES
        else f", {times - 1:.1%} more"
        if times
        else ""
    )
    exact = [
        f"{show(n)} ({n:,.0f})" if show(n).split()[0] != f"{n:,.0f}" else show(n) for n in (found, limit)
    ]
    said = f"{name}: {exact[0]}, allowed are {exact[1]}{by}"
    own = {"macs": "own_macs", "flops": "own_flops", "params": "own_params"}.get(name)
    if own is None or not found:
        return said
    parts = sorted(cost.modules, key=lambda m: -getattr(m, own))[:_MOST_PARTS]
    told = [f"{m.name or 'the model itself'} {getattr(m, own) / found:.0%}" for m in parts if getattr(m, own)]
    return f"{said}; most of it in {', '.join(told)}"


def _shapes(cost: ModelCost) -> str:
    return ", ".join("x".join(map(str, shape)) for shape in cost.input_shapes) or "no inputs"


def _too_often(pattern: str, most: int, found: TraceResult) -> str:
    counts = {row.name: row.n for row in found.table() if _matches(row.name, pattern)}
    if not counts and not any(c in pattern for c in "*?["):
        _refuse_unknown(pattern)
    n = sum(counts.values())
    if n <= most:
        return ""
    names = "" if list(counts) == [pattern] else f" ({', '.join(f'{k} x{v}' for k, v in counts.items())})"
    return f"{pattern}: called {n} times{names}, allowed are {most}"


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatch.fnmatchcase(name, pattern)


def _refuse_unknown(name: str) -> None:
    """A name of torch that a trace never has would be held to anything."""
    known = set(coverage().seen)
    if not name.startswith(("torch.", "Tensor.")) or name in known or name.startswith("torch.nn.modules."):
        return
    if name.startswith(("torch.nn.", "torch.optim.")) and not name.startswith("torch.nn.functional."):
        import torch

        found: Any = torch
        for part in name.split(".")[1:]:
            found = getattr(found, part, None)
        if found is not None:
            return  # a module's or an optimizer's class
    raise UsageError(
        "filter-matches-nothing",
        f"The budget names {name!r}, which is no callable that can be traced.",
        suggestion(name, known) or "See coverage() for all names; patterns may hold *, ? and [].",
    )


def _too_many_waits(found: TraceResult, most: int) -> str:
    syncs = device_syncs(found)
    n = sum(s.n for s in syncs)
    if n <= most:
        return ""
    return f"waits for the device: {n}, allowed are {most}: " + "; ".join(map(str, syncs))


def _raise(what: str, over: list[str]) -> None:
    __tracebackhide__ = True
    if over:
        lines = "".join(f"\n  {line}" for line in over)
        raise OverBudgetError(f"{what} costs more than allowed:{lines}")
