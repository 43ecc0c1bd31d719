"""What of a Trainer makes its state: found by type among its attributes, listed by nobody."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from luxmeter.experiment import has_state

_MOST = 1000  # in a list or dict: a longer one is data


def find(owner: Any, kind: type) -> dict[str, Any]:
    """The attributes of a kind, by name; each object once.

    Those in lists, tuples, dicts, dataclasses and SimpleNamespaces as `name.0`, `name.key`.
    """
    return _find(owner, lambda value: isinstance(value, kind))


def _find(owner: Any, is_meant: Callable[[Any], bool]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in vars(owner).items():
        if name != "_training":
            _look(name, value, is_meant, found, ())
    return found


def _look(
    name: str, value: Any, is_meant: Callable[[Any], bool], found: dict[str, Any], above: tuple[int, ...]
) -> None:
    if is_meant(value) and not isinstance(value, type):
        if not any(value is known for known in found.values()):
            found[name] = value
    elif id(value) not in above:  # a list may hold itself
        for key, inner in _inside(value):
            _look(f"{name}.{key}", inner, is_meant, found, (*above, id(value)))


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
    inner = _inner(every)
    return {name: module for name, module in every.items() if id(module) not in inner}


def _inner(every: Mapping[str, nn.Module]) -> set[int]:
    """Those that others of them hold."""
    return {id(below) for module in every.values() for below in module.modules() if below is not module}


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
    every = _find(owner, lambda value: has_state(value) or isinstance(value, torch.Generator | nn.Parameter))
    modules = {name: value for name, value in every.items() if isinstance(value, nn.Module)}
    inner = _inner(modules)
    held = {id(one) for module in modules.values() for one in module.parameters()}
    return {
        name: ParameterState(value) if isinstance(value, nn.Parameter) else value
        for name, value in every.items()
        if id(value) not in inner and id(value) not in held and not _is_empty(value)
    }


def _is_empty(value: Any) -> bool:
    """A module that holds nothing: most losses."""
    if not isinstance(value, nn.Module) or next(value.parameters(), None) is not None:
        return False
    return not value.state_dict()
