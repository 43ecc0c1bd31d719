"""A script that knows nothing of us, under `luxmeter run`: what it tells TensorBoard, and what it prints, are metrics of its run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from luxmeter.store import Lab, Run

TENSORBOARD = """
from torch.utils.tensorboard import SummaryWriter
import torch
with SummaryWriter("board") as writer:
    for step in range(3):
        writer.add_scalar("Loss/train", torch.tensor(1.0 / (step + 1)), step * 10)
        writer.add_scalars("acc", {"a": step / 10, "b": step / 20}, step)
        writer.add_text("words", "no number", step)
"""
PRINTED = """
import logging, sys
logging.basicConfig(stream=sys.stdout, format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
for epoch in range(3):
    logging.info("epoch %d val_loss=%.3f from /data/loss=9.9/x", epoch, 1 / (epoch + 1))
    sys.stderr.write(f"\\r {epoch + 1}/3 [00:01<00:02, acc={epoch / 4}]")
sys.stderr.write("\\n")
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setenv("LUXMETER_HOME", str(tmp_path / "lab"))
    return Lab.open(tmp_path / "lab")


def run(source: str, lab: Lab, tmp_path: Path, *options: str) -> tuple[Run, str]:
    """The run of a script, and the last thing that was said."""
    (tmp_path / "script.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "luxmeter", "run", "--system-s", "0", *options, "script.py"],
        cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return lab.find("latest"), done.stderr.splitlines()[-1]


def points(found: Run, key: str) -> list[tuple[int, float]]:
    return [(point.step, round(point.value, 3)) for point in found.metric(key)]


def test_tensorboard_is_heard(lab: Lab, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    found, _ = run(TENSORBOARD, lab, tmp_path)
    assert points(found, "Loss/train") == [(0, 1.0), (10, 0.5), (20, 0.333)]
    assert points(found, "acc/b") == [(0, 0.0), (1, 0.05), (2, 0.1)]
    assert found.sources == dict.fromkeys(("Loss/train", "acc/a", "acc/b"), "tensorboard")
    assert found.record()["metrics_from"] == found.sources
    assert list((tmp_path / "board").glob("events*"))  # and is told as before


def test_what_is_printed_is_read_on_request_and_offered_without(lab: Lab, tmp_path: Path) -> None:
    found, said = run(PRINTED, lab, tmp_path)
    assert (
        not found.metrics and "it printed val_loss: luxmeter run --read-output" in said
    )  # of a bar its end alone is kept
    found, said = run(PRINTED, lab, tmp_path, "--read-output")
    assert points(found, "val_loss") == [(0, 1.0), (1, 0.5), (2, 0.333)]
    assert points(found, "acc") == [(1, 0.0), (2, 0.25), (3, 0.5)]
    assert found.sources == {"val_loss": "output", "acc": "output"} and "it printed" not in said
    assert found.log_text.count("val_loss") == 3  # the output itself is kept as ever


def test_a_name_that_two_use_is_told_apart(lab: Lab) -> None:
    with lab.create_run("two") as writer:
        writer.log({"loss": 1.0}, step=0)
        writer.log_from("output", {"loss": 2.0, "acc": 0.5}, 0)
        writer.log_from("wandb", {"acc": 0.25}, 0)
        writer.log_from("output", {"acc": 0.75}, 1)
    found = lab.find("latest")
    assert {key: told["last"] for key, told in found.metrics.items()} == {
        "loss": 1.0, "output/loss": 2.0, "acc": 0.75, "wandb/acc": 0.25,
    }  # fmt: skip
    assert found.sources == {"output/loss": "output", "acc": "output", "wandb/acc": "wandb"}


def test_a_script_that_logs_itself_is_not_offered_anything(lab: Lab, tmp_path: Path) -> None:
    source = "import luxmeter as lux\nwith lux.Experiment('own') as exp:\n    for s in range(3):\n        exp.log({'loss': 1.0}, step=s); print('loss', 1.0)\n"
    found, said = run(source, lab, tmp_path)
    assert found.sources == {} and "it printed" not in said
