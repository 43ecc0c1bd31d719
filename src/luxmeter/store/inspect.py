"""What is damaged in a lab, and what can be done about each: every byte that has a checksum is looked at, nothing is changed."""

from __future__ import annotations

import contextlib
import sqlite3
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from luxmeter.errors import LuxmeterError
from luxmeter.files import read_json, sha256_of
from luxmeter.settings import LAB_FILE, SETTINGS_FILE
from luxmeter.store import checked, layout
from luxmeter.store.catalog import row_of
from luxmeter.store.rank_writer import rank_folders
from luxmeter.store.results import results_of
from luxmeter.store.run import Run
from luxmeter.store.segments import damage_in

_COPY = "restore it from a copy"


@dataclass(frozen=True)
class Damage:
    """One thing that is not as it was written: where (below the lab), what, and what mends it."""

    place: str
    what: str
    mend: str


def damage_of_lab(lab: Path, *, progress: Callable[[int], None] = lambda n: None) -> list[Damage]:
    """Look at all of a lab."""
    found: list[Damage] = []
    for name in (LAB_FILE, SETTINGS_FILE):
        found += _tried(lab, lab / name, lambda name=name: read_json(lab / name), _COPY)  # type: ignore[misc]
    for pattern in layout.STAGING:
        found += [_left(lab, path) for path in sorted(lab.glob(pattern))]
    runs = lab / layout.RUNS
    for number, folder in enumerate(sorted(runs.iterdir()) if runs.is_dir() else []):
        progress(number)
        if folder.name.startswith("."):
            found.append(_left(lab, folder))
        elif folder.is_dir() and not folder.is_symlink():
            found += _of_run(lab, folder)
    found += _of_blobs(lab, lab / layout.BLOBS)
    found += _of_databases(lab)
    return found


def _of_run(lab: Path, folder: Path) -> Iterator[Damage]:
    if checked.is_half_made(folder):
        yield Damage(_below(lab, folder), "a run that was never begun", "luxmeter gc removes it")
        return
    mend = f"{_COPY}, or remove the run: luxmeter rm {folder.name}"
    yield from _tried(lab, folder, lambda: row_of(Run(folder)), mend)
    for part in (folder, *rank_folders(folder).values()):
        for table in sorted((part / layout.TABLES).glob("*")):
            try:
                for what in damage_in(table):
                    yield Damage(_below(lab, table), what, f"{_COPY}; all else in it is read")
            except (LuxmeterError, OSError) as error:
                yield Damage(_below(lab, table), _said(error), _COPY)
    yield from _of_blobs(lab, folder / layout.BLOBS)
    yield from _tried(lab, folder / layout.RESULTS, lambda: results_of(folder), _COPY)
    for name in ("code.json", "command.json", layout.SUMMARY):
        yield from _tried(lab, folder / name, lambda name=name: read_json(folder / name), _COPY)  # type: ignore[misc]


def _of_blobs(lab: Path, folder: Path) -> Iterator[Damage]:
    for blob in sorted(folder.glob("*/*")):
        if layout.is_named("blob", blob.name):
            with contextlib.suppress(FileNotFoundError):
                try:
                    right = sha256_of(blob) == blob.name
                except PermissionError as error:
                    yield Damage(_below(lab, blob), _said(error), "give rights to read it")
                    continue
                if not right:
                    yield Damage(_below(lab, blob), "it does not hold what its name says", _COPY)


def _of_databases(lab: Path) -> Iterator[Damage]:
    derived = dict.fromkeys((lab / layout.INDEX).glob("*.sqlite"), "luxmeter reindex makes it anew")
    for path, mend in {**derived, lab / layout.QUEUE / "jobs.sqlite": _COPY}.items():
        if not path.is_file():
            continue
        try:
            with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
                [answer] = database.execute("pragma quick_check(1)").fetchone()
        except sqlite3.Error as error:
            answer = str(error)
        if answer != "ok":
            yield Damage(_below(lab, path), str(answer), mend)


def _tried(lab: Path, place: Path, look: Callable[[], object], mend: str) -> Iterator[Damage]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            look()
    except (LuxmeterError, OSError) as error:
        yield Damage(_below(lab, place), _said(error), mend)


def _left(lab: Path, path: Path) -> Damage:
    return Damage(
        _below(lab, path), "left by something that was killed, or is at work", "luxmeter gc removes it"
    )


def _below(lab: Path, path: Path) -> str:
    return path.relative_to(lab).as_posix()


def _said(error: Exception) -> str:
    return error.what if isinstance(error, LuxmeterError) else str(error)
