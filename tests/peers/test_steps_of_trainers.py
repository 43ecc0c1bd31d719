"""The training steps of real trainers: found, and their time split as it went."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import luxmeter as lux
from luxmeter.calls.kinds import BACKWARD, OPTIMIZER, kind_of

pytestmark = pytest.mark.peers
ROWS, BATCH, EPOCHS = 8, 2, 2
STEPS = ROWS // BATCH * EPOCHS
ONE_CORE = "how calls of real trainers are read; both cores record them alike"


def data() -> Any:
    return DataLoader(TensorDataset(torch.ones(ROWS, 2)), batch_size=BATCH)


def bare(folder: Path) -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(EPOCHS):
        for (x,) in data():
            optimizer.zero_grad()
            (model(x) ** 2).mean().backward()
            optimizer.step()


def ours(folder: Path) -> None:
    class Own(lux.Trainer):
        def initial_trainer(self, params: Any) -> None:
            self.model = torch.nn.Linear(2, 1)
            self.optim = torch.optim.SGD(self.model.parameters(), lr=0.1)
            self.regist_databundler(train=data())

        def train_batch(
            self, eidx: Any, idx: Any, global_step: Any, batch_data: Any, params: Any, device: Any
        ) -> Any:
            return (self.model(batch_data[0]) ** 2).mean()

    with Own({"epoch": EPOCHS}) as trainer:
        trainer.train()


def lightning(folder: Path) -> None:
    pl = pytest.importorskip("lightning.pytorch")

    class Line(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            return (self.layer(batch[0]) ** 2).mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    pl.Trainer(
        max_epochs=EPOCHS, accelerator="cpu", enable_progress_bar=False, enable_model_summary=False, logger=False,
        enable_checkpointing=False, default_root_dir=str(folder),
    ).fit(Line(), data())  # fmt: skip


def hugging_face(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    config = transformers.BertConfig(
        num_hidden_layers=1, hidden_size=12, num_attention_heads=2, intermediate_size=8, vocab_size=20
    )
    words = [{"input_ids": torch.arange(6), "labels": torch.tensor(i % 2)} for i in range(ROWS)]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH, report_to=[], use_cpu=True,
        disable_tqdm=True, save_strategy="no",
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config)
    transformers.Trainer(model, arguments, train_dataset=words).train()


def ignite(folder: Path) -> None:
    engine = pytest.importorskip("ignite.engine")
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = engine.create_supervised_trainer(model, optimizer, torch.nn.functional.mse_loss)
    x = torch.ones(ROWS, 2)
    trainer.run(DataLoader(TensorDataset(x, x[:, :1]), batch_size=BATCH), max_epochs=EPOCHS)


@pytest.mark.parametrize("train", [bare, ours, lightning, hugging_face, ignite])
def test_the_steps_of_a_trainer(train: Callable[[Path], None], tmp_path: Path) -> None:
    train(tmp_path / "once")  # what trainers import and set up with their first run is no step of theirs
    with lux.trace() as t:
        train(tmp_path / "traced")
    steps = t.steps()
    assert steps.by == "the optimizer's step" and len(steps) == STEPS - 1
    assert all(sum(step.kinds_ns) == step.total_ns for step in steps)
    for part in ("forward", "backward", "optimizer"):
        assert all(step.part_ns(part) > 0 for step in steps), part
    assert (
        sum(step.data_ns > 0 for step in steps) >= STEPS - 1 - EPOCHS
    )  # the last batch of an epoch may have come before
    # All of the trace's backward is in one step each, and nothing else; the optimizer's own is without what a closure holds.
    main = [call for call in t.events().to_pylist() if call["thread"] == 0 and not call["own"]]
    within = [c for c in main if steps[0].start_ns <= c["start_ns"] < steps[-1].end_ns and not c["inside"]]
    backward = sum(c["duration_ns"] for c in within if kind_of(c["name"], c["path"]) == BACKWARD)
    assert backward == sum(step.backward_ns for step in steps)
    optimizer = sum(c["duration_ns"] for c in within if kind_of(c["name"], c["path"]) == OPTIMIZER)
    own = sum(step.optimizer_ns for step in steps)
    assert own < optimizer - backward if train is lightning else own == optimizer
