"""What is new in a run since it was last looked at: points of metrics, output, how it stands."""

from __future__ import annotations

import base64
import contextlib
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from luxmeter.errors import LuxmeterError
from luxmeter.plain_text import plain
from luxmeter.render import Line, long_span, size, thinned
from luxmeter.store import Run
from luxmeter.view.live import LiveRun
from luxmeter.view.pages.report import metrics_html

_MOST_POINTS = 500  # of one metric in one go
_TABLE_NS = 2 * 10**9  # the table of metrics is made no more often than this
_MOST_LETTERS = 4096  # of one as it is written


@dataclass(frozen=True)
class ReadSoFar:
    """How far a run was read. A page carries it, and a stream goes on from there: no point twice, none left out."""

    points: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    output: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def __str__(self) -> str:
        text = json.dumps([self.points, self.output], separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @staticmethod
    def of(text: str) -> ReadSoFar:
        """As it was written; what is none is the beginning."""
        try:
            if len(text) > _MOST_LETTERS:
                return ReadSoFar()
            points, output = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
            return ReadSoFar(_positions(points), _positions(output))
        except (ValueError, TypeError, AttributeError, RecursionError):
            return ReadSoFar()


class Live:
    """Follows a run, from what was read of it on."""

    def __init__(self, run: Run, before: ReadSoFar) -> None:
        self.run = LiveRun(run, position=before.points)
        self._output = run.follow_output(before.output)
        self._said: dict[str, Any] = {"state": "running"}
        self._table_ns, self._is_behind = (
            0,
            False,
        )  # when the table of metrics was sent, and whether points came since

    @property
    def read_so_far(self) -> ReadSoFar:
        """How far it has read."""
        return ReadSoFar(self.run.position, self._output.position)

    def news(self, now_ns: int) -> dict[str, Any]:
        """`points`: metric -> [[step, value], ...]; `metrics`: their table; `output`; what has changed of `state`, `progress`, `trouble`. Empty if nothing is new."""
        self.run.look(now_ns)
        found: dict[str, Any] = {}
        mine = self.run.metrics
        points = {key: _pairs(key, *fresh) for key, fresh in self.run.fresh.items() if key in mine}
        if points:
            found["points"] = points
            self._is_behind = True
        if self._is_behind and now_ns - self._table_ns >= _TABLE_NS:
            self._table_ns, self._is_behind = now_ns, False
            with contextlib.suppress(LuxmeterError, OSError):  # what is wrong with it is told as `trouble`
                found["metrics"] = metrics_html(self.run.run)
        if text := self._output.new():
            found["output"] = plain(text)
        told = {
            "state": self.run.state,
            "progress": progress_text(self.run),
            "trouble": plain(self.run.trouble),
        }
        found |= {name: value for name, value in told.items() if value != self._said.get(name, "")}
        self._said = told
        return found


def progress_text(live: LiveRun) -> str:
    """Where a run that goes on stands: `paused, step 120 of 1,000, about 2 min left, 98% CPU, 512 MiB`."""
    if live.state != "running":
        return ""
    parts = [live.shown_state] if live.shown_state != "running" else []
    if live.step is not None:
        parts.append(f"step {live.step:,}" + (f" of {live.steps:,}" if live.steps else ""))
    if live.eta_s is not None:
        parts.append(f"about {long_span(round(live.eta_s))} left")
    if live.cpu_percent is not None:
        parts.append(f"{live.cpu_percent:.0f}% CPU")
    if live.memory_bytes is not None:
        parts.append(size(live.memory_bytes))
    return ", ".join(parts)


def looked(run: Run, most: int) -> tuple[LiveRun, ReadSoFar]:
    """A run that goes on, read until now, and how far that is."""
    live = LiveRun(run, most=most)
    output = run.follow_output().skip()
    live.look(time.time_ns())
    return live, ReadSoFar(live.position, output.position)


def _pairs(key: str, steps: Any, values: Any) -> list[list[float | None]]:
    line = thinned(Line(key, steps, values), _MOST_POINTS)
    return [
        [x, y if math.isfinite(y) else None] for x, y in zip(line.x.tolist(), line.y.tolist(), strict=True)
    ]


def _positions(said: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {str(name): (_whole(a), _whole(b)) for name, (a, b) in said.items()}


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 60:
        raise ValueError("no position in a file")
    return value
