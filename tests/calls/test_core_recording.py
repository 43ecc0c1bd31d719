"""What the core records: time, nesting, flags, threads."""

from __future__ import annotations

import threading
import types
from typing import Any

import numpy as np
import pytest

from luxmeter.calls import core as cores
from luxmeter.calls.core import _pystate
from luxmeter.calls.core._pystate import Instances
from luxmeter.calls.records import EVENT_DTYPE


def make(core: types.ModuleType, **options: Any) -> Any:
    recorder = core.Recorder(signatures=False, **options)
    recorder.start()
    return recorder


def wrap(recorder: Any, function: Any, name: str = "f", **what: Any) -> Any:
    return recorder.wrap(function, recorder.add_callable(name, **what))


def test_both_cores_lay_out_events_alike(core):
    assert EVENT_DTYPE.itemsize == core.EVENT_SIZE


def test_a_call_is_timed_and_its_result_untouched(core, recorded):
    recorder = make(core)
    before = core.now_ns()
    assert wrap(recorder, divmod)(7, 2) == (3, 1)
    after = core.now_ns()
    (event,) = recorded(recorder)
    assert before <= event["start_ns"] <= event["start_ns"] + event["duration_ns"] <= after
    assert event["callable"] == 1 and event["depth"] == 0
    assert event["flags"] == core.FIRST | core.COMPLETED


def test_only_the_first_call_of_a_name_is_marked_first(core, recorded):
    recorder = make(core)
    one, other = wrap(recorder, len, "len"), wrap(recorder, len, "len")
    one([]), one([]), other([])
    assert [bool(e["flags"] & core.FIRST) for e in recorded(recorder)] == [True, False, False]


def test_what_a_call_calls_is_inside_and_left_out(core, recorded):
    recorder = make(core)
    inner = wrap(recorder, len, "inner")
    outer = wrap(recorder, lambda: inner([1]), "outer")
    assert outer() == 1
    assert recorded(recorder)["callable"].tolist() == [2]
    assert recorder.stats()["passed"] == 1


def test_inside_records_it_with_depth_and_self_time(core, recorded):
    recorder = make(core, inside=True)
    inner = wrap(recorder, len, "inner")
    outer = wrap(recorder, lambda: inner([1]) + inner([2]), "outer")
    outer()
    events = recorded(recorder)
    assert events["callable"].tolist() == [1, 1, 2]
    assert events["depth"].tolist() == [1, 1, 0]
    assert [bool(f & core.INSIDE) for f in events["flags"]] == [True, True, False]
    assert events[2]["child_ns"] == events["duration_ns"][:2].sum()


def test_a_span_hides_nothing(core, recorded):
    recorder = make(core)
    inner = wrap(recorder, len, "inner")
    outer = wrap(recorder, lambda: inner([1]), "outer", kind=core.SPAN, module=True)
    outer()
    events = recorded(recorder)
    assert events["callable"].tolist() == [1, 2]
    assert events["module"].tolist() == [2, 0]
    assert events["flags"][1] & core.SPANNED and not events["flags"][0] & core.INSIDE


def test_a_filtered_call_hides_what_it_calls_and_leaves_no_event(core, recorded):
    recorder = make(core)
    inner = wrap(recorder, len, "inner")
    outer = wrap(recorder, lambda: inner([1]), "outer", record=False)
    assert outer() == 1 and inner([]) == 0
    assert recorded(recorder)["callable"].tolist() == [1]


def test_an_exception_is_flagged_kept_and_passed_on(core, recorded):
    recorder = make(core)
    error = ValueError("mine")

    def fail() -> None:
        raise error

    span = wrap(recorder, fail, "fails")
    with pytest.raises(ValueError) as caught:
        span()
    assert caught.value is error
    wrap(recorder, len, "after")([])
    events = recorded(recorder)
    assert events["flags"][0] & core.RAISED and not events["flags"][1] & core.RAISED
    assert events["depth"].tolist() == [0, 0]


def test_the_end_of_an_iterator_is_no_error(core, recorded):
    recorder = make(core)
    step = wrap(recorder, iter([1]).__next__, "next")
    assert step() == 1
    with pytest.raises(StopIteration):
        step()
    assert not (recorded(recorder)["flags"] & core.RAISED).any()


def test_an_interrupt_passes_through(core, recorded):
    recorder = make(core)

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wrap(recorder, interrupted)()
    assert recorded(recorder)["flags"][0] & core.RAISED


def test_recursion_restores_the_depth(core, recorded):
    recorder = make(core, inside=True)

    def down(n: int) -> int:
        return n if n == 0 else wrapped(n - 1)

    wrapped = wrap(recorder, down)
    wrapped(50)
    wrapped(0)
    assert recorded(recorder)["depth"].tolist() == [*range(50, -1, -1), 0]


def test_endless_recursion_ends_as_without_a_recorder(core):
    recorder = make(core, inside=True)

    def endless() -> None:
        wrapped()

    wrapped = wrap(recorder, endless)
    with pytest.raises(RecursionError):
        wrapped()
    assert recorder.thread() == 0  # and the recorder still works
    recorder.drain()
    wrap(recorder, len)([])
    assert np.frombuffer(b"".join(recorder.drain()), dtype=EVENT_DTYPE)["depth"].tolist() == [0]


def test_generators_are_timed_when_made_not_while_suspended(core, recorded):
    recorder = make(core, inside=True)
    inner = wrap(recorder, len, "inner")

    def count() -> Any:
        yield inner([])
        yield inner([1])

    made = wrap(recorder, count, "count")()
    assert list(made) == [0, 1]
    events = recorded(recorder)
    assert events["callable"].tolist() == [2, 1, 1]
    assert events["depth"].tolist() == [0, 0, 0]


def test_threads_have_their_own_depth_and_number(core, recorded):
    names: list[int] = []
    recorder = make(core, inside=True, on_thread=names.append)
    ready, go = threading.Event(), threading.Event()

    def wait() -> None:
        ready.set()
        go.wait(10)

    waiting = wrap(recorder, wait, "wait")
    thread = threading.Thread(target=waiting)
    thread.start()
    ready.wait(10)
    wrap(recorder, len, "len")([])  # while the other thread is inside a call
    go.set()
    thread.join()
    events = recorded(recorder)
    assert sorted(events["thread"].tolist()) == [0, 1] == names
    assert events["depth"].tolist() == [0, 0]
    assert not (events["flags"] & core.INSIDE).any()


def test_many_threads_lose_nothing(core, recorded):
    recorder = make(core)
    wrapped = wrap(recorder, len)

    def work() -> None:
        for _ in range(500):
            wrapped([])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = recorded(recorder)
    assert np.bincount(events["thread"]).tolist() == [500] * 8


def test_stopped_and_paused_wrappers_pass_straight_on(core, recorded):
    recorder = make(core)
    wrapped = wrap(recorder, len)
    recorder.pause()
    assert wrapped([1]) == 1 and not recorder.recording
    recorder.start()
    wrapped([1])
    recorder.stop()
    assert wrapped([1, 2]) == 2
    assert len(recorded(recorder)) == 1


def test_a_call_open_at_stop_is_counted_not_recorded(core, recorded):
    recorder = make(core)
    wrap(recorder, recorder.stop, "stop")()
    assert len(recorded(recorder)) == 0
    assert recorder.stats()["unfinished"] == 1


def test_a_second_stop_counts_nothing_again(core):
    recorder = make(core)
    inner = wrap(recorder, recorder.stop, "stop")
    wrap(recorder, lambda: (inner(), recorder.stop()), "outer", kind=core.SPAN)()
    assert recorder.stats()["unfinished"] == 2


def test_a_call_open_at_pause_is_counted_not_recorded(core, recorded):
    recorder = make(core)
    wrap(recorder, recorder.pause, "pause")()
    assert recorder.stats()["unfinished"] == 1
    recorder.start()
    wrap(recorder, len)([])
    assert recorded(recorder)["depth"].tolist() == [0]


def test_a_call_open_at_start_is_not_recorded(core, recorded):
    recorder = core.Recorder(signatures=False)
    wrap(recorder, recorder.start, "start")()
    assert len(recorded(recorder)) == 0
    wrap(recorder, len)([])
    assert recorded(recorder)["depth"].tolist() == [0]


def test_full_buffers_lose_events_and_say_so(core, recorded):
    recorder = make(core, max_pending=2048)
    wrapped = wrap(recorder, len)
    for _ in range(3000):
        wrapped([])
    assert recorder.stats()["lost"] == 3000 - 2048
    assert len(recorded(recorder)) == 2048
    wrapped([])
    assert len(recorded(recorder)) == 1


def test_a_full_chunk_is_announced(core):
    told: list[int] = []
    recorder = make(core, on_chunk=lambda: told.append(1))
    wrapped = wrap(recorder, len)
    for _ in range(2048 * 2 + 1):
        wrapped([])
    assert len(told) == 2
    assert len(recorder.drain(False)) == 2
    assert recorder.stats()["pending"] == 1


def test_a_hook_that_fails_harms_no_call(core):
    def fail() -> None:
        raise RuntimeError("hook")

    recorder = make(core, on_chunk=fail)
    wrapped = wrap(recorder, len)
    for _ in range(2048):
        assert wrapped([1]) == 1
    assert recorder.stats()["hook_errors"] == 1


def test_an_interrupt_in_a_hook_reaches_the_user(core):
    def interrupted() -> None:
        raise KeyboardInterrupt

    recorder = make(core, on_chunk=interrupted)
    wrapped = wrap(recorder, len)
    with pytest.raises(KeyboardInterrupt):
        for _ in range(2048):
            wrapped([])


def test_completion_is_waited_for_and_both_times_kept(core, recorded):
    clock = core.now_ns

    def wait() -> None:
        until = clock() + 200_000
        while clock() < until:
            pass

    recorder = make(core, sync=wait)
    wrap(recorder, len)([])
    (event,) = recorded(recorder)
    assert event["wait_ns"] >= 200_000 and event["duration_ns"] >= event["wait_ns"]
    assert event["flags"] & core.COMPLETED


def test_dispatch_only_is_not_called_complete(core, recorded):
    recorder = make(core, completed=False)
    wrap(recorder, len)([])
    assert not recorded(recorder)["flags"][0] & core.COMPLETED


def test_every_nth_step_is_recorded(core, recorded):
    recorder = make(core)
    recorder.sample(3)
    wrapped = wrap(recorder, len)
    for _ in range(7):
        wrapped([])
        recorder.step()
    assert len(recorded(recorder)) == 3
    assert recorder.stats()["steps"] == 7


def test_a_boundary_ends_a_step_until_the_user_says_where(core, recorded):
    recorder = make(core)
    recorder.sample(2)
    end = wrap(recorder, len, "step", boundary=True)
    other = wrap(recorder, len, "other")
    for _ in range(4):
        other([]), end([])
    assert recorded(recorder)["callable"].tolist() == [2, 1, 2, 1]
    recorder.step()
    recorder.step()
    end([])
    assert recorder.stats()["steps"] == 6


def test_a_boundary_that_leaves_no_event_ends_a_step_too(core, recorded):
    recorder = make(core)
    recorder.sample(2)
    end = wrap(recorder, len, "step", boundary=True, record=False)
    other = wrap(recorder, len, "other")
    for _ in range(4):
        end([]), other([])
    assert recorder.stats()["steps"] == 4 and len(recorded(recorder)) == 2


def test_live_totals(core):
    recorder = make(core)
    good = wrap(recorder, len, "len")
    for _ in range(3):
        good([])
    with pytest.raises(TypeError):
        good(1)
    ((number, n, total, child, low, high, raised),) = recorder.live()
    assert (number, n, child, raised) == (1, 4, 0, 1)
    assert 4 * low <= total <= 4 * high


def test_totals_mode_keeps_sums_and_histograms(core):
    recorder = core.Recorder(signatures=False, totals=True)
    recorder.start()
    wrapped = wrap(recorder, len)
    for _ in range(100):
        wrapped([])
    rows = recorder.totals()
    assert recorder.drain() == []
    assert sum(row[5] for row in rows) == 100 and len(rows) == 2  # the first call is apart
    histogram = sum(np.frombuffer(row[-1], dtype=np.uint32) for row in rows)
    assert histogram.sum() == 100 and len(histogram) == core.HISTOGRAM_BUCKETS
    assert all(row[9] <= row[6] / row[5] <= row[10] for row in rows)


def test_totals_past_their_room_are_one_row_of_each_name(core, monkeypatch):
    """A row for each signature, as many as there is room for; the calls of more are counted together, and that is told."""
    room = 100_000
    if core.__name__.endswith("_pycore"):
        room = 1000
        monkeypatch.setattr(_pystate, "_MAX_TOTALS", room)
    recorder = core.Recorder(totals=True, max_signatures=2 * room)
    recorder.start()
    wrapped = wrap(recorder, lambda value: None)
    for value in range(room + 10):
        wrapped(value)
    wrapped(1)  # has its own
    rows = recorder.totals()
    mine = [row for row in rows if row[0] == 1]  # the others are the recorder's own work
    assert sum(row[5] for row in mine) == room + 11 == recorder.stats()["events"]
    together = [row for row in mine if row[1] == 0]
    past = 10 + len(rows) - len(mine)
    assert len(together) == len(rows) - room == 1 and together[0][5] == past
    assert recorder.stats()["generalised"] == past


@pytest.mark.one_core("a part of the Python core; the C core's limit is no variable")
def test_names_past_the_room_for_totals_lose_nothing_but_their_places(monkeypatch):
    monkeypatch.setattr(_pystate, "_MAX_TOTALS", 1)
    recorder = cores.load("python")[0].Recorder(signatures=False, totals=True)
    recorder.start()
    for name in ("one", "two"):
        wrap(recorder, len, name)([])
    assert [row[5] for row in recorder.totals()] == [1, 1]
    assert recorder.stats()["generalised"] == 0  # both rows are of a name alone


@pytest.mark.one_core("a part of the Python core: nothing interrupts the C core there")
def test_a_signal_handler_that_calls_while_a_full_chunk_is_handed_over(recorded):
    class Interrupted:
        """A lock that a signal comes to as it is taken."""

        def __enter__(self) -> None:
            again([])

        def __exit__(self, *_: object) -> None: ...

    recorder = make(cores.load("python")[0])
    wrapped, again = wrap(recorder, len), wrap(recorder, len, "handler")
    for _ in range(2047):
        wrapped([])
    buffers = recorder._buffers
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buffers, "_lock", Interrupted())
        wrapped([])
    assert recorder.stats()["lost"] == 1 and recorder.stats()["events"] == 2048
    wrapped([])
    assert len(recorded(recorder)) == 2049


def test_unknown_ids_are_refused(core):
    recorder = make(core)
    with pytest.raises(ValueError):
        recorder.wrap(len, 99)
    with pytest.raises(ValueError):
        recorder.enter(99)
    with pytest.raises(ValueError):
        recorder.sample(0)


@pytest.mark.one_core("a part of the Python core")
def test_what_is_known_about_instances_is_tidied_up_while_other_threads_add_theirs():
    known = Instances()
    instances = [type("Instance", (), {})() for _ in range(1024)]

    def at_that_moment() -> None:  # stands for a weak reference, and for the thread that comes in between
        known.put(known, instances[0], 1)

    known._known[0, 0] = (at_that_moment, 0)
    for instance in instances[1:]:
        known.put(known, instance, 1)
    assert known.get(known, instances[0]) == 1 and (0, 0) not in known._known
