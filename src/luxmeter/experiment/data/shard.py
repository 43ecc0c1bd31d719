"""A rank's part of an epoch: in training as much on each rank as on the others, in evaluation each batch on one of them.

Training: what one process would read as a batch of `ranks` times the size is dealt out to the ranks, sample by sample; the last
one is made full with samples of its own, so that all have the same number. Evaluation: the batches of one process, dealt out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from torch.utils.data import Sampler

from luxmeter.experiment.data.loader_fetch import Ticket
from luxmeter.experiment.data.loader_plan import Plan, draw_all, in_batches


class Shard(NamedTuple):
    """Which rank's part of how many; `even`: the same number of batches and samples for all of them."""

    rank: int
    ranks: int
    even: bool = True

    def batch_size(self, own: int) -> int:
        """Of what is dealt out."""
        return own * self.ranks if self.even else own

    def step(self, own: int) -> int:
        """The place, among the batches that are dealt out, of this rank's batch `own`."""
        return own if self.even else own * self.ranks + self.rank

    def count(self, dealt: int) -> int:
        """How many of so many batches this rank has a part of."""
        return dealt if self.even else len(range(self.rank, dealt, self.ranks))

    def part(self, of_all: Any) -> Any:
        """This rank's part of a list that is dealt out sample by sample; the list goes on from its start until it is even."""
        missing = -len(of_all) % self.ranks
        return [of_all[i % len(of_all)] for i in range(self.rank, len(of_all) + missing, self.ranks)]

    def pick(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Of batches from the place `step` on, this rank's."""
        return map(self.part, batches) if self.even else islice(batches, 0, None, self.ranks)


class ShardedPlan:
    """A plan for all ranks, of which one reads its part."""

    def __init__(self, plan: Plan, shard: Shard) -> None:
        self._plan, self._shard = plan, shard

    def tickets(self, step: int) -> Iterator[Ticket]:
        shard, every = self._shard, self._plan.tickets(self._shard.step(step))
        if not shard.even:
            return islice(every, 0, None, shard.ranks)
        return (
            one._replace(
                indices=shard.part(one.indices),
                repeats=None if one.repeats is None else tuple(shard.part(one.repeats)),
            )
            for one in every
        )

    def rest(self, step: int) -> list[Any] | None:
        every = self._plan.rest(self._shard.step(step))
        return None if every is None else list(self._shard.pick(every))

    def state(self, step: int) -> dict[str, Any]:
        return self._plan.state(step if self._shard.even else step * self._shard.ranks)


class ShardedBatches(Sampler[list[Any]]):
    """The batches of one rank, of a sampler for torch's DataLoader: drawn alike on every rank, whatever each has drawn before."""

    def __init__(self, sampler: Any, batch_size: int, shard: Shard, *, drop_last: bool, seed: int) -> None:
        self.sampler = sampler
        self.shard = shard
        self._size, self._drop_last, self._seed = shard.batch_size(batch_size), drop_last, seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """The epoch that is read next: each has an order of its own."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[list[Any]]:
        order = draw_all(self.sampler, seed=self._seed, epoch=self._epoch)
        batches = in_batches(order, self._size, drop_last=self._drop_last)
        return self.shard.pick(islice(batches, self.shard.step(0), None))

    def __len__(self) -> int:
        length = len(self.sampler)
        return self.shard.count(length // self._size if self._drop_last else -(-length // self._size))


def cut_anew(batches: Iterable[Any], size: int) -> list[list[Any]]:
    """The same indices in batches of another size."""
    return list(in_batches((index for batch in batches for index in batch), size, drop_last=False))
