"""The hooks around each recorded call: what is asked right before it, and told right behind it."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

import luxmeter as lux
from luxmeter.errors import UsageError


class Around:
    """Notes what the recorder asks and tells."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.answer: Any = "mark"

    def begin(self) -> Any:
        self.said.append("begin")
        return self.answer

    def end(self, begun: Any, thread: int, start_ns: int) -> None:
        self.said.append((begun, thread, start_ns))


@pytest.fixture
def around() -> Around:
    return Around()


def recorder_of(core: ModuleType, around: Around, **how: Any) -> Any:
    made = core.Recorder(on_begin=around.begin, on_end=around.end, signatures=False, **how)
    made.start()
    return made


def test_they_enclose_the_call_and_name_its_event(core: ModuleType, around: Around, recorded: Any):
    recorder = recorder_of(core, around)
    work = recorder.wrap(lambda: around.said.append("work"), recorder.add_callable("work"))
    work(), work()
    events = recorded(recorder)
    told = [said for said in around.said if isinstance(said, tuple)]
    assert [said if isinstance(said, str) else "end" for said in around.said] == ["begin", "work", "end"] * 2
    assert told == [("mark", int(e["thread"]), int(e["start_ns"])) for e in events]


def test_their_own_time_is_no_part_of_the_call(core: ModuleType, recorded: Any):
    times: list[int] = []

    def note(*_: Any) -> str:
        times.append(core.now_ns())
        return "mark"

    recorder = core.Recorder(on_begin=note, on_end=note, signatures=False)
    recorder.start()
    recorder.wrap(len, recorder.add_callable("work"))([])
    [event] = recorded(recorder)
    before, after = times
    assert before <= event["start_ns"] and event["start_ns"] + event["duration_ns"] <= after


def test_without_an_answer_nothing_is_told(core: ModuleType, around: Around):
    around.answer = None
    recorder = recorder_of(core, around)
    recorder.wrap(len, recorder.add_callable("work"))([])
    assert around.said == ["begin"]


def test_a_call_within_a_recorded_one_has_none_unless_it_is_recorded(core: ModuleType, around: Around):
    for inside, pairs in ((False, 1), (True, 2)):
        around.said.clear()
        recorder = recorder_of(core, around, inside=inside)
        inner = recorder.wrap(len, recorder.add_callable("inner"))
        recorder.wrap(lambda: inner([]), recorder.add_callable("outer"))()
        assert around.said.count("begin") == pairs and len(around.said) == 2 * pairs


def test_calls_of_the_hooks_are_not_recorded(core: ModuleType, recorded: Any):
    hooks = {"on_begin": lambda: work([1]), "on_end": lambda *_: work([1, 2])}
    recorder = core.Recorder(signatures=False, **hooks)
    work = recorder.wrap(len, recorder.add_callable("work"))
    recorder.start()
    assert work([]) == 0 and len(recorded(recorder)) == 1


def test_what_they_raise_is_counted_and_dropped(core: ModuleType, recorded: Any):
    def fail(*_: Any) -> Any:
        raise ValueError("hook")

    for hooks in ({"on_begin": fail, "on_end": fail}, {"on_begin": lambda: 1, "on_end": fail}):
        recorder = core.Recorder(signatures=False, **hooks)
        recorder.start()
        assert recorder.wrap(len, recorder.add_callable("work"))("ab") == 2
        with pytest.raises(TypeError):
            recorder.wrap(len, recorder.add_callable("work"))(None)
        assert recorder.stats()["hook_errors"] == 2 and recorder.hook_error == "ValueError: hook"
        assert [bool(e["flags"] & core.RAISED) for e in recorded(recorder)] == [False, True]


@pytest.mark.parametrize("where", ["on_begin", "on_end"])
def test_an_interruption_in_them_is_the_users_and_leaves_the_nesting_whole(
    core: ModuleType, around: Around, recorded: Any, where: str
):
    def interrupt(*_: Any) -> Any:
        if around.answer == "now":
            raise KeyboardInterrupt
        return 1

    recorder = core.Recorder(
        signatures=False, **{"on_begin": lambda: 1, "on_end": lambda *_: None, where: interrupt}
    )
    recorder.start()
    work = recorder.wrap(len, recorder.add_callable("work"))
    around.answer = "now"
    with pytest.raises(KeyboardInterrupt):
        work([])
    around.answer = "later"
    assert work([1]) == 1
    assert [int(e["depth"]) for e in recorded(recorder)][-1] == 0


def test_they_come_before_waiting_for_the_device(core: ModuleType, around: Around, recorded: Any):
    recorder = recorder_of(core, around, sync=lambda: around.said.append("waited"))
    recorder.wrap(len, recorder.add_callable("work"))([])
    assert [said if isinstance(said, str) else "end" for said in around.said] == ["begin", "end", "waited"]
    [event] = recorded(recorder)
    assert 0 < event["wait_ns"] < event["duration_ns"]


def test_one_without_the_other_is_refused(core: ModuleType):
    with pytest.raises(ValueError, match="go together"):
        core.Recorder(on_begin=lambda: 1)
    core.Recorder(on_begin=None, on_end=None)


@pytest.mark.usefixtures("core_name")
def test_without_an_accelerator_one_line_says_so_and_the_trace_goes_on():
    with lux.trace(framework=None, device=True) as t:
        assert t.wrap(len, name="work")([1]) == 1
    assert t.table()["work"].n == 1 and t.table()["work"].device_ns is None
    assert t.result.notes() == [
        "no call was timed on a device: torch saw no accelerator at work in this process"
    ]
    assert "device_ns" not in t.events().column_names and "  device" not in str(t.table()).splitlines()[0]


@pytest.mark.usefixtures("core_name")
def test_sums_alone_cannot_be_timed_on_a_device():
    with pytest.raises(UsageError, match="device-needs-calls"):
        lux.start(device=True, totals=True)
