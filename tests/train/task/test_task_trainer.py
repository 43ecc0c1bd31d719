"""Tasks trained: bit by bit as a bare loop, of objects and of configs, stopped and gone on with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from small_training import Noisy, Small, same, small_model
from torch import nn

import luxmeter as lux
from luxmeter.errors import UsageError
from luxmeter.train import DATASETS, Accuracy, MeanLoss, TaskTrainer
from luxmeter.train.registries import config_key_of

EPOCHS = 2
LAYERS: list[dict[str, Any]] = [
    {"type": "Linear", "in_features": 6, "out_features": 8},
    {"type": "BatchNorm1d", "num_features": 8},
    {"type": "ReLU"},
    {"type": "Dropout", "p": 0.3},
    {"type": "Linear", "in_features": 8, "out_features": 3},
]
TASK: dict[str, Any] = {
    "type": "TaskFlow",
    "sub_module_cfg": {"logits": {"type": "Sequential", "args": LAYERS}},
    "loss_cfg": {"type": "CrossEntropyLoss", "inputs": {"input": "logits", "target": "labels"}},
}
CONFIG: dict[str, Any] = {
    "epoch": EPOCHS,
    "seed": 3,
    "task": TASK,
    "data": {
        "train": {"dataset": {"type": "noisy"}, "batch_size": 4, "shuffle": True},
        "eval": {"samples": {"type": "plain", "length": 12}, "batch_size": 5},
    },
    "optimizer": {"type": "AdamW", "lr": 0.01},
    "evaluators": ["Accuracy", "MeanLoss"],
}


def plain(length: int) -> list[Any]:
    """Samples without noise."""
    data = Noisy(length)
    return list(zip(data.xs, data.ys, strict=True))


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(DATASETS, "_things", {"noisy": Noisy, "plain": plain})
    yield


def weights(trainer: Any) -> dict[str, torch.Tensor]:
    """The task's state under the names that the bare model has."""
    state = trainer.task.state_dict()
    return {name.partition("logits.")[2]: value.clone() for name, value in state.items()}


def bare() -> dict[str, torch.Tensor]:
    """The same training, without us."""
    lux.random.fix_seed(3)
    model = small_model()
    optim = torch.optim.AdamW(model.parameters(), lr=0.01)
    loader = lux.DataLoader(Noisy(), batch_size=4, shuffle=True)
    for _ in range(EPOCHS):
        for xs, ys in loader:
            nn.functional.cross_entropy(model(xs), ys).backward()
            optim.step()
            optim.zero_grad()
    return model.state_dict()


def test_bare_as_trainer_and_as_task_the_weights_are_the_same_bit_by_bit() -> None:
    plain = bare()
    trainer = Small({"epoch": EPOCHS}, quiet=True)
    trainer.train()
    task = TaskTrainer(CONFIG, quiet=True)
    task.train()
    assert same(plain, trainer.model.state_dict()) and same(plain, weights(task))
    again = bare()
    assert same(plain, again)
    lux.random.fix_seed(4)
    assert not same(plain, small_model().state_dict())


@pytest.mark.parametrize(
    "more",
    [
        {},
        {
            "data.train.sampler": {"type": "RandomSampler", "replacement": True},
            "data.train.shuffle": False,
            "scheduler": {"type": "OneCycleLR", "max_lr": 0.1, "total_steps": 20, "every": "step"},
            "optimizer.groups": [{"match": "bias|Norm", "weight_decay": 0.0}],
        },
    ],
    ids=["plain", "sampled and scheduled"],
)
def test_stopped_anywhere_it_goes_on_bit_by_bit(more: dict[str, Any]) -> None:
    def made(name: str) -> TaskTrainer:
        params = lux.Params(CONFIG)
        params.update(more)
        trainer = TaskTrainer(params, quiet=True, ema=0.9)
        trainer.initial_exp(f"./{name}")
        return trainer

    whole = made("whole")
    whole.train()
    whole.close()
    for step in (2, 6, 9):
        first = made(f"stopped{step}")
        first.train(steps=step)
        first.close()
        second = made(f"stopped{step}")
        torch.rand(step)
        second.train(resume=True)
        assert same(weights(second), weights(whole)), step
        assert second.meters["eval"].to_dict() == whole.meters["eval"].to_dict()
        second.close()


def test_objects_and_configs() -> None:
    task = lux.TaskFlow(
        small_model(),
        {"ce": {"type": "CrossEntropyLoss", "inputs": {"input": "output", "target": "labels"}}},
        lambda output: {"logits": output, "output": output},
    )
    trainer = TaskTrainer(
        {"epoch": 1},
        task=task,
        data={"train": lux.DataLoader(Noisy(), batch_size=4), "eval": CONFIG["data"]["eval"]},
        optimizer=torch.optim.SGD(task.parameters(), lr=0.1),
        evaluators=[Accuracy(), MeanLoss(task)],
        quiet=True,
    )
    trainer.train()
    assert trainer.task is task and trainer.models == {"task": task}
    assert list(trainer.meter) == ["loss", "ce"]
    assert trainer.params.data.to_dict() == {"eval": CONFIG["data"]["eval"]} and "task" not in trainer.params
    task.eval()
    hits = [task(x[None])["logits"].argmax().item() == y for x, y in plain(12)]
    assert trainer.metrics()["eval/acc"] == pytest.approx(sum(hits) / 12)
    assert set(trainer.meters["eval"]) == {"acc", "loss", "ce"}


def test_the_run_holds_config_and_metrics() -> None:
    trainer = TaskTrainer(lux.Params(CONFIG), quiet=True)
    trainer.train()
    trainer.close()
    assert trainer.experiment is not None
    run = trainer.experiment.run
    assert run.params["optimizer"] == {"type": "AdamW", "lr": 0.01}
    assert run.params["task"]["sub_module_cfg"]["logits"]["args"] == LAYERS
    named = trainer.metrics()
    assert set(named) == {
        "train/loss",
        "train/CrossEntropyLoss",
        "eval/acc",
        "eval/loss",
        "eval/CrossEntropyLoss",
    }
    assert run.metric("eval/acc").values[-1] == pytest.approx(named["eval/acc"])


def test_data_is_made_when_it_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    made: list[int] = []

    def counted(length: int = 24) -> list[Any]:
        made.append(length)
        return plain(length)

    DATASETS.register("noisy", counted, replace=True)
    DATASETS.register("plain", counted, replace=True)
    trainer = TaskTrainer(CONFIG, quiet=True)
    trainer.initial_exp()
    assert made == []
    meter = trainer.eval()
    assert made == [12] and meter is not None and set(meter) == {"acc", "loss", "CrossEntropyLoss"}
    assert trainer.test() is None


def test_schedules_and_callbacks_of_a_config() -> None:
    cfg = CONFIG | {
        "scheduler": {"type": "Cos", "start": 1.0, "end": 0.0, "right": 12},
        "callbacks": {"best": {"type": "ModelCheckpoint", "monitor": "eval/acc", "mode": "max"}},
    }
    trainer = TaskTrainer(cfg, quiet=True)
    trainer.train()
    assert trainer.optim.param_groups[0]["lr"] == pytest.approx(0.0, abs=1e-9)
    assert [type(one).__name__ for one in trainer.callbacks].count("ModelCheckpoint") == 1
    stepped = TaskTrainer(
        CONFIG | {"scheduler": {"type": "StepLR", "step_size": 1, "gamma": 0.5}}, quiet=True
    )
    stepped.train()
    assert stepped.optim.param_groups[0]["lr"] == pytest.approx(0.01 / 4)
    plateau = {"type": "ReduceLROnPlateau", "monitor": "eval/loss", "patience": 0, "threshold": 100.0}
    flat = TaskTrainer(CONFIG | {"scheduler": plateau}, quiet=True)
    flat.train()
    assert flat.optim.param_groups[0]["lr"] == pytest.approx(0.0001)


def test_predict_and_cost() -> None:
    trainer = TaskTrainer(CONFIG, quiet=True)
    xs = torch.stack([x for x, _ in Noisy(4)])
    assert trainer.predict(xs)["logits"].shape == (4, 3)
    assert trainer.predict((xs, torch.zeros(4)))["logits"].shape == (4, 3)
    assert trainer.cost().macs == 4 * (6 * 8 + 8 * 3)


def test_without_evaluators_there_is_no_evaluation(tmp_path: Path) -> None:
    cfg = {name: value for name, value in CONFIG.items() if name != "evaluators"}
    trainer = TaskTrainer(cfg, quiet=True)
    assert trainer.eval() is None

    class Own(TaskTrainer):
        def eval_batch(self, *given: Any) -> Any:
            return {"seen": 1.0}

    assert Own(cfg, quiet=True).eval().to_dict() == {"seen": 1.0}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changed", "text", "key"),
    [
        ({"task": None}, "TaskTrainer has no task", ""),
        ({"task": {"type": "torch.nn:ReLU"}}, "The task is a ReLU. Give a TaskFlow", ""),
        ({"task": {"type": "TaskFlw"}}, "task: There is no task called .* 'TaskFlow'", "task"),
        ({"data": "digits"}, "data is 'digits'. Give train, eval, test", ""),
        ({"data": {"val": {}}}, "no use for data called 'val'", ""),
        ({"optimizer": None, "scheduler": {"type": "StepLR"}}, "A scheduler needs an optimizer", ""),
        ({"scheduler": {"type": "StepLR", "stepsize": 2}}, "mean 'step_size'", "scheduler.stepsize"),
        ({"callbacks": [{"type": "ModelCheckpont"}]}, "callbacks.0: There is no callback", "callbacks.0"),
    ],
)
def test_a_config_that_does_not_fit(changed: dict[str, Any], text: str, key: str) -> None:
    trainer = TaskTrainer({**CONFIG, **changed}, quiet=True)
    with pytest.raises(UsageError, match=text) as caught:
        trainer.initial_exp()
    assert config_key_of(caught.value) == key


def test_two_who_schedule() -> None:
    trainer = TaskTrainer(
        CONFIG | {"scheduler": {"type": "StepLR", "step_size": 2}}, quiet=True, schedule="step"
    )
    with pytest.raises(UsageError, match="scheduled by a scheduler and by the Trainer"):
        trainer.initial_exp()


def test_there_is_nothing_to_step() -> None:
    trainer = TaskTrainer({**CONFIG, "optimizer": None}, quiet=True)
    with pytest.raises(UsageError, match="no optimizer"):
        trainer.train()
