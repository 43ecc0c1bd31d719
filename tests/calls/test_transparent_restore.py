"""After stop everything is as it was; what goes wrong on the way leaves nothing behind."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
import torch
from seen import Seen, bindings, is_stand_in, torch_is_untouched, unchanged

import luxmeter as lux
from luxmeter.calls.patching import patcher
from luxmeter.errors import TraceError

CORES = pytest.mark.parametrize("core", ["c", "python"])


@CORES
def test_every_name_is_bound_to_the_same_object_and_none_is_added(core: str):
    own = set(vars(torch.Tensor))
    before = bindings()
    with Seen(core):
        assert is_stand_in(vars(torch.Tensor)["add"]) and "add" not in own
        assert len(set(vars(torch.Tensor)) - own) > 500
    assert set(vars(torch.Tensor)) == own  # what Tensor only inherits was deleted again
    after = bindings()
    assert [key for key in before if after.get(key) is not before[key]] == [] and torch_is_untouched()
    assert not [entry for entry in sys.meta_path if type(entry).__module__.startswith("luxmeter")]


@CORES
def test_operators_run_at_full_speed_again(core: str):
    """A slot of the class that once went through Python must not stay that way: [] is a C slot of TensorBase."""
    with Seen(core):
        torch.ones(2)[0]
    assert "__getitem__" not in vars(torch.Tensor) and "__add__" not in vars(torch.Tensor)
    assert torch.Tensor.__getitem__ is torch._C.TensorBase.__getitem__


@CORES
def test_repeated_traces(core: str):
    with unchanged():
        for _ in range(5):
            with Seen(core) as seen:
                torch.sin(torch.ones(1))
            assert seen.calls() == {"torch.sin": 1, "torch.ones": 1}


@CORES
def test_what_the_user_replaces_meanwhile_stays_replaced(core: str, monkeypatch: pytest.MonkeyPatch):
    original = torch.cosh
    mine = lambda x: x  # noqa: E731
    with Seen(core):
        torch.cosh = mine
    assert torch.cosh is mine
    torch.cosh = original


@CORES
def test_a_cyclic_namespace(core: str, monkeypatch: pytest.MonkeyPatch):
    """Modules and classes that hold themselves and each other: the wrapping of old tools never came back from these."""
    one, two = types.ModuleType("lux_cycle"), types.ModuleType("lux_cycle.two")
    one.two, two.one, one.me = two, one, one
    one.sin = torch.sin
    exec("import torch\ndef f(x):\n    return torch.cos(x)\nclass A: pass\nA.me = A\nA.f = f", one.__dict__)
    one.A.module = one
    monkeypatch.setitem(sys.modules, "lux_cycle", one)
    monkeypatch.setitem(sys.modules, "lux_cycle.two", two)
    with unchanged(), Seen(core, also=["lux_cycle"]) as seen:
        one.f(one.two.one.me.sin(torch.ones(1)))
    assert seen.calls()["torch.sin"] == 1 and one.sin is torch.sin


@CORES
def test_odd_entries_of_sys_modules(core: str, monkeypatch: pytest.MonkeyPatch):
    class Trap:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    class Lazy(types.ModuleType):
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError(name)

    monkeypatch.setitem(sys.modules, "lux_trap", Trap())
    monkeypatch.setitem(sys.modules, "lux_none", None)
    monkeypatch.setitem(sys.modules, "lux_lazy", Lazy("lux_lazy"))
    with Seen(core) as seen:
        torch.sin(torch.ones(1))
    assert seen.calls()["torch.sin"] == 1


@CORES
def test_immutable_c_types_are_left_alone(core: str):
    before = dict(vars(torch._C.TensorBase))
    with Seen(core) as seen:
        assert dict(vars(torch._C.TensorBase)) == before
        with pytest.raises(TypeError):
            torch._C.TensorBase.add = 1
        torch.Size([2]).numel()
        torch.Generator().manual_seed(1)
        torch.nn.Parameter(torch.ones(1)).add(1)
    assert seen.calls() == {"torch.ones": 1, "Tensor.add": 1}


@pytest.mark.parametrize("core", ["c", "python"])
def test_an_error_while_installing_leaves_nothing_behind(core: str, monkeypatch: pytest.MonkeyPatch):
    seen = Seen(core)
    calls = []

    def breaks(*args: Any) -> Any:
        calls.append(1)
        if len(calls) > 1_000:
            raise MemoryError("no more")
        return type(seen.recorder).wrap(seen.recorder, *args)

    class Broken:
        def __getattr__(self, name: str) -> Any:
            return breaks if name == "wrap" else getattr(seen.recorder, name)

    seen.patcher.recorder = Broken()  # type: ignore[assignment]
    with unchanged(), pytest.raises(MemoryError):
        seen.patcher.install()
    assert patcher.installed() is None and torch_is_untouched()


class TestNesting:
    @pytest.mark.parametrize("core", ["c", "python"])
    def test_a_second_patcher_is_refused(self, core: str):
        with unchanged(), Seen(core) as seen:
            with pytest.raises(TraceError, match="already-tracing"):
                Seen("python").patcher.install()
            torch.sin(torch.ones(1))
        assert seen.calls()["torch.sin"] == 1

    @pytest.mark.parametrize("core", ["c", "python"])
    def test_nested_and_repeated_start_through_the_front_door(
        self, core: str, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setenv("LUXMETER_CORE", core)
        with unchanged(), lux.trace() as outer:
            with pytest.raises(TraceError, match="already-tracing"):
                lux.trace().start()
            torch.sin(torch.ones(1))
        assert outer.table()["torch.sin"].n == 1
        with pytest.raises(TraceError, match="trace-used-up"):
            outer.start()

    @pytest.mark.parametrize("core", ["c", "python"])
    def test_start_and_stop_inside_a_traced_function(self, core: str, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("LUXMETER_CORE", core)

        class Net(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                trace.start()
                return torch.sin(x)

        trace = lux.trace()
        with unchanged():
            Net()(torch.ones(1))
            torch.cos(torch.ones(1))
            trace.stop()
        assert trace.table()["torch.sin"].n == 1 and trace.table()["torch.cos"].n == 1

        class Stops(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                x = torch.sin(x)
                other.stop()
                return torch.cos(x)

        with unchanged():
            other = lux.trace().start()
            assert Stops()(torch.ones(1)).shape == (1,)
        assert other.table()["torch.sin"].n == 1 and "torch.cos" not in {row.name for row in other.table()}

    @pytest.mark.one_core("no core is reached")
    def test_stop_without_start(self):
        with pytest.raises(TraceError):
            lux.stop()
        assert torch_is_untouched()
