"""The files of a table: written piece by piece, begun anew where they grow large or the disk refuses, followed, folded."""

from __future__ import annotations

import errno
import io
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from luxmeter.errors import StoreError
from luxmeter.store import SegmentWriter, compact, damage_in, read_segments, segments
from luxmeter.store.sealed import damage_of
from luxmeter.store.segments import Follower


def piece(start: int, count: int = 10) -> pa.RecordBatch:
    steps = list(range(start, start + count))
    return pa.record_batch({"key": ["ab"[step % 2] for step in steps], "step": steps})


def steps_of(table: pa.Table | None) -> list[int]:
    return [] if table is None else table["step"].to_pylist()


def test_a_table_is_a_piece_as_a_batch_is(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "t")
    writer.append(piece(0))
    writer.append(pa.table({"key": ["a"], "step": [10]}))
    writer.close()
    assert steps_of(read_segments(tmp_path / "t")) == list(range(11))


def test_a_large_segment_is_closed_and_another_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "_MAX_SEGMENT_BYTES", 1000)
    writer = SegmentWriter(tmp_path / "t")
    for start in range(0, 50, 10):
        writer.append(piece(start))
    writer.close()
    assert len(list((tmp_path / "t").iterdir())) > 1
    assert steps_of(read_segments(tmp_path / "t")) == list(range(50))


class FullDisk(io.FileIO):
    """Takes half of a piece; with `stuck` it cannot be cut back either."""

    stuck = False

    def write(self, data: Any, /) -> int:
        super().write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    def truncate(self, size: int | None = None, /) -> int:
        if self.stuck:
            raise OSError(errno.EIO, "Input/output error")
        return super().truncate(size)


@pytest.mark.parametrize("stuck", [False, True])
def test_half_a_piece_is_taken_off_or_left_behind(
    tmp_path: Path, stuck: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the half cannot be taken off, it stays at the end of its file, torn, and the next piece begins another."""
    writer = SegmentWriter(tmp_path / "t")
    writer.append(piece(0))
    [file] = (tmp_path / "t").iterdir()
    whole = file.stat().st_size
    kept = writer._file
    monkeypatch.setattr(FullDisk, "stuck", stuck)
    writer._file = FullDisk(file, "r+b")
    writer._file.seek(0, 2)
    with pytest.raises(OSError, match="No space"):
        writer.append(piece(10))
    assert (file.stat().st_size == whole) is not stuck
    if writer._file is not None:
        writer._file.close()
        writer._file = kept
    elif kept is not None:
        kept.close()
    writer.append(piece(10))
    writer.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert steps_of(read_segments(tmp_path / "t")) == list(range(20))
    assert len(list((tmp_path / "t").iterdir())) == (2 if stuck else 1)


@pytest.mark.parametrize("sort_by", ["key", None])
def test_a_follower_goes_on_across_folding_and_another_follower(tmp_path: Path, sort_by: str | None) -> None:
    """Each row once and in order, however the table is folded between two looks."""
    folder, seen = tmp_path / "t", list[int]()
    follower = Follower(folder)
    for part in range(4):
        writer = SegmentWriter(folder)
        writer.append(piece(part * 20))
        if part % 2 == 0:
            seen += steps_of(follower.new())
            follower = Follower(folder, follower.position)
        writer.append(piece(part * 20 + 10))
        writer.close()
        compact(folder, sort_by=sort_by)
        seen += steps_of(follower.new())
        follower = Follower(folder, {name: list(place) for name, place in follower.position.items()})
    assert seen == list(range(80)) and follower.new() is None
    assert steps_of(Follower(folder).new()) == list(range(80))


def test_a_segment_torn_in_its_first_piece_is_folded_away(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "t")
    writer.append(piece(0))
    writer.close()
    [file] = (tmp_path / "t").iterdir()
    file.write_bytes(file.read_bytes()[:-5])
    assert compact(tmp_path / "t") is None and list((tmp_path / "t").iterdir()) == []


# -- what lies there instead ------------------------------------------------------------------------------------------


def format_1(path: Path) -> bytes:
    """A segment as the first format had it: streams without frames."""
    sink = pa.BufferOutputStream()
    for start in (0, 10):
        batch = piece(start)
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(sink.getvalue().to_pybytes())
    return path.read_bytes()


def test_any_length_of_a_segment_of_format_1_may_be_damaged(tmp_path: Path) -> None:
    """What asks for more memory than there is, is no memory error: rows before it are there, and nothing else is raised."""
    file = tmp_path / "t" / "1-abcdef-0000.arrows"
    good = format_1(file)
    beginnings = 0
    for at, size in ((at, size) for at in range(len(good) - 7) for size in (1 << 47, (1 << 63) - 1)):
        file.write_bytes(good[:at] + size.to_bytes(8, "little") + good[at + 8 :])
        try:
            found = steps_of(read_segments(tmp_path / "t"))
        except StoreError as error:
            assert error.slug == "table-damaged"
            continue
        except (TypeError, KeyError):
            continue  # the names of its columns were hit: this test asks for them
        beginnings += found == list(range(10))
    assert beginnings > 50


def test_a_segment_that_another_process_folds_meanwhile(tmp_path: Path) -> None:
    assert list(segments._pieces(tmp_path / "gone-0000.arrows", 0)) == []


def test_bytes_behind_the_last_piece_that_are_no_frame(tmp_path: Path) -> None:
    """Zeros are space that the file system gave; anything else is damage, and said."""
    writer = SegmentWriter(tmp_path / "t")
    writer.append(piece(0))
    writer.close()
    [file] = (tmp_path / "t").iterdir()
    good = file.read_bytes()
    file.write_bytes(good + bytes(3 << 20))
    assert damage_in(tmp_path / "t") == []
    file.write_bytes(good + bytes(3 << 20) + b"x")
    assert [line.partition(": ")[2] for line in damage_in(tmp_path / "t")] == [
        f"{(3 << 20) + 1} bytes from byte {len(good)} on"
    ]


def test_what_tells_of_a_file_that_has_no_seal_or_a_wrong_one(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "t")
    writer.append(piece(0))
    writer.close()
    file = compact(tmp_path / "t", sort_by="key")
    assert file is not None and damage_of(file) == ""
    good = file.read_bytes()
    said, name = set(), range(good.index(b"LUXSEAL1"), good.index(b"LUXSEAL1") + 8)
    for at in (
        at for at in range(4, len(good)) if at not in name
    ):  # with a letter that is another a seal is one, too
        file.write_bytes(good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :])
        said.add(damage_of(file).replace(str(file), "F").partition(":")[0][:40])
    assert "" not in said and len(said) > 2
    file.write_bytes(b"PAR1 and no more")
    assert "none of a Parquet file" in damage_of(file)
    pq.write_table(pa.table({"step": [1]}), file)
    assert damage_of(file) == "", "another program's: nothing can tell"
    (tmp_path / "folder").mkdir()
    assert damage_of(tmp_path / "folder") != ""
