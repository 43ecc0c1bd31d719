"""What makes a signature, that it is described once, and that it stays bounded."""

from __future__ import annotations

import sys
import weakref
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from luxmeter.calls.arguments import Arguments
from luxmeter.calls.records import EVENT_DTYPE


def make(core, *, exchange: bool = True, strides: bool = False, **more: Any) -> tuple[Any, Any, list[Any]]:
    """A recorder, a wrapped function that takes anything, and what was described."""
    arguments = Arguments(exchange=exchange, strides=strides)
    described: list[Any] = []
    recorder = core.Recorder(
        strides=strides,
        **arguments.hooks(),
        on_signature=lambda c, s, args, kwargs, general: described.append(
            (s, len(args), sorted(kwargs), general)
        ),
        **more,
    )
    recorder.start()
    return recorder, recorder.wrap(lambda *args, **kwargs: None, recorder.add_callable("f")), described


def ids(recorder: Any) -> list[int]:
    events = np.frombuffer(b"".join(recorder.drain()), dtype=EVENT_DTYPE)
    found: list[int] = events[events["callable"] != 0]["signature"].tolist()
    return found


@pytest.fixture(params=[True, False], ids=["table", "attributes"])
def exchange(request) -> bool:
    return request.param


DIFFERENT: list[tuple[Any, Any]] = [
    (torch.ones(2, 3), torch.ones(3, 2)),
    (torch.ones(2), torch.ones(2, 1)),
    (torch.ones(2), torch.ones(2, dtype=torch.float64)),
    (torch.ones(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.float16)),
    (torch.ones(2, dtype=torch.uint8), torch.ones(2, dtype=torch.bool)),
    (torch.ones(2), torch.nn.Parameter(torch.ones(2))),
    (torch.ones(2), torch.ones(2, device="meta")),
    (torch.ones(2, 2), torch.ones(2, 2).to_sparse()),
    (torch.ones(2, 2).to_sparse(), torch.ones(2, 3).to_sparse()),
    (1, 2),
    (1, True),
    (1, 1.0),
    (0, None),
    (2**70, 2**71),
    ("sum", "mean"),
    (torch.float32, torch.float64),
    (torch.device("cpu"), torch.device("meta")),
    (torch.contiguous_format, torch.channels_last),
    ([torch.ones(2)], [torch.ones(3)]),
    ([torch.ones(2)], (torch.ones(2),)),
    ([torch.ones(2)], [torch.ones(2), torch.ones(2)]),
    ([[1], 2], [[1, 2]]),
    ({"a": 1}, {"b": 1}),
    ({"a": torch.ones(1)}, {"a": torch.ones(2)}),
    (slice(0, 2), slice(0, 3)),
    (Ellipsis, None),
    (np.ones(2), np.ones(3)),
    (np.int64(3), np.int64(4)),
    (int, float),
    (torch.Size([2]), torch.Size([3])),
]


@pytest.mark.parametrize("pair", DIFFERENT, ids=range(len(DIFFERENT)))
def test_these_are_told_apart(core, exchange, pair):
    recorder, f, described = make(core, exchange=exchange)
    f(pair[0]), f(pair[1]), f(pair[0]), f(x=pair[0]), f(x=pair[1])
    assert ids(recorder) == [1, 2, 1, 3, 4]
    assert len(described) == 4


SAME: list[tuple[Any, Any]] = [
    (torch.ones(2, 3), torch.zeros(2, 3)),
    (torch.ones(2, 3), torch.ones(3, 2).t()),
    (0.5, 0.7),
    ([0.5, 1], [0.9, 1]),
    (torch.device("cpu"), torch.device("cpu")),
    (complex(1, 2), complex(3, 4)),
    (np.ones(2), np.zeros(2)),
    (object(), object()),
    (torch.nn.Linear(1, 1), torch.nn.Linear(2, 2)),
]


@pytest.mark.parametrize("pair", SAME, ids=range(len(SAME)))
def test_these_are_one(core, exchange, pair):
    recorder, f, described = make(core, exchange=exchange)
    f(pair[0]), f(pair[1])
    assert ids(recorder) == [1, 1] and len(described) == 1


def test_strides_on_request(core, exchange):
    recorder, f, _ = make(core, exchange=exchange, strides=True)
    f(torch.ones(3, 3)), f(torch.ones(3, 3).t()), f(torch.ones(3, 3))
    assert ids(recorder) == [1, 2, 1]


def test_keyword_names_and_callables_are_part_of_it(core):
    recorder, f, _ = make(core)
    g = recorder.wrap(lambda *args, **kwargs: None, recorder.add_callable("g"))
    f(1), f(a=1), f(b=1), g(1)
    assert ids(recorder) == [1, 2, 3, 4]


def test_description_gets_the_arguments_and_is_an_event_of_its_own(core):
    recorder, f, described = make(core)
    f(1, 2, b=3, a=4)
    assert described == [(1, 2, ["a", "b"], False)]
    events = np.frombuffer(b"".join(recorder.drain()), dtype=EVENT_DTYPE)
    assert [(e["callable"], bool(e["flags"] & core.OWN)) for e in events] == [(0, True), (1, False)]
    assert events[0]["start_ns"] + events[0]["duration_ns"] <= events[1]["start_ns"]
    assert recorder.stats()["described_ns"] == events[0]["duration_ns"]


def test_floats_keep_their_range(core):
    recorder, f, described = make(core)
    for value in (0.5, -1.0, 2.0):
        f(value, torch.ones(1), scale=[value * 10, 1])
    assert len(described) == 1
    assert recorder.float_ranges() == {1: [(-1.0, 2.0), (-10.0, 20.0)]}


class Number(float):
    """Of the user's own."""


@pytest.mark.parametrize("kind", [float, Number])
def test_of_more_floats_the_first_have_a_range(core, kind):
    recorder, f, described = make(core)
    for by in (1, 2):
        f([kind(n * by) for n in range(20)])
    assert len(described) == 1
    assert recorder.float_ranges() == {1: [(n, 2 * n) for n in range(16)]}


def test_two_hundred_adam_steps_do_not_make_hundreds_of_signatures(core):
    _, f, described = make(core)
    value, weight = torch.ones(3), torch.nn.Parameter(torch.ones(3))
    for step in range(1, 201):
        f(weight, value, value, value=-0.001 / (1 - 0.9**step))
    assert len(described) == 1


def test_past_the_limit_signatures_are_one_and_said_so(core):
    recorder, f, described = make(core, max_signatures=10)
    for size in range(1, 51):
        f(torch.empty(size))
    assert ids(recorder) == [*range(1, 11), *[11] * 40]
    assert [general for *_, general in described] == [False] * 10 + [True]
    assert recorder.stats()["generalised"] == 40
    f(torch.empty(3))
    assert ids(recorder) == [3]


def test_ever_new_shapes_stay_flat(core):
    recorder, f, described = make(core, max_signatures=64)
    n = 100_000 if core.__name__.endswith("_core") else 5_000
    for i in range(n):
        f(i)
        if i % 1024 == 0:
            recorder.drain()
    assert recorder.stats()["signatures"] == 65 == len(described)


def test_long_lists_of_numbers_are_cut_and_of_tensors_are_not(core):
    recorder, f, _ = make(core)
    f([0] * 100), f([0] * 99 + [1]), f([0] * 31 + [1] + [0] * 68)
    tensors = [torch.ones(1)] * 50
    f(tensors), f([*tensors[:-1], torch.ones(2)])
    assert ids(recorder) == [1, 1, 2, 3, 4]


def test_cycles_and_deep_nesting_end(core):
    recorder, f, _ = make(core)
    endless: list[Any] = []
    endless.append(endless)
    f(endless), f(endless)
    assert ids(recorder) == [1, 1]


def test_named_tuples_differ_from_tuples(core):
    Pair = namedtuple("Pair", "a b")
    recorder, f, _ = make(core)
    f(Pair(1, 2)), f((1, 2)), f(Pair(1, 2))
    assert ids(recorder) == [1, 2, 1]


def test_no_tensor_is_kept_alive(core, exchange):
    _, f, _ = make(core, exchange=exchange)
    tensors = [
        torch.ones(2),
        torch.ones(2).to_sparse(),
        torch.nn.Parameter(torch.ones(3)),
        torch.ones(1, device="meta"),
    ]
    gone = [weakref.ref(t) for t in tensors]
    counts = [sys.getrefcount(t) for t in tensors]
    for t in tensors:
        f(t, [t], {"t": t}, key=t)
    del t
    assert [sys.getrefcount(t) for t in tensors] == counts
    tensors.clear()
    assert all(ref() is None for ref in gone)


def test_subclasses_and_transforms_are_read_without_their_noticing(core):
    seen: list[str] = []

    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(getattr(func, "__name__", str(func)))
            return super().__torch_function__(func, types, args, kwargs or {})

    recorder, f, described = make(core)
    loud = torch.ones(2).as_subclass(Loud)
    seen.clear()
    f(loud)
    torch.func.vmap(lambda x: (f(x), x.sum())[1])(torch.ones(3, 2))
    assert seen == [] and len(described) == 2
    assert recorder.stats()["hook_errors"] == 0


def test_symbols_of_a_captured_program_are_left_alone(core):
    recorder, f, described = make(core)
    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env)
    fake = mode.from_tensor(torch.ones(5, 7), static_shapes=False)
    f(fake)
    assert len(described) == 1 and env.guards == []
    assert recorder.stats()["hook_errors"] == 0


def test_a_description_that_fails_harms_no_call(core):
    def fail(*_: Any) -> None:
        raise RuntimeError("cannot describe")

    recorder = core.Recorder(on_signature=fail)
    recorder.start()
    assert recorder.hook_error == ""
    assert recorder.wrap(len, recorder.add_callable("len"))([1]) == 1
    assert recorder.stats()["hook_errors"] == 1
    assert recorder.hook_error == "RuntimeError: cannot describe"
    recorder.after_fork()
    assert (recorder.stats()["hook_errors"], recorder.hook_error) == (0, "")


def test_hooks_do_not_record_what_they_call(core):
    recorder: Any = None

    def describe(*_: Any) -> None:
        wrapped([1, 2])

    recorder = core.Recorder(on_signature=describe)
    recorder.start()
    wrapped = recorder.wrap(len, recorder.add_callable("len"))
    assert wrapped([1]) == 1
    assert len(ids(recorder)) == 1


def test_a_foreign_exchange_table_is_refused(core):
    if core.__name__.endswith("_pycore"):
        pytest.skip("the Python core reads attributes")
    with pytest.raises(ValueError):
        core.Recorder(exchange=torch._C._to_dlpack(torch.ones(1)), tensor_type=torch.Tensor)


def test_floats_that_decide_the_size_are_part_of_the_key(core):
    described = []
    recorder = core.Recorder(on_signature=lambda c, s, args, kwargs, general: described.append(args))
    plain, sized = (recorder.add_callable(name, floats=name == "sized") for name in ("plain", "sized"))
    recorder.start()
    for callable_id in (plain, sized):
        call = recorder.wrap(lambda *args: None, callable_id)
        for factor in (2.0, 2.0, 0.5, 0.0, -0.0):
            call(1, [factor])
    assert described == [(1, [2.0]), (1, [2.0]), (1, [0.5]), (1, [0.0]), (1, [-0.0])]
    ranges = recorder.float_ranges()
    assert ranges[1] == [(-0.0, 2.0)] and ranges[2] == [(2.0, 2.0)] and ranges[3] == [(0.5, 0.5)]


def test_the_first_result_of_a_signature_is_given_in_nobodys_time(core) -> None:
    given: list[Any] = []
    recorder, _, _ = make(core, on_result=lambda *pair: given.append(pair))

    def twice(n: int) -> int:
        if n < 0:
            raise ValueError(n)
        return 2 * n

    call = recorder.wrap(twice, recorder.add_callable("twice"))
    span = recorder.wrap(twice, recorder.add_callable("span", kind=core.SPAN))
    assert [call(1), call(1), call(2), span(3)] == [2, 2, 4, 6]
    with pytest.raises(ValueError):
        call(-1)
    events = np.frombuffer(b"".join(recorder.drain()), dtype=EVENT_DTYPE)
    assert [result for _, result in given] == [2, 4]
    mine = events[events["callable"] == 1 + 1]
    assert [number for number, _ in given] == [mine["signature"][0], mine["signature"][2]]
    after = events[
        np.flatnonzero(events["callable"] == 2)[[0, 2]] + 1
    ]  # the recorder's own work, behind each first call
    assert (after["callable"] == 0).all()
    assert (after["start_ns"] >= mine["start_ns"][[0, 2]] + mine["duration_ns"][[0, 2]]).all()
    assert recorder.stats()["events"] == 5


def test_a_description_of_a_result_that_ends_the_recording(core) -> None:
    recorder = core.Recorder(on_result=lambda signature, result: recorder.stop())
    recorder.start()
    assert recorder.wrap(len, recorder.add_callable("f"))([1]) == 1
    assert len(ids(recorder)) == 1 and not recorder.recording


def test_a_result_that_cannot_be_described_is_the_callers_all_the_same(core) -> None:
    def fails(signature: int, result: Any) -> None:
        raise RuntimeError("odd")

    def interrupted(signature: int, result: Any) -> None:
        raise KeyboardInterrupt

    recorder, call, _ = make(core, on_result=fails)
    assert recorder.wrap(len, recorder.add_callable("len"))([1]) == 1
    assert recorder.stats()["hook_errors"] == 1
    recorder, call, _ = make(core, on_result=interrupted)
    with pytest.raises(KeyboardInterrupt):
        call(1)
    assert call(1) is None
