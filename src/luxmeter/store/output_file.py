"""Where a run's output rests. Of the standard library alone: the process that pumps native output loads it by its path."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

LOGS_FOLDER, OUTPUT = "logs", "output.log"
MOST_BYTES = 16 << 20  # of one run's output; what lies between its beginning and its end is left out


class OutputFile:
    """`logs/output.log` of a run: its beginning in full and, past the limit, the end in two files that take turns."""

    def __init__(self, run_folder: Path, *, most_bytes: int = MOST_BYTES) -> None:
        self.path = run_folder / LOGS_FOLDER / OUTPUT
        self.path.parent.mkdir(exist_ok=True)
        self._newer, self._older = output_tails(self.path)
        self._part_bytes = max(1, most_bytes // 4)
        self._head_bytes = most_bytes // 2
        self._tail: int | None = None
        self._written = 0
        self._tail_written = 0
        self._left_out = 0
        self._number = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

    def append(self, text: str) -> None:
        """Write at once: what was printed is on disk, whatever happens to the process."""
        data = text.encode("utf-8", "backslashreplace")
        if self._tail is None and self._written + len(data) <= self._head_bytes:
            os.write(self._number, data)
            self._written += len(data)
            return
        if self._tail is None or self._tail_written > self._part_bytes:
            self._next_tail()
        assert self._tail is not None
        self._left_out += max(0, len(data) - self._part_bytes)
        os.write(self._tail, data[-self._part_bytes :])
        self._tail_written += len(data)

    def close(self) -> None:
        """Put beginning and end together."""
        if self._tail is not None:
            os.close(self._tail)
            self._tail = None
            end = b"".join(part.read_bytes() for part in (self._older, self._newer) if part.exists())
            gap = left_out_line(self._left_out).encode() if self._left_out else b""
            os.write(self._number, gap + end)
            for part in (self._older, self._newer):
                part.unlink(missing_ok=True)
        os.close(self._number)

    def _next_tail(self) -> None:
        if self._tail is not None:
            os.close(self._tail)
            with contextlib.suppress(OSError):
                self._left_out += self._older.stat().st_size
            os.replace(self._newer, self._older)
        self._tail = os.open(self._newer, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC, 0o666)
        self._tail_written = 0


def output_tails(path: Path) -> tuple[Path, Path]:
    """Where the end of a long output rests while its run lives: the newer part, the older part."""
    return path.with_suffix(".tail"), path.with_suffix(".tail-before")


def left_out_line(size_bytes: int | None = None) -> str:
    """What stands in the place of output that was left out."""
    return (
        "\n[... some output left out ...]\n"
        if size_bytes is None
        else f"\n[... {size_bytes:,} bytes left out ...]\n"
    )
