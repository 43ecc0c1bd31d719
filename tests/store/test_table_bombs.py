"""Tables of a few kilobytes that claim gigabytes are refused before they fill the memory; what is only alike is read."""

from __future__ import annotations

import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from luxmeter.errors import LuxmeterWarning, StoreError, forget_warnings
from luxmeter.store import claims, damage_in, read_segments

MIB = 1 << 20
ROWS = 400_000


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "SMALL_BYTES", MIB)
    monkeypatch.setattr(claims, "_MOST_TIMES", 2)
    forget_warnings()


def numbers() -> pa.Table:
    return pa.table(
        {"key": pa.array(["a"]).take(pa.array(np.zeros(ROWS, np.int32))), "value": np.zeros(ROWS)}
    )


def parquet(folder: Path, table: pa.Table, **options: object) -> Path:
    folder.mkdir()
    pq.write_table(table, folder / "table.parquet", compression="zstd", **options)
    return folder


def segment(folder: Path, table: pa.Table, *, packed: str | None = None) -> Path:
    """What somebody wrote who knows the format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=packed)) as stream:
        stream.write_table(table)
    data = sink.getvalue().to_pybytes()
    head = struct.pack("<8sQI", b"LUXPIECE", 1 << 40 | len(data), zlib.crc32(data))
    folder.mkdir()
    file = folder / "1-abcdef-0000.arrows"
    file.write_bytes(head + struct.pack("<I", zlib.crc32(head)) + data)
    return folder


def test_a_small_file_with_numbers_without_end(tmp_path: Path) -> None:
    folder = parquet(tmp_path / "t", numbers())
    assert (folder / "table.parquet").stat().st_size < 20_000
    with pytest.raises(
        StoreError, match=r"table\.parquet has .* bytes and claims more than 1,048,576"
    ) as error:
        read_segments(folder)
    assert error.value.slug == "table-too-large"


@pytest.mark.parametrize("encoding", ["RLE_DICTIONARY", "DELTA_BYTE_ARRAY"])
@pytest.mark.parametrize("written", ["string", "dictionary"])
def test_one_long_text_again_and_again(tmp_path: Path, encoding: str, written: str) -> None:
    texts = pa.array(["x" * 100_000])
    column = (
        pa.DictionaryArray.from_arrays(pa.array(np.zeros(2000, np.int32)), texts)
        if written == "dictionary"
        else texts.take(pa.array(np.zeros(2000, np.int32)))
    )
    options: dict[str, object] = (
        {} if encoding == "RLE_DICTIONARY" else {"use_dictionary": False, "column_encoding": encoding}
    )
    folder = parquet(tmp_path / "t", pa.table({"text": column}), **options)
    assert (folder / "table.parquet").stat().st_size < 300_000
    with pytest.raises(
        StoreError, match=r"table-(too-large|damaged)"
    ):  # Arrow itself refuses one of the four
        read_segments(folder)


def test_many_rows_that_are_alike_are_read(tmp_path: Path) -> None:
    """As many as fit: looked at page by page, and read some rows at a time, since each might be the longest text."""
    texts = [f"text {i % 7} " * 40 for i in range(2000)]
    folder = parquet(tmp_path / "t", pa.table({"text": texts, "n": range(2000)}), row_group_size=300)
    found = read_segments(folder)
    assert (
        found is not None
        and found["text"].to_pylist() == texts
        and found["n"].to_pylist() == list(range(2000))
    )
    found = read_segments(folder, columns=["text"])
    assert found is not None and found.column_names == ["text"] and found.num_rows == 2000


def test_what_the_end_of_a_file_says_of_its_pages_is_not_believed(tmp_path: Path) -> None:
    """Sizes are taken from the pages themselves, by which Arrow goes, too."""
    folder = parquet(tmp_path / "t", pa.table({"text": ["x" * 900_000, "y" * 900_000]}), use_dictionary=False)
    column = pq.read_metadata(folder / "table.parquet").row_group(0).column(0)
    with (folder / "table.parquet").open("rb") as raw:
        found = claims._page_bytes(raw, column)
    assert (
        1_800_000 < found < column.total_uncompressed_size < found + 1000
    )  # the heads of pages are in it, too


@pytest.mark.parametrize("packed", ["zstd", "lz4"])
def test_a_packed_piece_is_none_of_ours(tmp_path: Path, packed: str) -> None:
    folder = segment(tmp_path / "t", numbers(), packed=packed)
    with pytest.warns(LuxmeterWarning, match="left out"):
        assert read_segments(folder) is None
    assert damage_in(folder)


def test_a_piece_as_it_is_written(tmp_path: Path) -> None:
    rows = pa.table({"key": pa.array(["a", "b"]).dictionary_encode(), "value": [1.0, 2.0]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = read_segments(segment(tmp_path / "t", rows))
    assert found is not None and found.to_pylist() == [{"key": "a", "value": 1.0}, {"key": "b", "value": 2.0}]
    assert damage_in(tmp_path / "t") == []


def test_a_dictionary_that_is_written_out_larger_than_may_be(tmp_path: Path) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(5000, np.int8)), pa.array(["x" * 5000]))
    folder = segment(tmp_path / "t", pa.table({"key": column}))
    with pytest.raises(StoreError, match="table-too-large"):
        read_segments(folder)
    assert read_segments(segment(tmp_path / "u", pa.table({"key": column[:50]}))) is not None


@pytest.mark.parametrize(
    "column",
    [
        pa.nulls(1000),
        pa.RunEndEncodedArray.from_arrays(pa.array([1000], pa.int32()), pa.array([1.0])),
        pa.array([[1.0]]),
        pa.array([{"a": 1}]),
    ],
    ids=["nothing", "one run", "lists", "structures"],
)
def test_columns_whose_rows_take_no_room(tmp_path: Path, column: pa.Array) -> None:
    folder = segment(tmp_path / "t", pa.Table.from_arrays([column], ["value"]))
    with pytest.warns(LuxmeterWarning, match="left out"):
        assert read_segments(folder) is None


def test_heads_of_pages_that_are_none(tmp_path: Path) -> None:
    for head, why in (
        (b"", "does not end"),
        (b"\x15", "does not end"),
        (b"\x00", "how large"),
        (b"\x15\x00\x15\x01\x15\x02\x00", "how large"),
        (b"\x15" + b"\xff" * 12, "does not end"),
        (b"\x1d\x00", "none of Parquet's"),
        (b"\x1c" * 12, "none of Parquet's"),
    ):
        with pytest.raises(ValueError, match=why):
            claims._page(head)
    with pytest.raises(ValueError, match="none of Arrow's"):
        claims._is_packed(b"\xff\xff\xff\xff")


def test_the_head_of_a_page_with_its_fields_in_the_long_form() -> None:
    """Thrift numbers a field by its distance from the one before, or in full where that is none of 1 to 15."""
    head = bytes([0x05, 4, 100, 0x05, 6, 50, 0])  # fields 2 and 3, zigzag: 50 and 25 bytes
    assert claims._page(head) == (50, 25, len(head))
    assert claims._page(bytes([0x25, 100, 0x15, 50, 0]))[:2] == (50, 25)
    for bad in (head[:-1], b"", bytes([0x1F, 1, 0])):
        with pytest.raises((ValueError, IndexError, EOFError)):
            claims._page(bad)


@pytest.mark.parametrize("values", [list(range(1000)), ["a" * 900, "b"] * 500])
def test_a_dictionary_counts_as_what_it_stands_for(tmp_path: Path, values: list[object]) -> None:
    table = pa.table({"a": pa.array(values).dictionary_encode()})
    budget = claims.Budget(tmp_path, 0)
    assert claims.plain(table, budget)["a"].to_pylist() == values
    assert budget.most - budget.left >= 8 * 1000
    budget.left = 7999
    with pytest.raises(StoreError):
        claims.plain(table, budget)
