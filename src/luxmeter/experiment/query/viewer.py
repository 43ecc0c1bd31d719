"""`ExperimentViewer`: look through the experiments that were made, and find which of them left a file."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from luxmeter.errors import LuxmeterError, StoreError, UsageError, warn_once
from luxmeter.experiment.query.conditions import C
from luxmeter.experiment.query.runs import find_run, open_lab, runs
from luxmeter.files import sha256_of
from luxmeter.settings import find_lab
from luxmeter.store import FileChange, Lab, Run, layout

Made = dict[str, list[dict[str, Any]]]  # run id -> files it made


class ExperimentViewer:
    """The experiments of a lab. Everything comes back as plain dictionaries, by run id, newest first."""

    def __init__(self, lab: Lab | str | Path | None = None) -> None:
        self._lab: Lab | str | Path | None = lab

    def list(self) -> dict[str, dict[str, Any]]:
        """All runs: id -> name, state, when, how long, parameters, last metrics, tags, note."""
        return {row.id: row.record() for row in runs(lab=self._lab, archived=None).rows}

    def recent(self, timedeltaobj: timedelta = timedelta(days=1)) -> dict[str, dict[str, Any]]:
        """As `list`, of the runs that began within this time."""
        began = C.created >= datetime.now().astimezone() - timedeltaobj
        return {row.id: row.record() for row in runs(began, lab=self._lab, archived=None).rows}

    def backtracking(self, file: str | Path) -> Made:
        """Which runs made a file, found by its content wherever it lies now; or all files with a suffix, by run.

        A text that is no file and has no folder in it is a suffix: "ckpt", ".pth". Each run has a list of
        {path, part, event, sha256, size_bytes, time, kept}.
        """
        if isinstance(file, str) and not Path(file).is_file() and not _looks_like_path(file):
            ending = "." + file.lstrip(".")
            return self._files(ending=ending)
        path = Path(file).expanduser()
        if not path.is_file():
            raise UsageError(
                "file-to-trace-back",
                f"There is no file {str(path)!r}.",
                "Give a file that is there, or a suffix such as ckpt.",
            )
        content = sha256_of(path)
        found = self._files(sha256=content)
        for run_id, row in self._inside_a_run(path, content).items():
            found.setdefault(run_id, row)
        return found

    def exp_info(self, exp_id: str) -> dict[str, Any]:
        """Everything that is known of one run, by its id or another name of it."""
        return self._find(exp_id).record()

    def exp_code(self, exp_id: str) -> dict[str, str]:
        """The source files that ran: path -> full text."""
        return self._find(exp_id).code

    # -- inside ---------------------------------------------------------------------------------------------------

    def _find(self, reference: str) -> Run:
        return find_run(reference, lab=self._lab)

    def _files(self, *, sha256: str = "", ending: str = "") -> Made:
        if self._lab is None and not find_lab().exists:
            return {}
        lab = open_lab(self._lab, create=False)
        found: Made = {}
        for head in lab.catalog.select_heads("", archived=None):
            try:
                changes = [
                    _made(change)
                    for change in Run.listed(head, lab.folder).changed_files
                    if change.event != "removed"
                    and (not sha256 or change.sha256 == sha256)
                    and change.path.endswith(ending)
                ]
            except LuxmeterError as error:  # this run's table is damaged: the others tell what they made
                warn_once("table-damaged", error.what, "What that run made is not among these.", key=head.id)
                continue
            if changes:
                found[head.id] = changes
        return found

    def _inside_a_run(self, path: Path, content: str) -> Made:
        """A file that lies in a run's own directory belongs to it."""
        for folder in path.resolve().parents:
            if (folder / "run.json").is_file() and folder.parent.name == layout.RUNS:
                try:
                    run = Run(folder)
                except StoreError:
                    return {}
                seen = path.stat()
                return {
                    run.id: [
                        {
                            "path": str(path.resolve()),
                            "part": "run",
                            "event": "created",
                            "sha256": content,
                            "size_bytes": seen.st_size,
                            "time": _time(int(seen.st_mtime * 1e9)),
                            "kept": True,
                        }
                    ]
                }
        return {}


def _made(change: FileChange) -> dict[str, Any]:
    return {
        "path": str(Path(change.folder) / change.path),
        "part": change.part,
        "event": change.event,
        "sha256": change.sha256,
        "size_bytes": change.size_bytes,
        "time": _time(change.time_ns),
        "kept": change.kept,
    }


def _time(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / 1e9).isoformat(sep=" ", timespec="seconds")


def _looks_like_path(text: str) -> bool:
    return os.sep in text or text.startswith("~") or "." in text.lstrip(".") or not text.strip(".")
