"""Files and folders that a trace is to be written to: refused before anything runs, not after an hour."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from luxmeter.calls import is_trace_file_name, trace_format_of
from luxmeter.errors import UsageError


def check_output(out: str, *, totals: bool = False) -> None:
    """Make sure that a trace can be written there: a file by its ending, or a folder that is empty or not there yet."""
    path = Path(out)
    if is_trace_file_name(out):
        if trace_format_of(out) != "html" and totals:
            raise UsageError(
                "totals-in-file",
                f"{out} would hold every call, and totals are kept without the calls.",
                "Keep the folder or a page (-o calls.html), and write tables from the folder with --from and --by.",
            )
    elif path.is_dir() and any(path.iterdir()):
        raise UsageError(
            "trace-out-taken",
            f"There is something in {out} already.",
            "Give a folder that is not there yet.",
        )
    folder = path.absolute().parent if is_trace_file_name(out) else path.absolute()
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    try:  # to ask for permission is not enough: root has it where nothing can be made
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        if is_trace_file_name(out) and path.is_dir():
            raise IsADirectoryError(f"{out} is a folder")
    except OSError as error:
        raise UsageError(
            "trace-out-unwritable", f"{out} cannot be written: {error}.", "Give another place with -o."
        ) from error
    finally:
        if not is_trace_file_name(
            out
        ):  # a script that dies before any call leaves none; a file needs its folder
            for place in new:
                with contextlib.suppress(OSError):
                    place.rmdir()
