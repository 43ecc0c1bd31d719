"""What an unchanged script sends to W&B and MLflow, both offline, becomes metrics of its run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from luxmeter.store import Lab

pytestmark = pytest.mark.peers

WANDB = """
import wandb
run = wandb.init(project="p", mode="offline", dir=".")
for step in range(3):
    wandb.log({"loss": 1.0 / (step + 1), "nested": {"acc": step / 4}, "name": "text"})
run.log({"late": 5.0}, step=10)
wandb.finish()
"""
MLFLOW = """
import mlflow
mlflow.set_tracking_uri("sqlite:///mlflow.db")
with mlflow.start_run():
    for step in range(3):
        mlflow.log_metric("loss", 1.0 / (step + 1), step=step * 10)
        mlflow.log_metrics({"acc": step / 4, "f1": step / 8})
"""


def kept(source: str, tmp_path: Path) -> tuple[dict[str, list[tuple[int, float]]], dict[str, str]]:
    (tmp_path / "script.py").write_text(source)
    env = {**os.environ, "LUXMETER_HOME": str(tmp_path / "lab"), "WANDB_SILENT": "true"}
    done = subprocess.run(
        [sys.executable, "-m", "luxmeter", "run", "--system-s", "0", "script.py"],
        cwd=tmp_path, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = Lab.open(tmp_path / "lab").find("latest")
    return {
        key: [(p.step, round(p.value, 3)) for p in found.metric(key)] for key in found.metrics
    }, found.sources


def test_wandb(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    metrics, sources = kept(WANDB, tmp_path)
    assert metrics == {
        "loss": [(0, 1.0), (1, 0.5), (2, 0.333)],
        "nested.acc": [(0, 0.0), (1, 0.25), (2, 0.5)],
        "late": [(10, 5.0)],
    }
    assert set(sources.values()) == {"wandb"}


def test_mlflow(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    metrics, sources = kept(MLFLOW, tmp_path)
    assert metrics["loss"] == [(0, 1.0), (10, 0.5), (20, 0.333)]
    assert metrics["acc"] == [(0, 0.0), (1, 0.25), (2, 0.5)] and len(metrics["f1"]) == 3
    assert set(sources.values()) == {"mlflow"}
