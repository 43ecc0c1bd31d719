"""A training that fails says where in the user's own code; the whole traceback is in the run."""

from __future__ import annotations

import contextlib
import sysconfig
import traceback
from pathlib import Path
from types import TracebackType

import luxmeter
from luxmeter.experiment import Experiment

FILE = "traceback.txt"
_OURS = str(Path(luxmeter.__file__).parent)
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def explained(
    error: BaseException, callback: str, experiment: Experiment | None, *, whole: bool = False
) -> None:
    """Name the callback it came from, keep the whole traceback in the run, and leave the user's frames to be shown."""
    if callback:
        error.add_note(f"It came from the callback {callback}.")
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return
    writer = experiment.writer if experiment is not None else None
    kept = None
    if writer is not None:
        with contextlib.suppress(Exception):  # the error itself is what counts
            kept = writer.put_file(FILE, "".join(traceback.format_exception(error)))
    if not whole:
        frames = users_frames(error.__traceback__)
        if frames is not None:
            error.__traceback__ = frames
            if kept is not None:
                error.add_note(f"The whole traceback: {kept}")


def users_frames(given: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames of Luxmeter and of installed packages; None if nothing would be left."""
    frames = []
    while given is not None:
        if not _is_foreign(given.tb_frame.f_code.co_filename):
            frames.append(given)
        given = given.tb_next
    chain: TracebackType | None = None
    for one in reversed(frames):
        chain = TracebackType(chain, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return chain


def _is_foreign(file: str) -> bool:
    return file.startswith((_OURS, "<frozen")) or any(file.startswith(folder) for folder in _INSTALLED)
