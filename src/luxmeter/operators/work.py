"""The worker's part of a benchmark: one case on one backend, measured and checked -> one row's numbers."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from luxmeter import environment
from luxmeter.errors import UsageError
from luxmeter.flops import cost_of, moved_bytes
from luxmeter.nested import tensors_of
from luxmeter.operators.agreeing import Judged, draws, judge, restorer
from luxmeter.operators.backends import BACKENDS, Backend, Prepared, Unsupported, backward_of
from luxmeter.operators.backends.onnxruntime import kernels
from luxmeter.operators.case import Case, case_from_json, case_to_json
from luxmeter.operators.dtypes import for_cpu, in_dtype
from luxmeter.operators.inputs import NOT_REPLAYABLE, Call, make_call
from luxmeter.operators.randomness import is_random
from luxmeter.operators.rebuild import check_outputs
from luxmeter.operators.resolve import adapted
from luxmeter.operators.timer import WarmCallable, measure
from luxmeter.signature import ModuleSpec, describe, tensors_in

TORCH_BACKENDS = ("eager", "compile")  # what these allocate, torch's allocator sees
_backends: dict[str, Backend] = {}
_held: list[
    tuple[WarmCallable, bool]
] = []  # the case that is measured in turns, and whether it differentiates
_CPUS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def bench_one(
    case: dict[str, Any],
    *,
    dtype: str,
    backend: str,
    backward: bool,
    threads: int,
    budget_s: float,
    target_ci: float,
    device: str = "cpu",
    seed: int = 0,
) -> dict[str, Any]:
    """Measure one case; `status` is ok, doubtful, unsupported or differs (then it has no times), anything else is raised.

    `budget_s` is for measuring alone; `measured_s` tells how much of it was used.
    """
    memory = backend in TORCH_BACKENDS and device == "cpu"

    def then(prepared: Prepared, notes: Iterable[str], wait: Any) -> dict[str, Any]:
        return timed(prepared, notes, budget_s=budget_s, target_ci=target_ci, wait=wait, memory=memory)

    return _prepared(
        case, then, dtype=dtype, backend=backend, backward=backward, threads=threads, device=device, seed=seed
    )


def hold_one(
    case: dict[str, Any],
    *,
    dtype: str,
    backend: str,
    backward: bool,
    threads: int,
    block_s: float,
    warmup_s: float,
    cpu: int,
    known: bool,
    device: str = "cpu",
    seed: int = 0,
) -> dict[str, Any]:
    """Prepare one case and keep it for `turn`: as `bench_one`, but with `calls` that make a block and the time of one instead of times.

    With one thread on a CPU it runs on the processor `cpu` alone (their number is no limit), which the other side then shares: what
    disturbs one disturbs the other. What is `known` from another round is not checked and reckoned again.
    """
    _run_on(_CPUS)

    def then(prepared: Prepared, notes: Iterable[str], wait: Any) -> dict[str, Any]:
        memory = not known and backend in TORCH_BACKENDS and device == "cpu"
        peak = memory_peak(prepared.run) if memory else None
        if threads == 1 and device == "cpu":
            _run_on(_CPUS[cpu % len(_CPUS) :][:1])
        kept = WarmCallable(prepared.run, block_s=block_s, warmup_s=warmup_s, sync=prepared.sync or wait)
        _held[:] = [(kept, backward)]
        return {
            "status": "ok", "reason": "; ".join(filter(None, notes)), "prepare_s": prepared.prepare_s, "memory_bytes": peak,
            "calls": kept.calls_per_block, "call_s": kept.call_s,
        }  # fmt: skip

    return _prepared(
        case, then, dtype=dtype, backend=backend, backward=backward, threads=threads, device=device, seed=seed,
        known=known,
    )  # fmt: skip


def turn(blocks: int, calls: int) -> list[float]:
    """Time what is held: seconds a call, of each block."""
    [(kept, backward)] = _held
    with torch.set_grad_enabled(backward):
        return kept.turn(blocks=blocks, calls=calls)


def _run_on(cpus: Sequence[int]) -> None:
    """Only there, where a system lets a thread choose."""
    if cpus:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, cpus)


def _prepared(
    case: dict[str, Any],
    then: Callable[[Prepared, Iterable[str], Any], dict[str, Any]],
    *,
    dtype: str,
    backend: str,
    backward: bool,
    threads: int,
    device: str,
    seed: int,
    known: bool = False,
) -> dict[str, Any]:
    """What is found out about a case that is prepared and checked, with what `then` finds; why not, if it cannot be."""
    torch.set_num_threads(threads)
    recorded = case_from_json(case)
    wanted = in_dtype(recorded, dtype)
    torch.default_generator.manual_seed(seed)
    try:
        wait = _waiter(device)
        call = make_call(wanted, seed=seed, device=device)
        fitted = adapted(wanted) if torch.device(device).type != "cpu" else for_cpu(adapted(wanted))
        if mismatch := mismatch_of(fitted, call):
            return {"status": "unscaled", "reason": mismatch}
        with torch.set_grad_enabled(backward):
            restore = restorer(call)
            found: dict[str, Any] = {} if known else costs_of(call, recorded)
            restore()
            if backend not in _backends:
                _backends[backend] = BACKENDS.get(backend)()
            prepared = _backends[backend].prepare(call, backward=backward, threads=threads)
            if known:
                return then(prepared, (), wait)
            exact = _exact(recorded, seed)
            restore()
            found |= differences(prepared.outputs(), exact) if not is_random(wanted.op) else {}
            judged = Judged()
            if backend != "eager":
                # Of MindSpore's backward the forward's results are given.
                eager = backward_of(call) if backward and backend in TORCH_BACKENDS else call.run
                judged = judge(call, prepared, eager, restore, seed=seed, exact=None if backward else exact)
            elif found.get("max_rel_error"):
                judged = Judged(random=draws(prepared.outputs, restore, seed=seed))
            if judged.random:
                found |= {"max_abs_error": None, "max_rel_error": None}
            if judged.differs:
                return {
                    **found,
                    "status": "differs",
                    "reason": judged.differs,
                    "prepare_s": prepared.prepare_s,
                }
            notes = (judged.note, _changed(adapted(wanted), fitted))
            found |= then(prepared, notes, wait)
    except Unsupported as reason:
        return {"status": "unsupported", "reason": str(reason)}
    except UsageError as error:
        if error.slug not in NOT_REPLAYABLE:
            raise
        return {"status": "unsupported", "reason": error.what}
    return found


def timed(
    prepared: Prepared,
    notes: Iterable[str],
    *,
    budget_s: float,
    target_ci: float,
    wait: Callable[[], Any] | None = None,
    memory: bool,
) -> dict[str, Any]:
    """The times of what is prepared, with what is to be said of them; with `memory`, the most it allocates, too."""
    start = time.perf_counter()
    measured = measure(
        prepared.run,
        budget_s=budget_s,
        target_ci=target_ci,
        sync=prepared.sync or wait,
        queued=prepared.sync is not None or wait is not None,
    )
    return {
        "measured_s": time.perf_counter() - start,
        "status": measured.status,
        "reason": "; ".join(filter(None, [measured.why, *notes])),
        "times_s": list(measured.times_s),
        "ci_low_s": measured.interval.low,
        "ci_high_s": measured.interval.high,
        "prepare_s": prepared.prepare_s,
        "memory_bytes": memory_peak(prepared.run) if memory else None,
    }


def mismatch_of(wanted: Case, call: Call) -> str:
    """How the tensors that would be measured differ from those asked for; empty if they do not."""
    asked = [str(t) for t in tensors_in(tuple(v for v in _values(wanted) if not isinstance(v, ModuleSpec)))]
    made = [str(t) for t in describe(call.args, call.kwargs).tensors()]
    return "" if asked == made else f"asked for {', '.join(asked)}, would measure {', '.join(made)}"


def _changed(wanted: Case, fitted: Case) -> str:
    return (
        ""
        if wanted == fitted
        else f"a CPU takes no mixed weights and statistics: measured as {fitted.signature}"
    )


def _values(case: Case) -> tuple[Any, ...]:
    return (*case.signature.args, *(v for _, v in case.signature.kwargs))


def kernels_of(
    case: dict[str, Any], *, dtype: str = "recorded", backward: bool = False, forward: bool = True, seed: int = 0
) -> list[dict[str, Any]]:  # fmt: skip
    """The aten kernels one call of a case runs, as cases: those of forward, of backward, or both.

    None of a case that cannot be replayed: its own row says why.
    """
    try:
        call = make_call(in_dtype(case_from_json(case), dtype), seed=seed)
    except UsageError as error:
        if error.slug not in NOT_REPLAYABLE:
            raise
        return []
    if not backward:
        return aten_kernels(call)
    seen = _Kernels()
    before: list[int] = []
    run = backward_of(call, after_forward=lambda: before.append(len(seen.cases)))
    with torch.enable_grad(), seen:
        run()
    return [case_to_json(c) for c in (seen.cases if forward else seen.cases[before[0] :])]


def aten_kernels(call: Call) -> list[dict[str, Any]]:
    """The aten kernels that one forward call runs, as cases."""
    seen = _Kernels()
    with torch.no_grad(), seen:
        call.run()
    return [case_to_json(c) for c in seen.cases]


def onnx_kernels_of(
    case: dict[str, Any], *, dtype: str = "recorded", threads: int = 1, seed: int = 0
) -> list[dict[str, Any]] | str:
    """What ONNX Runtime's profiler tells of the kernels of one case; text is why there are none."""
    call = make_call(in_dtype(case_from_json(case), dtype), seed=seed)
    try:
        return kernels(call, threads=threads)
    except Unsupported as reason:
        return str(reason)


def versions() -> dict[str, Any]:
    """What this interpreter measures with."""
    return {
        "packages": environment.installed(),
        "executable": sys.executable,
        "python": sys.version.split()[0],
    }


def _waiter(device: str) -> Callable[[], Any] | None:
    """What waits for the device; None where calls return when they are done. Unsupported if there is none here, or nothing waits for it."""
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise Unsupported(f"no device {device!r} here: {str(error).partition(chr(10))[0][:120]}") from error
    place = torch.device(device)
    if place.type in ("cpu", "meta"):
        return None
    accelerator: Any = getattr(torch, "accelerator", None)
    if accelerator is not None and str(accelerator.current_accelerator()) == place.type:
        return (
            functools.partial(accelerator.synchronize, place)
            if place.index is not None
            else accelerator.synchronize
        )
    wait: Callable[[], Any] | None = getattr(getattr(torch, place.type, None), "synchronize", None)
    if wait is None:
        raise Unsupported(
            f"torch has nothing that waits for {device!r}: only the time to dispatch could be measured"
        )
    return wait


class _Kernels(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sums the cost of every aten call, and describes each."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops: int | None = None
        self.cases: list[Case] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled under this mode; to be kept out of it would import all of dynamo, which takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        cost = cost_of(func, args, kwargs, out)
        if cost is not None:
            self.flops = (self.flops or 0) + cost.flops
        self.cases.append(Case(str(func), describe(tuple(args), kwargs), source="kernel"))
        return out


def costs_of(call: Call, case: Case | None = None) -> dict[str, Any]:
    """FLOPs of one forward call, and the bytes it must move; UsageError if it is not the recorded call of `case`."""
    counter = _Kernels()
    state = torch.get_rng_state()
    with torch.no_grad(), counter:
        out = call.run()
    torch.set_rng_state(state)
    if case is not None:
        check_outputs(case, out)
    weights = [p for a in call.args if isinstance(a, torch.nn.Module) for p in a.parameters()]
    return {"flops": counter.flops, "bytes": moved_bytes((*call.args, weights), call.kwargs, out)}


def _exact(recorded: Case, seed: int) -> Any:
    """The fp32 eager result on the same inputs."""
    with torch.no_grad():
        torch.default_generator.manual_seed(seed)
        return make_call(in_dtype(recorded, "fp32"), seed=seed).run()


def differences(result: Any, reference: Any) -> dict[str, Any]:
    """The largest absolute difference between two results' tensors, and the largest relative to their largest value.

    Nothing where they cannot be told: other shapes, complex or sparse values, no values at all.
    """
    got, want = ([t.detach() for t in tensors_of(value) if t.numel()] for value in (result, reference))
    if len(got) != len(want) or any(a.shape != b.shape for a, b in zip(got, want, strict=True)):
        return {}
    absolute = relative = 0.0
    for a, b in zip(got, want, strict=True):
        if a.is_complex() or a.layout is not torch.strided or a.is_meta:
            return {}
        x, y = a.double().cpu(), b.double()
        gap = (x - y).abs()
        gap = torch.where((x == y) | (x.isnan() & y.isnan()), 0.0, gap)
        absolute = max(absolute, float(gap.max()))
        relative = max(relative, float(gap.max() / y.abs().max().clamp_min(1e-30)))
    return {"max_abs_error": _plain(absolute), "max_rel_error": _plain(relative)}


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None


def memory_peak(run: Any) -> int | None:
    """The most bytes that were allocated at once during one call, as torch's allocator tells."""
    # torch.profiler.profile does the same and imports all of dynamo for it.
    with torch.autograd.profiler.profile(use_kineto=True, profile_memory=True) as profile:
        run()
    results = getattr(profile, "kineto_results", None)
    if results is None:
        return None
    now = peak = 0
    for event in results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak
