"""MLflow's runs, written by the real MLflow, imported."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from luxmeter.errors import UsageError
from luxmeter.store import Lab

pytestmark = pytest.mark.peers
mlflow = pytest.importorskip("mlflow")


@pytest.fixture(params=["sqlite", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An MLflow store of each kind with three runs in it."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    uri = f"sqlite:///{tmp_path}/m.db" if request.param == "sqlite" else f"{(tmp_path / 'mlruns').as_uri()}"
    fill(uri, tmp_path)
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE")
    return uri


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    opened = Lab.open(tmp_path / "lab")
    yield opened
    opened.close()


def fill(uri: str, folder: Path) -> None:
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.create_experiment("digits", artifact_location=f"file://{folder}/artifacts")
    run = client.create_run(
        experiment, start_time=1_700_000_000_000, run_name="brave-owl", tags={"team": "vision"}
    )
    at = run.info.run_id
    client.log_param(at, "lr", "0.1")
    client.log_param(at, "layers", "3")
    client.log_param(at, "name", "007")
    for step in range(4):
        client.log_metric(at, "loss", 1.0 / (step + 1), timestamp=1_700_000_001_000 + step, step=step)
    client.log_metric(at, "odd", math.nan, timestamp=1_700_000_002_000, step=0)
    client.set_tag(at, "mlflow.note.content", "the first")
    client.set_tag(at, "mlflow.source.git.commit", "abc123")
    (folder / "weights.bin").write_bytes(b"\0\1\2")
    client.log_artifact(at, str(folder / "weights.bin"), "model/deep")
    client.set_terminated(at, "FINISHED", end_time=1_700_000_009_000)
    child = client.create_run(experiment, start_time=1_700_000_003_000, tags={"mlflow.parentRunId": at})
    client.set_terminated(child.info.run_id, "KILLED", end_time=1_700_000_004_000)
    client.create_run(experiment, start_time=1_700_000_005_000)  # never ended


def imported(lab: Lab, uri: str, **options: Any) -> list[str]:
    from luxmeter.experiment.transfer.mlflow import import_mlflow

    return import_mlflow(lab, uri, **options)


def test_everything_of_a_run_comes_over(store: str, lab: Lab) -> None:
    first, child, open_one = imported(lab, store)
    run = lab.find(first)
    assert run.name == "digits" and run.state == "finished"
    assert run.created_ns == 1_700_000_000_000 * 10**6 and run.ended_ns == 1_700_000_009_000 * 10**6
    assert run.params == {"lr": 0.1, "layers": 3, "name": "007"}
    points = run.metric("loss").to_arrow().to_pylist()
    assert [(p["step"], p["value"], p["time_ns"]) for p in points] == [
        (s, 1.0 / (s + 1), (1_700_000_001_000 + s) * 10**6) for s in range(4)
    ]
    assert math.isnan(run.metric("odd").to_arrow()["value"][0].as_py())
    assert set(run.tags) == {"mlflow", "brave-owl", "team=vision"} and run.marks.note == "the first"
    assert run.environment["mlflow"]["git_commit"] == "abc123"
    assert run.file("artifacts/model/deep/weights.bin").read_bytes() == b"\0\1\2"
    assert lab.find("brave-owl").id == first
    assert lab.find(child).state == "interrupted" and lab.find(child).identity["parent"] == first
    assert lab.find(open_one).state == "lost"
    assert len(lab.runs("metric.loss < 0.3 and param.lr = 0.1")) == 1


def test_importing_again_adds_nothing_and_what_changed_is_renewed(
    store: str, lab: Lab, monkeypatch: Any
) -> None:
    ids = imported(lab, store)
    stamps = [(lab.find(i).folder / "run.json").stat().st_mtime_ns for i in ids]
    assert imported(lab, store) == ids
    assert [(lab.find(i).folder / "run.json").stat().st_mtime_ns for i in ids] == stamps
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client = mlflow.MlflowClient(tracking_uri=store)
    open_run = lab.find(ids[2]).file("import.json").read_text().split('"run_id": "')[1].split('"')[0]
    client.log_metric(open_run, "loss", 9.0, step=0)
    client.set_terminated(open_run, "FAILED")
    assert imported(lab, store) == ids
    assert lab.find(ids[2]).state == "failed"
    assert lab.find(ids[2]).metric("loss").to_arrow()["value"].to_pylist() == [9.0]
    assert len(lab.runs()) == 3


def test_the_users_store_and_settings_stay_as_they_were(tmp_path: Path, store: str, lab: Lab) -> None:
    import os

    before = digest(tmp_path)
    tracking = mlflow.get_tracking_uri()
    imported(lab, store)
    assert digest(tmp_path) == before
    assert mlflow.get_tracking_uri() == tracking and "MLFLOW_ALLOW_FILE_STORE" not in os.environ


def digest(folder: Path) -> dict[str, str]:
    places = [folder / "m.db", *(folder / "mlruns").rglob("*"), *(folder / "artifacts").rglob("*")]
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in places if p.is_file()}


def test_options(store: str, lab: Lab) -> None:
    assert imported(lab, store, experiment="none of this name") == []
    first, *_ = imported(lab, store, most_artifact_bytes=2)
    assert lab.find(first).put_files() == ["import.json"]
    assert "3 bytes" in lab.find(first).file("import.json").read_text()
    first, *_ = imported(lab, store, artifacts=False)
    assert lab.find(first).put_files() == ["import.json"]


def test_what_is_no_store_is_refused_and_not_made(tmp_path: Path, lab: Lab) -> None:
    with pytest.raises(UsageError, match="mlflow-not-there"):
        imported(lab, f"sqlite:///{tmp_path}/none.db")
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "text.db").write_text("not a database, but long enough to look at " * 20)
    with pytest.raises(UsageError, match="mlflow-unreadable"):
        imported(lab, str(tmp_path / "text.db"))
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("create table mine (a)")
    other.close()
    with pytest.raises(UsageError, match="its tables are mine"):
        imported(lab, str(tmp_path / "other.db"))


def test_a_store_that_names_a_foreign_folder_gets_nothing_of_it(tmp_path: Path, lab: Lab) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text("secret")
    uri = f"sqlite:///{tmp_path}/m.db"
    fill(uri, tmp_path)
    with sqlite3.connect(tmp_path / "m.db") as database:
        database.execute("update runs set artifact_uri = ?", [f"file://{tmp_path}/private"])
    database.close()
    for run_id in imported(lab, uri):
        assert lab.find(run_id).put_files() == ["import.json"]


def test_from_a_server(tmp_path: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    options = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    places = [
        "--backend-store-uri",
        f"sqlite:///{tmp_path}/m.db",
        "--artifacts-destination",
        f"{tmp_path}/kept",
    ]
    words = [sys.executable, "-m", "mlflow", "server", *options, *places]
    log = (tmp_path / "server.log").open("w")
    server = subprocess.Popen(words, stdout=log, stderr=log, cwd=tmp_path, start_new_session=True)
    try:
        _wait_for(f"{address}/health", server)
        client = mlflow.MlflowClient(tracking_uri=address)
        at = client.create_run(client.create_experiment("served"), run_name="far").info.run_id
        client.log_param(at, "lr", "0.1")
        for step in range(3):
            client.log_metric(at, "loss", 1.0 / (step + 1), step=step)
        (tmp_path / "weights.bin").write_bytes(b"\0\1\2")
        client.log_artifact(at, str(tmp_path / "weights.bin"), "model deep")
        client.set_terminated(at, "FINISHED")
        [ours] = imported(lab, address)
        run = lab.find(ours)
        assert (run.name, run.state, run.params, run.tags) == (
            "served",
            "finished",
            {"lr": 0.1},
            ["mlflow", "far"],
        )
        assert run.metric("loss").to_arrow().column("value").to_pylist() == [1.0, 0.5, 1 / 3]
        assert run.file("artifacts/model deep/weights.bin").read_bytes() == b"\0\1\2"
        assert imported(lab, address) == [ours]  # known by now
    finally:
        os.killpg(server.pid, signal.SIGTERM)  # its workers too
        server.wait()
        log.close()
    asked: list[str] = []
    monkeypatch.setattr("time.sleep", lambda seconds: asked.append(f"waits {seconds}"))
    with pytest.raises(UsageError, match="mlflow-unreadable"):
        imported(lab, address)  # it is gone: said after one more try, not after minutes
    assert len(asked) <= 1


def _wait_for(address: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(1200):
        with contextlib.suppress(OSError):
            urllib.request.urlopen(address).close()
            return
        assert server.poll() is None, "the server ended"
        time.sleep(0.1)
    raise AssertionError("the server does not answer")
