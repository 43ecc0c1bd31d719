"""What another rank than 0 logs: written by that rank itself, into a folder of its own in rank 0's run (`ranks/<n>/`).

Ranks share no file, so none waits for another, and each loses what the writer of a run loses: the last half second if it is killed.
Rank 0 says in the lab where its run is, and the others find it there by what their launcher calls the job. What they log before
that is kept in memory.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from luxmeter.errors import LuxmeterError
from luxmeter.files import make_below, read_json, write_json
from luxmeter.process import Process
from luxmeter.store import background, checked, layout
from luxmeter.store.liveness import is_alive
from luxmeter.store.troubles import Troubles
from luxmeter.store.writer import RunWriter

_PATIENCE_S = 2.0  # for rank 0's run to come, when something has to be put there now
_LOST_S = 60.0  # without a sign of life from a rank 0 on another machine
_FORMAT = 1  # 1: process (of rank 0), runs: name, run (id), written_ns of each


class RankWriter(RunWriter):
    """What one rank logs, in the run that `find` finds sooner or later."""

    def __init__(self, rank: int, lab_folder: Path, find: Callable[[], Path | None]) -> None:
        self.rank = rank
        self.run_folder: Path | None = None
        self._find = find
        super().__init__(lab_folder, {"id": "", "name": ""}, lab_folder)

    def join(self, run_folder: Path) -> None:
        """The run is this one."""
        with self._lock:
            self._join(run_folder)

    def found(self, patience_s: float | None = None) -> Path | None:
        """The run's folder; waits so long for it, or a little, if rank 0 is not as far yet."""
        with self._lock:
            patience_s = _PATIENCE_S if patience_s is None else patience_s
            return self.run_folder if self._is_found(patience_s) else None

    # -- inside: until the run is found, nothing is written -----------------------------------------------------

    def _begin(self) -> None:
        background.add(self)

    def _join(self, run_folder: Path) -> None:
        if self.run_folder is not None:
            return
        folder = run_folder / layout.RANKS / str(self.rank)
        make_below(run_folder, folder)
        (folder / layout.ALIVE).touch()
        self.id = run_folder.name
        self._troubles = Troubles(f"{self.id} (rank {self.rank})")
        self.folder, self.run_folder = folder, run_folder

    def _is_found(self, patience_s: float = 0.0) -> bool:
        end = time.monotonic() + patience_s
        while self.run_folder is None:
            found = self._find()
            if found is not None:
                self._join(found)
            elif time.monotonic() >= end:
                return False
            else:
                time.sleep(0.05)
        return True

    def _write_pending(self) -> None:
        if self._is_found():
            super()._write_pending()

    def _sign_of_life(self) -> None:
        if self.run_folder is not None:
            super()._sign_of_life()

    def _keep_blob(self, body: bytes) -> str:
        # Into the run's own, where whoever counts and copies blobs looks for them.
        with self._lock:
            if not self._is_found(_PATIENCE_S) or self.run_folder is None:
                raise FileNotFoundError(f"the run of rank 0 is not found from rank {self.rank}")
        return self._pool.put(body, self.run_folder)

    def _close(self, state: str, error: str) -> None:
        if self.run_folder is None and self._pending:
            with self._lock:
                if self._is_found(_PATIENCE_S):
                    self._write_pending()
        if self.run_folder is not None:
            super()._close(state, error)

    def _blame(self, problem: OSError) -> None:
        if self.run_folder is not None:
            super()._blame(problem)


def tell_ranks(lab_folder: Path, key: str, name: str, run_id: str) -> None:
    """On rank 0: this is the run of the experiment of that name."""
    place = lab_folder / layout.RANKS
    place.mkdir(exist_ok=True)
    own = vars(Process.here())
    runs: Any = []
    with contextlib.suppress(LuxmeterError, TypeError, LookupError):  # what is none of ours is written anew
        before: Any = read_json(place / f"{key}.json", {})
        if before["format"] == _FORMAT and before["process"] == own:
            runs = [*before["runs"]]
    told = {"name": name, "run": run_id, "written_ns": time.time_ns()}
    write_json(place / f"{key}.json", {"format": _FORMAT, "process": own, "runs": [*runs, told]})


def run_of_job(lab_folder: Path, key: str, name: str, but: Collection[Path] = ()) -> Path | None:
    """On the others: the first run of that name that rank 0 told of, if it is of this job and not of one before it."""
    try:
        said: Any = read_json(lab_folder / layout.RANKS / f"{key}.json")
        if said is None or said["format"] > _FORMAT:
            return None
        for told in said["runs"]:
            folder = lab_folder / layout.RUNS / layout.named("run", told["run"])
            if told["name"] == name and folder not in but and _is_of_this_job(folder, told["written_ns"]):
                return folder
    except (LuxmeterError, OSError, ValueError, KeyError, TypeError, OverflowError):
        return None
    return None


def _is_of_this_job(folder: Path, written_ns: int) -> bool:
    if not folder.is_dir():
        return False
    if written_ns / 1e9 >= Process.here().started:
        return True
    # Told before this process began: then rank 0 must be at it still.
    if checked.read_status(folder) is not None:
        return False
    process = Process.of(checked.read_identity(folder)["process"])
    return is_alive(process, folder, lost_after_s=_LOST_S)


def rank_folders(run_folder: Path) -> dict[int, Path]:
    """The ranks that logged something besides rank 0, and where it lies."""
    place = run_folder / layout.RANKS
    if place.is_symlink() or not place.is_dir():
        return {}
    names = (name for name in os.listdir(place) if name.isascii() and name.isdecimal() and len(name) < 10)  # noqa: PTH208
    found = {int(name): place / name for name in names if name == str(int(name))}
    return {rank: found[rank] for rank in sorted(found) if not found[rank].is_symlink()}
