"""Metrics read in what a program prints, while it prints it (`luxmeter run --read-output`)."""

from __future__ import annotations

import re
import threading

from luxmeter.errors import warn_once
from luxmeter.experiment.capture.output import Listener
from luxmeter.experiment.capture.printed_metrics import PrintedMetrics
from luxmeter.store import Run, RunWriter, records

SOURCE = "output"
_ENDS = re.compile(r"[\r\n]+")  # a bar is drawn anew behind "\r"
_LONGEST = 1 << 16
_LOOKED_AT_BYTES = 1 << 20


class ReadOutput:
    """Logs to the run what it printed of metrics."""

    def __init__(self, run: RunWriter) -> None:
        self._run = run
        self._metrics = PrintedMetrics()
        # Of each stream the line that has no end yet, and the epoch in which it began: a bar's ends when it is drawn anew.
        self._lines: dict[str, tuple[str, int | None]] = {}
        self._lock = threading.RLock()
        self._listener = Listener(self._hear)

    def start(self) -> None:
        """Begin to read."""
        self._listener.start()

    def stop(self) -> None:
        """Read what is left, and no more."""
        self._listener.stop()
        with self._lock:
            for line, epoch in self._lines.values():
                self._read(line, epoch)
            self._lines.clear()

    def _hear(self, stream: str, piece: str) -> None:
        with self._lock:
            begun, epoch = self._lines.get(stream, ("", None))
            *whole, rest = _ENDS.split(begun + piece)
            for line in whole:
                self._read(line, epoch if begun else None)
                begun = ""
            self._lines[stream] = (
                rest if len(rest) <= _LONGEST else "",
                epoch if begun else self._metrics.epoch,
            )

    def _read(self, line: str, epoch: int | None) -> None:
        try:
            by_step: dict[int, dict[str, float]] = {}
            for name, value, step in self._metrics.read(line, epoch):
                by_step.setdefault(step, {})[name] = value
            for step, values in by_step.items():
                self._run.log_from(SOURCE, values, step)
        except Exception as problem:  # noqa: BLE001  (it printed something odd: its own print() must not fail)
            warn_once(
                "output-not-read",
                f"A line that was printed could not be read: {type(problem).__name__}: {problem}.",
                "The program goes on; this line's metrics are left out.",
            )


def printed_series(run: Run) -> list[str]:
    """The metrics that a run printed more than once and did not log, as far as the beginning of its output shows."""
    if any(not key.startswith(records.SYSTEM) for key in run.metrics):
        return []
    seen: dict[str, int] = {}
    reader = PrintedMetrics()
    for line in records.read_output_beginning(run.folder, _LOOKED_AT_BYTES).splitlines():
        for name, _, _ in reader.read(line):
            seen[name] = seen.get(name, 0) + 1
    return [name for name, count in seen.items() if count > 1]
