"""Structure strings -> calls with their positions, and back to the same string.

structure := call*
call      := NAME '(' [LABEL '|'] [numbers] [branches] ')'
numbers   := INTEGER (',' INTEGER)* [',']         a comma stands before a branch that follows
branches  := structure (';' structure)*
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from luxmeter.errors import UsageError

_NAME = re.compile(r"[A-Za-z_]\w*")
_INTEGER = re.compile(r"[+-]?\d+")
_LABEL = re.compile(r"([^|(),;\s]+)\s*\|")
_EXCERPT = 72
"""Characters of a long string shown around the place that is wrong."""


@dataclass(frozen=True)
class Number:
    """An integer argument and where it stands."""

    value: int
    start: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Call:
    """One block of a structure string: its name, its integers, and the blocks it holds, one tuple a branch."""

    name: str
    numbers: tuple[Number, ...] = ()
    branches: tuple[tuple[Call, ...], ...] = ()
    label: str | None = None
    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)

    @property
    def values(self) -> tuple[int, ...]:
        """The integers alone."""
        return tuple(number.value for number in self.numbers)

    def __str__(self) -> str:
        label = "" if self.label is None else f"{self.label}|"
        numbers = ",".join(str(number.value) for number in self.numbers)
        inner = ";".join(write_structure(branch) for branch in self.branches)
        return f"{self.name}({label}{numbers}{',' if numbers and inner else ''}{inner})"


def parse_structure(text: str) -> tuple[Call, ...]:
    """The calls of a structure string, in order. Spaces and line ends between them do not matter."""
    reader = _Reader(text)
    calls = reader.structure()
    reader.space()
    if reader.at < len(text):
        raise UsageError(
            "structure-syntax",
            pointed(text, reader.at, f"A block name was expected, {text[reader.at]!r} was found"),
            "A structure is blocks one after another: Name(in,out,stride,...)Name(...).",
        )
    if not calls:
        raise UsageError(
            "structure-syntax",
            "The structure string is empty.",
            "Give at least one block, for example SuperConvK3BNRELU(3,8,1,1).",
        )
    return calls


def write_structure(calls: tuple[Call, ...]) -> str:
    """The structure string of these calls."""
    return "".join(map(str, calls))


def pointed(text: str, at: int, what: str) -> str:
    """`what`, the position, and the string with a caret under the place."""
    start = max(0, min(at - _EXCERPT // 2, len(text) - _EXCERPT))
    stop = min(len(text), start + _EXCERPT)
    before, after = "..." if start else "", "..." if stop < len(text) else ""
    shown = before + re.sub(r"\s", " ", text[start:stop]) + after
    return f"{what}, at character {at}:\n  {shown}\n  {' ' * (len(before) + at - start)}^\n"


class _Reader:
    """A cursor over the text; every method leaves it behind what it has read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def space(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def peek(self) -> str:
        self.space()
        return self.text[self.at] if self.at < len(self.text) else ""

    def structure(self) -> tuple[Call, ...]:
        calls = []
        while _NAME.match(self.peek()):
            calls.append(self.call())
        return tuple(calls)

    def call(self) -> Call:
        start = self.at
        name = self.match(_NAME).group()
        if self.peek() != "(":
            raise self.wrong(f"'(' was expected after {name}", f"Write {name}(...).")
        opening = self.at
        self.at += 1
        label = self.label()
        numbers = self.numbers(name)
        branches = self.branches(name, opening)
        self.at += 1  # the closing parenthesis, which branches() has seen
        return Call(name, numbers, branches, label, start, self.at)

    def label(self) -> str | None:
        self.space()
        found = _LABEL.match(self.text, self.at)
        if not found:
            return None
        self.at = found.end()
        return found.group(1)

    def numbers(self, name: str) -> tuple[Number, ...]:
        numbers: list[Number] = []
        while True:
            self.space()
            found = _INTEGER.match(self.text, self.at)
            if not found:
                if not numbers and self.peek() != ")" and not _NAME.match(self.peek()):
                    raise self.wrong(
                        f"An integer or a block was expected in {name}(...)", "Arguments are integers."
                    )
                return tuple(numbers)
            numbers.append(Number(int(found.group()), self.at))
            self.at = found.end()
            if self.peek() in (")", ""):
                return tuple(numbers)
            if self.peek() != ",":
                raise self.wrong(
                    f"',' or ')' was expected after argument {len(numbers)} of {name}",
                    "Arguments are integers with commas between them.",
                )
            self.at += 1
            word = _NAME.match(self.text, self.at)
            if word and not self.text[word.end() :].lstrip().startswith("("):
                raise self.wrong(
                    f"Argument {len(numbers) + 1} of {name} is no integer", "Arguments are integers."
                )
            if self.peek() in (")", ",", ""):
                raise self.wrong(
                    f"Argument {len(numbers) + 1} of {name} is empty", "Write an integer, or drop the comma."
                )

    def branches(self, name: str, opening: int) -> tuple[tuple[Call, ...], ...]:
        branches = []
        while self.peek() != ")":
            if not _NAME.match(self.peek()):
                if not self.peek():
                    raise UsageError(
                        "structure-syntax",
                        pointed(self.text, opening, f"The parenthesis of {name} is never closed"),
                        "Add the missing ')'.",
                    )
                raise self.wrong(
                    f"',' or ')' was expected in {name}(...)", "Arguments are integers, then blocks."
                )
            branches.append(self.structure())
            if self.peek() == ";":
                self.at += 1
        return tuple(branches)

    def match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        found = pattern.match(self.text, self.at)
        assert found, "the caller has looked"
        self.at = found.end()
        return found

    def wrong(self, what: str, next_step: str) -> UsageError:
        seen = f"{self.text[self.at]!r} was found" if self.at < len(self.text) else "the string ends"
        return UsageError("structure-syntax", pointed(self.text, self.at, f"{what}, {seen}"), next_step)
