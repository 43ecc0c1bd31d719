"""Which bytes of memory a checkpoint must hold: each once, however many tensors look at them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import torch

from luxmeter.experiment.checkpoint.lazy_copy import address, lazy_copy

# The dtypes that safetensors names; any other is stored as bytes and named in the tree.
SAFETENSORS_NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
    torch.uint64: "U64", torch.uint32: "U32", torch.uint16: "U16", torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
}  # fmt: skip


@dataclass
class Leaf:
    """One entry of the file: its name, what safetensors calls it, and the dense bytes it is made of."""

    name: str
    dtype: str
    shape: list[int]
    size_bytes: int
    align: int
    source: torch.Tensor | None  # dense, of any device, in the order of the file; None once copied
    sole: bool = False  # nobody but its owner and the state knows the tensor: it may be lent
    lent: bool = False

    def lend(self, owned: frozenset[int]) -> bool:
        """Hold a lazy copy instead of the tensor, if that can be: then copy_to() may come later."""
        copied = lazy_copy(self.source, owned) if self.sole and self.source is not None else None
        if copied is not None:
            self.source, self.lent = copied, True
        return self.lent

    def copy_to(self, arena: torch.Tensor, offset: int) -> None:
        """Copy the bytes now, and let the tensor go."""
        source, self.source = self.source, None
        if source is None or self.size_bytes == 0:
            return
        if source.device.type == "cpu":
            # memmove, not copy_: on large tensors it writes past the cache (17 against 10 GB/s).
            start = address(source) if self.lent else source.data_ptr()
            ctypes.memmove(arena.data_ptr() + offset, start, self.size_bytes)
        else:  # pragma: no cover - on accelerators
            flat = source.reshape(-1).view(torch.uint8)
            arena[offset : offset + self.size_bytes].copy_(flat)


@dataclass
class _Seen:
    node: dict[str, Any]
    tensor: torch.Tensor
    name: str
    start: int  # byte range in its storage
    end: int
    sole: bool


class TensorBlocks:
    """Collects tensors, then decides what is stored: tied and overlapping ones share one entry."""

    def __init__(self) -> None:
        self._seen: list[_Seen] = []
        self._names: dict[str, int] = {}

    def add(self, node: dict[str, Any], tensor: torch.Tensor, name: str, *, sole: bool = False) -> None:
        """Take a detached strided tensor; finish() will write into node where it is stored."""
        if tensor.is_conj() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg()
        size = tensor.element_size()
        start = int(tensor.storage_offset()) * size
        reach = (
            sum((int(n) - 1) * int(step) for n, step in zip(tensor.shape, tensor.stride(), strict=True)) + 1
        )
        self._seen.append(
            _Seen(node, tensor, name, start, start + (reach * size if tensor.numel() else 0), sole)
        )

    def finish(self) -> list[Leaf]:
        """The entries of the file; every node given to add() now says "t" (its entry) and how to look at it."""
        leaves: list[Leaf] = []
        for group in _overlapping(self._seen):
            first = group[0]
            if all(_view(other) == _view(first) for other in group):
                self._single(group, leaves)
            else:
                start, end = min(seen.start for seen in group), max(seen.end for seen in group)
                self._block(group, start, end, leaves)
        return leaves

    def _single(self, group: list[_Seen], leaves: list[Leaf]) -> None:
        tensor = group[0].tensor
        size_bytes = tensor.numel() * tensor.element_size()
        strides = tensor.stride()
        order = sorted(range(tensor.ndim), key=lambda axis: (-strides[axis], axis))
        permuted = tensor.permute(order) if tensor.ndim else tensor
        if not permuted.is_contiguous() and group[0].end - group[0].start <= size_bytes:
            self._block(
                group, group[0].start, group[0].end, leaves
            )  # an expanded tensor: few bytes, many views
            return
        look: dict[str, Any] = {}
        if permuted.is_contiguous() and not tensor.is_contiguous():
            # Dense in another order (channels_last, transposed): kept, since kernels may round by layout.
            tensor = permuted
            look = {"shape": list(group[0].tensor.shape), "stride": list(group[0].tensor.stride())}
        tensor = tensor.contiguous()
        name = SAFETENSORS_NAMES.get(tensor.dtype)
        if name is None:
            look.setdefault("shape", list(tensor.shape))
            look |= {"dtype": str(tensor.dtype).removeprefix("torch.")}
        shape = list(tensor.shape) if name else [size_bytes]
        align = tensor.element_size() if name else 1
        sole = all(seen.sole for seen in group)
        leaf = Leaf(self._named(group), name or "U8", shape, size_bytes, align, tensor, sole)
        self._put(group, leaf, leaves, look)

    def _block(self, group: list[_Seen], start: int, end: int, leaves: list[Leaf]) -> None:
        start -= start % 16  # so that every dtype in the block stays on its own boundary
        storage = group[0].tensor.untyped_storage()
        raw = torch.empty(0, dtype=torch.uint8, device=storage.device)
        source = raw.set_(storage, start, (end - start,), (1,))
        leaf = Leaf(self._named(group), "U8", [end - start], end - start, 1, source)
        leaves.append(leaf)
        for seen in group:
            tensor = seen.tensor
            seen.node |= {
                "t": leaf.name,
                "dtype": str(tensor.dtype).removeprefix("torch."),
                "shape": list(tensor.shape),
                "stride": list(tensor.stride()),
                "offset_bytes": seen.start - start,
            }

    def _put(self, group: list[_Seen], leaf: Leaf, leaves: list[Leaf], look: dict[str, Any]) -> None:
        leaves.append(leaf)
        for seen in group:
            seen.node |= {"t": leaf.name, **look}

    def _named(self, group: list[_Seen]) -> str:
        """The path of the first tensor, made unique; any text is a name but the one safetensors keeps for itself."""
        name = group[0].name.encode("utf-8", "backslashreplace").decode()
        name = f"{name}." if name == "__metadata__" else name
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return name if count == 0 else self._unused(name, count)

    def _unused(self, name: str, count: int) -> str:
        while (candidate := f"{name}#{count}") in self._names:
            count += 1
        self._names[candidate] = 1
        return candidate


def _view(seen: _Seen) -> tuple[Any, ...]:
    tensor = seen.tensor
    return seen.start, tensor.dtype, tensor.shape, tensor.stride()


def _overlapping(seen: list[_Seen]) -> list[list[_Seen]]:
    """Groups of tensors that share bytes, each group and the groups in the order they were added."""
    by_storage: dict[tuple[str, int], list[int]] = {}
    groups: list[list[int]] = []
    for index, one in enumerate(seen):
        if one.start == one.end:
            groups.append([index])
        else:
            storage = one.tensor.untyped_storage()
            by_storage.setdefault((str(storage.device), storage.data_ptr()), []).append(index)
    for members in by_storage.values():
        members.sort(key=lambda index: seen[index].start)
        group = [members[0]]
        end = seen[members[0]].end
        for index in members[1:]:
            if seen[index].start < end:
                group.append(index)
                end = max(end, seen[index].end)
            else:
                groups.append(group)
                group, end = [index], seen[index].end
        groups.append(group)
    return [[seen[index] for index in sorted(group)] for group in sorted(groups, key=min)]
