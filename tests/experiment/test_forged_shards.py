"""A checkpoint in shards whose values somebody chose: refused with the name of the file, whatever they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from luxmeter.errors import CheckpointError
from luxmeter.experiment import Saver
from luxmeter.experiment.checkpoint.format import write_file
from luxmeter.experiment.checkpoint.shards import Taken, shard_names

ROWS = torch.arange(20.0).reshape(10, 2)


def written(folder: Path, forge: Callable[[dict[str, Any], list[dict[str, Any]]], None]) -> Saver:
    """As two ranks lay it down, but for what is forged."""
    names = shard_names("000003.ckpt", 2, "abcdef01.host-1-1")
    tensor = {"luxmeter_sharded": "w", "shape": [10, 2], "dtype": torch.float32}
    main = {"w": tensor, "own": {"luxmeter_own": True}, "luxmeter_shards": names}
    shards = [
        Taken(None, {"w": ROWS[r * 5 : r * 5 + 5].clone()}, {"w": r * 5}, [r]).shard(r, 2) for r in (0, 1)
    ]
    forge(main, shards)
    folder.mkdir()
    for name, shard in zip(names, shards, strict=True):
        write_file(folder / name, shard)
    write_file(folder / "000003.ckpt", main)
    return Saver(folder)


def test_as_it_is_written(tmp_path: Path) -> None:
    found = written(tmp_path / "s", lambda main, shards: None).load_checkpoint(3).checkpoint
    assert torch.equal(found["w"], ROWS) and found["own"] == [[0], [1]]


FORGED: dict[str, Callable[[dict[str, Any], list[dict[str, Any]]], Any]] = {
    "no shape": lambda main, shards: main["w"].update(shape=[]),
    "a shape that is none": lambda main, shards: main["w"].update(shape=7),
    "a negative shape": lambda main, shards: main["w"].update(shape=[-1, 2]),
    "words in a shape": lambda main, shards: main["w"].update(shape=["10", 2]),
    "an endless shape": lambda main, shards: main["w"].update(shape=[1 << 62, 2]),
    "more dimensions": lambda main, shards: main["w"].update(shape=[10, 2, 3]),
    "no dtype": lambda main, shards: main["w"].update(dtype="float32"),
    "another name": lambda main, shards: main["w"].update(luxmeter_sharded="v"),
    "rows twice": lambda main, shards: shards[1].update(starts={"w": 0}),
    "rows of the other": lambda main, shards: (
        shards[0].update(starts={"w": 5}),
        shards[1].update(starts={"w": 0}),
    ),
    "a start before all": lambda main, shards: shards[0].update(starts={"w": -5}),
    "a start that is none": lambda main, shards: shards[0].update(starts={"w": "0"}),
    "no starts": lambda main, shards: shards[0].update(starts=3),
    "no rows": lambda main, shards: shards[0].update(rows={}),
    "rows that are none": lambda main, shards: shards[0].update(rows={"w": {"$": "tensor", "t": "nothing"}}),
    "nothing of its own": lambda main, shards: shards[0].pop("own"),
    "another kind of file": lambda main, shards: shards[0].update(luxmeter_shard=2),
}


@pytest.mark.parametrize("forged", FORGED)
def test_values_that_no_rank_wrote(tmp_path: Path, forged: str) -> None:
    saver = written(tmp_path / "s", lambda main, shards: FORGED[forged](main, shards) and None)
    with pytest.raises(CheckpointError, match="checkpoint-damaged"):
        saver.load_checkpoint(3)
