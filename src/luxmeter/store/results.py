"""What was measured inside a run rests in it: a folder for each result, with a head that says what it is.

results/<kind>/<nnnn>/result.json is the head: {"format", "kind", "title", "made_ns", "file"}; the file beside it has the
format of the room that made it. Kinds are called as the command that makes them: ops, bench, check, model, zen, search, eval.
Traces (kind trace) rest in calls/<name>/, where they are written call by call; their trace.json is the head.
What is there is never overwritten: the last of a kind is `RUN/bench`, the one before it `RUN/bench~1`.

Format history of result.json
1: the first.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from luxmeter import ranks
from luxmeter.by_name import by_name
from luxmeter.errors import LuxmeterError, StoreError, UsageError, suggestion, warn_once
from luxmeter.files import make_below, read_json, write_json
from luxmeter.store import layout
from luxmeter.store.active import active_run
from luxmeter.store.checked import damaged

if TYPE_CHECKING:
    from luxmeter.calls import TraceResult
    from luxmeter.model import ModelCost, SearchResult, ZenScore
    from luxmeter.operators import BenchResult, CheckResult, Operators
    from luxmeter.train import Evaluation

FORMAT = 1
KINDS = ("trace", "ops", "bench", "check", "model", "zen", "search", "eval")  # in the order they are shown
HEAD = "result.json"
_NAMED = re.compile(rf"(?P<run>.+)/(?P<kind>{'|'.join(KINDS)})(?:~(?P<back>[0-9]+))?")
_into: ContextVar[Path | Literal["", "none"]] = ContextVar("luxmeter_results_into", default="")


# Each room reads what it wrote.
_LOAD: dict[str, Callable[[], Any]] = {
    "trace": lambda: by_name("load trace"),
    "ops": lambda: by_name("load ops"),
    "bench": lambda: by_name("load bench"),
    "check": lambda: by_name("load check"),
    "model": lambda: by_name("load model"),
    "zen": lambda: by_name("load zen"),
    "search": lambda: by_name("load search"),
    "eval": lambda: by_name("load eval"),
}


@dataclass(frozen=True)
class Result:
    """One result of a run, not read yet: what it is called, what it says in a line, where it lies."""

    kind: str
    folder: Path
    made_ns: int
    file: str = ""  # in `folder`; empty: the folder itself is the result
    said: str = ""
    back: int = 0  # so many of its kind came after it
    trouble: LuxmeterError | None = None  # why it cannot be read

    @property
    def name(self) -> str:
        """How it is called in its run: `bench`, `bench~1`."""
        return f"{self.kind}~{self.back}" if self.back else self.kind

    @property
    def path(self) -> Path:
        """The file or folder to be loaded."""
        return self.folder / self.file

    @cached_property
    def title(self) -> str:
        """What it says in a line."""
        if self.said:
            return self.said
        try:
            return str(by_name("trace title")(self.path))
        except Exception as error:  # noqa: BLE001 - a trace that is damaged, in whatever way, hides nothing else of its run
            return f"cannot be read: {error}"

    def load(
        self,
    ) -> (
        TraceResult | Operators | BenchResult | CheckResult | ModelCost | ZenScore | SearchResult | Evaluation
    ):
        """The result itself, by its kind."""
        if self.trouble is not None:
            raise self.trouble
        found: (
            TraceResult
            | Operators
            | BenchResult
            | CheckResult
            | ModelCost
            | ZenScore
            | SearchResult
            | Evaluation
        )
        found = _LOAD[self.kind]()(self.path)
        return found

    def record(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "name": self.name,
            "kind": self.kind,
            "title": self.title,
            "made_ns": self.made_ns,
            "path": str(self.path),
        }


def results_of(run_folder: Path, kind: str = "") -> list[Result]:
    """The results in a run's folder, of one kind or of all, each kind's in the order they were made."""
    if kind and kind not in KINDS:
        raise UsageError(
            "result-kind",
            f"A run holds no {kind!r}.",
            suggestion(kind, KINDS) or f"It may hold {', '.join(KINDS)}.",
        )
    found: list[Result] = []
    for one in (kind,) if kind else KINDS:
        made = traces_in(run_folder / layout.CALLS) if one == "trace" else _heads(run_folder, one)
        found += [replace(result, back=len(made) - 1 - place) for place, result in enumerate(made)]
    return found


def traces_in(folder: Path) -> list[Result]:
    """The traces in a folder that holds one in each of its folders, in the order they were begun."""
    found = []
    for head in folder.glob("*/trace.json"):
        if not head.parent.is_symlink():
            found.append(Result("trace", head.parent, _began_ns(head)))
    return sorted(found, key=lambda result: (result.made_ns, result.folder.name))


def _began_ns(head: Path) -> int:
    """When a trace was begun, as it says itself; 0 if it does not."""
    try:
        return int(read_json(head)["started_at"] * 1e9)
    except (LuxmeterError, OSError, ValueError, TypeError, KeyError, OverflowError):
        return 0


def split_name(reference: str) -> tuple[str, str, int] | None:
    """`latest~2/bench~1` -> ("latest~2", "bench", 1); None if it does not end in the name of a result."""
    found = _NAMED.fullmatch(reference)
    return None if found is None else (found["run"], found["kind"], int(found["back"] or 0))


def find_result(run_folder: Path, kind: str, back: int = 0, *, called: str = "") -> Result:
    """The last result of a kind, or the one so many before it. `called` is how the user calls the run."""
    found = results_of(run_folder, kind)
    if back < len(found):
        return found[-1 - back]
    name = called or run_folder.name
    if found:
        raise StoreError(
            "result-missing",
            f"The run {name} has {len(found)} of {kind}.",
            f"The first is {name}/{kind}~{len(found) - 1}." if len(found) > 1 else f"It is {name}/{kind}.",
        )
    has = [result.name for result in results_of(run_folder)]
    raise StoreError(
        "result-missing",
        f"The run {name} has no {kind}.",
        f"It has {', '.join(has)}." if has else "Make one inside the run, or with --into RUN.",
    )


# -- written ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def results_into(run_folder: Path | None) -> Iterator[None]:
    """Inside, results go into this run; None: where they would go anyway."""
    token = _into.set(run_folder or "")
    try:
        yield
    finally:
        _into.reset(token)


@contextlib.contextmanager
def without_results() -> Iterator[None]:
    """Inside, results go into no run: they are steps on the way to one."""
    token = _into.set("none")
    try:
        yield
    finally:
        _into.reset(token)


def results_folder() -> Path | None:
    """The folder of the run that a result made here belongs to; None: to no run.

    Of several ranks that share the run of the process they were forked from, the first one writes.
    """
    given = _into.get()
    if given:
        return given if isinstance(given, Path) else None
    run = active_run()
    return run.folder if run is not None and (run.is_here() or ranks.is_main()) else None


def put_result(kind: str, title: str, file: str, write: Callable[[Path], object]) -> Path | None:
    """Put a result into the run it belongs to, if there is one: `write(path)` writes its file. Returns where it lies.

    A result that is the same as the last of its kind is not written again. What cannot be written is told in a warning:
    the result itself is in the caller's hands.
    """
    run_folder = results_folder()
    if run_folder is None:
        return None
    try:
        return _put(run_folder, kind, title, file, write) / file
    except Exception as error:  # noqa: BLE001 - what was measured must not be lost because it cannot be put down
        why = error.what if isinstance(error, LuxmeterError) else f"{type(error).__name__}: {error}"
        warn_once(
            "result-not-put",
            f"A result ({kind}) cannot be put into the run {run_folder.name}: {why}.",
            "It is given back as ever; save it elsewhere if it matters.",
            key=f"{run_folder} {kind}",
            stacklevel=4,
        )
        return None


def write_head(folder: Path, kind: str, title: str, file: str, made_ns: int | None = None) -> None:
    """Say what the result in a folder is; again, if it goes on."""
    made = time.time_ns() if made_ns is None else made_ns
    write_json(folder / HEAD, {"format": FORMAT, "kind": kind, "title": title, "made_ns": made, "file": file})


def _put(run_folder: Path, kind: str, title: str, file: str, write: Callable[[Path], object]) -> Path:
    place = run_folder / layout.RESULTS / kind
    make_below(run_folder, place)
    made = place / f".{os.getpid()}-{secrets.token_hex(4)}"  # archives leave it behind
    try:
        made.mkdir()
        write(made / file)
        before = results_of(run_folder, kind)
        if before and _is_same(before[-1].path, made / file):
            return before[-1].folder
        write_head(made, kind, title, file)
        return _numbered(made, place)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _numbered(made: Path, place: Path) -> Path:
    """Give a whole folder the next number. A folder that is not empty is not replaced by a rename: the next is tried."""
    taken = [int(path.name) for path in place.iterdir() if layout.is_named("result", path.name)]
    number = max(taken, default=0)
    while True:
        number += 1
        target = place / f"{number:04}"
        try:
            made.rename(target)
            return target
        except OSError:
            if not target.exists():
                raise


def _is_same(one: Path, two: Path) -> bool:
    return one.is_file() and one.stat().st_size == two.stat().st_size and one.read_bytes() == two.read_bytes()


def _heads(run_folder: Path, kind: str) -> list[Result]:
    found = []
    for head in (run_folder / layout.RESULTS / kind).glob(f"*/{HEAD}"):
        if layout.is_named("result", head.parent.name) and not head.parent.is_symlink():
            try:
                found.append(_read_head(head, kind))
            except LuxmeterError as error:  # one that is damaged hides no other
                found.append(
                    Result(kind, head.parent, 0, said=f"cannot be read: {error.what}", trouble=error)
                )
    return sorted(found, key=lambda result: int(result.folder.name))


def _read_head(path: Path, kind: str) -> Result:
    """A head, checked: it may come from elsewhere."""
    said = read_json(path)
    fits = isinstance(said, dict) and isinstance(said.get("title"), str) and type(said.get("made_ns")) is int
    file = said.get("file") if isinstance(said, dict) else None
    if not fits or type(said.get("format")) is not int or said.get("kind") != kind:
        raise damaged(path, "it is no head of a result")
    if said["format"] > FORMAT:
        raise StoreError(
            "result-format",
            f"{path} has format {said['format']}; this version reads up to {FORMAT}.",
            "Update luxmeter to read it.",
        )
    if not layout.is_named("file", file) or (path.parent / str(file)).is_symlink():
        raise damaged(path, f"its file is {str(file)[:80]!r}")
    return Result(kind, path.parent, said["made_ns"], str(file), said["title"])
