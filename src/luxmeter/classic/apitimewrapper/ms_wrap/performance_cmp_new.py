"""One function in both frameworks with the same data: which is faster."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from luxmeter.calls import current_device, import_mindspore, raise_failure, wait_for_mindspore
from luxmeter.classic.apitimewrapper.my_print import print as tell
from luxmeter.errors import UsageError


def performance_cmp(
    ms_func: Callable[..., Any],
    torch_func: Callable[..., Any],
    run_time: int,
    performance_multiple: float,
    *args: Any,
    **kwargs: Any,
) -> float:
    """Run both `run_time` times, tell the seconds a call, return how many times longer MindSpore takes.

    More than `performance_multiple` times is told, too. Arrays among the arguments become tensors of each framework. Both are waited for, and run once before.
    """
    if not isinstance(performance_multiple, int | float):
        raise UsageError(
            "bad-performance-multiple",
            f"performance_cmp() was given {type(performance_multiple).__name__} for performance_multiple.",
            "Give a number before the arguments: performance_cmp(ops.relu, torch.relu, 10, 2, x).",
        )
    if run_time < 1:
        raise UsageError("bad-run-time", f"performance_cmp() cannot run {run_time} times.", "Give 1 or more.")
    mindspore = import_mindspore()
    import torch

    ms_cost = _timed(ms_func, run_time, args, kwargs, mindspore.Tensor, wait_for_mindspore)
    raise_failure()
    tell(f"mindspore {_name(ms_func)} run {run_time} times cost time: {ms_cost}.")
    wait = current_device("torch").synchronize
    torch_cost = _timed(torch_func, run_time, args, kwargs, torch.tensor, wait)
    tell(f"torch {_name(torch_func)} run {run_time} times cost time: {torch_cost}.")
    tell(ms_cost / torch_cost)
    if ms_cost / torch_cost > performance_multiple:
        tell(f"mindspore {_name(ms_func)} takes more than {performance_multiple} times as long as torch.")
    return ms_cost / torch_cost


def _timed(
    function: Callable[..., Any],
    run_time: int,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    tensor: Callable[[Any], Any],
    wait: Callable[[], None] | None,
) -> float:
    own = [tensor(value) if isinstance(value, np.ndarray) else value for value in args]
    own_named = {k: tensor(v) if isinstance(v, np.ndarray) else v for k, v in kwargs.items()}
    function(*own, **own_named)
    if wait is not None:
        wait()
    start = perf_counter()
    for _ in range(run_time):
        function(*own, **own_named)
    if wait is not None:
        wait()
    return (perf_counter() - start) / run_time


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)
