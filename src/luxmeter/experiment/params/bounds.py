"""What a parameter may be: one of some values, or within a range. Checked whenever it is set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from luxmeter.errors import UsageError, suggestion
from luxmeter.identity import same


@dataclass(frozen=True)
class Choice:
    """One of `values`."""

    values: tuple[Any, ...]

    def check(self, name: str, value: Any) -> None:
        if any(same(value, allowed) for allowed in self.values):
            return
        texts = [allowed for allowed in self.values if isinstance(allowed, str)]
        near = suggestion(value, texts) if isinstance(value, str) else ""
        raise UsageError(
            "not-a-choice",
            f"{name} cannot be {value!r}.",
            f"{near} Choose one of {self}.".strip(),
        )

    def __str__(self) -> str:
        return ", ".join(repr(value) for value in self.values)


@dataclass(frozen=True)
class Range:
    """From `low` to `high`, both included."""

    low: float
    high: float

    def check(self, name: str, value: Any) -> None:
        try:
            inside = bool(self.low <= value <= self.high)
        except (TypeError, ValueError, RuntimeError):  # text, None, or a tensor of several elements
            inside = False
        if not inside:
            raise UsageError(
                "out-of-range",
                f"{name} cannot be {value!r}.",
                f"Give a number {self}.",
            )

    def __str__(self) -> str:
        return f"from {self.low} to {self.high}"


@dataclass(frozen=True)
class Rule:
    """Whatever `allows` says yes to."""

    allows: Callable[[Any], Any]

    def check(self, name: str, value: Any) -> None:
        answer = self.allows(value)
        if answer is not None and not answer:
            raise UsageError(
                "rule-refused",
                f"{name} cannot be {value!r}: {self} says no.",
                "Give a value that the rule set for this parameter accepts.",
            )

    def __str__(self) -> str:
        return f"a rule of the program ({getattr(self.allows, '__name__', type(self.allows).__name__)})"


Bound = Choice | Range | Rule
