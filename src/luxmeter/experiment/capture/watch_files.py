"""Watched folders: which files came, changed or went while a run lived, and what was in them."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from luxmeter.errors import StoreError
from luxmeter.experiment.options import ExperimentOptions
from luxmeter.files import sha256_of
from luxmeter.store import FileChange, records

MOST_FILES = 100_000  # of one folder; a folder with more is data
_SMALL_BYTES = 16 << 20  # read at once, so that hash and kept content are of the same moment
_LEFT_OUT = frozenset({".git", "__pycache__", ".luxmeter", ".ipynb_checkpoints"})


@dataclass(frozen=True)
class Stamp:
    """What tells a changed file from an unchanged one without reading it."""

    mtime_ns: int
    size_bytes: int
    inode: int


@dataclass
class _Folder:
    place: Path
    part: str
    inside_run: bool  # its files lie in the run already
    recorded: dict[str, Stamp] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    last_seen: dict[str, Stamp] = field(default_factory=dict)


class FileWatch:
    """Compares folders with what they held before. `scan` is called now and then, and once at the end."""

    def __init__(
        self, run_folder: Path, put_blob: Callable[[bytes | Path], str], options: ExperimentOptions
    ) -> None:
        self._run_folder = run_folder
        self._put_blob = put_blob
        self._options = options
        self._kept_bytes = 0
        self._folders: dict[Path, _Folder] = {}
        self._suffixes: set[str] = set()
        self._all_files = False

    def add(self, folder: Path, part: str, suffixes: Sequence[str] = ()) -> None:
        """Watch `folder`; what is in it now is not this run's. Suffixes hold for all folders; none means every file."""
        if suffixes:
            self._suffixes.update(suffixes)
        else:
            self._all_files = True
        if folder in self._folders:
            return
        inside = folder.is_relative_to(self._run_folder)
        watched = _Folder(folder, part, inside)
        watched.recorded = watched.last_seen = dict(_stamps(folder, self._run_folder))
        self._folders[folder] = watched

    def scan(self, *, final: bool = False) -> list[FileChange]:
        """What changed. A file that still grows is left for the next time, except at the end."""
        changes: list[FileChange] = []
        for folder in list(self._folders.values()):
            changes.extend(self._scan(folder, final))
        return changes

    def _scan(self, folder: _Folder, final: bool) -> Iterator[FileChange]:
        now = dict(_stamps(folder.place, self._run_folder))
        for path, stamp in now.items():
            if not self._is_wanted(path) or folder.recorded.get(path) == stamp:
                continue
            if not final and folder.last_seen.get(path) != stamp:
                continue  # it was written just now, and may be again
            event = "changed" if path in folder.recorded else "created"
            read = self._read(folder, path)
            if read is None:
                continue
            sha256, kept = read
            folder.recorded[path] = stamp
            if folder.hashes.get(path) != sha256:
                folder.hashes[path] = sha256
                yield _change(folder, path, event, sha256, stamp.size_bytes, kept)
        for path in [path for path in folder.recorded if path not in now]:
            del folder.recorded[path]
            folder.hashes.pop(path, None)
            if self._is_wanted(path):
                yield _change(folder, path, "removed", "", 0, False)
        folder.last_seen = now

    def _is_wanted(self, path: str) -> bool:
        return self._all_files or path.endswith(tuple(self._suffixes))

    def _read(self, folder: _Folder, path: str) -> tuple[str, bool] | None:
        """The content's hash and whether it was kept; None if the file went, or cannot be read."""
        place = folder.place / path
        try:
            size = place.stat().st_size
            fits = (
                size <= self._options.keep_file_bytes
                and self._kept_bytes + size <= self._options.keep_total_bytes
            )
            keep = fits and not folder.inside_run
            body = place.read_bytes() if size <= _SMALL_BYTES else place
            try:
                sha256 = self._put_blob(body) if keep else _hash(body)
            except StoreError:  # no room for the content; its hash is kept all the same
                sha256, keep = _hash(body), False
        except OSError:
            return None
        self._kept_bytes += size if keep else 0
        return sha256, keep


def _hash(body: bytes | Path) -> str:
    return hashlib.sha256(body).hexdigest() if isinstance(body, bytes) else sha256_of(body)


def to_batch(changes: Sequence[FileChange]) -> pa.RecordBatch:
    """Changes as rows of the table `files`."""
    columns = []
    for field_ in records.files_schema():
        values = [getattr(change, field_.name) for change in changes]
        columns.append(_texts(values) if field_.type == pa.string() else _numbers(values, field_.type))
    return pa.RecordBatch.from_arrays(columns, schema=records.files_schema())


# From buffers, not by pa.array: that imports pandas on its first call, up to a second at the end of a run.
def _texts(texts: Sequence[str]) -> pa.Array:
    encoded = [text.encode("utf-8", "backslashreplace") for text in texts]
    offsets = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)))


def _numbers(values: Sequence[int], kind: pa.DataType) -> pa.Array:
    data = np.packbits(values, bitorder="little") if kind == pa.bool_() else np.array(values, np.int64)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(data)])


def _change(folder: _Folder, path: str, event: str, sha256: str, size_bytes: int, kept: bool) -> FileChange:
    where = str(folder.place)
    return FileChange(path, where, folder.part, event, sha256, size_bytes, time.time_ns(), kept)


def _stamps(folder: Path, run_folder: Path) -> Iterator[tuple[str, Stamp]]:
    """Every regular file below `folder` by its path from there. Hidden files and links are left out."""
    waiting = [str(folder)]
    skipped = {str(run_folder)} if not folder.is_relative_to(run_folder) else set()
    count = 0
    start = len(str(folder)) + 1
    while waiting:
        place = waiting.pop()
        try:
            entries = list(os.scandir(place))
        except OSError:
            continue  # not there yet, or gone
        for entry in entries:
            if entry.name.startswith(".") or entry.name in _LEFT_OUT:
                continue
            try:
                if entry.is_dir(follow_symlinks=False):
                    if entry.path not in skipped:
                        waiting.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    seen = entry.stat(follow_symlinks=False)
                    yield (
                        Path(entry.path[start:]).as_posix(),
                        Stamp(seen.st_mtime_ns, seen.st_size, seen.st_ino),
                    )
                    count += 1
            except OSError:
                continue
            if count >= MOST_FILES:
                return
