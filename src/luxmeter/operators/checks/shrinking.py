"""A failing input made as small as it can be: fewer arguments, smaller sizes, plainer numbers, as long as it still fails."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from luxmeter.nested import tensors_of
from luxmeter.operators.checks.trial import Trial

_MOST_TRIES = 400
_MOST_VALUES = 24  # a tensor of no more is made plainer number by number


def shrunk(trial: Trial, fails: Callable[[Trial], bool], *, budget_s: float = 15.0) -> Trial:
    """The smallest trial that was found for which `fails` holds."""
    end = time.monotonic() + budget_s
    tries = 0
    changed = True
    while changed:
        changed = False
        for candidate in _smaller(trial):
            tries += 1
            if tries > _MOST_TRIES or time.monotonic() > end:
                return trial
            if fails(candidate):
                trial, changed = candidate, True
                break
    return trial


def _smaller(trial: Trial) -> Iterator[Trial]:
    """Simpler trials, the boldest first; each is simpler by some measure, so that the search ends."""
    for name in trial.kwargs:
        yield replace(trial, kwargs={k: v for k, v in trial.kwargs.items() if k != name})
    if len(trial.args) > 1:
        yield replace(trial, args=trial.args[:-1])
    sizes = sorted({n for t in _tensors(trial) for n in t.shape if n > 1}, reverse=True)
    for size in sizes:
        for less in dict.fromkeys((1, 2, size // 2, size - 1)):
            if 0 < less < size:
                for numbers in (False, True):
                    yield _cut(trial, size, less, numbers=numbers)
                    yield _cut(trial, size, less, numbers=numbers, end=True)
    deepest = max((t.dim() for t in _tensors(trial)), default=0)
    if deepest:
        for at in (0, -1):
            yield _mapped(trial, functools.partial(_one_of, at=at, depth=deepest))
    yield from _alone(trial)
    yield from _plainer(trial)


def _alone(trial: Trial) -> Iterator[Trial]:
    """One tensor smaller in one dimension, the others as they are."""
    tensors = _tensors(trial)
    for number, tensor in enumerate(tensors):
        for dim, size in enumerate(tensor.shape):
            for less in dict.fromkeys((1, size // 2)):
                for end in (False, True) if 0 < less < size else ():
                    yield _mapped(trial, functools.partial(_narrow, dim=dim, size=less, end=end), only=number)


def _plainer(trial: Trial) -> Iterator[Trial]:
    tensors = _tensors(trial)
    for number, tensor in enumerate(tensors):
        if not tensor.is_floating_point() or tensor.layout is not torch.strided:
            continue
        if not tensor.is_contiguous() or tensor.storage_offset():
            yield _mapped(trial, torch.Tensor.contiguous, only=number)
        for digits in (0, 1, 2):
            plain = torch.round(tensor.detach().double(), decimals=digits).to(tensor.dtype)
            if _digits(plain) < _digits(tensor):
                yield _mapped(trial, functools.partial(_instead, plain), only=number)
        if tensor.numel() <= _MOST_VALUES:
            yield from _number_by_number(trial, number, tensor)


def _number_by_number(trial: Trial, number: int, tensor: torch.Tensor) -> Iterator[Trial]:
    flat = tensor.detach().flatten()
    for at in range(flat.numel()):
        for plain in (0.0, 1.0):
            value = float(flat[at])
            if value != plain and not (value == 0.0 or value == 1.0):
                other = flat.clone()
                other[at] = plain
                yield _mapped(trial, functools.partial(_instead, other), only=number)


def _one_of(tensor: torch.Tensor, *, at: int, depth: int) -> torch.Tensor:
    return tensor[at] if tensor.dim() == depth and tensor.shape[0] else tensor


def _instead(values: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    return values.reshape(tensor.shape)


def _digits(tensor: torch.Tensor) -> int:
    """How long its numbers are, written."""
    return sum(len(f"{v:.9g}") for v in tensor.detach().double().flatten()[:256].tolist())


def _cut(trial: Trial, size: int, less: int, *, numbers: bool, end: bool = False) -> Trial:
    """Every dimension of this size smaller; with `numbers`, every whole number of this size, too."""

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        for dim, n in enumerate(tensor.shape):
            if n == size:
                tensor = _narrow(tensor, dim, less, end)
        return tensor

    made = _mapped(trial, cut)
    if not numbers:
        return made

    def number(value: Any) -> Any:
        if type(value) is int and value == size:
            return less
        return type(value)(map(number, value)) if type(value) in (list, tuple) else value

    return replace(
        made, args=tuple(map(number, made.args)), kwargs={k: number(v) for k, v in made.kwargs.items()}
    )


def _narrow(tensor: torch.Tensor, dim: int, size: int, end: bool) -> torch.Tensor:
    """Its beginning, or its end: halves of either lead to any number."""
    start = tensor.shape[dim] - size if end else 0
    return tensor.narrow(dim, start, size) if tensor.layout is torch.strided else tensor


def _tensors(trial: Trial) -> list[torch.Tensor]:
    return tensors_of((trial.args, dict(trial.kwargs)))


def _mapped(
    trial: Trial, change: Callable[[torch.Tensor], torch.Tensor], *, only: int | None = None
) -> Trial:
    """The trial with its tensors changed: all of them, or the one of this number."""
    counter = iter(range(1 << 30))

    def walk(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            here = next(counter)
            if only is not None and here != only:
                return value
            made = change(value.detach()).detach().clone()
            return made.requires_grad_() if value.requires_grad else made
        if type(value) in (list, tuple):
            return type(value)(walk(v) for v in value)
        return {k: walk(v) for k, v in value.items()} if type(value) is dict else value

    args = tuple(walk(v) for v in trial.args)
    return replace(trial, args=args, kwargs={k: walk(v) for k, v in trial.kwargs.items()})
