"""What stands to the right, reached by name: how a result finds what shows it or builds on it, though a room imports only
from the left. The front door (`luxmeter/__init__.py`), which every import passes, says what each name leads to; nothing is
loaded before it is asked for.
"""

from __future__ import annotations

import importlib
from typing import Any

NAMES: dict[str, str] = {}  # name -> "module:name"


def by_name(name: str) -> Any:
    """The function or class of this name."""
    module, _, found = NAMES[name].partition(":")
    return getattr(importlib.import_module(module), found)
