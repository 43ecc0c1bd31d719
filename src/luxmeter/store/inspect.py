"""What is damaged in a lab, and what can be done about each: every byte that has a checksum is looked at, nothing is changed."""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from luxmeter.by_name import by_name
from luxmeter.errors import LuxmeterError
from luxmeter.files import sha256_of
from luxmeter.settings import LAB_FILE, SETTINGS_FILE
from luxmeter.store import checked, layout, records
from luxmeter.store.catalog import row_of
from luxmeter.store.lab import Lab
from luxmeter.store.rank_writer import rank_folders
from luxmeter.store.results import results_of
from luxmeter.store.run import Run
from luxmeter.store.segments import damage_in

_COPY = "restore it from a copy"
_QUEUE_AGAIN = f"{_COPY}, or cancel the jobs that wait with it (luxmeter queue) and add them again"
_FILES: dict[str, Callable[[Path], object]] = {  # of a run, beside what its row is made of
    layout.SOURCES: checked.read_sources,
    f"{layout.FILES}/{records.COMMAND}": records.read_command,
    f"{layout.FILES}/{records.CODE}": records.read_code,
    f"{layout.FILES}/{records.RANDOM}": records.read_random,
    f"{layout.FILES}/{records.ENDING}": records.read_ending,
    f"{layout.FILES}/trainer.json": lambda run: checked.read_mapping(run / layout.FILES / "trainer.json"),
    f"{layout.FILES}/import.json": lambda run: checked.read_mapping(run / layout.FILES / "import.json"),
}


@dataclass(frozen=True)
class Damage:
    """One thing that is not as it was written: where (below the lab), what, and what mends it."""

    place: str
    what: str
    mend: str


def damage_of_lab(lab: Path, *, progress: Callable[[int], None] = lambda n: None) -> list[Damage]:
    """Look at all of a lab."""
    found: list[Damage] = []
    found += _tried(lab, lab / LAB_FILE, lambda: Lab.open(lab, create=False), _COPY)
    found += _tried(lab, lab / SETTINGS_FILE, lambda: checked.read_mapping(lab / SETTINGS_FILE), _COPY)
    for pattern in layout.STAGING:
        found += [_left(lab, path) for path in sorted(lab.glob(pattern))]
    runs = lab / layout.RUNS
    for number, folder in enumerate(sorted(runs.iterdir()) if runs.is_dir() else []):
        progress(number)
        if folder.name.startswith("."):
            found.append(_left(lab, folder))
        elif folder.is_dir() and not folder.is_symlink():
            found += _of_run(lab, folder)
    found += _of_traces(lab, lab / layout.TRACES)
    found += _of_blobs(lab, lab / layout.BLOBS)
    for code in sorted((lab / layout.QUEUE / "code").glob("*")):
        record = code / records.CODE
        found += _tried(lab, record, functools.partial(checked.read_mapping, record), _QUEUE_AGAIN)
        found += _of_blobs(lab, code / layout.BLOBS, _QUEUE_AGAIN)
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
        yield from _tried(lab, part / layout.SUMMARY, functools.partial(checked.read_summary, part), _COPY)
    yield from _of_blobs(lab, folder / layout.BLOBS)
    yield from _of_traces(lab, folder / layout.CALLS)
    for result in results_of(folder):
        if result.kind != "trace":
            yield from _tried(lab, result.folder, result.load, f"{_COPY}, or measure it again")
    for name, look in _FILES.items():
        yield from _tried(lab, folder / name, functools.partial(look, folder), _COPY)
    with contextlib.suppress(ImportError):  # without torch nobody reads them here
        for place, what in by_name("damage of checkpoints")(folder / layout.FILES):
            yield Damage(_below(lab, place), what, f"{_COPY}; the ones before it are as they were")


def _of_traces(lab: Path, folder: Path) -> Iterator[Damage]:
    for trace in sorted(folder.glob("[!.]*")):
        if trace.is_dir() and not trace.is_symlink():
            for place, what in by_name("damage of trace")(trace):
                yield Damage(_below(lab, place), what, f"{_COPY}, or trace again; all else in it is read")


def _of_blobs(lab: Path, folder: Path, mend: str = _COPY) -> Iterator[Damage]:
    for blob in sorted(folder.glob("*/*")):
        if layout.is_named("blob", blob.name):
            with contextlib.suppress(FileNotFoundError):
                try:
                    right = sha256_of(blob) == blob.name
                except FileNotFoundError:
                    raise
                except OSError as error:
                    yield Damage(_below(lab, blob), _said(error), _mend_of(error, mend))
                    continue
                if not right:
                    yield Damage(_below(lab, blob), "it does not hold what its name says", mend)


def _of_databases(lab: Path) -> Iterator[Damage]:
    derived = dict.fromkeys((lab / layout.INDEX).glob("*.sqlite"), "luxmeter reindex makes it anew")
    for path, mend in {**derived, lab / layout.QUEUE / "jobs.sqlite": _COPY}.items():
        if not path.is_file():
            continue
        # Where nothing may be written nothing changes, and SQLite must not lay its own files beside it.
        how = "mode=ro" if os.access(path.parent, os.W_OK) else "mode=ro&immutable=1"
        try:
            with contextlib.closing(sqlite3.connect(f"file:{quote(str(path))}?{how}", uri=True)) as database:
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
    except ImportError:
        return  # without torch nobody reads it here
    except (LuxmeterError, OSError) as error:
        yield Damage(_below(lab, place), _said(error), _mend_of(error, mend))


def _mend_of(error: Exception, mend: str) -> str:
    return "give rights to read it" if isinstance(error, PermissionError) else mend


def _left(lab: Path, path: Path) -> Damage:
    return Damage(
        _below(lab, path), "left by something that was killed, or is at work", "luxmeter gc removes it"
    )


def _below(lab: Path, path: Path) -> str:
    return path.relative_to(lab).as_posix()


def _said(error: Exception) -> str:
    return error.what if isinstance(error, LuxmeterError) else str(error)
