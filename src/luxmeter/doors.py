"""A room's door: its `__init__.py` names what others may use; each name is loaded when it is first asked for.

if TYPE_CHECKING:                                                   # for readers, editors and mypy
    from luxmeter.calls.session import Trace as Trace
__getattr__, __dir__, __all__ = door(__name__, {"Trace": "session"})  # the same for Python; a test compares them
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def door(
    room: str, names: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a room. `names`: public name -> the module of the room that has it, or is it."""

    def get(name: str) -> Any:
        module = names.get(name)
        if module is None:
            here = sys.modules[room]
            raise AttributeError(f"module {room!r} has no attribute {name!r}", name=name, obj=here)
        found = importlib.import_module(f"{room}.{module}")
        value = found if module == name else getattr(found, name)
        setattr(sys.modules[room], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[room]), *names}), list(names)
