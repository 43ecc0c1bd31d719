"""The parameters that each class of a Trainer declares for itself, put together without a clash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from luxmeter.errors import UsageError
from luxmeter.experiment import BaseParams, Params


def declared_groups(trainer: type) -> dict[str, tuple[type, type[BaseParams]]]:
    """Group -> (the class of the Trainer, its Params), the outermost bases first."""
    found: dict[str, tuple[type, type[BaseParams]]] = {}
    for kind in reversed(trainer.__mro__):
        declared = vars(kind).get("Params")
        if declared is None:
            continue
        group = vars(kind).get("group") or kind.__name__.lower()
        if not (isinstance(declared, type) and issubclass(declared, BaseParams)):
            raise UsageError(
                "trainer-params",
                f"{kind.__name__}.Params is {declared!r}.",
                "Make it a class: `class Params(lux.BaseParams): alpha: float = 0.5`.",
            )
        if group in found:
            raise UsageError(
                "trainer-params-clash",
                f"{found[group][0].__name__} and {kind.__name__} both claim the parameters {group!r}.",
                'Give one of them another group: `group = "..."` in its class.',
            )
        found[group] = kind, declared
    return found


def with_own_params(trainer: type, given: Any) -> BaseParams:
    """The parameters of a training: those given, with the groups that the classes of the Trainer declare."""
    params: BaseParams = given if isinstance(given, BaseParams) else Params(given or {})
    for group, (kind, declared) in declared_groups(trainer).items():
        value = params.get(group)
        if isinstance(value, declared):
            continue
        if value is not None and not isinstance(value, Mapping | BaseParams):
            raise UsageError(
                "trainer-params-clash",
                f"The parameter {group!r} is {value!r}, but {kind.__name__} keeps its own parameters under that name.",
                f'Rename it, or give {kind.__name__} another group: `group = "..."` in its class.',
            )
        params[group] = declared._from_value(
            {} if value is None else value
        )  # refuses names it does not declare
    return params
