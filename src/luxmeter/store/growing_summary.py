"""The summary of a run's metrics while it goes on: each look reads only what came since the last, however much there is."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from luxmeter.store import layout
from luxmeter.store.points import Summary, add_rows
from luxmeter.store.segments import Follower, reading


class GrowingSummary:
    """Of the run in a folder."""

    def __init__(self, run_folder: Path) -> None:
        self._place = run_folder / layout.TABLES / layout.METRICS
        self._follower = Follower(self._place)
        self._summaries: dict[str, Summary] = {}
        self._lock = threading.Lock()  # two threads that list the lab would count a point twice

    def record(self) -> dict[str, dict[str, Any]]:
        """Each metric's n, last, last_step, min and max, as of now."""
        with self._lock:
            rows = self._follower.new()
            if rows is not None and rows.num_rows:
                with reading(self._place):
                    add_rows(self._summaries, rows)
            return {key: summary.record() for key, summary in self._summaries.items()}
