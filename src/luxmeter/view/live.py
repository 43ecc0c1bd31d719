"""A run as it goes on: its curves, where it stands, what it uses. Each look reads only what came since the last."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from luxmeter.errors import LuxmeterError
from luxmeter.process import Process
from luxmeter.render import Floats, Line, thinned
from luxmeter.store import Run, layout, records
from luxmeter.train import Listening, read_listening

if TYPE_CHECKING:
    import pyarrow as pa

_PACE_NS = 120 * 10**9  # the steps of so long tell how fast it goes
_PACE_POINTS = 50  # taken of one look
_FRESH_NS = 30 * 10**9  # so old may the run's own word be of what it uses
_ELSEWHERE_NS = 5 * 10**9  # so often a process of another machine is asked for: that touches a file


class LiveCurve:
    """A metric that grows: how it stands in full, its points reduced so that peaks survive."""

    def __init__(self, most: int) -> None:
        self.n, self.last, self.last_step, self.last_ns = 0, math.nan, 0, 0
        self.low, self.high = math.nan, math.nan
        self._most = most
        self._x, self._y = np.empty(0), np.empty(0)

    def add(self, steps: Floats, values: Floats, last_ns: int) -> None:
        """Take in points that came since."""
        self.n += len(values)
        self.last, self.last_step, self.last_ns = float(values[-1]), int(steps[-1]), last_ns
        self.low = float(np.fmin(self.low, np.fmin.reduce(values)))
        self.high = float(np.fmax(self.high, np.fmax.reduce(values)))
        self._x, self._y = np.concatenate([self._x, steps]), np.concatenate([self._y, values])
        if len(self._x) > 2 * self._most:
            kept = self.line("")
            self._x, self._y = kept.x, kept.y

    @property
    def values(self) -> list[float]:
        """The points that are kept."""
        found: list[float] = self._y.tolist()
        return found

    def line(self, name: str) -> Line:
        """To be drawn."""
        return thinned(Line(name, self._x, self._y), self._most)


class LiveRun:
    """One run that is watched. `look(now_ns)` first, then all the rest tells how it stood then."""

    def __init__(
        self, run: Run, *, most: int = 400, position: Mapping[str, Sequence[int]] | None = None
    ) -> None:
        """`position`: what another had read of its metrics is known, and not taken in."""
        self.run = run
        self.state = "running"  # as a run's state; also `removed`
        self.trouble = ""  # why something of it cannot be read
        self.curves: dict[str, LiveCurve] = {}  # of the machine's metrics, too
        self.fresh: dict[str, tuple[Floats, Floats]] = {}  # what the last look brought: steps, values
        self.training: Listening | None = None
        self.cpu_percent: float | None = None
        self.memory_bytes: float | None = None
        self.ended_ns: int | None = None  # when it was seen to have ended
        self._most = most
        self._followed = run.follow(position=position)
        self._pace: deque[tuple[int, int]] = deque()  # (when, step)
        self._process = Process.of(run.identity["process"])
        self._used: psutil.Process | None = None
        self._asked_ns = 0
        self._now_ns = 0

    def look(self, now_ns: int) -> bool:
        """Read what came since; whether anything did."""
        self._now_ns = now_ns
        self.fresh = {}
        if self.ended_ns is not None:
            return False
        before = self.state, self.training
        try:
            self.state = self._state(now_ns)
            self.training = read_listening(self.run.folder) if self.state == "running" else None
            rows = self._followed.new()
            self.trouble = ""
        except (LuxmeterError, OSError) as error:
            rows, self.trouble = None, str(error)
        if rows is not None and rows.num_rows:
            self._take(rows)
        self._usage(now_ns)
        if self.state != "running":
            self.ended_ns = now_ns
        return rows is not None or before != (self.state, self.training)

    @property
    def position(self) -> dict[str, tuple[int, int]]:
        """How far its metrics were read, for another that goes on from there."""
        return self._followed.position

    @property
    def shown_state(self) -> str:
        """Its state; of a training that goes on also paused or stopping."""
        said = self.training
        return said.state if said is not None and said.state in ("paused", "stopping") else self.state

    @property
    def metrics(self) -> dict[str, LiveCurve]:
        """What the program logged itself."""
        return {
            key: curve
            for key, curve in self.curves.items()
            if not key.startswith((records.SYSTEM, "control/"))
        }

    def main_metric(self, wanted: str = "") -> str:
        """The one that tells most: `wanted` if it is there, a loss, else the first; empty if there is none."""
        known = list(self.metrics)
        losses = [key for key in known if "loss" in key.lower()]
        found = [key for key in (wanted, "train/loss", "loss") if key in known]
        return next(iter([*found, *losses, *known]), "")

    @property
    def step(self) -> int | None:
        """The last step of what it logged, or at which its training said something."""
        logged = [curve.last_step for curve in self.metrics.values()]
        said = [self.training.step] if self.training is not None else []
        return max([*logged, *said], default=None)

    @property
    def steps(self) -> int | None:
        """How many there will be in all; None if nobody knows."""
        return None if self.training is None else self.training.steps

    @property
    def eta_s(self) -> float | None:
        """Seconds until its training is through, as fast as its last steps were; None if that cannot be known."""
        step, steps = self.step, self.steps
        if step is None or steps is None or self.shown_state != "running" or len(self._pace) < 2:
            return None
        (began_ns, first), (last_ns, last) = self._pace[0], self._pace[-1]
        if last <= first or last_ns <= began_ns:
            return None
        left_ns = max(0, steps - last - 1) * (last_ns - began_ns) / (last - first)
        return max(0.0, (left_ns - max(0, self._now_ns - last_ns)) / 1e9)

    @property
    def seconds(self) -> float:
        """How long it goes on, or took."""
        return max(0.0, ((self.ended_ns or self._now_ns) - self.run.created_ns) / 1e9)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _state(self, now_ns: int) -> str:
        folder = self.run.folder
        asked = self._process.is_here or now_ns - self._asked_ns >= _ELSEWHERE_NS
        if not asked and not (folder / layout.STATUS).exists():
            return "running"
        self._asked_ns = now_ns
        return self.run.state if (folder / layout.IDENTITY).exists() else "removed"

    def _take(self, rows: pa.Table) -> None:
        """New rows of the metrics' table, in the order they were logged."""
        keys = rows.column("key").combine_chunks().dictionary_encode()
        codes = np.from_dlpack(keys.indices)  # not to_numpy, which imports pandas
        names = keys.dictionary.to_pylist()
        arrays: list[Any] = [
            np.from_dlpack(rows.column(name).combine_chunks()) for name in ("step", "value", "time_ns")
        ]
        steps, values, times = arrays
        own = np.zeros(len(codes), dtype=bool)
        for code, name in enumerate(names):
            at = np.flatnonzero(codes == code)
            curve = self.curves.setdefault(name, LiveCurve(self._most))
            x, y = self.fresh[name] = steps[at].astype(np.float64), values[at]
            curve.add(x, y, int(times[at[-1]]))
            own[at] = not name.startswith(records.SYSTEM)
        at = np.flatnonzero(own)
        for i in at[np.unique(np.linspace(0, len(at) - 1, _PACE_POINTS).astype(int))] if len(at) else ():
            if self._pace and int(steps[i]) < self._pace[-1][1]:
                self._pace.clear()  # it went back to a checkpoint
            self._pace.append((int(times[i]), int(steps[i])))
        while self._pace and self._pace[-1][0] - self._pace[0][0] > _PACE_NS:
            self._pace.popleft()

    def _usage(self, now_ns: int) -> None:
        """By the run's own word, else of its process if that is one of this machine."""
        said = [
            self.curves.get(f"{records.SYSTEM}process_{name}") for name in ("cpu_percent", "memory_bytes")
        ]
        if self.state != "running":
            self.cpu_percent = self.memory_bytes = None
        elif all(curve is not None and now_ns - curve.last_ns < _FRESH_NS for curve in said):
            self.cpu_percent, self.memory_bytes = (curve.last for curve in said if curve is not None)
        elif self._process.is_here:
            try:
                if self._used is None:
                    self._used = psutil.Process(self._process.pid)
                    self._used.cpu_percent(None)  # from here on it measures
                else:
                    self.cpu_percent = self._used.cpu_percent(None)
                self.memory_bytes = float(self._used.memory_info().rss)
            except psutil.Error:
                self.cpu_percent = self.memory_bytes = None
