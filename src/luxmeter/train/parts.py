"""What of a Trainer makes its state: found by type among its attributes, listed by nobody."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

_MOST = 1000  # in a list or dict: a longer one is data


def find(owner: Any, kind: type | tuple[type, ...]) -> dict[str, Any]:
    """The attributes of a kind, by name; each object once.

    Those in lists, tuples, dicts, dataclasses and SimpleNamespaces as `name.0`, `name.key`.
    """
    found: dict[str, Any] = {}
    for name, value in vars(owner).items():
        if name != "_training":
            _look(name, value, kind, found, ())
    return found


def _look(
    name: str, value: Any, kind: type | tuple[type, ...], found: dict[str, Any], above: tuple[int, ...]
) -> None:
    if isinstance(value, kind) and not isinstance(value, type):
        if not any(value is known for known in found.values()):
            found[name] = value
    elif id(value) not in above:  # a list may hold itself
        for key, inner in _inside(value):
            _look(f"{name}.{key}", inner, kind, found, (*above, id(value)))


def _inside(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict | list | tuple) and len(value) > _MOST:
        return ()
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, list | tuple):
        return enumerate(value)
    if isinstance(value, SimpleNamespace):
        return vars(value).items()
    if _is_holder(value):
        return [(each.name, getattr(value, each.name, None)) for each in dataclasses.fields(value)]
    return ()


def _is_holder(value: Any) -> bool:
    """A dataclass that things are put into; a frozen one is a record of what was given."""
    return (
        dataclasses.is_dataclass(value)
        and not isinstance(value, type)
        and not value.__dataclass_params__.frozen  # type: ignore[attr-defined]
    )


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


def loose(owner: Any) -> dict[str, nn.Parameter]:
    """The parameters that stand among the attributes themselves, in no module of theirs."""
    held = {id(parameter) for module in models(owner).values() for parameter in module.parameters()}
    return {name: one for name, one in find(owner, nn.Parameter).items() if id(one) not in held}


def trained(owner: Any) -> list[torch.Tensor]:
    """All parameters that can change: of models, of optimizers, loose ones. Each once."""
    every = [
        *(p for module in models(owner).values() for p in module.parameters()),
        *(p for one in optimizers(owner).values() for group in one.param_groups for p in group["params"]),
        *loose(owner).values(),
    ]
    return list({id(parameter): parameter for parameter in every}.values())


def homeless(owner: Any) -> dict[str, int]:
    """Optimizer -> how many of its parameters belong to nothing that was found, so that no checkpoint holds them."""
    homes = {id(p) for module in models(owner).values() for p in module.parameters()}
    homes |= {id(p) for p in loose(owner).values()}
    counts = {
        name: sum(id(p) not in homes for group in one.param_groups for p in group["params"])
        for name, one in optimizers(owner).items()
    }
    return {name: count for name, count in counts.items() if count}


@runtime_checkable
class HasState(Protocol):
    """Whatever has state_dict and load_state_dict."""

    def state_dict(self) -> Any:
        """What a checkpoint holds."""

    def load_state_dict(self, state: Any, /) -> Any:
        """Go on from there."""


class ParameterState:
    """A loose parameter as a part of a checkpoint."""

    def __init__(self, parameter: nn.Parameter) -> None:
        self.parameter = parameter

    def state_dict(self) -> dict[str, Any]:
        """Its values."""
        return {"value": self.parameter.detach()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take values of the same shape."""
        value: torch.Tensor = state["value"]
        if value.shape != self.parameter.shape:
            raise ValueError(f"its shape was {tuple(value.shape)} and is {tuple(self.parameter.shape)}")
        with torch.no_grad():
            self.parameter.copy_(value)


def stateful(owner: Any) -> dict[str, Any]:
    """All of them that a checkpoint has to hold: models, optimizers, schedulers, generators, all else with a state."""
    inner = {id(module) for module in find(owner, nn.Module).values()} - {
        id(module) for module in models(owner).values()
    }
    every = find(owner, (HasState, torch.Generator))
    found = {name: value for name, value in every.items() if id(value) not in inner and not _is_empty(value)}
    return {**found, **{name: ParameterState(one) for name, one in loose(owner).items()}}


def _is_empty(value: Any) -> bool:
    """A module that holds nothing: most losses."""
    return isinstance(value, nn.Module) and not value.state_dict()
