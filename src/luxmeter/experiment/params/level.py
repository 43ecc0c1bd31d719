"""One level of parameters: its values, who set each, what binds them, and how values get in.

Nested parameters are values that hold a level of their own (`level_of`), so everything here goes down the tree.
"""

from __future__ import annotations

import difflib
import enum
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from luxmeter.errors import MissingNameError, UsageError, suggestion
from luxmeter.experiment.params.bounds import Bound
from luxmeter.experiment.params.declared import Declaration, Declared, Declaring
from luxmeter.literal import parse


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


@dataclass(frozen=True)
class Reading:
    """One source being read. Names it brings itself are no reason to call another of its names mistyped."""

    source: Source
    where: str
    brought: set[tuple[int, str]] = field(default_factory=set)
    made: set[int] = field(default_factory=set)

    def brought_it(self, level: Level, name: str) -> bool:
        return id(level) in self.made or (id(level), name) in self.brought


class Level:
    """The state of one level, and all that can be done to it. `owner` in its methods is the way there: `optim.`."""

    def __init__(self, kind: type, nest: Callable[[Mapping[str, Any]], Any]) -> None:
        self.kind = kind  # the class of parameters
        self.nest = nest  # makes nested parameters of a dict
        self.values: dict[str, Any] = {}
        self.bounds: dict[str, Bound] = {}
        self.sources: dict[str, Source] = {}
        self.reached = Source.DEFAULT  # the highest source that was read: what code sets now stands above it
        self.locked = False

    @property
    def declaration(self) -> Declaration:
        """What the class declares."""
        return Declaration.of(self.kind)

    @property
    def fields(self) -> dict[str, Declared]:
        """The declared names."""
        return self.declaration.fields

    # Finding

    def find(self, parts: tuple[str, ...]) -> Level | None:
        """The level that would hold the last part, or None when there is no way to it."""
        found: Level | None = self
        for part in parts[:-1]:
            found = level_of(found.values.get(part)) if found else None
        return found

    def holder(self, name: str) -> tuple[Level, str]:
        """The level that has the (dotted) name, and its last part."""
        parts = split(name)
        found = self.find(parts)
        if found is None or parts[-1] not in found.values:
            raise self.missing(name)
        return found, parts[-1]

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        found = self.find(tuple(name.split(".")))
        return found is not None and name.rpartition(".")[2] in found.values

    def missing(self, name: str) -> MissingNameError:
        """The error for a name that nobody set."""
        known = list(self.flat()) if "." in name else list(self.values)
        near = suggestion(name, known)
        listed = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
        return MissingNameError(
            "missing-parameter",
            f"{self.kind.__name__} has no parameter {name!r}.",
            near or (f"It has {listed}." if known else "It is empty."),
        )

    def flat(self) -> dict[str, Any]:
        """Every value under its dotted name."""
        found: dict[str, Any] = {}
        for name, value in self.values.items():
            inner = level_of(value)
            if inner and inner.values:
                found.update({f"{name}.{below}": leaf for below, leaf in inner.flat().items()})
            else:
                found[name] = {} if inner else value
        return found

    def to_dict(self) -> dict[str, Any]:
        """Nested plain dicts, the values as they are."""
        return {n: inner.to_dict() if (inner := level_of(v)) else v for n, v in self.values.items()}

    # Setting

    def put(self, name: str, value: Any, source: Source, *, owner: str = "") -> None:
        """Set one name of this level: converted to its declared type, checked against its bound and the lock."""
        if isinstance(value, DefaultValue):
            if name in self.values:
                return
            value = value.value
        value = self._interpret(name, value, owner=owner)
        if _is_nestable(value):
            value = self.nest(value)
        if name in self.bounds:
            self.bounds[name].check(owner + name, value)
        if self.locked and name not in self.values:
            near = suggestion(name, self.values)
            raise UsageError(
                "params-locked",
                f"{owner}{name} is not one of these parameters, and they are locked.",
                near or "Set it before lock(), or unlock() first.",
            )
        inner, before = level_of(value), level_of(self.values.get(name))
        if inner:
            if inner.holds(self):
                raise UsageError(
                    "params-loop",
                    f"{owner}{name} would hold the parameters that hold it.",
                    "Set it to a copy() of them.",
                )
            if before and before is not inner:
                inner.inherit_bounds(before, owner=f"{owner}{name}.")
            inner.stamp(source, reached=self.reached, locked=self.locked)
        self.values[name] = value
        self.sources[name] = source

    def put_dotted(self, parts: tuple[str, ...], value: Any, source: Source, *, owner: str = "") -> None:
        """Set a dotted name; levels that are missing are made, but only if the value can be set."""
        head, rest = parts[0], parts[1:]
        if not rest:
            self.put(head, value, source, owner=owner)
            return
        held = self.values.get(head)
        inner = level_of(held)
        if inner:
            inner.put_dotted(rest, value, source, owner=f"{owner}{head}.")
        elif head in self.values:
            raise _not_nested(owner + head, held)
        else:
            fresh = self.nest({})
            made = level_of(fresh)
            assert made is not None
            made.put_dotted(rest, value, source, owner=f"{owner}{head}.")
            self.put(head, fresh, source, owner=owner)

    def remove(self, name: str) -> None:
        """Take a (dotted) name away."""
        level, leaf = self.holder(name)
        if level.locked:
            raise UsageError(
                "params-locked",
                f"{name} cannot be removed: the parameters are locked.",
                "Call unlock() first.",
            )
        del level.values[leaf]
        level.sources.pop(leaf, None)

    def bind(self, name: str, bound: Bound, default: Any) -> Any:
        """Bind a (dotted) name, and set it unless a file, the environment or the command line did: that must fit."""
        parts = split(name)
        bound.check(name, default)
        found = self.find(parts)
        if found is not None and found.sources.get(parts[-1], Source.DEFAULT) > Source.DEFAULT:
            bound.check(name, found.values[parts[-1]])
        else:
            self.put_dotted(parts, default, self.reached)
        found, leaf = self.holder(name)
        found.bounds[leaf] = bound
        return found.values[leaf]

    def lock(self, locked: bool) -> None:
        """Lock or unlock this level and all below."""
        self.locked = locked
        for inner in self._below():
            inner.lock(locked)

    # Sources

    def read(self, values: Mapping[Any, Any], source: Source, where: str) -> None:
        """Set what a source says, unless a higher one said otherwise: all of it, or on any error nothing."""
        self.try_reading(values, source, where)
        self._take(values, Reading(source, where))
        self.reach(source)

    def try_reading(self, values: Mapping[Any, Any], source: Source, where: str) -> None:
        """Raise what `read` would raise, and change nothing."""
        self.twin()._take(values, Reading(source, where))

    def _take(self, values: Mapping[Any, Any], reading: Reading, *, owner: str = "") -> None:
        for name, value in values.items():
            self._take_one(split(name), value, reading, owner)

    def _take_one(self, parts: tuple[str, ...], value: Any, reading: Reading, owner: str) -> None:
        head, rest = parts[0], parts[1:]
        if head not in self.values and head not in self.fields:
            self._admit(head, reading, owner=owner)
            reading.brought.add((id(self), head))
        if rest and self.values.get(head) is None:
            if self.highest_source(head) > reading.source:
                return
            self.put_dotted((head,), {}, reading.source, owner=owner)
            reading.made.add(id(level_of(self.values[head])))
        held = self.values.get(head)
        inner = level_of(held)
        if rest:
            if not inner:
                raise _not_nested(owner + head, held)
            inner._take_one(rest, value, reading, f"{owner}{head}.")
            return
        if inner and isinstance(value, Text):
            value = parse(value.text)
        if inner and isinstance(value, Mapping):
            inner._take(value, reading, owner=f"{owner}{head}.")
        elif self.highest_source(head) <= reading.source:
            self.put(head, value, reading.source, owner=owner)

    def _admit(self, name: str, reading: Reading, *, owner: str = "") -> None:
        """Refuse a new name that looks like a slip of a known one, and any where the names are declared."""
        known = [*self.fields, *(n for n in self.values if n not in self.fields)]
        near = near_miss(name, (n for n in known if not reading.brought_it(self, n)))
        if near:
            raise UsageError(
                "mistyped-parameter",
                f"{owner}{name} (from {reading.where}) is not a parameter, but {owner}{near} is.",
                f"Did you mean {owner + near!r}? If it is a new one, set it in the program first.",
            )
        if not self.declaration.takes_new_names:
            raise UsageError(
                "unknown-parameter",
                f"{owner}{name} (from {reading.where}) is not a parameter of {name_of_class(self.kind)}.",
                suggestion(name, known) or f"It has {', '.join(known)}.",
            )

    def _interpret(self, name: str, value: Any, *, owner: str = "") -> Any:
        """The value as its declared type; typed text without one by its looks."""
        declared = self.fields.get(name)
        if declared is not None:
            if isinstance(value, Text):
                return declared.read_text(value.text, owner=owner)
            return declared.validate(value, owner=owner)
        return parse(value.text) if isinstance(value, Text) else value

    def highest_source(self, name: str) -> Source:
        """Who set the name, or the highest of those who set something below it."""
        own = self.sources.get(name, Source.DEFAULT)
        inner = level_of(self.values.get(name))
        return max((inner.highest_source(below) for below in inner.values), default=own) if inner else own

    def stamp(self, source: Source, *, reached: Source, locked: bool) -> None:
        """Say of everything here and below who set it."""
        self.reached, self.locked = max(reached, self.reached), locked or self.locked
        for name in self.values:
            self.sources[name] = max(source, self.sources.get(name, source))
        for inner in self._below():
            inner.stamp(source, reached=reached, locked=locked)

    def reach(self, source: Source) -> None:
        """From now on, what code sets stands above `source`."""
        self.reached = max(self.reached, source)
        for inner in self._below():
            inner.reach(source)

    def inherit_bounds(self, before: Level, *, owner: str = "") -> None:
        """What bound the values that were here binds those that come in their place."""
        for name, bound in before.bounds.items():
            if name in self.values and name not in self.bounds:
                bound.check(owner + name, self.values[name])
        for name, bound in before.bounds.items():
            self.bounds.setdefault(name, bound)
        for name, value in before.values.items():
            old, new = level_of(value), level_of(self.values.get(name))
            if old and new:
                new.inherit_bounds(old, owner=f"{owner}{name}.")

    def check_required(self) -> None:
        """Every declared name has a value, or an error lists those that have none."""
        missing = self._without_value()
        if missing:
            raise UsageError(
                "parameter-required",
                f"No value for {', '.join(missing)}.",
                f"Give it on the command line ({' '.join(f'--{name}=...' for name in missing)}), in a file or in code.",
            )

    def _without_value(self, owner: str = "") -> list[str]:
        missing = [owner + name for name in self.fields if name not in self.values]
        for name, value in self.values.items():
            if inner := level_of(value):
                missing += inner._without_value(f"{owner}{name}.")
        return missing

    # The tree

    def twin(self) -> Level:
        """Levels of their own that share the values: to try something out on."""
        twin = Level(self.kind, self.nest)
        twin.bounds, twin.sources = dict(self.bounds), dict(self.sources)
        twin.reached, twin.locked = self.reached, self.locked
        for name, value in self.values.items():
            inner = level_of(value)
            twin.values[name] = with_level(type(value), inner.twin()) if inner else value
        return twin

    def holds(self, wanted: Level) -> bool:
        """Whether `wanted` is this level or one below."""
        return self is wanted or any(inner.holds(wanted) for inner in self._below())

    def _below(self) -> list[Level]:
        return [inner for value in self.values.values() if (inner := level_of(value))]

    def __bool__(self) -> bool:
        return True  # an empty level is one


def level_of(value: Any) -> Level | None:
    """The level that nested parameters hold; None for every other value."""
    return value.__dict__["_level"] if issubclass(type(value), Declaring) else None


def with_level(kind: type[Declaring], level: Level) -> Any:
    """Parameters of this class that hold this level."""
    made = kind.__new__(kind)
    made.__dict__["_level"] = level
    return made


def split(name: Any) -> tuple[str, ...]:
    """The parts of a dotted name."""
    if not isinstance(name, str) or not all(name.split(".")):
        raise UsageError(
            "bad-parameter-name",
            f"{name!r} cannot name a parameter.",
            "Names are texts; dots divide the levels, as in 'optim.lr'.",
        )
    return tuple(name.split("."))


def reserved(name: str) -> UsageError:
    """The error for a name that is a method."""
    return UsageError(
        "reserved-name",
        f"A parameter cannot be called {name!r}: that is something parameters can do.",
        f"Choose another name, or use it as an item only: params[{name!r}].",
    )


def _not_nested(name: str, value: Any) -> UsageError:
    return UsageError(
        "not-nested",
        f"{name} is {value!r}, so nothing can be set below it.",
        f"Set {name} to a dict first, or choose another name.",
    )


def _is_nestable(value: Any) -> bool:
    """Whether a dict can become nested parameters: all its keys could be names."""
    return isinstance(value, Mapping) and not level_of(value) and all(_could_be_name(key) for key in value)


def _could_be_name(key: Any) -> bool:
    return isinstance(key, str) and bool(key) and "." not in key


# Slips

_TRAILING_NUMBER = re.compile(r"[_-]?[0-9]+$")


def name_of_class(kind: type) -> str:
    """`MyTrainer.Params`: of classes that are called alike it is the outer one that tells which."""
    return kind.__qualname__.rpartition("<locals>.")[2]


def near_miss(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` looks like a slip of, or None. `layer3` beside `layer2` is no slip."""
    best: tuple[float, str] | None = None
    for other in known:
        if other == name or _is_numbered_sibling(name, other):
            continue
        ratio = difflib.SequenceMatcher(None, name, other).ratio()
        plain, other_plain = _plain(name), _plain(other)
        length = max(len(plain), len(other_plain))
        slips = _distance(plain, other_plain)
        near = ratio >= 0.8 or (length >= 3 and slips <= 1) or (length >= 7 and slips <= 2)
        if near and (best is None or ratio > best[0]):
            best = (ratio, other)
    return best[1] if best else None


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _is_numbered_sibling(name: str, other: str) -> bool:
    return bool(_TRAILING_NUMBER.search(name)) and _TRAILING_NUMBER.sub("", name) == _TRAILING_NUMBER.sub(
        "", other
    )


def _distance(a: str, b: str) -> int:
    """Letters added, dropped, changed or swapped with their neighbour (optimal string alignment)."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, last, row = row, before, [i]
        for j, y in enumerate(b, 1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y)))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                row[j] = min(row[j], last[j - 2] + 1)
    return row[-1]
