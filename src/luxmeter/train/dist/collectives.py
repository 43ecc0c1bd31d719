"""What the ranks of a group do together. Alone, each gives what it was given."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, ParamSpec, TypeVar

import torch
import torch.distributed as dist

from luxmeter.errors import UsageError
from luxmeter.ranks import is_main

Reduction = Literal["sum", "mean", "max", "min"]
P = ParamSpec("P")
R = TypeVar("R")


def barrier() -> None:
    """Wait until every rank is here."""
    if _is_group():
        dist.barrier()


def broadcast(tensor: torch.Tensor, src: int = 0) -> torch.Tensor:
    """The tensor, filled on every rank with what rank `src` has in it."""
    if _is_group():
        _check_source(src)
        dist.broadcast(tensor, src)
    return tensor


def broadcast_object(value: Any, src: int = 0) -> Any:
    """What rank `src` has: anything that can be pickled."""
    if not _is_group():
        return value
    _check_source(src)
    box = [value]
    dist.broadcast_object_list(box, src)
    return value if dist.get_rank() == src else box[0]


def gather_objects(value: Any) -> list[Any]:
    """What each rank has, in the order of the ranks, on every rank."""
    if not _is_group():
        return [value]
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def all_reduce(tensor: torch.Tensor, op: Reduction = "sum") -> torch.Tensor:
    """The tensor, filled on every rank with the sum, mean, maximum or minimum of what they had in it."""
    known = {"sum": dist.ReduceOp.SUM, "mean": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}  # fmt: skip
    if op not in known:
        raise UsageError("reduce-how", f"There is no reduction {op!r}.", f"There are {', '.join(known)}.")
    if op == "mean" and not (tensor.is_floating_point() or tensor.is_complex()):
        raise UsageError(
            "mean-of-integers",
            f"A mean does not fit into a tensor of {tensor.dtype}.",
            "Make it floating point first: tensor.double().",
        )
    if _is_group():
        dist.all_reduce(tensor, known[op])
        if op == "mean":
            tensor /= dist.get_world_size()
    return tensor


def main_only(function: Callable[P, R]) -> Callable[P, R | None]:
    """The function on rank 0; on the others it does nothing and gives None."""

    @functools.wraps(function)
    def on_main(*args: P.args, **kwargs: P.kwargs) -> R | None:
        return function(*args, **kwargs) if is_main() else None

    return on_main


def _is_group() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _check_source(src: int) -> None:
    if not 0 <= src < dist.get_world_size():
        raise UsageError(
            "no-such-rank",
            f"There is no rank {src} in a group of {dist.get_world_size()}.",
            f"They are numbered from 0 to {dist.get_world_size() - 1}.",
        )
