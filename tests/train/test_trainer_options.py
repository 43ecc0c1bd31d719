"""Each option of a Trainer gives, bit by bit, what the same training written by hand gives; who steps the optimizers."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from small_training import Noisy, Small, same, small_model, weights
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import luxmeter as lux
from luxmeter.errors import LuxmeterWarning, UsageError
from luxmeter.train import EMAUpdate, EvalCallback, LRSchedule, Optimization
from luxmeter.train.options import TrainerOptions

torch.compile(lambda x: x + 1, backend="eager")(torch.zeros(1))  # the first compilation changes torch

EPOCHS = 2
State = dict[str, torch.Tensor]


def by_hand(
    *,
    accumulate: int = 1,
    clip: Callable[[Any], Any] = lambda parameters: None,
    amp: torch.dtype | None = None,
    scaled: bool = False,
    ema: float | None = None,
    after_step: Callable[[Any, int], Any] = lambda optim, steps: None,
    after_epoch: Callable[[Any, int], Any] = lambda optim, epoch: None,
    lr: float = 0.01,
    prepare: Callable[[Any], Any] = lambda optim: None,
) -> tuple[State, State]:
    """The training of Small as everybody writes it: its weights, and their averages."""
    lux.random.fix_seed(3)
    model = small_model()
    optim = torch.optim.AdamW(model.parameters(), lr=lr)
    loader = lux.DataLoader(Noisy(), batch_size=4, shuffle=True)
    prepare(optim)
    averaged = None if ema is None else AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(ema))  # type: ignore[no-untyped-call]
    scaler = torch.amp.GradScaler("cpu", enabled=scaled)
    steps = 0
    for epoch in range(EPOCHS):
        batches = list(loader)
        for idx, (xs, ys) in enumerate(batches):
            with torch.autocast("cpu", dtype=amp, enabled=amp is not None):
                loss = nn.functional.cross_entropy(model(xs), ys)
            scaler.scale(loss / accumulate).backward()
            if (idx + 1) % accumulate == 0 or idx + 1 == len(batches):
                scaler.unscale_(optim)
                clip(list(model.parameters()))
                scaler.step(optim)
                scaler.update()
                optim.zero_grad()
                steps += 1
                if averaged is not None:
                    averaged.update_parameters(model)
                after_step(optim, steps)
        after_epoch(optim, epoch + 1)
    return dict(model.state_dict()), {} if averaged is None else dict(averaged.module.state_dict())


def trained(kind: type[Small] = Small, **options: Any) -> Any:
    trainer = kind({"epoch": EPOCHS}, quiet=True, **options)
    try:
        trainer.train()
    finally:
        assert not any(one._optimizer_step_pre_hooks for one in trainer.optimizers)
    return trainer


def test_without_any() -> None:
    assert same(weights(trained()), by_hand()[0])


@pytest.mark.parametrize("accumulate", [2, 4, 6, 7])
def test_accumulate(accumulate: int) -> None:
    """Six batches an epoch: of 4, two are left over; 7 is more than there are."""
    assert same(weights(trained(accumulate=accumulate)), by_hand(accumulate=accumulate)[0])


def test_clip_norm_and_clip_value() -> None:
    norm = trained(clip_norm=0.3)
    assert same(weights(norm), by_hand(clip=lambda p: nn.utils.clip_grad_norm_(p, 0.3))[0])
    found = norm.callbacks.find(Optimization).norm
    assert found is not None and found > 0.3  # before it was clipped
    value = trained(clip_value=0.01)
    assert same(weights(value), by_hand(clip=lambda p: nn.utils.clip_grad_value_(p, 0.01))[0])
    assert not same(weights(norm), weights(value))


def test_amp() -> None:
    plain = by_hand()[0]
    bfloat16 = trained(amp="bfloat16")
    assert same(weights(bfloat16), by_hand(amp=torch.bfloat16)[0]) and not same(weights(bfloat16), plain)
    assert bfloat16.predict(Noisy().xs).dtype == torch.bfloat16
    float16 = trained(amp="float16", clip_norm=0.5)
    hand = by_hand(amp=torch.float16, scaled=True, clip=lambda p: nn.utils.clip_grad_norm_(p, 0.5))[0]
    assert same(weights(float16), hand)


def test_ema_and_that_evaluations_use_it() -> None:
    seen: list[State] = []

    class Looks(Small):
        def eval_batch(self, *given: Any) -> Any:
            seen.append(weights(self))
            return super().eval_batch(*given)

    trainer = trained(Looks, ema=0.5, accumulate=4)
    own, averages = by_hand(ema=0.5, accumulate=4)
    assert same(weights(trainer), own)
    found = trainer.callbacks.find(EMAUpdate).averaged["model"].module.state_dict()
    assert same(found, averages) and not same(own, averages)
    assert same(seen[-1], averages)
    xs = Noisy().xs
    predicted = trainer.predict(xs)
    trainer.model.load_state_dict(averages)
    assert torch.equal(predicted, trainer.model.eval()(xs))


def test_schedules() -> None:
    cosine = lux.Params.SCHE.Cos(start=1.0, end=0.1, right=12)
    hand = by_hand(prepare=lambda o: cosine.scale(o, 0), after_step=lambda o, steps: cosine.scale(o, steps))[
        0
    ]
    trainer = trained(schedule=cosine)
    assert same(weights(trainer), hand)
    assert trainer.optim.param_groups[0]["lr"] == pytest.approx(0.001)

    class Steps(Small):
        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            self.scheduler = StepLR(self.optim, 1, gamma=0.5)

    made: list[StepLR] = []
    prepare = lambda optim: made.append(StepLR(optim, 1, gamma=0.5))  # noqa: E731
    hand = by_hand(prepare=prepare, after_epoch=lambda *_: made[-1].step())[0]
    assert same(weights(trained(Steps, schedule="epoch")), hand)
    hand = by_hand(prepare=prepare, after_step=lambda *_: made[-1].step(), accumulate=4)[0]
    assert same(weights(trained(Steps, schedule="step", accumulate=4)), hand)


def test_a_scheduler_that_nobody_steps_is_told() -> None:
    class Forgets(Small):
        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            self.scheduler = StepLR(self.optim, 1)

    with pytest.warns(LuxmeterWarning, match="In a whole epoch no scheduler of Forgets was stepped"):
        trained(Forgets)

    class Remembers(Forgets):
        def train_batch(self, *given: Any) -> Any:
            if given[2]:
                self.scheduler.step()
            return super().train_batch(*given)

    with warnings.catch_warnings():
        warnings.simplefilter("error", LuxmeterWarning)
        trained(Remembers)
        trained(Forgets, schedule="epoch")


class Watched(ReduceLROnPlateau):
    def step(self, metrics: Any, epoch: Any = None) -> None:  # type: ignore[override]
        SEEN.append(float(metrics))


SEEN: list[float] = []


def test_a_plateau_goes_by_evaluations() -> None:
    class Plateau(Small):
        monitor = "bad"

        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            self.scheduler = Watched(self.optim)
            SEEN.clear()

        def initial_callback(self) -> None:
            EvalCallback(2).hook(self)
            LRSchedule(monitor=self.monitor).hook(self)

        def eval_batch(self, eidx: int, *_: Any) -> Any:
            return {"bad": float(eidx)}

    trainer = Plateau({"epoch": 5}, quiet=True)
    trainer.train()
    assert SEEN == [2.0, 4.0]  # what has not come, or not anew, does not count
    Plateau.monitor = "train/loss"
    trainer = Plateau({"epoch": 3}, quiet=True)
    trainer.train()
    assert len(SEEN) == 3 and SEEN[-1] == trainer.meter.loss.mean
    Plateau.monitor = "baad"
    with pytest.raises(UsageError, match=r"No metric 'baad' has come yet. There are train/loss, eval/bad"):
        trained(Plateau)


GRAPHS: list[Any] = []


def counted(graph: Any, _: Any) -> Any:
    """A backend that changes nothing, and keeps what it was given."""
    GRAPHS.append(graph)
    return graph.forward


torch._dynamo.register_backend(counted)


class Own(nn.Module):
    """A model whose forward is the user's."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = small_model()

    def forward(self, xs: torch.Tensor) -> torch.Tensor:
        return self.inner(xs)


class Wrapped(Small):
    def initial_trainer(self, params: Any) -> None:
        super().initial_trainer(params)
        self.model = Own()
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=0.01)


@pytest.mark.parametrize("kind", [Small, Wrapped])
def test_compile(kind: type[Small]) -> None:
    """The models are compiled, a Sequential too, of which Module.compile() compiles nothing; and give the same."""
    GRAPHS.clear()
    trainer = trained(kind, compile="counted")
    assert len(GRAPHS) == 2  # for training and for evaluation
    assert kind is Wrapped or same(weights(trainer), by_hand()[0])
    assert trainer.cross._compiled_call_impl is None
    assert "_orig_mod" not in next(iter(trainer.model.state_dict()))
    seen: list[Any] = []
    hook = trainer.model.register_forward_hook(lambda *_: seen.append(1))
    trainer.predict(torch.zeros(2, 6))
    assert seen  # as ever
    other = copy.deepcopy(trainer.model)
    for weight in other.parameters():
        weight.data.zero_()
    assert trainer.predict(torch.ones(2, 6)).any() and not other.eval()(torch.ones(2, 6)).any()
    hook.remove()
    again = pickle.loads(pickle.dumps(trainer.model))
    assert same(again.state_dict(), weights(trainer)) and again(torch.ones(2, 6)).any()
    torch._dynamo.reset()


def test_compile_asks_torch_for_its_own_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(nn.Module, "compile", lambda self, **given: asked.append(given))
    Small({"epoch": 1}, quiet=True, compile=True).initialise()
    assert asked == [{}]


def test_a_compiled_model_may_be_stepped_by_anyone() -> None:
    assert same(weights(trained(OwnSteps, compile="eager")), by_hand()[0])
    torch._dynamo.reset()


# -- who steps -----------------------------------------------------------------------------------------------------------


class OwnSteps(Small):
    """As the document has it."""

    def train_batch(self, *given: Any) -> Any:
        meter = lux.Meter()
        meter.loss = super().train_batch(*given)
        meter.loss.backward()
        self.optim.step()
        self.optim.zero_grad()
        return meter


def handles(trainer: Any) -> int:
    return len(trainer.optim._optimizer_step_pre_hooks)


OPTIONS = [
    {"accumulate": 2}, {"clip_norm": 1.0}, {"clip_value": 1.0}, {"amp": "bfloat16"}, {"ema": 0.9},
    {"schedule": lux.Params.SCHE.Const(1.0)},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: next(iter(options)))
def test_a_step_inside_train_batch_is_refused_in_one_line(options: dict[str, Any]) -> None:
    trainer = OwnSteps({"epoch": 1}, quiet=True, checkpoint=False, **options)
    trainer.initial_exp("refused")
    before = weights(trainer)
    with pytest.raises(UsageError) as caught:
        trainer.train()
    assert "\n" not in str(caught.value) and caught.value.slug == "step-inside-batch"
    assert "An optimizer was stepped inside train_batch" in str(caught.value)
    assert {
        name: w for name, w in weights(trainer).items() if "running" not in name and "batches" not in name
    } == {
        name: pytest.approx(w, abs=0)
        for name, w in before.items()
        if "running" not in name and "batches" not in name
    }
    assert handles(trainer) == 0 and trainer.run.state == "failed"


def test_every_option_that_takes_over_is_among_those() -> None:
    names = {name for options in OPTIONS for name in options}
    assert (
        set(
            TrainerOptions(
                accumulate=2, clip_norm=1, clip_value=1, amp="float16", ema=0.9, schedule="step"
            ).takes_over
        )
        == names
    )


def test_own_steps_are_left_alone() -> None:
    trainer = trained(OwnSteps)
    assert same(weights(trainer), by_hand()[0])
    optimization = trainer.callbacks.find(Optimization)
    assert optimization.is_active is False and optimization.steps == 12 and handles(trainer) == 0


def test_own_steps_at_some_batches_only() -> None:
    class EveryThird(Small):
        def train_batch(self, eidx: int, idx: int, *rest: Any) -> Any:
            loss = super().train_batch(eidx, idx, *rest) / 3
            loss.backward()
            if idx % 3 == 2:
                self.optim.step()
                self.optim.zero_grad()
            return {"loss": loss}

        def initial_callback(self) -> None:
            super().initial_callback()
            self.average = EMAUpdate(0.5).hook(self)
            LRSchedule(lux.Params.SCHE.Power(1.0, 1, 0.5)).hook(self)

    power = lux.Params.SCHE.Power(1.0, 1, 0.5)
    hand, averages = by_hand(accumulate=3, ema=0.5, after_step=lambda o, steps: power.scale(o, steps))
    trainer = trained(EveryThird)
    assert same(weights(trainer), hand)
    assert same(
        trainer.average.averaged["model"].module.state_dict(), averages
    )  # counted by steps, not by batches


def test_losses_that_are_summed_first() -> None:
    """Nothing is trained by the first batches: as long as they return no tensor to train on, that is open."""

    class Sums(Small):
        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            self.total: Any = 0

        def train_batch(self, eidx: int, idx: int, *rest: Any) -> Any:
            loss = super().train_batch(eidx, idx, *rest)
            self.total = self.total + loss / 3
            if idx % 3 == 2:
                self.total.backward()
                self.optim.step()
                self.optim.zero_grad()
                self.total = 0
            return {"loss": loss.item()}

    trainer = trained(Sums)
    optimization = trainer.callbacks.find(Optimization)
    assert optimization.is_active is False and optimization.steps == 4

    class SumsTensors(Sums):
        def train_batch(self, *given: Any) -> Any:
            super().train_batch(*given)
            return {"loss": torch.tensor(self.losses[-1])}

    with pytest.raises(UsageError, match="does not depend on any weight"):
        trained(SumsTensors)


def test_batches_that_return_nothing_at_first() -> None:
    class Skips(Small):
        def train_batch(self, eidx: int, idx: int, global_step: int, *rest: Any) -> Any:
            loss = super().train_batch(eidx, idx, global_step, *rest)
            return None if global_step < 2 else loss

    trainer = trained(Skips)
    optimization = trainer.callbacks.find(Optimization)
    assert optimization.is_active is True and optimization.steps == 10


def test_gradients_from_before_are_not_taken_for_training() -> None:
    class Warm(Small):
        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            state = torch.get_rng_state()
            self.model.eval()(Noisy().xs).sum().backward()
            self.model.train()
            torch.set_rng_state(state)

    for options in ({}, {"clip_norm": 100.0}):
        trainer = trained(Warm, **options)
        assert trainer.callbacks.find(Optimization).is_active is True
        assert same(weights(trainer), by_hand(clip=lambda p: nn.utils.clip_grad_norm_(p, 100.0))[0])


def test_weights_that_are_changed_by_hand() -> None:
    class ByHand(Small):
        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            del self.optim

        def train_batch(self, *given: Any) -> Any:
            loss = super().train_batch(*given)
            parameters = list(self.model.parameters())
            with torch.no_grad():
                for parameter, gradient in zip(
                    parameters, torch.autograd.grad(loss, parameters), strict=True
                ):
                    parameter -= 0.1 * gradient
            return loss

    trainer = trained(ByHand)
    assert trainer.callbacks.find(Optimization).is_active is False
    assert not same(weights(trainer), dict(small_model().state_dict()))


def test_two_optimizers_and_a_closure() -> None:
    class Gan(lux.Trainer):
        def initial_trainer(self, params: Any) -> None:
            self.nets = nn.ModuleDict({"g": nn.Linear(2, 2), "d": nn.Linear(2, 1)})
            self.optims = [torch.optim.SGD(net.parameters(), lr=0.1) for net in self.nets.values()]
            self.regist_databundler(train=[torch.ones(3, 2)] * 4)

        def train_batch(self, eidx: int, idx: int, global_step: int, batch: Any, *_: Any) -> Any:
            losses = lux.Meter()
            for name, optim in zip("gd", self.optims, strict=True):
                optim.zero_grad()
                loss = self.nets["d"](self.nets["g"](batch)).mean() * (1 if name == "g" else -1)
                loss.backward()
                optim.step()
                losses[name] = loss
            losses.loss = loss
            return losses

    trainer = Gan({"epoch": 1}, quiet=True)
    trainer.train()
    assert trainer.callbacks.find(Optimization).steps == 8 and list(trainer.meter) == ["g", "d", "loss"]

    class Newton(Small):
        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            self.optim = torch.optim.LBFGS(self.model.parameters(), max_iter=2)  # type: ignore[assignment]

        def train_batch(self, *given: Any) -> Any:
            def closure() -> Any:
                self.optim.zero_grad()
                loss = Small.train_batch(self, *given)
                loss.backward()
                return loss

            return {"loss": self.optim.step(closure)}

    newton = trained(Newton)
    optimization = newton.callbacks.find(Optimization)
    assert optimization.is_active is False and optimization.steps == 12
    Newton.train_batch = Small.train_batch  # type: ignore[method-assign]
    with pytest.raises(UsageError, match=r"LBFGS computes the loss several times a step.*step\(closure\)"):
        trained(Newton)


def test_a_training_that_trains_nothing_is_told() -> None:
    class Nothing(Small):
        def train_batch(self, *given: Any) -> Any:
            return {"loss": 0.5}

    with pytest.warns(LuxmeterWarning, match=r"In a whole epoch Nothing\.train_batch made no step"):
        trained(Nothing)


def test_an_optimization_of_ones_own() -> None:
    class Signs(Optimization):
        """signSGD, and no __init__ of the base."""

        def __init__(self, lr: float) -> None:
            self.lr = lr

        def step(self) -> None:
            with torch.no_grad():
                for parameter in self._parameters():
                    parameter -= self.lr * parameter.grad.sign()  # type: ignore[union-attr]
                    parameter.grad = None
            self.pending = 0

    class Own(Small):
        def initial_callback(self) -> None:
            Signs(0.01).hook(self)

    trainer = trained(Own)
    start = small_model_at_start()
    moved = [(weights(trainer)[name] - start[name]).abs().max() for name in ("0.weight", "4.bias")]
    assert all(0.005 < float(m) < 0.13 for m in moved)
    assert sum(isinstance(one, Optimization) for one in trainer.callbacks) == 1
    with pytest.raises(UsageError, match="clip_norm is set, but Signs was hooked, which does not know of it"):
        trained(Own, clip_norm=1.0)


def small_model_at_start() -> State:
    lux.random.fix_seed(3)
    return dict(small_model().state_dict())


@pytest.mark.parametrize(
    ("callback", "options"),
    [(EMAUpdate(0.5), {"ema": 0.9}), (LRSchedule(lux.Params.SCHE.Const(1.0)), {"schedule": "step"}), (Optimization(accumulate=2), {"amp": "bfloat16"})],
    ids=["ema", "schedule", "amp"],
)  # fmt: skip
def test_an_option_beside_a_callback_of_its_kind(callback: Any, options: dict[str, Any]) -> None:
    trainer = Small({"epoch": 1}, quiet=True, **options)
    callback.hook(trainer)
    with pytest.raises(
        UsageError, match=f"{next(iter(options))} is set, but {type(callback).__name__} was hooked"
    ):
        trainer.train()


def test_amp_of_a_hooked_optimization() -> None:
    class Mixed(Small):
        def initial_callback(self) -> None:
            super().initial_callback()
            Optimization(amp="bfloat16").hook(self)

    assert same(weights(trained(Mixed)), by_hand(amp=torch.bfloat16)[0])


# -- what is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"accumulate": 0}, "accumulate=0. Give 1 or more"),
        ({"clip_norm": -1.0}, "clip_norm=-1.0. Give a number above zero"),
        ({"clip_value": True}, "clip_value=True. Give a number above zero"),
        ({"amp": "fp8"}, "amp='fp8'"),
        ({"ema": 1.0}, "ema=1.0. Give a decay such as 0.999"),
        ({"schedule": "batch"}, 'schedule=\'batch\'. Give "step", "epoch"'),
        ({"compile": 3}, "compile=3. Give true or false or a text"),
        ({"max_to_keep": 0}, "max_to_keep=0. Give 1 or more"),
        ({"acumulate": 2}, "no option 'acumulate'. Did you mean 'accumulate'"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        Small({}, **options)
    assert told in str(caught.value)


def test_arguments_of_optimization_that_cannot_be() -> None:
    with pytest.raises(UsageError, match=r"Optimization\(\) cannot use accumulate=0"):
        Optimization(accumulate=0)


def test_schedules_that_cannot_be() -> None:
    with pytest.raises(UsageError, match="Small has no scheduler to step"):
        trained(schedule="epoch")
    with pytest.raises(UsageError, match="3 is no schedule"):
        trained(schedule=3)
