"""What a torch object is called: the shortest name under which it can be imported."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from luxmeter.errors import UsageError


def getAPIName(api: Any) -> str:
    """The shortest public name of a torch function, class, method or constant: `torch.optim.Adam`."""
    api = inspect.unwrap(api) if type(api).__module__.startswith("luxmeter.") else api
    found = _names().get(id(api))
    if (
        found is None
        and getattr(api, "__self__", None) is not None
        and not isinstance(api.__self__, ModuleType)
    ):
        owner = api.__self__ if isinstance(api.__self__, type) else type(api.__self__)
        above = next((_names()[id(c)] for c in owner.__mro__ if id(c) in _names()), None)
        found = f"{above}.{api.__name__}" if above else None
    if found is None:
        found = _as_it_says(api)
    if found is None and not callable(getattr(api, "__get__", None)):
        found = _names().get(id(type(api)))  # an object of a class of torch's
    if found is None:
        raise UsageError(
            "no-api-name",
            f"{api!r} cannot be reached through a public name of torch.",
            "Give a function, class or method of torch.",
        )
    return found


def _as_it_says(api: Any) -> str | None:
    """For a method that torch replaced since: an optimizer's class wraps its step() at its first instance."""
    owner: Any = sys.modules.get(getattr(api, "__module__", None) or "")
    *above, last = (getattr(api, "__qualname__", None) or "?").split(".")
    for part in above:
        owner = getattr(owner, part, None)
    if not isinstance(owner, type) or id(owner) not in _names():
        return None
    same = inspect.unwrap(getattr(owner, last, None) or owner) is inspect.unwrap(api)
    return f"{_names()[id(owner)]}.{last}" if same else None


def getAttributes(api: Any) -> list[str]:
    """Names of everything public that can be called on an object: a module, a class, or an instance."""
    names = []
    for name in dir(api):
        if not name.startswith("_"):
            try:
                value = inspect.getattr_static(api, name)
            except AttributeError:
                continue
            value = value.__func__ if isinstance(value, staticmethod | classmethod) else value
            if callable(value) or inspect.ismethoddescriptor(value):
                names.append(name)
    return names


@functools.cache
def _names() -> dict[int, str]:
    """id of each public object of torch -> its shortest name. They live as long as torch does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # looking at a deprecated name is not using it
        return _look_around()


def _look_around() -> dict[int, str]:
    import torch

    found: dict[int, str] = {}
    constants = (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)
    modules = [
        (name, m) for name, m in sys.modules.copy().items() if _public(name) and isinstance(m, ModuleType)
    ]
    for name, module in sorted(modules, key=lambda pair: pair[0].count(".")):
        _offer(found, module, name)
        for attribute, value in list(vars(module).items()):
            if attribute.startswith("_") or isinstance(value, ModuleType):
                continue
            if not callable(value) and not isinstance(value, constants):
                continue
            home = getattr(value, "__module__", None) or ""
            if home.partition(".")[0] in ("torch", "") or inspect.isbuiltin(value):
                _offer(found, value, f"{name}.{attribute}")
    for number, name in list(found.items()):
        owner = _at(torch, name)
        if isinstance(owner, type) and id(owner) == number:
            for attribute, value in _members(owner, found):
                _offer(found, value, f"{name}.{attribute}")
    return found


def _public(name: str) -> bool:
    parts = name.split(".")
    return parts[0] == "torch" and not any(part.startswith("_") for part in parts)


def _at(torch: Any, name: str) -> Any:
    value = torch
    for part in name.split(".")[1:]:
        value = getattr(value, part, None)
    return value


def _members(owner: type, named: Mapping[int, str]) -> Iterator[tuple[str, Any]]:
    """What a class brings itself, or from a parent that has no public name (torch.Tensor's is in torch._C)."""
    for cls in reversed(owner.__mro__):
        if cls is owner or (cls is not object and id(cls) not in named):
            for attribute, value in list(vars(cls).items()):
                if callable(value) or inspect.ismethoddescriptor(value):
                    yield attribute, value


def _offer(found: dict[int, str], value: Any, name: str) -> None:
    known = found.get(id(value))
    if known is None or _rank(value, name) < _rank(value, known):
        found[id(value)] = name


def _rank(value: Any, name: str) -> tuple[int, bool, int, str]:
    """Fewer dots first, then the name the object gives itself, then the shorter."""
    return name.count("."), name.rpartition(".")[2] != getattr(value, "__name__", ""), len(name), name
