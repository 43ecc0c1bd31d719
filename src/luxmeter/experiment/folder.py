"""The folder form of an experiment: `Experiment("./exp")` keeps its parts there, and a record of each of its runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from luxmeter.errors import UsageError
from luxmeter.files import write_json
from luxmeter.store import FileChange, Run, RunWriter, inside

RECORDS = "luxmeter-runs"
FORMAT = 1  # 1: luxmeter-runs/<id>.json with id, name, run (folder), state, files, code


def folder_of(name: str | os.PathLike[str]) -> Path | None:
    """The folder that `name` means: of a Path, or of a string that starts with `.`, `/` or `~`; else None."""
    if isinstance(name, str) and not name.startswith((".", "/", "~")):
        return None
    try:
        folder = Path(os.path.normpath(Path(name).expanduser().absolute()))
    except RuntimeError as error:
        raise UsageError(
            "experiment-folder", f"There is no folder {name}: {error}", "Check the name."
        ) from error
    if "\0" in str(folder) or not folder.name:
        raise UsageError(
            "experiment-folder", f"{str(name)!r} cannot hold an experiment.", "Name a folder of its own."
        )
    return folder


class ExperimentFolder:
    """A folder with the parts of an experiment. Made at once, so that what cannot be written is told at once."""

    def __init__(self, place: Path) -> None:
        self.place = place
        try:
            (place / RECORDS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                "experiment-folder",
                f"The experiment cannot be kept in {place}: {error.strerror or error}.",
                "Give a folder that can be written, or a name: then its parts lie in its run.",
            ) from error

    def part(self, name: str) -> Path:
        """The folder of a part."""
        return inside(self.place, name)

    def note_start(self, run: RunWriter) -> None:
        """Leave the record of a run that has begun."""
        record = {
            "format": FORMAT,
            "id": run.id,
            "name": run.name,
            "run": str(run.folder),
            "state": "running",
        }
        write_json(self._record(run.id), record)

    def note_end(self, run: Run, changes: Sequence[FileChange]) -> None:
        """Complete it: how it ended, which files changed, which code ran."""
        code = run.snapshot
        write_json(
            self._record(run.id),
            {
                "format": FORMAT,
                "id": run.id,
                "name": run.name,
                "run": str(run.folder),
                "state": run.state,
                "created_ns": run.created_ns,
                "ended_ns": run.ended_ns,
                "files": [vars(change) for change in changes],
                "code": None if code is None else {"root": code.root, "files": code.files},
            },
        )

    def _record(self, run_id: str) -> Path:
        return self.place / RECORDS / f"{run_id}.json"
