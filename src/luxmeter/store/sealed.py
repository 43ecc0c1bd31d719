"""Parquet files whose every byte is under a checksum: what a disk changed is found, and costs the row group it is in.

Parquet's own checksums cover the data of pages alone, neither their headers nor the description at the end. So between
the last page and that description, where Parquet leaves room, lies a seal:

    CRC-32 of each column of each row group, 4 bytes each | "LUXSEAL1" | how many | CRC-32 of them | CRC-32 of the description

A file without one (of an older version, or another program) is read as it is.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from luxmeter.errors import StoreError, warn_once
from luxmeter.files import open_file
from luxmeter.late import late
from luxmeter.store.claims import read_groups

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa = late("pyarrow")
    pq = late("pyarrow.parquet")

_MAGIC = b"LUXSEAL1"
_TAIL = struct.Struct("<8sIII")
_CHUNK = 1 << 20


def write_sealed(path: Path, table: pa.Table, options: dict[str, Any]) -> None:
    """Write a table, and its seal. Not atomic: give the name of a temporary file."""
    pq.write_table(table, path, write_page_checksum=True, **options)
    seal(path)


def seal(path: Path) -> None:
    """Put the seal into a Parquet file that was just written."""
    with open(path, "r+b") as file:
        start, description = _description(file)
        sums = [_sum_of(file, *place) for places in _places(pq.read_metadata(path)) for place in places]
        packed = struct.pack(f"<{len(sums)}I", *sums)
        file.seek(start)
        file.write(packed + _TAIL.pack(_MAGIC, len(sums), zlib.crc32(packed), zlib.crc32(description)))
        file.write(description)


def read_sealed(path: Path, columns: Sequence[str] | None = None, *, only: Any = None) -> pa.Table:
    """The rows of a file, without the row groups that are damaged; a warning says so. StoreError if all of it is.

    `only(group)` tells from a group's metadata whether it is wanted.
    """
    sums = _sums(path)
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        groups: list[int] = [
            i for i in range(file.num_row_groups) if only is None or only(file.metadata.row_group(i))
        ]
        bad = set() if sums is None else _bad_groups(path, file.metadata, sums, groups, columns)
        if bad:
            rows = sum(file.metadata.row_group(i).num_rows for i in bad)
            tell_loss(path, f"{rows} rows")
        return read_groups(file, path, [i for i in groups if i not in bad], columns)


def damage_of(path: Path) -> str:
    """What is damaged in a file, in words; empty if nothing is, or if nothing can tell."""
    try:
        sums, metadata = _sums(path), pq.read_metadata(path)
        if sums is None:
            return ""
        bad = _bad_groups(path, metadata, sums, range(metadata.num_row_groups), None)
    except StoreError as error:
        return error.what
    except (pa.ArrowException, OSError, ValueError) as error:
        return str(error)
    rows = sum(metadata.row_group(i).num_rows for i in bad)
    return f"{rows} of {metadata.num_rows} rows" if bad else ""


def tell_loss(path: Path, what: str) -> None:
    """Say, once a file, that some of it is damaged and left out."""
    warn_once(
        "rows-damaged",
        f"{path} is damaged: {what} are left out.",
        "Restore it from a copy; luxmeter doctor --lab lists all that is damaged.",
        key=str(path),
    )


def _description(file: IO[bytes]) -> tuple[int, bytes]:
    """Where the description at the end begins, and its bytes up to the end of the file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    end = file.read()
    start = size - 8 - int.from_bytes(end[:4], "little") if end[4:] == b"PAR1" else -1
    if start < 4:
        raise _damaged(file.name, "its end is none of a Parquet file")
    file.seek(start)
    return start, file.read()


def _sums(path: Path) -> list[int] | None:
    """The checksums out of the seal; None without one."""
    with open_file(path) as file:
        start, description = _description(file)
        file.seek(max(0, start - _TAIL.size))
        tail = file.read(min(start, _TAIL.size))
        if len(tail) < _TAIL.size or not _is_seal(tail):
            return None
        _, count, of_sums, of_description = _TAIL.unpack(tail)
        begin = start - _TAIL.size - 4 * count
        if begin < 4 or zlib.crc32(description) != of_description:
            raise _damaged(path, "the description at its end is not what was written")
        file.seek(begin)
        packed = file.read(4 * count)
    if zlib.crc32(packed) != of_sums:
        raise _damaged(path, "its checksums are not what was written")
    return list(struct.unpack(f"<{count}I", packed))


def _is_seal(tail: bytes) -> bool:
    """Whether the name is there, but for a letter: a damaged seal is one, too."""
    return sum(a != b for a, b in zip(tail, _MAGIC, strict=False)) <= 1


def _bad_groups(
    path: Path, metadata: Any, sums: list[int], groups: Iterable[int], columns: Sequence[str] | None
) -> set[int]:
    places = list(_places(metadata))
    width = metadata.num_columns
    if len(sums) != len(places) * width:
        raise _damaged(path, "it has other columns than checksums")
    wanted = [
        i
        for i in range(width)
        if columns is None or metadata.schema.column(i).path.partition(".")[0] in columns
    ]
    with open(path, "rb") as file:
        return {
            group
            for group in groups
            if any(_sum_of(file, *places[group][i]) != sums[group * width + i] for i in wanted)
        }


def _places(metadata: Any) -> Iterable[list[tuple[int, int]]]:
    """(begin, bytes) of each column of each row group."""
    for group in range(metadata.num_row_groups):
        columns = [metadata.row_group(group).column(i) for i in range(metadata.num_columns)]
        yield [
            (
                min(
                    place
                    for place in (column.dictionary_page_offset, column.data_page_offset)
                    if place is not None
                ),
                column.total_compressed_size,
            )
            for column in columns
        ]


def _sum_of(file: IO[bytes], begin: int, size: int) -> int:
    file.seek(begin)
    found = 0
    while size > 0 and (chunk := file.read(min(size, _CHUNK))):
        found = zlib.crc32(chunk, found)
        size -= len(chunk)
    return found


def _damaged(path: Any, why: str) -> StoreError:
    return StoreError(
        "table-damaged",
        f"{path} cannot be read: {why}.",
        "Restore it from a copy; the run's other tables, and the other runs, are not touched.",
    )
