"""A Trainer in several real processes: what it computes, what it keeps, how it ends and goes on, on every rank alike."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from many_ranks import Said, of, run_ranks
from small_training import Noisy, Small, same, saving, weights
from torch import nn

import luxmeter as lux
from luxmeter.errors import LuxmeterError, UsageError
from luxmeter.train import EarlyStop, NaNGuard, TimingCheckpoint, control_run

OPTIONS: dict[str, Any] = {"quiet": True, "agree_every": 1}
ALL: dict[str, Any] = {**OPTIONS, "accumulate": 2, "clip_norm": 1.0, "ema": 0.9}


class Plain(Small):
    """Nothing is drawn, and every batch has its place: what two ranks compute together one process can compute, too."""

    batch = 4

    def initial_trainer(self, params: Any) -> None:
        super().initial_trainer(params)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        self.optim = torch.optim.SGD(self.model.parameters(), lr=0.1)
        data = torch.utils.data.TensorDataset(Noisy().xs, Noisy().ys)
        self.regist_databundler(
            train=self.loader(data, batch_size=self.batch, shuffle=self.loader is lux.DataLoader),
            eval=self.loader(torch.utils.data.Subset(data, range(9)), batch_size=2),
        )


class Wide(Plain):
    """What ranks deal out among them is one batch here."""

    batch = 8


class Torchs(Plain):
    loader = torch.utils.data.DataLoader


class WideTorchs(Wide):
    loader = torch.utils.data.DataLoader


class ByParts(Plain):
    """Calls a part of its model, and has a parameter of its own."""

    def initial_trainer(self, params: Any) -> None:
        super().initial_trainer(params)
        self.scale = nn.Parameter(torch.ones(()))
        self.optim = torch.optim.SGD([*self.model.parameters(), self.scale], lr=0.1)

    def train_batch(
        self, eidx: int, idx: int, global_step: int, batch_data: Any, params: Any, device: Any
    ) -> Any:
        xs, ys = batch_data
        hidden = self.model[1](self.model[0](xs)) * self.scale
        return self.cross(self.model[2](hidden), ys)


class WideByParts(ByParts):
    batch = 8


def trained(kind: type[Small], name: str, options: dict[str, Any] = OPTIONS, **train: Any) -> Small:
    trainer = kind({"epoch": 2}, **options)
    trainer.initial_exp(f"./{name}")
    try:
        trainer.train(**train)
    finally:
        trainer.close()
    return trainer


def facts(trainer: Small) -> dict[str, Any]:
    return {
        "weights": weights(trainer),
        "losses": trainer.losses,
        "meter": trainer.meter.to_dict(),
        "eval": trainer.meters["eval"].to_dict(),
        "step": trainer.position.global_step,
        "epoch": trainer.position.eidx,
        "hooks": len(trainer.model._forward_hooks) + len(trainer.model._forward_pre_hooks),
        "run": str(trainer.run.folder),
    }


def computed(kind: type[Small], options: dict[str, Any] = OPTIONS) -> Callable[[int], Any]:
    return lambda rank: facts(trained(kind, kind.__name__, options))


def resumed(name: str, options: dict[str, Any], kind: type[Small] = Small) -> Callable[[int], Any]:
    """In one go; and from checkpoints saved behind each step, as if the processes had been killed there."""

    def made(rank: int) -> Any:
        whole = trained(kind, f"{name}-whole", options)
        first = trained(saving(kind), f"{name}-saved", {**options, "max_to_keep": None})
        found = {"whole": facts(whole), "saved": facts(first), "again": []}
        for path in first.saver.find_checkpoints():
            torch.rand(3)  # whatever was drawn before does not count
            if not path.endswith("000006.ckpt"):
                found["again"].append(facts(trained(kind, f"{name}-again", options, resume=path)))
        return found

    return made


def stops_one(rank: int) -> Any:
    class Stops(Small):
        def train_batch(self, eidx: int, idx: int, global_step: int, *rest: Any) -> Any:
            if rank == 1 and global_step == 1:
                self.stop_train()
            return super().train_batch(eidx, idx, global_step, *rest)

    return facts(trained(Stops, "stops"))


def leaves_epoch(rank: int) -> Any:
    class Leaves(Small):
        def train_batch(self, eidx: int, idx: int, global_step: int, *rest: Any) -> Any:
            if rank == 1 and global_step == 1:
                self.stop_current_epoch()
            return super().train_batch(eidx, idx, global_step, *rest)

    return facts(trained(Leaves, "leaves"))


def is_nan(rank: int) -> Any:
    class Lost(Small):
        def initial_callback(self) -> None:
            super().initial_callback()
            NaNGuard().hook(self)

        def train_batch(self, eidx: int, idx: int, global_step: int, *rest: Any) -> Any:
            loss = super().train_batch(eidx, idx, global_step, *rest)
            return loss * float("nan") if rank == 1 and global_step == 2 else loss

    with pytest.raises(LuxmeterError) as found:
        trained(Lost, "lost")
    return str(found.value)


def interrupted(rank: int) -> Any:
    class Asked(Small):
        def train_batch(self, eidx: int, idx: int, global_step: int, *rest: Any) -> Any:
            if rank == 1 and global_step == 1:
                os.kill(os.getpid(), signal.SIGINT)
            return super().train_batch(eidx, idx, global_step, *rest)

    trainer = Asked({"epoch": 2}, **OPTIONS)
    trainer.initial_exp("./asked")
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    before = trainer.position.global_step, trainer.saver.find_checkpoints()
    return {"stopped": before, "gone on": facts(trained(Small, "asked", resume=True))}


def controlled(rank: int) -> Any:
    answers: list[str] = []
    asking: list[threading.Thread] = []

    def ask(run: Any) -> None:
        for what, changes in (
            ("status", None),
            ("set", {"lr": 0.5}),
            ("pause", None),
            ("resume", None),
            ("stop", None),
        ):
            answers.append(control_run(run, what, changes, wait_s=60).state)

    class Long(Small):
        def train_batch(self, *given: Any) -> Any:
            if rank == 0 and not asking:
                asking.append(threading.Thread(target=ask, args=(self.run,)))
                asking[0].start()
            return super().train_batch(*given)

    trainer = Long({"epoch": 1000}, **OPTIONS, checkpoint=False)
    trainer.initial_exp("./long")
    trainer.train()
    for thread in asking:
        thread.join()
    trainer.close()
    return {
        "answers": answers,
        "lr": trainer.optim.param_groups[0]["lr"],
        "step": trainer.position.global_step,
    }


def early(rank: int) -> Any:
    class Early(Small):
        def initial_callback(self) -> None:
            super().initial_callback()
            EarlyStop("train/loss", patience=1, goal=100.0).hook(self)
            TimingCheckpoint(1e-9).hook(self)

    found = trained(Early, "early")
    return {**facts(found), "saved": len(found.saver.find_checkpoints())}


def differs(rank: int) -> Any:
    with pytest.raises(UsageError) as found:
        Small({"epoch": 2, "lr": 0.01 * (rank + 1)}, **OPTIONS).initialise()
    return str(found.value)


def traced(rank: int) -> Any:
    found = trained(Small, "traced", trace=range(1, 3))
    return {**facts(found), "log": sorted(one.name for one in Path("traced/Small/log").glob("*"))}


def named(rank: int) -> Any:
    """A run without a folder of its own, and data that is left alone."""

    class Left(Small):
        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            own = torch.utils.data.DistributedSampler(Noisy(), shuffle=True)
            self.regist_databundler(train=lux.DataLoader(Noisy(), batch_size=4, sampler=own), eval=[])

    trainer = Left({"epoch": 1}, **OPTIONS)
    trainer.initial_exp("left")
    trainer.train()
    trainer.close()
    return {
        "told": sorted(trainer._training.told),
        "run": str(trainer.run.folder),
        "step": trainer.position.global_step,
    }


def apart(rank: int) -> Any:
    """Each for itself."""
    trainer = Plain({"epoch": 1}, quiet=True, parallel="none")
    trainer.initial_exp("./apart")
    trainer.train()
    trainer.close()
    return {"step": trainer.position.global_step, "in step": trainer._training.in_step is not None}


def thawed(rank: int) -> Any:
    class Thaw(lux.Callback):
        def before_epoch(self, trainer: Any) -> None:
            trainer.model[0].requires_grad_(trainer.position.eidx > 1)

    class Frozen(Small):
        def initial_callback(self) -> None:
            super().initial_callback()
            Thaw().hook(self)

    return facts(trained(Frozen, "frozen"))


class Idle(nn.Module):
    """Has a part that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.idle = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, xs: torch.Tensor) -> torch.Tensor:
        return self.used(xs)  # type: ignore[no-any-return]


class Partly(Small):
    def initial_trainer(self, params: Any) -> None:
        super().initial_trainer(params)
        self.model = Idle()
        self.optim = torch.optim.SGD(self.model.parameters(), lr=0.1)


def idle(rank: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = facts(trained(Partly, "partly", {**OPTIONS, "unused_parameters": True}))
    with pytest.raises(UsageError) as error:
        trained(Partly, "partly")
    return {**found, "error": str(error.value)}


class Adversaries(Small):
    """Two models that step by themselves, one of them called twice before its backward."""

    def initial_trainer(self, params: Any) -> None:
        super().initial_trainer(params)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
        self.maker = nn.Linear(3, 6)
        self.optim = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.other = torch.optim.SGD(self.maker.parameters(), lr=0.1)

    def train_batch(
        self, eidx: int, idx: int, global_step: int, batch_data: Any, params: Any, device: Any
    ) -> Any:
        made = self.maker(torch.randn(len(batch_data[0]), 3))
        self.optim.zero_grad()
        loss = self.model(made.detach()).mean() - self.model(batch_data[0]).mean()
        loss.backward()
        self.optim.step()
        self.other.zero_grad()
        (-self.model(made).mean()).backward()
        self.other.step()
        return {"loss": loss.item()}


def adversaries(rank: int) -> Any:
    trainer = trained(Adversaries, "adversaries")
    return {**facts(trainer), "maker": trainer.maker.weight.detach().clone()}


TWO: dict[str, Callable[[int], Any]] = {
    "Plain": computed(Plain),
    "Torchs": computed(Torchs),
    "ByParts": computed(ByParts),
    "clipped": computed(Plain, {**OPTIONS, "accumulate": 2, "clip_norm": 0.1}),
    "small": resumed("small", OPTIONS),
    "all": resumed("all", ALL),
    "torchs": resumed(
        "torchs", OPTIONS, type("SmallTorchs", (Small,), {"loader": torch.utils.data.DataLoader})
    ),
    "stops": stops_one,
    "leaves": leaves_epoch,
    "nan": is_nan,
    "interrupted": interrupted,
    "controlled": controlled,
    "early": early,
    "differs": differs,
    "traced": traced,
    "named": named,
    "apart": apart,
    "thawed": thawed,
    "idle": idle,
    "adversaries": adversaries,
    "from one": lambda rank: facts(trained(Small, "from-one", resume="one.ckpt")),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def two(folder: Path) -> Said:
    place = folder / "two"
    with pytest.MonkeyPatch.context() as patch:  # before the fork: what one process saved
        patch.setenv("LUXMETER_HOME", str(folder / "lab"))
        one = Small({"epoch": 2}, quiet=True)
        one.initial_exp(str(folder / "one"))
        one.train(steps=3)
        one.close()
    place.mkdir()
    for path in Path(one.saver.folder).glob("000003.ckpt*"):
        shutil.copy(path, place / path.name.replace("000003", "one"))
    return run_ranks(2, TWO, place)


def agree_on(found: list[Any], *names: str) -> None:
    for name in names:
        first = found[0][name]
        for other in found[1:]:
            assert same(first, other[name]) if name == "weights" else first == other[name], name


@pytest.mark.parametrize(
    ("name", "kind"), [("Plain", Wide), ("Torchs", WideTorchs), ("ByParts", WideByParts)]
)
def test_two_ranks_compute_what_one_process_does(two: Said, name: str, kind: type[Small]) -> None:
    found = of(two, name)
    agree_on(found, "weights", "meter", "eval", "step", "run")
    alone = facts(trained(kind, "alone"))
    assert found[0]["step"] == alone["step"] == 6
    for key, value in alone["weights"].items():
        torch.testing.assert_close(found[0]["weights"][key], value)
    assert found[0]["meter"] == pytest.approx(alone["meter"], rel=1e-5)
    assert found[0]["eval"] == pytest.approx(alone["eval"])
    assert found[0]["hooks"] == 0


def test_accumulated_gradients_are_averaged_with_the_last_batch(two: Said) -> None:
    found = of(two, "clipped")  # three batches an epoch: the third is a step of its own
    agree_on(found, "weights", "meter")
    alone = facts(trained(Wide, "alone", {**OPTIONS, "accumulate": 2, "clip_norm": 0.1}))
    for key, value in alone["weights"].items():
        torch.testing.assert_close(found[0]["weights"][key], value)


@pytest.mark.parametrize("name", ["small", "all", "torchs"])
def test_resumed_bit_by_bit(two: Said, name: str) -> None:
    resumed_alike(of(two, name))


def resumed_alike(found: list[Any]) -> None:
    agree_on([one["whole"] for one in found], "weights", "meter", "eval")
    assert found[0]["whole"]["losses"] != found[1]["whole"]["losses"]  # each has data of its own
    for one in found:
        whole = one["whole"]
        assert one["saved"]["losses"] == whole["losses"]  # saving changes nothing
        assert len(one["again"]) == whole["step"] - 1
        for step, again in enumerate(one["again"], 1):
            assert again["losses"] == whole["losses"][step:], step
            assert same(again["weights"], whole["weights"]), step
            assert again["meter"] == pytest.approx(whole["meter"], rel=1e-12)
            assert again["eval"] == whole["eval"]


def test_a_checkpoint_of_one_process_goes_on_in_two(two: Said) -> None:
    found = of(two, "from one")
    agree_on(found, "weights", "meter", "eval", "step")
    assert found[0]["step"] == 3 + 2 + 3  # half of six batches is one and a half of three
    assert found[0]["losses"] != found[1]["losses"]


def test_a_checkpoint_of_two_ranks_goes_on_in_one_process(two: Said, folder: Path) -> None:
    of(two, "all")
    saved = folder / "two" / "all-saved" / "Saving" / "save"
    trainer = Small({"epoch": 2}, **{**ALL, "ema": None})
    trainer.initial_exp("./one")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the averages that nobody asks for
        trainer.load_checkpoint(saved / "000002.ckpt")
    assert (trainer.position.idx, trainer.position.global_step) == (4, 2)  # of six batches of four
    assert any("saved by 2 ranks" in told for told in trainer._training.told)
    assert trainer.callbacks.stateful()["Optimization"].pending == 0
    trainer.train()
    assert trainer.position.global_step == 2 + 2 + 6
    trainer.close()


@pytest.mark.parametrize(("name", "step"), [("stops", 2), ("leaves", 5)])
def test_what_one_rank_asks_for_happens_on_all(two: Said, name: str, step: int) -> None:
    found = of(two, name)
    agree_on(found, "weights", "step", "epoch", "meter", "eval")
    assert found[0]["step"] == step


def test_a_nan_on_one_rank_ends_all(two: Said) -> None:
    first, second = of(two, "nan")
    assert "not finite on rank 1" in first and "step 2" in first
    assert "is nan" in second


def test_ctrl_c_on_one_rank(two: Said) -> None:
    found = of(two, "interrupted")
    assert [one["stopped"][0] for one in found] == [2, 2]
    assert found[0]["stopped"][1][-1].endswith("000002.ckpt")
    whole = of(two, "small")
    assert same(found[0]["gone on"]["weights"], whole[0]["whole"]["weights"])


def test_control_acts_on_all_ranks(two: Said) -> None:
    first, second = of(two, "controlled")
    assert first["answers"] == ["training", "training", "paused", "training", "stopping"]
    assert (first["lr"], first["step"]) == (second["lr"], second["step"])
    assert first["lr"] == 0.5


def test_callbacks_decide_alike(two: Said) -> None:
    found = of(two, "early")
    agree_on(found, "step", "meter", "saved")
    assert found[0]["step"] == 3 and found[0]["saved"] >= 2


def test_ranks_that_differ_are_told(two: Said) -> None:
    first, second = of(two, "differs")
    assert first == second
    assert "lr = 0.01" in first and "lr = 0.02" in first and "[ranks-differ]" in first


def test_one_run_has_the_trace_and_log_of_all(two: Said) -> None:
    found = of(two, "traced")
    agree_on(found, "run", "weights")
    run = Path(found[0]["run"])
    result = lux.load_trace(run / "calls" / "trace")
    assert {row.name for row in result.table(by="rank")} == {"rank 0", "rank 1"}
    assert any("rank1" in name for name in found[0]["log"]), found[0]["log"]


def test_data_of_the_users_is_left_alone_and_told(two: Said) -> None:
    found = of(two, "named")
    agree_on(found, "run", "step")
    assert found[0]["step"] == 3
    assert any("has a DistributedSampler" in told for told in found[0]["told"])
    assert any("is no DataLoader" in told for told in found[0]["told"])


def test_parameters_that_are_trained_later(two: Said) -> None:
    agree_on(of(two, "thawed"), "weights")


def test_parameters_without_a_gradient_are_named(two: Said) -> None:
    found = of(two, "idle")
    agree_on(found, "weights", "meter")
    assert "idle.weight, idle.bias" in found[0]["error"] and "unused_parameters=True" in found[1]["error"]


def test_two_models_that_step_by_themselves(two: Said) -> None:
    first, second = of(two, "adversaries")
    agree_on([first, second], "weights", "meter")
    assert torch.equal(first["maker"], second["maker"])


def test_each_for_itself(two: Said) -> None:
    assert of(two, "apart") == [{"step": 6, "in step": False}] * 2


def test_resumed_bit_by_bit_on_four_ranks(folder: Path) -> None:
    class Deep(Small):
        """So many weights that the order in which gradients are added matters."""

        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            layers = [layer for _ in range(4) for layer in (nn.Linear(24, 24), nn.Tanh())]
            self.model = nn.Sequential(nn.Linear(6, 24), nn.Dropout(0.1), *layers, nn.Linear(24, 3))
            self.optim = torch.optim.AdamW(self.model.parameters(), lr=0.01)
            data = Noisy(48)
            self.regist_databundler(train=lux.DataLoader(data, batch_size=4, shuffle=True))

    said = run_ranks(4, {"deep": resumed("deep", OPTIONS, Deep)}, folder / "four")
    found = of(said, "deep")
    resumed_alike(found)
