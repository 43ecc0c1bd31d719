"""A resumed training equals the uninterrupted one bit by bit."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from resumable_training import Augmented, Training, resumed_at, save_every_step
from torch import nn
from torch.utils.data import DistributedSampler, RandomSampler, WeightedRandomSampler

import luxmeter as lux
from luxmeter.errors import CheckpointError, LuxmeterWarning, UsageError

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Many tests share the machine, and threads that wait for each other cost more than they bring."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("workers", [0, 2, 4])
def test_every_step_resumes_bit_by_bit(tmp_path: Path, workers: int) -> None:
    whole = Training(workers=workers).run()
    assert len(set(whole)) == len(whole) == 10
    saved = save_every_step(Training(workers=workers), tmp_path / "saves")
    assert saved == whole  # saving changes nothing
    for step in range(1, len(whole) + 1):
        assert resumed_at(step, tmp_path / "saves", Training(workers=workers)) == whole[step:], f"step {step}"


def test_the_number_of_workers_changes_nothing(tmp_path: Path) -> None:
    whole = Training(workers=0).run()
    save_every_step(Training(workers=2), tmp_path / "saves")
    assert resumed_at(4, tmp_path / "saves", Training(workers=0)) == whole[4:]


def weighted(**options: Any) -> Any:
    sampler = WeightedRandomSampler([1.0, 9.0] * 7, 14, generator=torch.Generator().manual_seed(2))
    return lux.DataLoader(Augmented(), batch_size=3, sampler=sampler, drop_last=True, **options)


def distributed(**options: Any) -> Any:
    sampler = DistributedSampler(Augmented(30), num_replicas=2, rank=1)
    return lux.DataLoader(Augmented(30), batch_size=3, sampler=sampler, persistent_workers=True, **options)


@pytest.mark.parametrize("make_loader", [weighted, distributed])
def test_samplers_resume_bit_by_bit(tmp_path: Path, make_loader: Any) -> None:
    make = lambda: Training(workers=2, make_loader=make_loader)  # noqa: E731
    whole = make().run()
    assert save_every_step(make(), tmp_path / "saves") == whole
    for step in range(1, len(whole) + 1, 3):
        assert resumed_at(step, tmp_path / "saves", make()) == whole[step:], f"step {step}"


def train_until_killed(saves: Path, round_number: int) -> None:
    """Resume, train and save each step, and die by kill -9 on the way."""
    torch.set_num_threads(1)
    training = Training()
    saver = lux.Saver(saves)
    begun = training.step = saver.resume(**training.parts).step

    def each_step(now: Training) -> None:
        saver.save_state(now.step, **now.parts)
        if now.step == begun + 1:
            saver.flush()  # each round gets on by a step at least, however slow the disk
        if now.step == begun + 2 + round_number:  # sometimes before, sometimes after it is written
            os.kill(os.getpid(), signal.SIGKILL)

    training.run(each_step=each_step)


def test_a_training_killed_at_any_moment_goes_on(tmp_path: Path) -> None:
    """kill -9, resume, kill -9, ...: the whole story is that of the training nobody killed."""
    whole = Training().run()
    # Not forked from here: OpenMP's threads do not survive that, and a child may wait for them for ever.
    fresh = multiprocessing.get_context("forkserver")
    fresh.set_forkserver_preload(["resumable_training"])
    for round_number in range(4):
        child = fresh.Process(target=train_until_killed, args=(tmp_path / "saves", round_number))
        child.start()
        child.join()
        assert child.exitcode == -signal.SIGKILL or (round_number == 3 and child.exitcode == 0)
    training = Training()
    where = lux.Saver(tmp_path / "saves").resume(**training.parts)
    assert where.step >= 3
    assert training.run() == whole[where.step :]


def test_torch_format_resumes_too(tmp_path: Path) -> None:
    whole = Training().run()
    training = Training()
    saver = lux.Saver(tmp_path / "s", format="torch")
    training.run(max_steps=4, each_step=lambda now: saver.save_state(now.step, **now.parts))
    again = Training()
    assert saver.resume(**again.parts).step == 4
    assert again.run() == whole[4:]


def test_gradients_that_are_being_accumulated(tmp_path: Path) -> None:
    def micro_steps(
        model: nn.Module, optim: Any, numbers: range, saver: lux.Saver | None = None
    ) -> torch.Tensor:
        for number in numbers:
            model(torch.full((2, 3), float(number))).square().sum().backward()
            if number % 4 == 3:
                optim.step()
                optim.zero_grad()
            if saver is not None:
                saver.save_state(number, model=model, optim=optim, gradients=True)
        return torch.cat([p.flatten() for p in model.parameters()])

    def make() -> tuple[nn.Module, Any]:
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        return model, torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)

    saver = lux.Saver(tmp_path / "s", max_to_keep=None)
    whole = micro_steps(*make(), range(12), saver)
    for stop in range(12):
        model, optim = make()
        saver.resume(stop, model=model, optim=optim)
        assert torch.equal(micro_steps(model, optim, range(stop + 1, 12)), whole), stop


class Meter:
    """Any object with the two methods is a part."""

    def __init__(self) -> None:
        self.total = 0.0

    def state_dict(self) -> dict[str, float]:
        return {"total": self.total}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.total = state["total"]


def test_parts_of_every_kind(tmp_path: Path) -> None:
    def make() -> dict[str, Any]:
        return {
            "models": [nn.Linear(2, 2), nn.Linear(2, 1)],
            "optims": {"a": torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)},
            "meter": Meter(),
            "scaler": None,
            "generators": (
                torch.Generator(),
                np.random.default_rng(1),
                np.random.RandomState(2),
                random.Random(3),
            ),
        }

    def draws(generators: Any) -> list[float]:
        return [torch.rand(1, generator=generators[0]).item(), generators[1].random(), generators[2].rand(), generators[3].random()]  # fmt: skip

    parts = make()
    parts["meter"].total = 1.5
    parts["optims"]["a"].param_groups[0]["lr"] = 0.7
    draws(parts["generators"])
    saver = lux.Saver(tmp_path / "s")
    path = saver.save_state(7, info={"loss": 0.5}, epoch=2, best={"acc": (1, 2)}, **parts)
    then = draws(parts["generators"])
    others = make()
    where = saver.resume(**others)
    assert (where.step, where.path, where.info, where.values["epoch"]) == (7, path, {"loss": 0.5}, 2)
    assert where.values["best"] == {"acc": (1, 2)} and where
    assert all(
        torch.equal(a.weight, b.weight) for a, b in zip(parts["models"], others["models"], strict=True)
    )
    assert others["meter"].total == 1.5 and others["optims"]["a"].param_groups[0]["lr"] == 0.7
    assert draws(others["generators"]) == then


def test_a_sampler_of_torchs_loader_is_a_part(tmp_path: Path) -> None:
    def make() -> dict[str, Any]:
        generator = torch.Generator().manual_seed(1)
        return {
            "sampler": RandomSampler(range(9), generator=generator),
            "shards": DistributedSampler(Augmented(), num_replicas=2, rank=0),
        }

    parts = make()
    list(parts["sampler"])
    parts["shards"].set_epoch(4)
    saver = lux.Saver(tmp_path / "s")
    saver.save_state(1, **parts)
    others = make()
    saver.resume(**others)
    for name in parts:
        assert list(others[name]) == list(parts[name]) != list(make()[name])
    with pytest.raises(UsageError, match=r"torch's DataLoader.*Use lux.DataLoader.*resume-loader"):
        saver.save_state(2, loader=torch.utils.data.DataLoader(Augmented()))


def test_where_names_the_position_of_the_loader(tmp_path: Path) -> None:
    loader = lux.DataLoader(range(10), batch_size=2, seed=1)  # type: ignore[arg-type]
    list(loader)
    iterator = iter(loader)
    next(iterator), next(iterator)
    saver = lux.Saver(tmp_path / "s")
    saver.save_state(7, loader=loader)
    where = saver.resume(loader=lux.DataLoader(range(10), batch_size=2))  # type: ignore[arg-type]
    assert (where.step, where.epoch, where.batch) == (7, 1, 2)


def test_nothing_to_resume_is_a_fresh_start(tmp_path: Path) -> None:
    model = nn.Linear(1, 1)
    before = model.weight.clone()
    where = lux.Saver(tmp_path / "s").resume(model=model)
    assert not where and (where.step, where.epoch, where.values) == (0, 0, {})
    assert torch.equal(model.weight, before)
    with pytest.raises(CheckpointError, match="checkpoint-absent"):
        lux.Saver(tmp_path / "s").resume(model=model, must_exist=True)


def test_resume_from_a_keypoint_a_step_or_a_file(tmp_path: Path) -> None:
    saver = lux.Saver(tmp_path / "s")
    meter = Meter()
    paths = []
    for step in range(3):
        meter.total = float(step)
        paths.append(saver.save_state(step, meter=meter))
    meter.total = 9.0
    keypoint = saver.save_state(1, meter=meter, kind="keypoint")
    for source, total in ((None, 2.0), (0, 0.0), (paths[1], 1.0), (keypoint, 9.0)):
        saver.resume(source, meter=meter)
        assert meter.total == total


def test_a_damaged_checkpoint_resumes_from_the_one_before(tmp_path: Path) -> None:
    saver = lux.Saver(tmp_path / "s")
    meter = Meter()
    for step in range(3):
        meter.total = float(step)
        last = saver.save_state(step, meter=meter)
    saver.flush()
    Path(last).write_bytes(Path(last).read_bytes()[:-1])
    with pytest.warns(LuxmeterWarning, match="000001.ckpt is loaded instead"):
        where = saver.resume(meter=meter)
    assert where.step == 1 and meter.total == 1.0


def test_parts_that_do_not_match(tmp_path: Path) -> None:
    saver = lux.Saver(tmp_path / "s")
    saver.save_state(1, model=nn.Linear(2, 2), meter=Meter(), epoch=3)
    with pytest.raises(UsageError, match=r"holds no part 'modle'.*Did you mean 'model'"):
        saver.resume(modle=nn.Linear(2, 2), meter=Meter())
    with pytest.raises(
        CheckpointError,
        match=r"another model than 'model' .*weight \(\(2, 2\) there, \(2, 3\) here\).*checkpoint-of-another-model",
    ):
        saver.resume(model=nn.Linear(3, 2), meter=Meter())
    with pytest.raises(CheckpointError, match="was saved as a state and is now a int"):
        saver.resume(model=3, meter=Meter())
    with pytest.raises(UsageError, match=r"'epoch' was saved as a plain value.*values\['epoch'\]"):
        saver.resume(model=nn.Linear(2, 2), meter=Meter(), epoch=0)
    with pytest.warns(LuxmeterWarning, match="also holds 'meter'.*resume-left-out"):
        saver.resume(model=nn.Linear(2, 2))
    with pytest.raises(CheckpointError, match="Own, which data alone cannot rebuild"):
        saver.save_state(2, thing=Own())
    with pytest.raises(UsageError, match="resume-random"):
        saver.save_state(2, random="yes")
    saver.save_checkpoint(5, {"a": 1})
    with pytest.raises(CheckpointError, match="resume-no-state"):
        saver.resume(model=nn.Linear(2, 2))


class Own:
    pass


def test_the_random_state_can_be_left_alone(tmp_path: Path) -> None:
    saver = lux.Saver(tmp_path / "s")
    torch.manual_seed(1)
    saver.save_state(1)
    saved = torch.rand(1)
    torch.manual_seed(2)
    saver.resume(random=False)
    assert torch.rand(1) != saved
    saver.resume()
    assert torch.rand(1) == saved
