"""What may be searched: the parameters that have choices, or a range with two ends."""

from __future__ import annotations

import json
import math
import typing
from pathlib import Path
from typing import Any, Literal

from luxmeter.experiment.params.bounds import Choice, Range
from luxmeter.experiment.params.declared import Declared
from luxmeter.experiment.params.level import Level, level_of

_PLAIN = (bool, int, float, str, type(None))


def space_of(level: Level, owner: str = "") -> dict[str, dict[str, Any]]:
    """Dotted name -> {"choices": [...]} or {"low": ..., "high": ..., "whole": ...}."""
    found: dict[str, dict[str, Any]] = {}
    for name in {**level.fields, **level.values}:
        value = level.values.get(name)
        if inner := level_of(value):
            found |= space_of(inner, f"{owner}{name}.")
        elif axis := _bounded(level, name, value) or _declared(level.fields.get(name)):
            found[owner + name] = axis
    return found


def tell_space(level: Level, file: Path) -> None:
    """Write it down for whoever started this program to be told."""
    file.write_text(json.dumps(space_of(level)), encoding="utf-8")


def _bounded(level: Level, name: str, value: Any) -> dict[str, Any] | None:
    bound = level.bounds.get(name)
    if isinstance(bound, Choice) and all(isinstance(one, _PLAIN) for one in bound.values):
        return {"choices": list(bound.values)}
    if isinstance(bound, Range):
        whole = isinstance(value, int) and not isinstance(value, bool)
        return _range(bound.low, bound.high, whole)
    return None


def _declared(declared: Declared | None) -> dict[str, Any] | None:
    if declared is None:
        return None
    if typing.get_origin(declared.annotation) is Literal:
        return {"choices": list(typing.get_args(declared.annotation))}
    limits = {
        part: getattr(one, part)
        for one in declared.info.metadata
        for part in ("ge", "le")
        if hasattr(one, part)
    }
    if len(limits) == 2 and declared.annotation in (int, float):
        return _range(limits["ge"], limits["le"], declared.annotation is int)
    return None


def _range(low: Any, high: Any, whole: bool) -> dict[str, Any] | None:
    if not all(isinstance(end, int | float) and math.isfinite(end) for end in (low, high)):
        return None
    return {"low": low, "high": high, "whole": whole}
