"""Ranks in step: whatever ends or changes a training happens on all of them behind the same batch.

A rank that wants to stop would leave the others waiting for its gradients. So what is asked for (a stop, Ctrl-C, a request from
outside) is only noted, until all ranks look at what each of them notes: one small all-reduce, at the ends of epochs and
of evaluations, and in between every so many batches: about ten times a second, or as `agree_every` says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic, sleep

import torch

from luxmeter.train.dist import Group, all_reduce

ASKS = ("stop", "stop_epoch", "interrupted")
_EVERY_S = 0.1
_HELD_S = 0.1  # from one look to the next while a training is paused


@dataclass(frozen=True)
class Listener:
    """Something that one rank may learn of and all of them do: `hears` is asked of each, `acts` called on each."""

    hears: Callable[[], bool]
    acts: Callable[[], None]
    holds: Callable[[], bool] = lambda: False  # all of them stay where they are


@dataclass
class InStep:
    """What the ranks of a training agree on."""

    group: Group
    device: torch.device  # of the numbers that are exchanged
    every: int | None = None  # batches; None: by the clock of rank 0
    asked: set[str] = field(default_factory=set)  # on this rank
    listeners: list[Listener] = field(default_factory=list)
    held_s: float = 0.0  # in all
    _due: int = 0  # the batch behind which they look
    _looked_at: tuple[int, float] = (0, 0.0)  # batches, seconds

    def is_due(self, done: int) -> bool:
        """Whether all ranks look behind this batch."""
        return done >= self._due

    def exchange(self, done: int) -> set[str]:
        """What is asked for on any of them. What listeners hear is done on all."""
        found = self._look(done)
        began = monotonic()
        while any(one.holds() for one in self.listeners) and not found & {"stop", "interrupted"}:
            sleep(_HELD_S)
            found |= self._look(done)
            self.held_s += monotonic() - began
            began = monotonic()
        return found

    def any_rank(self, is_so: bool) -> int | None:
        """The highest rank of which something is so; None if it is of none. To be asked by all of them."""
        said = torch.tensor([self.group.rank + 1 if is_so else 0], device=self.device)
        rank = int(all_reduce(said, "max").item()) - 1
        return None if rank < 0 else rank

    def _look(self, done: int) -> set[str]:
        said = [
            *(int(ask in self.asked) for ask in ASKS),
            *(int(one.hears()) for one in self.listeners),
            self._until_next(done) if self.group.rank == 0 else 0,
        ]
        before = set(self.asked)
        heard = all_reduce(torch.tensor(said, device=self.device), "max").tolist()
        self._due = done + int(heard[-1])
        for is_asked, listener in zip(heard[len(ASKS) : -1], list(self.listeners), strict=True):
            if is_asked:
                listener.acts()
        found = {ask for ask, is_asked in zip(ASKS, heard, strict=False) if is_asked}
        found |= (self.asked - before) - {
            "interrupted"
        }  # by a listener, on every rank alike; Ctrl-C came here alone
        self.asked -= found
        return found

    def _until_next(self, done: int) -> int:
        """Batches, on rank 0: as many as take a tenth of a second; at most twice as many as the last time."""
        before, at_s = self._looked_at
        now = monotonic()
        self._looked_at = done, now
        if self.every is not None:
            return self.every
        batches = done - before
        if batches <= 0 or not at_s:
            return 1
        return max(1, min(2 * batches, int(_EVERY_S * batches / max(now - at_s, 1e-6))))
