"""Temporary folders that do not outlive their processes.

A folder goes when it is removed, or when the process that made it ends. What killed processes left goes when the next
folder is made. A folder is in use while somebody holds a lock on its file `.luxmeter-held`: the kernel lets go of it
when a process dies, in whatever way, and knows it across containers. Only what was made on this machine since it was
started is judged (file systems that machines share may not share locks), and a process that is still there keeps its
folder even if it closed all its files.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from luxmeter.process import Process, at_worker_end

_PREFIX = "luxmeter-"
_HELD = ".luxmeter-held"
_held: dict[
    Path, tuple[int, int]
] = {}  # -> the process that made it (a forked child must not remove it), its lock
_at_end_of = 0  # the process that was told to remove them at its end


def make(kind: str) -> Path:
    """A new folder `luxmeter-<kind>-...` among the temporary ones, removed at the latest when this process ends."""
    remove_left()
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-"))
        try:
            descriptor = os.open(folder / _HELD, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except FileNotFoundError:  # somebody who cleans up came between
            continue
        try:
            os.write(descriptor, json.dumps(vars(Process.here())).encode())
            if _lock(descriptor, fcntl.LOCK_SH) is not False and (folder / _HELD).exists():
                _held[folder] = os.getpid(), descriptor
                _remove_at_end()
                return folder
        except BaseException:
            os.close(descriptor)
            shutil.rmtree(folder, ignore_errors=True)
            raise
        os.close(descriptor)


@contextlib.contextmanager
def folder(kind: str) -> Iterator[Path]:
    """A folder for as long as a block runs."""
    made = make(kind)
    try:
        yield made
    finally:
        remove(made)


def hold(folder: Path) -> None:
    """In a process that was started to work in `folder`, too: it stays while this process lives. Nothing if it is none of ours."""
    with contextlib.suppress(OSError):
        _lock(os.open(folder / _HELD, os.O_RDONLY), fcntl.LOCK_SH)  # never closed: until this process ends


def remove(folder: Path) -> None:
    """Remove a folder that was made here."""
    _, descriptor = _held.pop(folder, (0, -1))
    _clear(folder)
    if descriptor >= 0:
        os.close(descriptor)


def remove_made() -> None:
    """Remove all folders that this process made."""
    for folder, (pid, _) in list(_held.items()):
        if pid == os.getpid():
            remove(folder)


def remove_left() -> None:
    """Remove the folders of processes that are gone."""
    found: list[str] = []
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        found += [entry.path for entry in entries if entry.name.startswith(_PREFIX)]
    for path in map(Path, found):
        with contextlib.suppress(OSError):  # another's, or gone meanwhile
            if path.lstat().st_uid == os.getuid() and not path.is_symlink():
                _remove_if_left(path)


def _remove_if_left(folder: Path) -> None:
    try:
        descriptor = os.open(folder / _HELD, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        folder.rmdir()  # only one that is empty: a process died, or is just about to make its file and takes another
        return
    try:
        if _lock(descriptor, fcntl.LOCK_EX) and _is_gone(os.read(descriptor, 4096)):
            _clear(folder)
    finally:
        os.close(descriptor)


def _is_gone(text: bytes) -> bool:
    try:
        maker, here = Process.of(json.loads(text)), Process.here()
    except (ValueError, KeyError, TypeError):
        return False
    return maker.boot == here.boot and not (maker.machine == here.machine and maker.runs_here())


def _lock(descriptor: int, kind: int) -> bool | None:
    """Whether it was locked; None where the file system knows no locks."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _clear(folder: Path) -> None:
    """Remove a folder, its file last: who dies on the way leaves what the next one finishes."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != _HELD:
                path.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _remove_at_end() -> None:
    global _at_end_of
    if _at_end_of != os.getpid():
        _at_end_of = os.getpid()
        at_worker_end(remove_made, -100)  # after all that may write into them


atexit.register(remove_made)
