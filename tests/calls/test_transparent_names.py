"""A replaced function still is, for everyone who looks at it, the function it replaces."""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import io
import multiprocessing
import pickle
import sys
import types
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from seen import Seen, bits, torch_is_untouched, unchanged
from torch import nn
from torch import sin as early_sin
from torch.nn.functional import relu as early_relu

CORES = pytest.mark.parametrize("core", ["c", "python"])
ORIGINALS = {"builtin": torch.sin, "function": F.relu, "method": torch.Tensor.add}
FUNCTIONS = pytest.mark.parametrize(
    "name",
    ["torch.sin", "torch.nn.functional.relu", "torch.nn.functional.gelu", "torch.Tensor.add", "torch.einsum"],
)


def get(name: str) -> Any:
    return functools.reduce(getattr, name.split(".")[1:], torch)


def with_default(x: torch.Tensor, act: Any = F.relu) -> torch.Tensor:
    return act(x)


class Holder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = F.gelu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(x)


@CORES
def test_names_bound_before_the_trace_are_seen(core: str):
    holder = Holder()
    with unchanged(), Seen(core) as seen:
        early_sin(torch.ones(1))
        early_relu(torch.ones(1))
        with_default(torch.ones(1))
        holder(torch.ones(1))
        assert early_sin is torch.sin and early_relu is F.relu and holder.act is F.gelu
    assert seen.calls() == {
        "torch.ones": 4,
        "torch.sin": 1,
        "torch.nn.functional.relu": 2,
        "torch.nn.functional.gelu": 1,
    }
    assert early_sin is ORIGINALS["builtin"] and early_relu is ORIGINALS["function"]
    assert (
        with_default.__defaults__ == (ORIGINALS["function"],)
        and holder.act is F.gelu
        and torch_is_untouched()
    )


@CORES
def test_a_module_imported_while_tracing_is_seen_and_set_right(
    core: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "lux_late.py").write_text(
        "from torch import cos\nfrom torch.nn.functional import silu\nadd = __import__('torch').Tensor.add\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with Seen(core) as seen:
        late = importlib.import_module("lux_late")
        late.cos(torch.ones(1)), late.silu(torch.ones(1)), late.add(torch.ones(1), 1)
    del sys.modules["lux_late"], sys.path_importer_cache[str(tmp_path)]
    # The module is no longer in sys.modules when the trace ends in the next block: its names stay stand-ins, and pass straight on.
    assert seen.calls() == {"torch.cos": 1, "torch.nn.functional.silu": 1, "Tensor.add": 1, "torch.ones": 3}
    assert late.cos is torch.cos and late.silu is F.silu and late.add is torch.Tensor.add


@CORES
def test_a_stand_in_kept_after_the_trace_passes_straight_on(core: str):
    with Seen(core) as seen:
        kept = [torch.sin, F.relu]
    before = seen.counts()
    x = torch.ones(2)
    assert torch.equal(kept[0](x), torch.sin(x)) and torch.equal(kept[1](x), F.relu(x))
    assert seen.counts() == before
    assert pickle.loads(pickle.dumps(kept)) == [torch.sin, F.relu] and copy.deepcopy(kept)[0](x).shape == (2,)
    with Seen(core) as again:
        torch.sin(x)
    assert again.calls() == {"torch.sin": 1}


@CORES
@FUNCTIONS
def test_it_looks_like_what_it_replaces(core: str, name: str):
    original = get(name)
    expected = {
        key: getattr(original, key, None)
        for key in ("__name__", "__doc__", "__module__", "__qualname__", "__text_signature__")
    }
    signature = (
        str(inspect.signature(original)) if name in ("torch.nn.functional.relu", "torch.einsum") else None
    )
    kinds = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType)
    kind = [isinstance(original, k) for k in kinds]
    with Seen(core):
        stand_in = get(name)
        assert (
            stand_in is not original
            and stand_in == original
            and original == stand_in
            and hash(stand_in) == hash(original)
        )
        assert {key: getattr(stand_in, key, None) for key in expected} == expected
        assert signature is None or str(inspect.signature(stand_in)) == signature
        assert callable(stand_in) and weakref.ref(stand_in)() is stand_in
        assert copy.copy(stand_in) == original and copy.deepcopy([stand_in]) == [original]
        assert {original: 1}[stand_in] == 1 and stand_in in {original} and original in [stand_in]
        assert pickle.loads(pickle.dumps(stand_in)) == original
        assert [isinstance(stand_in, k) for k in kinds] == kind
    assert get(name) is original


@CORES
def test_pickling_an_original_that_the_user_kept(core: str, tmp_path: Path):
    kept = {"act": F.relu, "gelu": F.gelu, "partial": functools.partial(F.softmax, dim=-1)}
    plain = pickle.dumps(kept)
    holder = Holder()
    with unchanged(), Seen(core):
        assert pickle.dumps(kept) == plain
        stream = io.BytesIO()
        pickle.dump(kept, stream)
        multiprocessing.reduction.dump(kept, io.BytesIO())
        torch.save(holder, tmp_path / "x.pt")
        loaded = torch.load(tmp_path / "x.pt", weights_only=False)
        assert copy.deepcopy(holder).act == F.gelu
        with pytest.raises((pickle.PicklingError, AttributeError)):
            pickle.dumps(lambda: 0)  # what cannot be pickled still cannot
    assert pickle.loads(stream.getvalue())["act"] is F.relu and loaded.act == F.gelu
    assert b"luxmeter" not in (tmp_path / "x.pt").read_bytes()


@CORES
def test_identity_checks_of_torch_itself(core: str):
    """TransformerEncoderLayer asks `activation is F.relu`, with F.relu as a default captured long before."""
    with unchanged(), Seen(core):
        inside = [
            nn.TransformerEncoderLayer(8, 2, 16),
            nn.TransformerEncoderLayer(8, 2, 16, activation=F.gelu),
            nn.TransformerEncoderLayer(8, 2, 16, activation="relu"),
        ]
    outside = [
        nn.TransformerEncoderLayer(8, 2, 16),
        nn.TransformerEncoderLayer(8, 2, 16, activation=F.gelu),
        nn.TransformerEncoderLayer(8, 2, 16, activation="relu"),
    ]
    assert (
        [layer.activation_relu_or_gelu for layer in inside]
        == [layer.activation_relu_or_gelu for layer in outside]
        == [1, 2, 1]
    )


@CORES
def test_the_fast_path_of_a_transformer_is_taken(core: str):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.randn(2, 3, 8)
    taken = []
    fast = torch._transformer_encoder_layer_fwd
    with torch.no_grad(), pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            torch,
            "_transformer_encoder_layer_fwd",
            lambda *args, **kwargs: (taken.append(1), fast(*args, **kwargs))[1],
        )
        expected = bits(layer(x))
        with Seen(core) as seen:
            result = layer(x)
    assert bits(result) == expected and len(taken) == 2
    assert seen.calls() == {"torch.nn.TransformerEncoderLayer": 1}


HANDLED: dict[Any, Any] = {}


class Scalar(torch.Tensor):
    """Handles some functions by a table, as torch's documents show."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in HANDLED:
            return HANDLED[func](*args, **(kwargs or {}))
        if func == torch.cos or func is torch.Tensor.neg or func is F.relu or func is F.gelu:
            return "by comparison"
        return super().__torch_function__(func, types, args, kwargs or {})


HANDLED[torch.sin] = HANDLED[F.silu] = HANDLED[torch.Tensor.sigmoid] = HANDLED[torch.Tensor.T.__get__] = (
    lambda *_, **__: "by table"
)


@CORES
def test_tables_keyed_by_function_and_tensor_subclasses(core: str):
    def answers(x: Any) -> list[Any]:
        return [
            torch.sin(x),
            F.silu(x),
            x.sigmoid(),
            x.T,
            torch.cos(x),
            x.neg(),
            F.relu(x),
            F.gelu(x),
            type(x + 1),
            type(torch.tan(x)),
        ]

    x = torch.ones(2, 2).as_subclass(Scalar)
    expected = answers(x)
    assert expected == ["by table"] * 4 + ["by comparison"] * 4 + [Scalar, Scalar]
    with unchanged(), Seen(core) as seen:
        assert answers(x) == expected
    assert seen.calls() == {
        "torch.sin": 1, "torch.nn.functional.silu": 1, "Tensor.sigmoid": 1, "Tensor.T": 1, "torch.cos": 1, "Tensor.neg": 1,
        "torch.nn.functional.relu": 1, "torch.nn.functional.gelu": 1, "Tensor.__add__": 1, "torch.tan": 1,
    }  # fmt: skip


@CORES
def test_duck_types_with_torch_function(core: str):
    class Duck:
        calls: list[Any] = []

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            cls.calls.append(func)
            return 42

    with Seen(core):
        assert torch.mean(Duck()) == 42 and F.relu(Duck()) == 42 and torch.add(torch.ones(1), Duck()) == 42
    assert Duck.calls == [torch.mean, F.relu, torch.add]


@CORES
def test_functions_as_callbacks_and_methods(core: str):
    class Model:
        act = staticmethod(F.relu)

    with Seen(core) as seen:
        assert [t.item() for t in map(torch.sin, [torch.zeros(1)])] == [0.0]
        assert torch.ones(2).apply_(lambda v: v + 1).tolist() == [2.0, 2.0]
        functools.reduce(torch.add, [torch.ones(1)] * 3)
        Model.act(torch.ones(1))
        torch.Tensor.add(torch.ones(1), 1)
    assert (
        seen.calls()["torch.sin"] == 1 and seen.calls()["torch.add"] == 2 and seen.calls()["Tensor.add"] == 1
    )
