"""How much memory tensors hold over time: every storage from its first sight to its death, views counted once."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch


class Lifetimes:
    """Adds up live storages. What is `set_aside` (weights, inputs) is known and not counted."""

    def __init__(self) -> None:
        self.live_bytes = 0
        self.peak_bytes = 0
        self.made_bytes = 0
        self._held: dict[int, Any] = {}

    def set_aside(self, tensors: Iterable[torch.Tensor]) -> int:
        """Bytes of these tensors' storages, each once; from now on they are not counted as made."""
        total = 0
        for tensor in tensors:
            storage = _storage(tensor)
            if storage is None or storage._cdata in self._held:
                continue
            total += storage.nbytes()
            self._held[storage._cdata] = tensor  # kept alive, so that its place is not taken by another
        return total

    def saw(self, tensor: torch.Tensor) -> int:
        """Count the storage behind `tensor` unless it is known; returns the bytes that are new."""
        storage = _storage(tensor)
        if storage is None:
            return 0
        key, held = storage._cdata, self._held
        if key in held:
            return 0
        size_bytes = int(storage.nbytes())
        if not size_bytes:
            return 0
        self.made_bytes += size_bytes
        self.live_bytes += size_bytes
        if self.live_bytes > self.peak_bytes:
            self.peak_bytes = self.live_bytes

        def gone(_: object, self: Lifetimes = self, key: int = key, size_bytes: int = size_bytes) -> None:
            self.live_bytes -= size_bytes
            self._held.pop(key, None)

        # A storage keeps its Python object as long as it lives, so this weak reference ends when the memory does.
        held[key] = weakref.ref(storage, gone)
        return size_bytes


def _storage(tensor: torch.Tensor) -> Any | None:
    """The storage behind a dense tensor; None for what has none of its own (sparse, wrappers, not yet made)."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError, ValueError):
        return None
