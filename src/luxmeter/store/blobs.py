"""Content-addressed bytes: kept once in the lab's pool, linked into each run that has them.

The link makes a run's directory complete in itself at no cost in space; where the file system has no hard links
the run gets a copy.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from pathlib import Path

from luxmeter.errors import StoreError
from luxmeter.files import bytes_of, make_below, sha256_of, write_file
from luxmeter.store.layout import BLOBS, is_named, named
from luxmeter.store.values import blob_name

_CHUNK = 1 << 20


class BlobPool:
    """The blobs of a lab."""

    def __init__(self, lab_folder: Path) -> None:
        self.folder = lab_folder / BLOBS

    def put(self, body: bytes | Path, run_folder: Path) -> str:
        """Keep `body` (bytes, or a file's content) for the run; returns its name, the SHA-256 of the content."""
        name = blob_name(body) if isinstance(body, bytes) else sha256_of(body)
        target = _at(run_folder / BLOBS, name)
        if target.exists():
            return name
        pooled = _at(self.folder, name)
        if not pooled.exists():
            pooled.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(body, bytes):
                write_file(pooled, body)
            else:
                _copy(body, pooled)
        make_below(run_folder, target.parent)
        try:
            os.link(pooled, target)
        except FileExistsError:
            pass
        except OSError:
            _copy(pooled, target)
        return name

    def unused(self, *, older_than_s: float = 3600) -> list[Path]:
        """Pooled blobs that no run links any more. Young ones may just be on their way into a run.

        What lies there under another name, or behind a link, is none of ours.
        """
        old = time.time() - older_than_s
        found = (
            (path, path.lstat())
            for path in sorted(self.folder.glob("*/*"))
            if is_named("blob", path.name)
            and path == _at(self.folder, path.name)
            and not path.parent.is_symlink()
        )
        return [
            path
            for path, seen in found
            if stat.S_ISREG(seen.st_mode) and seen.st_nlink == 1 and seen.st_ctime < old
        ]


def blob_path(run_folder: Path, name: str) -> Path:
    """Where the run keeps the content called `name`."""
    return _at(run_folder / BLOBS, named("blob", name))


def read_blob(run_folder: Path, name: str) -> bytes:
    """The bytes called `name`, checked against it."""
    try:
        body = bytes_of(blob_path(run_folder, name))
    except FileNotFoundError:
        raise StoreError(
            "blob-missing",
            f"The run in {run_folder} has no blob {name}.",
            "It was removed by hand, or the copy is not whole.",
        ) from None
    except OSError as error:
        raise StoreError(
            "blob-damaged",
            f"Blob {name} in {run_folder} cannot be read: {error.strerror or error}.",
            "Restore it from a copy, or give rights to read it.",
        ) from error
    if blob_name(body) != name:
        raise StoreError(
            "blob-damaged",
            f"Blob {name} in {run_folder} does not hold what its name says.",
            "Restore it from a copy.",
        )
    return body


def _at(folder: Path, name: str) -> Path:
    return folder / name[:2] / name


def _copy(source: Path, target: Path) -> None:
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        shutil.copyfile(source, temporary)
        os.replace(temporary, target)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
