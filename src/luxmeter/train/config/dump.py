"""Values -> a Python file that gives them again when it is run."""

from __future__ import annotations

import dataclasses
import enum
import keyword
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from types import BuiltinFunctionType, FunctionType
from typing import Any

from luxmeter.loaded import loaded

_WIDTH = 100
_NAMED = (type, FunctionType, BuiltinFunctionType)
Finder = Callable[[Any], str | None]  # of a class or function: the module to import it from


class NotWritable(Exception):
    """A value that no Python expression stands for; `key` says which."""

    def __init__(self, key: tuple[str, ...], value: Any, why: str) -> None:
        super().__init__(why)
        self.key, self.value, self.why = key, value, why


def source_of(values: Mapping[str, Any], *, heading: str, find: Finder, imports: tuple[str, ...] = ()) -> str:
    """The file: comment, imports, then `name = value` for each."""
    writer = _Writer(set(values), find)
    body = [
        f"{name} = {writer.expression(value, (name,), column=len(name) + 3)}"
        for name, value in values.items()
    ]
    head = "".join(f"# {line}\n" for line in heading.splitlines())
    lines = list(dict.fromkeys([*imports, *sorted(writer.imports.values())]))
    return "\n".join([*([head] if head else []), *lines, *([""] if lines else []), *body, ""])


def plain(value: Any, find: Finder, key: tuple[str, ...] = ()) -> Any:
    """The value in dicts, lists and tuples of its own, numbers as Python's; NotWritable for what cannot be written."""
    if len(key) > 60:
        raise NotWritable(key[:3], value, "it holds itself, or nests too deeply")
    if isinstance(value, Mapping):
        return {name: plain(inner, find, (*key, str(name))) for name, inner in value.items()}
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(plain(inner, find, (*key, str(n))) for n, inner in enumerate(value))
    item = getattr(value, "item", None)
    if type(value).__module__ == "numpy" and callable(item) and not getattr(value, "shape", ()):
        value = item()
    _Writer(set(), find).expression(value, key)
    return value


class _Writer:
    """Writes expressions, and remembers what they need to be imported."""

    def __init__(self, taken: set[str], find: Finder) -> None:
        self._taken = taken
        self._find = find
        self._called: dict[int, str] = {}
        self.imports: dict[str, str] = {}  # name here -> the line

    def expression(self, value: Any, key: tuple[str, ...], *, column: int = 0, indent: int = 0) -> str:
        """The value as Python: behind `column` on one line if it fits, else on several, indented deeper than `indent`."""
        flat = self._flat(value, key)
        if column + len(flat) < _WIDTH or not isinstance(value, dict | list | tuple) or not value:
            return flat
        inner, rows = indent + 4, []
        if isinstance(value, dict):
            named = self._all_names(value)
            opening, closing = ("dict(", ")") if named else ("{", "}")
            heads = [
                (f"{n}=" if named else f"{self._flat(n, key)}: ", str(n), held) for n, held in value.items()
            ]
        else:
            opening, closing = ("[", "]") if isinstance(value, list) else ("(", ")")
            heads = [("", str(n), held) for n, held in enumerate(value)]
        for head, name, held in heads:
            text = self.expression(held, (*key, name), column=inner + len(head), indent=inner)
            rows.append(f"{' ' * inner}{head}{text},")
        return "\n".join([opening, *rows, f"{' ' * indent}{closing}"])

    def _all_names(self, value: Mapping[Any, Any]) -> bool:
        """Whether `dict(name=...)` can be written."""
        return (
            bool(value)
            and all(isinstance(n, str) and n.isidentifier() and not keyword.iskeyword(n) for n in (*value,))
            and "dict" not in self._taken
        )

    def _flat(self, value: Any, key: tuple[str, ...]) -> str:
        if value is None or value is Ellipsis or type(value) in (bool, int, bytes, complex, range):
            return repr(value)
        if type(value) is float:
            return repr(value) if math.isfinite(value) else f'float("{value}")'
        if type(value) is str:
            return _quoted(value)
        if isinstance(value, dict):
            if self._all_names(value):
                return f"dict({', '.join(f'{n}={self._flat(v, (*key, n))}' for n, v in value.items())})"
            rows = (f"{self._flat(n, key)}: {self._flat(v, (*key, str(n)))}" for n, v in value.items())
            return f"{{{', '.join(rows)}}}"
        if type(value) in (list, tuple, set, frozenset):
            return self._sequence(value, key)
        if isinstance(value, _NAMED):
            return self._named(value, key)
        return self._object(value, key)

    def _sequence(self, value: Any, key: tuple[str, ...]) -> str:
        texts = [self._flat(inner, (*key, str(n))) for n, inner in enumerate(value)]
        if isinstance(value, list):
            return f"[{', '.join(texts)}]"
        if isinstance(value, tuple):
            return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
        inside = f"{{{', '.join(sorted(texts))}}}" if texts else "()"
        return (
            inside if type(value) is set and texts else f"{type(value).__name__}({inside if texts else ''})"
        )

    def _object(self, value: Any, key: tuple[str, ...]) -> str:
        if isinstance(value, enum.Enum):
            return f"{self._named(type(value), key)}.{value.name}"
        if isinstance(value, PurePath):
            return f"{self._named(Path, key)}({_quoted(str(value))})"
        torch: Any = loaded("torch")
        if torch is not None and isinstance(value, torch.dtype):
            self.imports["torch"] = "import torch"
            return str(value)
        if torch is not None and isinstance(value, torch.device):
            self.imports["torch"] = "import torch"
            return f'torch.device("{value}")'
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [f for f in dataclasses.fields(value) if f.init]
            given = ", ".join(
                f"{f.name}={self._flat(getattr(value, f.name), (*key, f.name))}" for f in fields
            )
            return f"{self._named(type(value), key)}({given})"
        raise NotWritable(key, value, f"it is a {type(value).__name__}")

    def _named(self, value: Any, key: tuple[str, ...]) -> str:
        """The name under which a class or function is imported."""
        if id(value) in self._called:
            return self._called[id(value)]
        if getattr(value, "__module__", None) == "builtins":
            return str(value.__name__)
        module = self._find(value)
        if module is None:
            kind = "class" if isinstance(value, type) else "function"
            raise NotWritable(key, value, f"no module gives the {kind} {value.__qualname__} by its name")
        name = str(value.__name__)
        while name in self._taken or name in self.imports or keyword.iskeyword(name):
            name = f"_{name}"
        renamed = "" if name == value.__name__ else f" as {name}"
        self.imports[name] = f"from {module} import {value.__name__}{renamed}"
        self._called[id(value)] = name
        return name


def importable_module(value: Any) -> str | None:
    """The shortest package that has a class or function under its name; None if none has."""
    name, module = value.__name__, getattr(value, "__module__", None)
    if not isinstance(module, str) or value.__qualname__ != name:
        return None
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        path = ".".join(parts[:depth])
        private = any(part.startswith("_") for part in parts[:depth])
        holder = sys.modules.get(path)
        if (
            holder is not None
            and getattr(holder, name, None) is value
            and (not private or depth == len(parts))
        ):
            return None if path == "__main__" else path
    return None


def _quoted(text: str) -> str:
    shown = repr(text)
    return f'"{shown[1:-1]}"' if shown[0] == "'" and '"' not in shown and "\\'" not in shown else shown
