"""A bit that the disk changed is found, said, and costs what it is in: a piece, a row group; never a value."""

from __future__ import annotations

import random
import shutil
import struct
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from luxmeter.errors import LuxmeterWarning, StoreError, forget_warnings
from luxmeter.store import (
    SegmentWriter,
    compact,
    damage_in,
    read_sealed,
    read_segments,
    sealed,
    write_sealed,
)
from luxmeter.store.segments import Follower

PIECES, ROWS = 6, 50


def written(folder: Path, *, fold: bool = False, sort_by: str | None = "key") -> list[tuple[str, int, float]]:
    """A table of some pieces; what it holds."""
    writer = SegmentWriter(folder)
    rows = [("ab"[i % 2], i, i / 3) for i in range(PIECES * ROWS)]
    for start in range(0, len(rows), ROWS):
        keys, steps, values = zip(*rows[start : start + ROWS], strict=True)
        writer.append(pa.record_batch({"key": list(keys), "step": list(steps), "value": list(values)}))
    writer.close()
    if fold:
        compact(folder, sort_by=sort_by)
    return rows


def read(folder: Path) -> tuple[list[Any] | None, str]:
    """The rows, or None where reading is refused; and what was said."""
    forget_warnings()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            table = read_segments(folder)
        except StoreError as error:
            return None, str(error)
    words = " ".join(str(one.message) for one in said if issubclass(one.category, LuxmeterWarning))
    rows = (
        []
        if table is None
        else list(zip(*(table[n].to_pylist() for n in ("key", "step", "value")), strict=True))
    )
    return rows, words


def flip(rng: random.Random) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        at = rng.randrange(len(data))
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]

    return change


@pytest.mark.parametrize("fold", [False, True], ids=["segments", "parquet"])
def test_one_bit_costs_what_it_is_in_and_nothing_is_altered(tmp_path: Path, fold: bool) -> None:
    whole = set(written(tmp_path / "t", fold=fold))
    [file] = [path for path in (tmp_path / "t").iterdir() if not path.name.startswith(".")]
    good, rng = file.read_bytes(), random.Random(1)
    refused = 0
    for _ in range(150):
        file.write_bytes(flip(rng)(good))
        rows, said = read(tmp_path / "t")
        if rows is None:
            refused += 1
            assert fold and "table-damaged" in said
            continue
        assert set(rows) <= whole and len(set(rows)) == len(rows), "altered"
        if set(rows) != whole:
            assert "rows-damaged" in said and str(file) in said and damage_in(tmp_path / "t")
            assert len(whole) - len(rows) == (len(whole) // 2 if fold else ROWS)
    assert refused < 150


def test_bytes_gone_or_come_cost_their_piece(tmp_path: Path) -> None:
    rows = written(tmp_path / "t")
    [file] = (tmp_path / "t").iterdir()
    good = file.read_bytes()
    piece = len(good) // PIECES
    for damaged in (
        good[: 2 * piece + 30] + good[2 * piece + 45 :],
        good[: 2 * piece + 3] + b"come" + good[2 * piece + 3 :],
        good[: 2 * piece] + bytes(piece) + good[3 * piece :],
    ):
        file.write_bytes(damaged)
        found, said = read(tmp_path / "t")
        assert "rows-damaged" in said and found is not None
        assert rows[: 2 * ROWS] == found[: 2 * ROWS] and rows[-2 * ROWS :] == found[-2 * ROWS :]


def test_a_torn_tail_and_one_of_zeros_are_accepted_without_a_word(tmp_path: Path) -> None:
    rows = written(tmp_path / "t")
    [file] = (tmp_path / "t").iterdir()
    good = file.read_bytes()
    for tail in (good[:-1], good[: -len(good) // PIECES + 10], good + bytes(4096), good + good[:30]):
        file.write_bytes(tail)
        found, said = read(tmp_path / "t")
        assert (
            found is not None and not said and found == rows[: len(found)] and len(found) >= len(rows) - ROWS
        )


def test_what_was_damaged_is_said_after_it_was_folded_too(tmp_path: Path) -> None:
    written(tmp_path / "t")
    [file] = (tmp_path / "t").iterdir()
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compact(tmp_path / "t", sort_by="key")
    assert not file.exists()
    found, said = read(tmp_path / "t")
    assert found is not None and len(found) == (PIECES - 1) * ROWS and "1 of its pieces" in said


def test_a_follower_goes_on_behind_a_damaged_piece(tmp_path: Path) -> None:
    rows = written(tmp_path / "t")
    [file] = (tmp_path / "t").iterdir()
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = Follower(tmp_path / "t").new()
    assert table is not None and table.num_rows == len(rows) - ROWS


def test_other_programs_read_the_files_and_ours_reads_theirs(tmp_path: Path) -> None:
    rows = written(tmp_path / "t", fold=True)
    plain = pq.read_table(tmp_path / "t" / "table.parquet", page_checksum_verification=True)
    assert plain.num_rows == len(rows)
    pq.write_table(plain.drop_columns(["_order"]), tmp_path / "t" / "table.parquet")  # without a seal
    found, said = read(tmp_path / "t")
    assert found is not None and not said and set(found) == set(rows)


def test_tables_of_format_1_are_read(tmp_path: Path) -> None:
    """Pieces without frames, one after the other."""
    folder = tmp_path / "t"
    folder.mkdir()
    with open(folder / "1-abcdef-0000.arrows", "wb") as file:
        for part in range(3):
            batch = pa.record_batch({"key": ["a"], "step": [part], "value": [0.5]})
            with pa.ipc.new_stream(file, batch.schema) as stream:
                stream.write_batch(batch)
    assert read(folder) == ([("a", 0, 0.5), ("a", 1, 0.5), ("a", 2, 0.5)], "")
    shutil.rmtree(folder)


def test_a_piece_that_a_disk_wrote_twice_counts_once(tmp_path: Path) -> None:
    whole = written(tmp_path / "t")
    [file] = (tmp_path / "t").iterdir()
    good = file.read_bytes()
    starts = [at for at in range(len(good)) if good.startswith(b"LUXPIECE", at)] + [len(good)]
    for first in range(PIECES):
        for last in range(first + 1, PIECES + 1):
            file.write_bytes(good[: starts[last]] + good[starts[first] :])
            rows, said = read(tmp_path / "t")
            assert rows == whole and "the copy of a piece" in said
            assert len(damage_in(tmp_path / "t")) == last - first


def test_a_seal_of_another_table(tmp_path: Path) -> None:
    """Right in itself, but for a file of other columns."""
    file = tmp_path / "a.parquet"
    write_sealed(file, pa.table({"a": [1], "b": [2]}), {})
    with open(file, "r+b") as held:
        start, description = sealed._description(held)
        packed = struct.pack("<I", 7)
        held.seek(start - sealed._TAIL.size)
        held.write(packed + sealed._TAIL.pack(sealed._MAGIC, 1, zlib.crc32(packed), zlib.crc32(description)))
        held.write(description)
    with pytest.raises(StoreError, match="other columns than checksums"):
        read_sealed(file)
