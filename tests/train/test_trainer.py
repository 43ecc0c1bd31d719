"""lux.Trainer: the document's example, and what a training gives by itself."""

from __future__ import annotations

import importlib
import math
import re
import sys
from collections import OrderedDict, defaultdict, namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_training import Noisy, Small, same, small_model, weights
from torch import nn

import luxmeter as lux
from luxmeter.errors import LuxmeterWarning, UsageError
from luxmeter.train import EvalCallback, LoggerCallback, Optimization, transforms
from luxmeter.train.data import samples_in, to_device

ONE_CORE = "where a trace goes, not what is recorded"

# The blocks of the thexp document's complete flow; only what is imported is another.
MODEL = """
import torch.nn as nn
class MyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(28 * 28, 10)

    def forward(self, x):
        x = x.view(x.shape[0], -1)
        x = self.fc(x)
        return x
"""
TRAINER = """
from luxmeter import Meter, Params, Trainer
class MyTrainer(Trainer):
    def initial_trainer(self,params:Params): # 在该方法中初始化模型、优化器、数据集
        from torch.optim import SGD
        from luxmeter.train import transforms
        from luxmeter.train import FakeData
        from luxmeter import DataLoader

        self.model = MyModel()
        self.optim = SGD(self.model.parameters(), lr=params.lr)
        dataset = FakeData(image_size=(28, 28), transform=transforms.ToTensor())
        train_loader = eval_loader = test_loader = DataLoader(dataset, shuffle=True, batch_size=32, drop_last=True)

        self.regist_databundler(
            train=train_loader,
            test=test_loader,
            eval=eval_loader,
        )
        self.cross = nn.CrossEntropyLoss()

    def train_batch(self, eidx, idx, global_step, batch_data, params, device): 
        # 在该方法中写 每个batch 中的模型训练流程
        optim, cross = self.optim, self.cross
        meter = Meter()
        xs, ys = batch_data

        # 训练逻辑
        logits = self.model(xs)
        meter.loss = cross(logits, ys)

        # 反向传播
        meter.loss.backward()
        optim.step()
        optim.zero_grad()

        return meter

"""  # noqa: W291
MAIN = """
params = Params()
params.lr = 0.01
params.build_exp_name("mytrainer", "lr")

trainer = MyTrainer(params)
trainer.initial_exp("./experiment")

trainer.train()
"""
CALLBACKS = """
class MyTrainer(MyTrainer):
    def initial_callback(self):
        from luxmeter.train import EvalCallback, LoggerCallback, Optimization, transforms
        ec = EvalCallback(1, 5) # 决定几个epoch eval一次，几个eopch test一次
        ec.hook(self)

        lc = LoggerCallback() # 对试验过程进行日志输出
        lc.hook(self)
"""


def test_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(MODEL + TRAINER + MAIN, names)
    trainer = names["trainer"]
    run, folder = trainer.run, tmp_path / "experiment" / "mytrainer_lr=0.01"
    assert trainer.position.global_step == 310 and trainer.position.eidx == 11  # ten epochs of 31 batches
    assert trainer.meter.loss.mean < 0.2
    assert trainer.callbacks.find(Optimization).is_active is False
    assert [Path(p).name for p in trainer.saver.find_checkpoints()] == [
        "000248.ckpt",
        "000279.ckpt",
        "000310.ckpt",
    ]
    assert trainer.saver.folder == folder / "save"
    trainer.close()
    log = (folder / "log" / "run.log").read_text()
    assert len(re.findall(r"MyTrainer has no eval_batch: it is not evaluated", log)) == 1
    assert "Epoch(train) [10]  loss: 0." in log and "Trained on 310 batches" in log
    assert run.state == "finished" and run.name == "mytrainer_lr=0.01"
    assert run.params["lr"] == 0.01 and "global_step" not in run.params
    assert run.metric("train/loss").steps.tolist() == list(range(310))
    assert "Epoch(train) [10]  loss: 0." in capsys.readouterr().out


def test_the_documents_callbacks() -> None:
    names: dict[str, Any] = {}
    exec(MODEL + TRAINER + CALLBACKS + MAIN.replace("trainer.train()", ""), names)
    trainer = names["trainer"]
    assert [type(one) for one in trainer.callbacks if type(one) in (EvalCallback, LoggerCallback)] == [
        LoggerCallback,
        EvalCallback,
    ]
    trainer.train(steps=3)
    assert trainer.position.done == 3 and trainer.meters["eval"].to_dict() == {}


def small(kind: type[Small] = Small, *, epochs: int = 2, name: str | None = None, **options: Any) -> Small:
    trainer = kind({"epoch": epochs}, quiet=True, **{"checkpoint": False, **options})
    trainer.initial_exp(name)
    return trainer


# -- one run -----------------------------------------------------------------------------------------------------------


def test_training_evaluation_and_test_are_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "code_of_mine.py").write_text("WIDTH = 8\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "code_of_mine", sys)  # goes after the test
    del sys.modules["code_of_mine"]
    importlib.import_module("code_of_mine")
    trainer = small(epochs=5, name="./folder", checkpoint=True)
    averages = trainer.train()
    assert averages is trainer.meter and averages.loss.count == 6
    assert trainer.eval() is trainer.meters["eval"] and trainer.test() is trainer.meters["test"]
    trainer.close()
    run = trainer.run
    assert run.state == "finished" and [one.id for one in lux.runs()] == [run.id]
    assert run.metric("eval/acc").steps.tolist() == [6, 12, 18, 24, 30, 30]
    assert run.metric("test/acc").steps.tolist() == [30, 30]  # EvalCallback(1, 5), and by hand
    assert run.metric("train/loss").values.tolist() == trainer.losses
    # What the document says is on by itself: code, output, files.
    assert run.code == {"code_of_mine.py": "WIDTH = 8\n"} and "Epoch(train)" not in run.log_text
    assert {"save/000030.ckpt", "log/run.log"} <= set(run.files)
    assert trainer.saver.folder == tmp_path / "folder" / "Small" / "save"
    assert len(trainer.saver.find_checkpoints()) == 3
    assert trainer.experiment is not None and trainer.experiment.state == "finished"


def test_after_close_it_can_be_looked_at_and_another_training_is_another_run() -> None:
    with small(name="once", checkpoint=True) as trainer:
        trainer.train(epochs=1)
    first = trainer.run
    assert first.state == "finished" and len(trainer.saver.find_checkpoints()) == 1
    assert trainer.run.id == first.id  # asking begins nothing
    trainer.train(epochs=2)
    assert trainer.run.id != first.id and trainer.run.name == "once" and trainer.run.state == "running"
    with pytest.raises(UsageError, match=r"The run 'once' of this trainer goes on.*or close"):
        trainer.initial_exp("another")
    trainer.close()
    assert [run.name for run in lux.runs()] == ["once", "once"]


def test_another_trainer_ends_the_run_of_the_one_before() -> None:
    first = small(name="first")
    first.train(steps=1)
    assert first.run.state == "running"
    second = small(name="second")
    assert first.run.state == "finished" and second.run.state == "running"


def test_a_second_attempt_after_an_initial_trainer_that_failed() -> None:
    class Flaky(Small):
        broken = True

        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            if self.broken:
                raise OSError("no data here")

    trainer = Flaky({"epoch": 1}, quiet=True)
    with pytest.raises(OSError, match="no data here"):
        trainer.train()
    assert trainer.run.state == "failed" and "no data here" in trainer.run.error
    Flaky.broken = False
    trainer.train()
    assert sum(isinstance(one, EvalCallback) for one in trainer.callbacks) == 1 and trainer.position.done == 6


# -- how far -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "steps", "eidx"),
    [({}, 12, 3), ({"epochs": 1}, 6, 2), ({"steps": 8}, 8, 2), ({"epochs": 3, "steps": 7}, 7, 2), ({"epochs": 1, "steps": 9}, 6, 2)],
)  # fmt: skip
def test_epochs_or_steps(asked: dict[str, int], steps: int, eidx: int) -> None:
    trainer = small()
    trainer.train(**asked)
    assert len(trainer.losses) == steps == trainer.position.global_step and trainer.position.eidx == eidx
    assert trainer.params.global_step == steps and trainer.params.eidx == eidx


@pytest.mark.parametrize("loader", [lux.DataLoader, torch.utils.data.DataLoader])
def test_stop_train_and_stop_current_epoch(loader: Any) -> None:
    class Stops(Small):
        def train_batch(self, eidx: int, idx: int, global_step: int, *rest: Any) -> Any:
            self.seen.append((eidx, idx, global_step))
            if (eidx, idx) == (1, 1):
                self.stop_current_epoch()
            if (eidx, idx) == (3, 2):
                self.stop_train()
            return super().train_batch(eidx, idx, global_step, *rest)

        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            self.seen: list[tuple[int, int, int]] = []

    Stops.loader = loader
    trainer = small(Stops, epochs=9)
    trainer.train()
    epochs = [eidx for eidx, _, _ in trainer.seen]  # type: ignore[attr-defined]
    assert [epochs.count(e) for e in (1, 2, 3, 4)] == [2, 6, 3, 0]
    assert [step for *_, step in trainer.seen] == list(range(11))  # type: ignore[attr-defined]
    trainer.experiment.flush()  # type: ignore[union-attr]
    assert trainer.run.metric("eval/acc").steps.tolist() == [2, 8, 11]  # epochs that ended, and the end
    trainer.train(epochs=3)  # goes on in the third
    assert trainer.position.global_step == 14 and trainer.position.eidx == 4


@pytest.mark.parametrize(
    ("asked", "told"),
    [({"epochs": 0}, "epochs=0"), ({"steps": -1}, "steps=-1"), ({"epochs": 1.5}, "epochs=1.5"), ({"steps": True}, "steps=True")],
)  # fmt: skip
def test_lengths_that_train_nothing(asked: dict[str, Any], told: str) -> None:
    trainer = Small({"epoch": 2}, quiet=True)
    with pytest.raises(UsageError, match=f"{told} trains nothing"):
        trainer.train(**asked)
    assert trainer.experiment is None  # nothing was begun
    with pytest.raises(UsageError, match=r"params.epoch='many' trains nothing"):
        Small(lux.BaseParams(epoch="many"), quiet=True).train()


def test_nothing_left_to_train_is_said() -> None:
    trainer = small(epochs=1)
    trainer.train()
    trainer.train()
    assert len(trainer.losses) == 6
    log = trainer.experiment and Path(trainer.experiment.folder, "files", "log", "run.log").read_text()
    assert "Nothing is left to train: epoch 2, batch 0, step 6 is behind the end." in str(log)


# -- evaluation ----------------------------------------------------------------------------------------------------------


def test_evaluation_alone_makes_neither_training_data_nor_the_test() -> None:
    made: list[str] = []

    class Lazy(Small):
        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)

            def maker(name: str) -> Any:
                def make() -> Any:
                    made.append(name)
                    return lux.DataLoader(Noisy(10), batch_size=4)

                return make

            self.regist_databundler(train=maker("train"), eval=maker("eval"), test=maker("test"))

    trainer = small(Lazy)
    assert trainer.eval() is not None and trainer.eval() is not None
    assert made == ["eval"]
    trainer.train(steps=1)
    assert made == ["eval", "train", "test"]  # the end of a training tests, too


def test_averages_count_each_sample_alike() -> None:
    class Uneven(Small):
        def eval_batch(self, eidx: int, idx: int, global_step: int, batch_data: Any, *_: Any) -> Any:
            return {"share": batch_data[0].sum() / len(batch_data[0])}

    trainer = small(Uneven)
    values = torch.tensor([1.0, 0, 0, 0, 1])
    trainer.regist_databundler(eval=[(values[:4],), (values[4:],)])
    meter = trainer.eval()
    assert meter is not None and meter.share.mean == 0.4
    assert [samples_in(batch) for batch in ((values,), {"x": 1, "y": values}, 3, [torch.tensor(1.0)])] == [
        5,
        5,
        0,
        0,
    ]


def test_modes_gradients_and_data_are_as_they_were_after_an_evaluation() -> None:
    modes: list[bool] = []

    class Merges(nn.Sequential):
        def train(self, mode: bool = True) -> Any:
            modes.append(mode)
            return super().train(mode)

    class Frozen(Small):
        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            self.model = Merges(*small_model())
            self.model[1].eval()  # a BatchNorm that is frozen
            self.optim = torch.optim.SGD(self.model.parameters(), lr=0.1)

        def eval_batch(self, *given: Any) -> Any:
            assert not torch.is_grad_enabled() and not any(m.training for m in self.model.modules())
            return super().eval_batch(*given)

    trainer = small(Frozen)
    trainer.eval()
    assert modes == [False, True]
    assert [m.training for m in trainer.model.modules()] == [True, True, False, True, True, True]
    assert torch.is_grad_enabled()


def test_a_loader_for_all_three(tmp_path: Path) -> None:
    """As the document has it; an evaluation in the middle of an epoch leaves the training's position alone."""

    class Shared(Small):
        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            loader = self.data["train"]
            self.regist_databundler(train=loader, eval=loader, test=loader)

    whole = small(Shared, epochs=2)
    whole.train()
    stopped = small(Shared, epochs=2, name="./shared", checkpoint=True)
    stopped.train(steps=4)  # evaluates with the loader
    assert stopped.meters["eval"].acc.count == 6
    stopped.train(epochs=2)
    assert stopped.losses[:6] == whole.losses[:6]
    first = small(Shared, epochs=2, name="./other", checkpoint=True)
    first.train(steps=4)
    second = small(Shared, epochs=2, name="./other", checkpoint=True)
    second.train(resume=True)
    assert first.losses + second.losses[:2] == whole.losses[:6]

    class Evaluates:
        def after_batch(self, trainer: Any, result: Any) -> None:
            trainer.eval()

    whole.callbacks.add(Evaluates())
    with pytest.raises(
        UsageError, match=r"The eval data is the very loader that the training reads.*eval=DataLoader"
    ):
        whole.train(epochs=3)


def test_no_evaluation_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    class NoEval(Small):
        eval_batch = lux.Trainer.eval_batch

    class NoData(Small):
        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            self.data.register({"eval": None, "test": None})

    class TestsOnly(NoEval):
        def test_batch(self, *given: Any) -> Any:
            return Small.eval_batch(self, *given)

    for kind, told in (
        (NoEval, ["NoEval has no eval_batch: it is not evaluated."]),
        (
            NoData,
            ["NoData has no eval data: there is no eval.", "NoData has no test data: there is no test."],
        ),
        (TestsOnly, ["TestsOnly has no eval_batch, only test_batch: it is tested, not evaluated."]),
    ):
        caplog.clear()
        trainer = small(kind, epochs=5)
        trainer.train()
        assert trainer.eval() is None
        assert [m for m in caplog.messages if "has no" in m] == told
        trainer.close()
        assert ("test/acc" in trainer.run.metrics) == (kind is TestsOnly)
    with pytest.raises(UsageError, match=r"no evaluation 'tets'.*Did you mean 'test'"):
        trainer.evaluate("tets")


def test_predict() -> None:
    trainer = Small({"epoch": 1}, quiet=True)
    xs = Noisy().xs
    scores = trainer.predict(xs[:4])
    assert trainer.experiment is None and scores.shape == (4, 3) and not scores.requires_grad
    assert torch.equal(trainer.predict((xs[:4], "labels")), scores) and trainer.model.training
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(xs), batch_size=8)
    assert torch.allclose(torch.cat(trainer.predict(loader)), trainer.predict(xs), atol=1e-6)
    assert [len(one) for one in trainer.predict(iter([xs[:2], xs[:3]]))] == [2, 3]
    trainer.other = nn.Linear(1, 1)
    with pytest.raises(UsageError, match="predict_batch needs one model, and Small has model, other"):
        trainer.predict(xs)


# -- devices -------------------------------------------------------------------------------------------------------------


class Moves:
    """Says where it was sent."""

    def __init__(self, where: Any = "here") -> None:
        self.where = where

    def to(self, device: Any) -> Moves:
        return Moves(device)


def test_batches_are_moved() -> None:
    seen: list[Any] = []

    class Elsewhere(lux.Trainer):
        def initial_trainer(self, params: Any) -> None:
            self.model = nn.Linear(2, 2)
            batch = {"x": torch.ones(1, 2), "rest": [torch.ones(1), ("text", Moves())]}
            self.regist_databundler(train=[batch])

        def train_batch(
            self, eidx: int, idx: int, global_step: int, batch: Any, params: Any, device: Any
        ) -> None:
            assert self.model(batch["x"]).device == device == torch.device("meta")
            seen.append(batch)

    trainer = Elsewhere({"epoch": 1, "device": "meta"}, quiet=True, checkpoint=False)
    trainer.train()
    assert seen[0]["rest"][0].device.type == "meta"
    assert seen[0]["rest"][1][0] == "text" and seen[0]["rest"][1][1].where == torch.device("meta")


def test_any_kind_of_batch_is_moved() -> None:
    Pair = namedtuple("Pair", "a b")
    meta = torch.device("meta")
    packed = nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    assert to_device(packed, torch.device("cpu")).data is not None
    of_lists = defaultdict(list, {"x": torch.ones(1)})
    moved = to_device(of_lists, meta)
    assert moved["x"].device == meta and moved["new"] == [] and of_lists["x"].device.type == "cpu"
    pair = to_device(Pair(torch.ones(1), 2), meta)
    assert pair.a.device == meta and pair.b == 2
    assert list(to_device(OrderedDict(b=torch.ones(1), a=1), meta)) == ["b", "a"]


def test_a_device_that_is_none() -> None:
    with pytest.raises(UsageError, match=r"params.device is 'gpu0'.*Give one such as"):
        Small({"device": "gpu0"})


# -- progress ------------------------------------------------------------------------------------------------------------


def test_the_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    trainer = small(epochs=2, log_every=4)
    trainer.train()
    lines = [line for line in caplog.messages if line.startswith("Epoch(train) [") and "][" in line]
    assert len(lines) == 2  # of six batches the fourth
    number = r"[0-9.]+"
    shape = rf"Epoch\(train\) \[2\]\[4/6\]  lr: 1\.0000e-02  eta: 0:00:00  time: {number}  data_time: {number}  memory: [0-9]+  loss: {number}"
    assert re.fullmatch(shape, lines[1])
    ends = [line for line in caplog.messages if line not in lines]
    assert [line.partition("  ")[0] for line in ends] == [
        "Epoch(train) [1]", "Epoch(eval) [1]", "Epoch(train) [2]", "Epoch(eval) [2]", "Trained on 12 batches in 0:00:00",
    ]  # fmt: skip


def test_a_line_has_no_time_before_a_batch_was_timed(caplog: pytest.LogCaptureFixture) -> None:
    small(epochs=1, log_every=1).train()
    lines = [line for line in caplog.messages if "][" in line]
    assert " time: " not in lines[0] and " data_time: " not in lines[0] and "memory: " in lines[0]
    assert all(" time: " in line and " time: 0.0000" not in line for line in lines[1:])


def test_an_evaluation_between_epochs_is_that_of_the_last_one(caplog: pytest.LogCaptureFixture) -> None:
    class Seen(Small):
        def eval_batch(self, eidx: int, *rest: Any) -> Any:
            seen.append(eidx)
            return super().eval_batch(eidx, *rest)

    seen: list[int] = []
    trainer = Seen({"epoch": 2})
    trainer.eval()
    trainer.train()
    trainer.test()
    lines = [line.partition("  ")[0] for line in caplog.messages if "(eval)" in line or "(test)" in line]
    assert lines == [
        f"Epoch({which}) [{epoch}]" for which, epoch in (("eval", 0), ("eval", 1), ("eval", 2), ("test", 2))
    ]
    assert seen == [0] * 3 + [1] * 3 + [2] * 5


def test_the_line_that_refreshes_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    trainer = small(epochs=1)
    logger = LoggerCallback(0).hook(trainer)
    times = iter([0.0] * 3 + [t * 0.15 for t in range(1000)])
    monkeypatch.setattr("luxmeter.train.callbacks.logger.perf_counter", lambda: next(times))
    monkeypatch.setattr("luxmeter.train.callbacks.logger.sys.stdout", SimpleNamespace(isatty=lambda: True))
    object.__setattr__(trainer._training, "options", trainer.options.__class__(quiet=False))
    monkeypatch.setattr(trainer.logger, "inline", lambda line: drawn.append(line))
    trainer.train()
    assert logger.every == 0 and 1 <= len(drawn) < 6
    assert all("eta: " in line and line.startswith("Epoch(train) [1][") for line in drawn)


def test_how_many_steps_there_are() -> None:
    trainer = small(epochs=3)
    trainer.train(steps=2)
    assert trainer.steps_in_all() == 2
    trainer.train()
    assert trainer.steps_in_all() == 18

    class Endless(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter([(torch.ones(6), 1)] * 8)

    trainer.regist_databundler(train=torch.utils.data.DataLoader(Endless(), batch_size=4))
    trainer.train(epochs=4)
    assert trainer.steps_in_all() is None and len(trainer.losses) == 20
    assert "eta" not in LoggerCallback().line(trainer)


# -- trace and cost ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "traced"), [(3, 1), (range(2, 4), 2), (True, 5)])
def test_trace_puts_the_calls_of_some_steps_into_the_run(asked: Any, traced: int) -> None:
    trainer = small(epochs=2)
    trainer.train(trace=asked)
    found = trainer.run.trace
    assert found is not None and found.table()["torch.nn.CrossEntropyLoss"].n == traced
    assert not any(type(one).__name__ == "TraceSteps" for one in trainer.callbacks)
    assert trainer.losses == uninterrupted()


def test_trace_true_counts_from_where_the_training_begins() -> None:
    trainer = small(epochs=4)
    trainer.train(epochs=2)
    trainer.train(trace=True)
    found = trainer.run.trace
    assert found is not None and found.table()["torch.nn.CrossEntropyLoss"].n == 5


@pytest.mark.parametrize("asked", ["all", -1, 1.5, range(0), (3, 5)])
def test_steps_that_cannot_be_traced(asked: Any) -> None:
    trainer = Small({"epoch": 1}, quiet=True)
    with pytest.raises(UsageError, match="names no steps"):
        trainer.train(trace=asked)
    assert trainer.experiment is None


_losses: list[float] = []


def uninterrupted() -> list[float]:
    """The losses of two epochs."""
    if not _losses:
        trainer = small(name="plain")
        trainer.train()
        _losses[:] = trainer.losses
    return _losses


@pytest.mark.parametrize("loader", [lux.DataLoader, torch.utils.data.DataLoader])
def test_cost_is_in_the_run_and_moves_nothing_on(loader: Any) -> None:
    kind = type("Costs", (Small,), {"loader": loader})
    before = small(kind, epochs=1)
    before.train()
    trainer = small(kind, epochs=1)
    cost = trainer.cost()
    assert cost.macs == 4 * (6 * 8 + 8 * 3) and trainer.run.model is not None
    assert trainer.cost(torch.ones(1, 6)).macs == 6 * 8 + 8 * 3
    trainer.train()
    assert trainer.losses == before.losses

    class Asks:
        def after_batch(self, trainer: Any, result: Any) -> None:
            trainer.cost()

    trainer.callbacks.add(Asks())
    with pytest.raises(UsageError, match=r"The training data is being read.*trainer\.cost\(inputs\)"):
        trainer.train(epochs=2)


def test_cost_of_data_that_goes_by_once() -> None:
    trainer = small()
    trainer.regist_databundler(train=iter([]))
    with pytest.raises(UsageError, match="can be gone through only once"):
        trainer.cost()


# -- what is found and saved ---------------------------------------------------------------------------------------------


def test_whatever_has_a_state_is_found_and_saved() -> None:
    import dataclasses

    @dataclasses.dataclass
    class Pair:
        model: nn.Module
        optim: Any

    class Many(lux.Trainer):
        value = 0.0

        def initial_trainer(self, params: Any) -> None:
            def layer() -> nn.Linear:
                made = nn.Linear(1, 1)
                nn.init.constant_(made.weight, self.value)
                return made

            self.listed = [layer(), {"deep": layer()}]
            self.by_name = {"g": layer(), "d": (layer(),)}
            self.space = SimpleNamespace(net=layer())
            net = layer()
            self.pair = Pair(net, torch.optim.SGD(net.parameters(), lr=0.1 + self.value))
            self.again = net  # the same one, once
            self.scale = nn.Parameter(torch.full((2,), self.value))
            self.generator = torch.Generator().manual_seed(int(self.value))
            self.scheduler = torch.optim.lr_scheduler.StepLR(self.pair.optim, 1 + int(self.value))
            self.random = lux.AvgMeter()  # a name that means something to the Saver
            self.random.update({"x": self.value})
            self.loss = nn.MSELoss()
            self.numbers = list(range(5000))
            self.itself: list[Any] = []
            self.itself.append(self.itself)
            self.regist_databundler(train=[1])

    Many.value = 1.0
    first = Many(quiet=True)
    first.initial_exp("./many")
    assert list(first.models) == [
        "listed.0",
        "listed.1.deep",
        "by_name.g",
        "by_name.d.0",
        "space.net",
        "pair.model",
        "loss",
    ]
    assert len(first.optimizers) == len(first.schedulers) == 1
    path = first.save_checkpoint()
    first.close()
    Many.value = 0.0
    second = Many(quiet=True)
    second.initial_exp("./other")
    second.load_checkpoint(path)
    for name, model in second.models.items():
        assert same(model.state_dict(), first.models[name].state_dict()), name
    assert torch.equal(second.scale, torch.ones(2)) and second.random.x.mean == 1.0
    assert second.generator.get_state().equal(first.generator.get_state())
    assert second.optimizers[0].param_groups[0]["lr"] == 1.1 and second.scheduler.step_size == 2


def test_weights_that_no_checkpoint_would_hold_are_told() -> None:
    class Hidden:
        def __init__(self) -> None:
            self.net = nn.Linear(2, 2)

    class Hides(lux.Trainer):
        def initial_trainer(self, params: Any) -> None:
            self.hidden = Hidden()
            self.optim = torch.optim.SGD(self.hidden.net.parameters(), lr=0.1)

    with pytest.warns(
        LuxmeterWarning, match=r"2 of the parameters that Hides\.optim trains belong to no model"
    ):
        Hides(quiet=True).initialise()


def test_a_checkpoint_inside_a_batch_is_refused() -> None:
    class Saves(Small):
        def train_batch(self, *given: Any) -> Any:
            self.save_checkpoint()

    trainer = small(Saves)
    with pytest.raises(UsageError, match=r"inside batch 0 of epoch 1.*Save between batches"):
        trainer.train()
    assert not trainer.saver.find_checkpoints()


# -- stand-ins and metrics -----------------------------------------------------------------------------------------------


def test_to_tensor_is_torchvisions() -> None:
    import numpy as np

    to_tensor = transforms.ToTensor()
    image = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    assert torch.equal(to_tensor(image), torch.from_numpy(image).permute(2, 0, 1) / 255)
    assert to_tensor(image[:, :, 0]).shape == (1, 2, 2)
    assert to_tensor(image.astype("float32")).max() == 11
    given = torch.ones(3)
    assert to_tensor(given) is given


def test_metrics_by_name() -> None:
    trainer = small(epochs=1)
    with pytest.raises(UsageError, match=r"No metric 'loss' has come yet. There are none"):
        trainer.metric("loss")
    trainer.train()
    assert trainer.metric("loss") == trainer.metric("train/loss") == trainer.meter.loss.mean
    assert trainer.metric_name("acc") == "eval/acc" and math.isfinite(trainer.metric("acc"))
    with pytest.raises(UsageError, match="Did you mean 'eval/acc'"):
        trainer.metric("eval/ac")


def test_a_trainer_is_busy_with_one_thing() -> None:
    trainer = small()

    class Nests:
        def after_batch(self, trainer: Any, result: Any) -> None:
            trainer.train()

    trainer.callbacks.add(Nests())
    with pytest.raises(UsageError, match="training already"):
        trainer.train()


def test_weights_do_not_depend_on_what_is_watched() -> None:
    plain = small(checkpoint=False)
    plain.train()
    watched = small(checkpoint=True, log_every=1)
    watched.train(trace=range(1, 3))
    assert same(weights(plain), weights(watched))
