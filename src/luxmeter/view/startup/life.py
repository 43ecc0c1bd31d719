"""The life of a trace that LUXMETER_TRACE asked for: where it rests, how children join, what is said at its end."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path

from luxmeter import ranks
from luxmeter.calls import (
    Token,
    Trace,
    TraceOptions,
    TraceResult,
    active,
    check_trace_output,
    export,
    free_name,
    is_trace_file_name,
    start,
    start_in_child,
)
from luxmeter.errors import LuxmeterError, TraceError, UsageError
from luxmeter.ranks import Rank
from luxmeter.render import terminal_width
from luxmeter.store import Lab, active_folder, layout, runs_begun_here
from luxmeter.view.script import end_as_interrupted
from luxmeter.view.startup import PARENT, Request, exit_code, not_traced
from luxmeter.view.startup.shown import check_shown, shown

RUNS = "runs.json"  # in the folder of a trace of several ranks until all have ended: the runs of rank 0
_FOR_RANK_0_S = 30.0  # until its run is there: it is started when the others are
_FOR_OTHERS_S = 10.0  # until their part of the trace is written, when rank 0 has ended


def join(parent: str) -> bool:
    """In a child of a traced process: record into its trace. True also when that trace is over."""
    if not parent:
        return False
    try:
        told = json.loads(parent)
        token = Token(str(told["folder"]), int(told["rank"]), dict(told["options"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UsageError(
            "bad-trace-parent",
            f"{PARENT} is not what a traced program sets: {parent[:80]!r}.",
            f"Unset {PARENT}.",
        ) from None
    place = ranks.own_rank()
    if place.world_size > 1:
        token = replace(token, rank=place.rank)
    if Path(token.folder, "stopped").exists():
        return True
    if not Path(token.folder).is_dir():
        # Nobody waits for this trace any more: also a strict one has no reason to end the program.
        not_traced(
            TraceError(
                "trace-parent-gone", f"The trace it belongs to is gone ({token.folder}).", f"Unset {PARENT}."
            ),
            strict=False,
        )
        return True
    with _or_nothing():
        joined = start_in_child(token)
    if joined is not None and told.get("job"):
        joined.gives_way = True  # to a trace that the program makes itself
        if token.rank == 0:
            _at_last.append(_noting_runs(Path(token.folder)))
    return True


def _noting_runs(folder: Path) -> Callable[[], None]:
    """In rank 0, at its very end: which runs it has made."""

    def note() -> None:
        with contextlib.suppress(OSError):
            (folder / RUNS).write_text(json.dumps([str(one) for one in runs_begun_here()]), encoding="utf-8")

    return note


def begin(request: Request) -> None:
    """Start a trace that ends, and speaks, when this process ends."""
    if active() is not None:
        return
    request = replace(request, name=request.name or _program_name())
    for name in request.outputs:
        if is_trace_file_name(name):
            check_trace_output(name, totals=request.totals and not request.by)
    check_shown(request)
    folder, own = request.folder, ranks.own_rank()
    # Where a script changes its directory, the result still goes where it was asked for.
    wanted = [path.absolute() for path in request.files]
    was_there = folder is not None and folder.is_dir()
    place: Path | None
    if folder is not None:
        place = (free_folder(folder) if own.world_size == 1 else folder_of_ranks(folder, own)).absolute()
    else:
        place = None if wanted and own.world_size == 1 else own_folder(request)
    # Ranks that some launcher started record into one trace, if they have a place in common.
    is_shared = own.world_size > 1 and place is not None and place.parent.name != layout.TRACES
    if not is_shared and own.rank > 0:
        wanted = [path.with_stem(f"{path.stem}.rank{own.rank}") for path in wanted]
    if not is_shared and wanted and folder is None:
        place = None
    try:
        with _or_nothing():
            chosen = {f.name: getattr(request, f.name) for f in fields(TraceOptions)}
            trace = start(**{**chosen, "keep": place})
    except BaseException:
        if place is not None and not is_shared:
            _empty(place, keep=folder is not None and was_there and place == folder.absolute())
        raise
    trace.gives_way = True
    assert trace.folder is not None
    token = Token.of(trace.folder, trace.options, ranks.own_rank().rank)
    os.environ[PARENT] = json.dumps({"folder": token.folder, "rank": token.rank, "options": token.options})
    owner = os.getpid()

    def end() -> None:
        if os.getpid() != owner:
            return
        os.environ.pop(PARENT, None)
        with _told():
            if is_shared and own.rank > 0:  # rank 0 speaks for all
                trace.stop()
                if trace.trouble:
                    exit_code.fail()
                return
            _end(trace, request, keeps=place is not None, files=wanted, of=own if is_shared else None)
        end_as_interrupted()

    atexit.register(end)  # after session's own: runs before it


def _end(trace: Trace, request: Request, *, keeps: bool, files: list[Path], of: Rank | None) -> None:
    """Stop it and write its files, now: a temporary folder goes at exit. Where it goes and what is said comes last."""
    said = [] if trace.running else ["luxmeter: the program started a trace of its own; this one ended there"]
    trace.stop()
    if of is not None and trace.folder is not None:
        _wait_for_others(trace.folder, of)
    result = trace.result
    ends = [process.end for process in result.recording.processes]
    lost = any(end.get("trouble") or end.get("stats", {}).get("lost") for end in ends) or bool(trace.trouble)
    if not result.recording.calls and not lost:
        leave_none(result.folder)
        said.append("luxmeter: the program made no call that is timed: there is no trace")
        _at_last.append(lambda: say(said, request))
        return
    for path in files:
        export.write(result, path, what=request.by or "calls")
    table = (
        "" if keeps else table_of(result, request)
    )  # while there is the folder; later, when stderr is the terminal's again
    if trace.trouble or any(end.get("trouble") for end in ends):
        exit_code.fail()

    def last() -> None:
        said.append(f"\n{table or table_of(result, request)}")
        if request.coverage:
            said.append(str(trace.coverage()))
        folder = result.folder if request.outputs else into_its_run(result.folder, request.name)
        kept = [where(folder)] if keeps or folder.parent.name == layout.CALLS else []
        say([*said, *(f"luxmeter: the trace is in {at}" for at in (*kept, *map(near, files)))], request)

    _at_last.append(last)


def table_of(result: TraceResult, request: Request) -> str:
    """What is shown at the end."""
    return shown(result, request, terminal_width(sys.__stderr__) if sys.__stderr__ is not None else None)


_at_last: list[Callable[[], None]] = []


def speak() -> None:
    """When all else has ended, the program's run too: put the trace into that run, and say what there is to say."""
    while _at_last:
        with _told():
            _at_last.pop(0)()
        end_as_interrupted()


def say(lines: list[str], request: Request) -> None:
    """Tell it, unless it is to be quiet."""
    if sys.__stderr__ is not None and not request.quiet:
        sys.__stderr__.write("".join(f"{line}\n" for line in lines))
        sys.__stderr__.flush()


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """At exit nobody else would tell what goes wrong."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        sys.stderr.write(f"luxmeter: {error if isinstance(error, LuxmeterError) else repr(error)}\n")
        exit_code.fail()


def _wait_for_others(folder: Path, own: Rank) -> None:
    """Until the other ranks have written what they recorded. One that was killed never does."""
    end = time.monotonic() + _FOR_OTHERS_S
    missing = set(range(own.world_size)) - {own.rank}
    while missing and time.monotonic() < end:
        missing = {rank for rank in missing if not any(folder.glob(f"rank{rank}-*/end.json"))}
        time.sleep(0.05)


def own_folder(request: Request) -> Path:
    """Where a trace goes that was asked to go nowhere else: into the run it is for or made in, or into the lab."""
    if request.into:
        from luxmeter.experiment import find_run

        return free_name(find_run(request.into).folder, request.name, ranks.own_rank())
    run = active_folder(_FOR_RANK_0_S)
    return free_name(run, request.name, ranks.own_rank()) if run is not None else Lab.open().new_trace()


def into_its_run(folder: Path, name: str) -> Path:
    """Put the trace of a program that has made one run into that run, any other stays in the lab; where it is then."""
    runs = runs_begun_here()
    if folder.parent.name != layout.TRACES or len(runs) != 1:
        return folder
    target = free_name(runs[0], name, ranks.own_rank())
    return move_into(folder, target)


def move_into(folder: Path, target: Path) -> Path:
    """Move a trace to its place in a run; where it is then."""
    target.parent.mkdir(exist_ok=True)
    shutil.move(folder, target)
    return target


def leave_none(folder: Path) -> None:
    """Remove a trace without a call: the program died before the first, or makes none."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.parent.name == layout.CALLS:
        with contextlib.suppress(OSError):
            folder.parent.rmdir()


def _program_name() -> str:
    """What the running program is called."""
    script = Path(sys.argv[0] if sys.argv else "")
    name = script.absolute().parent.name if script.stem == "__main__" else script.stem
    return name if name.strip("-.") and name not in ("-c", "-m") else "trace"


@contextlib.contextmanager
def _or_nothing() -> Iterator[None]:
    """What is started here, where no trace runs, runs at the end or has left nothing in place."""
    try:
        yield
    except BaseException:
        half = active()
        if half is not None:
            with contextlib.suppress(Exception):
                half.stop()
        raise


def where(folder: Path) -> str:
    """Where a trace lies, and how it is called there."""
    if folder.parent.name == layout.CALLS:
        run = folder.parents[1].name
        return f"run {run} (luxmeter show {run}/trace)"
    if folder.parent.name == layout.TRACES:
        return f"{near(folder)} (luxmeter show latest/trace)"
    return near(folder)


def free_folder(folder: Path) -> Path:
    """`folder`, or the first of `folder-2`, `folder-3` ... that is free; made here, so that no two processes take one."""
    number = 1
    while True:
        place = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        try:
            place.mkdir(parents=True)
            return place
        except FileExistsError:
            if place.is_dir() and not any(place.iterdir()):
                return place
            number += 1
        except OSError:
            return place  # the trace will say what is wrong with it


def folder_of_ranks(folder: Path, own: Rank) -> Path:
    """The same for each rank of a job: the first of `folder`, `folder-2` ... that holds nothing but what other ranks record."""
    number = 1
    while True:
        place = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        there = [path.name for path in place.iterdir()] if place.is_dir() else []
        is_trace = "trace.json" in there or any(name.startswith("rank") for name in there)
        if not place.exists() or not there or (is_trace and not any(place.glob(f"rank{own.rank}-*"))):
            return place
        number += 1


def _empty(folder: Path, *, keep: bool) -> None:
    """Take away what a trace that did not begin has left in its folder, which free_folder gave empty."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if not keep:
            folder.rmdir()


def near(path: Path) -> str:
    """A path as it is seen from here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)
