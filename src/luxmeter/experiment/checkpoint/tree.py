"""Any state -> a JSON tree and a flat list of tensors: what a checkpoint file holds, without pickle.

The tree keeps what JSON cannot say in objects with a "$" key: {"$": "tuple", "v": [...]}. Only exact types are
taken, because a subclass could not be built again from data alone; an unknown type is refused by its path.
"""

from __future__ import annotations

import base64
import copy
import math
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from luxmeter.errors import CheckpointError, UsageError
from luxmeter.experiment.checkpoint.lazy_copy import known_only_here, storages_in
from luxmeter.experiment.checkpoint.tensor_blocks import Leaf, TensorBlocks

_LONG_LIST = 32  # homogeneous numbers from this length on are stored as a tensor, not as JSON text
_LONG_BYTES = 64
_SAFE_INT = 2**53
DEFAULT_FACTORIES: dict[str, Callable[[], Any] | None] = {
    "None": None, "int": int, "float": float, "str": str, "list": list, "dict": dict, "set": set, "tuple": tuple
}  # fmt: skip


@dataclass
class EncodedState:
    """The JSON tree, the tensors it names, and (for torch.save only) objects that are in neither."""

    tree: Any
    leaves: list[Leaf]
    objects: list[Any] = field(default_factory=list)
    owned: frozenset[int] = frozenset()  # the memory of modules whose state_dict() is in the state


def encode(state: Any, *, allow_objects: bool = False) -> EncodedState:
    """Describe a state. No tensor is copied yet: the leaves point at the memory of the state."""
    encoder = _Encoder(allow_objects)
    try:
        tree = encoder.node(state, ())
    except RecursionError as error:
        raise UsageError(
            "state-too-deep",
            "The state is nested too deeply to be written as a tree.",
            "Flatten it, or keep the inner part in a file of its own.",
        ) from error
    return EncodedState(tree, encoder.blocks.finish(), encoder.objects, frozenset(encoder.owned))


def encode_plain(value: Any) -> Any:
    """The JSON tree of a value without large tensors (the info of a checkpoint); one-element tensors turn to numbers."""
    encoder = _Encoder(False, numbers_only=True)
    return encoder.node(value, ())


class _Encoder:
    def __init__(self, allow_objects: bool, *, numbers_only: bool = False) -> None:
        self.blocks = TensorBlocks()
        self.objects: list[Any] = []
        self.owned: set[int] = set()
        self._allow_objects = allow_objects
        self._numbers_only = numbers_only
        self._open: set[int] = set()
        self._sole: set[int] = set()

    def node(self, value: Any, path: tuple[str, ...]) -> Any:
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if kind is int:
            return value if -_SAFE_INT <= value <= _SAFE_INT else {"$": "int", "v": hex(value)}
        if kind is float:
            return value if math.isfinite(value) else {"$": "float", "v": struct.pack("<d", value).hex()}
        if kind in _CONTAINERS:
            if id(value) in self._open:
                raise UsageError(
                    "state-refers-to-itself",
                    f"{_shown(path)} of the state contains itself.",
                    "Save the parts without the circle.",
                )
            self._open.add(id(value))
            if isinstance(value, dict):
                self._sole |= known_only_here(value)
            try:
                return _CONTAINERS[kind](self, value, path)
            finally:
                self._open.discard(id(value))
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if isinstance(value, np.generic):
            if self._numbers_only and isinstance(value, np.number | np.bool_):
                return self.node(value.item(), path)
            if value.dtype.hasobject:
                raise _cannot_store(value, path)
            return {"$": "numpy-scalar", "dtype": _descr(value.dtype), "v": _text(value.tobytes())}
        if kind is np.ndarray:
            return self._array(value, path)
        if kind in _ATOMS:
            return {"$": kind.__name__, **_ATOMS[kind](value)}
        if kind in (bytes, bytearray):
            if len(value) < _LONG_BYTES or self._numbers_only:
                return {"$": kind.__name__, "v": _text(bytes(value))}
            return {"$": kind.__name__, "t": self._raw(np.frombuffer(bytes(value), np.uint8), path)}
        if self._allow_objects:
            self.objects.append(copy.deepcopy(value))
            return {"$": "object", "v": len(self.objects) - 1}
        raise _cannot_store(value, path)

    def mapping(self, value: dict[Any, Any], path: tuple[str, ...]) -> Any:
        if "$" not in value and all(type(key) is str for key in value):
            return {key: self.node(inner, (*path, key)) for key, inner in value.items()}
        return {"$": "dict", "v": self.pairs(value, path)}

    def pairs(self, value: Any, path: tuple[str, ...]) -> list[list[Any]]:
        return [
            [self.node(key, (*path, "key")), self.node(inner, (*path, str(key)))]
            for key, inner in value.items()
        ]

    def ordered(self, value: OrderedDict[Any, Any], path: tuple[str, ...]) -> Any:
        node = {"$": "odict", "v": self.pairs(value, path)}
        # Module.state_dict() hangs the version of every submodule on the dict; load_state_dict() reads it.
        if "_metadata" in vars(value):
            self.owned |= storages_in(value)
        if vars(value):
            node["attributes"] = self.node(dict(vars(value)), (*path, "attributes"))
        return node

    def default(self, value: defaultdict[Any, Any], path: tuple[str, ...]) -> Any:
        factory = next(
            (name for name, made in DEFAULT_FACTORIES.items() if made is value.default_factory), None
        )
        if factory is None:
            raise _cannot_store(value.default_factory, (*path, "default_factory"))
        return {"$": "defaultdict", "factory": factory, "v": self.pairs(value, path)}

    def sequence(self, value: list[Any] | tuple[Any, ...], path: tuple[str, ...]) -> Any:
        tag = type(value).__name__
        if len(value) >= _LONG_LIST and not self._numbers_only:
            for kind, dtype in ((int, np.int64), (float, np.float64)):
                if set(map(type, value)) == {kind}:
                    try:
                        array = np.array(value, dtype=dtype)
                    except OverflowError:
                        break
                    return {"$": "numbers", "in": tag, "t": self._raw(array, path)}
        items = [self.node(inner, (*path, str(index))) for index, inner in enumerate(value)]
        return items if tag == "list" else {"$": tag, "v": items}

    def items(self, value: Any, path: tuple[str, ...]) -> Any:
        items = [self.node(inner, (*path, str(index))) for index, inner in enumerate(value)]
        node: dict[str, Any] = {"$": type(value).__name__, "v": items}
        if isinstance(value, deque):
            node["maxlen"] = value.maxlen
        return node

    def counter(self, value: Counter[Any], path: tuple[str, ...]) -> Any:
        return {"$": "Counter", "v": self.pairs(value, path)}

    def _tensor(self, value: torch.Tensor, path: tuple[str, ...]) -> Any:
        if self._numbers_only:
            if value.numel() != 1:
                raise UsageError(
                    "info-tensor",
                    f"{_shown(path)} of the info is a tensor of {value.numel()} values.",
                    "Info is for numbers and words; put the tensor into the checkpoint itself.",
                )
            return self.node(value.item(), path)
        if type(value) not in (torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.Tensor)):
            raise _cannot_store(value, path)
        if value.is_quantized or value.is_meta or value.is_nested:
            raise _cannot_store(value, path)
        if value.layout is not torch.strided:
            return self._sparse(value, path)
        node: dict[str, Any] = {"$": "tensor"}
        if isinstance(value, torch.nn.Parameter):
            node["parameter"] = value.requires_grad
        elif value.requires_grad:
            node["grad"] = True
        self.blocks.add(node, value.detach(), ".".join(path) or "state", sole=id(value) in self._sole)
        return node

    def _sparse(self, value: torch.Tensor, path: tuple[str, ...]) -> Any:
        value = value.detach()
        node: dict[str, Any] = {"$": "sparse", "layout": str(value.layout), "size": list(value.shape)}
        if value.layout is torch.sparse_coo:
            node["coalesced"] = value.is_coalesced()
            parts = {"indices": value._indices(), "values": value._values()}
        elif value.layout in (torch.sparse_csr, torch.sparse_bsr):
            parts = {"indices": value.crow_indices(), "plain": value.col_indices(), "values": value.values()}
        else:
            parts = {"indices": value.ccol_indices(), "plain": value.row_indices(), "values": value.values()}
        return node | {name: self._tensor(part, (*path, name)) for name, part in parts.items()}

    def _array(self, value: np.ndarray[Any, Any], path: tuple[str, ...]) -> Any:
        shape = list(value.shape)
        if value.dtype.hasobject:
            if value.dtype != object:
                raise _cannot_store(value, path)
            items = [
                self.node(inner, (*path, str(index))) for index, inner in enumerate(value.ravel().tolist())
            ]
            return {"$": "numpy-objects", "shape": shape, "v": items}
        fortran = value.flags.f_contiguous and not value.flags.c_contiguous
        flat = np.frombuffer(value.tobytes("F" if fortran else "C"), np.uint8)
        node = {"$": "numpy", "dtype": _descr(value.dtype), "shape": shape, "fortran": fortran}
        if self._numbers_only:
            return node | {"v": _text(flat.tobytes())}
        return node | {"t": self._raw(flat, path)}

    def _raw(self, array: np.ndarray[Any, Any], path: tuple[str, ...]) -> dict[str, Any]:
        node: dict[str, Any] = {"$": "tensor"}
        self.blocks.add(node, torch.tensor(array), ".".join(path) or "state")
        return node


_CONTAINERS: dict[type, Callable[[_Encoder, Any, tuple[str, ...]], Any]] = {
    dict: _Encoder.mapping,
    OrderedDict: _Encoder.ordered,
    defaultdict: _Encoder.default,
    Counter: _Encoder.counter,
    list: _Encoder.sequence,
    tuple: _Encoder.sequence,
    set: _Encoder.items,
    frozenset: _Encoder.items,
    deque: _Encoder.items,
}
_ATOMS: dict[type, Callable[[Any], dict[str, Any]]] = {
    complex: lambda value: {"v": struct.pack("<dd", value.real, value.imag).hex()},
    torch.Size: lambda value: {"v": list(value)},
    torch.dtype: lambda value: {"v": str(value).removeprefix("torch.")},
    torch.device: lambda value: {"v": str(value)},
    slice: lambda value: {"v": [value.start, value.stop, value.step]},
}


def _descr(dtype: np.dtype[Any]) -> Any:
    return np.lib.format.dtype_to_descr(dtype)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _shown(path: tuple[str, ...]) -> str:
    return repr(".".join(path)) if path else "The whole"


def _cannot_store(value: object, path: tuple[str, ...]) -> CheckpointError:
    kind = type(value)
    advice = "Save plain values: numbers, strings, lists, dicts, tensors and numpy arrays."
    if hasattr(value, "state_dict"):
        advice = "Pass its state_dict(), or use saver.save_state(step, name=object), which takes the object."
    elif isinstance(value, torch.Tensor):
        advice = "Save an ordinary dense or sparse tensor: full_tensor() of a DTensor, dequantize() of a quantized one."
    return CheckpointError(
        "state-type",
        f"{_shown(path)} of the state is a {kind.__module__}.{kind.__qualname__}, which data alone cannot rebuild.",
        advice,
    )
