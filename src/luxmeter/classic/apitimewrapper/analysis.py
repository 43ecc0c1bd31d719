"""start_analysis and end_analysis: sums of the calls between them."""

from __future__ import annotations

import threading

from luxmeter.classic.apitimewrapper.my_print import print as tell
from luxmeter.errors import UsageError
from luxmeter.render import NUMBER, Column, Table

_lock = threading.Lock()
_open: list[
    dict[str, list[float]]
] = []  # name -> milliseconds of each call; the innermost section is the last


def start_analysis() -> None:
    """From here on calls are counted, until end_analysis(). Sections may lie in each other."""
    with _lock:
        _open.append({})


def end_analysis() -> None:
    """Print name, count, total, mean, min and max of the calls since start_analysis()."""
    with _lock:
        if not _open:
            raise UsageError(
                "no-analysis",
                "end_analysis() has no start_analysis() before it.",
                "Call start_analysis() first.",
            )
        found = _open.pop()
    rows = [
        [name, len(ms), round(sum(ms), 4), round(sum(ms) / len(ms), 4), round(min(ms), 4), round(max(ms), 4)]
        for name, ms in sorted(found.items(), key=lambda item: -sum(item[1]))
    ]
    numbers = [Column(name, NUMBER) for name in ("count", "total(ms)", "mean(ms)", "min(ms)", "max(ms)")]
    tell(Table([Column("name"), *numbers], rows, title="analysis").text())


def count(name: str, cost_ms: float) -> None:
    """A call ended: it belongs to every section that is open."""
    if _open:
        with _lock:
            for section in _open:
                section.setdefault(name, []).append(cost_ms)
