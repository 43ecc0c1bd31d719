"""Where a training stands, and how fast it goes."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from luxmeter.experiment import BaseParams


class Phase(enum.Enum):
    """What of the epoch comes next: batches, or what follows the last one."""

    BATCHES = "batches"
    EPOCH_END = "epoch end"


class Position:
    """The epoch from 1, the batch in it and the batches before it, both from 0; written into the Params, too."""

    __slots__ = ("_values", "batch_done", "called", "cut", "eidx", "global_step", "idx", "in_batch", "phase")

    def __init__(self, params: BaseParams) -> None:
        self.eidx, self.idx, self.global_step = 1, 0, 0
        self.phase = Phase.BATCHES
        self.in_batch = False  # the batch `idx` was handed out, and is not trained on yet
        self.batch_done = False  # it was trained on, and its callbacks are at work
        self.called: list[str] = []  # the callbacks that the end of this epoch has come to already
        self.cut = False  # the training ended before the epoch did: another one goes on there
        self._values = params.live_values()
        self._tell()

    @property
    def done(self) -> int:
        """How many batches were trained on since the start."""
        return self.global_step + self.batch_done

    @property
    def begun_epoch(self) -> int:
        """The last epoch of which a batch was handed out: between two epochs the one before; 0 at the start."""
        is_between = self.phase is Phase.BATCHES and not (self.idx or self.in_batch)
        return self.eidx - is_between

    def next_batch(self) -> None:
        """On to the next one."""
        self.idx += 1
        self.global_step += 1
        self.in_batch = self.batch_done = False
        values = self._values  # params.idx = ... would check and convert what needs neither
        values["idx"], values["global_step"] = self.idx, self.global_step

    def next_epoch(self) -> None:
        """On to the first batch of the next one."""
        self.eidx, self.idx, self.phase, self.cut = self.eidx + 1, 0, Phase.BATCHES, False
        self.called = []
        self._tell()

    def state_dict(self, *, epoch_done: bool = False) -> dict[str, Any]:
        """Where to go on: behind this batch; with `epoch_done`, behind this epoch and all that follows its last batch."""
        if epoch_done:
            at = {"eidx": self.eidx + 1, "idx": 0, "phase": Phase.BATCHES.value, "called": []}
        else:
            idx = self.idx + self.batch_done
            at = {"eidx": self.eidx, "idx": idx, "phase": self.phase.value, "called": list(self.called)}
        return {**at, "global_step": self.done}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Stand where `state_dict` says."""
        self.eidx, self.idx = int(state["eidx"]), int(state["idx"])
        self.global_step, self.phase = int(state["global_step"]), Phase(state["phase"])
        self.called = list(state["called"])
        self.in_batch = self.batch_done = self.cut = False
        self._tell()

    def _tell(self) -> None:
        self._values.update(eidx=self.eidx, idx=self.idx, global_step=self.global_step)

    def __repr__(self) -> str:
        return f"epoch {self.eidx}, batch {self.idx}, step {self.global_step}"


@dataclass
class Pace:
    """Seconds that batches took, and of these the seconds spent on waiting for data, since the last `take`."""

    batches: int = 0
    data_s: float = 0.0
    total_s: float = 0.0
    paused_s: float = 0.0  # in all: no batch took them

    def add(self, data_s: float, total_s: float) -> None:
        """One more batch."""
        self.batches += 1
        self.data_s += data_s
        self.total_s += total_s

    def leave_out(self, seconds: float) -> None:
        """A pause inside the batch at hand."""
        self.paused_s += seconds
        self.total_s -= seconds

    def take(self) -> tuple[float, float]:
        """(seconds a batch, of these waiting for data); counts anew."""
        batches = max(1, self.batches)
        found = self.total_s / batches, self.data_s / batches
        self.batches, self.data_s, self.total_s = 0, 0.0, 0.0
        return found
