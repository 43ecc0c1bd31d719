"""From a loss to new weights: backward, clip, step, zero_grad. Explicit, and replaceable by one of your own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from luxmeter.errors import UsageError
from luxmeter.experiment import Meter
from luxmeter.train.callbacks.callback import Callback

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from luxmeter.train.trainer import Trainer


class Optimization(Callback):
    """Takes the loss that train_batch returns, alone or as `loss` in a Meter or dict, and makes a step of it.

    With accumulate=n the gradients of n batches make one step, each loss counting 1/n; what an epoch's end leaves is a
    step of its own. With amp="float16" the loss is scaled (GradScaler). A step made inside train_batch is refused.
    With if_needed=True it looks at the first batch: if train_batch has made gradients or a step itself, it does nothing.
    """

    priority = 10

    def __init__(
        self,
        *,
        accumulate: int = 1,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        amp: str | None = None,
        if_needed: bool = False,
    ) -> None:
        self.accumulate = accumulate
        self.clip_norm = clip_norm
        self.clip_value = clip_value
        self.amp = amp
        self.is_active: bool | None = None if if_needed else True
        self.pending = 0  # batches whose gradients wait for their step
        self.stepped = False  # by the batch at hand
        self.norm: Tensor | None = None  # of the gradients before they were clipped, at the last step
        self._optimizers: list[Optimizer] = []
        self._scaler: torch.amp.GradScaler | None = None
        self._watching: list[Any] = []
        self._steps_seen = 0
        self._stepping = False

    def setup(self, trainer: Trainer) -> None:
        """Find the optimizers."""
        self._optimizers = trainer.optimizers
        if self.amp == "float16":
            self._scaler = torch.amp.GradScaler(trainer.device.type)

    def before_train(self, trainer: Trainer) -> None:
        """See who steps the optimizers."""
        if self.is_active and not self._optimizers:
            raise UsageError(
                "no-optimizer",
                f"{type(trainer).__name__} has no optimizer to step.",
                "Make one in initial_trainer: self.optim = SGD(self.model.parameters(), lr=params.lr).",
            )
        if self.is_active is not False:
            watch = self._refuse if self.is_active else self._count
            self._watching = [one.register_step_pre_hook(watch) for one in self._optimizers]

    def after_batch(self, trainer: Trainer, result: Any) -> None:
        """Backward and, if it is due, the step."""
        if not self.is_active and (self.is_active is not None or not self._decide(trainer, result)):
            return
        loss = loss_of(result, type(trainer).__name__)
        if self.accumulate > 1:
            loss = loss / self.accumulate
        if self._scaler is not None:
            loss = self._scaler.scale(loss)
        loss.backward()  # type: ignore[no-untyped-call]
        self.pending += 1
        self.stepped = self.pending >= self.accumulate
        if self.stepped:
            self.step()

    def after_epoch(self, trainer: Trainer, meter: Any) -> None:
        """The step of what is left over."""
        self.stepped = self.pending > 0
        if self.stepped:
            self.step()

    def after_train(self, trainer: Trainer) -> None:
        """Look no longer."""
        self._let_go()

    def on_exception(self, trainer: Trainer, error: BaseException) -> None:
        """Look no longer."""
        self._let_go()

    def step(self) -> None:
        """Clip, step, zero_grad."""
        if self._scaler is not None and (self.clip_norm is not None or self.clip_value is not None):
            for optimizer in self._optimizers:
                self._scaler.unscale_(optimizer)
        if self.clip_value is not None:
            torch.nn.utils.clip_grad_value_(self._parameters(), self.clip_value)
        if self.clip_norm is not None:
            self.norm = torch.nn.utils.clip_grad_norm_(self._parameters(), self.clip_norm)
        self._stepping = True
        for optimizer in self._optimizers:
            if self._scaler is None:
                optimizer.step()
            else:
                self._scaler.step(optimizer)
        self._stepping = False
        if self._scaler is not None:
            self._scaler.update()
        for optimizer in self._optimizers:
            optimizer.zero_grad()
        self.pending = 0

    def state_dict(self) -> dict[str, Any]:
        """The batches that wait, the scale, and whether it is at work."""
        scaler = self._scaler.state_dict() if self._scaler is not None else {}
        return {"pending": self.pending, "scaler": scaler, "is_active": self.is_active}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.pending = int(state["pending"])
        if self.is_active is None:
            self.is_active = state["is_active"]
        if self._scaler is not None and state["scaler"]:
            self._scaler.load_state_dict(dict(state["scaler"]))

    def _decide(self, trainer: Trainer, result: Any) -> bool:
        """After the first batch: whether train_batch has left the step to us."""
        self._let_go()
        loss = result if isinstance(result, Tensor) else _loss_in(result)
        has_gradients = any(p.grad is not None for p in self._parameters())
        self.is_active = bool(
            isinstance(loss, Tensor)
            and (loss.requires_grad or isinstance(result, Tensor))
            and not self._steps_seen
            and not has_gradients
            and self._optimizers
        )
        if self.is_active:
            self.before_train(trainer)
        return self.is_active

    def _parameters(self) -> list[Tensor]:
        return [
            p for optimizer in self._optimizers for group in optimizer.param_groups for p in group["params"]
        ]

    def _count(self, *_: Any) -> None:
        self._steps_seen += 1

    def _refuse(self, *_: Any) -> None:
        if not self._stepping:
            raise UsageError(
                "step-inside-batch",
                "An optimizer was stepped inside train_batch, but backward and step are the Optimization callback's here.",
                "Return the loss and leave backward() and step() out, or the trainer's options for them.",
            )

    def _let_go(self) -> None:
        for handle in self._watching:
            handle.remove()
        self._watching = []


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
    if loss.numel() != 1:
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
