"""Which run a run was begun in: in the same process, or in one that this process was started by."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from luxmeter.errors import UsageError
from luxmeter.experiment.reproduce import handover
from luxmeter.store import Lab, RunWriter, records, run_around

VARIABLE = (
    "LUXMETER_PARENT"  # set while an experiment runs, for the processes it starts: the folder of its run
)


class _Entry:
    """A run that this process tells its children of."""

    def __init__(self, folder: str, by_main: bool) -> None:
        self.folder, self.by_main = folder, by_main


_lock = threading.Lock()
_entered: list[_Entry] = []
_before: str | None = None  # what the variable said when there was none


class Parent(NamedTuple):
    """The run above."""

    id: str
    folder: Path


def outer_run() -> Parent | None:
    """The run that this thread is in, or the main thread, or the process that started this one."""
    active = run_around()
    if active is not None:
        return Parent(active.id, active.folder)
    folder = Path(_told() or "/nowhere")
    return Parent(folder.name, folder) if (folder / "run.json").is_file() else None


def parent_of(given: Any, lab: Lab) -> Parent | None:
    """The parent that was named, or the run that this one begins in, or the one that it repeats."""
    if given is None:
        repeats = handover.order()
        folder = repeats.folder if repeats else None
        return outer_run() or (Parent(folder.name, folder) if folder else None)
    if isinstance(given, str):
        folder = lab.folder / "runs" / given
        if os.sep not in given and (folder / "run.json").is_file():
            return Parent(given, folder)
        given = lab.find(given)
    if not getattr(given, "id", None) or not isinstance(getattr(given, "folder", None), Path):
        raise UsageError(
            "parent-what",
            f"The parent of an experiment cannot be {given!r}.",
            "Give a running or ended Experiment, a run, or a run's id.",
        )
    return Parent(given.id, given.folder)


def same_lab(given: Any, lab: Lab | None) -> bool:
    """Whether the lab that was given, if any, is this one."""
    place = given.folder if isinstance(given, Lab) else given
    return place is None or (lab is not None and Path(place).expanduser().absolute() == lab.folder)


def note_child(parent_folder: Path, run_id: str) -> None:
    """Write the child down in its parent's run: one small append, so that many processes may do it."""
    place = parent_folder / records.FILES_FOLDER
    with contextlib.suppress(
        OSError
    ):  # the parent's folder may be another's, or gone: the child is kept all the same
        place.mkdir(exist_ok=True)
        number = os.open(place / records.CHILDREN, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(number, f"{run_id}\n".encode())
        finally:
            os.close(number)


@contextlib.contextmanager
def in_environment(run_folder: Path) -> Iterator[None]:
    """Tell processes that are started inside which run they belong to."""
    global _before
    entry = _Entry(str(run_folder), threading.current_thread() is threading.main_thread())
    with _lock:
        if not _entered:
            _before = os.environ.get(VARIABLE)
        _entered.append(entry)
        os.environ[VARIABLE] = entry.folder
    try:
        yield
    finally:
        with _lock:  # threads end in any order
            _entered.remove(entry)
            last = _entered[-1].folder if _entered else _before
            if last is None:
                os.environ.pop(VARIABLE, None)
            else:
                os.environ[VARIABLE] = last


def _told() -> str | None:
    """What the variable says, but for what other threads of this process put there: they are no parents of this one."""
    said = os.environ.get(VARIABLE)
    with _lock:
        if said not in [entry.folder for entry in _entered]:
            return said
        return next((entry.folder for entry in reversed(_entered) if entry.by_main), _before)


@contextlib.contextmanager
def forgiving(entered: contextlib.AbstractContextManager[RunWriter]) -> Iterator[None]:
    """Leaving in another thread than entering (a signal, the end of the program) is no error."""
    with contextlib.suppress(ValueError), entered:
        yield
