"""Values for machines: one JSON document that any program reads."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import IO, Any

from luxmeter.described import TYPE, type_of


def print_json(value: Any, *, stream: IO[str] | None = None) -> None:
    """Print a value for machines: one JSON document."""
    out = stream if stream is not None else sys.stdout
    found = for_machines(value)
    text = json.dumps(found, indent=1, ensure_ascii=False)
    if any("\ud800" <= letter <= "\udfff" for letter in text):  # half a character has no bytes, but an escape
        text = json.dumps(found, indent=1)
    out.write(text + "\n")


def for_machines(value: Any) -> Any:
    """Plain JSON that any program reads: tuples are lists, what is not a number is null, other things are text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        typed = {TYPE: name} if (name := type_of(value)) else {}
        return {**typed, **{str(key): for_machines(item) for key, item in value.items()}}
    if isinstance(value, list | tuple | set | frozenset):
        return [for_machines(item) for item in value]
    item = getattr(value, "item", None)  # NumPy scalars
    return for_machines(item()) if callable(item) else str(value)
