"""torch.ops.*: kernels and custom operators that the user calls by themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from seen import CORES, Seen
from torch._dynamo.testing import CompileCounter
from torch._ops import OpOverload, OpOverloadPacket
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from luxmeter.calls.patching.patcher import coverage


@pytest.fixture(autouse=True, scope="module")
def captured_before() -> None:
    """What torch changes in itself at its first capture and compilation is done before a test looks."""
    make_fx(lambda x: x + 1)(torch.ones(1))
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))


@pytest.fixture
def twice() -> Iterator[Any]:
    """A custom operator of the user's, gone after the test."""
    with torch.library._scoped_library("luxmeter_test", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: torch.mul(x, 2), "CPU")
        library.impl("twice", lambda x: torch.empty_like(x), "Meta")
        yield torch.ops.luxmeter_test.twice
    torch.ops.luxmeter_test.__dict__.pop("twice", None)


@pytest.mark.parametrize("core", CORES)
def test_what_the_user_calls_is_seen_once(core: str, twice: Any) -> None:
    x = torch.ones(3, 3)
    early = torch.ops.aten.mm
    before = [vars(cls)["__call__"] for cls in (OpOverloadPacket, OpOverload)]
    one = torch.ones(2)
    with Seen(core) as seen:
        for _ in range(2):
            early(x, x)
        torch.ops.aten.add.Tensor(x, x)
        torch.ops.aten.add(x, 1)
        torch.mm(x, x)
        twice(x)
        with pytest.raises(RuntimeError):
            torch.ops.aten.mm(x, one)
    assert seen.counts() == Counter(
        {
            "torch.ops.aten.mm": 3, "torch.ops.aten.add.Tensor": 1, "torch.ops.aten.add": 1, "torch.mm": 1,
            "torch.ops.luxmeter_test.twice": 1, "torch.mul": 1,
        }
    )  # fmt: skip
    assert seen.calls()["torch.ops.luxmeter_test.twice"] == 0  # the user's own: a span
    assert seen.raised() == {"torch.ops.aten.mm": 1}
    assert [vars(cls)["__call__"] for cls in (OpOverloadPacket, OpOverload)] == before


@pytest.mark.parametrize("core", CORES)
def test_a_dispatch_mode_s_own_calls_are_inside(core: str) -> None:
    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    x = torch.ones(3)
    with Seen(core) as seen, Mode():
        y = torch.sin(x) + 1
    assert torch.equal(y, torch.sin(x) + 1)
    assert seen.counts() == {"torch.sin": 1, "Tensor.__add__": 1}


@pytest.mark.parametrize("core", CORES)
def test_compiled_and_captured_programs(core: str, twice: Any) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.mm(x, x) + twice(x)

    x = torch.ones(3, 3)
    expected = program(x)
    counter = CompileCounter()
    with Seen(core) as seen:
        captured = make_fx(program)(x)
        results = [captured(x)]
        compiled = torch.compile(program, backend=counter, fullgraph=True)
        results += [compiled(x), compiled(x)]
    results.append(compiled(x))
    assert all(torch.equal(result, expected) for result in results)
    assert counter.frame_count == 1
    calls = seen.calls()
    assert calls["torch.ops.aten.mm"] == 1 and calls["torch.ops.aten.add.Tensor"] == 1  # the captured graph's
    assert {str(node.target) for node in captured.graph.nodes if node.op == "call_function"} == {
        "aten.mm.default", "luxmeter_test.twice.default", "aten.add.Tensor",
    }  # fmt: skip


@pytest.mark.parametrize("core", CORES)
def test_they_can_be_filtered_and_are_told_of(core: str) -> None:
    with Seen(core, only=["torch.ops.aten.mm"]) as seen:
        torch.ops.aten.mm(torch.ones(1, 1), torch.ones(1, 1))
        torch.ops.aten.neg(torch.ones(1))
    assert seen.counts() == {"torch.ops.aten.mm": 1}
    assert "torch.ops.*" in coverage().seen
    assert "captured" in coverage().reason("torch.ops.higher_order.*")
