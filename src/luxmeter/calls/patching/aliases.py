"""Where else a callable is bound: names taken with `from torch import sin`, defaults of functions, attributes of instances."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, GetSetDescriptorType, ModuleType
from typing import Any

from luxmeter.calls.core import load

# Functions with defaults that could be callables, by module: collected once and again when the module changes.
# Holds modules and functions, which live as long as the process; re-imported modules have another identity.
_with_defaults: dict[str, tuple[int, int, list[FunctionType]]] = {}


def namespaces() -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, namespace) of every imported module. Entries of sys.modules that are not modules are passed over."""
    for name, module in sys.modules.copy().items():
        if issubclass(type(module), ModuleType):
            yield name, object.__getattribute__(module, "__dict__")


def of_users(*kinds: type, besides: tuple[str, ...]) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """(namespace, name, value) of module-level values of exactly these types, outside the standard library and these packages."""
    for module, namespace in namespaces():
        top = module.partition(".")[0]
        if (top in sys.stdlib_module_names and module != "__main__") or top in besides:
            continue
        for name, value in list(namespace.items()):
            if any(type(value) is kind for kind in kinds):
                yield namespace, name, value


def attributes_of(value: Any) -> dict[str, Any] | None:
    """The dictionary of an instance, without running code of its class: a property of that name is passed over."""
    for base in type.__dict__["__mro__"].__get__(type(value)):
        place = type.__dict__["__dict__"].__get__(base).get("__dict__")
        if type(place) is GetSetDescriptorType and base is not type:
            found = place.__get__(value)
            return found if type(found) is dict else None
    return None


def bound(objects: dict[int, Any]) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """(namespace, name, object) for every module-level name that is bound to one of `objects` (keyed by id)."""
    core, _ = load()
    for namespace in core.holding([namespace for _, namespace in namespaces()], objects):
        for name, value in list(namespace.items()):
            if id(value) in objects:
                yield namespace, name, value


def in_defaults(objects: Mapping[int, Any]) -> Iterator[FunctionType]:
    """Functions and methods that have one of `objects` as a default, such as `activation=F.relu`."""
    wanted = objects.keys()
    for name, namespace in namespaces():
        top = name.partition(".")[0]
        if (
            top in sys.stdlib_module_names
            or (top in ("torch", "mindspore") and not name.startswith((f"{top}.nn.", "mindspore.mint.nn.")))
            or top == "luxmeter"
        ):
            continue
        mark = (id(namespace), len(namespace))
        known = _with_defaults.get(name)
        if known is None or known[:2] != mark or name == "__main__":
            known = _with_defaults[name] = (*mark, list(_functions_with_defaults(name, namespace)))
        for function in known[2]:
            defaults = function.__defaults__
            if defaults and not wanted.isdisjoint(map(id, defaults)):
                yield function


def _functions_with_defaults(name: str, namespace: dict[str, Any]) -> Iterator[FunctionType]:
    for value in list(namespace.values()):
        if type(value) is FunctionType:
            if _is(value.__module__, name) and _may_hold_callable(value.__defaults__):
                yield value
        elif issubclass(type(value), type):
            inside = type.__dict__["__dict__"].__get__(value)  # a metaclass would have its say in vars(value)
            if _is(inside.get("__module__"), name):
                for member in list(inside.values()):
                    if type(member) is FunctionType and _may_hold_callable(member.__defaults__):
                        yield member


def _is(module: Any, name: str) -> bool:
    return type(module) is str and module == name


def _may_hold_callable(defaults: Iterable[Any] | None) -> bool:
    return defaults is not None and any(
        type(value) is FunctionType or type(value) is BuiltinFunctionType for value in defaults
    )
