"""`ExperimentViewer`: look through the experiments that were made, and find which of them left a file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from luxmeter.errors import LuxmeterError, StoreError, UsageError, warn_once
from luxmeter.experiment import records
from luxmeter.experiment.kept.kept_run import KeptRun
from luxmeter.experiment.kept.run_query import C
from luxmeter.experiment.kept.runs import find_run, open_lab, runs
from luxmeter.files import sha256_of
from luxmeter.settings import find_lab
from luxmeter.store import Lab, Run, RunRow
from luxmeter.store.layout import RUNS, TABLES
from luxmeter.store.segments import read_segments, reading

Made = dict[str, list[dict[str, Any]]]  # run id -> files it made


class ExperimentViewer:
    """The experiments of a lab. Everything comes back as plain dictionaries, by run id, newest first."""

    def __init__(self, lab: Lab | str | Path | None = None) -> None:
        self._lab: Lab | str | Path | None = lab

    def list(self) -> dict[str, dict[str, Any]]:
        """All runs: id -> name, status, when, how long, parameters, last metrics, tags, note."""
        return {row.id: short(row) for row in runs(lab=self._lab, archived=None).rows}

    def recent(self, timedeltaobj: timedelta = timedelta(days=1)) -> dict[str, dict[str, Any]]:
        """As `list`, of the runs that began within this time."""
        began = C.created >= datetime.now().astimezone() - timedeltaobj
        return {row.id: short(row) for row in runs(began, lab=self._lab, archived=None).rows}

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
        return describe(self._find(exp_id))

    def exp_code(self, exp_id: str) -> dict[str, str]:
        """The source files that ran: path -> full text."""
        return self._find(exp_id).code

    # -- inside ---------------------------------------------------------------------------------------------------

    def _find(self, reference: str) -> KeptRun:
        return find_run(reference, lab=self._lab)

    def _files(self, *, sha256: str = "", ending: str = "") -> Made:
        if self._lab is None and not find_lab().exists:
            return {}
        lab = open_lab(self._lab, create=False)
        found: Made = {}
        for head in lab.catalog.select_heads("", archived=None):
            try:
                changes = list(_changes(lab.folder / RUNS / head.id, sha256=sha256, ending=ending))
            except LuxmeterError as error:  # this run's table is damaged: the others tell what they made
                warn_once("table-damaged", error.what, "What that run made is not among these.", key=head.id)
                continue
            if changes:
                found[head.id] = changes
        return found

    def _inside_a_run(self, path: Path, content: str) -> Made:
        """A file that lies in a run's own directory belongs to it."""
        for folder in path.resolve().parents:
            if (folder / "run.json").is_file() and folder.parent.name == RUNS:
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


def describe(run: KeptRun) -> dict[str, Any]:
    """Everything that is known of a run, as plain values."""
    code = records.read_code(run.stored)
    command = run.command
    git = {k: v for k, v in code.git.items() if k != "diff"} if code and code.git else None
    return {
        "id": run.id,
        "name": run.name,
        "kind": run.stored.identity.get("kind", "run"),
        "status": run.status,
        "error": run.error,
        "created": run.created.isoformat(timespec="seconds"),
        "duration": run.duration,
        "parent": run.parent,
        "children": run.children,
        "tags": run.tags,
        "note": run.note,
        "archived": run.archived,
        "params": dict(run.params),
        "metrics": run.metrics,
        "command": None if command is None else command.record(),
        "code": None if code is None else {"root": code.root, "files": sorted(code.files), "git": git},
        "changes": "" if code is None or not code.git else str(code.git.get("diff", "")),
        "environment": run.environment,
        "files": run.files,
        "process": run.stored.identity.get("process"),
        "folder": str(run.folder),
    }


def _changes(run_folder: Path, *, sha256: str, ending: str) -> Iterable[dict[str, Any]]:
    folder = run_folder / TABLES / records.FILES_TABLE
    if not folder.is_dir():  # most runs of a large lab: not even opened
        return
    with reading(folder):
        table = read_segments(folder)
        rows = (
            []
            if table is None
            else table.cast(records.FILES_SCHEMA.remove_metadata()).drop_null().to_pylist()
        )
    for row in rows:
        if row["event"] == "removed" or (sha256 and row["sha256"] != sha256):
            continue
        if ending and not row["path"].endswith(ending):
            continue
        yield {
            "path": str(Path(row["folder"]) / row["path"]),
            "part": row["part"],
            "event": row["event"],
            "sha256": row["sha256"],
            "size_bytes": row["size_bytes"],
            "time": _time(row["time_ns"]),
            "kept": row["kept"],
        }


def short(row: RunRow) -> dict[str, Any]:
    """A run as lists give it, as plain values."""
    return {
        "name": row.name,
        "status": row.state,
        "created": _time(row.created_ns),
        "duration": row.duration_s,
        "params": row.params,
        "metrics": {key: summary["last"] for key, summary in row.metrics.items()},
        "tags": row.tags,
        "note": row.note,
        "archived": bool(row.archived),
    }


def _time(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / 1e9).isoformat(sep=" ", timespec="seconds")


def _looks_like_path(text: str) -> bool:
    return os.sep in text or text.startswith("~") or "." in text.lstrip(".") or not text.strip(".")
