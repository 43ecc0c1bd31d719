"""Evaluate and test while training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from luxmeter.errors import UsageError
from luxmeter.train.callbacks.callback import Callback

if TYPE_CHECKING:
    from luxmeter.train.trainer import Trainer


class EvalCallback(Callback):
    """Evaluates every `eval_every` epochs and tests every `test_every`; 0: never. A training that ends inside an epoch, at its end."""

    priority = 60

    def __init__(self, eval_every: int = 1, test_every: int = 0) -> None:
        for name, every in (("eval_every", eval_every), ("test_every", test_every)):
            if isinstance(every, bool) or not isinstance(every, int) or every < 0:
                raise UsageError("eval-every", f"{name}={every!r} is no number of epochs.", "Give 0 or more.")
        self.eval_every = eval_every
        self.test_every = test_every
        self._made: list[str] = []  # of what this epoch's end asks for: an interrupted one goes on behind it

    def after_epoch(self, trainer: Trainer, meter: Any) -> None:
        """Evaluate and test if it is time."""
        for which, every in (("eval", self.eval_every), ("test", self.test_every)):
            if every and trainer.position.eidx % every == 0 and which not in self._made:
                trainer.evaluate(which)
                self._made.append(which)
        self._made = []

    def after_train(self, trainer: Trainer) -> None:
        """Evaluate and test what ended inside an epoch."""
        if trainer.position.cut:
            for which, every in (("eval", self.eval_every), ("test", self.test_every)):
                if every:
                    trainer.evaluate(which)

    def state_dict(self) -> dict[str, Any]:
        """What is behind it of an epoch's end."""
        return {"made": list(self._made)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._made = list(state["made"])
