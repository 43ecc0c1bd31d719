"""A rank that fails: its error is shown once and first; what the others see of it is told in a line.

When a process of a group ends, the collectives of all others fail ("Connection closed by peer"): echoes, which say nothing of
the cause. Each rank writes its error where its launcher looks (TORCHELASTIC_ERROR_FILE, as torchrun's children do), and the
first one leaves a note for the others.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from luxmeter.errors import LuxmeterError
from luxmeter.files import write_json
from luxmeter.process import Process
from luxmeter.ranks import own_rank
from luxmeter.train.dist.address import LAUNCHED
from luxmeter.train.dist.agreement import numbered
from luxmeter.train.dist.meeting import current_meeting

ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
_ECHOES = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "broken pipe",
    "socket closed",
    "nccl communicator was aborted",
    "remote process exited",
    "nccl remote process",
)
_FOR_A_NOTE_S = 1.0  # a killed process is seen to be gone a little after its connections
_MOST = 200  # characters of an error in a line
_failed_in = 0  # the process that has


def watch() -> None:
    """Have an error that nobody catches told as one of a rank."""
    usual = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, tb: TracebackType | None) -> None:
        of_rank = current_meeting() is not None and not isinstance(error, KeyboardInterrupt)
        if not (of_rank and tell_failure(error)):
            usual(kind, error, tb)

    sys.excepthook = hook


def has_failed() -> bool:
    """Whether this process has told of a failure."""
    return _failed_in == os.getpid()


def tell_failure(error: BaseException, text: str | None = None) -> bool:
    """Note that this rank failed; whether all is said, so that the error (`text`: as it is to be shown) need not be printed here.

    Our own launcher prints it when all ranks have ended. An echo of another rank's failure is told in a line.
    """
    global _failed_in
    _failed_in = os.getpid()
    own = own_rank()
    line, is_other = _line(error), is_echo(error)
    is_launched = LAUNCHED in os.environ
    if not is_other:
        _leave_note(own.rank, line)
    elif not is_launched:
        text = f"luxmeter: rank {own.rank} ends: {who_failed() or 'another rank ended'}; see there.\n"
    text = text or "".join(traceback.format_exception(error))
    is_written = _write_report(error, text, is_other=is_other)
    if is_launched and is_written:
        return True
    if is_other:
        sys.stdout.flush()
        sys.stderr.write(text)
    return is_other


def end_failed(error: BaseException, text: str | None = None, *, code: int = 1) -> SystemExit:
    """Tell it, print what is to be printed, and give what to end with: `raise end_failed(error) from None`."""
    shown = text or "".join(traceback.format_exception(error))
    told = own_rank().world_size > 1 and tell_failure(error, shown)
    if not told:
        sys.stdout.flush()
        sys.stderr.write(shown)
    return SystemExit(code)


def abort(why: str) -> NoReturn:
    """End this rank at once, whatever it is doing, and with it the others: their collectives fail, their launcher ends them."""
    error = LuxmeterError("aborted", f"Rank {own_rank().rank} ended the job: {why}", "See its log.")
    end_failed(error, f"luxmeter: {error}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def is_echo(error: BaseException) -> bool:
    """Whether it is only what is seen here of another rank's end. What an error came of decides."""
    first = list(_causes(error))[-1]
    if not isinstance(first, RuntimeError | OSError):
        return False
    said = str(first).lower()
    where = "gloo" in said or "nccl" in said or "pair.cc" in said or type(first).__name__.startswith("Dist")
    return where and any(one in said for one in _ECHOES)


def who_failed() -> str:
    """Which rank failed first, and of what; empty if that is not known here."""
    met = current_meeting()
    if met is None:
        return ""
    end = time.monotonic() + _FOR_A_NOTE_S
    while True:
        try:
            if met.store.check(["failed"]):
                note = json.loads(met.store.get("failed"))
                return f"rank {note['rank']} failed ({note['line']})"
        except RuntimeError:  # the store went with rank 0
            return "rank 0 has ended"
        here = Process.here()
        others = [(one.rank, Process.of(one.process)) for one in met.ranks]
        gone = [rank for rank, other in others if other.machine == here.machine and not other.runs_here()]
        if gone:
            return f"{numbered(gone)} {'has' if len(gone) == 1 else 'have'} ended without a word"
        if time.monotonic() > end:
            return ""
        time.sleep(0.02)


def _leave_note(rank: int, line: str) -> None:
    met = current_meeting()
    if met is not None:
        with contextlib.suppress(RuntimeError):
            met.store.compare_set("failed", "", json.dumps({"rank": rank, "line": line}))


def _write_report(error: BaseException, text: str, *, is_other: bool) -> bool:
    """In torchrun's form, for torchrun's own summary, too; with what our launcher wants to know."""
    path = os.environ.get(ERROR_FILE)
    if not path:
        return False
    # Its summary takes the earliest as the cause, in whole seconds: an echo comes a second later.
    seconds = str(int(time.time()) + is_other)
    extra: dict[str, Any] = {
        "py_callstack": text,
        "timestamp": seconds,
        "time_ns": time.time_ns(),
        "is_echo": is_other,
        "is_ours": isinstance(error, LuxmeterError),
    }
    try:
        write_json(Path(path), {"message": {"message": _line(error), "extraInfo": extra}})
    except OSError:
        return False
    return True


def _line(error: BaseException) -> str:
    said = " ".join(str(error).split())
    said = said if len(said) <= _MOST else f"{said[:_MOST]}..."
    return said if isinstance(error, LuxmeterError) else f"{type(error).__name__}: {said}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what it came of, and so on back to the first."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
