"""How much memory a file of tables may ask for: a few kilobytes can claim rows without number, or one long text a million times.

What is read may take 1 GiB, or 200 times the file if that is more, as what comes out of an archive may (experiment/transfer).
Tables of ours stay far below: their columns are numbers and texts, of which no two are alike.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from luxmeter.errors import StoreError
from luxmeter.late import late

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
else:
    pa = late("pyarrow")
    pc = late("pyarrow.compute")
    pq = late("pyarrow.parquet")

_MOST_TIMES, SMALL_BYTES = 200, 1 << 30
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
# What a byte can become at most, by the way it is packed; of others it is looked up page by page.
_GROWS = {"UNCOMPRESSED": 1, "SNAPPY": 64, "LZ4": 255, "GZIP": 1040, "ZSTD": 1 << 15}
_MOST_HEAD_BYTES = 1 << 16  # of a page; it may hold the smallest and the largest text


class Budget:
    """What the tables of one file may still take."""

    def __init__(self, path: Path, packed_bytes: int) -> None:
        self._path, self._packed_bytes = path, packed_bytes
        self.left = self.most = max(SMALL_BYTES, _MOST_TIMES * packed_bytes)

    def take(self, size: int) -> None:
        """So much is taken. StoreError if it is more than is left."""
        self.allow(size)
        self.left -= size

    def allow(self, size: int) -> None:
        """StoreError if this is more than is left."""
        if size > self.left:
            raise StoreError(
                "table-too-large",
                f"{self._path} has {self._packed_bytes:,} bytes and claims more than {self.most:,} bytes of rows.",
                "No run writes such a table. See whom the file is from; other tables and runs are read as ever.",
            )


# -- Parquet


def read_groups(
    file: pq.ParquetFile, path: Path, groups: Sequence[int], columns: Sequence[str] | None
) -> pa.Table:
    """The rows of some row groups, with texts written out; StoreError before more memory is taken than the file may ask for."""
    size = path.stat().st_size
    budget, read = Budget(path, size), Budget(path, size)
    with open(path, "rb") as raw:
        if _claim(file.metadata, raw, groups, columns, budget) <= budget.left:
            return plain(file.read_row_groups(groups, columns=columns), read)
        largest = _largest_row(file.metadata, raw, groups, columns)
    read.allow(largest)
    # A text that stands there once may come again and again: so many rows at a time that each may be the longest.
    found, batches = Budget(path, size), []
    for batch in file.iter_batches(min(1 << 16, max(1, read.most // max(1, largest))), groups, columns):
        found.take(batch.nbytes)
        batches.append(batch)
    return plain(pa.Table.from_batches(batches), read)


def _claim(
    metadata: Any, raw: IO[bytes], groups: Sequence[int], columns: Sequence[str] | None, budget: Budget
) -> int:
    """Take off what the numbers need; returns what the texts need if each were the longest there can be."""
    needed = 0
    for _, column, values in _wanted(metadata, groups, columns):
        width = _WIDTHS.get(column.physical_type)
        if width is not None:
            budget.take(values * width)
            continue
        least = column.total_compressed_size * _GROWS.get(column.compression, 1 << 40)
        if values * least + needed > budget.left:
            least = _page_bytes(raw, column)
        needed += values * (least + 8)
    return needed


def _largest_row(metadata: Any, raw: IO[bytes], groups: Sequence[int], columns: Sequence[str] | None) -> int:
    """How many bytes the texts of a row have at most."""
    largest: dict[str, int] = {}
    for name, column, _ in _wanted(metadata, groups, columns):
        if column.physical_type not in _WIDTHS:
            largest[name] = max(largest.get(name, 0), _page_bytes(raw, column))
    return sum(largest.values())


def _wanted(metadata: Any, groups: Sequence[int], columns: Sequence[str] | None) -> Any:
    """(name, column, how many values) of each column that is read of each row group."""
    for number in groups:
        group = metadata.row_group(number)
        for i in range(metadata.num_columns):
            name = metadata.schema.column(i).path
            if columns is None or name.partition(".")[0] in columns:
                yield name, group.column(i), max(group.column(i).num_values, group.num_rows)


def _page_bytes(raw: IO[bytes], column: Any) -> int:
    """What a column of a row group is unpacked, by what its pages say: Arrow holds pages to that, not to what the end of the file says."""
    places = (column.dictionary_page_offset, column.data_page_offset)
    at = min(place for place in places if place is not None)
    end, found = at + column.total_compressed_size, 0
    while at < end:
        raw.seek(at)
        unpacked, packed, head_bytes = _page(raw.read(_MOST_HEAD_BYTES))
        found += unpacked
        at += head_bytes + packed
    return found


def _page(head: bytes) -> tuple[int, int, int]:
    """Of a page that begins here: its bytes unpacked and packed, and those of its head. (Thrift's compact protocol.)"""
    said, at = _fields(head, 0)
    if any(type(said.get(field)) is not int or said[field] < 0 for field in (2, 3)):
        raise ValueError("a page does not say how large it is")
    return said[2], said[3], at


def _fields(data: bytes, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """The numbers among the fields of a structure, and the byte behind it."""
    found: dict[int, Any] = {}
    number = 0
    while True:
        kind, since = _byte(data, at) & 15, _byte(data, at) >> 4
        at += 1
        if kind == 0:
            return found, at
        if since:
            number += since
        else:
            number, at = _number(data, at)
        found[number], at = _value(data, at, kind, depth)


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (1, 2):  # true, false
        return None, at
    if kind in (4, 5, 6):
        return _number(data, at)
    if kind == 8:  # bytes
        length, at = _plain_number(data, at)
        return None, at + length
    if kind == 12 and depth < 8:
        return None, _fields(data, at, depth + 1)[1]
    raise ValueError("the head of a page is none of Parquet's")


def _plain_number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = _byte(data, at)
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("a number in the head of a page does not end")


def _number(data: bytes, at: int) -> tuple[int, int]:
    value, at = _plain_number(data, at)
    return (value >> 1) ^ -(value & 1), at


def _byte(data: bytes, at: int) -> int:
    if at >= len(data):
        raise ValueError("the head of a page does not end")
    return data[at]


# -- Arrow


def read_stream(file: IO[bytes], start: int, budget: Budget) -> pa.Table:
    """The Arrow stream that begins at a byte, with texts written out. ValueError for what no writer of ours writes:
    packed columns, and types whose rows take no room."""
    file.seek(start)
    messages = pa.ipc.MessageReader.open_stream(file)
    for message in messages:
        if _is_packed(message.metadata.to_pybytes()):
            raise ValueError("its columns are packed")
    file.seek(start)
    with pa.ipc.open_stream(file) as reader:
        if not reader.schema.names or not all(_takes_room(field.type) for field in reader.schema):
            raise ValueError("its columns are none of ours")
        table = reader.read_all()
    table.validate(full=True)  # numbers that point outside of their memory crash who follows them
    return plain(table, budget)


def _is_packed(message: bytes) -> bool:
    """Whether a message of Arrow's (a flatbuffer) has rows whose bytes are compressed."""
    try:
        top = struct.unpack_from("<I", message)[0]
        kind = message[_slot(message, top, 1)] if _slot(message, top, 1) else 0
        header = _slot(message, top, 2)
        if kind not in (2, 3) or not header:  # dictionaries, rows
            return False
        rows = header + struct.unpack_from("<I", message, header)[0]
        if kind == 2:
            inner = _slot(message, rows, 1)
            rows = inner + struct.unpack_from("<I", message, inner)[0]
        return _slot(message, rows, 3) != 0
    except (struct.error, IndexError) as error:
        raise ValueError(f"a message that is none of Arrow's ({error})") from error


def _slot(message: bytes, table: int, number: int) -> int:
    """Where a field of a flatbuffer's table lies; 0 if it is not there."""
    entries = table - struct.unpack_from("<i", message, table)[0]
    if 4 + 2 * number >= struct.unpack_from("<H", message, entries)[0]:
        return 0
    offset = struct.unpack_from("<H", message, entries + 4 + 2 * number)[0]
    return table + offset if offset else 0


def _takes_room(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return not pa.types.is_dictionary(kind.value_type) and _takes_room(kind.value_type)
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string, pa.types.is_large_string,
             pa.types.is_binary, pa.types.is_large_binary)  # fmt: skip
    return any(test(kind) for test in tests)


def plain(table: pa.Table, budget: Budget) -> pa.Table:
    """Dictionary columns as what they stand for: pieces have dictionaries of their own."""
    for i, field in enumerate(table.schema):
        column = table.column(i)
        if not pa.types.is_dictionary(field.type):
            budget.take(column.nbytes)
            continue
        for chunk in column.chunks:
            budget.take(_bytes_of(chunk))
        table = table.set_column(i, field.name, column.cast(field.type.value_type))
    return table


def _bytes_of(chunk: pa.DictionaryArray) -> int:
    """Of a dictionary's array, written out."""
    kind = chunk.type.value_type
    if pa.types.is_primitive(kind):
        return len(chunk) * 8
    lengths = pc.binary_length(chunk.dictionary)
    return int(pc.sum(pc.take(lengths, chunk.indices)).as_py() or 0) + len(chunk) * 8
