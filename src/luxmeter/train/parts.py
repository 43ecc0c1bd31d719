"""What of a Trainer makes its state: found by type among its attributes, listed by nobody."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

_SEVERAL = (list, tuple, dict)


def find(owner: Any, kind: type | tuple[type, ...]) -> dict[str, Any]:
    """The attributes of a kind, by name; those in lists, tuples and dicts as `name.0`, `name.key`. Each object once."""
    found: dict[str, Any] = {}
    for name, value in vars(owner).items():
        if name != "_training":
            _look(name, value, kind, found)
    return found


def _look(name: str, value: Any, kind: type | tuple[type, ...], found: dict[str, Any]) -> None:
    if isinstance(value, kind) and not isinstance(value, type):
        if not any(value is known for known in found.values()):
            found[name] = value
    elif isinstance(value, _SEVERAL):
        inside = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in inside:
            _look(f"{name}.{key}", inner, kind, found)


def models(owner: Any) -> dict[str, nn.Module]:
    """The modules: those that hold others of them among their own are enough."""
    every = find(owner, nn.Module)
    inner = {id(below) for module in every.values() for below in module.modules() if below is not module}
    return {name: module for name, module in every.items() if id(module) not in inner}


def optimizers(owner: Any) -> dict[str, Optimizer]:
    """The optimizers."""
    return find(owner, Optimizer)


def schedulers(owner: Any) -> dict[str, LRScheduler]:
    """torch's schedulers of learning rates."""
    return find(owner, LRScheduler)


@runtime_checkable
class HasState(Protocol):
    """Whatever has state_dict and load_state_dict."""

    def state_dict(self) -> Any:
        """What a checkpoint holds."""

    def load_state_dict(self, state: Any, /) -> Any:
        """Go on from there."""


def stateful(owner: Any) -> dict[str, Any]:
    """All of them that a checkpoint has to hold: models, optimizers, schedulers, generators, all else with a state."""
    inner = {id(module) for module in find(owner, nn.Module).values()} - {
        id(module) for module in models(owner).values()
    }
    every = find(owner, (HasState, torch.Generator))
    return {name: value for name, value in every.items() if id(value) not in inner}
