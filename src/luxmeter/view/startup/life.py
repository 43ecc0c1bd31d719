"""The life of a trace that LUXMETER_TRACE asked for: where it rests, how children join, what is said at its end."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import IO

from luxmeter import ranks
from luxmeter.calls import (
    Token,
    Trace,
    TraceOptions,
    TraceResult,
    active,
    check_trace_output,
    export,
    is_trace_file_name,
    start,
    start_in_child,
)
from luxmeter.errors import LuxmeterError, TraceError, UsageError
from luxmeter.render import terminal_width
from luxmeter.view.script import end_as_interrupted
from luxmeter.view.startup import PARENT, Request, exit_code, not_traced


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
    place = ranks.place()
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
        start_in_child(token)
    return True


def begin(request: Request) -> None:
    """Start a trace that ends, and speaks, when this process ends."""
    if active() is not None:
        return
    for name in request.outputs:
        if is_trace_file_name(name):
            check_trace_output(name, totals=request.totals)
    folder = request.folder if request.outputs else Path(f"{request.name}-trace")
    # Where a script changes its directory, the result still goes where it was asked for.
    wanted = [path.absolute() for path in request.files]
    was_there = folder is not None and folder.is_dir()
    place = free_folder(folder).absolute() if folder else None
    try:
        with _or_nothing():
            chosen = {f.name: getattr(request, f.name) for f in fields(TraceOptions)}
            trace = start(**{**chosen, "keep": place})
    except BaseException:
        if folder is not None and place is not None:
            _empty(place, keep=was_there and place == folder.absolute())
        raise
    trace.gives_way = True
    assert trace.folder is not None
    token = Token.of(trace.folder, trace.options, ranks.place().rank)
    os.environ[PARENT] = json.dumps({"folder": token.folder, "rank": token.rank, "options": token.options})
    owner = os.getpid()

    def end() -> None:
        if os.getpid() != owner:
            return
        os.environ.pop(PARENT, None)
        gave_way = not trace.running
        stream = sys.__stderr__
        try:
            trace.stop()
            if stream is not None:
                if gave_way and not request.quiet:
                    stream.write("luxmeter: the program started a trace of its own; this one ended there\n")
                tell(trace, request, folder=folder, files=wanted, stream=stream)
            if trace.trouble or any(p.end.get("trouble") for p in trace.result.recording.processes):
                exit_code.fail()
        except Exception as error:  # noqa: BLE001  (at exit nobody else would tell it)
            sys.stderr.write(f"luxmeter: {error if isinstance(error, LuxmeterError) else repr(error)}\n")
            exit_code.fail()
        end_as_interrupted()

    atexit.register(end)  # after session's own: runs before it


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


def tell(
    trace: Trace | TraceResult, request: Request, *, folder: Path | None, files: list[Path], stream: IO[str]
) -> None:
    """The hottest calls, what was written, and where."""
    result = trace.result if isinstance(trace, Trace) else trace
    for path in files:
        export.write(result, path)
    if request.quiet:
        return
    stream.write(f"\n{result.text(top=request.top, width=terminal_width(stream))}\n")
    if request.coverage and isinstance(trace, Trace):
        stream.write(f"{trace.coverage()}\n")
    for path in ([result.folder] if folder is not None else []) + files:
        stream.write(f"luxmeter: the trace is in {_near(path)}\n")
    stream.flush()


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


def _empty(folder: Path, *, keep: bool) -> None:
    """Take away what a trace that did not begin has left in its folder, which free_folder gave empty."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if not keep:
            folder.rmdir()


def _near(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)
