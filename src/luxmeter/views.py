"""Views by name: how a result reaches what shows it, though views stand above and a room imports only from the left.

The front door (`luxmeter/__init__.py`), which every import passes, says who draws what; nothing is loaded before it is asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

VIEWS: dict[str, str] = {}  # name -> "module:function"


def view(name: str) -> Callable[..., Any]:
    """The function that shows this kind of thing."""
    module, _, function = VIEWS[name].partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found
