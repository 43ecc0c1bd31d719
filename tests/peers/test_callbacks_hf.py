"""Hugging Face's real Trainer logs into our runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import luxmeter as lux
from luxmeter.errors import LuxmeterWarning
from luxmeter.experiment.compare.repeats import find_repeats
from luxmeter.store import Lab, Run

pytestmark = pytest.mark.peers
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    opened = Lab.open(tmp_path / "lab")
    yield opened
    opened.close()


class Words(torch.utils.data.Dataset):
    def __init__(self, fail_at: int = 100) -> None:
        self.fail_at = fail_at

    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        if i == self.fail_at:
            raise RuntimeError("a bad sample")
        return {"input_ids": torch.arange(6) + i % 3, "labels": torch.tensor(i % 2)}


def trainer(folder: Path, *, callback: Any, seed: int = 3, fail_at: int = 100, **options: Any) -> Any:
    config = transformers.BertConfig(
        num_hidden_layers=1, hidden_size=12, num_attention_heads=2, intermediate_size=8, vocab_size=20
    )
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(config)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / f"out{seed}"), num_train_epochs=2, per_device_train_batch_size=2, logging_steps=1,
        learning_rate=0.01, report_to=[], use_cpu=True, disable_tqdm=True, seed=seed, eval_strategy="epoch",
        save_strategy="epoch", **options,
    )  # fmt: skip
    words = Words(fail_at)
    return transformers.Trainer(
        model, arguments, train_dataset=words, eval_dataset=Words(), callbacks=[callback]
    )


def only_run(lab: Lab) -> Run:
    (row,) = lab.runs()
    return lab.find(row.id)


def test_a_training_becomes_a_run(tmp_path: Path, lab: Lab) -> None:
    from luxmeter.experiment.integrations.hf import LuxmeterCallback

    used = trainer(
        tmp_path, callback=LuxmeterCallback("bert", lab=lab, quiet=True), load_best_model_at_end=True
    )
    used.train()
    run = only_run(lab)
    assert run.name == "bert" and run.state == "finished"
    assert run.params["learning_rate"] == 0.01 and run.params["seed"] == 3
    assert run.params["model"]["hidden_size"] == 12 and "output_dir" not in run.params
    logged = [entry for entry in used.state.log_history if "loss" in entry]
    points = run.metric("train/loss").to_arrow().to_pylist()
    assert [(p["step"], p["value"]) for p in points] == [(e["step"], e["loss"]) for e in logged]
    assert run.metric("eval/loss").to_arrow().num_rows == 2 and "train/learning_rate" in run.metrics
    files = {row["path"]: row["sha256"] for row in run.records("files")}
    assert {"checkpoint-4/model.safetensors", "checkpoint-8/model.safetensors"} <= set(files)
    assert run.objects("checkpoint/best")[0]["text"] == used.state.best_model_checkpoint
    assert '"learning_rate": 0.01' in run.file("training_args.json").read_text()


def test_seeds_are_repeats(tmp_path: Path, lab: Lab) -> None:
    from luxmeter.experiment.integrations.hf import LuxmeterCallback

    for seed in (1, 2):
        trainer(tmp_path, callback=LuxmeterCallback("bert", lab=lab, quiet=True), seed=seed).train()
    (group,) = find_repeats(lab)
    assert group.seeds == [1, 2] and group.estimate("eval/loss").n == 2


def test_inside_an_experiment_an_exception_is_its_end(tmp_path: Path, lab: Lab) -> None:
    from luxmeter.experiment.integrations.hf import LuxmeterCallback

    with pytest.raises(RuntimeError, match="a bad sample"):
        with lux.Experiment("bert", {"mine": 1}, lab=lab, quiet=True):
            trainer(tmp_path, callback=LuxmeterCallback(), fail_at=5).train()
    run = only_run(lab)
    assert run.state == "failed" and "a bad sample" in run.error
    assert run.params["mine"] == 1 and run.params["learning_rate"] == 0.01


def test_a_training_that_failed_is_ended_by_the_next(tmp_path: Path, lab: Lab) -> None:
    from luxmeter.experiment.integrations.hf import LuxmeterCallback

    callback = LuxmeterCallback("bert", lab=lab, quiet=True)
    with pytest.raises(RuntimeError):
        trainer(tmp_path, callback=callback, fail_at=5).train()
    trainer(tmp_path, callback=callback).train()
    assert sorted(row.state for row in lab.runs()) == ["failed", "finished"]


def test_what_comes_after_the_end_is_told(tmp_path: Path, lab: Lab) -> None:
    from luxmeter.experiment.integrations.hf import LuxmeterCallback

    used = trainer(tmp_path, callback=LuxmeterCallback("bert", lab=lab, quiet=True))
    used.train()
    with pytest.warns(LuxmeterWarning, match="callback-run-ended"):
        used.evaluate()
    with lux.Experiment("whole", lab=lab, quiet=True) as exp:
        used = trainer(tmp_path, callback=LuxmeterCallback(exp))
        used.train()
        used.evaluate()
    run = lab.find(exp.id)
    assert run.state == "finished" and run.metric("eval/loss").to_arrow().num_rows == 3
