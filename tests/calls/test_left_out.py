"""A torch that nobody knew: what does not fit it is left out and told, the rest is timed, and all is as before at the end."""

from __future__ import annotations

import functools
import io
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo
from seen import Seen, torch_is_untouched, unchanged

import luxmeter as lux
from luxmeter import supported
from luxmeter.calls.patching import patcher
from luxmeter.calls.targets import Form
from luxmeter.calls.targets.torch import callables as listed
from luxmeter.calls.targets.torch import compiled, optimizers, stand_ins
from luxmeter.errors import LuxmeterWarning, TraceError, forget_warnings

listing = listed.listing


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return grads


double = Double.apply
CALLS: dict[str, Callable[[], Any]] = {
    "torch.add": lambda: torch.add(torch.ones(2), 1),
    "Tensor.mul": lambda: torch.ones(2).mul(2),
    "Tensor.T": lambda: torch.ones(2, 2).T,
    "torch.nn.Linear": lambda: torch.nn.Linear(2, 2)(torch.ones(1, 2)),
    "torch.ops.aten.mm": lambda: torch.ops.aten.mm(torch.ones(2, 2), torch.ones(2, 2)),
    "DataLoader.__next__": lambda: list(torch.utils.data.DataLoader([1.0, 2.0])),
    "torch.optim.SGD.step": lambda: torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1).step(),
}
SPANS = {
    "Double.apply": lambda: double(torch.ones(2)),
    "torch.func.vmap": lambda: torch.func.vmap(torch.sin)(torch.ones(2)),
}


def breaks(*_: Any, **__: Any) -> Any:
    raise AttributeError("not in this torch")


@pytest.fixture(params=["c", "python"])
def core(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """The listing is made once a process: these tests make it anew."""
    torch.optim.SGD(
        [torch.ones(2, requires_grad=True)], lr=0.1
    ).step()  # torch hooks the class once a process
    listing.cache_clear()
    forget_warnings()
    yield
    listing.cache_clear()
    forget_warnings()


def seen_with(core: str) -> tuple[Any, set[str]]:
    """What is left out, and which of the calls are seen all the same."""
    with Seen(core) as seen:
        for call in (*CALLS.values(), *SPANS.values()):
            call()
        coverage = seen.patcher.coverage()
    assert torch_is_untouched()
    left = tuple(seen.patcher.left_out)
    for entry in left:
        assert entry in coverage.unseen and entry.name not in coverage.seen
    names = {name.replace("test_left_out.", "") for name in seen.counts()}
    return (coverage, left), names & {*CALLS, *SPANS}


def without(*names: str) -> set[str]:
    return {*CALLS, *SPANS} - set(names)


PARTS: list[tuple[Any, str, set[str]]] = [
    (listed, "_warm", without()),
    (listed, "_overridable", without()),
    (listed, "_tensor_properties", without("Tensor.T")),
    (listed, "_tensor_method", without("Tensor.mul")),
    (listed, "_data", without("DataLoader.__next__")),
    (listed, "_workers", without()),
    (listed, "_module_calls", without("torch.nn.Linear")),
    (listed, "_autograd", without("Double.apply")),
    (listed, "_operators", without("torch.ops.aten.mm")),
    (listed, "capture_targets", without()),
    (listed, "pickle_targets", without()),
    (stand_ins, "optimizer_targets", without("torch.optim.SGD.step")),
    (stand_ins, "scheduler_targets", without()),
    (stand_ins, "_bound_apply", without("Double.apply")),
    (optimizers.Optimizers, "found", without()),
    (compiled.Compiled, "bindings", without()),
    (stand_ins.TorchFramework, "_compiled_names", without()),
    (patcher.Patcher, "_replace_aliases", without()),
]


def test_each_part_that_cannot_be_found(core: str) -> None:
    with unchanged():
        for place, name, expected in PARTS:
            listing.cache_clear()
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(place, name, breaks)
                (_, left), names = seen_with(core)
            assert left and all("not in this torch" in entry.reason for entry in left), name
            assert names >= expected, name


def test_nothing_is_left_out_of_this_torch(core: str) -> None:
    (_, left), names = seen_with(core)
    assert not left and names == without()


LOST = {
    Form.FUNCTION: {"torch.add", "Tensor.mul", "DataLoader.__next__"},
    Form.PROPERTY: {"Tensor.T"},
    Form.CLASSMETHOD: {"Double.apply"},
    Form.MODULE: {"torch.nn.Linear"},
    Form.INSTANCE: set(),  # an optimizer that is made meanwhile is seen through FIRST_STEP
    Form.FACTORY: {"torch.func.vmap"},
    Form.OPERATOR: {"torch.ops.aten.mm"},
    **{
        silent: set()
        for silent in (Form.COMPILE, Form.SUSPENDING, Form.PICKLE, Form.HIDDEN, Form.WORKER, Form.FIRST_STEP)
    },
}


def test_each_kind_that_cannot_be_replaced(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = stand_ins.TorchFramework.stand_in
    broken: list[Form] = []

    def stand_in(self: Any, target: Any, original: Any, patcher: Any) -> Any:
        return breaks() if target.form in broken else made(self, target, original, patcher)

    monkeypatch.setattr(stand_ins.TorchFramework, "stand_in", stand_in)
    with unchanged():
        for form, lost in LOST.items():
            broken[:] = [form]
            (coverage, left), names = seen_with(core)
            assert left and names == without(*lost), form
            assert (form is Form.MODULE) == ("torch.nn.Linear" not in coverage.seen)


def test_a_class_that_cannot_be_changed_keeps_its_other_names(
    core: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when torch makes a class of C of one of its own: putting the stand-in raises, again after each stretch aside."""
    put = patcher.Binding.put

    def refuses(self: Any) -> bool:
        return breaks() if self.attribute == "apply" else put(self)

    monkeypatch.setattr(patcher.Binding, "put", refuses)
    with unchanged(), Seen(core) as seen:
        with seen.patcher.suspended():
            pass
        double(torch.ones(2))
        torch.add(torch.ones(1), 1)
    assert seen.counts()["torch.add"] == 1 and [entry.name for entry in seen.patcher.left_out][:1] == [
        "torch.autograd.Function.apply"
    ]


def test_when_nothing_can_be_seen_the_start_fails_and_leaves_nothing(
    core: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stand_ins.TorchFramework, "stand_in", breaks)
    with unchanged(), pytest.raises(TraceError, match="nothing-to-trace"):
        lux.start(core=core)
    assert patcher.installed() is None and torch_is_untouched()


@pytest.mark.one_core("no core is reached")
def test_a_listing_that_fails_altogether_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listed, "listing", breaks)
    with pytest.raises(TraceError, match="framework-unknown"):
        lux.trace()


def test_it_is_said_once_in_the_notes_and_in_the_table(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listed, "_operators", breaks)
    with (
        pytest.warns(LuxmeterWarning, match=r"torch\.ops\.\*.*not in this torch") as warned,
        lux.trace(core=core) as trace,
    ):
        torch.add(torch.ones(1), 1)
    assert len(warned) == 1
    [note] = trace.result.notes()
    assert note.startswith("not timed: torch.ops.*: ") and note in str(trace)
    assert "not in this torch" in trace.coverage().reason("torch.ops.*")


# What torch itself calls cannot be taken away, nor what lies in a class of C.
TORCH_NEEDS = ("torch.optim.Optimizer._patch_step_function", "torch.Tensor.__dlpack_c_exchange_api__")


@pytest.mark.filterwarnings("ignore::luxmeter.errors.LuxmeterWarning")
def test_a_torch_without_a_name_is_traced_and_the_lack_is_told(core: str) -> None:
    names = [name for name, _ in supported._FOR_A_TRACE if supported.has(name)]
    with unchanged():
        for name in (name for name in names if name not in TORCH_NEEDS):
            listing.cache_clear()
            owner = functools.reduce(getattr, name.split(".")[1:-1], torch)
            with pytest.MonkeyPatch.context() as patched:
                patched.delattr(owner, name.rpartition(".")[2])
                assert name in dict(supported.lacking(trace_only=True))
                with lux.trace(core=core) as trace:
                    for call in CALLS.values():
                        call()
                assert "this torch lacks it" in trace.coverage().reason(name), name
            assert {row.name for row in trace.table()} >= set(CALLS) - {"DataLoader.__next__"}, name


class Wave(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) + 1


@pytest.fixture(scope="module")
def dynamo() -> Any:
    """Dynamo changes torch at its first compilation: not in a test."""
    import torch._dynamo.callback

    torch.compile(Wave(), backend="eager")(torch.ones(2))
    return torch._dynamo


@pytest.mark.filterwarnings("ignore::luxmeter.errors.LuxmeterWarning")
@pytest.mark.parametrize("gone", ["callback_handler", "_debug_get_cache_entry_list", "nothing"])
def test_compiled_functions_where_torch_tells_nothing_of_its_guards(
    dynamo: Any, gone: str, core: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They run as without a trace, are recorded, and are not compiled again at its start or end."""
    compiled: list[int] = []

    def backend(graph: Any, _: Any) -> Any:
        compiled.append(1)
        return graph.forward

    dynamo.reset()
    model = torch.compile(Wave(), backend=backend)
    model(torch.ones(3))
    for place in (dynamo.callback, torch._C._dynamo.eval_frame):
        monkeypatch.delattr(place, gone, raising=False)
    with unchanged(), lux.trace(core=core) as trace:
        model(torch.ones(3))
        function = torch.compile(lambda x: torch.cos(x), backend=backend)
        function(torch.ones(3))
        torch.add(torch.ones(1), 1)
    model(torch.ones(3))
    assert len(compiled) == 2
    seen = {row.name.replace("test_left_out.", ""): row.n for row in trace.table()}
    assert seen["torch.compile(Wave)"] == seen["torch.compile(<lambda>)"] == seen["torch.add"] == 1
    dynamo.reset()


def test_a_warning_of_it_that_is_an_error_leaves_nothing_in_place(
    core: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """python -W error: the trace does not start."""
    with monkeypatch.context() as patch, unchanged(), warnings.catch_warnings():
        warnings.simplefilter("error", LuxmeterWarning)
        patch.setattr(listed, "_tensor_properties", breaks)
        with pytest.raises(LuxmeterWarning, match="not in this torch"):
            lux.trace(core=core).start()
        assert patcher.installed() is None
    forget_warnings()
    with lux.trace(core=core) as trace:
        torch.add(torch.ones(1), 1)
    assert trace.table()["torch.add"].n == 1


def test_a_pickle_that_fails_is_made_again_only_where_what_was_written_can_be_taken_back(core: str) -> None:
    tried: list[int] = []

    class Fails:
        def __reduce__(self) -> Any:
            tried.append(1)
            raise pickle.PicklingError("not for a file")

    class Stream(io.BytesIO):
        def seekable(self) -> bool:
            return False

    for file, times in ((io.BytesIO(), 2), (Stream(), 1)):
        tried.clear()
        with unchanged(), lux.trace(core=core), pytest.raises(pickle.PicklingError):
            pickle.dump(Fails(), file)
        assert len(tried) == times
    tried.clear()
    with lux.trace(core=core), pytest.raises(pickle.PicklingError):
        pickle.dumps(Fails())
    assert len(tried) == 2
