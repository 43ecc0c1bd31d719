"""Numbers for people: counts, sizes and times in the unit that fits."""

from __future__ import annotations


def amount(count: float) -> str:
    """4089184256 -> `4.09 G`; small whole numbers as they are."""
    return _scaled(count, 1000.0, ("", " K", " M", " G", " T", " P", " E"))


def size(size_bytes: float) -> str:
    """102228128 -> `97.5 MiB`."""
    return _scaled(size_bytes, 1024.0, (" B", " KiB", " MiB", " GiB", " TiB", " PiB"))


def span(time_ns: float) -> str:
    """1234567 -> `1.23 ms`."""
    return _scaled(time_ns, 1000.0, (" ns", " us", " ms", " s"))


def _scaled(value: float, step: float, units: tuple[str, ...]) -> str:
    place = 0
    while abs(value) >= step and place < len(units) - 1:
        value /= step
        place += 1
    if place == 0 and value == int(value):
        return f"{int(value)}{units[0]}"
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{digits}f}{units[place]}"
