"""Copies that cost nothing until somebody writes: torch's copy-on-write storages.

A lazy copy shares memory with its tensor. Whichever is written first gets memory of its own, so the copy stays what
it was. If the copy is given up before, nothing was ever copied. torch does this below its operators; a write past
torch, through a numpy array that looks at the same memory, would go unseen. So only tensors are lent that nobody else
looks at: optimizer states, and parameters of modules, which save_state() was given or which a state_dict() in the state
looks at. A tensor that the caller also holds in a variable, sees through numpy or shares with a process is copied at
once. One thing cannot be seen: an array made of a module's own tensor (`module.buffer.numpy()`; a parameter that wants
a gradient refuses that). Who writes through such an array waits with flush() first.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from typing import Any

import torch

_WORTH_BYTES = 1 << 20  # below, a copy is cheaper than fresh memory at the first write
# Who looks at the memory of a tensor in a state: the tensor, the alias made while describing it, python's storage.
_LOOKERS = 3


def known_only_here(values: Mapping[Any, Any]) -> set[int]:
    """The ids of those tensors in a dict that python knows by no other name."""
    # Counted where nothing binds the value: neither a loop variable nor an argument of ours is in the number.
    return {
        id(values[key])
        for key in values
        if isinstance(values[key], torch.Tensor) and sys.getrefcount(values[key]) <= _sole_count()
    }


@functools.cache
def _sole_count() -> int:
    values = {"a": torch.empty(0)}
    return min(sys.getrefcount(values[key]) for key in values)


def storages_of(module: torch.nn.Module) -> set[int]:
    """The memory of a module's parameters and buffers; its state_dict() looks at it through an alias of each."""
    return {one.untyped_storage()._cdata for one in (*module.parameters(), *module.buffers())}


def storages_in(state: Mapping[Any, Any]) -> set[int]:
    """The memory that a module's state_dict() looks at: the module looks at it too."""
    return {
        one.untyped_storage()._cdata
        for one in state.values()
        if type(one) is torch.Tensor and not one.is_sparse
    }


def lazy_copy(tensor: torch.Tensor, owned: frozenset[int]) -> torch.Tensor | None:
    """A copy-on-write copy, or None where a plain copy is the right thing. `owned`: storages_of() modules saved."""
    if tensor.device.type != "cpu" or tensor.numel() * tensor.element_size() < _WORTH_BYTES or not _works():
        return None
    storage = tensor.untyped_storage()
    if torch._C._storage_Use_Count(storage._cdata) > _LOOKERS + (storage._cdata in owned):
        return None
    try:
        made: torch.Tensor = torch._lazy_clone(tensor)
    except RuntimeError:  # memory that is not torch's own: shared with a process, or of numpy
        return None
    return made


def address(tensor: torch.Tensor) -> int:
    """Where the bytes lie, for reading; data_ptr() is for writing and would make the copy."""
    found: int = torch._C._data_address(tensor)  # type: ignore[attr-defined]
    return found


@functools.cache
def _works() -> bool:
    """Does this torch have what is needed, and does it do what is said above?"""
    try:
        live = torch.zeros(4)
        first = torch._lazy_clone(live)
        before = address(live)
        shared = address(first) == before
        live.add_(1)
        kept = first.tolist() == [0.0] * 4 and live.tolist() == [1.0] * 4
        second = torch._lazy_clone(live)
        before = address(live)
        del second
        live.add_(1)
        counted = torch._C._storage_Use_Count(live.untyped_storage()._cdata) <= 3
        return shared and kept and counted and address(live) == before
    except (
        AttributeError,
        RuntimeError,
        TypeError,
    ):  # pragma: no cover - a torch that has other parts inside
        return False
