"""Between `luxmeter reproduce`, or the queue, and the program that it starts: one file says which run is repeated, or
which id and code are kept for the run, and hears which runs are made.

Its first line is the order. Each run that the program makes, unless it lies in another run of it, adds a line: its folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from luxmeter import scratch
from luxmeter.errors import LuxmeterError, warn_once
from luxmeter.experiment.seed import start_state
from luxmeter.loaded import loaded
from luxmeter.store import Run, records

VARIABLE = "LUXMETER_HANDOVER"  # the file, for the program
_random_from: Path | None = None  # the run whose random state the one that begins is to start from
_job_draws = False  # as the run that the program was started for did


class LaidOut(NamedTuple):
    """Code that was kept earlier, and lies in a folder of its own for this program."""

    folder: Path
    root: str  # the project that it was taken from
    git: Mapping[str, Any] | None

    def holds(self, words: Sequence[str]) -> bool:
        """Whether one of these words, as of a command line, names a path of it."""
        return any(Path(word).is_relative_to(self.folder) for word in words)

    def as_typed(self, word: str) -> str:
        """A word of the command line as it was typed in the project: this folder will be gone."""
        if not Path(word).is_relative_to(self.folder):
            return word
        return os.path.relpath(Path(self.root) / Path(word).relative_to(self.folder))


class Order(NamedTuple):
    """What the program is started for."""

    folder: Path | None  # of the run that is repeated, the parent of those that are made
    name: str
    random_state: bool  # whether draws are to be the same again
    job: Mapping[str, Any] | None = None  # what is to be done instead: then no run is made
    run_id: str = ""  # reserved for the first run that is made
    tags: tuple[str, ...] = ()  # of that run
    code: LaidOut | None = None


@contextlib.contextmanager
def handed_over(run: Run, *, random_state: bool, job: Mapping[str, Any] | None = None) -> Iterator[Path]:
    """The file, for as long as the program runs."""
    with scratch.folder("handover") as folder:
        file = folder / "order"
        write_order(file, Order(run.folder, run.name, random_state, job))
        yield file


def write_order(file: Path, order: Order) -> None:
    """Make the file. It must be there for as long as the program runs."""
    told = order._asdict()
    told["folder"] = None if order.folder is None else str(order.folder)
    told["code"] = None if order.code is None else [str(order.code.folder), *order.code[1:]]
    file.write_text(json.dumps(told) + "\n", encoding="utf-8")


def run_made(file: Path, name: str) -> Run | None:
    """Of the runs that the program made and kept, the first of this name; else the first."""
    folders = [Path(line) for line in _lines(file)[1:]]
    # `luxmeter run` discards its own for one that the program keeps elsewhere.
    made = [Run(folder, folder.parent.parent) for folder in folders if (folder / "run.json").is_file()]
    return next((run for run in made if run.name == name), made[0] if made else None)


# -- in the program ---------------------------------------------------------------------------------------------------


def order() -> Order | None:
    """What this process was started for; None if a user started it."""
    try:
        given = json.loads(_lines(Path(os.environ[VARIABLE]))[0])
        folder = None if given["folder"] is None else Path(given["folder"])
        code = given["code"] and LaidOut(Path(given["code"][0]), *given["code"][1:])
        job, tags = given["job"], tuple(given["tags"])
        return Order(folder, given["name"], given["random_state"], job, given["run_id"], tags, code or None)
    except (KeyError, IndexError, TypeError, ValueError):
        return None


def job_given() -> Mapping[str, Any] | None:
    """What this program is to do instead of what it does; None if nothing."""
    given = order() if VARIABLE in os.environ else None
    return None if given is None else given.job


def laid_out() -> LaidOut | None:
    """The code that lies ready for this program, if that is what it was started with."""
    given = order() if VARIABLE in os.environ else None
    return given.code if given and given.code and given.code.holds(sys.argv) else None


def reserved() -> tuple[str, tuple[str, ...]]:
    """The id that is kept for the run of this program, and its tags; both may be empty."""
    given = order() if VARIABLE in os.environ else None
    return ("", ()) if given is None else (given.run_id, given.tags)


def note_run(folder: Path, name: str) -> None:
    """A run begins that lies in no other one. It draws as the one that is repeated did, if it may be that one again."""
    global _random_from
    given = order()
    if given is None:
        return
    file = Path(os.environ[VARIABLE])
    if given.folder and given.random_state and (name == given.name or len(_lines(file)) == 1):
        _random_from = given.folder
    with contextlib.suppress(OSError), file.open("a", encoding="utf-8") as noted:  # one small append
        noted.write(f"{folder}\n")


def draw_for_job(name: str) -> None:
    """Where a program that makes no run would begin one: data that it draws from here on is that of the run it was started for."""
    global _job_draws
    given = order()
    if given is not None and given.folder and given.random_state and (name == given.name or not _job_draws):
        _job_draws = True
        _go_back(given.folder)


def random_at_start() -> dict[str, Any]:
    """The random state at a run's start; first set to that of the run that is repeated, at the moment it was written down."""
    if _random_from is not None:
        _go_back(_random_from)
    return start_state.take()


def _go_back(folder: Path) -> None:
    global _random_from
    try:
        record = records.read_random(folder)
        if record is None or any(name in record and loaded(name) is None for name in ("torch", "numpy")):
            return  # written down when a framework was loaded that is not yet: then this will be called again
        _random_from = None
        start_state.restore(record)
    except (LuxmeterError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        _random_from = None
        warn_once(
            "random-not-restored",
            f"The random state of the run in {folder} cannot be set: {error}.",
            "What is drawn without a seed will differ.",
        )


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
