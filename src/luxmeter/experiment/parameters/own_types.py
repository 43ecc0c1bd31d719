"""Our own values in files of parameters: a schedule or an optimizer's options as a mapping that names its type.

    lr: {$type: CosSchedule, start: 0.1, end: 0.0, left: 0, right: 100}

The names are looked up in a fixed table; a type that is not in it stays a mapping. A key that only looks like the mark is
written with one more `$`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from luxmeter.described import TYPE
from luxmeter.errors import UsageError
from luxmeter.experiment.parameters.schedules import SCHEDULES

_MARKS = re.compile(r"\$+type")


def fields_of_own(value: Any) -> dict[str, Any] | None:
    """Our own value as a mapping with its mark; None for everything else."""
    kind = type(value)
    if _own().get(kind.__name__) is not kind:
        return None
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    else:
        fields = dict(value.items())
    return {TYPE: kind.__name__, **{key: list(v) if key == "schedules" else v for key, v in fields.items()}}


def escaped(key: str) -> str:
    """A key that is not the mark, as it is written."""
    return f"${key}" if _MARKS.fullmatch(key) else key


def rebuilt(value: Any, name: str = "") -> Any:
    """What was read, with our own values in the place of the mappings that stand for them."""
    if isinstance(value, list | tuple):
        items = [rebuilt(item, name) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    if not isinstance(value, Mapping):
        return value
    kind = _own().get(value[TYPE]) if isinstance(value.get(TYPE), str) else None
    fields = {
        _unescaped(key): rebuilt(held, f"{name}.{key}".lstrip("."))
        for key, held in value.items()
        if kind is None or key != TYPE
    }
    if kind is None:
        return fields
    try:
        return kind(**fields)
    except (TypeError, UsageError) as error:
        raise ValueError(f"{name} is no {kind.__name__}: {error}") from None


def _unescaped(key: Any) -> Any:
    return key[1:] if isinstance(key, str) and key != TYPE and _MARKS.fullmatch(key) else key


def _own() -> dict[str, type]:
    from luxmeter.experiment.parameters.params_optim import OptimParams

    return {kind.__name__: kind for kind in (*vars(SCHEDULES).values(), OptimParams)}
