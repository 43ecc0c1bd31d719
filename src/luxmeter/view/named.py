"""One way to name a thing, whatever is done to it: a run, what it holds (`RUN/trace`, `RUN/bench~1`), a trace, or a path."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from luxmeter.errors import StoreError, UsageError
from luxmeter.experiment import find_run, open_lab
from luxmeter.settings import find_lab
from luxmeter.store import (
    Result,
    Run,
    find_result,
    results_into,
    results_of,
    split_name,
)

_LATEST = re.compile(r"latest(?:~([0-9]+))?")
_SAID = {
    "ops": "luxmeter operators",
    "bench": "luxmeter benchmark",
    "check": "luxmeter check",
    "model": "luxmeter.model_cost",
    "zen": "luxmeter.score",
}
_FILES = (".json", ".jsonl", ".parquet", ".csv", ".txt")
_NOT_THERE = ("run-not-found", "no-runs-yet", "not-a-run", "no-lab")


@dataclass(frozen=True)
class Named:
    """What a reference means: `kind` is run, one of `store.KINDS`, or file (of a kind that only its reader knows)."""

    kind: str
    path: Path  # a trace's folder, a result's file, any other file; a run's folder
    run: Run | None = None
    title: str = ""


def named(reference: str) -> Named:
    """The thing of this name. A path that leads to something goes before a name."""
    path = Path(reference).expanduser()
    if (path / "trace.json").is_file():
        return Named("trace", path)
    if path.is_file():
        return Named(_kind_of(path), path)
    parts = None if (path / "run.json").is_file() else split_name(reference)
    try:
        if parts is None:
            run = find_run(reference)
            return Named("run", run.folder, run)
        return _of_result(find_named_result(reference))
    except StoreError as error:
        trace = _free_trace(reference if parts is None else parts[0], parts) if _is_absence(error) else None
        if trace is None:
            _refuse_no_file(path)
            _refuse_unknown_kind(reference)
            raise
        return _of_result(trace)


def named_trace(reference: str) -> Path | None:
    """The folder of a trace: itself, or the last one of a run; `latest` is the last of the lab. None: it has none."""
    latest = _LATEST.fullmatch(reference)
    if latest and not Path(reference).exists() and find_lab().exists:
        with contextlib.suppress(StoreError):
            return open_lab(create=False).find_trace(reference).folder
    path = Path(reference)
    found = Named("run", path) if path.is_dir() and not (path / "trace.json").is_file() else named(reference)
    if found.kind == "run":
        made = results_of(found.path, "trace")
        return made[-1].folder if made else None
    return found.path if found.kind == "trace" else None


def find_named_result(reference: str) -> Result:
    """What `RUN/kind` or `RUN/kind~1` names; `latest/trace` is the last trace of the lab, in a run or in none."""
    parts = split_name(reference)
    assert parts is not None  # who asks has looked
    run, kind, back = parts
    latest = _LATEST.fullmatch(run)
    if kind == "trace" and latest and find_lab().exists:
        return open_lab(create=False).find_trace(f"latest~{int(latest[1] or 0) + back}")
    return find_result(find_run(run).folder, kind, back, called=run)


def run_for(into: str) -> Run | None:
    """The run that `--into` names, found before anything is measured; None without one."""
    return find_run(into) if into else None


@contextlib.contextmanager
def into_run(run: Run | None) -> Iterator[None]:
    """Results that are made inside go into that run, and it is said where; without one, as ever."""
    before = {} if run is None else _last_of(run)
    with results_into(None if run is None else run.folder):
        yield
    if run is not None:
        for kind, folder in _last_of(run).items():
            if before.get(kind) != folder:
                sys.stderr.write(f"luxmeter: put into {run.id}/{kind}\n")


def _last_of(run: Run) -> dict[str, Path]:
    return {result.kind: result.folder for result in run.results()}


def _of_result(result: Result) -> Named:
    return Named(result.kind, result.path, title=result.title)


def _free_trace(name: str, parts: tuple[str, str, int] | None) -> Result | None:
    """The trace of that name that belongs to no run, if there is one; `train/trace~1` is the one before."""
    if (parts is not None and parts[1] != "trace") or not find_lab().exists:
        return None
    back = f"~{parts[2]}" if parts is not None and parts[2] else ""
    try:
        return open_lab(create=False).find_trace(name + back)
    except StoreError as error:
        if error.slug != "trace-not-found":
            raise
        return None


def _refuse_no_file(path: Path) -> None:
    """`old.json`: a file was meant, and is not there."""
    if path.suffix in _FILES and not path.exists():
        raise UsageError("no-such-file", f"There is no file {path}.", "Check the path.")


def _refuse_unknown_kind(reference: str) -> None:
    """`latest/modle`: the run is there, but nothing is called so."""
    run, _, kind = reference.rpartition("/")
    if not run or split_name(reference) is not None or Path(run).is_dir():
        return
    with contextlib.suppress(StoreError):
        find_run(run)
        results_of(Path(run), kind.partition("~")[0])  # says what there is


def _is_absence(error: StoreError) -> bool:
    return error.slug in _NOT_THERE


def _kind_of(path: Path) -> str:
    """The kind of a file by what it says of itself."""
    if path.suffix not in (".json", ".jsonl"):
        return "file"
    with path.open(encoding="utf-8", errors="replace") as file:
        begins = file.read(200)
    return next((kind for kind, said in _SAID.items() if f'"{said}"' in begins), "file")
