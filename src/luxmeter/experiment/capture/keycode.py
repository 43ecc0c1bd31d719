"""The code that a program names as the heart of its experiment."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from luxmeter.errors import UsageError


@dataclass(frozen=True)
class KeyCode:
    """A module, class, function or file with its source."""

    name: str
    kind: str
    file: Path
    line: int
    source: str


def keycode_of(code: Any) -> KeyCode:
    """The source of a module, class or function, or of the file at a path."""
    if isinstance(code, Path):
        return KeyCode(
            code.name, "file", code.absolute(), 1, code.read_text(encoding="utf-8", errors="replace")
        )
    kinds: dict[str, Callable[[Any], bool]] = {
        "module": inspect.ismodule,
        "class": inspect.isclass,
        "function": inspect.isroutine,
    }
    kind = next((name for name, fits in kinds.items() if fits(code)), None)
    if kind is None:
        raise UsageError(
            "keycode-what",
            f"keycode() was given a {type(code).__name__}.",
            'Give it a module, class, function or Path, such as sys.modules["__main__"].',
        )
    name = getattr(code, "__qualname__", None) or getattr(code, "__name__", kind)
    try:
        source = inspect.getsource(code)
        file = Path(inspect.getsourcefile(code) or inspect.getfile(code)).absolute()
        line = 1 if kind == "module" else inspect.getsourcelines(code)[1]
    except (OSError, TypeError) as error:
        raise UsageError(
            "keycode-no-source",
            f"The source of {kind} {name} cannot be found: {error}.",
            "Name code that lies in a file: not what was typed at a prompt, made by exec, or built in.",
        ) from error
    return KeyCode(str(name), kind, file, line, source)
