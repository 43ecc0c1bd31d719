"""What other ranks than 0 log: in the one run, by each rank itself, never among rank 0's own series."""

from __future__ import annotations

import io
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist
from forked_ranks import as_torchrun, free_port, together
from in_process import Command

import luxmeter as lux
from luxmeter.errors import StoreError
from luxmeter.ranks import job_key
from luxmeter.store import Lab, Run, run_of_job, tell_ranks
from luxmeter.train.dist import ensure_group


def log_on_each(name: str = "together") -> str:
    """Each rank logs its own losses, and words; none waits for another but at the end."""
    rank = int(os.environ["RANK"])
    with lux.Experiment(name, quiet=True, code=False, system_s=0.05) as exp:
        for step in range(20):
            exp.log({"loss": 100.0 * rank + step}, step=step)
        exp.log("words", f"of rank {rank}", step=0)
        exp.log("array", np.full(5000, float(rank)), step=0)
        ensure_group()
        dist.barrier()
        dist.destroy_process_group()
    return exp.id


def two_in_a_row() -> list[str]:
    """The second experiment of a rank is the second run, whoever comes first."""
    rank, ids = int(os.environ["RANK"]), []
    ensure_group()
    for name in ("one", "two", "two"):
        if rank == 0:
            time.sleep(0.1)  # the other is there first
        with lux.Experiment(name, quiet=True, code=False, system_s=0) as exp:
            exp.log({name: float(rank)}, step=len(ids))
            dist.barrier()
        ids.append(exp.id)
    dist.destroy_process_group()
    return ids


def killed() -> None:
    """Rank 1 dies while it logs."""
    rank = int(os.environ["RANK"])
    with lux.Experiment("killed", quiet=True, code=False, system_s=0) as exp:
        ensure_group()
        for step in range(200):
            exp.log({"loss": float(rank)}, step=step)
        exp.flush()
        dist.barrier()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def ranks() -> Iterator[list[dict[str, str]]]:
    yield as_torchrun(3, free_port())


def test_each_rank_has_its_own_series(ranks: list[dict[str, str]], command: Command) -> None:
    ids = together(log_on_each, ranks)
    assert ids[1:] == ["", ""]  # they make no run
    (run,) = lux.runs()
    assert run.id == ids[0] and run.ranks == [1, 2]
    assert run.metric("loss").values.tolist() == [float(step) for step in range(20)]
    for rank in (1, 2):
        values = [100.0 * rank + step for step in range(20)]
        assert run.metric("loss", rank=rank).values.tolist() == values
        assert run.metric(f"loss@rank{rank}").values.tolist() == values
        told = run.metrics_of(rank)
        assert told["loss"]["n"] == 20 and told["loss"]["last"] == values[-1]
        assert told["system/process_memory_bytes"]["last"] > 0
        assert [row["text"] for row in run.objects("words", rank=rank)] == [f"of rank {rank}"]
        (array,) = run.objects("array", rank=rank)
        assert np.load(io.BytesIO(run.blob(array["blob"]))).tolist() == [float(rank)] * 5000
    assert run.metrics["loss"]["n"] == 20 and "loss@rank1" not in run.metrics
    assert [row["text"] for row in run.objects("words")] == ["of rank 0"]
    assert set(run.record()["metrics_of_other_ranks"]) == {"rank 1", "rank 2"}

    shown = command("show", "latest").out
    assert "@rank" not in shown and "\n2 other ranks logged too: --ranks shows it" in shown
    shown = command("show", "latest", "--ranks").out
    assert "loss@rank1 " in shown and "loss@rank2 " in shown and "--ranks" not in shown
    drawn = command("plot", "latest", "-m", "loss@rank2", "-m", "loss").out
    assert "loss@rank2 " in drawn and " 219" in drawn
    assert "loss@rank" not in command("plot", "latest").out

    with pytest.raises(StoreError, match="rank-not-logged"):
        run.metrics_of(3)
    with pytest.raises(StoreError, match="metric-missing"):
        run.metric("loss@rank3")
    with pytest.raises(StoreError, match="metric-missing") as found:
        run.metric("los", rank=1)
    assert "of rank 1" in str(found.value) and "loss" in str(found.value)


def test_runs_one_after_the_other_are_told_apart() -> None:
    ids = together(two_in_a_row, as_torchrun(2, free_port()))[0]
    for number, (run_id, name) in enumerate(zip(ids, ("one", "two", "two"), strict=True)):
        run = Run(Lab.open().folder / "runs" / run_id)
        point = run.metric(name, rank=1)[0]
        assert (run.name, point.step, point.value) == (name, number, 1.0)


def test_what_a_killed_rank_had_logged_is_there() -> None:
    _, code = together(killed, as_torchrun(2, free_port()))
    assert code == -signal.SIGKILL
    (run,) = lux.runs()
    assert run.metric("loss", rank=1).values.tolist() == [1.0] * 200
    assert not (run.folder / "ranks" / "1" / "status.json").exists()
    Lab.open().gc()
    assert run.metric("loss", rank=1).values.tolist() == [1.0] * 200


def test_a_job_does_not_log_into_the_run_of_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab.open()
    with lab.create_run("job") as run:
        tell_ranks(lab.folder, "k", "job", run.id)
        assert run_of_job(lab.folder, "k", "job") == run.folder
        assert run_of_job(lab.folder, "k", "other") is None and run_of_job(lab.folder, "j", "job") is None
        assert run_of_job(lab.folder, "k", "job", but={run.folder}) is None
        told = json.loads((lab.folder / "ranks" / "k.json").read_text())
        told["runs"][0]["written_ns"] = 1  # before this process began, in a job that still goes on
        (lab.folder / "ranks" / "k.json").write_text(json.dumps(told))
        assert run_of_job(lab.folder, "k", "job") == run.folder
    assert run_of_job(lab.folder, "k", "job") is None  # it is over
    (lab.folder / "ranks" / "k.json").write_text("[")
    assert run_of_job(lab.folder, "k", "job") is None


def test_what_a_rank_logs_without_rank_0_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in as_torchrun(2, free_port(), [1])[0].items():
        monkeypatch.setenv(name, value)
    with lux.Experiment("alone", quiet=True) as exp:
        exp.log({"loss": 1.0}, step=0)
    assert not lux.runs() and not (Path(os.environ["LUXMETER_HOME"]) / "runs").exists()


def test_jobs_have_keys_of_their_own() -> None:
    def key(**env: str) -> str:
        return job_key(env)

    torchrun: dict[str, Any] = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    assert key(**torchrun) == key(**torchrun, RANK="1") != key(**{**torchrun, "MASTER_PORT": "29501"})
    assert key(**torchrun) != key(**torchrun, TORCHELASTIC_RUN_ID="b")
    assert key(SLURM_JOB_ID="7", SLURM_STEP_ID="0") != key(SLURM_JOB_ID="7", SLURM_STEP_ID="1")
    assert key() == "" != key(PMIX_NAMESPACE="prte-1@1")
