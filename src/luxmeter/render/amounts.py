"""Numbers for people: counts, sizes and times in the unit that fits."""

from __future__ import annotations

import math
from typing import Any


def number(value: Any) -> str:
    """12345.6 -> `12,346`, 0.12345 -> `0.1235`; whole numbers as they are."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if 9999.5 <= abs(value) < 1e12 else f"{value:.4g}"


def mark(value: float) -> str:
    """A value beside an axis, in few letters: `0.5`, `20 K`, `1e28`."""
    big = abs(value)
    if big and (big < 1e-3 or big >= 1e15):
        digits, _, power = f"{value:.2e}".partition("e")
        return f"{float(digits):g}e{int(power)}"
    place = 0 if big < 1e4 else int(math.log10(big) / 3 + 1e-9)
    return f"{value / 1000.0**place:.4g}{('', ' K', ' M', ' G', ' T')[place]}"


def share(part: float) -> str:
    """0.1234 -> `12.3%`."""
    return f"{part:.1%}"


def amount(count: float) -> str:
    """4089184256 -> `4.09 G`; small whole numbers as they are."""
    return _scaled(count, 1000.0, ("", " K", " M", " G", " T", " P", " E"))


def counted(many: int, what: str) -> str:
    """`1 run`, `2 runs`, `12,000 runs`, `no runs`."""
    return f"{many or 'no':{',' if many else ''}} {what}{'s' * (many != 1)}"


def size(size_bytes: float) -> str:
    """102228128 -> `97.5 MiB`."""
    return _scaled(size_bytes, 1024.0, (" B", " KiB", " MiB", " GiB", " TiB", " PiB"))


def span(time_ns: float) -> str:
    """1234567 -> `1.23 ms`: a time that was measured."""
    return _scaled(time_ns, 1000.0, (" ns", " us", " ms", " s"))


def long_span(seconds: float | None) -> str:
    """4000 -> `1 h 6 min`: how long something took, as people say it."""
    if seconds is None:
        return "-"
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def _scaled(value: float, step: float, units: tuple[str, ...]) -> str:
    place = 0
    while abs(value) >= step and place < len(units) - 1:
        value /= step
        place += 1
    if place == 0 and value == int(value):
        return f"{int(value)}{units[0]}"
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{digits}f}{units[place]}"
