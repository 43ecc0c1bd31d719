"""Real arguments described, and described ones through JSON and back."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses import FakeTensorMode

from luxmeter.errors import UsageError
from luxmeter.signature import (
    DictOf,
    Facts,
    ListOf,
    ModuleSpec,
    Opaque,
    Signature,
    SliceOf,
    TensorSpec,
    Word,
    describe,
    dtype_bytes,
    signature_from_json,
    to_json,
    value_from_json,
)


def test_a_call_as_a_person_reads_it() -> None:
    x = torch.zeros(2, 3, dtype=torch.bfloat16)
    said = describe(
        (x, [x, torch.arange(3)], (1, 2.5)), {"dtype": torch.float16, "dim": None, "mode": "mean"}
    )
    assert str(said) == "bf16[2,3], [bf16[2,3], i64[3]], (1, 2.5), dtype=float16, dim=None, mode='mean'"


def test_tensors_keep_what_replay_needs() -> None:
    whole = torch.zeros(4, 6)
    part, turned, wide = whole[1:, 2:], whole.t(), torch.zeros(1, 5).expand(3, 5)
    weight = torch.nn.Parameter(torch.zeros(2))
    a, b, c, d, e = describe((whole, part, turned, wide, weight)).tensors()
    assert a == TensorSpec((4, 6), "float32", memory=0)
    assert b == TensorSpec((3, 4), "float32", stride=(6, 1), offset=8, memory=0)
    assert c.stride == (1, 6) and c.memory == 0
    assert d.stride == (0, 1) and d.memory is None and d.span == 5 and d.numel == 15
    assert e.kind == "Parameter" and e.requires_grad
    # Shared storage is counted once: 24 + 5 + 2 floats.
    assert describe((whole, part, turned, wide, weight)).size_bytes == 31 * 4


def test_the_same_tensor_twice() -> None:
    x = torch.zeros(3)
    a, b = describe((x, x)).tensors()
    assert a == b and a.memory == 0
    assert describe((x,)).args[0].memory is None
    # Only what is shared counts: where an argument begins in some larger storage is nobody's matter.
    assert describe((torch.zeros(9)[4:],)).args[0] == TensorSpec((5,), "float32")


class Odd:
    @property
    def __class__(self):  # an object that lies and raises
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "described"),
    [
        (torch.float64, Word("dtype", "float64")),
        (torch.device("cpu"), Word("device", "cpu")),
        (torch.sparse_coo, Word("layout", "sparse_coo")),
        (torch.channels_last, Word("memory_format", "channels_last")),
        (torch.Size([2, 3]), (2, 3)),
        (slice(1, None, 2), SliceOf(1, None, 2)),
        (..., Word("ellipsis", "...")),
        ({"a": [1]}, DictOf((("a", ListOf((1,))),))),
        (np.float64(0.5), 0.5),
        (np.int32(4), 4),
        (True, True),
        (torch.relu, Opaque("builtins.builtin_function_or_method")),
        (math.sqrt, Word("function", "math:sqrt")),
        (torch.Generator(), Word("generator", "cpu")),
    ],
)
def test_every_kind_of_value(value: object, described: object) -> None:
    [seen] = describe((value,)).args
    if value is torch.relu:  # its home differs between versions: rebuilt by name or not at all
        assert isinstance(seen, Word | Opaque)
        return
    assert seen == described
    assert type(seen) is type(described)


# The first fake tensor makes torch put a wrapper around its own manual_seed, for good.
with FakeTensorMode():
    FAKE = torch.empty(5)


def test_odd_tensors_never_raise() -> None:
    sparse = torch.eye(3).to_sparse()
    meta = torch.empty(2, 2, device="meta")
    s, m, f = describe((sparse, meta, FAKE)).tensors()
    assert s.layout == "sparse_coo" and s.shape == (3, 3)
    assert m.device == "meta" and m.memory is None
    assert f.kind == "FakeTensor" and f.shape == (5,)
    seen = []
    torch.vmap(lambda x: seen.append(describe((x,))) or x)(torch.zeros(2, 3))
    assert seen[0].args[0].shape == (3,)


def test_symbolic_sizes_are_not_asked_for() -> None:
    seen = []

    def model(x: torch.Tensor) -> torch.Tensor:
        seen.append(describe((x,)).args[0])
        return x + 1

    from torch.fx.experimental.proxy_tensor import make_fx

    make_fx(model, tracing_mode="symbolic")(torch.zeros(7, 5))
    assert seen[0].shape == (-1, -1) and seen[0].numel == 0


def test_subclasses_do_not_see_it() -> None:
    asked = []

    class Watched(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            asked.append(func)
            return super().__torch_function__(func, types, args, kwargs)

    spec = describe((torch.zeros(3).as_subclass(Watched),)).args[0]
    assert spec.kind == "Watched" and spec.shape == (3,) and not asked


def test_floats_and_generalised_signatures() -> None:
    said = describe((torch.zeros(2), 0.5), {"eps": 1e-5})
    assert said.with_ranges([(0.5, 0.9), (1e-6, 1e-5)]).ranges == ((0.5, 0.9), (1e-6, 1e-5))
    assert said.text() == "f32[2], 0.5, eps=1e-05"
    assert Signature(general=True).text() == "(others)"


def test_an_object_that_raises_when_looked_at() -> None:
    assert describe((Odd(),)).args == (Opaque("test_signature.Odd"),)


def test_what_is_read_halfway_leaves_no_trace() -> None:
    """Tensors met before something raised are forgotten: the others keep their own numbers."""

    class Half(list):  # type: ignore[type-arg]
        def __iter__(self):
            yield x
            raise RuntimeError("no")

    x, y = torch.zeros(3), torch.zeros(4)
    assert describe((Half(), y, x, y)) == Signature(
        (Opaque("test_signature.test_what_is_read_halfway_leaves_no_trace.<locals>.Half"),
         TensorSpec((4,), "float32", memory=0), TensorSpec((3,), "float32"), TensorSpec((4,), "float32", memory=0))
    )  # fmt: skip
    a, b, c = describe((slice(x, None), {y: 1}, y)).tensors()
    assert (a.memory, b.memory, c.memory) == (None, 0, 0)


def test_facts_that_fail_do_not_hide_the_tensor() -> None:
    def fails(t: object) -> Facts:
        raise RuntimeError("no")

    assert describe((torch.zeros(3),), facts=fails).args == (TensorSpec((3,), "float32"),)


def test_what_python_cannot_print_is_unknown() -> None:
    assert describe((10**5000, "\udcff")).args == (Opaque("builtins.int"), "\udcff")
    assert str(describe((10**5000, "\udcff"), {"\udcff": 1})) == r"<builtins.int>, '\udcff', \udcff=1"


def test_functions_are_named_where_users_find_them() -> None:
    functions = (torch.relu, torch.nn.functional.gelu, torch.special.expit, torch.Tensor.sigmoid)
    assert [word.name for word in describe(functions).args] == [
        "torch:relu", "torch.nn.functional:gelu", "torch.special:expit", "torch:Tensor.sigmoid",
    ]  # fmt: skip


def test_a_list_that_holds_itself_ends() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert "builtins.list" in str(describe((loop,)))


any_text = st.text(st.characters(exclude_categories=()))  # halves of surrogate pairs, too
numbers = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), any_text, st.complex_numbers())
sizes = st.lists(st.integers(0, 9), max_size=4).map(tuple)
facts = st.builds(
    Facts, low=st.none() | st.integers() | st.floats(allow_nan=False), density=st.none() | st.just(0.5)
)
tensors = st.builds(
    lambda shape, dtype, rest, seen, strided: TensorSpec(
        shape, dtype, stride=tuple(n + 1 for n in shape) if strided else None, facts=seen, **rest
    ),
    sizes,
    st.sampled_from(["float32", "int64", "bool"]),
    st.sampled_from(
        [{}, {"memory": 0, "offset": 3}, {"device": "cuda:0"}, {"requires_grad": True, "kind": "Parameter"}]
    ),
    st.none() | facts,
    st.booleans(),
)
words = st.builds(Word, st.sampled_from(["dtype", "device"]), st.text())
described = st.recursive(
    numbers | tensors | words | st.builds(Opaque, st.text()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.builds(lambda items: ListOf(tuple(items)), st.lists(inner, max_size=3)),
        st.builds(lambda pairs: DictOf(tuple(pairs)), st.lists(st.tuples(numbers, inner), max_size=3)),
        st.builds(SliceOf, inner, inner, inner),
        st.builds(
            lambda v, t, why: ModuleSpec(
                "torch.nn.Linear", (("bias", v),), (("weight", t),), True, (("0", ModuleSpec("x")),), why
            ),
            inner,
            tensors | st.builds(Opaque, st.text()),
            st.text(),
        ),
    ),
    max_leaves=8,
)


@given(st.lists(described, max_size=4), st.dictionaries(st.text(), described, max_size=3))
def test_json_and_back(args: list[object], kwargs: dict[str, object]) -> None:
    signature = Signature(tuple(args), tuple(kwargs.items()), ((0.0, math.inf),))
    written = json.dumps(to_json(signature), allow_nan=False, ensure_ascii=False).encode()
    back = signature_from_json(json.loads(written))
    assert repr(back) == repr(signature)  # repr, because nan is not equal to itself
    assert hash(signature) is not None


@given(st.recursive(numbers, lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_foreign_json_is_an_error_not_a_crash(data: object) -> None:
    try:
        data = json.loads(json.dumps(data, default=repr))
        value_from_json(data)
    except UsageError as error:
        assert error.slug == "bad-signature"


@pytest.mark.parametrize(
    "data",
    [
        {"tensor": {"shape": [-2], "dtype": "float32"}},
        {"tensor": {"shape": [2], "dtype": "float32", "stride": [1, 1]}},
        {"tensor": {"shape": [2], "dtype": "float32", "surprise": 1}},
        {"tensor": {"shape": ["2"], "dtype": "float32"}},
        {"tensor": {"dtype": "float32"}},
        {"unknown": 1},
        {"slice": [1]},
    ],
)
def test_damaged_values(data: object) -> None:
    with pytest.raises(UsageError, match="bad-signature"):
        signature_from_json({"args": [data]})


def test_bytes_of_dtypes() -> None:
    for name in ("float32", "bfloat16", "int64", "bool", "complex64", "float8_e4m3fn", "uint8", "int16"):
        assert dtype_bytes(name) == getattr(torch, name).itemsize
