"""A loss that is not finite ends the training, with all that is needed to make the step again."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from luxmeter.errors import LuxmeterError, UsageError, suggestion
from luxmeter.experiment import Meter, get_rng_state
from luxmeter.store import number_of
from luxmeter.train import failed_step, parts
from luxmeter.train.callbacks.callback import Callback
from luxmeter.train.callbacks.optimization import Optimization

if TYPE_CHECKING:
    from luxmeter.train.trainer import Trainer

# Read past torch.Tensor.item: this is no call of the user's that a trace should count.
_item = getattr(torch._C, "TensorBase", Tensor).item
_ELSEWHERE = 10  # batches between two looks on an accelerator, where each look waits for the device


class NaNGuard(Callback):
    """Ends the training with an error when the loss (`monitor`, of what train_batch returns) is nan or infinite.

    `nan-<step>/` in the run then holds the batch, the random state before it, the weights where they are still those of
    before the step, the last checkpoint, and `replay.py`: it makes the step again and stops at the line where the nan
    arises (in the backward by torch's detect_anomaly, unless anomaly=False).

    `gradients=True` looks at the norm of the gradients before each step of an optimizer, too. `every`: look only each
    so many batches (1, and 10 on an accelerator, where a look waits for it); `replay.py` then finds the step. `exact=True` keeps a
    copy of everything before each step: for a train_batch that steps its optimizers itself, or draws with python's or
    numpy's generators. It costs the memory of weights and optimizers once more, and a copy of them each step:
    `python benchmarks/nan_guard.py` measures the time of all of these. At the start one checkpoint is saved to go on from.
    """

    priority = 5  # before Optimization: the weights are still sound

    def __init__(
        self,
        monitor: str = "loss",
        *,
        gradients: bool = False,
        every: int | None = None,
        exact: bool = False,
        anomaly: bool = True,
    ) -> None:
        if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
            raise UsageError("nan-guard-every", f"every={every!r} means never.", "Give 1 or more.")
        if exact and every not in (None, 1):
            raise UsageError(
                "nan-guard-every",
                f"exact=True looks at every batch, but every={every}.",
                "Leave one of the two out.",
            )
        self.monitor = monitor
        self.gradients = gradients
        self.every = every
        self.exact = exact
        self.anomaly = anomaly
        self._every = 1
        self._due = 1  # batches until the next look
        self._batch: Any = None
        self._random: dict[str, Tensor] = {}  # torch's, before the batch
        self._stepped = False  # an optimizer, in this batch: the weights are no longer those of before it
        self._optimization: Optimization | None = None
        self._watching: list[Any] = []
        self._state: StateCopy | None = None
        self._trainer: Trainer | None = None

    def before_train(self, trainer: Trainer) -> None:
        """Save something to go on from."""
        self._every = self._due = self.every or (
            1 if self.exact or trainer.device.type == "cpu" else _ELSEWHERE
        )
        self._optimization = trainer.callbacks.find(Optimization)
        self._trainer = trainer
        if self.exact and trainer._training.shards is not None:
            raise UsageError(
                "fsdp-unfit",
                'NaNGuard(exact=True) keeps a copy of all weights, of which each rank has a part alone (parallel="fsdp").',
                "Leave exact out: the step is then made again from the last checkpoint on.",
            )
        if self.exact:
            self._state = StateCopy(parts.stateful(trainer))
        trainer.save_checkpoint()
        self._watching = [one.register_step_pre_hook(self._before_step) for one in trainer.optimizers]

    def before_batch(self, trainer: Trainer, batch: Any) -> None:
        """Remember what the step begins with."""
        self._batch, self._stepped = batch, False
        if self._state is not None:
            self._state.take(batch)
            return
        self._random = {"cpu": torch.default_generator.get_state()}
        if trainer.device.type != "cpu":
            self._random[trainer.device.type] = _device_random(trainer.device)

    def after_batch(self, trainer: Trainer, result: Any) -> None:
        """Look at the loss, if it is time."""
        self._due -= 1
        if self._due:
            return
        self._due = self._every
        loss = result if isinstance(result, Tensor | float | int) else self._found(result, trainer)
        if isinstance(loss, Tensor):
            if loss.numel() != 1:
                return  # Optimization says what is wrong with it
            loss = _item(loss)
        is_bad = not math.isfinite(loss)
        in_step = trainer._training.in_step
        if in_step is not None and (rank := in_step.any_rank(is_bad)) is not None and not is_bad:
            at = trainer.position  # before backward, in which the others would wait for that rank
            raise LuxmeterError(
                "loss-not-finite",
                f"The {self.monitor} of step {at.global_step} (epoch {at.eidx}, batch {at.idx}) is not finite on rank {rank}.",
                f"See what rank {rank} says.",
            )
        if is_bad:
            self._fail(trainer, self.monitor, loss)

    def after_train(self, trainer: Trainer) -> None:
        """Look no longer."""
        self._let_go()

    def on_exception(self, trainer: Trainer, error: BaseException) -> None:
        """Look no longer."""
        self._let_go()

    def _found(self, result: Any, trainer: Trainer) -> Any:
        values: Meter | Mapping[str, Any] = result if isinstance(result, Meter | Mapping) else {}
        found = values.get(self.monitor)
        if isinstance(found, float | Tensor):
            return found
        number = number_of(found)
        if number is not None:
            return number
        raise UsageError(
            "nan-guard-nothing",
            f"NaNGuard looks at {self.monitor!r}, which is no number in what {type(trainer).__name__}.train_batch returned.",
            suggestion(self.monitor, map(str, values))
            or f"Return it, or name one that is there: {', '.join(map(str, values)) or 'there is none'}.",
        )

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Called by an optimizer before it steps."""
        if self.gradients and self._trainer is not None:
            optimization = self._optimization
            if (
                optimization is not None
                and optimization.clip_norm is not None
                and optimization.norm is not None
            ):
                norm = optimization.norm  # made a moment ago
            else:
                weights = (weight for group in optimizer.param_groups for weight in group["params"])
                gradients = [weight.grad for weight in weights if weight.grad is not None]
                norm = torch.nn.utils.get_total_norm(gradients)
                norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
            value = _item(norm)
            if not math.isfinite(value):
                self._fail(self._trainer, "norm of the gradients", value)
        self._stepped = True

    def _fail(self, trainer: Trainer, what: str, value: float) -> None:
        at = trainer.position
        next_step = "Lower the learning rate, clip the gradients, or look for a log, a root or a division at its edge."
        writer = trainer.experiment.writer if trainer.experiment is not None else None
        if writer is not None:
            if what == self.monitor:
                writer.log({f"train/{what}": value}, at.global_step)  # Metrics does not come to it any more
            try:
                folder = failed_step.save(
                    trainer,
                    writer,
                    what=what,
                    value=value,
                    batch=self._batch if self._state is None else self._state.batch,
                    random=self._random_before(),
                    state=self._before(trainer),
                    first=max(0, at.global_step - self._every + 1),
                    anomaly=self.anomaly,
                )
                next_step = (
                    f"python {folder / failed_step.SCRIPT} makes the step again and stops where it arises."
                )
            except Exception as error:  # noqa: BLE001 - that the loss is lost is what counts
                trainer.logger.warn(f"The step could not be kept: {type(error).__name__}: {error}")
        raise LuxmeterError(
            "loss-not-finite",
            f"The {what} of step {at.global_step} (epoch {at.eidx}, batch {at.idx}) is {value}.",
            next_step,
        )

    def _before(self, trainer: Trainer) -> dict[str, Any] | None:
        """The parts as they were before the step; None if nobody knows any more."""
        if self._state is not None:
            return self._state.parts()
        is_here = self._every == 1 and not self._stepped and trainer._training.shards is None
        return parts.stateful(trainer) if is_here else None

    def _random_before(self) -> dict[str, Any]:
        """The random state before the batch; of python and numpy, without exact=True, that of now."""
        if self._state is not None:
            return self._state.random
        random = get_rng_state()
        random["torch"] = self._random["cpu"]
        for name, state in self._random.items():
            if name in random["accelerators"]:
                states = random["accelerators"][name]
                states[min(self._device_index(), len(states) - 1)] = state
        return random

    def _device_index(self) -> int:
        return (self._trainer.device.index or 0) if self._trainer is not None else 0

    def _let_go(self) -> None:
        for handle in self._watching:
            handle.remove()
        self._watching = []
        self._batch = self._state = self._trainer = None


class StateCopy:
    """A copy of the state of several parts, taken before each step into the same memory."""

    def __init__(self, live: Mapping[str, Any]) -> None:
        self._live = live
        self._states: dict[str, Any] = {}
        self.batch: Any = None
        self.random: dict[str, Any] = {}

    def take(self, batch: Any) -> None:
        """Copy what is there now."""
        pairs: list[tuple[Tensor, Tensor]] = []
        with torch.no_grad():
            for name, part in self._live.items():
                state = part.get_state() if isinstance(part, torch.Generator) else part.state_dict()
                self._states[name] = _copied(state, self._states.get(name), pairs)
            self.batch = _copied(batch, self.batch, pairs)
            if pairs:
                torch._foreach_copy_([new for new, _ in pairs], [old for _, old in pairs])
        self.random = get_rng_state()

    def parts(self) -> dict[str, Any]:
        """What lux.Saver.save_state takes."""
        made: dict[str, Any] = {}
        for name, part in self._live.items():
            if isinstance(part, torch.Generator):
                made[name] = torch.Generator(part.device)
                made[name].set_state(self._states[name])
            else:
                made[name] = Frozen(self._states[name])
        return made


class Frozen:
    """A state that was taken before."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def state_dict(self) -> Any:
        """The state."""
        return self._state

    def load_state_dict(self, state: Any) -> None:
        """Another one in its place."""
        self._state = state


def _copied(value: Any, memory: Any, pairs: list[tuple[Tensor, Tensor]]) -> Any:
    """A copy of a nested value; tensors go into those of `memory` where they fit, later, by `pairs`."""
    if isinstance(value, Tensor):
        fits = (
            isinstance(memory, Tensor)
            and memory.shape == value.shape
            and memory.dtype == value.dtype
            and memory.device == value.device
        )
        if not fits:
            return value.detach().clone()
        pairs.append((memory, value.detach()))
        return memory
    if isinstance(value, dict):
        before = memory if isinstance(memory, dict) else {}
        made = copy.copy(value)  # of its own kind, with what hangs on it
        for key, inner in value.items():
            made[key] = _copied(inner, before.get(key), pairs)
        return made
    if type(value) in (list, tuple):
        old = memory if type(memory) is type(value) and len(memory) == len(value) else [None] * len(value)
        return type(value)(_copied(inner, one, pairs) for inner, one in zip(value, old, strict=True))
    return value


def _device_random(device: torch.device) -> Tensor:
    state: Tensor = torch.get_device_module(device.type).get_rng_state(device)
    return state
