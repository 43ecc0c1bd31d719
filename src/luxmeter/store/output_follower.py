"""What a run prints, read while it goes on: only what came since the last look, however much there was before."""

from __future__ import annotations

import codecs
import os
from collections.abc import Mapping
from pathlib import Path

from luxmeter.store.output_file import LOGS_FOLDER, OUTPUT, output_tails

_MOST_BYTES = 1 << 18  # of one look: beyond, what lies between is left out


class OutputFollower:
    """Follows a run's output, which rests in up to three files that take turns: each is known by its number on the disk.

    `position` says how far it has read; another follower goes on from there.
    """

    def __init__(self, run_folder: Path, position: Mapping[str, int] | None = None) -> None:
        path = run_folder / LOGS_FOLDER / OUTPUT
        newer, older = output_tails(path)
        self._files = (path, older, newer)
        self._read = dict(position or {})
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def position(self) -> dict[str, int]:
        """Of each file how many bytes were read."""
        return dict(self._read)

    def skip(self) -> OutputFollower:
        """What is there by now is known."""
        for path in self._files:
            try:
                found = path.stat()
            except OSError:
                continue
            self._read[str(found.st_ino)] = found.st_size
        return self

    def new(self) -> str:
        """What came since; of very much its end."""
        parts = []
        for path in self._files:
            try:
                with open(path, "rb") as file:
                    found = os.fstat(file.fileno())
                    start = self._read.get(str(found.st_ino), 0)
                    size = found.st_size
                    if size > start:
                        file.seek(max(start, size - _MOST_BYTES))
                        data = file.read(size - file.tell())
                        parts.append(self._decoder.decode(data))
                        self._read[str(found.st_ino)] = size
            except OSError:
                continue
        return "".join(parts)
