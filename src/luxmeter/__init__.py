"""Luxmeter measures what your torch gives: every API call timed, every operator replayable, every run kept.

Public names are loaded when they are first used: `import luxmeter as lux` imports no framework.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public name -> the room that holds it. One line a name; tests/house/ holds each to a docstring and an example.
_PLACES = {
    "globs": "luxmeter.settings",
}

__all__ = ["__version__", *_PLACES]

if TYPE_CHECKING:
    from luxmeter.settings import globs as globs


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'luxmeter' has no attribute {name!r}")
    value = getattr(importlib.import_module(place), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
