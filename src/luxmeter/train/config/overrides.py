"""`optimizer.lr=0.2` on a command line: what is meant by the text is decided by the value that it replaces.

A whole number stays one, a text stays the text it is, a list of numbers takes numbers. `none` is None wherever no text is
meant. A key that is not there is refused; `+key=value` adds one.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from luxmeter.errors import UsageError, suggestion
from luxmeter.experiment import Declared
from luxmeter.literal import items, parse
from luxmeter.loaded import loaded

_FORM = re.compile(r"(?P<new>\+?)(?P<key>[A-Za-z_]\w*(?:\.[^.=\s]+)*)=(?P<text>.*)", re.DOTALL)
_FLAGS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}
_NONE = ("none", "None", "null")
Where = Callable[[Sequence[str]], str]  # file and line of a key
_NO_TEXT = object()


@dataclass(eq=False)
class Override:
    """One key and what it is to be: a text to be read, or a value as it is."""

    key: str
    text: str | None
    value: Any = _NO_TEXT
    is_new: bool = False

    def __post_init__(self) -> None:
        self.parts = tuple(self.key.split("."))
        self._made_in: list[Any] = []  # the dicts and lists that it made a new key in

    def __str__(self) -> str:
        said = repr(self.value) if self.text is None else self.text
        return f"{'+' if self.is_new else ''}{self.key}={said}"

    def applied(self, value: Any, where: Where, *, annotation: Any = None) -> Any:
        """What the value of its first name becomes: the same dict or list, changed within, or another value."""
        return self._changed(value, self.parts[1:], where, annotation)

    def whole(self) -> Any:
        """The value of a new name."""
        return copied(self.value) if self.text is None else parse(self.text)

    def _changed(self, value: Any, rest: Sequence[str], where: Where, annotation: Any = None) -> Any:
        if not rest:
            return self._read(value, where, annotation)
        at = self.parts[: len(self.parts) - len(rest)]
        if not isinstance(value, dict | list | tuple):
            raise UsageError(
                "override-not-nested",
                f"{where(at)}: {'.'.join(at)} is {_short(value)}, so {self} can set nothing inside.",
                f"Write {'.'.join(at)}=... for the whole of it.",
            )
        container = list(value) if isinstance(value, tuple) else value
        known = _keys(container)
        key = known.get(rest[0])
        if key is None:
            is_next = isinstance(container, dict) or rest[0] == str(len(container))
            if len(rest) > 1 or not self.is_new or not is_next:
                raise self._unknown(at, rest, known, where)
            self._add(container, rest[0])
        elif self.is_new and len(rest) == 1 and not any(one is container for one in self._made_in):
            raise self.is_there(where)
        else:
            container[key] = self._changed(container[key], rest[1:], where)
        return tuple(container) if isinstance(value, tuple) else container

    def is_there(self, where: Where) -> UsageError:
        """The error of a new key that is not new."""
        return UsageError(
            "override-not-new",
            f"{where(self.parts)}: {self.key} is there already, so {self} adds nothing.",
            f"Write {str(self)[1:]} to change it.",
        )

    def _add(self, container: Any, key: str) -> None:
        if isinstance(container, list):
            container.append(self.whole())
        else:
            container[key] = self.whole()
        self._made_in.append(container)

    def _unknown(
        self, at: Sequence[str], rest: Sequence[str], known: Mapping[str, Any], where: Where
    ) -> UsageError:
        owner = ".".join(at)
        near = suggestion(rest[0], known)
        near = near.replace("'", f"'{owner}.", 1) if near else f"It has {', '.join(known) or 'nothing'}."
        new = f" A new one is written +{self}." if len(rest) == 1 else ""
        return UsageError(
            "override-unknown", f"{where(at)}: {owner} has no {rest[0]!r} ({self}).", f"{near}{new}"
        )

    def _read(self, old: Any, where: Where, annotation: Any) -> Any:
        if self.text is None:
            return copied(self.value)
        try:
            if annotation is not None:
                return _read_declared(self.text, annotation)
            return read_like(self.text, old)
        except ValueError as error:
            raise UsageError(
                "override-type",
                f"{where(self.parts)}: {self.key} is {_short(old)} and cannot be {self.text!r}.",
                str(error),
            ) from None


def parse_overrides(given: Iterable[str] | Mapping[str, Any]) -> list[Override]:
    """Texts as on a command line, or a mapping of keys to values, which are taken as they are."""
    if isinstance(given, Mapping):
        return [
            Override(key.removeprefix("+"), None, value, is_new=key.startswith("+"))
            for key, value in given.items()
        ]
    found = []
    for word in given:
        matched = _FORM.fullmatch(word)
        if matched is None:
            raise UsageError(
                "override-form",
                f"{word!r} changes no key of the config.",
                "Write key=value, such as optimizer.lr=0.2; +key=value adds a key.",
            )
        found.append(Override(matched["key"], matched["text"], is_new=bool(matched["new"])))
    return found


def copied(value: Any) -> Any:
    """Dicts and lists of their own; what they hold is the same."""
    if type(value) is dict:
        return {key: copied(inner) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(copied(inner) for inner in value)
    return value


def read_like(text: str, old: Any) -> Any:
    """The value that a text means where `old` stood. ValueError says what to give instead."""
    if isinstance(old, enum.Enum):
        return _member(text, type(old))
    if isinstance(old, str) or callable(old):  # of a class or function: the name of another, in a registry
        return text
    if isinstance(old, PurePath):
        return type(old)(text)
    if text in _NONE:
        return None
    if isinstance(old, list | tuple | set | frozenset):
        return type(old)(_elements(text, list(old)))
    return _plain(text, old)


def _plain(text: str, old: Any) -> Any:
    value = parse(text)
    if old is None:
        return value
    if isinstance(old, bool):
        if text.lower() not in _FLAGS:
            raise ValueError("Give true or false.")
        return _FLAGS[text.lower()]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(old, int):
        if not is_number or value != value or value in (float("inf"), float("-inf")) or int(value) != value:
            raise ValueError("Give a whole number.")
        return int(value)
    if isinstance(old, float):
        if not is_number:
            raise ValueError("Give a number.")
        return float(value)
    if isinstance(old, Mapping):
        if not isinstance(value, Mapping):
            raise ValueError("Name one of its keys (key.inner=value), or give all of it as JSON.")
        return dict(value)
    return _of_torch(text, old)


def _elements(text: str, old: Sequence[Any]) -> list[Any]:
    kinds = {type(one) for one in old}
    if kinds == {int, float}:
        kinds, old = {float}, [0.0]
    parts = items(text)
    if parts is None:
        raise ValueError("Give a list, such as 1,2 or [1, 2].")
    if len(kinds) == 1 and kinds <= {int, float, str, bool}:
        return [_element(part, old[0]) for part in parts]
    values = parse(text)
    if not isinstance(values, list | tuple):
        values = [parse(part) for part in parts]
    return list(values)


def _element(part: str, old: Any) -> Any:
    quoted = len(part) > 1 and part[0] == part[-1] and part[0] in "'\""
    if isinstance(old, str):
        return str(parse(part)) if quoted else part
    try:
        return _plain(part, old)
    except ValueError as error:
        raise ValueError(f"{part!r} is in it. {str(error).replace('.', ' for each.')}") from None


def _member(text: str, kind: type[enum.Enum]) -> enum.Enum:
    for member in kind:
        if text in (member.name, str(member.value)):
            return member
    raise ValueError(f"Give one of {', '.join(member.name for member in kind)}.")


def _of_torch(text: str, old: Any) -> Any:
    torch: Any = loaded("torch")
    if torch is not None and isinstance(old, torch.dtype):
        found = getattr(torch, text.removeprefix("torch."), None)
        if isinstance(found, torch.dtype):
            return found
        raise ValueError("Give a dtype of torch, such as bfloat16.")
    if torch is not None and isinstance(old, torch.device):
        try:
            return torch.device(text)
        except RuntimeError:
            raise ValueError("Give a device, such as cpu or cuda:1.") from None
    raise ValueError("Change it in the file: no text stands for such a value.")


def _read_declared(text: str, annotation: Any) -> Any:
    """By the type that the file declares for the name."""
    from pydantic.fields import FieldInfo

    try:
        return Declared("value", annotation, FieldInfo.from_annotation(annotation)).read_text(text)
    except UsageError as error:
        raise ValueError(error.next_step) from None


def _keys(container: Any) -> dict[str, Any]:
    """The keys of a dict or list by their texts."""
    return {str(key): key for key in (container if isinstance(container, dict) else range(len(container)))}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
