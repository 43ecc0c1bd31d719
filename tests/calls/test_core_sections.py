"""Sections, and calls that depend on the instance."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest


@pytest.fixture
def recorder(core):
    made = core.Recorder(signatures=False)
    made.start()
    return made


def section(core, recorder, name: str) -> int:
    return recorder.add_callable(name, kind=core.SECTION)


def test_events_carry_the_innermost_section(core, recorder, recorded):
    outer, inner = section(core, recorder, "a"), section(core, recorder, "a/b")
    wrapped = recorder.wrap(len, recorder.add_callable("len"))
    one = recorder.enter(outer)
    wrapped([])
    two = recorder.enter(inner)
    wrapped([])
    assert recorder.section() == inner
    recorder.leave(two)
    wrapped([])
    recorder.leave(one)
    wrapped([])
    events = recorded(recorder)
    calls = events[events["callable"] == 3]
    assert calls["section"].tolist() == [outer, inner, outer, 0]
    assert calls["depth"].tolist() == [1, 2, 1, 0]
    sections = events[events["callable"] != 3]
    assert sections["callable"].tolist() == [inner, outer]
    assert sections[1]["child_ns"] == sections[0]["duration_ns"] + calls["duration_ns"][[0, 2]].sum()


def test_a_section_left_out_of_order_restores_the_nesting(core, recorder, recorded):
    a, b = section(core, recorder, "a"), section(core, recorder, "b")
    wrapped = recorder.wrap(len, recorder.add_callable("len"))
    one, two = recorder.enter(a), recorder.enter(b)
    recorder.leave(one)
    wrapped([])
    recorder.leave(two)
    wrapped([])
    recorder.leave(two)  # a second time is nothing
    events = recorded(recorder)
    assert events["callable"].tolist() == [a, 3, b, 3]
    assert events[events["callable"] == 3]["section"].tolist() == [b, 0]
    assert events[-1]["depth"] == 0


def test_a_section_inside_itself_left_out_of_order(core, recorder, recorded):
    a = section(core, recorder, "a")
    one, two = recorder.enter(a), recorder.enter(a)
    recorder.leave(one)
    assert recorder.section() == a
    recorder.leave(two)
    assert recorder.section() == 0


def test_the_outermost_of_three_left_first(core, recorder, recorded):
    a, b, c = (section(core, recorder, name) for name in "abc")
    wrapped = recorder.wrap(len, recorder.add_callable("len"))
    one, two, three = recorder.enter(a), recorder.enter(b), recorder.enter(c)
    recorder.leave(one)
    wrapped([])
    recorder.leave(three)
    wrapped([])  # back in the one that c was opened in
    recorder.leave(two)
    wrapped([])
    events = recorded(recorder)
    assert events["callable"].tolist() == [a, 4, c, 4, b, 4]
    assert events[events["callable"] == 4]["section"].tolist() == [c, b, 0]
    assert events[events["callable"] == 4]["depth"].tolist() == [2, 1, 0]


def test_a_section_of_a_recorder_that_does_not_run_is_no_event(core, recorder, recorded):
    a = section(core, recorder, "a")
    open_at_stop = recorder.enter(a)
    recorder.stop()
    recorder.leave(open_at_stop)
    assert recorder.stats()["unfinished"] == 1
    while_stopped = recorder.enter(a)
    assert recorder.section() == 0
    recorder.leave(while_stopped)
    of_no_run = recorder.enter(a)
    recorder.start()
    recorder.leave(of_no_run)
    recorder.wrap(len, recorder.add_callable("len"))([])
    events = recorded(recorder)
    assert (
        events["callable"].tolist() == [2] and events["depth"].tolist() == [0] == events["section"].tolist()
    )


def test_a_section_closed_inside_a_call_it_was_opened_outside_of(core, recorder, recorded):
    a = section(core, recorder, "a")
    span = recorder.enter(a)
    close = recorder.wrap(lambda: recorder.leave(span), recorder.add_callable("close", kind=core.SPAN))
    close()
    recorder.wrap(len, recorder.add_callable("len"))([])
    events = recorded(recorder)
    assert events[-1]["section"] == 0 and events[-1]["depth"] == 0


def test_a_section_that_outlives_the_call_it_began_in(core, recorder, recorded):
    a = section(core, recorder, "a")

    def steps() -> Any:
        span = recorder.enter(a)
        yield 1
        recorder.leave(span)

    generator = steps()
    pull = recorder.wrap(generator.__next__, recorder.add_callable("next", kind=core.SPAN))
    assert pull() == 1
    recorder.wrap(len, recorder.add_callable("len"))([])
    with pytest.raises(StopIteration):
        pull()
    recorder.wrap(len, recorder.add_callable("len"))([])
    events = recorded(recorder)
    assert events[events["callable"] == a].size == 1
    assert events[-1]["depth"] == 0 and events[-1]["section"] == 0


def test_a_dropped_section_leaves_no_trace_of_itself(core, recorder, recorded):
    span = recorder.enter(section(core, recorder, "a"))
    recorder.leave(span)
    del span
    gc.collect()
    recorder.wrap(len, recorder.add_callable("len"))([])
    assert recorded(recorder)[-1]["depth"] == 0


def test_a_section_of_another_thread_is_dropped(core, recorder, recorded):
    spans: list[Any] = []
    thread = threading.Thread(target=lambda: spans.append(recorder.enter(section(core, recorder, "a"))))
    thread.start()
    thread.join()
    recorder.leave(spans[0])
    assert recorded(recorder).size == 0


class Model:
    def run(self, value: int) -> int:
        return value + 1


def test_a_resolver_is_asked_once_an_instance(core, recorder, recorded):
    asked: list[Any] = []
    first, second = recorder.add_callable("first"), recorder.add_callable("second", kind=core.SPAN)

    def resolve(instance: Any) -> int:
        asked.append(id(instance))
        return first if len(asked) == 1 else second

    wrapped = recorder.wrap_resolved(Model.run, resolve)
    a, b = Model(), Model()
    for _ in range(3):
        assert wrapped(a, 1) == 2 and wrapped(b, 2) == 3
    assert asked == [id(a), id(b)]
    assert recorded(recorder)["callable"].tolist() == [first, second] * 3
    recorder.forget_instances()
    wrapped(a, 1)
    assert len(asked) == 3


def test_two_resolvers_do_not_mix(core, recorder, recorded):
    one, two = recorder.add_callable("one"), recorder.add_callable("two")
    first = recorder.wrap_resolved(Model.run, lambda _: one)
    second = recorder.wrap_resolved(Model.run, lambda _: two)
    model = Model()
    first(model, 1), second(model, 1), first(model, 1)
    assert recorded(recorder)["callable"].tolist() == [one, two, one]


def test_instances_are_not_kept_alive_nor_mistaken(core, recorder, recorded):
    number = recorder.add_callable("run")
    seen: list[int] = []

    def resolve(instance: Any) -> int:
        seen.append(id(instance))
        return number

    wrapped = recorder.wrap_resolved(Model.run, resolve)
    for _ in range(3000):  # addresses are used again and again
        model = Model()
        wrapped(model, 1)
        gone = weakref.ref(model)
        del model
        assert gone() is None
    assert len(seen) == 3000
    assert len(recorded(recorder)) == 3000


def test_an_instance_without_weak_references_is_asked_about_every_time(core, recorder):
    asked: list[Any] = []
    number = recorder.add_callable("len")
    wrapped = recorder.wrap_resolved(len, lambda instance: asked.append(1) or number)
    values: list[int] = []
    wrapped(values), wrapped(values)
    assert len(asked) == 2


def test_a_resolver_may_refuse_or_fail(core, recorder, recorded):
    refuse = recorder.wrap_resolved(Model.run, lambda _: -1)
    unknown = recorder.wrap_resolved(Model.run, lambda _: 77)

    def fail(_: Any) -> int:
        raise RuntimeError

    broken = recorder.wrap_resolved(Model.run, fail)
    assert refuse(Model(), 1) == unknown(Model(), 1) == broken(Model(), 1) == 2
    assert recorded(recorder).size == 0
    assert recorder.stats()["hook_errors"] == 2
