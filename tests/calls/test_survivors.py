"""Functions that a program puts away while a trace runs: the originals again afterwards, or as good as those."""

from __future__ import annotations

import collections
import copy
import functools
import gc
import inspect
import pickle
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import luxmeter as lux
from luxmeter.calls.patching import survivors

pytestmark = pytest.mark.usefixtures("core_name")

GELU, RELU, ADD = ORIGINALS = (F.gelu, torch.relu, torch.Tensor.add)  # the names are replaced during a trace


@pytest.fixture(autouse=True, scope="module")
def compiled_before() -> None:
    """What torch changes in itself at its first compilation is done before a test looks."""
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))


class Plain:
    shared: Any = None


class Slotted:
    __slots__ = ("act",)


class Odd:
    """Whatever looks at it runs code of the user's."""

    touched: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        Odd.touched.append(name)
        raise RuntimeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        Odd.touched.append(name)
        object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> bool:
        Odd.touched.append("==")
        raise RuntimeError

    def __hash__(self) -> int:
        Odd.touched.append("hash")
        return 1


class OddList(list):  # type: ignore[type-arg]
    def __getitem__(self, at: Any) -> Any:
        raise RuntimeError

    __setitem__ = __iter__ = __len__ = __getitem__  # type: ignore[assignment]


class OddDict(dict):  # type: ignore[type-arg]
    def __getitem__(self, at: Any) -> Any:
        raise RuntimeError

    __setitem__ = items = keys = values = __iter__ = __getitem__  # type: ignore[assignment]


class OddPartial(functools.partial):  # type: ignore[type-arg]
    def __reduce__(self) -> Any:
        raise RuntimeError

    def __setstate__(self, state: Any) -> None:
        raise RuntimeError


def closure(function: Any) -> Callable[[], Any]:
    return lambda: function


def defaults(act: Any, more: Any) -> Any:
    def made(x: Any, f: Any = act, *, g: Any = more) -> Any:
        return f, g

    return made


def places() -> dict[str, tuple[Any, Callable[[Any], Any]]]:
    """Something that holds F.gelu as it is bound now, and how to read it out of that."""
    plain, slotted, later, module = Plain(), Slotted(), Plain(), torch.nn.Module()
    plain.act = slotted.act = F.gelu
    vars(later)["act"] = F.gelu
    module.act = F.gelu
    kind = type("Kind", (), {"act": F.gelu})
    ring: list[Any] = [F.gelu]
    ring.append(ring)
    function = defaults(F.gelu, torch.relu)
    return {
        "attribute": (plain, lambda o: o.act),
        "attribute in a dictionary": (later, lambda o: vars(o)["act"]),
        "attribute of a module": (module, lambda o: o.act),
        "slot": (slotted, lambda o: o.act),
        "attribute of a class": (kind, lambda o: o.act),
        "list": ([1, F.gelu, 2], lambda o: o[1]),
        "list in itself": (ring, lambda o: o[0]),
        "list in a tuple": (([F.gelu],), lambda o: o[0][0]),
        "dict": ({"a": F.gelu}, lambda o: o["a"]),
        "dict by number and function": ({1: F.gelu, len: F.gelu}, lambda o: o[1] if o[1] is o[len] else None),
        "ordered dict": (collections.OrderedDict(a=1, b=F.gelu), lambda o: o["b"]),
        "cell": (closure(F.gelu), lambda o: o()),
        "default": (function, lambda o: o.__defaults__[0]),
        "keyword default": (defaults(None, F.gelu), lambda o: o.__kwdefaults__["g"]),
        "partial": (functools.partial(F.gelu, approximate="tanh"), lambda o: o.func),
        "argument of a partial": (functools.partial(map, F.gelu), lambda o: o.args[0]),
        "keyword of a partial": (functools.partial(map, f=F.gelu), lambda o: o.keywords["f"]),
        "odd list": (OddList([F.gelu]), lambda o: list.__getitem__(o, 0)),
        "odd dict": (OddDict(a=F.gelu), lambda o: dict.__getitem__(o, "a")),
        "odd partial": (OddPartial(F.gelu), lambda o: o.func),
    }


def test_places_get_the_original_back():
    with lux.trace():
        held = places()
        assert [name for name, (place, read) in held.items() if read(place) is ORIGINALS[0]] == []
    for name, (place, read) in held.items():
        assert read(place) is GELU, name
    partial = held["partial"][0]
    assert partial.keywords == {"approximate": "tanh"} and partial(torch.zeros(1)) == 0
    assert held["attribute of a class"][0]().act is GELU, "and the class knows"
    assert held["list"][0] == [1, GELU, 2] and list(held["ordered dict"][0]) == ["a", "b"]


def test_no_code_of_the_user_runs():
    odd = Odd()
    with lux.trace():
        object.__setattr__(odd, "act", F.gelu)
        table = {odd: F.gelu}
        Odd.touched.clear()
    assert Odd.touched == []
    assert object.__getattribute__(odd, "act") is GELU
    assert list(table.values()) == [GELU], "a key that runs code keeps the stand-in"


def test_what_was_put_away_before_the_trace_is_left_alone():
    before = [GELU, {"a": GELU}]
    with lux.trace():
        pass
    assert before[0] is GELU and before[1]["a"] is GELU


def test_without_survivors_nothing_is_searched(monkeypatch: pytest.MonkeyPatch):
    def searched(_: Any) -> list[Any]:
        raise AssertionError

    monkeypatch.setattr(survivors, "_holders", searched)
    with lux.trace():
        F.gelu(torch.ones(2)), torch.nn.Linear(2, 2)(torch.ones(1, 2))


def test_nothing_of_the_trace_lives_on_in_what_was_put_back():
    with lux.trace(framework="torch") as t:
        kept, stand_in = [F.gelu], weakref.ref(F.gelu)
        assert kept[0] is stand_in()
    assert kept[0] is GELU
    del t
    gc.collect()
    assert stand_in() is None


# -- those that stay


@pytest.fixture
def stayed() -> Iterator[Any]:
    """Of F.gelu, torch.relu and Tensor.add, in a tuple."""
    with lux.trace():
        held = (F.gelu, torch.relu, torch.Tensor.add)
    assert held[0] is not GELU and held[1] is not RELU
    yield held


def test_it_compares_hashes_and_is_found_as_the_original(stayed: Any):
    for mine, original in zip(stayed, (GELU, RELU, ADD), strict=True):
        assert mine == original and original == mine and hash(mine) == hash(original)
        assert {original: 1}[mine] == 1 and {mine: 1}[original] == 1 and mine in {original}
        assert not mine != original and mine != len  # noqa: SIM202


def test_it_is_pickled_and_copied_as_the_original(stayed: Any):
    for mine, original in zip(stayed[:2], (GELU, RELU), strict=True):
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            text = pickle.dumps(mine, protocol)
            assert pickle.loads(text) is original and b"luxmeter" not in text
        assert copy.copy(mine) == original and copy.deepcopy(mine) == original
    module = torch.nn.Linear(1, 1)
    module.acts = (stayed[0],)
    assert copy.deepcopy(module).acts == (GELU,)


def test_it_looks_like_the_original(stayed: Any):
    gelu, relu, add = stayed
    assert isinstance(relu, types.BuiltinFunctionType) and type(GELU) is gelu.__class__
    assert inspect.isbuiltin(relu) and inspect.ismethoddescriptor(add)
    assert (relu.__name__, relu.__doc__, relu.__module__) == (RELU.__name__, RELU.__doc__, RELU.__module__)
    assert repr(gelu) == repr(GELU) and torch.overrides.resolve_name(relu) == torch.overrides.resolve_name(
        RELU
    )
    with lux.trace():
        held = (F.softmax,)
    assert isinstance(held[0], types.FunctionType) and inspect.isfunction(held[0])
    assert inspect.signature(held[0]) == inspect.signature(F.softmax)


class Handled(torch.Tensor):
    functions: dict[Any, Any] = {}

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in cls.functions:
            return cls.functions[func](*args, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs or {})


def test_it_dispatches_as_the_original(stayed: Any, monkeypatch: pytest.MonkeyPatch):
    x = torch.ones(2).as_subclass(Handled)
    monkeypatch.setattr(Handled, "functions", {RELU: lambda _: "mine"})
    assert stayed[1](x) == "mine" and torch.relu(x) == "mine"
    monkeypatch.setattr(Handled, "functions", {stayed[1]: lambda _: "mine"})
    assert torch.relu(x) == "mine"
    assert stayed[1] in torch.overrides.get_testing_overrides()
    assert stayed[2](torch.ones(1), 1) == 2 and torch.func.vmap(stayed[0])(torch.zeros(2, 3)).sum() == 0


def test_it_is_captured_as_the_original(stayed: Any):
    relu = stayed[1]

    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return relu(x)

    graph = torch.fx.symbolic_trace(Net()).graph
    assert [node.target for node in graph.nodes if node.op == "call_function"] == [RELU]
    assert torch.jit.trace(Net(), torch.ones(1))(torch.tensor([-1.0])) == 0
    assert torch.compile(Net(), backend="eager", fullgraph=True)(torch.tensor([-1.0])) == 0


def test_a_second_trace_sees_what_stayed_of_the_first_as_the_original(stayed: Any):
    with lux.trace() as t:
        stayed[1](torch.ones(1))
        again = [torch.relu]
    assert again[0] is RELU and "torch.relu" not in t.table()
