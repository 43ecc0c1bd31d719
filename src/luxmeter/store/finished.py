"""A run that is over, put into a lab whole: what other tools kept comes in this way."""

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
from luxmeter.errors import warn_once
from luxmeter.files import read_json, write_file, write_json
from luxmeter.store import layout
from luxmeter.store.blobs import BlobPool
from luxmeter.store.journal import announce
from luxmeter.store.points import Dropped, Summary, dropped_text, to_batch, to_object_batch
from luxmeter.store.segments import SegmentWriter
from luxmeter.store.values import Stored
from luxmeter.store.writer import compact_run, identity_of, inside

_BATCH = 200_000  # points written at a time


@dataclass(frozen=True)
class FinishedRun:
    """All that a run holds. `points` are flat: key, value, step, time_ns, key, value, ..."""

    id: str
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


def id_of_origin(origin: str, created_ns: int) -> str:
    """The id that what came from there has in every lab."""
    number = int.from_bytes(hashlib.sha256(origin.encode()).digest()[:8])
    letters = ""
    for _ in range(5):
        number, place = divmod(number, len(layout.ID_LETTERS))
        letters += layout.ID_LETTERS[place]
    # In UTC: the id must not depend on where it is imported.
    stamp = datetime.fromtimestamp(created_ns // 1_000_000_000, tz=UTC).strftime("%Y%m%d-%H%M%S")
    return f"{letters}-{stamp}"


def put_finished(lab_folder: Path, run: FinishedRun) -> None:
    """Put the run into the lab, in place of one with its id, whose tags and note stay. Whole or not at all."""
    target = lab_folder / layout.RUNS / layout.named("run", run.id)
    building = target.with_name(f".{run.id}.{os.getpid()}")
    shutil.rmtree(building, ignore_errors=True)
    try:
        _build(building, run, BlobPool(lab_folder), marks=read_json(target / layout.MARKS))
        _put_in_place(building, target)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    announce(lab_folder, run.id)


def _build(folder: Path, run: FinishedRun, pool: BlobPool, *, marks: Any) -> None:
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
            (key, step, time_ns, stored.kind, stored.text, pool.put(stored.body, folder) if stored.body else "",
             stored.suffix)
            for key, step, time_ns, stored in run.objects
        ]  # fmt: skip
        writer = SegmentWriter(folder / layout.TABLES / layout.OBJECTS)
        if (batch := to_object_batch(rows, dropped)).num_rows:
            writer.append(batch)
        writer.close()
    if dropped:
        words = f"Of {run.name!r} {dropped_text(dropped)}."
        warn_once("points-dropped", words, "All others are kept.", key=words)
    compact_run(folder)
    for name, content in run.files.items():
        place = inside(folder / layout.FILES, name)
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            write_file(place, content)
        else:
            shutil.copyfile(content, place)
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
    identity = identity_of(
        run.id, run.name.strip() or "unnamed", parent=run.parent, created_ns=run.created_ns
    )
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
