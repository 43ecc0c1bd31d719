"""Lightning's real trainer logs into our runs."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import luxmeter as lux
from luxmeter.store import Lab, Run

pytestmark = pytest.mark.peers
pl = pytest.importorskip("lightning.pytorch")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    opened = Lab.open(tmp_path / "lab")
    yield opened
    opened.close()


class Line(pl.LightningModule):
    def __init__(self, lr: float = 0.1, fail_at: int | None = None) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        if index == self.hparams.fail_at:
            raise RuntimeError("step went wrong")
        loss = (self.layer(batch[0]) ** 2).mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("val_loss", (self.layer(batch[0]) ** 2).mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)


def data() -> torch.utils.data.DataLoader:
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 2)), batch_size=2)


def trainer(folder: Path, **options: Any) -> Any:
    return pl.Trainer(
        max_epochs=2, log_every_n_steps=1, accelerator="cpu", enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=str(folder), **options,
    )  # fmt: skip


def only_run(lab: Lab) -> Run:
    (row,) = lab.runs()
    return lab.find(row.id)


def test_a_training_becomes_a_run(tmp_path: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    from luxmeter.experiment.integrations.lightning import LuxmeterCallback

    monkeypatch.setenv("PL_GLOBAL_SEED", "7")
    callback = LuxmeterCallback("lines", lab=lab, quiet=True)
    checkpoint = pl.callbacks.ModelCheckpoint(dirpath=tmp_path / "ckpt", monitor="val_loss")
    used = trainer(tmp_path, callbacks=[callback, checkpoint], logger=False)
    used.fit(Line(lr=0.05), data(), data())
    run = only_run(lab)
    assert run.id == callback.target.id and run.name == "lines" and run.state == "finished"
    assert run.params["lr"] == 0.05 and run.params["seed"] == 7 and run.params["trainer"]["max_epochs"] == 2
    losses = run.metric("loss").to_arrow().to_pylist()
    assert [p["step"] for p in losses] == list(range(8)) and losses[-1]["value"] < losses[0]["value"]
    assert run.metric("val_loss").to_arrow().num_rows == 2
    assert run.metric("val_loss").to_arrow()["value"][1].as_py() == pytest.approx(
        float(used.callback_metrics["val_loss"])
    )
    kept = {row["path"]: row for row in run.records("files")}
    assert set(kept) == {Path(checkpoint.best_model_path).name}
    assert run.blob(next(iter(kept.values()))["sha256"]) == Path(checkpoint.best_model_path).read_bytes()
    assert run.objects("checkpoint/best")[0]["text"] == checkpoint.best_model_path
    assert run.metrics["checkpoint/best_score"]["last"] == pytest.approx(float(checkpoint.best_model_score))
    assert used.loggers == []


def test_an_exception_is_the_runs_end_and_is_not_swallowed(tmp_path: Path, lab: Lab) -> None:
    from luxmeter.experiment.integrations.lightning import LuxmeterCallback

    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP)
    with pytest.raises(RuntimeError, match="step went wrong"):
        trainer(tmp_path, callbacks=[LuxmeterCallback(lab=lab, quiet=True)], logger=False).fit(
            Line(fail_at=2), data()
        )
    run = only_run(lab)
    assert run.name == "Line" and run.state == "failed" and "step went wrong" in run.error
    assert run.metric("loss").to_arrow().num_rows == 2
    # Lightning put back the handlers it had found, after the run had ended: ours. The next experiment takes them along.
    with lux.Experiment("next", lab=lab, quiet=True):
        pass
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP)) == before


def test_inside_an_experiment_fit_and_test_are_one_run(tmp_path: Path, lab: Lab) -> None:
    from luxmeter.experiment.integrations.lightning import LuxmeterCallback

    with lux.Experiment("whole", {"lr": 0.3, "data": "ones"}, lab=lab, quiet=True) as exp:
        csv = pl.loggers.CSVLogger(tmp_path)
        used = trainer(tmp_path, callbacks=[LuxmeterCallback()], logger=csv)
        used.fit(Line(lr=0.3), data())
        used.validate(Line(lr=0.3), data())
        assert used.loggers == [csv]
        assert exp.state == "running"
    run = only_run(lab)
    assert run.id == exp.id and run.state == "finished"
    assert run.params["data"] == "ones" and run.params["fail_at"] is None
    assert {"loss", "val_loss"} <= set(run.metrics)


def test_the_logger_alone(tmp_path: Path, lab: Lab) -> None:
    from luxmeter.experiment.integrations.lightning import LuxmeterLogger

    trainer(tmp_path, logger=LuxmeterLogger("alone", lab=lab, quiet=True)).fit(Line(), data())
    run = only_run(lab)
    assert run.name == "alone" and run.state == "finished" and run.params["lr"] == 0.1
    assert run.metric("loss").to_arrow().num_rows == 8


def test_the_other_name_of_the_package_has_classes_of_its_own(tmp_path: Path) -> None:
    """`pytorch_lightning` and `lightning.pytorch` do not accept each other's callbacks."""
    import importlib.util
    import subprocess
    import sys

    if importlib.util.find_spec("pytorch_lightning") is None:
        pytest.skip("pytorch_lightning is not installed")
    code = (
        f"import sys; sys.path.append({str(Path(__file__).parent)!r})\n"
        "import cpu_torchvision\n"
        "import pytorch_lightning as pl\n"
        "from luxmeter.experiment.integrations.lightning import LuxmeterCallback\n"
        "assert issubclass(LuxmeterCallback, pl.Callback)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
