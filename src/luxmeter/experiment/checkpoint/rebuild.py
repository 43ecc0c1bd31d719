"""A JSON tree and its tensors -> the state it was made from. The way back of checkpoint_tree.

The file is not trusted: only the types below can come out of it, and anything else is called damage.
"""

from __future__ import annotations

import base64
import json
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from luxmeter.errors import CheckpointError
from luxmeter.experiment.checkpoint.tree import DEFAULT_FACTORIES, EncodedState

_LAYOUTS = {
    str(layout): layout
    for layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
}


def rebuild(tree: Any, tensors: Mapping[str, torch.Tensor], *, objects: list[Any] | None = None) -> Any:
    """The state again. Tensors that shared memory when they were saved share memory again."""
    try:
        return _Decoder(tensors, objects or []).value(tree)
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        RuntimeError,
        RecursionError,
        struct.error,
    ) as error:
        raise CheckpointError(
            "checkpoint-damaged",
            f"The tree of the checkpoint does not fit its tensors: {type(error).__name__}: {error}.",
            "Load an earlier checkpoint; this one was changed after it was written.",
        ) from error


def rebuild_plain(tree: Any) -> Any:
    """The value that encode_plain() described."""
    return rebuild(tree, {})


def rebuild_copy(encoded: EncodedState, tensors: Mapping[str, torch.Tensor]) -> Any:
    """A state of its own from an encoded one, with its foreign objects: what torch.save is given."""
    return rebuild(encoded.tree, tensors, objects=encoded.objects)


class _Decoder:
    def __init__(self, tensors: Mapping[str, torch.Tensor], objects: list[Any]) -> None:
        self._tensors = tensors
        self._objects = objects
        self._listed: set[str] = set()

    def value(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self.value(inner) for inner in node]
        if not isinstance(node, dict):
            return node
        if "$" not in node:
            return {key: self.value(inner) for key, inner in node.items()}
        make = _MAKERS.get(node["$"])
        if make is None:
            raise ValueError(f"unknown kind {node['$']!r}")
        return make(self, node)

    def pairs(self, node: dict[str, Any]) -> list[tuple[Any, Any]]:
        return [(self.value(key), self.value(inner)) for key, inner in node["v"]]

    def items(self, node: dict[str, Any]) -> list[Any]:
        return [self.value(inner) for inner in node["v"]]

    def ordered(self, node: dict[str, Any]) -> OrderedDict[Any, Any]:
        made = OrderedDict(self.pairs(node))
        vars(made).update(self.value(node.get("attributes", {})))
        return made

    def default(self, node: dict[str, Any]) -> defaultdict[Any, Any]:
        return defaultdict(DEFAULT_FACTORIES[node["factory"]], self.pairs(node))

    def counter(self, node: dict[str, Any]) -> Counter[Any]:
        return Counter(dict(self.pairs(node)))

    def numbers(self, node: dict[str, Any]) -> list[Any] | tuple[Any, ...]:
        if (place := json.dumps(node["t"])) in self._listed:
            raise ValueError("two lists of numbers are one tensor")
        self._listed.add(place)
        items = self._of_its_own(node["t"]).tolist()
        return tuple(items) if node["in"] == "tuple" else list(items)

    def raw(self, node: dict[str, Any]) -> bytes:
        if "v" in node:
            return base64.b64decode(node["v"], validate=True)
        return self._of_its_own(node["t"]).numpy().tobytes()

    def _of_its_own(self, node: dict[str, Any]) -> torch.Tensor:
        """A tensor that is about to be copied: a view that shows the same memory many times would fill ours."""
        tensor = self.tensor(node)
        if tensor.numel() * tensor.itemsize > tensor.untyped_storage().nbytes():
            raise ValueError(
                f"{tensor.numel()} values are claimed of {tensor.untyped_storage().nbytes()} bytes"
            )
        return tensor

    def tensor(self, node: dict[str, Any]) -> torch.Tensor:
        tensor = self._tensors[node["t"]]
        if "dtype" in node:
            offset = int(node.get("offset_bytes", 0))
            dtype = _dtype(node["dtype"])
            raw = tensor[offset:]
            tensor = raw[: raw.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
            if "stride" not in node:
                tensor = tensor.reshape(node["shape"])
        if "stride" in node:
            # as_strided checks against the storage, which may be larger than what belongs to this entry.
            reach = sum((n - 1) * step for n, step in zip(node["shape"], node["stride"], strict=True)) + 1
            if reach > tensor.numel() or min((*node["stride"], 0)) < 0:
                raise ValueError("a view reaches past its tensor")
            tensor = tensor.as_strided(node["shape"], node["stride"], tensor.storage_offset())
        if "parameter" in node:
            return torch.nn.Parameter(tensor, requires_grad=bool(node["parameter"]))
        return tensor.detach().requires_grad_() if node.get("grad") else tensor

    def sparse(self, node: dict[str, Any]) -> torch.Tensor:
        layout, size = _LAYOUTS[node["layout"]], node["size"]
        indices, values = self.tensor(node["indices"]), self.tensor(node["values"])
        if layout is torch.sparse_coo:
            return torch.sparse_coo_tensor(
                indices, values, size, is_coalesced=bool(node["coalesced"]), check_invariants=True
            )
        plain = self.tensor(node["plain"])
        return torch.sparse_compressed_tensor(
            indices, plain, values, size, layout=layout, check_invariants=True
        )

    def array(self, node: dict[str, Any]) -> np.ndarray[Any, Any]:
        flat = np.frombuffer(bytearray(self.raw(node)), dtype=_numpy_dtype(node["dtype"]))
        return flat.reshape(node["shape"], order="F" if node["fortran"] else "C")

    def object_array(self, node: dict[str, Any]) -> np.ndarray[Any, Any]:
        made = np.empty(len(node["v"]), dtype=object)
        for index, inner in enumerate(node["v"]):
            made[index] = self.value(inner)
        return made.reshape(node["shape"])

    def scalar(self, node: dict[str, Any]) -> np.generic:
        made: np.generic = np.frombuffer(self.raw(node), dtype=_numpy_dtype(node["dtype"]))[0]
        return made

    def foreign(self, node: dict[str, Any]) -> Any:
        return self._objects[node["v"]]


_MAKERS: dict[str, Callable[[_Decoder, dict[str, Any]], Any]] = {
    "int": lambda decoder, node: int(node["v"], 16),
    "float": lambda decoder, node: struct.unpack("<d", bytes.fromhex(node["v"]))[0],
    "complex": lambda decoder, node: complex(*struct.unpack("<dd", bytes.fromhex(node["v"]))),
    "bytes": _Decoder.raw,
    "bytearray": lambda decoder, node: bytearray(decoder.raw(node)),
    "tuple": lambda decoder, node: tuple(decoder.items(node)),
    "set": lambda decoder, node: set(decoder.items(node)),
    "frozenset": lambda decoder, node: frozenset(decoder.items(node)),
    "deque": lambda decoder, node: deque(decoder.items(node), maxlen=node["maxlen"]),
    "dict": lambda decoder, node: dict(decoder.pairs(node)),
    "odict": _Decoder.ordered,
    "defaultdict": _Decoder.default,
    "Counter": _Decoder.counter,
    "numbers": _Decoder.numbers,
    "tensor": _Decoder.tensor,
    "sparse": _Decoder.sparse,
    "numpy": _Decoder.array,
    "numpy-objects": _Decoder.object_array,
    "numpy-scalar": _Decoder.scalar,
    "Size": lambda decoder, node: torch.Size(node["v"]),
    "dtype": lambda decoder, node: _dtype(node["v"]),
    "device": lambda decoder, node: torch.device(node["v"]),
    "slice": lambda decoder, node: slice(*node["v"]),
    "object": _Decoder.foreign,
}


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"torch.{name} is no dtype")
    return found


def _numpy_dtype(descr: Any) -> np.dtype[Any]:
    dtype = np.lib.format.descr_to_dtype(_tuples(descr))
    if dtype.hasobject:
        raise ValueError("an array of objects has no bytes")
    return dtype


def _tuples(descr: Any) -> Any:
    """JSON made lists of the tuples that numpy wants inside a description of fields."""
    if not isinstance(descr, list):
        return descr
    return [
        tuple(_tuples(part) if part_index == 1 else _shape(part) for part_index, part in enumerate(entry))
        for entry in descr
    ]


def _shape(part: Any) -> Any:
    return tuple(part) if isinstance(part, list) else part
