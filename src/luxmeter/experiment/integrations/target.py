"""Where a callback logs to: the experiment it was given, the run that is active, or one of its own."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from luxmeter.described import described
from luxmeter.errors import warn_once
from luxmeter.experiment.capture import redaction
from luxmeter.experiment.capture.watch_files import FileWatch, to_batch
from luxmeter.experiment.experiment import Experiment
from luxmeter.experiment.options import ExperimentOptions, ExperimentSettings
from luxmeter.store import RunWriter, active_run, number_of, records

Given: TypeAlias = Experiment | RunWriter | str | PathLike[str] | None
CHECKPOINTS = (".ckpt", ".pt", ".pth", ".bin", ".safetensors")


class RunTarget:
    """A run to log into. One that was running before is only used; one that was begun here is ended here."""

    def __init__(self, given: Given = None, *, settings: ExperimentSettings | None = None) -> None:
        self._given = given
        self._settings = settings or ExperimentSettings()
        self._experiment: Experiment | None = None
        self._run: RunWriter | None = None
        self._is_own = False
        self._watch: FileWatch | None = None
        self.state = "new"  # new, running, ended

    @property
    def id(self) -> str:
        """The run's id; empty before the begin."""
        if self._experiment is not None:
            return self._experiment.id
        return "" if self._run is None else self._run.id

    @property
    def name(self) -> str:
        """What the run is called; empty before the begin."""
        used = self._experiment or self._run
        return "" if used is None else used.name

    def begin(self, *, name: str, params: Mapping[str, Any]) -> None:
        """Find or start the run; `name` is for one that has none. A training that never ended counts as failed."""
        if self.state == "running":
            self.end(RuntimeError("The training did not come to its end: another one was begun."))
        given = self._given if self._given is not None else active_run()
        self._experiment = self._run = None
        if isinstance(given, RunWriter):
            self._run = given
        else:
            self._experiment = (
                given
                if isinstance(given, Experiment)
                else Experiment(given or name, dict(params), **self._settings)
            )
        self._is_own = self._experiment is not None and self._experiment.state != "running"
        if self._experiment is not None and self._is_own:
            self._experiment.start_exp()
        self.state = "running"
        self.add_params(params)

    def log(self, values: Mapping[str, Any], step: int) -> None:
        """Log what is a number. After the end nothing can be kept, which is said once."""
        numbers = {key: value for key, value in values.items() if number_of(value) is not None}
        if self._is_open():
            (self._experiment or self._run).log(numbers, step=step)  # type: ignore[union-attr]
        elif numbers:
            when = "after its end" if self.state == "ended" else "before its begin"
            warn_once(
                "callback-run-ended",
                f"{', '.join(list(numbers)[:3])} came {when}, so no run has it.",
                "To keep what comes before or after a training, train inside `with lux.Experiment(...)`.",
            )

    def text(self, key: str, text: str, step: int) -> None:
        """Keep a text beside the numbers."""
        if self._is_open():
            (self._experiment or self._run).log({key: text}, step=step)  # type: ignore[union-attr]

    def add_params(self, params: Mapping[str, Any]) -> None:
        """Add parameters; those that the run has stay as they are."""
        writer = self._writer()
        if writer is not None and params:
            writer.add_params(redaction.hide_params(described(params)))

    def put_file(self, name: str, text: str) -> None:
        """Keep a text file in the run."""
        writer = self._writer()
        if writer is not None:
            writer.put_file(name, text)

    def watch(self, folder: str | Path) -> None:
        """Take the checkpoints that appear in `folder` as this run's: content hashes, and the content if not large."""
        if self.state != "running":
            return
        place = Path(folder).absolute()
        if self._experiment is not None:
            self._experiment.watch_part(place, "checkpoints", CHECKPOINTS)
        elif self._run is not None:
            self._watch = self._watch or FileWatch(self._run.folder, self._run.put_blob, ExperimentOptions())
            self._watch.add(place, "checkpoints", CHECKPOINTS)

    def end(self, error: BaseException | None = None) -> None:
        """The training has ended. A run of our own ends with it."""
        if self.state != "running":
            return
        self.state = "ended"
        if self._watch is not None and self._run is not None:
            changes = self._watch.scan(final=True)
            if changes:
                self._run.append_rows(records.FILES_TABLE, to_batch(changes))
            self._watch = None
        if self._is_own and self._experiment is not None:
            self._experiment.end_exp(error)

    def _is_open(self) -> bool:
        """Whether there is a run to log into: one that is not ours may go on after the training."""
        used = self._experiment or self._run
        return self.state == "running" or (used is not None and not self._is_own and used.state == "running")

    def _writer(self) -> RunWriter | None:
        """The run's writer; None on another rank than the first, where nothing is kept."""
        if self.state != "running":
            return None
        return self._run if self._experiment is None else self._experiment.writer
