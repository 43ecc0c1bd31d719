"""Which run an address names; nothing that lies outside of the lab is read for it."""

from __future__ import annotations

import os
from pathlib import Path

from luxmeter.errors import StoreError
from luxmeter.experiment import find_run, open_lab
from luxmeter.store import Result, Run, layout


def run_of(lab: Path, reference: str) -> Run:
    """The run by id, its beginning, name, tag, `latest~1`; never by a path."""
    unknown = StoreError(
        "run-not-found", f"There is no run {reference!r} in this lab.", "The list of runs has all."
    )
    if reference in ("", ".", "..") or set(reference) & set("/\\\0"):
        raise unknown
    try:
        run = find_run(reference, lab=lab)
    except StoreError as error:
        raise (unknown if error.slug == "not-a-run" else error) from None
    if run.folder.parent != lab / layout.RUNS:  # a folder of that name where the server was started
        raise unknown
    _stays_inside(run.folder, lab)
    return run


def file_of(run: Run, name: str, lab: Path) -> bytes:
    """The content of one of its files."""
    missing = StoreError("file-missing", f"Run {run.id} has no file {name!r}.", "Its page lists its files.")
    if name not in run.files:
        raise missing
    if _leads_out(run.folder / layout.FILES / name, os.path.realpath(lab)):
        raise missing
    return run.read_file(name)


def trace_of(lab: Path, reference: str) -> Result:
    """A trace that belongs to no run, by its id."""
    for found in open_lab(lab, create=False).traces():
        if found.folder.name == reference:
            _stays_inside(found.folder, lab)
            return found
    raise StoreError(
        "trace-not-found", f"There is no trace {reference!r} in this lab.", "The list of traces has all."
    )


def _stays_inside(folder: Path, lab: Path) -> None:
    """Its records are its own; the files that were put into it are looked at when they are read."""
    home, given = os.path.realpath(lab), str(folder / layout.FILES)
    places = [str(folder)]
    outside = folder.is_symlink() and _leads_out(folder, home)
    while places and not outside:
        with os.scandir(places.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    outside = outside or _leads_out(Path(entry.path), home)
                elif entry.path != given and entry.is_dir():
                    places.append(entry.path)
    if outside:
        raise StoreError(
            "run-leads-out", f"{folder.name} holds a link that leads out of the lab.", "It is not shown: look at its folder yourself."
        )  # fmt: skip


def _leads_out(path: Path, home: str) -> bool:
    return os.path.commonpath([os.path.realpath(path), home]) != home
