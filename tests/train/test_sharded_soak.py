"""Sharded training, the long way: four ranks, kills at random moments, and torchrun itself."""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from forked_ranks import as_torchrun, free_port
from many_ranks import of, run_ranks
from small_training import same, saving
from test_sharded_training import (
    ALL,
    FSDP,
    ONE,
    Drawing,
    goes_on,
    resumed,
    resumed_alike,
    trained,
    whole,
)
from torch import nn

import luxmeter as lux
from luxmeter.store import Run

pytestmark = pytest.mark.soak
LIMIT_S = 600


def test_four_ranks_and_other_numbers(tmp_path: Path) -> None:
    """Resumed bit by bit on four; what four saved goes on in two, in one, and what two saved in four."""
    four = tmp_path / "four"
    options = {**FSDP, **ALL}
    found = of(run_ranks(4, {"resumed": resumed("r", options, (1, 2, 3))}, four), "resumed")
    resumed_alike(found)
    save = four / "r-saved" / "Saving" / "save"
    wanted = found[0]["saved"]["weights"]
    last = str(save / f"{found[0]['saved']['step']:06d}.ckpt")
    middle = str(save / "000002.ckpt")
    scenarios = {"last": goes_on(Drawing, last, options), "middle": goes_on(Drawing, middle, options)}
    two = run_ranks(
        2,
        {**scenarios, "own": lambda rank: trained(saving(Drawing), "own", options).losses},
        tmp_path / "two",
    )
    for said in of(two, "last"):
        assert same(said["loaded"], wanted)
    assert same(of(two, "middle")[0]["weights"], of(two, "middle")[1]["weights"])
    of(two, "own")
    of_two = str(tmp_path / "two" / "own" / "Saving" / "save" / "000006.ckpt")
    again = of(run_ranks(4, {"of two": goes_on(Drawing, of_two, options)}, tmp_path / "again"), "of two")
    alone = Drawing({"epoch": 2}, **{**ONE, **ALL})
    alone.initial_exp("./alone")
    alone.load_checkpoint(of_two)
    for said in again:
        assert same(said["loaded"], whole(alone.model))
    alone.load_checkpoint(last)
    assert same(whole(alone.model), wanted)
    alone.close()


class Large(Drawing):
    """Its shards take a while to write."""

    def initial_trainer(self, params: Any) -> None:
        super().initial_trainer(params)
        self.model = nn.Sequential(
            nn.Linear(6, 700), nn.Linear(700, 700), nn.Linear(700, 700), nn.Linear(700, 3)
        )
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=0.001)


def goes_until_killed(folder: str, variables: dict[str, str]) -> None:
    os.environ.update(variables, LUXMETER_HOME=f"{folder}/lab", HOME=folder)
    os.chdir(folder)
    torch.set_num_threads(1)
    trainer = saving(Large)({"epoch": 1000}, **FSDP)
    trainer.initial_exp("./job")
    trainer.train(resume=True)


def test_kills_at_random_moments_leave_no_torn_checkpoint(tmp_path: Path) -> None:
    drawn = random.Random(17)
    context = multiprocessing.get_context("fork")
    reached: list[int] = []
    for number in range(12):
        ranks = [
            context.Process(target=goes_until_killed, args=(str(tmp_path), one))
            for one in as_torchrun(2, free_port())
        ]
        for one in ranks:
            one.start()
        end = time.monotonic() + LIMIT_S
        save = tmp_path / "job" / "Saving" / "save"
        known = {one.name for one in save.glob("*.ckpt")}
        while {one.name for one in save.glob("*.ckpt")} <= known and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(drawn.random())
        ranks[drawn.randrange(2)].kill()
        for one in ranks:
            one.join(30)
            assert one.exitcode is not None, "a rank outlives the other"
        saver = lux.Saver(save)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # none is damaged
            reached.append(int(saver.load_latest_checkpoint().checkpoint["step"]))
            for saved in saver.find_checkpoints():
                saver.load(saved)
        left = [one.name for one in saver.folder.iterdir() if one.name.endswith((".tmp", ".shard"))]
        names = {Path(one).name for one in saver.find_checkpoints()}
        assert all(one.partition(".ckpt")[0] + ".ckpt" in names for one in left), (number, left, names)
    assert reached == sorted(set(reached)), reached  # each went on from the last


CONFIG = """\
import os
import signal
from pathlib import Path

import torch

import luxmeter as lux
from luxmeter.train import FakeData, ModelCheckpoint, dist

kill = ""


class Shared(lux.Trainer):
    def initial_callback(self):
        super().initial_callback()
        ModelCheckpoint(every_steps=1).hook(self)

    def initial_trainer(self, params):
        self.model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 3))
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.regist_databundler(
            train=lux.DataLoader(FakeData(32, (6,), 3), batch_size=4, shuffle=True),
            eval=lambda: lux.DataLoader(FakeData(12, (6,), 3), batch_size=4),
        )

    def train_batch(self, eidx, idx, global_step, batch_data, params, device):
        if params.kill == f"{dist.current_group().rank}@{global_step}" and not Path("killed").exists():
            self.saver.flush()
            Path("killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.nn.functional.cross_entropy(self.model(batch_data[0]), batch_data[1])

    def eval_batch(self, eidx, idx, global_step, batch_data, params, device):
        meter = lux.Meter()
        meter.loss = torch.nn.functional.cross_entropy(self.model(batch_data[0]), batch_data[1])
        return meter


epoch = 2
trainer = dict(type=Shared, parallel="fsdp")
"""


@pytest.mark.parametrize(("how", "rank"), [("torchrun", 1), ("processes", 0)])
def test_started_again(tmp_path: Path, how: str, rank: int) -> None:
    Path("shared.py").write_text(CONFIG)
    Path("whole.py").write_text(CONFIG)
    luxmeter = [sys.executable, "-m", "luxmeter"]

    def train(name: str, *words: str) -> str:
        if how == "torchrun":
            start = [
                "-m",
                "torch.distributed.run",
                "--standalone",
                "--nproc-per-node",
                "2",
                "--max-restarts",
                "2",
                "--log-dir",
                "torchrun",
            ]
            command = [sys.executable, *start, "-m", "luxmeter", "train", name, *words]
        else:
            command = [*luxmeter, "train", name, *words, "--processes", "2", "--restarts", "2"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
        assert done.returncode == 0, done.stderr
        return done.stderr + done.stdout

    train("whole.py")
    said = train("shared.py", f"kill={rank}@5")
    assert Path("killed").exists() and "Going on from" in said and "step 5" in said, said
    runs = [Run(one) for one in (tmp_path / "lab" / "runs").iterdir()]
    by_name = {run.name: run for run in runs}
    assert len(runs) == 2 and {run.state for run in runs} == {"finished"}
    loaded = [
        lux.Saver(by_name[name].folder / "files" / "save").load_latest_checkpoint().checkpoint["parts"]
        for name in ("shared", "whole")
    ]
    assert same(loaded[0]["model"]["state"], loaded[1]["model"]["state"])
    done = subprocess.run(
        [*luxmeter, "eval", "shared", "--json"], capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    assert done.returncode == 0 and '"step": 8' in done.stdout, done.stderr + done.stdout
