"""The first moment of a job's process: it says in a file which process it is, once and for all, then becomes the program.

    python -m luxmeter.train.queue.begin CLAIM PROGRAM...

The file appears whole, and only if nobody made it before: a worker that finds a job whose worker is gone makes it, too,
and so knows that a process which has not begun yet never will.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from luxmeter.process import Process, dying_with

TOO_LATE = 75  # what it ends with if somebody else was first
PARENT = "LUXMETER_JOB_PARENT"  # the process that this one must not outlive


def claim(file: Path, told: Mapping[str, Any]) -> bool:
    """Make the file with this content; whether we were the first."""
    temporary = file.with_name(f".{file.name}-{secrets.token_hex(4)}")
    try:
        temporary.write_text(json.dumps(dict(told)), encoding="utf-8")
        os.link(temporary, file)
    except (FileExistsError, FileNotFoundError):  # made before, or all of it is cleared away already
        return False
    finally:
        temporary.unlink(missing_ok=True)
    return True


def claimed_by(file: Path) -> Process | None:
    """The process that made it; None if none did, or if it does not say which."""
    try:
        return Process.of(json.loads(file.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
        return None


def main(words: list[str]) -> None:
    """Claim, and become the program."""
    parent = os.environ.pop(PARENT, "")
    if parent and (die_with_it := dying_with(int(parent))) is not None:
        die_with_it()
    signal.pthread_sigmask(
        signal.SIG_SETMASK, ()
    )  # what runs tasks may hold back signals that are for the program
    if not claim(Path(words[0]), vars(Process.here())):
        sys.stderr.write("luxmeter: this job was given up before it began; nothing was run\n")
        raise SystemExit(TOO_LATE)
    os.execv(words[1], words[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
