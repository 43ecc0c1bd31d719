"""Which samples an epoch reads, in which batches: worked out before the first of them is read.

Because the plan of an epoch does not depend on workers or on what training draws meanwhile, a position is two
numbers: how many epochs are over and how many batches of this one were handed out.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate, pairwise
from typing import Any, Protocol

import numpy as np
import torch

from luxmeter.experiment.data.loader_fetch import Ticket
from luxmeter.experiment.seed.rng_state import (
    generator_state,
    get_rng_state,
    is_generator,
    preserved_cpu_rng,
    seed_everything,
    set_generator_state,
    set_rng_state,
    stable_seed,
)


class Plan(Protocol):
    """The batches of one epoch."""

    def tickets(self, step: int) -> Iterator[Ticket]:
        """The batches from a step on."""

    def rest(self, step: int) -> list[Any] | None:
        """The indices of the batches from a step on; None when they cannot be listed."""

    def state(self, step: int) -> dict[str, Any]:
        """What a later process needs to go on from a step."""


class ComputedPlan:
    """In order or shuffled: seed, epoch and length give the whole order."""

    def __init__(
        self, *, seed: int, epoch: int, length: int, shuffle: bool, batch_size: int | None, drop_last: bool
    ) -> None:
        self._epoch = epoch
        self._batch_size = batch_size
        self._seed = seed
        count = (
            length
            if batch_size is None
            else (length // batch_size if drop_last else -(-length // batch_size))
        )
        self.batches = count
        self._order: torch.Tensor | None = None
        if shuffle:
            generator = torch.Generator().manual_seed(stable_seed("shuffle", seed, epoch))
            self._order = torch.randperm(length, generator=generator)
        self._length = length

    def tickets(self, step: int) -> Iterator[Ticket]:
        for number in range(step, self.batches):
            yield Ticket(self._seed, self._epoch, self._batch(number), None)

    def rest(self, step: int) -> list[Any] | None:
        return [self._batch(number) for number in range(step, self.batches)]

    def state(self, step: int) -> dict[str, Any]:
        return {"plan": "computed", "order": self.digest()}

    def digest(self) -> str:
        """Tells whether another version of torch shuffles in another order."""
        order = self._order
        return "in order" if order is None else hashlib.sha256(order.numpy().tobytes()).hexdigest()

    def _batch(self, number: int) -> Any:
        if self._batch_size is None:
            return number if self._order is None else int(self._order[number])
        start, end = number * self._batch_size, min((number + 1) * self._batch_size, self._length)
        return list(range(start, end)) if self._order is None else self._order[start:end].tolist()


class ListedPlan:
    """What a sampler gave, written down at the start of the epoch: whatever it drew from, the rest is known."""

    def __init__(
        self, *, seed: int, epoch: int, batches: list[Any], first: int = 0, repeats: list[Any] | None = None
    ) -> None:
        self._seed = seed
        self._epoch = epoch
        self._batches = batches
        self._first = first  # the step of batches[0]: a resumed epoch knows only its rest
        self._repeats = _count_repeats(batches) if repeats is None else repeats
        self._packed: tuple[PackedLists, PackedLists] | None = None
        self.batches = first + len(batches)

    def tickets(self, step: int) -> Iterator[Ticket]:
        for position in range(step - self._first, len(self._batches)):
            repeats = tuple(self._repeats[position]) if self._repeats else None
            yield Ticket(self._seed, self._epoch, self._batches[position], repeats)

    def rest(self, step: int) -> list[Any] | None:
        return list(self._batches[step - self._first :])

    def state(self, step: int) -> dict[str, Any]:
        if self._packed is None:  # once an epoch: later states are slices of it
            self._packed = PackedLists(self._batches), PackedLists(self._repeats)
        start = step - self._first
        return {
            "plan": "listed",
            "rest": self._packed[0].since(start),
            "repeats": self._packed[1].since(start),
        }


class PackedLists:
    """Many short lists of whole numbers as two tensors, so that a checkpoint holds two entries and not thousands."""

    def __init__(self, lists: list[Any]) -> None:
        self._lists = lists
        self._flat: torch.Tensor | None = None
        if all(isinstance(one, list | tuple) and set(map(type, one)) <= {int} for one in lists):
            self._starts = list(accumulate((len(one) for one in lists), initial=0))
            self._flat = torch.tensor([number for one in lists for number in one], dtype=torch.int64)
            self._lengths = torch.tensor([len(one) for one in lists], dtype=torch.int64)

    def since(self, start: int) -> Any:
        """The lists from a position on, as unpack() takes them."""
        if self._flat is None:
            return {"lists": self._lists[start:]}
        first = self._starts[min(start, len(self._lists))]
        return {"numbers": self._flat[first:], "lengths": self._lengths[start:]}


def unpack(packed: Mapping[str, Any]) -> list[Any]:
    """The lists that PackedLists.since() gave."""
    if "lists" in packed:
        return list(packed["lists"])
    numbers: list[int] = packed["numbers"].tolist()
    bounds = list(accumulate(packed["lengths"].tolist(), initial=0))
    return [numbers[start:end] for start, end in pairwise(bounds)]


class EndlessPlan:
    """A sampler without a length: batches are drawn as they are needed, and drawn again to resume."""

    def __init__(
        self, *, seed: int, epoch: int, source: Callable[[], Iterable[Any]], start: list[dict[str, Any]]
    ) -> None:
        self._seed = seed
        self._epoch = epoch
        self._source = source
        self._start = start  # the state of the sampler before the first draw

    def tickets(self, step: int) -> Iterator[Ticket]:
        swapped, seen = SwappedRng(), Counter[Any]()
        with swapped:
            seed_everything(stable_seed("sampler", self._seed, self._epoch), accelerators=False)
            drawn = iter(self._source())
        number = 0
        while True:
            with swapped:
                batch = next(drawn, _END)
            if batch is _END:
                return
            repeats = _repeats_of(batch, seen)
            if number >= step:
                yield Ticket(self._seed, self._epoch, batch, repeats if any(repeats) else None)
            number += 1

    def rest(self, step: int) -> list[Any] | None:
        return None

    def state(self, step: int) -> dict[str, Any]:
        return {"plan": "endless", "sampler_start": self._start}


_END = object()


class SwappedRng:
    """A random state of its own for something that draws in the main process, between whose turns training draws."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self.state = state

    def __enter__(self) -> None:
        self._outside = get_rng_state(modules={})
        if self.state is not None:
            set_rng_state(self.state, modules={})

    def __exit__(self, *_: object) -> None:
        self.state = get_rng_state(modules={})
        set_rng_state(self._outside, modules={})


def sampled_plan(chain: list[Any], source: Callable[[], Iterable[Any]], *, seed: int, epoch: int) -> Plan:
    """The plan of an epoch of the user's samplers, told the epoch if they want to know it (DistributedSampler)."""
    for sampler in chain:
        if callable(getattr(sampler, "set_epoch", None)):
            sampler.set_epoch(epoch)
    try:
        len(chain[0])
    except (TypeError, NotImplementedError):
        return EndlessPlan(seed=seed, epoch=epoch, source=source, start=sampler_state(chain))
    return ListedPlan(seed=seed, epoch=epoch, batches=draw_all(source(), seed=seed, epoch=epoch))


def draw_all(source: Iterable[Any], *, seed: int, epoch: int) -> list[Any]:
    """All that a sampler gives, drawn from a random state of its own and not from training's."""
    with preserved_cpu_rng():
        seed_everything(stable_seed("sampler", seed, epoch), accelerators=False)
        return list(source)


def plain_index(index: Any) -> Any:
    """The number that a sampler gave as a tensor or a numpy scalar."""
    if isinstance(index, np.integer) or (isinstance(index, torch.Tensor) and index.ndim == 0):
        return index.item()
    return index


def in_batches(indices: Iterable[Any], batch_size: int, *, drop_last: bool) -> Iterator[list[Any]]:
    """Lists of batch_size indices; a shorter last one is dropped or not."""
    batch: list[Any] = []
    for index in indices:
        batch.append(plain_index(index))
        if len(batch) == batch_size:
            yield batch
            batch = []
    if batch and not drop_last:
        yield batch


def sampler_chain(*samplers: Any) -> list[Any]:
    """The samplers that may hold state: those given and the ones inside them."""
    chain: list[Any] = []
    for sampler in samplers:
        while sampler is not None and all(sampler is not known for known in chain):
            chain.append(sampler)
            sampler = getattr(sampler, "sampler", None)
    return chain


def sampler_state(chain: list[Any]) -> list[dict[str, Any]]:
    """state_dict() of each sampler that has one, otherwise the generators it holds as attributes."""
    states: list[dict[str, Any]] = []
    for sampler in chain:
        if callable(getattr(sampler, "state_dict", None)):
            states.append({"state": sampler.state_dict()})
        else:
            held = {
                name: value for name, value in getattr(sampler, "__dict__", {}).items() if is_generator(value)
            }
            saved: dict[str, Any] = {
                "generators": {name: generator_state(value) for name, value in held.items()}
            }
            if callable(getattr(sampler, "set_epoch", None)) and isinstance(
                getattr(sampler, "epoch", None), int
            ):
                saved["epoch"] = sampler.epoch  # DistributedSampler
            states.append(saved)
    return states


def set_sampler_state(chain: list[Any], states: list[dict[str, Any]]) -> None:
    """Put back what sampler_state() gave."""
    for sampler, saved in zip(chain, states, strict=True):
        if "state" in saved:
            sampler.load_state_dict(saved["state"])
        else:
            for name, state in saved["generators"].items():
                set_generator_state(getattr(sampler, name), state)
            if "epoch" in saved:
                sampler.set_epoch(saved["epoch"])


def _count_repeats(batches: list[Any]) -> list[Any]:
    """For every batch how often each of its samples came before; empty when no sample comes twice."""
    seen: Counter[Any] = Counter()
    counted = [_repeats_of(batch, seen) for batch in batches]
    return counted if any(count > 1 for count in seen.values()) else []


def _repeats_of(batch: Any, seen: Counter[Any]) -> tuple[int, ...]:
    counts = []
    for index in batch if isinstance(batch, list) else [batch]:
        key = index if isinstance(index, int) else repr(index)
        counts.append(seen[key])
        seen[key] += 1
    return tuple(counts)
