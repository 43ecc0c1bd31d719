"""How much memory tensors hold over time: every storage from its first sight to its death, views counted once."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch


class Lifetimes:
    """Adds up live storages. What is `leave_out` (weights, inputs) is known and not counted."""

    def __init__(self) -> None:
        self.live_bytes = 0
        self.peak_bytes = 0
        self.made_bytes = 0
        self._held: dict[int, Any] = {}

    def leave_out(self, tensors: Iterable[torch.Tensor]) -> int:
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
        if storage._cdata in self._held:
            return 0
        size_bytes = int(storage.nbytes())
        if not size_bytes:
            return 0
        self.fresh(storage, size_bytes, size_bytes, size_bytes)
        return size_bytes

    def fresh(self, storage: Any, size_bytes: int, made_bytes: int, rise_bytes: int) -> None:
        """Count a new storage that came out of work that made `made_bytes` and went up by `rise_bytes` meanwhile."""
        self.made_bytes += made_bytes
        if self.live_bytes + rise_bytes > self.peak_bytes:
            self.peak_bytes = self.live_bytes + rise_bytes
        self.live_bytes += size_bytes
        key = storage._cdata

        def gone(_: object, self: Lifetimes = self, key: int = key, size_bytes: int = size_bytes) -> None:
            self.live_bytes -= size_bytes
            self._held.pop(key, None)

        # A storage keeps its Python object as long as it lives, so this weak reference ends when the memory does.
        self._held[key] = weakref.ref(storage, gone)


def _storage(tensor: torch.Tensor) -> Any | None:
    """The storage behind a dense tensor; None for what has none of its own (sparse, wrappers, not yet made)."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError, ValueError):
        return None
