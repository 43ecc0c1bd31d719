"""Optimizers and schedules of learning rates from configs: all of torch's, with groups of parameters by pattern."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

from luxmeter.errors import UsageError
from luxmeter.experiment import BaseParams
from luxmeter.train.registries import OPTIMIZERS, SCHEDULERS, build


def make_optimizer(cfg: Any, module: nn.Module, *, key: str = "optimizer") -> Optimizer:
    """The optimizer of a module: from a config, from a function of its parameters, or the optimizer itself.

    `groups` in a config are options of their own for parameters by pattern: see `param_groups`.
    """
    said = cfg.to_dict() if isinstance(cfg, BaseParams) else cfg
    groups: Sequence[Mapping[str, Any]] = ()
    if isinstance(said, Mapping):
        groups = said.get("groups") or ()
        said = {name: value for name, value in said.items() if name != "groups"}
    elif callable(said) and not isinstance(said, type | Optimizer):
        said = said([one for one in module.parameters() if one.requires_grad])
    made = build(said, OPTIMIZERS, key=key, params=param_groups(module, groups, key=f"{key}.groups"))
    if not isinstance(made, Optimizer):
        raise UsageError(
            "optimizer-kind",
            f"{key} is a {type(made).__name__}, no optimizer of torch.",
            "Give one of torch.optim's.",
        )
    return made


def param_groups(
    module: nn.Module, groups: Sequence[Mapping[str, Any]] = (), *, key: str = "groups"
) -> list[Any]:
    """The trained parameters for an optimizer, those that a `match` finds with options of their own; the first match counts.

    `match` is a regular expression that is searched in a parameter's name and in its module's class:
    `[{"match": "bias|Norm", "weight_decay": 0.0}]`.
    """
    named = {
        f"{path}.{name}".lstrip("."): (parameter, type(owner).__name__)
        for path, owner in module.named_modules()
        for name, parameter in owner.named_parameters(recurse=False)
        if parameter.requires_grad
    }
    left = {name: named[name] for name, one in module.named_parameters() if one.requires_grad}
    found: list[Any] = []
    for number, group in enumerate(groups):
        if not isinstance(group.get("match"), str):
            raise UsageError(
                "optimizer-group",
                f"{key}.{number} has no match.",
                'Give one: {"match": "bias", "weight_decay": 0}.',
            )
        matching = {
            name: one
            for name, (one, kind) in left.items()
            if re.search(group["match"], name) or re.search(group["match"], kind)
        }
        if not matching:
            raise UsageError(
                "optimizer-group",
                f"{key}.{number}: no parameter is left that {group['match']!r} matches.",
                f"There are {', '.join(list(left)[:10])}{', ...' if len(left) > 10 else ''}.",
            )
        left = {name: one for name, one in left.items() if name not in matching}
        options = {name: value for name, value in group.items() if name != "match"}
        found.append({"params": list(matching.values()), **options})
    rest = [one for one, _ in left.values()]
    if not found:
        return rest
    return [*([{"params": rest}] if rest else []), *found]


def make_scheduler(cfg: Any, optimizer: Optimizer, *, key: str = "scheduler") -> Any:
    """A scheduler of torch over the optimizer, or a schedule of Params.SCHE, which scales the first rates."""
    return build(cfg, SCHEDULERS, key=key, optimizer=optimizer)
