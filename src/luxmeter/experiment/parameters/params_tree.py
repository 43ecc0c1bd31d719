"""How values get into parameters: one level or dotted, from code or from a source, checked and merged.

The functions here work on the state of `BaseParams` objects: their values, bounds, and who set what.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeGuard

from luxmeter.errors import MissingNameError, UsageError, suggestion
from luxmeter.experiment.parameters.bounds import Bound
from luxmeter.experiment.parameters.declared import Declared
from luxmeter.experiment.parameters.near_names import near_miss
from luxmeter.literal import parse

if TYPE_CHECKING:
    from luxmeter.experiment.parameters.params import BaseParams


class Source(enum.IntEnum):
    """Who set a value; the higher one wins."""

    DEFAULT = 0
    FILE = 1
    ENV = 2
    ARGS = 3


@dataclass(frozen=True)
class Text:
    """A value as typed: the declared type, or else its looks, decide what it is."""

    text: str


@dataclass(frozen=True)
class DefaultValue:
    """A value that sets only what is not there yet."""

    value: Any


class Absent:
    """Stands for a name that one side does not have."""

    def __repr__(self) -> str:
        return "<absent>"


def is_node(value: Any) -> TypeGuard[BaseParams]:
    """Whether the value is nested parameters."""
    return getattr(type(value), "_is_parameters", False)


def is_nestable(value: Any) -> bool:
    """Whether a dict can become nested parameters: all its keys could be names."""
    return isinstance(value, Mapping) and not is_node(value) and all(_could_be_name(key) for key in value)


def split(name: Any) -> tuple[str, ...]:
    """The parts of a dotted name."""
    if not isinstance(name, str) or not all(name.split(".")):
        raise UsageError(
            "bad-parameter-name",
            f"{name!r} cannot name a parameter.",
            "Names are texts; dots divide the levels, as in 'optim.lr'.",
        )
    return tuple(name.split("."))


def walk(node: BaseParams, parts: tuple[str, ...]) -> BaseParams | None:
    """The node that holds the last part, or None when there is no way to it."""
    for part in parts[:-1]:
        inner = node._values.get(part)
        if not is_node(inner):
            return None
        node = inner
    return node


def holder(node: BaseParams, name: str) -> tuple[BaseParams, str]:
    """The node that has the (dotted) name, and its last part."""
    parts = split(name)
    found = walk(node, parts)
    if found is None or parts[-1] not in found._values:
        raise missing_name(node, name)
    return found, parts[-1]


def put(node: BaseParams, name: str, value: Any, source: Source, *, owner: str = "") -> None:
    """Set one name of one level: converted to its declared type, checked against its bound and the lock."""
    if isinstance(value, DefaultValue):
        if name in node._values:
            return
        value = value.value
    value = interpret(node, name, value, owner=owner)
    if is_nestable(value):
        value = node._make_nested(value)
    if name in node._bounds:
        node._bounds[name].check(owner + name, value)
    if node._locked and name not in node._values:
        near = suggestion(name, node._values)
        raise UsageError(
            "params-locked",
            f"{owner}{name} is not one of these parameters, and they are locked.",
            near or "Set it before lock(), or unlock() first.",
        )
    before = node._values.get(name)
    if is_node(value):
        if _holds(value, node):
            raise UsageError(
                "params-loop",
                f"{owner}{name} would hold the parameters that hold it.",
                "Set it to a copy() of them.",
            )
        if is_node(before) and before is not value:
            inherit_bounds(before, value, owner=f"{owner}{name}.")
        stamp(value, source, reached=node._reached, locked=node._locked)
    node._values[name] = value
    node._sources[name] = source


def put_dotted(
    node: BaseParams, parts: tuple[str, ...], value: Any, source: Source, *, owner: str = ""
) -> None:
    """Set a dotted name; levels that are missing are made, but only if the value can be set."""
    head, rest = parts[0], parts[1:]
    if not rest:
        put(node, head, value, source, owner=owner)
        return
    inner = node._values.get(head)
    if inner is None and head not in node._values:
        fresh = node._make_nested({})
        put_dotted(fresh, rest, value, source, owner=f"{owner}{head}.")
        put(node, head, fresh, source, owner=owner)
    elif is_node(inner):
        put_dotted(inner, rest, value, source, owner=f"{owner}{head}.")
    else:
        raise _not_nested(owner + head, inner)


@dataclass(frozen=True)
class Reading:
    """One source being read. Names it brings itself are no reason to call another of its names mistyped."""

    source: Source
    where: str
    brought: set[tuple[int, str]] = field(default_factory=set)
    made: set[int] = field(default_factory=set)

    def brought_it(self, node: BaseParams, name: str) -> bool:
        return id(node) in self.made or (id(node), name) in self.brought


def take(node: BaseParams, values: Mapping[Any, Any], reading: Reading, *, owner: str = "") -> None:
    """Set what a source says, unless a higher source said otherwise; unknown and mistyped names are refused."""
    for name, value in values.items():
        _take_one(node, split(name), value, reading, owner)


def _take_one(node: BaseParams, parts: tuple[str, ...], value: Any, reading: Reading, owner: str) -> None:
    head, rest = parts[0], parts[1:]
    if head not in node._values and head not in node._fields():
        admit(node, head, reading, owner=owner)
        reading.brought.add((id(node), head))
    inner = node._values.get(head)
    if rest and inner is None:
        if highest_source(node, head) > reading.source:
            return
        put_dotted(node, (head,), {}, reading.source, owner=owner)
        inner = node._values[head]
        reading.made.add(id(inner))
    if rest:
        if not is_node(inner):
            raise _not_nested(owner + head, inner)
        _take_one(inner, rest, value, reading, f"{owner}{head}.")
        return
    if is_node(inner) and isinstance(value, Text):
        value = parse(value.text)
    if is_node(inner) and isinstance(value, Mapping):
        take(inner, value, reading, owner=f"{owner}{head}.")
    elif highest_source(node, head) <= reading.source:
        put(node, head, value, reading.source, owner=owner)


def admit(node: BaseParams, name: str, reading: Reading, *, owner: str = "") -> None:
    """Refuse a new name that looks like a slip of a known one, and any where the names are declared."""
    known = [*node._fields(), *(n for n in node._values if n not in node._fields())]
    near = near_miss(name, (n for n in known if not reading.brought_it(node, n)))
    if near:
        raise UsageError(
            "mistyped-parameter",
            f"{owner}{name} (from {reading.where}) is not a parameter, but {owner}{near} is.",
            f"Did you mean {owner + near!r}? If it is a new one, set it in the program first.",
        )
    if not node._takes_new_names:
        raise UsageError(
            "unknown-parameter",
            f"{owner}{name} (from {reading.where}) is not a parameter of {type(node).__name__}.",
            suggestion(name, known) or f"It has {', '.join(known)}.",
        )


def interpret(node: BaseParams, name: str, value: Any, *, owner: str = "") -> Any:
    """The value as its declared type; typed text without one by its looks."""
    declared: Declared | None = node._fields().get(name)
    if declared is not None:
        if isinstance(value, Text):
            return declared.read_text(value.text, owner=owner)
        return declared.validate(value, owner=owner)
    return parse(value.text) if isinstance(value, Text) else value


def bind(node: BaseParams, name: str, bound: Bound, default: Any) -> Any:
    """Bind a (dotted) name, and set it unless a file, the environment or the command line did: that must fit."""
    parts = split(name)
    bound.check(name, default)
    found = walk(node, parts)
    if found is not None and found._sources.get(parts[-1], Source.DEFAULT) > Source.DEFAULT:
        bound.check(name, found._values[parts[-1]])
    else:
        put_dotted(node, parts, default, node._reached)
    found, leaf = holder(node, name)
    found._bounds[leaf] = bound
    return found._values[leaf]


def set_locked(node: BaseParams, locked: bool) -> None:
    """Lock or unlock this level and all below."""
    node.__dict__["_locked"] = locked
    for value in node._values.values():
        if is_node(value):
            set_locked(value, locked)


def inherit_bounds(before: BaseParams, after: BaseParams, *, owner: str = "") -> None:
    """What bound the old nested values binds the new ones."""
    for name, bound in before._bounds.items():
        if name in after._values and name not in after._bounds:
            bound.check(owner + name, after._values[name])
    for name, bound in before._bounds.items():
        after._bounds.setdefault(name, bound)
    for name, inner in before._values.items():
        replacement = after._values.get(name)
        if is_node(inner) and is_node(replacement):
            inherit_bounds(inner, replacement, owner=f"{owner}{name}.")


def stamp(node: BaseParams, source: Source, *, reached: Source, locked: bool) -> None:
    """Say of everything below who set it."""
    node.__dict__.update(_reached=max(reached, node._reached), _locked=locked or node._locked)
    for name, value in node._values.items():
        node._sources[name] = max(source, node._sources.get(name, source))
        if is_node(value):
            stamp(value, source, reached=reached, locked=locked)


def reach(node: BaseParams, source: Source) -> None:
    """From now on, what code sets stands above `source`."""
    node.__dict__["_reached"] = max(node._reached, source)
    for value in node._values.values():
        if is_node(value):
            reach(value, source)


def highest_source(node: BaseParams, name: str) -> Source:
    """Who set the name, or the highest of those who set something below it."""
    value = node._values.get(name)
    own = node._sources.get(name, Source.DEFAULT)
    if not is_node(value):
        return own
    return max((highest_source(value, inner) for inner in value._values), default=own)


def shallow(node: BaseParams) -> BaseParams:
    """A twin with levels of its own that shares the values: to try something out on."""
    twin: BaseParams = type(node).__new__(type(node))
    for name, part in node.__dict__.items():
        twin.__dict__[name] = dict(part) if isinstance(part, dict) else part
    for name, value in node._values.items():
        if is_node(value):
            twin._values[name] = shallow(value)
    return twin


def check_required(node: BaseParams, *, owner: str = "") -> None:
    """Every declared name has a value, or an error lists those that have none."""
    missing = list(_missing_required(node, owner))
    if missing:
        raise UsageError(
            "parameter-required",
            f"No value for {', '.join(missing)}.",
            f"Give it on the command line ({' '.join(f'--{name}=...' for name in missing)}), in a file or in code.",
        )


def _missing_required(node: BaseParams, owner: str) -> list[str]:
    missing = [owner + name for name in node._fields() if name not in node._values]
    for name, value in node._values.items():
        if is_node(value):
            missing += _missing_required(value, f"{owner}{name}.")
    return missing


def flat(node: BaseParams) -> dict[str, Any]:
    """Every value under its dotted name."""
    found: dict[str, Any] = {}
    for name, value in node._values.items():
        if is_node(value) and value._values:
            found.update({f"{name}.{inner}": leaf for inner, leaf in flat(value).items()})
        else:
            found[name] = value.to_dict() if is_node(value) else value
    return found


def reserved(name: str) -> UsageError:
    """The error for a name that is a method."""
    return UsageError(
        "reserved-name",
        f"A parameter cannot be called {name!r}: that is something parameters can do.",
        f"Choose another name, or use it as an item only: params[{name!r}].",
    )


def missing_name(node: BaseParams, name: str) -> MissingNameError:
    """The error for a name that nobody set."""
    known = list(node.flat()) if "." in name else list(node._values)
    near = suggestion(name, known)
    listed = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
    return MissingNameError(
        "missing-parameter",
        f"{type(node).__name__} has no parameter {name!r}.",
        near or (f"It has {listed}." if known else "It is empty."),
    )


def _not_nested(name: str, value: Any) -> UsageError:
    return UsageError(
        "not-nested",
        f"{name} is {value!r}, so nothing can be set below it.",
        f"Set {name} to a dict first, or choose another name.",
    )


def _holds(node: BaseParams, wanted: BaseParams) -> bool:
    return node is wanted or any(is_node(value) and _holds(value, wanted) for value in node._values.values())


def _could_be_name(key: Any) -> bool:
    return isinstance(key, str) and bool(key) and "." not in key
