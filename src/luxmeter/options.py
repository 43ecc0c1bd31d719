"""Options, declared once: a field of a frozen dataclass says name, type, default, help and check.

Keyword arguments, command line, variables and magics are made of that declaration, under the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from luxmeter.errors import UsageError, suggestion

T = TypeVar("T")
_CALLED = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", Path: "a path", type(None): "none",
          Sequence: "a list", Mapping: "a mapping", PathLike: "a path"}  # fmt: skip


@dataclass(frozen=True)
class Check:
    """What a value has to be: whether it is, and what to give instead."""

    holds: Callable[[Any], bool]
    wanted: str
    least: float | None = None  # for a command line that says so in its help


def at_least(least: float, wanted: str = "") -> Check:
    """A number that is not smaller."""
    return Check(
        lambda value: _is_number(value) and value >= least,
        wanted or f"Give {'1' if least == 1 else f'a number of {least:g}'} or more.",
        least,
    )


def _is_number(value: Any, kind: type = Real) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


@dataclass(frozen=True)
class Option:
    """One declared option. On a command line it is `--name`, or `flags` (the singular of what may come `many` times)."""

    name: str
    types: tuple[Any, ...]  # that a value may have
    default: Any
    help: str
    check: Check | None
    read: Callable[[Any], Any] | None  # what was given, text too -> the value
    many: bool
    flags: tuple[str, ...]
    metavar: str | None

    @property
    def kind(self) -> type:
        """Of a value on a command line, or of each of many."""
        if self.read is not None:
            return str
        return next((kind for kind in self.types if kind in (bool, int, float, Path, str)), str)

    def wrong(self, value: Any) -> str:
        """What to give instead of this value; empty if it is good."""
        if self.check is not None and not self.check.holds(value):
            return self.check.wanted
        if any(_fits(value, kind) for kind in self.types) or (self.read is not None and _is_text(value)):
            return ""
        return f"Give {' or '.join(dict.fromkeys(name for kind in self.types for name in _called(kind)))}."


def _called(kind: Any) -> list[str]:
    """What a value of this type is to people; of a few values, these."""
    if get_origin(kind) is Literal:
        return [str(value) for value in get_args(kind)]
    return [_CALLED.get(get_origin(kind) or kind, getattr(kind, "__name__", str(kind)))]


def _fits(value: Any, kind: Any) -> bool:
    if kind is Any:
        return True
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if kind in (int, float):
        return _is_number(value, Integral if kind is int else Real)
    if get_origin(kind) is Sequence:
        return (
            isinstance(value, Sequence | Set)
            and not isinstance(value, str)
            and all(any(_fits(each, k) for k in _types(get_args(kind)[0])) for each in value)
        )
    return isinstance(value, get_origin(kind) or kind)


def _types(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _is_text(value: Any) -> bool:
    """What a command line gives: a text, or several."""
    return isinstance(value, str) or (
        isinstance(value, list | tuple) and all(isinstance(v, str) for v in value)
    )


def option(
    default: T,
    help: str,
    *,
    check: Check | None = None,
    read: Callable[[Any], Any] | None = None,
    many: bool = False,
    flags: str = "",
    metavar: str | None = None,
) -> T:
    """Declare an option as a field of a dataclass."""
    said = {
        "help": help,
        "check": check,
        "read": read,
        "many": many,
        "flags": tuple(flags.split()),
        "metavar": metavar,
    }
    return field(default=default, metadata=said)


def declared(options: type) -> dict[str, Option]:
    """The options that a dataclass declares, by name."""
    hints, found = _hints(options), {}
    for each in fields(options):
        said: dict[str, Any] = dict(each.metadata)
        said["flags"] = said["flags"] or (f"--{each.name.replace('_', '-')}",)
        found[each.name] = Option(each.name, _types(hints[each.name]), each.default, **said)
    return found


def _hints(options: type) -> dict[str, Any]:
    absent: dict[str, Any] = {}
    while True:
        try:
            return get_type_hints(options, localns=absent)
        except NameError as error:  # imported for mypy alone: such a value is taken as it comes
            absent[str(error.name)] = Any


def given_to(options: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Of what was given to several dataclasses together, that of one of them."""
    known = declared(options)
    return {name: value for name, value in given.items() if name in known}


def checked_options(options: type[T], given: Mapping[str, Any], *, who: str, unknown: str, bad: str) -> T:
    """The options with these values, read and checked; `unknown` and `bad` are the slugs of what is refused."""
    known = declared(options)
    values = {}
    for name, value in given.items():
        if name not in known:
            raise UsageError(
                unknown,
                f"{who} has no option {name!r}.",
                suggestion(name, known) or f"It knows {', '.join(known)}.",
            )
        values[name] = _read(known[name], value, who, bad)
    return options(**values)


def read_fields(made: Any, *, who: str, bad: str) -> None:
    """For `__post_init__`: each field that is not its default is read and checked, however the options are made."""
    for name, one in declared(type(made)).items():
        value = getattr(made, name)
        if value != one.default:
            object.__setattr__(made, name, _read(one, value, who, bad))


def _read(known: Option, value: Any, who: str, bad: str) -> Any:
    if wrong := known.wrong(value):
        raise UsageError(bad, f"{who} cannot use {known.name}={value!r}.", wrong)
    return value if known.read is None else known.read(value)
