"""What is new in a run since it was last asked for: points of metrics, output, how it stands."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from luxmeter.render import Line, plain, thinned
from luxmeter.store import Run, records

_MOST_POINTS = 500  # of one metric in one go


class Live:
    """Follows a run. `after_ns`: what was logged until then is known."""

    def __init__(self, run: Run, after_ns: int) -> None:
        self._run = run
        self._follower = run.follow()
        self.after_ns = after_ns
        self._output = len(run.log_text)
        self._state = "running"

    @staticmethod
    def newest_ns(run: Run) -> int:
        """When the last point was logged."""
        rows = run.follow().new()
        return int(np.asarray(rows.column("time_ns")).max()) if rows is not None and rows.num_rows else 0

    def news(self) -> dict[str, Any]:
        """`points`: metric -> [[step, value], ...]; `output`: text; `state`, if it has changed. Empty if nothing is new."""
        state = Run(self._run.folder).state  # asked first: what came before its end is still read below
        found: dict[str, Any] = {}
        points = self._points()
        if points:
            found["points"] = points
        text = self._run.log_text
        if len(text) > self._output:
            found["output"] = plain(text[self._output :])
            self._output = len(text)
        if state != self._state:
            found["state"] = self._state = state
        return found

    def _points(self) -> dict[str, list[list[float | None]]]:
        rows = self._follower.new()
        if rows is None or not rows.num_rows:
            return {}
        times = np.asarray(rows.column("time_ns"))
        new = np.flatnonzero(times > self.after_ns)
        if not len(new):
            return {}
        self.after_ns = int(times.max())
        keys = np.array(rows.column("key").to_pylist(), dtype=object)[new]
        steps, values = (np.asarray(rows.column(name), dtype=np.float64)[new] for name in ("step", "value"))
        found = {}
        for key in dict.fromkeys(keys.tolist()):
            if key.startswith(records.SYSTEM):
                continue
            at = keys == key
            line = thinned(Line(key, steps[at], values[at]), _MOST_POINTS)
            found[key] = [
                [x, y if math.isfinite(y) else None]
                for x, y in zip(line.x.tolist(), line.y.tolist(), strict=True)
            ]
        return found
