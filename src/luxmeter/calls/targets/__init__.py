"""Which callables of a framework are timed, what the user calls them, and why some are not."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from luxmeter.errors import LuxmeterError

T = TypeVar("T")


class Form(enum.Enum):
    """How a target is put in place."""

    FUNCTION = "function"  # a function or method: the wrapper replaces it
    PROPERTY = "property"  # reading it is the call
    CLASSMETHOD = "classmethod"  # the class it is called on decides the name
    MODULE = "module"  # nn.Module.__call__: the instance decides name, kind and path
    INSTANCE = "instance"  # a method whose name depends on the type of the instance
    FACTORY = "factory"  # returns a callable: running that is the span
    COMPILE = "compile"  # torch.compile: running what it returns is one call
    SUSPENDING = "suspending"  # captures a program: every wrapper is suspended while it runs
    PICKLE = "pickle"  # tries again with every wrapper suspended when a function cannot be found by its name
    HIDDEN = "hidden"  # counts as open, leaves no event
    OPERATOR = "operator"  # torch.ops.*: the instance decides the name
    WORKER = "worker"  # the main loop of a DataLoader worker process
    FIRST_STEP = "first step"  # Optimizer's own patching of a class at its first instance
    GRADIENT = (
        "gradient"  # makes the function that computes a gradient, each time anew: running that is the span
    )
    MODE = "mode"  # may change what instances are: they are asked again
    ENTER = "enter"  # from its call to that of EXIT every wrapper is suspended
    EXIT = "exit"


# No call of the user's: they keep the recorder right.
SILENT = (Form.HIDDEN, Form.FIRST_STEP, Form.WORKER, Form.PICKLE, Form.MODE, Form.ENTER, Form.EXIT)


@dataclass(frozen=True, slots=True)
class Target:
    """One callable: the attribute of a module or class that is replaced, and its name for the user."""

    name: str
    owner: Any
    attribute: str
    form: Form = Form.FUNCTION
    span: bool = False  # transparent: hides nothing below it
    label: str = ""  # shown instead of the name where there is a shorter way to write it
    boundary: bool = False  # its end is the end of a training step


@dataclass(frozen=True, slots=True)
class Unseen:
    """A public callable that is not timed, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Listing:
    """Everything public that a framework offers: what is timed and what is not."""

    targets: tuple[Target, ...]
    unseen: tuple[Unseen, ...]
    left_out: tuple[Unseen, ...] = ()  # what could not be listed in this version


def try_part(name: str, found: Callable[[], Iterable[T]], left_out: list[Unseen]) -> list[T]:
    """What a part of a framework offers. Where asking fails, in a version that nobody knew: nothing, and the reason."""
    try:
        return list(found())
    except (LuxmeterError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the other parts work
        left_out.append(left_out_for(name, error))
        return []


def left_out_for(name: str, error: Exception) -> Unseen:
    """What is not timed because of an error."""
    said = " ".join(str(error).split())[:200]
    return Unseen(name, f"does not fit this version ({type(error).__name__}: {said})")


def told(left_out: Sequence[Unseen]) -> list[str]:
    """One line for each reason."""
    by_reason: dict[str, list[str]] = {}
    for entry in left_out:
        by_reason.setdefault(entry.reason, []).append(entry.name)
    return [f"not timed: {_few(names)}: {reason}" for reason, names in by_reason.items()]


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f", ... ({len(names):,} in all)" if len(names) > 4 else "")


@dataclass(frozen=True, slots=True)
class Coverage:
    """What a trace can see: names in the order of the framework's namespaces."""

    seen: tuple[str, ...]
    unseen: tuple[Unseen, ...]

    def reason(self, name: str) -> str:
        """Why `name` is not seen; empty when it is seen, `not a public callable` when nobody knows it."""
        if name in self.seen:
            return ""
        return next((entry.reason for entry in self.unseen if entry.name == name), "not a public callable")

    def __str__(self) -> str:
        by_reason: dict[str, list[str]] = {}
        for entry in self.unseen:
            by_reason.setdefault(entry.reason, []).append(entry.name)
        lines = [f"{len(self.seen):,} callables are timed, {len(self.unseen):,} public ones are not:"]
        for reason, names in sorted(by_reason.items(), key=lambda item: -len(item[1])):
            shown = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
            lines.append(f"  {len(names):5,}  {reason}: {shown}")
        return "\n".join(lines)


def subclasses(cls: type) -> Iterator[type]:
    """`cls` and everything derived from it so far, each once."""
    seen: set[type] = set()
    waiting = [cls]
    while waiting:
        found = waiting.pop()
        if found in seen:
            continue
        seen.add(found)
        yield found
        waiting.extend(type.__subclasses__(found))
