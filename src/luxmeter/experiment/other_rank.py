"""The part that a rank other than 0 has in the run: what it logs, and what its process uses, beside what rank 0 logs."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

from luxmeter import ranks
from luxmeter.errors import LuxmeterError
from luxmeter.experiment.capture.system_metrics import SystemMeter
from luxmeter.experiment.options import ExperimentOptions
from luxmeter.settings import find_lab
from luxmeter.store import Ending, Lab, RankWriter, beside, run_of_job, tell_ranks

_joined: set[Path] = set()  # runs that experiments of this process are, or were, part of


class OtherRank:
    """Begins and ends with the experiment of such a rank. Its run is rank 0's, which may begin later than this."""

    def __init__(self, rank: int, name: str, options: ExperimentOptions) -> None:
        lab, key = _lab_folder(options), ranks.job_key()

        def find() -> Path | None:
            found = run_of_job(lab, key, name, _joined) if key else None
            if found is not None:
                _joined.add(found)
            return found

        self.writer = RankWriter(rank, lab, find)
        self._leave = contextlib.ExitStack()
        self._leave.enter_context(beside(self.writer))
        self._system = SystemMeter() if options.system_s else None
        self._every_s = options.system_s
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        if self._system is not None:
            self._thread = threading.Thread(target=self._look, name="luxmeter-rank", daemon=True)
            self._thread.start()

    def end(self, outcome: Ending) -> None:
        """Write the rest."""
        self._leave.close()
        self._over.set()
        if self._thread is not None and self._thread.is_alive():  # not in a forked child
            self._thread.join()
            self._sample()
        self.writer.finish(outcome.state, error=outcome.error)

    def _look(self) -> None:
        while not self._over.wait(self._every_s):
            self._sample()

    def _sample(self) -> None:
        if self._system is not None:
            with contextlib.suppress(Exception):  # a sample less; trouble with the disk is told by log()
                self.writer.log(self._system.sample())


def tell_other_ranks(lab: Lab, name: str, run_id: str) -> None:
    """On rank 0 of several: where they find the run of the experiment of that name."""
    key = ranks.job_key()
    if key and ranks.world_size() > 1:
        with contextlib.suppress(OSError):  # then what they log is not kept
            tell_ranks(lab.folder, key, name, run_id)


def _lab_folder(options: ExperimentOptions) -> Path:
    """Where rank 0 keeps its run. Nothing is made here: that is rank 0's to do."""
    if isinstance(options.lab, Lab):
        return options.lab.folder
    with contextlib.suppress(LuxmeterError):
        return Lab.open(options.lab, create=False).folder  # type: ignore[arg-type]
    return Path(options.lab).expanduser().absolute() if options.lab is not None else find_lab().folder
