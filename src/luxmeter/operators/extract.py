"""The distinct operators of a trace, with how often they ran, how long, and from which module; those of backward passes.

Autograd calls the latter from C++, where a trace of Python calls does not see them. So each case that was given something
to be differentiated is run once, forward and backward, with made-up inputs, in a worker; what backward calls is
written down with its shapes, counted as often as the case was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from luxmeter.calls import Trace, TraceResult
from luxmeter.errors import UsageError
from luxmeter.isolate import Pool
from luxmeter.operators.case import Case, Operators, case_from_json, case_to_json
from luxmeter.operators.resolve import is_operator
from luxmeter.signature import DictOf, ListOf, Opaque, SliceOf, Word, tensors_in

_CALL = 0
_RAISED, _INSIDE, _OWN = 1, 2, 32
_MOST_PLACES = 20
_TIMEOUT_S = 60.0  # of a backward pass


def operators_of(trace: Trace | TraceResult) -> Operators:
    """The operators of a trace: leaf modules, functionals, Tensor methods; by time, the longest first.

    Calls that raised, calls inside other calls and composite modules (their parts are here) are left out, and so
    is what was given an unknown object. A module that cannot be rebuilt is here; its replay says why.
    """
    result = trace.result if isinstance(trace, Trace) else trace
    recording = result.recording
    if not recording.n and not recording.totals:
        return Operators()
    if not any(s is not None for s in recording.signatures):
        raise UsageError(
            "trace-without-signatures",
            f"The trace in {result.folder} has no signatures, so its operators are not known.",
            "Trace with signatures=True.",
        )
    counts: dict[int, int] = defaultdict(int)
    times: dict[int, int] = defaultdict(int)
    places: dict[int, dict[str, None]] = defaultdict(dict)
    lines: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))  # with their time
    for signature, module, site, flags, n, total_ns in _calls(recording):
        if flags & (_RAISED | _INSIDE | _OWN) or not signature:
            continue
        counts[signature] += n
        times[signature] += total_ns
        if path := recording.callables[module].path:
            places[signature][path] = None
        if site:
            lines[signature][recording.lines[site]] += total_ns
    cases = []
    for number in sorted(counts, key=lambda s: -times[s]):
        case = case_of(recording, number)
        if case is not None:
            where = case.where or tuple(places[number])[:_MOST_PLACES]
            cases.append(replace(case, count=counts[number], total_ns=times[number], where=where,
                                 lines=_longest(lines[number])))  # fmt: skip
    table = result.table()  # whose shares are of the same whole
    return Operators(cases, whole=(sum(row.self_ns for row in table), sum(row.n for row in table)))


def _longest(lines: dict[str, int]) -> tuple[str, ...]:
    return tuple(sorted(lines, key=lambda line: (-lines[line], line))[:_MOST_PLACES])


def case_of(recording: Any, number: int) -> Case | None:
    """The case behind a signature's number in a recording; None if it is no operator or cannot be rebuilt."""
    words = recording.signatures[number]
    if words is None or words.general:
        return None
    name = recording.callables[words.callable]
    op = name.name.removeprefix("torch.ops.") if name.name.startswith("torch.ops.aten.") else name.name
    if name.kind != _CALL or not is_operator(op) or not _rebuildable(words.signature):
        return None
    signature = words.signature.with_ranges(words.float_ranges) if words.float_ranges else words.signature
    if op != name.name and signature.args and isinstance(signature.args[0], Word):
        signature = replace(signature, args=signature.args[1:])  # the kernel itself, which `op` names
    where = (name.path,) if name.path else ()
    return Case(op, signature, where=where, source="trace", outputs=words.outputs)


def _calls(recording: Any) -> Any:
    """(signature, module, site, flags, count, nanoseconds), equal ones together."""
    if recording.totals:
        for row in recording.totals:
            yield row.signature, 0, row.site, row.flags, row.n, row.total_ns
        return
    seen = _RAISED | _INSIDE | _OWN
    for key, (count, ns) in recording.together(("signature", "module", "site"), seen).items():
        yield *key, count, ns


def _rebuildable(signature: Any) -> bool:
    def opaque(value: Any) -> bool:
        if isinstance(value, Opaque):
            return True
        if isinstance(value, SliceOf):
            return opaque((value.start, value.stop, value.step))
        if isinstance(value, ListOf | DictOf):
            return opaque(value.items if isinstance(value, ListOf) else value.pairs)
        return isinstance(value, tuple) and any(opaque(v) for v in value)

    values = (*signature.args, *(v for _, v in signature.kwargs))
    return not any(opaque(v) for v in values) and all(-1 not in t.shape for t in tensors_in(values))


def backward_cases(ops: Operators, *, seed: int = 0, pool: Pool | None = None) -> Operators:
    """The operators of the backward passes; cases without a gradient, or that cannot be replayed, have none."""
    wanted = [case for case in ops if has_gradient(case)]
    if not wanted:
        return Operators()
    if pool is not None:
        return Operators(_found(wanted, seed, pool))
    with Pool(preload=["luxmeter.operators.work"]) as own:
        return Operators(_found(wanted, seed, own))


def has_gradient(case: Case) -> bool:
    """Whether any input or parameter of the case wanted a gradient."""
    return any(t.requires_grad for t in case.signature.tensors())


def _found(cases: list[Case], seed: int, pool: Pool) -> Iterator[Case]:
    items = ({"case": case_to_json(case), "backward": True, "forward": False, "seed": seed} for case in cases)
    for number, outcome in pool.map("luxmeter.operators.work:kernels_of", items, timeout_s=_TIMEOUT_S):
        case = cases[number]
        for said in outcome.value or ():
            inner = case_from_json(said)
            yield replace(
                inner,
                count=inner.count * case.count,
                where=case.where,
                lines=case.lines,
                source=f"backward of {case.op}",
            )
