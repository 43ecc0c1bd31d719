"""Where a trace rests: in the active run, in a folder to keep, or in a temporary one."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

from luxmeter import environment, scratch
from luxmeter.calls.options import TraceOptions
from luxmeter.calls.records import FORMAT
from luxmeter.errors import TraceError
from luxmeter.files import write_json
from luxmeter.ranks import Rank
from luxmeter.store import active_folder, layout

_STOPPED = "stopped"


def make(options: TraceOptions, own: Rank) -> tuple[Path, bool]:
    """The trace's folder, made and written to; whether it was made for this trace alone, which goes with it if it fails to begin."""
    run_folder = active_folder() if options.folder is None else None
    alone = options.folder is None and (run_folder is None or own.world_size == 1)
    try:
        if options.folder is not None or run_folder is not None:
            scratch.remove_left()  # as making one does
        if options.folder is not None:
            folder = options.folder
            _refuse_taken(folder, own)
        elif run_folder is not None:
            folder = free_name(run_folder, options.name, own)
        else:
            folder = scratch.make("trace") / "trace"
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "trace.json", _identity(options, own))
    except OSError as error:
        raise TraceError(
            "trace-folder-unwritable",
            f"The trace cannot be kept in {options.folder or 'a temporary folder'}: {error}.",
            "Give a folder that can be written with keep=, or free some space.",
        ) from error
    return folder, alone


def make_trace_folder(options: TraceOptions, own: Rank) -> Path:
    """The folder of a trace that others record into."""
    return make(options, own)[0]


def make_process(folder: Path, rank: int) -> Path:
    """The folder of this process inside the trace's."""
    own, number = folder / f"rank{rank}-{os.getpid()}", 1
    while True:
        try:
            own.mkdir(parents=True)
            return own
        except FileExistsError:  # of a process that ended: numbers of processes are used again
            number += 1
            own = folder / f"rank{rank}-{os.getpid()}.{number}"


def mark_stopped(folder: Path) -> None:
    """Tell the trace's other processes that it is over."""
    try:
        (folder / _STOPPED).touch()
    except OSError:
        return


def is_stopped(folder: Path) -> bool:
    """Whether the trace is over, or its folder gone."""
    return (folder / _STOPPED).exists() or not folder.exists()


def hold(folder: Path) -> None:
    """In a spawned process: a temporary folder is not taken for one that was left, even if the parent is killed."""
    scratch.hold(folder.parent)


def remove(folder: Path) -> None:
    """Remove a folder that was made for one trace alone: a temporary one, or one in a run."""
    if folder.parent.name == layout.CALLS:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        scratch.remove(folder.parent)


def _identity(options: TraceOptions, own: Rank) -> dict[str, Any]:
    chosen = {k: v for k, v in vars(options).items() if k not in ("waits_for", "keep")}
    return {
        "format": FORMAT,
        "name": options.name,
        "started_at": time.time(),
        "rank": own.rank,
        "world_size": own.world_size,
        "options": chosen,
        "environment": environment.brief(),
    }


def _refuse_taken(folder: Path, own: Rank) -> None:
    mine = f"rank{own.rank}-*" if own.world_size > 1 else "rank*-*"
    if any(folder.glob(mine)):
        raise TraceError(
            "trace-folder-taken",
            f"There is a trace in {folder} already.",
            "Give another folder with keep=, or move that one away.",
        )


def free_name(run_folder: Path, name: str, own: Rank) -> Path:
    """Where a trace of that name goes in a run: ranks that begin one at the same time share it."""
    parent, number = run_folder / layout.CALLS, 1
    while True:
        folder = parent / (name if number == 1 else f"{name}-{number}")
        mine = f"rank{own.rank}-*" if own.world_size > 1 else "rank*-*"
        if not any(folder.glob(mine)):
            return folder
        number += 1
