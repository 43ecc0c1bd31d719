"""What a run prints, read while it goes on: only what came since the last look, however much there was before."""

from __future__ import annotations

import codecs
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from luxmeter.files import open_file
from luxmeter.store.output_file import LOGS_FOLDER, OUTPUT, output_tails

_HEAD = 256  # bytes that tell a file
_MOST_BYTES = 1 << 18  # of one look: beyond, what lies between is left out


class OutputFollower:
    """Follows a run's output, which rests in up to three files that take turns.

    `position` says how far it has read; another follower goes on from there. A file is known by its number on the disk and its
    beginning: the number of one that was removed is given to another.
    """

    def __init__(self, run_folder: Path, position: Mapping[str, Sequence[int]] | None = None) -> None:
        path = run_folder / LOGS_FOLDER / OUTPUT
        newer, older = output_tails(path)
        self._files = (path, older, newer)
        self._read = {name: (place[0], place[1]) for name, place in (position or {}).items()}
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def position(self) -> dict[str, tuple[int, int]]:
        """Of each file how many bytes were read, and what tells its beginning."""
        return dict(self._read)

    def skip(self) -> OutputFollower:
        """What is there by now is known."""
        self._look(skip=True)
        return self

    def new(self) -> str:
        """What came since; of very much its end."""
        return "".join(map(self._decoder.decode, self._look()))

    def _look(self, *, skip: bool = False) -> list[bytes]:
        parts, seen = [], {}
        for path in self._files:
            try:
                with open_file(path) as file:
                    found = os.fstat(file.fileno())
                    name, head = str(found.st_ino), file.read(min(_HEAD, found.st_size))
                    start, mark = self._read.get(name, (0, 0))
                    if start > found.st_size or zlib.crc32(head[:start]) != mark:
                        start = 0
                    if found.st_size > start and not skip:
                        file.seek(max(start, found.st_size - _MOST_BYTES))
                        parts.append(file.read(found.st_size - file.tell()))
                    seen[name] = found.st_size, zlib.crc32(head[: found.st_size])
            except OSError:
                continue
        self._read = seen
        return parts
