"""Which runs go on now, found without the index: bringing that up to date reads all that they logged."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from luxmeter.errors import LuxmeterError
from luxmeter.store import layout
from luxmeter.store.journal import read_tail
from luxmeter.store.run import Run


class GoingRuns:
    """The runs of a lab that have not ended. Each `new()` looks only at what changed since the last."""

    def __init__(self, lab_folder: Path) -> None:
        self._folder = lab_folder
        self._offsets: dict[str, int] | None = None  # in the journal

    def new(self) -> list[Run]:
        """Those that began, or went on, since the last call; at the first all that go on, the oldest first."""
        changed, offsets = read_tail(self._folder, self._offsets or {})
        if self._offsets is None:
            changed |= self._unended()
        self._offsets = offsets
        found = [run for name in changed if (run := self._going(name)) is not None]
        return sorted(found, key=lambda run: (run.created_ns, run.id))

    def _unended(self) -> set[str]:
        with contextlib.suppress(OSError), os.scandir(self._folder / layout.RUNS) as entries:
            return {entry.name for entry in entries if layout.is_named("run", entry.name)}
        return set()

    def _going(self, name: str) -> Run | None:
        folder = self._folder / layout.RUNS / name
        if (folder / layout.STATUS).exists():  # most runs of a large lab
            return None
        try:
            run = Run(folder, self._folder)
            return run if run.state == "running" else None
        except (LuxmeterError, OSError):  # never begun, removed meanwhile, or damaged
            return None
