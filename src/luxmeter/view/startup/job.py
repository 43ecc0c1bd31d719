"""One trace of all ranks that `luxmeter run --processes` starts: they join it as children of a traced program do.

Who starts them makes the folder, records nothing itself and, when all have ended, puts the trace into rank 0's run and says what
there is to say. If it is killed, the trace stays in the lab.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path

from luxmeter import scratch
from luxmeter.calls import (
    Token,
    TraceOptions,
    TraceResult,
    export,
    free_name,
    make_trace_folder,
    mark_stopped,
)
from luxmeter.errors import LuxmeterError
from luxmeter.ranks import Rank
from luxmeter.store import Lab
from luxmeter.view.startup import PARENT, Request, life


@contextlib.contextmanager
def traced_job(request: Request, processes: int) -> Iterator[Mapping[str, str]]:
    """The variables with which so many ranks record into one trace. At the end it is put where it belongs, and shown."""
    files = [path.absolute() for path in request.files]
    with contextlib.ExitStack() as leave:
        if request.folder is not None:
            place = life.free_folder(request.folder).absolute()
        elif files:
            place = leave.enter_context(scratch.folder("trace")) / "trace"
        else:
            place = Lab.open().new_trace()
        chosen = {f.name: getattr(request, f.name) for f in fields(TraceOptions)}
        options = TraceOptions(**{**chosen, "keep": place})
        made = make_trace_folder(options, Rank(0, processes, 0, "luxmeter"))
        token = Token.of(made, options, 0)
        told = {"folder": token.folder, "rank": token.rank, "options": token.options, "job": True}
        try:
            yield {PARENT: json.dumps(told)}
        except BaseException:
            if not any(made.glob("rank*-*")):
                life.leave_none(made)
            raise
        mark_stopped(made)
        _end(made, request, files)


def _end(folder: Path, request: Request, files: list[Path]) -> None:
    try:
        runs = json.loads((folder / life.RUNS).read_text(encoding="utf-8"))
        (folder / life.RUNS).unlink()
    except (OSError, ValueError):
        runs = []  # rank 0 was killed
    if not (
        isinstance(runs, list)
        and all(isinstance(one, str) and (Path(one) / "run.json").is_file() for one in runs)
    ):
        runs = []
    try:
        result = TraceResult(folder)
        if not result.recording.processes or not result.recording.calls:
            life.leave_none(folder)
            life.say(["luxmeter: the program made no call that is timed: there is no trace"], request)
            return
        for path in files:
            export.write(result, path)
        said = [f"\n{life.table_of(result, request)}"]
        kept = [] if files and request.folder is None else [folder]
        if kept and request.folder is None and len(runs) == 1:
            kept = [life.move_into(folder, free_name(Path(runs[0]), request.name, Rank(0, 1, 0, "none")))]
        at = [*map(life.where, kept), *map(life.near, files)]
        life.say([*said, *(f"luxmeter: the trace is in {one}" for one in at)], request)
    except (LuxmeterError, OSError) as error:
        sys.stderr.write(f"luxmeter: {error}\n")
