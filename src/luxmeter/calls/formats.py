"""The files a trace can be written to, by the ending of their name. Light: no heavy import."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from luxmeter.errors import UsageError, suggestion

# Ending -> format; a longer ending stands before a shorter one that it ends with.
ENDINGS = {
    ".perfetto.json": "perfetto",
    ".trace.json": "perfetto",
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".html": "html",
    ".folded": "collapsed",
    ".collapsed": "collapsed",
}
FORMATS = tuple(dict.fromkeys(ENDINGS.values()))


def is_trace_file_name(name: str) -> bool:
    """Whether a name means a file (it has an ending), not the folder of a trace."""
    last = name.rstrip("/").rpartition("/")[2]
    return not name.endswith("/") and "." in last.lstrip(".")


def trace_format_of(name: str, format: str | None = None) -> str:
    """The format asked for, or the one that the name's ending means."""
    if format is not None:
        if format in FORMATS:
            return format
        raise UsageError(
            "unknown-trace-format",
            f"A trace cannot be written as {format!r}.",
            suggestion(format, FORMATS) or f"It knows {', '.join(FORMATS)}.",
        )
    for ending, known in ENDINGS.items():
        if name.endswith(ending):
            return known
    ending = "." + name.rpartition(".")[2]
    raise UsageError(
        "unknown-trace-format",
        f"No format of a trace goes with the name {name!r}.",
        suggestion(ending, ENDINGS) or f"It knows the endings {', '.join(ENDINGS)}.",
    )


def check_trace_output(out: str, *, totals: bool = False) -> None:
    """Refuse, before anything runs, what no trace can be written to: a file by its ending, or a folder with something in it."""
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
            "trace-out-unwritable", f"{out} cannot be written: {error}.", "Give another place."
        ) from error
    finally:
        if not is_trace_file_name(
            out
        ):  # a script that dies before any call leaves none; a file needs its folder
            for place in new:
                with contextlib.suppress(OSError):
                    place.rmdir()
