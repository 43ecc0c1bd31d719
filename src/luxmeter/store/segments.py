"""Tables on disk: Arrow segments while they grow, one Parquet file when they are finished.

A table is a folder. Each writing process appends to segment files of its own; a segment is a row of small
complete Arrow IPC streams, one a flush. A reader takes every whole stream and stops at a torn one, so that a
process killed while writing costs only the piece it was writing, and a piece that the disk changed only itself.

Format history
1: `<writer>-<nnnn>.arrows` (concatenated IPC streams) and `table.parquet`, whose key-value metadata holds
   `luxmeter.segments`, a JSON list of [segment file, rows] that were folded in. A segment named there is
   ignored: it is left over from a crash between the rename and the removal. When rows were sorted, the column
   `_order` holds the place each had before.
2: before each IPC stream stands a frame: "LUXPIECE", its length (40 bits) and its number in the segment, from 1
   (24 bits; 0: not known), its CRC-32, the CRC-32 of these 20 bytes; Parquet files are sealed (sealed.py), with `luxmeter.damaged` in their metadata if a segment had damaged pieces. Format 1 is read.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import struct
import sys
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import psutil

from luxmeter.errors import LuxmeterError, StoreError
from luxmeter.files import make_below, open_file, sync_folder
from luxmeter.late import late
from luxmeter.store.claims import Budget, read_stream
from luxmeter.store.layout import named
from luxmeter.store.sealed import damage_of, read_sealed, seal, tell_loss

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
else:
    pa = late("pyarrow")
    np = late("numpy")
    pc = late("pyarrow.compute")
    pq = late("pyarrow.parquet")

FORMAT = 2
PARQUET = "table.parquet"
ORDER = "_order"
_SEGMENTS = b"luxmeter.segments"
_DAMAGED = b"luxmeter.damaged"
_MAGIC = b"LUXPIECE"
_FRAME = struct.Struct("<8sQI")
_FRAME_BYTES = _FRAME.size + 4
_LENGTH_BITS = 40  # of the frame's second field; above them stands the number of the piece in its segment
_OLD = b"\xff\xff\xff\xff"  # how a segment of format 1 begins
_MAX_SEGMENT_BYTES = 256 * 1024 * 1024


class SegmentWriter:
    """Appends record batches to a table's folder. One object a process: `writer` names its files.

    The folder is made with the first rows; `within` is a folder above it that must be there and is not made.
    """

    def __init__(self, folder: Path, *, within: Path | None = None) -> None:
        self.folder = folder
        self._within = within
        self.writer = f"{os.getpid()}-{secrets.token_hex(3)}"
        self._number = -1
        self._file: io.FileIO | None = None
        self._end = 0
        self._pieces = 0

    def append(self, rows: pa.RecordBatch | pa.Table) -> int:
        """Write `rows` as one piece; returns its bytes. A failed write leaves the table as it was, and raises."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            if isinstance(rows, pa.Table):
                stream.write_table(rows)
            else:
                stream.write_batch(rows)
        stream_bytes = memoryview(sink.getvalue())
        file = self._open_file()
        place = (self._pieces + 1) << _LENGTH_BITS | len(stream_bytes)
        frame = _FRAME.pack(_MAGIC, place, zlib.crc32(stream_bytes))
        try:
            # One after the other, not joined: a copy of all that was logged would be made under the interpreter's lock.
            for part in (memoryview(frame + struct.pack("<I", zlib.crc32(frame))), stream_bytes):
                written = 0
                while written < len(part):
                    written += file.write(part[written:]) or 0
        except BaseException:
            self._cut_back()
            raise
        size = _FRAME_BYTES + len(stream_bytes)
        self._end += size
        self._pieces += 1
        if self._end >= _MAX_SEGMENT_BYTES:
            self.close()
        return size

    def close(self) -> None:
        """Close the file at hand; a later append starts a new one."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open_file(self) -> io.FileIO:
        if self._file is None:
            if self._within is None:
                self.folder.mkdir(parents=True, exist_ok=True)
            else:
                make_below(self._within, self.folder)
            self._number += 1
            path = self.folder / f"{self.writer}-{self._number:04}.arrows"
            self._file = io.FileIO(path, "xb")
            self._end = self._pieces = 0
        return self._file

    def _cut_back(self) -> None:
        """Take the half-written piece off again, or leave the file and go on in a new one."""
        assert self._file is not None
        try:
            self._file.truncate(self._end)
            self._file.seek(self._end)
        except OSError:
            self.close()


def read_segments(
    folder: Path, *, columns: Sequence[str] | None = None, only: tuple[str, str] | None = None
) -> pa.Table | None:
    """All rows of the table in the order they were written (or grouped, once compacted); None if it has none.

    `only=("key", "loss")` gives the rows with that value in that column. Columns that a piece lacks are null.
    """
    with reading(folder):
        return _read(folder, columns, only)


def _read(folder: Path, columns: Sequence[str] | None, only: tuple[str, str] | None) -> pa.Table | None:
    wanted = None if columns is None else [*columns, *([only[0]] if only and only[0] not in columns else [])]
    parts: list[pa.Table] = []
    for path in _parquet_files(folder):
        if said := (pq.read_schema(path).metadata or {}).get(_DAMAGED):
            tell_loss(path, f"{int(said)} of its pieces, before they were folded,")
        table = _read_parquet(path, wanted, only)
        parts.append(table.drop_columns([ORDER]) if ORDER in table.column_names else table)
    for path in _live_segments(folder):
        for piece, _ in _pieces(path, 0):
            parts.append(piece.select([c for c in wanted if c in piece.column_names]) if wanted else piece)
    if not parts:
        return None
    table = pa.concat_tables(parts, promote_options="permissive")
    if only is not None:
        matches = pc.equal(table.column(only[0]), _as_arrow(only[1]))
        table = table if pc.all(matches).as_py() else table.filter(matches)
    return table.select(list(columns)) if columns is not None else table


def _as_arrow(text: str) -> pa.Scalar[Any]:
    """From buffers, not by pa.scalar: that imports pandas, half a second before a run is shown."""
    encoded = text.encode()
    offsets = b"\0\0\0\0" + len(encoded).to_bytes(4, sys.byteorder)
    return pa.StringArray.from_buffers(1, pa.py_buffer(offsets), pa.py_buffer(encoded))[0]


def _read_parquet(path: Path, columns: list[str] | None, only: tuple[str, str] | None) -> pa.Table:
    """The row groups that may hold the value: a grouped table has groups of one value each."""
    if only is None:
        return read_sealed(path, columns)
    key, value = only

    def wanted(group: Any) -> bool:
        columns_of = (group.column(i) for i in range(group.num_columns))
        return any(c.path_in_schema == key and _may_hold(c.statistics, value) for c in columns_of)

    return read_sealed(path, columns, only=wanted)


def _may_hold(statistics: Any, value: str) -> bool:
    return statistics is None or not statistics.has_min_max or statistics.min <= value <= statistics.max


def compact(
    folder: Path,
    *,
    sort_by: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Path | None:
    """Fold all segments into one Parquet file, durably; a row group a value of `sort_by`. None if there are no rows.

    Segments that another living process may append to are left for a later call. Safe to repeat, and to be killed in.
    """
    with reading(folder):
        return _compact(folder, sort_by, options or {})


def _compact(folder: Path, sort_by: str | None, options: Mapping[str, Any]) -> Path | None:
    live = [path for path in _live_segments(folder) if not _still_written(path)]
    target = folder / PARQUET
    if not live:
        _remove_folded(folder)
        return target if target.exists() else None
    folded: list[tuple[str, int]] = list(_folded(target)) if target.exists() else []
    parts: list[pa.Table] = []
    lost: list[str] = []
    damaged_before = 0
    if target.exists():
        damaged_before = int((pq.read_schema(target).metadata or {}).get(_DAMAGED, 0))
        before = read_sealed(target)
        if ORDER in before.column_names:
            before = before.sort_by(ORDER).drop_columns([ORDER])
        parts.append(before)
    for path in live:
        batches = [batch for batch, _ in _pieces(path, 0, lost)]
        folded.append((path.name, sum(batch.num_rows for batch in batches)))
        parts.extend(batches)
    if not parts:
        for path in live:  # torn in their first piece: nothing to keep
            path.unlink(missing_ok=True)
        return None
    table = pa.concat_tables(parts, promote_options="permissive").combine_chunks()
    said = {_SEGMENTS: json.dumps(folded).encode()}
    if lost or damaged_before:
        said[_DAMAGED] = str(len(lost) + damaged_before).encode()
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), **said})
    _write_parquet(target, table, sort_by, {"compression": "zstd", **options})
    _remove_folded(folder)
    return target


class Follower:
    """Reads a growing table: each `new()` gives the rows that came since the last, and only those.

    `position` says how far it has read; another follower goes on from there.
    """

    def __init__(self, folder: Path, position: Mapping[str, Sequence[int]] | None = None) -> None:
        self._folder = folder
        self._bytes = {name: place[0] for name, place in (position or {}).items()}
        self._rows = {name: place[1] for name, place in (position or {}).items()}

    @property
    def position(self) -> dict[str, tuple[int, int]]:
        """Of each segment how many bytes and rows were read."""
        return {name: (self._bytes.get(name, 0), rows) for name, rows in self._rows.items()}

    def new(self) -> pa.Table | None:
        """The new rows, None if there are none."""
        with reading(self._folder):
            return self._new()

    def _new(self) -> pa.Table | None:
        parts: list[pa.Table] = []
        for path in _live_segments(self._folder):
            for batch, end in _pieces(path, self._bytes.get(path.name, 0)):
                self._bytes[path.name] = end
                self._rows[path.name] = self._rows.get(path.name, 0) + batch.num_rows
                parts.append(batch)
        parts.extend(self._compacted_since())
        return pa.concat_tables(parts, promote_options="permissive") if parts else None

    def _compacted_since(self) -> Iterator[pa.Table]:
        """What reached Parquet before this follower saw it as a segment."""
        target = self._folder / PARQUET
        if not target.exists():
            return
        folded = _folded(target)
        if all(self._rows.get(name, 0) >= rows for name, rows in folded):
            return
        table = read_sealed(target)
        if ORDER in table.column_names:
            table = table.sort_by(ORDER).drop_columns([ORDER])
        start = 0
        for name, rows in folded:
            seen = self._rows.get(name, 0)
            if seen < rows:
                yield table.slice(start + seen, rows - seen)
                self._rows[name] = rows
            start += rows


def _write_parquet(target: Path, table: pa.Table, sort_by: str | None, options: dict[str, Any]) -> None:
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(3)}")
    try:
        if sort_by is None:
            pq.write_table(table, temporary, write_page_checksum=True, **options)
        else:
            # Grouped by first sight, not by alphabet: sorting small codes is ten times faster than sorting text.
            # Through buffers, not pa.array and to_numpy: those import pandas, half a second at the end of a run.
            indices = table.column(sort_by).combine_chunks().dictionary_encode().indices
            codes = np.frombuffer(indices.buffers()[1], np.int32, len(indices), indices.offset * 4)
            order = np.argsort(codes, kind="stable").astype(np.int64)
            places = pa.Array.from_buffers(pa.int64(), order.size, [None, pa.py_buffer(order)])
            if (codes[1:] < codes[:-1]).any():
                table = table.take(places)
            table = table.append_column(ORDER, places)
            ends = np.cumsum(np.bincount(codes))
            with pq.ParquetWriter(temporary, table.schema, write_page_checksum=True, **options) as writer:
                for start, stop in zip([0, *ends[:-1]], ends, strict=True):
                    writer.write_table(table.slice(start, stop - start), row_group_size=1 << 20)
        seal(temporary)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
        sync_folder(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _pieces(path: Path, start: int, lost: list[str] | None = None) -> Iterator[tuple[pa.Table, int]]:
    """Each whole piece from byte `start` with the byte behind it; ends at one whose end is not there.

    What is damaged is passed over, with a warning, and named in `lost`.
    """
    try:
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            budget = Budget(path, size)
            if file.read(4) != _OLD:
                for table, end, why in _framed(file, start, size, budget):
                    if table is not None:
                        yield table, end
                        continue
                    tell_loss(path, why)
                    if lost is not None:
                        lost.append(f"{path.name}: {why}")
                return
            while start < size:
                try:
                    table, start = _piece(file, start, budget)
                except MemoryError:
                    with _Bounded(io.FileIO(path)) as bounded:
                        table, start = _piece(bounded, start, budget)
                if table is None:
                    return
                yield table, start
    except FileNotFoundError:
        return  # compacted meanwhile


def _framed(
    file: io.BufferedReader, start: int, size: int, budget: Budget
) -> Iterator[tuple[pa.Table | None, int, str]]:
    """The pieces of format 2: a table and the byte behind it, or None and what is damaged.

    A piece whose number came before is a copy, which a disk made: its rows are there already.
    """
    seen: set[int] = set()
    while start < size:
        file.seek(start)
        head = file.read(_FRAME_BYTES)
        if len(head) < _FRAME_BYTES:
            return  # torn
        magic, place, checksum = _FRAME.unpack(head[: _FRAME.size])
        number, length = place >> _LENGTH_BITS, place & (1 << _LENGTH_BITS) - 1
        if magic != _MAGIC or zlib.crc32(head[: _FRAME.size]).to_bytes(4, "little") != head[_FRAME.size :]:
            end = _next_frame(file, start + 1, size)
            if end is None and not _has_more_than_zeros(file, start):
                return  # space that the file system gave, and the rows never came
            end = size if end is None else end
            yield None, end, f"{end - start} bytes from byte {start} on"
        else:
            end = start + _FRAME_BYTES + length
            if end > size:
                return  # torn
            stream = file.read(length)
            whole = zlib.crc32(stream) == checksum and number not in seen
            table = _piece(io.BytesIO(stream), 0, budget)[0] if whole else None
            if table is not None and number:
                seen.add(number)
            what = "copy of a piece" if number in seen and table is None else "piece"
            yield table, end, f"the {what} of {length} bytes at byte {start}"
        start = end


def _next_frame(file: io.BufferedReader, start: int, size: int) -> int | None:
    """Where the next whole frame begins."""
    before = b""
    while start < size:
        file.seek(start)
        chunk = before + file.read(1 << 20)
        at = chunk.find(_MAGIC)
        if at >= 0:
            return start - len(before) + at
        before, start = chunk[-len(_MAGIC) + 1 :], start + (1 << 20)
    return None


def _has_more_than_zeros(file: io.BufferedReader, start: int) -> bool:
    file.seek(start)
    while chunk := file.read(1 << 20):
        if chunk.count(0) != len(chunk):
            return True
    return False


def _piece(file: IO[bytes], start: int, budget: Budget) -> tuple[pa.Table | None, int]:
    """The piece that begins at a byte and the byte behind it; None if it is not whole."""
    try:
        return read_stream(file, start, budget), file.tell()
    except (pa.ArrowException, OSError, EOFError, ValueError, KeyError):
        return None, start


class _Bounded(io.BufferedReader):
    """Of which no more is asked for than it holds: a damaged length may ask for more memory than there is."""

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(0, os.fstat(self.fileno()).st_size - self.tell())
        return super().read(left if size is None or size < 0 else min(size, left))


def _parquet_files(folder: Path) -> list[Path]:
    try:
        open_file(folder / PARQUET).close()  # Arrow would wait on a pipe for ever
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [folder / PARQUET]


def _folded(parquet: Path) -> list[tuple[str, int]]:
    """The segments that a Parquet file says it holds. They become paths that are removed: each name is checked."""
    metadata = pq.read_schema(parquet).metadata or {}
    try:
        said = [(named("segment", name), rows) for name, rows in json.loads(metadata.get(_SEGMENTS, b"[]"))]
        if not all(type(rows) is int and rows >= 0 for _, rows in said):
            raise ValueError("a number of rows is none")
    except (LuxmeterError, ValueError, TypeError, RecursionError) as error:
        why = error.what if isinstance(error, LuxmeterError) else str(error)
        raise _damaged(parquet, f"its list of segments is not one of ours: {why}") from error
    return said


def damage_in(folder: Path) -> list[str]:
    """What of a table is damaged, in words: every byte is looked at."""
    found = [f"{path.name}: {why}" for path in _parquet_files(folder) if (why := damage_of(path))]
    with reading(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path in folder.glob("*.arrows"):
            for _ in _pieces(path, 0, found):
                continue
    return found


def check(folder: Path) -> None:
    """Raise StoreError if the beginning of reading a table, its Parquet file's description, shows damage."""
    with reading(folder):
        for parquet in _parquet_files(folder):
            _folded(parquet)


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Whatever damaged bytes make of the libraries that read them is one kind of error, with the table's name."""
    try:
        yield
    except (LuxmeterError, OSError, MemoryError) as error:
        # Without a number it is not the system's word but Arrow's, for bad content.
        if isinstance(error, IsADirectoryError) or (isinstance(error, OSError) and error.errno is None):
            raise _damaged(folder, str(error)) from error
        raise
    except Exception as error:
        raise _damaged(folder, f"{type(error).__name__}: {error}") from error


def _damaged(place: Path, why: str) -> StoreError:
    return StoreError(
        "table-damaged",
        f"{place} cannot be read: {why.rstrip('.')}.",
        "Restore it from a copy; the run's other tables, and the other runs, are not touched.",
    )


def count_rows(folder: Path) -> int:
    """How many rows the table has."""
    with reading(folder):
        live = sum(batch.num_rows for path in _live_segments(folder) for batch, _ in _pieces(path, 0))
        return int(live + sum(pq.read_metadata(path).num_rows for path in _parquet_files(folder)))


def _still_written(path: Path) -> bool:
    """Whether the segment belongs to another living process of this machine (its number begins the name)."""
    number = path.name.split("-", 1)[0]
    if not number.isdecimal() or len(number) > 10 or int(number) >= 1 << 31:  # no process has such a number
        return False
    return int(number) != os.getpid() and psutil.pid_exists(int(number))


def _live_segments(folder: Path) -> list[Path]:
    folded = {name for parquet in _parquet_files(folder) for name, _ in _folded(parquet)}
    return sorted(path for path in folder.glob("*.arrows") if path.name not in folded)


def _remove_folded(folder: Path) -> None:
    for parquet in _parquet_files(folder):
        for name, _ in _folded(parquet):
            (folder / name).unlink(missing_ok=True)
