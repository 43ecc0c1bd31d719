"""start_analysis and end_analysis: a line for each API that was called between them, in the words of 0.0.7."""

from __future__ import annotations

import sys
import threading

from luxmeter.classic.apitimewrapper.my_print import print as tell
from luxmeter.errors import UsageError
from luxmeter.render import DURATION, NUMBER, Column, Table

_lock = threading.Lock()
_open: list[dict[str, list[float]]] = []  # name -> seconds of each call; the innermost section is the last


def start_analysis() -> None:
    """From here on calls are counted, until end_analysis(). Sections may lie in each other."""
    tell("start_analysis")
    with _lock:
        _open.append({})


def end_analysis(*, table: bool = False) -> None:
    """Print count, total, mean, least and most seconds of each API since start_analysis(); `table=True`: as our table, too."""
    with _lock:
        if not _open:
            raise UsageError(
                "no-analysis",
                "end_analysis() has no start_analysis() before it.",
                "Call start_analysis() first.",
            )
        found = _open.pop()
    tell("end_analysis")
    for name, costs in found.items():
        total, times = sum(costs), len(costs)
        sys.stdout.write(
            f"{name}共执行了{times}次,总耗时{total}秒,平均耗时{total / times}秒,最低耗时{min(costs)},最高耗时{max(costs)}.\n"
        )
    if table:
        tell(_table(found).text())


def _table(found: dict[str, list[float]]) -> Table:
    rows = [
        [
            name,
            len(costs),
            *(1e9 * cost for cost in (sum(costs), sum(costs) / len(costs), min(costs), max(costs))),
        ]
        for name, costs in sorted(found.items(), key=lambda item: -sum(item[1]))
    ]
    times = [Column(name, DURATION) for name in ("total", "mean", "min", "max")]
    return Table([Column("name"), Column("count", NUMBER), *times], rows)


def count(name: str, cost_s: float) -> None:
    """A call ended: it belongs to every section that is open."""
    if _open:
        with _lock:
            for section in _open:
                section.setdefault(name, []).append(cost_s)
