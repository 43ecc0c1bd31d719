"""How a metered value is printed. Printing never fails: what a format cannot show is shown plainly."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from luxmeter.loaded import loaded

DIGITS = 4
_SMALL = 1e-3  # below this, four places would show nothing of a learning rate


@dataclass(frozen=True)
class Format:
    """One way to print a number: `int`, `float` or `percent`, with so many places."""

    kind: str
    digits: int = 0

    def __call__(self, value: Any) -> str:
        number = as_number(value)
        if number is None:
            return plain(value)
        if self.kind == "percent":
            return f"{number:.{self.digits}%}"
        return f"{number:.{self.digits}f}"


@dataclass(frozen=True)
class SpecFormat:
    """Print by a format text such as `.3e`."""

    spec: str

    def __call__(self, value: Any) -> str:
        return format(value.item() if hasattr(value, "item") else value, self.spec)


def show(value: Any, how: Callable[[Any], str] | None) -> str:
    """The value in one line, by its format if it has one that works for it."""
    if how is not None:
        try:
            return one_line(str(how(value)))
        except Exception:  # noqa: BLE001  a user's format must not end a training
            return plain(value)
    return plain(value)


def plain(value: Any) -> str:
    """Floats with four places, tensors of one element as numbers, anything longer than a line cut to its first."""
    number = as_number(value)
    if number is None:
        detach = getattr(value, "detach", None)
        try:
            return one_line(str(detach() if detach else value))
        except Exception as error:  # noqa: BLE001  as above
            return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"
    if isinstance(number, bool | int):
        return str(number)
    if 0 < abs(number) < _SMALL:
        return f"{number:.{DIGITS}g}"
    return f"{number:.{DIGITS}f}"


def one_line(text: str) -> str:
    """The first line, with dots if there are more."""
    first, newline, _ = text.partition("\n")
    return f"{first}..." if newline else first


def as_number(value: Any) -> Any:
    """A real number out of numbers, arrays and tensors of one element (this reads the device); otherwise None."""
    if type(value) in (int, float, bool):
        return value
    if isinstance(value, numbers.Real):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    torch, numpy = loaded("torch"), loaded("numpy")
    try:
        if torch is not None and isinstance(value, torch.Tensor):
            number = value.detach().item() if value.numel() == 1 else None
        elif numpy is not None and isinstance(value, numpy.ndarray | numpy.generic):
            number = value.item() if value.size == 1 else None
        elif hasattr(value, "mean") and hasattr(value, "recent"):
            number = value.mean
        else:
            return None
    except (RuntimeError, ValueError, TypeError, NotImplementedError):  # meta, sparse and quantized tensors
        return None
    return number if isinstance(number, int | float) else None
