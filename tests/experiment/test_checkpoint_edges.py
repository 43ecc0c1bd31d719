"""Checkpoints where the world is not as it should be: names that meet, files that vanish, threads that do not start, shards that are none."""

from __future__ import annotations

import json
import os
import struct
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
from luxmeter.experiment.checkpoint.shards import Sharded, ShardFile, shard_names


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


def test_a_dtype_that_torch_has_not(tmp_path: Path) -> None:
    head = json.dumps({"a": {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [0, 3]}}).encode()
    (tmp_path / "a.ckpt").write_bytes(struct.pack("<Q", len(head)) + head + bytes(3))
    with pytest.raises(CheckpointError, match="checkpoint-damaged"):
        read_file(tmp_path / "a.ckpt")


def test_a_file_that_is_gone_while_it_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(saved: object) -> dict[str, Any]:
        raise PermissionError(13, "Permission denied", str(saved))

    with Saver(tmp_path) as saver:
        saver.save_checkpoint(1, {"a": 1})
        saver.flush()
        monkeypatch.setattr(folder_files, "verify", refuse)
        with pytest.raises(CheckpointError, match="cannot be read: Permission denied"):
            saver.load_checkpoint(1)


def test_removed_is_what_was_saved_here_and_nothing_else(tmp_path: Path) -> None:
    with Saver(tmp_path / "a") as saver, Saver(tmp_path / "b") as other:
        path, foreign = Path(saver.save_checkpoint(1, {"a": 1})), Path(other.save_checkpoint(1, {"a": 1}))
        (beside := tmp_path / "a" / "other.txt").touch()
        for name in (beside, foreign, tmp_path / "a" / ".." / "b" / path.name, f"{path}.json"):
            with pytest.raises(UsageError, match="checkpoint-of-another-folder"):
                saver.remove(name)
        for name in (path, path, tmp_path / "a" / "000009.ckpt"):  # gone already is no error
            saver.remove(name)
    assert not path.exists() and beside.exists() and foreign.exists()


def test_an_error_of_an_inner_part_keeps_its_words(tmp_path: Path) -> None:
    with Saver(tmp_path) as saver:
        weight = torch.nn.Parameter(torch.ones(1))
        saver.save_state(1, both=[[torch.optim.SGD([weight], lr=1.0)]])
        with pytest.raises(CheckpointError, match=r"The state of 'both\[0\]\[0\]' .* does not fit"):
            saver.resume(both=[[torch.optim.SGD([weight, torch.nn.Parameter(torch.ones(1))], lr=1.0)]])


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


def test_shards_of_a_save_that_may_still_come_stay(tmp_path: Path) -> None:
    host, gone = os.uname().nodename, 2**22 + 1
    stays = [f"abcdef01.{host}-{os.getpid()}-0000000{n}" for n in (3, 4)] + [
        f"abcdef01.elsewhere-{os.getpid()}-00000001"
    ]
    goes = [f"abcdef01.{host}-{os.getpid()}-00000002", f"abcdef01.{host}-{gone}-00000009"]
    for who in (*stays, *goes):
        for name in shard_names("000001.ckpt", 2, who):
            (tmp_path / name).touch()
    folder_files.remove_replaced_shards(tmp_path / "000001.ckpt", stays[0])
    left = {path.name for path in tmp_path.glob("*.shard")}
    assert left == {name for who in stays for name in shard_names("000001.ckpt", 2, who)}


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
    strided = torch.arange(12.0).reshape(4, 3).t()
    found = shard(tmp_path, "4", rows={"w": strided}).rows("w", 1, 9)
    assert found is not None and found[0] == 1 and torch.equal(found[1], strided[1:])
    own = shard(tmp_path, "4", own={"a": [7, None, {"b": torch.ones(2)}], "none": 3})
    assert own.own()["a"][:2] == [7, None] and own.own()["a"][2]["b"].tolist() == [1.0, 1.0]
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
