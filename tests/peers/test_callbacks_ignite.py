"""Ignite's real engines log into our runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import luxmeter as lux
from luxmeter.errors import UsageError
from luxmeter.store import Lab, Run, activate

pytestmark = pytest.mark.peers
ignite = pytest.importorskip("ignite")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    opened = Lab.open(tmp_path / "lab")
    yield opened
    opened.close()


def engines(fail_at: int = 1000) -> tuple[Any, Any, torch.nn.Module, torch.optim.Optimizer]:
    from ignite.engine import Engine
    from ignite.metrics import Average

    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(engine: Any, batch: Any) -> dict[str, float]:
        if engine.state.iteration == fail_at:
            raise RuntimeError("step went wrong")
        optimizer.zero_grad()
        loss = (model(batch) ** 2).mean()
        loss.backward()
        optimizer.step()
        return {"loss": loss.item(), "text": "left out"}

    trainer = Engine(step)
    evaluator = Engine(lambda engine, batch: float((model(batch) ** 2).mean()))
    Average().attach(evaluator, "loss")
    Average(output_transform=lambda out: out["loss"]).attach(trainer, "mean_loss")
    return trainer, evaluator, model, optimizer


def only_run(lab: Lab) -> Run:
    (row,) = lab.runs()
    return lab.find(row.id)


DATA = [torch.ones(4, 2)] * 5


def test_a_training_becomes_a_run(tmp_path: Path, lab: Lab) -> None:
    from ignite.engine import Events
    from ignite.handlers import Checkpoint, DiskSaver

    from luxmeter.experiment.integrations.ignite import LuxmeterHandler

    trainer, evaluator, model, optimizer = engines()
    saver = Checkpoint({"model": model}, DiskSaver(str(tmp_path / "ckpt"), create_dir=True), n_saved=1)
    handler = LuxmeterHandler("lines", params={"lr": 0.1, "seed": 4}, lab=lab, quiet=True)
    handler.attach(trainer, evaluators={"val": evaluator}, every=2, optimizer=optimizer, checkpoints=[saver])
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(DATA))
    trainer.add_event_handler(Events.EPOCH_COMPLETED, saver)
    trainer.run(DATA, max_epochs=2)
    run = only_run(lab)
    assert run.name == "lines" and run.state == "finished" and run.id == handler.target.id
    assert run.params == {"lr": 0.1, "seed": 4, "trainer": {"max_epochs": 2, "epoch_length": 5}}
    assert run.metric("train/loss").to_arrow()["step"].to_pylist() == [2, 4, 6, 8, 10]
    assert run.metric("val/loss").to_arrow()["step"].to_pylist() == [5, 10]
    assert run.metric("train/mean_loss").to_arrow()["step"].to_pylist() == [5, 10]
    assert set(run.metric("lr").to_arrow()["value"].to_pylist()) == {0.1}
    assert "train/text" not in run.metrics
    (kept,) = [row for row in run.records("files") if row["event"] == "created" and row["kept"]][-1:]
    assert run.blob(kept["sha256"]) == Path(tmp_path / "ckpt" / saver.last_checkpoint).read_bytes()


def test_an_exception_is_the_runs_end_and_is_not_swallowed(lab: Lab) -> None:
    from luxmeter.experiment.integrations.ignite import LuxmeterHandler

    trainer, *_ = engines(fail_at=3)
    LuxmeterHandler("lines", lab=lab, quiet=True).attach(trainer)
    with pytest.raises(RuntimeError, match="step went wrong"):
        trainer.run(DATA)
    run = only_run(lab)
    assert run.state == "failed" and "step went wrong" in run.error


def test_an_exception_that_the_program_deals_with_stays_dealt_with(lab: Lab) -> None:
    from ignite.engine import Events

    from luxmeter.experiment.integrations.ignite import LuxmeterHandler

    trainer, *_ = engines(fail_at=3)
    LuxmeterHandler("lines", lab=lab, quiet=True).attach(trainer)
    seen: list[BaseException] = []
    trainer.add_event_handler(Events.EXCEPTION_RAISED, lambda engine, error: seen.append(error))
    trainer.run(DATA)
    assert len(seen) == 1 and only_run(lab).state == "failed"


def test_terminated_training_is_finished(lab: Lab) -> None:
    from ignite.engine import Events

    from luxmeter.experiment.integrations.ignite import LuxmeterHandler

    trainer, *_ = engines()
    LuxmeterHandler("lines", lab=lab, quiet=True).attach(trainer, output=lambda out: {"mine": out["loss"]})
    trainer.add_event_handler(Events.ITERATION_COMPLETED(once=3), lambda engine: engine.terminate())
    trainer.run(DATA)
    run = only_run(lab)
    assert run.state == "finished" and run.metric("train/mine").to_arrow().num_rows == 3


def test_a_run_that_is_active_is_used_and_left_open(tmp_path: Path, lab: Lab) -> None:
    from luxmeter.experiment.integrations.ignite import LuxmeterHandler

    trainer, *_ = engines()
    with lab.create_run("outer", params={"a": {"b": 1}}) as run, activate(run):
        handler = LuxmeterHandler(params={"a": {"b": 2, "c": 3}}).attach(trainer)
        trainer.run(DATA)
        assert run.state == "running" and handler.target.id == run.id
    assert only_run(lab).params["a"] == {"b": 1, "c": 3}
    with lux.Experiment("given", lab=lab, quiet=True) as exp:
        trainer, *_ = engines()
        LuxmeterHandler(exp).attach(trainer)
        trainer.run(DATA)
    assert exp.run.metric("train/loss").to_arrow().num_rows == 5


def test_every_zero_is_refused() -> None:
    from luxmeter.experiment.integrations.ignite import LuxmeterHandler

    with pytest.raises(UsageError, match="log-every"):
        LuxmeterHandler().attach(engines()[0], every=0)
