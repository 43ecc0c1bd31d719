"""A package loaded when something of it is first asked for: who lists runs waits neither for numpy nor for Arrow.

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = late("pyarrow")
"""

from __future__ import annotations

import importlib
from typing import Any


class _Late:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self._name), name)
        setattr(self, name, value)
        return value

    def __repr__(self) -> str:
        return f"<{self._name}, loaded when it is needed>"


def late(name: str) -> Any:
    """Stands for a module of this name."""
    return _Late(name)
