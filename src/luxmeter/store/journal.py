"""Which runs changed since the index last looked: a line a change, appended by whoever changed it.

So a process that trains never touches the database and never waits for its lock; whoever lists runs reads the
journal's tail and brings the index up to date. Each machine appends to a file of its own, because appending
from two machines to one file of a network share is not atomic.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from luxmeter.files import open_file
from luxmeter.store.layout import JOURNAL, is_named


def announce(lab_folder: Path, run_id: str) -> None:
    """Note that `run_id` was made, changed or removed."""
    folder = lab_folder / JOURNAL
    folder.mkdir(exist_ok=True)
    number = os.open(folder / f"{host_name()}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(number, f"{run_id}\n".encode())  # one small write to O_APPEND: never torn, never interleaved
    finally:
        os.close(number)


def read_tail(lab_folder: Path, offsets: dict[str, int]) -> tuple[set[str], dict[str, int]]:
    """The ids behind `offsets` (file -> bytes read so far), and the new offsets."""
    changed: set[str] = set()
    after: dict[str, int] = {}
    for path in sorted((lab_folder / JOURNAL).glob("*.log")):
        start = offsets.get(path.name, 0)
        size = path.stat().st_size
        if size < start:
            start = 0  # it was cut: everything in it is news
        if size > start:
            with open_file(path) as file:
                file.seek(start)
                tail = file.read(size - start)
            whole = tail[: tail.rfind(b"\n") + 1]
            changed.update(line for line in whole.decode(errors="replace").split() if is_named("run", line))
            start += len(whole)
        after[path.name] = start
    return changed, after


def host_name() -> str:
    """This machine's name, fit for a file's name."""
    return "".join(c if c.isalnum() or c in "-." else "-" for c in socket.gethostname()) or "host"
