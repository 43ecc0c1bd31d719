"""Packages that the user adds by name: their functions, the methods of their classes, their modules as calls."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from types import FunctionType, ModuleType
from typing import Any

from luxmeter.calls.targets import Target
from luxmeter.errors import UsageError, suggestion


class Packages:
    """`also=["timm.layers"]`: a package, a module, or one callable in it. Imported here; unknown names raise."""

    def __init__(self, also: Sequence[str]) -> None:
        self._names: list[str] = []
        self._single: list[tuple[ModuleType, str]] = []
        for name in also:
            place = _import(name)
            if isinstance(place, ModuleType):
                self._names.append(place.__name__)
            else:
                self._single.append(place)

    def hold(self, cls: type) -> bool:
        """Whether a class is defined in one of the packages."""
        return any(_within(cls.__module__ or "", name) for name in self._names) or any(
            vars(module).get(name) is cls for module, name in self._single
        )

    def targets(self) -> Iterator[Target]:
        """Each function and each method of a plain class once, under the name of the module that defines it."""
        if not self._names and not self._single:
            return
        import torch

        seen: set[int] = set()
        for module_name, module in sys.modules.copy().items():
            if not issubclass(type(module), ModuleType) or not any(
                _within(module_name, name) for name in self._names
            ):
                continue
            for attribute, value in list(vars(module).items()):
                if getattr(value, "__module__", None) == module_name:
                    yield from _members(module, attribute, value, seen=seen, module_class=torch.nn.Module)
        for module, attribute in self._single:
            yield from _members(
                module, attribute, vars(module)[attribute], seen=seen, module_class=torch.nn.Module
            )


def _members(
    owner: ModuleType, attribute: str, value: Any, *, seen: set[int], module_class: type
) -> Iterator[Target]:
    if id(value) in seen or attribute.startswith("_"):
        return
    seen.add(id(value))
    if type(value) is FunctionType:
        yield Target(f"{owner.__name__}.{attribute}", owner, attribute)
    elif issubclass(type(value), type) and not issubclass(value, (module_class, BaseException)):
        for name, member in list(vars(value).items()):
            if type(member) is FunctionType and not name.startswith("_"):
                yield Target(f"{owner.__name__}.{attribute}.{name}", value, name)


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def _import(name: str) -> Any:
    """The module of this name, or (module, attribute) of a callable."""
    parts = name.split(".") if name else [""]
    for depth in range(len(parts), 0, -1):
        path = ".".join(parts[:depth])
        try:
            module = importlib.import_module(path)
        except ModuleNotFoundError as error:
            if error.name is None or not _within(path, error.name):
                raise  # it exists, and something that it needs does not
            continue
        except ValueError:
            break
        rest = parts[depth:]
        if not rest:
            return module
        if len(rest) == 1 and callable(vars(module).get(rest[0])):
            return module, rest[0]
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise UsageError(
            "unknown-target",
            f"There is nothing called {'.'.join(rest)!r} in {path!r} that could be traced.",
            suggestion(rest[0], known) or "Give the name of a package, a module or a function.",
        )
    raise UsageError(
        "unknown-target",
        f"There is no package called {name!r} to trace.",
        suggestion(parts[0], sys.modules) or "Install it, or correct the name given to also=.",
    )
