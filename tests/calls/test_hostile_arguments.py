"""No value of a user's program raises into it, ends it, or costs a call of the trace, whatever it is and does."""

from __future__ import annotations

import array
import collections
import ctypes
import dataclasses
import datetime
import decimal
import enum
import faulthandler
import fractions
import functools
import io
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import luxmeter as lux
from luxmeter.calls import load_trace

pytestmark = pytest.mark.usefixtures("core_name")
# Exceptions: what is more than that passes, since a signal's handler may have raised it (SystemExit of SIGTERM).
_ENDS = (
    ValueError("\udcff"),
    RecursionError(),
    MemoryError(),
    StopIteration(),
    AttributeError("no"),
    KeyError(1),
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def hostile(kind: type, *given: Any, end: BaseException) -> Any:
    """An object of a class below `kind` whose every method raises."""

    def no(*args: Any, **kwargs: Any) -> Any:
        raise end

    names = [
        "repr",
        "str",
        "hash",
        "eq",
        "ne",
        "len",
        "iter",
        "getitem",
        "index",
        "int",
        "float",
        "bool",
        "contains",
        "format",
        "dir",
        "reduce",
        "getstate",
        "instancecheck",
    ]
    methods = {f"__{name}__": no for name in names}
    methods |= dict.fromkeys(("items", "keys", "values", "encode", "bit_length", "dtype", "device"), no)
    made = type(f"Hostile_{kind.__name__}", (kind,), methods)(*given)
    if kind is object:
        type(made).__getattribute__ = no  # type: ignore[method-assign,assignment]
    return made


class MetaThatRaises(type):
    def __getattribute__(cls, name: str) -> Any:
        raise ValueError(4)

    def __hash__(cls) -> int:
        raise ValueError(4)

    def __eq__(cls, other: object) -> bool:
        raise ValueError(4)

    def __instancecheck__(cls, other: object) -> bool:
        raise ValueError(4)


class Liar:
    @property
    def __class__(self) -> Any:
        return torch.nn.Module  # (torch itself crashes of what says that it is a tensor)

    @__class__.setter
    def __class__(self, value: Any) -> None: ...


class LiarThatRaises:
    @property
    def __class__(self) -> Any:
        raise RuntimeError

    @__class__.setter
    def __class__(self, value: Any) -> None: ...


class Told(enum.Enum):
    ONE = "\ud800"


class TensorThatRaises(torch.Tensor):
    dtype = device = layout = property(lambda self: int("no"))  # type: ignore[assignment]


class ArrayThatRaises(np.ndarray):  # type: ignore[type-arg]
    shape = dtype = property(lambda self: int("no"))


@dataclasses.dataclass
class Held:
    inner: Any


def nested(around: Callable[[Any], Any], depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = around(value)
    return value


def odd_function() -> Any:
    def function() -> None: ...

    function.__qualname__ = function.__name__ = "\ud800 \x1b[31m\u202e"
    function.__module__ = hostile(str, "m", end=ValueError(6))
    return function


def values() -> dict[str, Any]:
    unasked = MetaThatRaises("Unasked", (), {})
    itself: list[Any] = []
    itself.append(itself)
    of_itself: dict[str, Any] = {}
    of_itself["a"] = of_itself
    objects = np.empty(1, dtype=object)
    objects[0] = hostile(object, end=ValueError(8))
    made: dict[str, Any] = {f"object {type(end).__name__}": hostile(object, end=end) for end in _ENDS}
    for kind, given in (
        (str, "a\udcff"),
        (int, 3),
        (float, 3.0),
        (list, [1]),
        (dict, {"a": 1}),
        (tuple, (1, 2)),
        (complex, 1j),
        (bytes, b"\xff"),
        (set, {1}),
    ):
        made[f"{kind.__name__} that raises"] = hostile(kind, given, end=ValueError(7))
    return made | {
        "liar": Liar(), "liar that raises": LiarThatRaises(), "of a metaclass": object.__new__(unasked), "metaclass": unasked,
        "tensor": torch.ones(2).as_subclass(TensorThatRaises), "array": np.zeros(2).view(ArrayThatRaises),
        "objects": objects, "held": Held(hostile(object, end=ValueError(8))),
        "function": odd_function(), "enum": Told.ONE, "itself": itself, "of itself": of_itself,
        "lists": nested(lambda v: [v], 5000), "tuples": nested(lambda v: (v,), 5000), "dicts": nested(lambda v: {"a": v}, 5000),
        "slices": nested(lambda v: slice(v, None), 5000), "long list": list(range(300_000)),
        "many lists": [[i] for i in range(5000)], "large dict": {i: i for i in range(5000)},
        "odd keys": {hostile_key(): 1, None: 2, (1,): 3}, "huge": 10**5000, "huger": -(10**50_000), "surrogates": "\ud800\udfff" * 9,
        "long text": "x" * 500_000, "escapes": "\0\x1b[31m\u202e", "bytes": b"\xff" * 99, "nan": float("nan"),
        "complex": complex(float("nan"), float("inf")), "generator": (i for i in range(3)), "iterator": iter([1]),
        "decimal": decimal.Decimal("sNaN"), "fraction": fractions.Fraction(1, 3), "time": datetime.datetime(2026, 1, 1),
        "path": pathlib.Path("\udcff"), "typed array": array.array("d", [1]), "ctypes": (ctypes.c_int * 3)(),
        "view": memoryview(b"abc"), "module": types, "code": odd_function.__code__, "ellipsis": ..., "class": int,
        "proxy": weakref.proxy(odd_function), "reference": weakref.ref(odd_function), "pattern": re.compile("x"),
        "range": range(10**30), "frozen": frozenset([1]), "buffer": bytearray(4), "partial": functools.partial(odd_function),
        "file": io.StringIO("x"), "numpy text": np.str_("\udcff"), "void": np.void(b"abc"), "no time": np.datetime64("NaT"),
        "long double": np.longdouble(1), "no dimension": np.array(3), "dtype": torch.float32, "device": torch.device("cpu"),
        "deque": collections.deque([1]), "mapping": types.MappingProxyType({"a": 1}), "random": random.Random(1),
        "named": collections.namedtuple("Named", "x y")(1, 2), "space": types.SimpleNamespace(a=1), "not": NotImplemented,
    }  # fmt: skip


def hostile_key() -> Any:
    class Key:
        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            raise ValueError(9)

    return Key()


CALLS: dict[str, Callable[[Any], Any]] = {
    "alone": lambda v: torch.nn.functional.relu(v),
    "second": lambda v: torch.add(torch.ones(2), v),
    "named": lambda v: torch.sum(torch.ones(2), dim=v),
    "in a list": lambda v: torch.stack([torch.ones(2), v]),
    "index": lambda v: torch.ones(3)[v],
    "nested": lambda v: torch.full((2,), {"a": [v]}),  # type: ignore[call-overload]
}


def outcome(call: Callable[[Any], Any], value: Any) -> str:
    try:
        call(value)
    except BaseException as error:
        return type(error).__name__
    return "went well"


def survives(value: Any) -> bool:
    """Whether torch itself does: 2.8 crashes on a list as `dim` whose length cannot be had. Asked in a child, untraced."""
    child = os.fork()
    if not child:
        faulthandler.disable()
        for call in CALLS.values():
            outcome(call, value)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def test_whatever_a_call_is_given_it_goes_as_it_would_untraced(core_name: str, tmp_path: Path) -> None:
    one_by_one = {name: value for name, value in values().items() if survives(value)}
    assert len(values()) - len(one_by_one) <= 2, "so many that nothing is tried"
    plain = {(name, how): outcome(CALLS[how], value) for name, value in one_by_one.items() for how in CALLS}
    one_by_one = {name: value for name, value in values().items() if name in one_by_one}
    with lux.trace(keep=tmp_path / "t") as trace:
        traced = {
            (name, how): outcome(CALLS[how], value) for name, value in one_by_one.items() for how in CALLS
        }
        torch.abs(torch.ones(1))
    assert {at: (plain[at], traced[at]) for at in plain if plain[at] != traced[at]} == {}
    ends = [json.loads(path.read_text()) for path in (tmp_path / "t").rglob("end.json")]
    assert [(end["lost_on_disk"], end["trouble"]) for end in ends] == [(0, "")], ends
    again = load_trace(tmp_path / "t")
    for result in (trace, again):
        counts = {row.name: row.n for row in result.table().rows}
        asked = len(one_by_one)
        assert counts["torch.abs"] == 1 and counts["torch.nn.functional.relu"] == asked, counts
        assert counts["torch.sum"] == counts["torch.stack"] == asked, counts
        assert all(str(case) for case in result.operators())
        str(result.table())


def test_a_module_that_holds_a_class_that_raises_whatever_is_asked(
    core_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of every module are walked when a trace starts."""
    module = types.ModuleType("of_odd_classes")
    vars(module).update(Unasked=MetaThatRaises("Unasked", (), {}), function=odd_function(), one=Liar())
    module.function.__defaults__ = (len,)
    monkeypatch.setitem(sys.modules, "of_odd_classes", module)
    with lux.trace() as trace:
        torch.abs(torch.ones(1))
    assert [row.n for row in trace.table().rows if row.name == "torch.abs"] == [1]


def test_a_small_stack_is_enough_for_what_is_nested_deep(core_name: str) -> None:
    """Of threads with 128 KiB. In a process of its own: it would be the end of this one."""
    program = (
        "import sys, threading; from luxmeter.calls import core\n"
        "r = core.load(sys.argv[1])[0].Recorder()\n"
        "f = r.wrap(lambda *a: None, r.add_callable('f'))\n"
        "s = 1\n"
        "for _ in range(20_000): s = slice(s, None)\n"
        "threading.stack_size(128 * 1024); r.start()\n"
        "t = threading.Thread(target=f, args=(s, [s], {'a': s})); t.start(); t.join(); r.stop()\n"
        "print(r.stats()['events'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, core_name], capture_output=True, text=True, env={**os.environ}
    )
    assert done.returncode == 0 and done.stdout.strip() == "1", (done.returncode, done.stderr)
