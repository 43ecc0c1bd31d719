"""MindSpore beside torch: the counterpart of each operator, given the same values.

Runs in an interpreter that has both frameworks. Calls return before they are done: a block of them is timed with
one wait at its end, which is what a program that calls one after another pays.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch

from luxmeter.operators.backends import Prepared, Unsupported
from luxmeter.operators.counterparts import Counterpart, Target, counterpart_of
from luxmeter.operators.inputs import Call


class MindSpore:
    """Finds an operator's counterpart and hands it the operator's inputs."""

    threads: ClassVar[int] = 0  # of this process: MindSpore takes a number once

    def prepare(self, call: Call, *, backward: bool, threads: int) -> Prepared:
        """The counterpart with the inputs converted, run once."""
        from luxmeter.operators.counterparts.values import settle, to_torch, wait

        start = time.perf_counter()
        self._use(threads)
        if not call.op:
            raise Unsupported("only operators with a name have a counterpart in MindSpore")
        failed = []
        for target in _targets(call):
            settle()
            try:
                run = _ready(target, call, backward)
                run()
                wait()
            except Exception as error:  # noqa: BLE001  (whatever MindSpore raises is why it cannot run this)
                failed.append(f"{target.name}: {_reason(error)}")
                continue
            return Prepared(run, time.perf_counter() - start, sync=wait, as_torch=to_torch)
        raise Unsupported(failed[0])

    def _use(self, threads: int) -> None:
        """Run with so many threads, or say that it cannot be."""
        import mindspore

        if MindSpore.threads and MindSpore.threads != threads:
            raise Unsupported(
                f"this process runs MindSpore with {MindSpore.threads} threads, and cannot change that"
            )
        if not MindSpore.threads:
            mindspore.device_context.cpu.op_tuning.threads_num(threads)
            MindSpore.threads = threads


def _ready(target: Target, call: Call, backward: bool) -> Callable[[], Any]:
    from luxmeter.operators.counterparts.calling import backward_on, call_on
    from luxmeter.operators.counterparts.cells import cell_call

    if any(isinstance(a, torch.nn.Module) for a in call.args):
        made = cell_call(target, call.args[0], call.args[1:], call.kwargs)
    else:
        made = call_on(target, called(call.op), call.args, call.kwargs)
    return backward_on(made) if backward else made.run


def _targets(call: Call) -> Iterator[Target]:
    """Those that agreed with torch, the best first; Unsupported where none did."""
    known = counterpart_of(called(call.op))
    if known is None or not known.targets:
        why = known.why if known else "it has not been compared"
        raise Unsupported(f"no counterpart of {call.op} is known: {why}")
    yield from _usable(known)


def _usable(known: Counterpart) -> tuple[Target, ...]:
    usable = tuple(t for t in known.targets if t.status not in ("raises", "crashes", "hangs") or t.agree)
    return usable or known.targets[:1]


_ATEN = re.compile(r"aten(?:\.|::)(\w+?)(_?)(?:\.\w+)?$")


def called(op: str) -> str:
    """The name its counterpart is listed under: aten's operators under torch's function of that name."""
    found = _ATEN.match(op)
    if found is None:
        return op.removeprefix("torch.") if op.startswith("torch.Tensor.") else op
    name, in_place = found.groups()
    spaces = ("Tensor.",) if in_place else ("torch.", "torch.nn.functional.", "Tensor.")
    for space in spaces:
        if counterpart_of(f"{space}{name}{in_place}") is not None:
            return f"{space}{name}{in_place}"
    return op


def _reason(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" -")]
    return f"{type(error).__name__}: {(lines[0] if lines else '')[:160]}"


def make() -> MindSpore:
    """The backend."""
    return MindSpore()
