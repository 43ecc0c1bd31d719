"""What the core offers a framework that is not torch: attributes as a key, calls that end later, failures that only waiting shows."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest

from luxmeter.calls.records import EVENT_DTYPE


class Array:
    """A tensor without an exchange table."""

    def __init__(self, shape: Any, dtype: Any) -> None:
        self._shape, self._dtype = shape, dtype


def events(recorder: Any) -> Any:
    return np.frombuffer(b"".join(recorder.drain()), dtype=EVENT_DTYPE)


def test_a_type_may_take_part_by_its_attributes(core: types.ModuleType) -> None:
    answers = {Array: ("_shape", "_dtype"), object: core.IDENTITY}
    recorder = core.Recorder(classify=lambda kind: answers.get(kind, core.OPAQUE))
    call = recorder.wrap(lambda *_: None, recorder.add_callable("f"))
    recorder.start()
    small, wide = object(), object()
    for given in (
        ((2, 3), small),
        ((2, 3), small),
        ((3, 2), small),
        ((2, 3), wide),
        ([2, 3], small),
        (Array((1,), small), wide),
    ):
        call(Array(*given))
    call(Array.__new__(Array))  # has none of them
    found = events(recorder)
    numbers = found["signature"][found["callable"] == 1].tolist()
    assert numbers[0] == numbers[1] != 0 and len(set(numbers[:6])) == 5
    assert recorder.stats()["hook_errors"] == 1


@pytest.mark.parametrize(
    ("options", "expected"), [({}, True), ({"completed": False}, False), ({"sync": lambda: None}, True)]
)
def test_a_call_s_end_is_its_completion_unless_the_device_runs_on(
    core: types.ModuleType, options: dict[str, Any], expected: bool
) -> None:
    recorder = core.Recorder(signatures=False, **options)
    call = recorder.wrap(len, recorder.add_callable("len"))
    recorder.start()
    call("")
    assert [bool(flags & core.COMPLETED) for flags in events(recorder)["flags"]] == [expected]


def test_a_failure_that_only_waiting_shows_is_the_caller_s(core: types.ModuleType) -> None:
    waits: list[BaseException | None] = [
        None,
        RuntimeError("the kernel failed"),
        KeyError("late"),
        KeyboardInterrupt(),
    ]

    def sync() -> None:
        failure = waits.pop(0)
        if failure is not None:
            raise failure

    recorder = core.Recorder(sync=sync, signatures=False)
    call = recorder.wrap(lambda divisor: 1 / divisor, recorder.add_callable("f"))
    recorder.start()
    assert call(2) == 0.5
    with pytest.raises(RuntimeError, match="the kernel failed"):
        call(2)
    with pytest.raises(ZeroDivisionError):  # its own failure stays
        call(0)
    with pytest.raises(KeyboardInterrupt):
        call(2)
    found = events(recorder)
    assert [bool(flags & core.RAISED) for flags in found["flags"]] == [False, True, True, True]
    assert found["depth"].tolist() == [0, 0, 0, 0]
