"""Modules of torch and cells of MindSpore on torch's own test samples."""

from __future__ import annotations

import functools
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from verify import Note, first_line, reason_of, status_of, target_of

from luxmeter.operators.counterparts import Target
from luxmeter.operators.counterparts.agreement import agreement
from luxmeter.operators.counterparts.calling import named
from luxmeter.operators.counterparts.cells import cell_call
from luxmeter.operators.counterparts.composed_cells import BODIES
from luxmeter.operators.counterparts.values import NotConvertible, settle, to_torch

_nn = torch.nn
# What torch has no samples of.
_OWN: dict[str, Callable[[], list[tuple[torch.nn.Module, tuple[int, ...]]]]] = {
    "torch.nn.Dropout": lambda: [(_nn.Dropout(0.1), (3, 4)), (_nn.Dropout(), (2, 3, 4))],
    "torch.nn.Dropout1d": lambda: [(_nn.Dropout1d(0.1), (2, 3, 4))],
    "torch.nn.Dropout2d": lambda: [(_nn.Dropout2d(0.1), (2, 3, 4, 4))],
    "torch.nn.Identity": lambda: [(_nn.Identity(), (3, 4))],
    "torch.nn.Flatten": lambda: [(_nn.Flatten(), (2, 3, 4)), (_nn.Flatten(0, 1), (2, 3, 4))],
    "torch.nn.Unflatten": lambda: [(_nn.Unflatten(1, (2, 3)), (4, 6))],
    "torch.nn.PixelShuffle": lambda: [(_nn.PixelShuffle(2), (1, 8, 3, 3))],
    "torch.nn.PixelUnshuffle": lambda: [(_nn.PixelUnshuffle(2), (1, 2, 4, 4))],
    "torch.nn.Upsample": lambda: [
        (_nn.Upsample(size=(6, 8)), (1, 2, 3, 4)),
        (_nn.Upsample(size=(6, 8), mode="bilinear", align_corners=True), (1, 2, 3, 4)),
        (_nn.Upsample(scale_factor=2.0), (1, 2, 3, 4)),
    ],
    "torch.nn.Unfold": lambda: [(_nn.Unfold((2, 2)), (1, 2, 4, 4))],
    "torch.nn.Fold": lambda: [(_nn.Fold((4, 4), (2, 2)), (1, 8, 9))],
    "torch.nn.Hardsigmoid": lambda: [(_nn.Hardsigmoid(), (3, 4))],
    # torch's are without a batch, which MindSpore's do not take.
    "torch.nn.LSTM": lambda: [
        (_nn.LSTM(3, 4), (5, 2, 3)),
        (_nn.LSTM(3, 4, 2, batch_first=True), (2, 5, 3)),
        (_nn.LSTM(3, 4, bidirectional=True, bias=False), (5, 2, 3)),
    ],
    "torch.nn.GRU": lambda: [(_nn.GRU(3, 4), (5, 2, 3)), (_nn.GRU(3, 4, 2, batch_first=True), (2, 5, 3))],
    "torch.nn.RNN": lambda: [(_nn.RNN(3, 4), (5, 2, 3)), (_nn.RNN(3, 4, 2, batch_first=True), (2, 5, 3))],
    "torch.nn.ChannelShuffle": lambda: [(_nn.ChannelShuffle(2), (1, 4, 3, 3))],
}


@functools.cache
def _infos() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_modules import module_db
    return {f"torch.nn.{info.module_cls.__name__}": info for info in module_db}


def modules_with_samples() -> list[str]:
    """The modules of torch.nn that have samples."""
    return [*_OWN, *(n for n in _infos() if n not in _OWN and hasattr(torch.nn, n.rpartition(".")[2]))]


def module_samples(name: str, *, most: int) -> list[tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]]:
    """Modules in evaluation, each with arguments for one call."""
    torch.manual_seed(0)
    if name in _OWN:
        return [(module.eval(), (torch.rand(shape),), {}) for module, shape in _OWN[name]()]
    info = _infos()[name]
    found = []
    made = info.module_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=False, training=False
    )
    for sample in made:
        if sample.forward_input is None:
            continue
        module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs).eval()
        found.append((module, tuple(sample.forward_input.args), dict(sample.forward_input.kwargs)))
    if len(found) > most:
        found = [found[round(i * (len(found) - 1) / (most - 1))] for i in range(most)]
    return found


def verify_module(
    what: Sequence[Any],
    *,
    targets: Sequence[str | dict[str, Any]],
    most: int = 16,
    skip: Sequence[int] = (),
    note: Note = lambda target, sample: None,
) -> dict[str, Any]:
    """As `verify`, for a module: each sample is a module with its weights copied, and one call of it."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    samples = []
    for module, args, kwargs in module_samples(what[0], most=most):
        with torch.no_grad():
            samples.append((module, args, kwargs, module(*args, **kwargs)))
    found = []
    for target in targets:
        made = Target(target) if isinstance(target, str) else target_of(target)
        try:
            if made.name.removeprefix("composed.") not in BODIES:
                named(made.name)
        except AttributeError:
            continue
        found.append(_tried(made, samples, frozenset(skip), note))
    return {"samples": len(samples), "dtype": "float32", "targets": found}


def _tried(target: Target, samples: Sequence[Any], skip: frozenset[int], note: Note) -> dict[str, Any]:
    tally: Counter[str] = Counter()
    why: dict[str, str] = {}
    error = 0.0
    for number, (module, args, kwargs, wanted) in enumerate(samples):
        note(target.name, number)
        kind, said, gap = (
            ("crashes", "", 0.0) if number in skip else _once(target, module, args, kwargs, wanted)
        )
        tally[kind] += 1
        error = max(error, gap if kind == "equal" else 0.0)
        why.setdefault(kind, f"{said} ({module})"[:200] if kind != "raises" else said)
    return {
        "name": target.name, "how": target.how, "names": dict(target.names), "fixed": dict(target.fixed),
        "samples": len(samples), "agree": tally["equal"], "status": status_of(tally, False),
        "why": reason_of(tally, why)[:300], "error": error,
    }  # fmt: skip


def _once(target: Target, module: Any, args: Any, kwargs: Any, wanted: Any) -> tuple[str, str, float]:
    settle()
    try:
        found = agreement(wanted, to_torch(cell_call(target, module, args, kwargs).run()))
        return found.kind, found.why, found.error
    except NotConvertible as reason:
        return "raises", str(reason), 0.0
    except Exception as error:  # noqa: BLE001  (whatever MindSpore raises is the finding)
        return "raises", f"{type(error).__name__}: {first_line(error)}", 0.0
