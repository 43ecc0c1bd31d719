"""From a loss to new weights: backward, clip, step, zero_grad. Explicit, and replaceable by one of your own."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from luxmeter.errors import UsageError, warn_once
from luxmeter.experiment import Meter
from luxmeter.options import declared
from luxmeter.train import parts
from luxmeter.train.callbacks.callback import Callback
from luxmeter.train.options import TrainerOptions
from luxmeter.train.registries import about

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from luxmeter.train.parallel import Replicas
    from luxmeter.train.sharding import Shards
    from luxmeter.train.trainer import Trainer

_LEAVE_OUT = "Return the loss, and leave backward() and step() to it."


class Optimization(Callback):
    """Takes the loss that train_batch returns, alone or as `loss` in a Meter or dict, and makes a step of it.

    With accumulate=n the gradients of n batches make one step, each loss counting 1/n; what an epoch's end leaves is a
    step of its own. amp: train_batch and evaluations compute in that precision; of "float16" the loss is scaled
    (GradScaler). A step made inside train_batch is refused. With if_needed=True it looks at the first batch that trains: if
    train_batch made gradients, new weights or a step itself, there is nothing left to do. A subclass that is hooked takes
    its place.
    """

    priority = 10
    # For a subclass that makes these of its own, or not at all.
    accumulate = 1
    clip_norm: float | None = None
    clip_value: float | None = None
    amp: Literal["bfloat16", "float16"] | None = None
    is_active: bool | None = True  # None: that is to be seen
    pending = 0  # batches whose gradients wait for their step
    steps = 0  # made by optimizers since the start of the program, by whomever
    norm: Tensor | None = None  # of the gradients before they were clipped, at the last step
    _optimizers: Sequence[Optimizer] = ()
    _scaler: torch.amp.GradScaler | None = None
    _replicas: Replicas | Shards | None = None  # with other ranks
    _shards: Shards | None = None  # what they hold of each weight
    _watching: Sequence[Any] = ()
    _before: Sequence[Look] = ()
    _undecided = 0  # batches
    _stepping = False

    def __init__(
        self,
        *,
        accumulate: int = 1,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        amp: Literal["bfloat16", "float16"] | None = None,
        if_needed: bool = False,
    ) -> None:
        chosen = {"accumulate": accumulate, "clip_norm": clip_norm, "clip_value": clip_value, "amp": amp}
        for name, value in chosen.items():
            wrong = declared(TrainerOptions)[name].wrong(value)
            if wrong:
                raise UsageError("bad-trainer-option", f"Optimization() cannot use {name}={value!r}.", wrong)
            setattr(self, name, value)
        self.is_active = None if if_needed else True

    def setup(self, trainer: Trainer) -> None:
        """Find the optimizers."""
        self._optimizers = trainer.optimizers
        if self.amp == "float16" and self._scaler is None:
            self._scaler = torch.amp.GradScaler(trainer.device.type)

    def before_train(self, trainer: Trainer) -> None:
        """See who steps the optimizers."""
        if self.is_active:
            self._take_over(trainer)
        elif self.is_active is None:
            self._before = [look_at(parameter) for parameter in parts.trained(trainer)]
        self._watching = [one.register_step_pre_hook(self._on_step) for one in self._optimizers]
        self._replicas, self._shards = trainer._training.replicas, trainer._training.shards
        self._tell_if_last()

    def after_batch(self, trainer: Trainer, result: Any) -> None:
        """Backward and, if it is due, the step."""
        if self.is_active is None:
            self._decide(trainer, result)
        if not self.is_active:
            return
        loss = loss_of(result, type(trainer).__name__)
        if self.accumulate > 1:
            loss = loss / self.accumulate
        if self._scaler is not None:
            loss = self._scaler.scale(loss)
        loss.backward()  # type: ignore[no-untyped-call]
        self.pending += 1
        if self.pending >= self.accumulate:
            self.step()
        self._tell_if_last()

    def after_epoch(self, trainer: Trainer, meter: Any) -> None:
        """The step of what is left over."""
        if self.pending:
            self.step()
            self._tell_if_last()
        if self.is_active is None and self._optimizers and self._undecided:
            warn_once(
                "nothing-trained",
                f"In a whole epoch {type(trainer).__name__}.train_batch made no step, and returned no loss to make one of.",
                "Return the loss as a tensor, or call backward() and step() in it.",
                key=type(trainer).__name__,
            )

    def after_train(self, trainer: Trainer) -> None:
        """Look no longer."""
        self._let_go()

    def on_exception(self, trainer: Trainer, error: BaseException) -> None:
        """Look no longer."""
        self._let_go()

    def step(self) -> None:
        """Clip, step, zero_grad."""
        if self._shards is not None and self.pending < self.accumulate:
            self._shards.average_waiting()
        if self._replicas is not None:
            self._replicas.settle(self._optimizers)
        if self._scaler is not None and (self.clip_norm is not None or self.clip_value is not None):
            for optimizer in self._optimizers:
                self._scaler.unscale_(optimizer)
        if self.clip_value is not None:
            self._clip_values(self.clip_value)
        if self.clip_norm is not None:
            self.norm = self._clip_norms(self.clip_norm)
        self._stepping = True
        try:
            for optimizer in self._optimizers:
                if self._scaler is None:
                    optimizer.step()
                else:
                    self._scaler.step(optimizer)
        finally:
            self._stepping = False
        if self._scaler is not None:
            self._scaler.update()
        for optimizer in self._optimizers:
            optimizer.zero_grad()
        self.pending = 0

    def state_dict(self) -> dict[str, Any]:
        """The batches that wait, and the scale."""
        return {
            "pending": self.pending,
            "scaler": self._scaler.state_dict() if self._scaler is not None else {},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.pending = int(state["pending"])
        if self._scaler is not None and state["scaler"]:
            self._scaler.load_state_dict(dict(state["scaler"]))

    def _tell_if_last(self) -> None:
        """With other ranks: whether a step follows the next batch, so that its backward averages the gradients."""
        if self._replicas is not None:
            self._replicas.sync(self.pending + 1 >= self.accumulate)

    def _decide(self, trainer: Trainer, result: Any) -> None:
        """Whether train_batch trains by itself or leaves it to us; open as long as there is no sign of either."""
        loss = result if isinstance(result, Tensor) else _loss_in(result)
        if self.steps or any(look.is_trained() for look in self._before):
            self.is_active = False
        elif isinstance(loss, Tensor) and (self._optimizers or loss.requires_grad):
            self.is_active = True
            self._take_over(trainer)
        elif not self._optimizers:
            self.is_active = False
        self._undecided += 1
        if self.is_active is not None:
            self._before = ()

    def _take_over(self, trainer: Trainer) -> None:
        who = type(trainer).__name__
        if not self._optimizers:
            error = UsageError(
                "no-optimizer",
                f"{who} has no optimizer to step.",
                f"{trainer._how_to_optimize} If nothing is to be trained, return the loss as a number.",
            )
            raise about(error, "optimizer")
        for optimizer in self._optimizers:
            closure = inspect.signature(type(optimizer).step).parameters.get("closure")
            if closure is not None and closure.default is closure.empty:
                raise UsageError(
                    "optimizer-needs-closure",
                    f"{type(optimizer).__name__} computes the loss several times a step, which the Optimization callback cannot.",
                    "Call self.optim.step(closure) in train_batch, and leave out accumulate, clipping, amp, ema and schedule.",
                )
        if not self.pending:  # gradients from before are nobody's
            for optimizer in self._optimizers:
                optimizer.zero_grad()

    def _parameters(self) -> list[Tensor]:
        return [
            p for optimizer in self._optimizers for group in optimizer.param_groups for p in group["params"]
        ]

    def _clip_values(self, most: float) -> None:
        if self._shards is None:
            torch.nn.utils.clip_grad_value_(self._parameters(), most)
        else:
            self._shards.clip_values(self._parameters(), most)

    def _clip_norms(self, most: float) -> Tensor:
        if self._shards is None:
            return torch.nn.utils.clip_grad_norm_(self._parameters(), most)
        return self._shards.clip_norm(self._parameters(), most)

    def _on_step(self, *_: Any) -> None:
        self.steps += 1
        if self.is_active and not self._stepping:
            raise UsageError(
                "step-inside-batch",
                "An optimizer was stepped inside train_batch, but backward and step are the Optimization callback's here.",
                f"{_LEAVE_OUT} If they are to be yours: leave out accumulate, clipping, amp, ema and schedule, "
                "and return the loss as a number from batches that make no step.",
            )

    def _let_go(self) -> None:
        for handle in self._watching:
            handle.remove()
        self._watching = self._before = ()
        self._replicas = self._shards = None


class Look(NamedTuple):
    """A parameter as it was. The gradient is held, so that no other one gets its address."""

    parameter: Tensor
    version: int
    gradient: Tensor | None
    gradient_version: int

    def is_trained(self) -> bool:
        """Whether it was trained on since."""
        now = look_at(self.parameter)
        return (
            now.gradient is not self.gradient
            or now.gradient_version != self.gradient_version
            or now.version != self.version
        )


def look_at(parameter: Tensor) -> Look:
    """What training would change of a parameter."""
    gradient = parameter.grad
    return Look(parameter, _version(parameter), gradient, 0 if gradient is None else _version(gradient))


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _loss_in(result: Any) -> Any:
    return result.get("loss") if isinstance(result, Meter | Mapping) else None


def loss_of(result: Any, who: str) -> Tensor:
    """The loss in what train_batch returned, one that can be gone back from."""
    loss = _loss_in(result) if isinstance(result, Meter | Mapping) else result
    if loss is None:
        held = ", ".join(map(str, result)) if result is not None else ""
        raise UsageError(
            "no-loss",
            f"What {who}.train_batch returned has no loss{f'; it has {held}' if held else ''}.",
            "Return the loss, or a Meter with meter.loss.",
        )
    if not isinstance(loss, Tensor):
        raise UsageError(
            "no-loss",
            f"The loss of {who}.train_batch is a {type(loss).__name__}, not a tensor.",
            "Return the tensor that the loss function gave, not its item().",
        )
    if loss.ndim and loss.shape.numel() != 1:
        raise UsageError(
            "loss-not-scalar",
            f"The loss of {who}.train_batch has the shape {tuple(loss.shape)}.",
            "Reduce it to one number: loss.mean().",
        )
    if not loss.requires_grad:
        raise UsageError(
            "loss-without-gradient",
            f"The loss of {who}.train_batch does not depend on any weight that is trained.",
            "Compute it from the model's output without detach(), item() or no_grad(), and check requires_grad.",
        )
    return loss
