"""A module that somebody else imported: asked for by who must not import it, or need not if nobody did."""

from __future__ import annotations

import sys
from typing import Any

_whole: dict[str, Any] = {}


def loaded(name: str) -> Any:
    """The module, if it is imported completely; else None.

    While a thread imports a package, `sys.modules` holds it already, with some of its names and not the others.
    """
    module = sys.modules.get(name)
    if module is None or module is _whole.get(name):
        return module
    if getattr(getattr(module, "__spec__", None), "_initializing", False):
        return None
    _whole[name] = module
    return module
