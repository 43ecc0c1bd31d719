"""A run that another tool recorded, written into a lab with its own times: whole at once, and once only.

The id comes from what names the run in its source, so the same run imported again is found, not doubled; if its
source has grown meanwhile, the run is replaced and keeps what people added to it here (tags, note, archived).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from luxmeter.described import described
from luxmeter.errors import StoreError, warn_once
from luxmeter.files import read_json, write_file, write_json
from luxmeter.store import (
    Dropped,
    Lab,
    Process,
    SegmentWriter,
    Stored,
    Summary,
    announce,
    compact_run,
    dropped_text,
    inside,
    layout,
    to_batch,
    to_object_batch,
)

IMPORT = "import.json"
# Format history of files/import.json
# 1: format, tool, source (where it was read), key (what names it there), content (changes when the source does), facts.
FORMAT = 1
_ALPHABET = "23456789bcdfghjkmnpqrstvwxz"  # as the lab's own ids
_BATCH = 200_000  # points written at a time


@dataclass(frozen=True)
class ImportedRun:
    """What is known of a run from elsewhere. `points` are flat: key, value, step, time_ns, key, value, ..."""

    tool: str
    source: str
    key: str
    content: str
    name: str
    created_ns: int
    ended_ns: int
    state: str = "finished"
    error: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    tags: Sequence[str] = ()
    note: str = ""
    parent: str | None = None
    points: Sequence[Any] = ()
    objects: Sequence[tuple[str, int, int, Stored]] = ()  # key, step, time_ns, value
    files: Mapping[str, bytes | Path] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


def imported_id(tool: str, key: str, created_ns: int) -> str:
    """The id that a run from elsewhere has in every lab."""
    number = int.from_bytes(hashlib.sha256(f"{tool}\0{key}".encode()).digest()[:8])
    letters = ""
    for _ in range(5):
        number, place = divmod(number, len(_ALPHABET))
        letters += _ALPHABET[place]
    # In UTC: the id must not depend on where it is imported.
    stamp = datetime.fromtimestamp(created_ns // 1_000_000_000, tz=UTC).strftime("%Y%m%d-%H%M%S")
    return f"{letters}-{stamp}"


def is_known(lab: Lab, tool: str, key: str, content: str, created_ns: int) -> str | None:
    """The id of the run if the lab has it with just this content, else None."""
    run_id = imported_id(tool, key, created_ns)
    seen = read_json(lab.folder / layout.RUNS / run_id / layout.FILES / IMPORT)
    return run_id if seen is not None and seen["key"] == key and seen["content"] == content else None


def write_imported(lab: Lab, run: ImportedRun) -> str:
    """Put the run into the lab unless it is there with this content; returns its id."""
    run_id = imported_id(run.tool, run.key, run.created_ns)
    target = lab.folder / layout.RUNS / run_id
    seen = read_json(target / layout.FILES / IMPORT)
    if seen is not None and seen["key"] == run.key and seen["content"] == run.content:
        return run_id
    if target.exists() and (seen is None or seen["key"] != run.key):
        raise StoreError(
            "run-exists", f"This lab already has another run {run_id}.", "Remove one of the two first."
        )
    building = target.with_name(f".{run_id}.{os.getpid()}")
    shutil.rmtree(building, ignore_errors=True)
    try:
        _build(lab, building, run_id, run, marks=read_json(target / layout.MARKS))
        _put_in_place(building, target)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    announce(lab.folder, run_id)
    return run_id


def _build(lab: Lab, folder: Path, run_id: str, run: ImportedRun, *, marks: Any) -> None:
    (folder / layout.FILES).mkdir(parents=True)
    (folder / layout.ALIVE).touch()
    summaries: dict[str, Summary] = {}
    dropped: list[Dropped] = []
    if run.points:
        writer = SegmentWriter(folder / layout.TABLES / layout.METRICS)
        for start in range(0, len(run.points), 4 * _BATCH):
            batch = to_batch(list(run.points[start : start + 4 * _BATCH]), summaries, dropped)
            if batch.num_rows:
                writer.append(batch)
        writer.close()
    if run.objects:
        rows = [
            (key, step, time_ns, stored.kind, stored.text, lab.pool.put(stored.body, folder) if stored.body else "",
             stored.suffix)
            for key, step, time_ns, stored in run.objects
        ]  # fmt: skip
        writer = SegmentWriter(folder / layout.TABLES / layout.OBJECTS)
        if (batch := to_object_batch(rows, dropped)).num_rows:
            writer.append(batch)
        writer.close()
    if dropped:
        words = f"Of {run.name!r} (from {run.tool}) {dropped_text(dropped)}."
        warn_once("points-dropped", words, "All others are kept.", key=words)
    compact_run(folder)
    for name, content in run.files.items():
        place = inside(folder / layout.FILES, name)
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            write_file(place, content)
        else:
            shutil.copyfile(content, place)
    record = {
        "format": FORMAT,
        "tool": run.tool,
        "source": run.source,
        "key": run.key,
        "content": run.content,
    }
    write_json(folder / layout.FILES / IMPORT, {**record, "facts": dict(run.facts)})
    if run.params:
        write_json(folder / layout.PARAMS, described(run.params))
    if run.environment:
        write_json(folder / layout.ENVIRONMENT, dict(run.environment))
    if summaries:
        write_json(folder / layout.SUMMARY, {key: summary.record() for key, summary in summaries.items()})
    fresh = {"tags": list(dict.fromkeys(run.tags)), "note": run.note, "archived": False}
    write_json(folder / layout.MARKS, marks or fresh)
    ended = {"state": run.state, "ended_ns": run.ended_ns, "error": run.error, "lost_rows": len(dropped)}
    write_json(folder / layout.STATUS, ended, durable=True)
    identity = {
        "format": layout.RUN_FORMAT,
        "id": run_id,
        "name": run.name.strip() or "unnamed",
        "kind": "run",
        "parent": run.parent,
        "created_ns": run.created_ns,
        "process": vars(Process.here()),
    }
    write_json(folder / layout.IDENTITY, identity, durable=True)


def _put_in_place(building: Path, target: Path) -> None:
    """Rename; the run that was there before stays until the new one is, and comes back if that fails."""
    if not target.exists():
        os.replace(building, target)
        return
    before = target.with_name(f"{building.name}.before")
    shutil.rmtree(before, ignore_errors=True)
    os.replace(target, before)
    try:
        os.replace(building, target)
    except OSError:
        with contextlib.suppress(OSError):
            os.replace(before, target)
        raise
    shutil.rmtree(before, ignore_errors=True)
