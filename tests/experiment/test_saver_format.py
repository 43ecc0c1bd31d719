"""What goes into a checkpoint file comes out exactly, and nothing else comes out."""

from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from torch import nn

from luxmeter.errors import CheckpointError, UsageError
from luxmeter.experiment.checkpoint.format import read_file, write_file


def round_trip(value: Any, tmp_path: Path, *, format: str = "safetensors") -> Any:
    write_file(tmp_path / "x.ckpt", {"value": value}, format=format)
    return read_file(tmp_path / "x.ckpt")["value"]


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().clone().flatten().view(torch.uint8)


def same(a: Any, b: Any) -> bool:
    """Equal to the bit, of the same types, in the same order."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        if a.layout is not torch.strided:
            return a.layout == b.layout and same(a.to_dense(), b.to_dense())
        kind = (a.dtype, a.shape, a.requires_grad) == (b.dtype, b.shape, b.requires_grad)
        return kind and bits(a).equal(bits(b))
    if isinstance(a, np.ndarray):
        if a.dtype == object:
            return a.shape == b.shape and same(a.tolist(), b.tolist())
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, complex):
        return same([a.real, a.imag], [b.real, b.imag])
    if isinstance(a, float):
        return struct.pack("<d", a) == struct.pack("<d", b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(x, y) for x, y in zip(a.values(), b.values(), strict=True))
    if isinstance(a, list | tuple | deque):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


TENSORS = {
    "scalar": torch.tensor(3.5),
    "empty": torch.empty(0, 3),
    "empty int": torch.empty(2, 0, dtype=torch.int8),
    "bfloat16": torch.randn(7).bfloat16(),
    "float8 e4m3": torch.randn(5).to(torch.float8_e4m3fn),
    "float8 e5m2": torch.randn(5).to(torch.float8_e5m2),
    "float8 e8m0": torch.rand(5).to(torch.float8_e8m0fnu),
    "float8 fnuz": torch.randn(5).to(torch.float8_e4m3fnuz),
    "complex64": torch.randn(3, 2, dtype=torch.complex64),
    "complex128": torch.randn(3, dtype=torch.complex128),
    "conjugated": torch.randn(3, dtype=torch.complex64).conj(),
    "bool": torch.tensor([True, False]),
    "uint16": torch.tensor([1, 65535], dtype=torch.uint16),
    "uint64": torch.tensor([2**63], dtype=torch.uint64),
    "nan and inf": torch.tensor([math.nan, math.inf, -math.inf, -0.0]),
    "sliced": torch.arange(20.0)[3:11:2],
    "parameter": nn.Parameter(torch.ones(2)),
    "frozen parameter": nn.Parameter(torch.ones(2), requires_grad=False),
    "requires grad": torch.ones(2, requires_grad=True),
    "computed": (torch.ones(2, requires_grad=True) * 2),
    "sparse": torch.eye(3).to_sparse(),
    "sparse csr": torch.eye(4).to_sparse_csr(),
    "sparse bsc": torch.eye(4).to_sparse_bsc((2, 2)),
}
VALUES = {
    "none": None,
    "big int": 10**5000,
    "negative int": -(2**64),
    "floats": [math.inf, -math.inf, math.nan, -0.0, 5e-324, 0.1],
    "a nan with a payload": struct.unpack("<d", bytes.fromhex("010000000000f8ff"))[0],
    "complex": complex(math.nan, -0.0),
    "int keys": {0: "a", 1: {2: "b"}, -3: None},
    "odd keys": {(1, 2): 1, None: 2, 1.5: 3, b"x": 4, True: 5, "$": 6},
    "tuples": ((), (1, (2, [3, (4,)])), [()]),
    "long ints": list(range(-50, 50)),
    "long tuple": tuple(range(40)),
    "long floats": [i / 7 for i in range(40)],
    "long mixed": [*range(40), 2**70],
    "long bools": [True] * 40,
    "bytes": b"\0\xff",
    "long bytes": bytes(range(256)),
    "bytearray": bytearray(b"ab"),
    "sets": [{1, 2}, frozenset({"a"})],
    "words": ["", "é中文", "\ud800", "\0", "__metadata__"],
    "ordered": OrderedDict([("b", 1), ("a", 2)]),
    "default": defaultdict(list, {1: [2]}),
    "counter": Counter("aab"),
    "deque": deque([1, 2], maxlen=3),
    "torch things": [torch.float16, torch.Size([1, 2]), torch.device("cuda:1"), slice(1, None, 2)],
    "numpy": np.arange(6, dtype=np.int16).reshape(2, 3),
    "numpy big endian": np.arange(3, dtype=">f8"),
    "numpy 0-d": np.array(2.5),
    "numpy empty": np.empty((0, 4)),
    "numpy words": np.array(["ab", "c"]),
    "numpy dates": np.array(["2020-01-01"], dtype="M8[D]"),
    "numpy fields": np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8", (1,))]),
    "numpy bools": np.array([True, False]),
    "numpy objects": np.array([1, "x", None, [2]], dtype=object),
    "numpy scalars": [
        np.float64(0.1),
        np.float32(0.1),
        np.int8(-3),
        np.bool_(True),
        np.datetime64("2020-01-01"),
    ],
    "numpy strided": np.arange(10)[::3],
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors(tmp_path: Path, name: str) -> None:
    again = round_trip(TENSORS[name], tmp_path)
    expected = TENSORS[name].detach().requires_grad_() if name == "computed" else TENSORS[name]
    assert same(again, expected)


@pytest.mark.parametrize("name", VALUES)
def test_values(tmp_path: Path, name: str) -> None:
    assert same(round_trip(VALUES[name], tmp_path), VALUES[name])


trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.complex_numbers(),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=5).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.tuples(st.integers(), st.text()), inner, max_size=5)
    ),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trees)
def test_any_tree(tmp_path: Path, tree: Any) -> None:
    assert same(round_trip(tree, tmp_path), tree)


def test_memory_layout_is_kept(tmp_path: Path) -> None:
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    state = {
        "image": image,
        "turned": torch.randn(3, 4).t(),
        "fortran": np.asfortranarray(np.random.rand(3, 4)),
    }
    write_file(tmp_path / "x.ckpt", state)
    again = read_file(tmp_path / "x.ckpt")
    assert again["image"].stride() == image.stride() and torch.equal(again["image"], image)
    assert again["turned"].stride() == (1, 4) and torch.equal(again["turned"], state["turned"])
    assert again["fortran"].flags.f_contiguous and np.array_equal(again["fortran"], state["fortran"])


def test_tied_and_overlapping_tensors_are_stored_once_and_stay_tied(tmp_path: Path) -> None:
    weight = torch.randn(1000)
    state = {
        "a": weight,
        "tied": weight,
        "turned": weight.view(10, 100).t(),
        "part": weight[100:300],
        "bits": weight[7:9].view(torch.int32),
        "apart": torch.randn(1000),
    }
    write_file(tmp_path / "x.ckpt", state)
    assert (tmp_path / "x.ckpt").stat().st_size < 2 * 4000 + 2500
    again = read_file(tmp_path / "x.ckpt")
    assert all(torch.equal(again[name], state[name]) for name in state)
    assert again["turned"].stride() == (1, 100)
    again["a"][150] = 99.0
    assert again["tied"][150] == again["part"][50] == again["turned"][50, 1] == 99.0
    assert again["apart"].untyped_storage().data_ptr() != again["a"].untyped_storage().data_ptr()


def test_slices_of_a_large_tensor_do_not_drag_it_along(tmp_path: Path) -> None:
    large = torch.randn(1_000_000)
    state = {"a": large[10:20], "b": large[500:510], "wide": torch.ones(1).expand(100_000)}
    write_file(tmp_path / "x.ckpt", state)
    assert (tmp_path / "x.ckpt").stat().st_size < 2000
    again = read_file(tmp_path / "x.ckpt")
    assert all(torch.equal(again[name], state[name]) for name in state)
    assert again["a"].untyped_storage().nbytes() == 40


@pytest.mark.parametrize("format", ["safetensors", "torch"])
def test_model_and_optimizer_states(tmp_path: Path, format: str) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    model[0].bias = model[1].bias  # tied
    optim = torch.optim.Adam(model.parameters(), lr=0.1, betas=(0.8, 0.9))
    model(torch.randn(4, 3)).sum().backward()
    optim.step()
    schedule = torch.optim.lr_scheduler.MultiStepLR(optim, [1, 3])
    state = {"model": model.state_dict(), "optim": optim.state_dict(), "schedule": schedule.state_dict()}
    again = round_trip(state, tmp_path, format=format)
    assert same(again["optim"], state["optim"]) and same(again["schedule"], state["schedule"])
    assert same(again["model"], state["model"])
    assert again["model"]._metadata == state["model"]._metadata
    assert again["model"]["0.bias"].data_ptr() == again["model"]["1.bias"].data_ptr()
    model.load_state_dict(again["model"])
    optim.load_state_dict(again["optim"])


def test_any_safetensors_reader_opens_the_file(tmp_path: Path) -> None:
    model = nn.Linear(2, 3)
    write_file(tmp_path / "x.ckpt", {"model": model.state_dict(), "epoch": 3})
    with safe_open(tmp_path / "x.ckpt", "np") as file:
        assert set(file.keys()) == {"model.weight", "model.bias"}
        assert np.array_equal(file.get_tensor("model.weight"), model.weight.detach().numpy())
        assert json.loads(file.metadata()["luxmeter"])["tree"]["epoch"] == 3


def test_files_of_others_are_read(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"w": torch.ones(2)}, tmp_path / "w.safetensors")
    torch.save({"w": torch.ones(2), "epoch": 3}, tmp_path / "w.pt")
    assert torch.equal(read_file(tmp_path / "w.safetensors")["w"], torch.ones(2))
    assert read_file(tmp_path / "w.pt")["epoch"] == 3


def test_a_header_whose_length_looks_like_a_pickle_or_a_zip(tmp_path: Path) -> None:
    """The first bytes are a length: 0x80 begins a pickle too, 0x50 0x4b a zip file."""
    seen = set()
    for length in [*range(40, 160), *range(19_150, 19_290)]:
        state = {"x": "a" * length}
        write_file(tmp_path / "x.ckpt", state)
        seen.add((tmp_path / "x.ckpt").read_bytes()[:2])
        assert read_file(tmp_path / "x.ckpt") == state
    assert b"PK" in seen and any(start[:1] == b"\x80" for start in seen)


def test_names_that_meet(tmp_path: Path) -> None:
    state = {
        "a.b": torch.ones(1),
        "a": {"b": torch.zeros(1)},
        "a.b#1": torch.full((1,), 2.0),
        "__metadata__": torch.ones(3),
    }
    assert same(round_trip(state, tmp_path), state)
    assert same(round_trip({"__metadata__": torch.ones(3)}["__metadata__"], tmp_path), torch.ones(3))
    write_file(tmp_path / "y.ckpt", {"__metadata__": torch.ones(3)})
    assert same(read_file(tmp_path / "y.ckpt"), {"__metadata__": torch.ones(3)})


def test_a_tree_too_long_for_the_header(tmp_path: Path) -> None:
    state = {
        "words": [f"word {i}" for i in range(150_000)],
        "w": torch.randn(3),
        "luxmeter.tree": torch.ones(1),
    }
    write_file(tmp_path / "x.ckpt", state)
    header_bytes = int.from_bytes((tmp_path / "x.ckpt").read_bytes()[:8], "little")
    assert header_bytes < 1000
    assert same(read_file(tmp_path / "x.ckpt"), state)


class Own:
    pass


class OwnDict(dict):  # type: ignore[type-arg]
    pass


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Own(), r"'a\.0' of the state is a .*\.Own"),
        (OwnDict(), "OwnDict"),
        (nn.Linear(1, 1), r"Pass its state_dict\(\)"),
        (lambda: 1, "function"),
        (torch.empty(2, device="meta"), "ordinary dense or sparse"),
        (np.ma.masked_array([1]), "masked|MaskedArray"),
        (defaultdict(lambda: 1), "default_factory"),
    ],
)
def test_what_data_cannot_rebuild_is_refused_by_its_path(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        write_file(tmp_path / "x.ckpt", {"a": [value]})
    assert list(tmp_path.glob("*.ckpt")) == [] and list(tmp_path.glob(".*.tmp")) == []


def test_circles_and_depths_are_refused(tmp_path: Path) -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(UsageError, match="state-refers-to-itself"):
        write_file(tmp_path / "x.ckpt", circle)
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(UsageError, match="state-too-deep"):
        write_file(tmp_path / "x.ckpt", deep)
    twice = [1, 2]
    assert round_trip([twice, twice], tmp_path) == [twice, twice]


class Evil:
    """Its pickle runs a command when it is loaded."""

    def __reduce__(self) -> Any:
        return os.system, ("touch hacked",)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_plain_pickle_is_refused_with_the_reason(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "evil.ckpt"
    path.write_bytes(pickle.dumps({"w": Evil()}, protocol))
    with pytest.raises(CheckpointError) as caught:
        read_file(path)
    if protocol >= 2:  # protocol 0 is text and looks like nothing we read
        assert caught.value.slug == "checkpoint-unsafe"
        assert "posix.system" in str(caught.value) or "nt.system" in str(caught.value)
    assert not Path("hacked").exists()


@pytest.mark.parametrize("new", [True, False])
def test_a_malicious_torch_file_is_refused_with_the_reason(tmp_path: Path, new: bool) -> None:
    path = tmp_path / "evil.pth"
    torch.save({"w": torch.ones(1), "x": Evil()}, path, _use_new_zipfile_serialization=new)
    with pytest.raises(
        CheckpointError, match=r"refused: loading it would run code.*system.*checkpoint-unsafe"
    ):
        read_file(path)
    assert not Path("hacked").exists()


@pytest.mark.parametrize("listed", [True, False])
def test_torch_format_refuses_now_what_it_could_not_load_later(
    tmp_path: Path, listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not listed:  # as in torch 2.4
        monkeypatch.delattr(torch.serialization, "get_unsafe_globals_in_checkpoint")
    for value in (Own(), np.ones(2)):
        with pytest.raises(CheckpointError, match=r"weights_only=True\) would refuse"):
            write_file(tmp_path / "x.pth", {"a": value}, format="torch")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "work"]
    write_file(tmp_path / "x.pth", {"a": torch.ones(2), "b": (1, [2])}, format="torch")
    assert torch.load(tmp_path / "x.pth", weights_only=True)["b"] == (1, [2])


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    write_file(tmp_path / "x.ckpt", {"w": torch.ones(5), "a": [1, (2,)]})
    whole = (tmp_path / "x.ckpt").read_bytes()
    for length in range(len(whole)):
        (tmp_path / "cut.ckpt").write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match="damaged"):
            read_file(tmp_path / "cut.ckpt")


@pytest.mark.parametrize(
    "tree",
    [
        {"$": "unknown"},
        {"$": "object", "v": 0},
        {"$": "tensor", "t": "absent"},
        {"$": "tensor", "t": "w", "dtype": "load", "shape": [1]},
        {"$": "tensor", "t": "w", "shape": [100], "stride": [1]},
        {"$": "tensor", "t": "w", "shape": [2], "stride": [-1]},
        {"$": "numpy", "dtype": "|O", "shape": [1], "fortran": False, "v": "AAAAAAAAAAA="},
        {"$": "numpy", "dtype": "<f8", "shape": [10**9], "fortran": False, "v": "AAAAAAAAAAA="},
        {"$": "defaultdict", "factory": "eval", "v": []},
        {"$": "int", "v": "import os"},
        {"$": ["unhashable"]},
    ],
)
def test_a_forged_tree_is_called_damage(tmp_path: Path, tree: Any) -> None:
    from safetensors.torch import save_file

    described = json.dumps({"version": 1, "tree": {"value": tree}})
    save_file({"w": torch.ones(2)}, tmp_path / "x.ckpt", metadata={"luxmeter": described})
    with pytest.raises(CheckpointError, match="checkpoint-damaged"):
        read_file(tmp_path / "x.ckpt")


def test_a_newer_version_is_named(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({}, tmp_path / "x.ckpt", metadata={"luxmeter": json.dumps({"version": 2, "tree": {}})})
    with pytest.raises(CheckpointError, match=r"format version 2.*checkpoint-version"):
        read_file(tmp_path / "x.ckpt")


@pytest.mark.parametrize(
    "error", [AssertionError, AttributeError, OverflowError, struct.error, RecursionError]
)
def test_whatever_torch_dies_of_in_a_damaged_file_is_called_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    write_file(tmp_path / "x.pt", {"a": torch.ones(2)}, format="torch")

    def dies(*_: Any, **__: Any) -> None:
        raise error("saved_id must be a tuple, got int")

    monkeypatch.setattr(torch, "load", dies)
    with pytest.raises(CheckpointError, match="checkpoint-damaged"):
        read_file(tmp_path / "x.pt")


def test_any_damaged_byte_of_a_torch_file_raises_our_own_error_or_none(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    write_file(path, {"a": torch.ones(2), "b": [1, "c"]}, format="torch")
    whole = path.read_bytes()
    for at in range(whole.index(b"\x80\x02"), whole.index(b"\x80\x02") + 200):  # its pickle
        for bit in (0, 5):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
            with contextlib.suppress(CheckpointError):
                read_file(path)
