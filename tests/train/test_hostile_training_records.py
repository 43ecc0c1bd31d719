"""What a run from elsewhere says of its training: nothing is imported or taken away because of it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import luxmeter as lux
from luxmeter.errors import CheckpointError, LuxmeterError, StoreError, UsageError
from luxmeter.experiment import get_rng_state
from luxmeter.store import Lab, Run
from luxmeter.train import FailedStep
from luxmeter.train.checkpoints import save_folder
from luxmeter.train.run_evaluation import checkpoint_of, trainer_record

RECORD = {"format": 1, "step": 3, "epoch": 1, "batch": 2, "first": 3, "what": "loss", "value": "nan", "run": "a", "is_exact": True,
          "params": {"module": "luxmeter.experiment.params.params", "name": "Params", "file": None, "folders": []}}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """With a failed step, and a checkpoint."""
    with Lab.open(tmp_path / "lab").create_run("train") as made:
        lux.Saver(made.folder / "saved", background=False).save_state(3, model=torch.nn.Linear(1, 1))
        made.put_file("trainer.json", json.dumps({"format": 1, "class": "__main__:A", "save": "saved"}))
        failing = {"random": get_rng_state(), "batch": [1], "modes": {"model": [True]}}
        step = made.folder / "files" / "nan-000003"
        lux.Saver(step, background=False).save_state(3, kind="keypoint", random=False, failing=failing)
        made.put_file("nan-000003/step.json", json.dumps(RECORD))
        made.put_file("nan-000003/values.json", lux.Params({"lr": 0.1}).to_json())
    return Run(made.folder)


def step_of(run: Run, /, **values: Any) -> Path:
    folder = run.folder / "files" / "nan-000003"
    (folder / "step.json").write_text(json.dumps({**RECORD, **values}))
    return folder


@pytest.mark.parametrize(
    "values",
    [{"step": "3"}, {"step": -1}, {"first": None}, {"epoch": 10**30}, {"batch": True}, {"what": 3}, {"value": "much"}, {"value": 1.0}, {"run": []},
     {"is_exact": "yes"}, {"params": 3}, {"params": {}}, {"params": {"module": 3, "name": "A", "file": None}}, {"params": {"module": "a", "name": "A", "file": 3}},
     {"format": []}],
    ids=repr,
)  # fmt: skip
def test_a_forged_step_is_none(run: Run, values: dict[str, Any]) -> None:
    assert FailedStep(step_of(run)).params.lr == 0.1
    with pytest.raises(CheckpointError, match="failed-step-unknown"):
        FailedStep(step_of(run, **values))


@pytest.mark.parametrize(
    "parts",
    [{}, {"failing": 3}, {"failing": {"modes": {}}}, {"failing": {"batch": 1, "random": 1, "modes": 3}}],
)
def test_a_forged_state_of_a_step_is_none(run: Run, parts: dict[str, Any]) -> None:
    folder = step_of(run)
    lux.Saver(folder, background=False).save_state(4, kind="keypoint", **parts)
    with pytest.raises(CheckpointError, match="failed-step-unknown"):
        FailedStep(folder)


def test_what_a_step_from_elsewhere_names_is_not_imported(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "theirs.py"
    script.write_text("raise SystemExit('it ran')\n")
    for where in (
        {"module": "__main__", "name": "A", "file": str(script)},
        {"module": "this", "name": "A", "file": None},
    ):
        folder = step_of(run, params=where)
        other = tmp_path / "other" / "runs" / run.id
        shutil.rmtree(other, ignore_errors=True)
        shutil.copytree(run.folder, other)
        with pytest.raises(UsageError, match="failed-step-foreign"):
            _ = FailedStep(other / "files" / "nan-000003").params
    assert "this" not in sys.modules
    folder = step_of(run, params={"module": "__main__", "name": "A", "file": str(script)})
    with pytest.raises(SystemExit, match="it ran"):  # one's own
        _ = FailedStep(folder).params
    with pytest.raises(UsageError, match="failed-step-class"):
        _ = FailedStep(step_of(run, params={"module": "__main__", "name": "A", "file": None})).params
    with pytest.raises(UsageError, match="failed-step-class"):
        _ = FailedStep(step_of(run, params={"module": "no.such", "name": "A", "file": None})).params


@pytest.mark.parametrize(
    "said",
    [
        3,
        [],
        {},
        {"class": "A"},
        {"class": 3, "save": "saved"},
        {"class": "A", "save": ["saved"]},
        {"class": "A", "save": "a\0b"},
    ],
)
def test_a_forged_record_of_a_trainer_is_none(run: Run, said: Any) -> None:
    (run.folder / "files" / "trainer.json").write_text(json.dumps(said))
    with pytest.raises(LuxmeterError, match="run-without-trainer"):
        trainer_record(run)
    if not isinstance(said, dict) or said.get("save") != "saved":
        with pytest.raises(LuxmeterError, match="run-without-trainer"):
            save_folder(run)


def test_looking_into_a_folder_that_a_run_names_takes_nothing_away(run: Run, tmp_path: Path) -> None:
    """A Saver takes away what killed programs left in its folder: not where a record leads."""
    mine = tmp_path / "mine"
    shutil.copytree(run.folder / "saved", mine)
    left = mine / ".notes.tmp"
    left.write_text("mine")
    os.utime(left, (0, 0))
    record = {"format": 1, "class": "__main__:A", "save": str(mine)}
    (run.folder / "files" / "trainer.json").write_text(json.dumps(record))
    assert checkpoint_of(run, "latest") == mine / "000003.ckpt"
    with pytest.raises(CheckpointError, match="checkpoint-absent"):
        checkpoint_of(run, "7")

    class Small(lux.Trainer):
        def initial_trainer(self, params: Any) -> None:
            self.model = torch.nn.Linear(1, 1)

        def train_batch(self, eidx, idx, global_step, batch_data, params, device):  # type: ignore[no-untyped-def]
            return self.model(batch_data).sum()

    with pytest.raises((CheckpointError, StoreError, UsageError)):
        Small({"epoch": 1}, quiet=True).load_checkpoint(str(run.folder))
    assert left.exists()
