"""parallel="fsdp" in real processes: what it computes, and the checkpoints that each rank writes a part of."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from many_ranks import run_ranks
from small_training import Noisy, Small, same
from torch import nn

import luxmeter as lux
from luxmeter.errors import LuxmeterError, UsageError
from luxmeter.train import EarlyStop, ModelCheckpoint, NaNGuard

Said = list[dict[str, Any]]
ONE: dict[str, Any] = {"quiet": True}
FSDP: dict[str, Any] = {"quiet": True, "agree_every": 1, "parallel": "fsdp"}
DDP: dict[str, Any] = {**FSDP, "parallel": "ddp"}
ALL: dict[str, Any] = {"accumulate": 2, "clip_norm": 0.5, "ema": 0.9}


class Block(nn.Module):
    """A unit: two of them stand in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm = nn.Linear(7, 7), nn.LayerNorm(7)

    def forward(self, xs: torch.Tensor) -> torch.Tensor:
        return xs + self.norm(torch.tanh(self.inner(xs)))  # type: ignore[no-any-return]


class Net(nn.Module):
    """With blocks, rows that do not come out even, a scalar, a buffer, and a weight that two layers share."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 7)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.batch_norm = nn.BatchNorm1d(7)
        self.back = nn.Linear(7, 7, bias=False)
        self.again = nn.Linear(7, 7)
        self.again.weight = self.back.weight
        self.scale = nn.Parameter(torch.ones(()))
        self.last = nn.Linear(7, 3)

    def forward(self, xs: torch.Tensor) -> torch.Tensor:
        hidden = self.first(xs)
        for block in self.blocks:
            hidden = block(hidden)
        hidden = self.again(torch.tanh(self.back(self.batch_norm(hidden))))
        return self.last(hidden * self.scale)  # type: ignore[no-any-return]


class Even(Small):
    """Nothing is drawn, and every batch has its place: what two ranks compute together one process can compute, too."""

    batch = 4

    def initial_trainer(self, params: Any) -> None:
        super().initial_trainer(params)
        self.model = Net()
        self.model.batch_norm.eval()
        self.model.batch_norm.requires_grad_(False)
        self.model.batch_norm.train = lambda mode=True: self.model.batch_norm  # type: ignore[method-assign]
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optim, 2, 0.5)
        data = torch.utils.data.TensorDataset(Noisy().xs, Noisy().ys)
        self.regist_databundler(
            train=self.loader(data, batch_size=self.batch, shuffle=True),
            eval=lux.DataLoader(torch.utils.data.Subset(data, range(9)), batch_size=2),  # five batches
        )


class Wide(Even):
    batch = 8


class Drawing(Small):
    """With dropout and running means: what goes on bit by bit."""

    def initial_trainer(self, params: Any) -> None:
        super().initial_trainer(params)
        self.model = nn.Sequential(Net(), nn.Dropout(0.3), nn.Linear(3, 3))
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=0.01)


def whole(model: nn.Module) -> dict[str, torch.Tensor]:
    """The weights; of a sharded model from all ranks, which each have to ask."""
    found: dict[str, Any] = model.state_dict()
    return {
        name: (one.full_tensor() if hasattr(one, "full_tensor") else one).clone()
        for name, one in found.items()
    }


def facts(trainer: Any) -> dict[str, Any]:
    return {
        "weights": whole(trainer.model),
        "losses": trainer.losses,
        "meter": trainer.meter.to_dict(),
        "eval": trainer.meters["eval"].to_dict(),
        "step": trainer.position.global_step,
        "run": str(trainer.run.folder),
        "rows": {
            name: len(one.to_local())
            for name, one in trainer.model.named_parameters()
            if hasattr(one, "to_local")
        },
    }


def trained(kind: type[Small], name: str, options: dict[str, Any] = FSDP, **train: Any) -> Any:
    trainer = kind({"epoch": 2}, **options)
    trainer.initial_exp(f"./{name}")
    try:
        trainer.train(**train)
    finally:
        trainer.close()
    return trainer


def saving(kind: type[Small]) -> type[Small]:
    class Saving(kind):  # type: ignore[valid-type,misc]
        def initial_callback(self) -> None:
            super().initial_callback()
            ModelCheckpoint(every_steps=1).hook(self)

    return Saving


def computed(name: str, kind: type[Small], options: dict[str, Any]) -> Callable[[int], Any]:
    return lambda rank: facts(trained(kind, name, options))


def resumed(name: str, options: dict[str, Any]) -> Callable[[int], Any]:
    """In one go; and from checkpoints saved behind each step, as if the processes had been killed there."""

    def made(rank: int) -> Any:
        first = trained(saving(Drawing), f"{name}-saved", {**options, "max_to_keep": None})
        found: dict[str, Any] = {
            "whole": facts(trained(Drawing, f"{name}-whole", options)),
            "saved": facts(first),
            "again": [],
        }
        torch.distributed.barrier()
        for path in first.saver.find_checkpoints()[:-1]:
            torch.rand(3)  # whatever was drawn before does not count
            found["again"].append(facts(trained(Drawing, f"{name}-again", options, resume=path)))
        return found

    return made


TWO: dict[str, Callable[[int], Any]] = {
    "plain": computed("plain", Even, FSDP),
    "accumulated": computed("accumulated", Even, {**FSDP, **ALL, "schedule": "epoch"}),
    "resumed": resumed("resumed", FSDP),
    "resumed all": resumed("resumed-all", {**FSDP, **ALL}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sharded")


@pytest.fixture(scope="module")
def two(folder: Path) -> Said:
    return run_ranks(2, TWO, folder / "two")


def of(said: Said, name: str) -> list[Any]:
    """What each rank said of a scenario."""
    for rank, one in enumerate(said):
        assert name in one, f"rank {rank} ended before {name}; it came to {list(one)}"
        text = one[name]
        assert not (isinstance(text, str) and text.startswith("Traceback")), f"rank {rank}: {text}"
    return [one[name] for one in said]


def close(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("name", "options"), [("plain", {}), ("accumulated", {**ALL, "schedule": "epoch"})])
def test_two_ranks_compute_what_one_process_does(two: Said, name: str, options: dict[str, Any]) -> None:
    first, second = of(two, name)
    alone = facts(trained(Wide, "alone", {**ONE, **options}))
    assert first["step"] == second["step"] == alone["step"] == 6
    assert same(first["weights"], second["weights"]) and first["eval"] == second["eval"]
    assert first["run"] == second["run"]
    close(first["weights"], alone["weights"])
    assert first["meter"] == pytest.approx(alone["meter"], rel=1e-4)
    assert first["eval"] == pytest.approx(alone["eval"])
    assert first["rows"]["first.weight"] == 4 and second["rows"]["first.weight"] == 3
    assert "scale" not in first["rows"]


@pytest.mark.parametrize("name", ["resumed", "resumed all"])
def test_resumed_bit_by_bit(two: Said, name: str) -> None:
    resumed_alike(of(two, name))


def resumed_alike(found: list[Any]) -> None:
    assert found[0]["whole"]["losses"] != found[1]["whole"]["losses"]  # each has data of its own
    for one in found:
        assert one["saved"]["losses"] == one["whole"]["losses"]  # saving changes nothing
        assert len(one["again"]) == one["whole"]["step"] - 1
        for step, again in enumerate(one["again"], 1):
            assert again["losses"] == one["whole"]["losses"][step:], step
            assert same(again["weights"], one["whole"]["weights"]), step
            assert again["eval"] == one["whole"]["eval"]
