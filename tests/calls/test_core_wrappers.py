"""A stand-in looks and behaves like what it stands for."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import pickle
import weakref
from typing import Any

import pytest
import torch


@pytest.fixture
def recorder(core):
    made = core.Recorder(signatures=False)
    made.start()
    return made


def wrap(recorder: Any, function: Any) -> Any:
    return recorder.wrap(function, recorder.add_callable("f"))


def greet(name: str, *, loud: bool = False) -> str:
    """Say hello."""
    return f"hello {name}" + ("!" if loud else "")


greet.mark = 7  # type: ignore[attr-defined]

FUNCTIONS = [
    greet,
    torch.add,
    torch.Tensor.add,
    torch.nn.functional.softmax,
    len,
    functools.partial(greet, "x"),
]


@pytest.mark.parametrize(
    "function", FUNCTIONS, ids=["python", "builtin", "method", "softmax", "len", "partial"]
)
def test_it_looks_like_what_it_wraps(recorder, function):
    wrapped = wrap(recorder, function)
    for name in (
        "__name__",
        "__qualname__",
        "__module__",
        "__doc__",
        "__text_signature__",
        "__defaults__",
        "mark",
    ):
        assert getattr(wrapped, name, None) == getattr(function, name, None), name
    assert hash(wrapped) == hash(function) and wrapped == function and function == wrapped
    assert (wrapped != function) is False and wrapped != print
    assert repr(wrapped) == repr(function)
    assert wrapped.__wrapped__ is function
    assert {function: 1}[wrapped] == 1 and {wrapped: 1}[function] == 1
    assert callable(wrapped) and isinstance(wrapped, type(function))
    with pytest.raises(AttributeError):
        wrapped.no_such_attribute


def test_two_stand_ins_of_one_function_are_equal(recorder):
    assert wrap(recorder, greet) == wrap(recorder, greet)


def test_signature(recorder):
    assert inspect.signature(wrap(recorder, greet)) == inspect.signature(greet)
    with pytest.raises(ValueError):
        inspect.signature(wrap(recorder, torch.add))


def test_arguments_of_all_kinds_arrive(recorder):
    wrapped = wrap(recorder, lambda *args, **kwargs: (args, kwargs))
    assert wrapped() == ((), {})
    assert wrapped(1, *[2, 3], a=4, b=5) == ((1, 2, 3), {"a": 4, "b": 5})
    assert wrapped(self=1) == ((), {"self": 1})


def test_attributes_are_set_on_what_it_wraps(recorder):
    wrapped = wrap(recorder, greet)
    wrapped.mark = 8
    try:
        assert greet.mark == 8  # type: ignore[attr-defined]
    finally:
        greet.mark = 7  # type: ignore[attr-defined]


def test_attributes_are_removed_from_what_it_wraps(recorder):
    def plain() -> None: ...

    plain.mark = 1  # type: ignore[attr-defined]
    wrapped = wrap(recorder, plain)
    del wrapped.mark
    assert not hasattr(plain, "mark")
    with pytest.raises(AttributeError):
        del wrapped.mark


def test_functions_bind_as_methods_and_builtins_do_not(recorder):
    class Thing:
        method = wrap(recorder, lambda self, x: (self, x))
        plain = wrap(recorder, len)

    thing = Thing()
    assert thing.method(1) == (thing, 1)
    assert Thing.method(thing, 1) == (thing, 1)
    assert thing.method.__self__ is thing
    assert thing.plain([1]) == 1


def test_operators_of_tensors(recorder, recorded):
    torch.Tensor.__add__ = wrap(recorder, torch.Tensor.__add__)
    try:
        assert (torch.ones(2) + 1).tolist() == [2.0, 2.0]
    finally:
        del torch.Tensor.__add__
    assert len(recorded(recorder)) == 1


def test_pickle_goes_by_name(recorder, monkeypatch):
    monkeypatch.setattr(torch.nn.functional, "softmax", wrap(recorder, torch.nn.functional.softmax))
    text = pickle.dumps(torch.nn.functional.softmax)
    assert b"luxmeter" not in text
    monkeypatch.undo()
    assert pickle.loads(text) is torch.nn.functional.softmax


def test_a_stray_pickles_as_what_it_wraps(recorder):
    assert pickle.loads(pickle.dumps(wrap(recorder, greet))) is greet
    assert pickle.loads(pickle.dumps(wrap(recorder, torch.add))) == torch.add
    assert pickle.loads(pickle.dumps(wrap(recorder, torch.Tensor.add))) == torch.Tensor.add


def test_copies_are_itself(recorder):
    wrapped = wrap(recorder, greet)
    assert copy.copy(wrapped) is wrapped and copy.deepcopy({"f": wrapped})["f"] is wrapped


def test_weak_references(recorder):
    wrapped = wrap(recorder, greet)
    ref = weakref.ref(wrapped)
    assert ref() is wrapped
    del wrapped
    gc.collect()
    assert ref() is None


def test_it_is_looked_through_by_dynamo_and_script(recorder):
    wrapped = wrap(recorder, greet)
    assert inspect.getattr_static(wrapped, "__script_if_tracing_wrapper") is True
    assert getattr(wrapped, "__original_fn") is greet


def test_through_is_called_in_its_place(recorder, recorded):
    wrapped = recorder.wrap(greet, recorder.add_callable("f"), through=lambda name: name.upper())
    assert wrapped("x") == "X" and wrapped == greet
    assert recorder.wrap(greet, -1)("y") == "hello y"
    assert len(recorded(recorder)) == 1


def test_a_stand_in_of_another_recorder_is_looked_through(core, recorder, recorded):
    old = wrap(core.Recorder(), greet)
    new = wrap(recorder, old)
    assert new.__wrapped__ is greet
    new("x")
    assert len(recorded(recorder)) == 1


def test_properties(core, recorder, recorded):
    class Thing:
        def __init__(self) -> None:
            self._x = 1

        @property
        def x(self) -> int:
            """The x."""
            return self._x

        @x.setter
        def x(self, value: int) -> None:
            self._x = value

        @x.deleter
        def x(self) -> None:
            self._x = 0

    original = vars(Thing)["x"]
    Thing.x = recorder.wrap_property(original, recorder.add_callable("x"))  # type: ignore[method-assign]
    thing = Thing()
    assert thing.x == 1
    thing.x = 5
    assert thing.x == 5
    del thing.x
    assert thing._x == 0
    assert Thing.x is original and vars(Thing)["x"].__doc__ == "The x."
    assert len(recorded(recorder)) == 2


def test_a_property_is_looked_through_and_read_unseen_where_nothing_records(core, recorder, recorded):
    class Thing:
        @property
        def x(self) -> int:
            return 7

    original = vars(Thing)["x"]
    seen = recorder.wrap_property(original, recorder.add_callable("x"))
    unseen = recorder.wrap_property(original, -1)
    assert seen.__wrapped__ is original and seen.fget is original.fget
    with pytest.raises(AttributeError):
        _ = seen.no_such_part
    assert unseen.__get__(Thing(), Thing) == 7
    recorder.stop()
    assert seen.__get__(Thing(), Thing) == 7
    assert len(recorded(recorder)) == 0


def test_getset_descriptors(recorder, recorded):
    torch.Tensor.T = recorder.wrap_property(torch.Tensor.T, recorder.add_callable("T"))
    try:
        assert torch.ones(2, 3).T.shape == (3, 2)
        with pytest.raises((AttributeError, NotImplementedError)):
            torch.ones(2, 3).T = 1
    finally:
        del torch.Tensor.T
    assert len(recorded(recorder)) == 1


def test_a_cycle_through_recorder_and_stand_in_is_collected(core):
    class Hook:
        def __call__(self) -> None: ...

    hook = Hook()
    recorder = core.Recorder(on_chunk=hook)
    hook.wrapped = wrap(recorder, greet)  # type: ignore[attr-defined]
    gone = weakref.ref(hook)
    del hook, recorder
    gc.collect()
    assert gone() is None


def test_a_stray_outlives_its_recorder(core):
    wrapped = wrap(core.Recorder(), greet)
    gc.collect()
    assert wrapped("x") == "hello x"


def test_a_wrapper_may_be_dropped_while_it_runs(core, recorder, recorded):
    holder: dict[str, Any] = {}

    def drop() -> int:
        holder.clear()
        gc.collect()
        return 1

    holder["f"] = wrap(recorder, drop)
    assert holder["f"]() == 1
    assert len(recorded(recorder)) == 1
