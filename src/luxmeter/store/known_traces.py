"""The traces of a lab, those of its runs among them, for whoever asks again and again: what was read once is not read again."""

from __future__ import annotations

import os
import stat
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from luxmeter.store import layout
from luxmeter.store.results import Result, traces_in

_SETTLED_NS = 2_000_000_000  # a folder that changed so lately may change again within one tick of its clock


@dataclass(frozen=True, slots=True)
class KnownTrace:
    """A trace, the id of the run that holds it (empty: none does), and which of that run's traces it is."""

    result: Result
    run: str = ""
    number: int = 0


class KnownTraces:
    """Of one lab. A folder of traces is read anew when it changed, or while one of its traces goes on."""

    def __init__(self, lab: Path) -> None:
        self._lab = lab
        self._lock = threading.Lock()
        self._read: dict[str, tuple[int, list[KnownTrace]]] = {}

    def newest_first(self) -> list[KnownTrace]:
        """All that are there now."""
        places = {str(self._lab / layout.TRACES): ""}
        try:
            with os.scandir(self._lab / layout.RUNS) as runs:
                places |= {f"{run.path}{os.sep}{layout.CALLS}": run.name for run in runs}
        except FileNotFoundError:
            pass
        with self._lock:
            now_ns = time.time_ns()
            read = {
                place: found for place, run in places.items() if (found := self._look(place, run, now_ns))
            }
            self._read = read
        traces = [trace for _, found in read.values() for trace in found]
        return sorted(traces, key=lambda t: (t.result.made_ns, t.result.folder.name), reverse=True)

    def _look(self, place: str, run: str, now_ns: int) -> tuple[int, list[KnownTrace]] | None:
        """What a folder of traces holds, with its time of change (0: to be read anew); None without one."""
        try:
            found = os.lstat(place)
        except OSError:
            return None
        if not stat.S_ISDIR(found.st_mode):  # a link may lead anywhere
            return None
        known = self._read.get(place)
        if known is not None and known[0] == found.st_mtime_ns:
            return known
        traces = [KnownTrace(result, run, n) for n, result in enumerate(traces_in(Path(place)))]
        settled = now_ns - found.st_mtime_ns > _SETTLED_NS and _all_ended(Path(place))
        return (found.st_mtime_ns if settled else 0), traces


def _all_ended(place: Path) -> bool:
    """Whether no head is to come any more, and no title changes: a trace that was stopped says so in a file."""
    return all((trace / "stopped").exists() for trace in place.iterdir() if trace.is_dir())
