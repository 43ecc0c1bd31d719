"""Which public names are not typed, and how. `untyped(value)` looks at a function, a class or an instance."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any

# What may give back anything, since only the caller knows what it is -> why. Everything else says its type.
ANYTHING = {
    **dict.fromkeys(("Settings.__getitem__", "Settings.of_user", "Settings.of_lab"), "a setting's type is that of its value"),
    **dict.fromkeys(
        (*(f"BaseParams.{name}" for name in ("__getattr__", "__getitem__", "get", "default", "choice", "arange")),
         "BaseParams.lambda_bound"),
        "a parameter is of the user's type",
    ),
    **dict.fromkeys(
        ("Meter.__getattr__", "Meter.__getitem__", "Meter.get", "AvgMeter.__getitem__"), "a metric is of the user's type"
    ),
    "DataLoader.get_batch_data": "a batch is what the user's dataset makes of it",
    **dict.fromkeys(("TaskFlow.forward", "TaskFlow.infer_forward", "TaskFlow.postprocess"), "predictions are of the user's type"),
    **dict.fromkeys(
        [*(f"Trainer.{which}_batch" for which in ("train", "eval", "test", "predict")), "Trainer.predict"],
        "what a batch gives is of the user's type",
    ),
    **dict.fromkeys(("Values.__missing__", "Values.__getattr__"), "a run's values are of the types that were logged"),
}  # fmt: skip


def untyped(value: Any, package: str = "luxmeter", anything: Collection[str] = ANYTHING) -> list[str]:
    """A line for each parameter or result without a type, or with `Any` for a result whose type is known.

    Looks behind decorators, into the classes of `package` that are inherited from and those that are handed out.
    """
    faults: dict[str, None] = {}
    seen: set[Any] = set()
    waiting = [value if inspect.isfunction(value) or isinstance(value, type) else type(value)]
    while waiting:
        found = waiting.pop()
        if found in seen:
            continue
        seen.add(found)
        for name, function in _functions(found, package):
            faults.update(dict.fromkeys(_faults(name, function, anything)))
            waiting += _handed_out(function, package)
    return list(faults)


def _functions(value: Any, package: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """(name, real function) of a function, or of all that can be called or read of a class."""
    if not isinstance(value, type):
        yield value.__qualname__, inspect.unwrap(value)
        return
    for owner in value.__mro__:
        if not _is_of(owner, package):
            continue
        for name, member in vars(owner).items():
            if name.startswith("_") and not (name.startswith("__") and name.endswith("__")):
                continue
            for function in _behind(member):
                if inspect.isfunction(function) and not _is_generated(function) and _is_of(function, package):
                    yield f"{owner.__name__}.{name}", function


def _behind(member: Any) -> list[Any]:
    if isinstance(member, property):
        return [inspect.unwrap(f) for f in (member.fget, member.fset) if f is not None]
    if isinstance(member, functools.cached_property):
        return [inspect.unwrap(member.func)]
    if isinstance(member, staticmethod | classmethod):
        return [inspect.unwrap(member.__func__)]
    return [inspect.unwrap(member)] if inspect.isfunction(member) else []


def _is_generated(function: Any) -> bool:
    """By dataclasses, which give no types to what they write."""
    return str(function.__code__.co_filename) == "<string>"


def _is_of(value: Any, package: str) -> bool:
    return f"{value.__module__}.".startswith(f"{package}.")


def _faults(name: str, function: Callable[..., Any], anything: Collection[str]) -> Iterator[str]:
    signature = inspect.signature(function, follow_wrapped=False)
    first = next(iter(signature.parameters), "")
    for parameter in signature.parameters.values():
        if parameter.annotation is parameter.empty and not (
            parameter.name == first and first in ("self", "cls")
        ):
            yield f"{name}: {parameter.name} has no type"
    result = signature.return_annotation
    if result is signature.empty:
        yield f"{name}: its result has no type"
    elif result in ("Any", Any) and name not in anything:
        yield f"{name}: its result is anything"


def _handed_out(function: Callable[..., Any], package: str) -> list[type]:
    result = inspect.signature(function, follow_wrapped=False).return_annotation
    text = result if isinstance(result, str) else getattr(result, "__name__", "")
    known = vars(sys.modules[function.__module__])
    found = [known.get(word) for word in re.findall(r"\w+", text)]
    return [each for each in found if isinstance(each, type) and _is_of(each, package)]
