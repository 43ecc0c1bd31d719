"""Checkpoints where the world is not as it should be: names that meet, files that vanish, threads that do not start, shards that are none."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from luxmeter.errors import CheckpointError, UsageError
from luxmeter.experiment import FolderState, Saver
from luxmeter.experiment.checkpoint import folder as folder_files
from luxmeter.experiment.checkpoint.background import BackgroundWriter, writer_of
from luxmeter.experiment.checkpoint.format import read_file, write_file
from luxmeter.experiment.checkpoint.saver import read_together
from luxmeter.experiment.checkpoint.shards import Sharded, ShardFile


def test_names_of_tensors_that_meet_however_they_are_counted(tmp_path: Path) -> None:
    state = {
        "a": {"b": torch.tensor([1.0])},
        "a.b": torch.tensor([2.0]),
        "a.b#1": torch.tensor([3.0]),
        "a.b#2": torch.tensor([4.0]),
    }
    state = {"a.b#1": state["a.b#1"], **state}
    write_file(tmp_path / "a.ckpt", state)
    found = read_file(tmp_path / "a.ckpt")
    assert found["a"]["b"].item() == 1.0 and [found[f"a.b{end}"].item() for end in ("", "#1", "#2")] == [
        2.0,
        3.0,
        4.0,
    ]


class OfItsOwn(torch.Tensor):
    """A tensor with a class that no file can give back."""


@pytest.mark.parametrize(
    "value",
    [
        np.array([(1, "x")], dtype=[("n", "i4"), ("o", "O")]),
        np.array([(1, "x")], dtype=[("n", "i4"), ("o", "O")])[0],
        torch.ones(2).as_subclass(OfItsOwn),
    ],
)
def test_what_no_file_gives_back_is_refused_by_its_place(tmp_path: Path, value: Any) -> None:
    with pytest.raises(CheckpointError, match="deep"):
        write_file(tmp_path / "a.ckpt", {"deep": [value]})
    assert not list(tmp_path.glob("*.ckpt*"))


def test_arrays_in_the_info_come_back(tmp_path: Path) -> None:
    with Saver(tmp_path) as saver:
        saver.save_checkpoint(1, {}, {"curve": np.arange(3, dtype=np.int16), "one": np.float32(0.5)})
    info = Saver(tmp_path).load_checkpoint(1).info
    assert info["curve"].dtype == np.int16 and info["curve"].tolist() == [0, 1, 2] and info["one"] == 0.5


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="checkpoint-unreadable"):
        read_file(tmp_path)
    (tmp_path / "000003.ckpt").symlink_to(tmp_path / "gone")
    assert Saver(tmp_path).find_checkpoints() == [], "a link to nothing is no checkpoint"


def test_best_by_nothing(tmp_path: Path) -> None:
    saver = Saver(tmp_path, max_to_keep=2)
    with pytest.raises(UsageError, match="checkpoint-metric"):
        saver.load_best_checkpoint()
    assert repr(saver) == f"Saver({str(tmp_path)!r}, max_to_keep=2)"
    assert repr(FolderState(tmp_path)) == f"FolderState({str(tmp_path)!r})"


def test_a_file_of_a_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("body")

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(CheckpointError, match="folder-unreadable"):
        FolderState(tmp_path).state_dict()


def test_where_no_thread_starts_any_more_it_is_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at the end of the interpreter."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done = BackgroundWriter()
    ran: list[int] = []
    done.submit(lambda: ran.append(1))
    assert ran == [1]
    saver = Saver(tmp_path)
    path = Path(saver.save_checkpoint(1, {"a": 1}))
    assert path.is_file() and saver.load_checkpoint(1).checkpoint == {"a": 1}


def test_what_ends_a_program_ends_it_out_of_the_background_too(tmp_path: Path) -> None:
    saver = Saver(tmp_path)

    def stop() -> None:
        raise KeyboardInterrupt

    writer_of(tmp_path).submit(stop)
    with pytest.raises(KeyboardInterrupt):
        saver.flush()
    saver.close()


def test_what_was_left_is_told_by_its_age_and_its_process(tmp_path: Path) -> None:
    left = tmp_path / "x.tmp"
    left.touch()
    here = f".{os.uname().nodename}-{os.getpid()}-0123abcd"
    assert not folder_files._is_left(left, here) and not folder_files._is_left(left, ".elsewhere-1-0123abcd")
    assert folder_files._is_left(left, f".{os.uname().nodename}-{2**22 + 1}-0123abcd"), "its process is gone"
    os.utime(left, (1, 1))
    assert folder_files._is_left(left, ".elsewhere-1-0123abcd"), "older than a day"
    assert not folder_files._is_left(tmp_path / "gone", here)


# -- shards -----------------------------------------------------------------------------------------------------------


def shard(folder: Path, name: str, **changes: Any) -> ShardFile:
    state = {
        "luxmeter_shard": 1,
        "own": {},
        "starts": {"w": 0},
        "rows": {"w": torch.arange(6.0).reshape(3, 2)},
    }
    write_file(folder / name, {**state, **changes})
    return ShardFile(folder / name)


def test_rows_of_shards_and_shards_that_are_none(tmp_path: Path) -> None:
    whole = Sharded(
        "w",
        (5, 2),
        torch.float32,
        [shard(tmp_path, "0"), shard(tmp_path, "1", starts={"w": 3}, rows={"w": torch.ones(2, 2)})],
    )
    assert whole.full().tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [1.0, 1.0], [1.0, 1.0]]
    assert whole.rows(2, 4).tolist() == [[4.0, 5.0], [1.0, 1.0]]
    other = shard(tmp_path, "2", starts={"v": 0})
    assert other.rows("w", 0, 3) is None and other.start("w") is None
    sparse = shard(
        tmp_path, "3", rows={"w": torch.tensor([[1.0, 0.0], [0.0, 2.0]], requires_grad=True).detach()}
    )
    assert sparse.rows("w", 1, 9) is not None
    sparse.close()
    for changes in ({"luxmeter_shard": 99}, {"luxmeter_shard": "x"}):
        with pytest.raises(CheckpointError, match="no shard of a checkpoint"):
            shard(tmp_path, "4", **changes).start("w")
    for changes in (
        {"rows": {}},
        {"rows": {"w": 7}},
        {"rows": {"w": torch.ones(3)}},
        {"rows": {"w": torch.ones(3, 7)}},
        {"rows": 7},
    ):
        with pytest.raises(CheckpointError, match="checkpoint-damaged"):
            Sharded("w", (3, 2), torch.float32, [shard(tmp_path, "5", **changes)]).full()
    with pytest.raises(CheckpointError, match="rows from 0 to 9 are in the shards"):
        Sharded("w", (9, 2), torch.float32, [shard(tmp_path, "6")]).full()


def test_a_checkpoint_that_is_read_together_and_is_gone(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="it is gone"):
        read_together(tmp_path / "000001.ckpt", 0, 1, lazily=False)
    with Saver(tmp_path) as saver:
        path = Path(saver.save_checkpoint(1, {"a": 1}))
    assert read_together(path, 0, 1, lazily=False).checkpoint == {"a": 1}
