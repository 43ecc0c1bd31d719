"""torch's DataLoader with a position that can be saved and set (lux.DataLoader)."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import IterableDataset

from luxmeter.errors import CheckpointError, UsageError
from luxmeter.experiment.data.loader_fetch import (
    SampleFetch,
    StreamFetch,
    Ticket,
    draws_nothing,
    same,
    start_worker,
)
from luxmeter.experiment.data.loader_plan import (
    ComputedPlan,
    ListedPlan,
    Plan,
    SwappedRng,
    in_batches,
    plain_index,
    sampled_plan,
    sampler_chain,
    sampler_state,
    set_sampler_state,
    unpack,
)
from luxmeter.experiment.data.shard import Shard, ShardedPlan, cut_anew
from luxmeter.experiment.seed.rng_state import preserved_cpu_rng, stable_seed

T_co = TypeVar("T_co", covariant=True)

# History: 1 = epoch, step, seed, shape, sampler, and of the plan what its kind needs; of a rank's part, ranks: how many there were.
STATE_VERSION = 1


class Position(NamedTuple):
    """Epochs that are over, batches of this epoch handed out, and the indices of the batches still to come."""

    epoch: int
    step: int
    indices: list[Any] | None  # None where they cannot be listed: IterableDataset, samplers without an end


class DataLoader(TorchDataLoader[T_co]):
    """torch's DataLoader, with a position: state_dict(), load_state_dict(), get_state(), set_state().

    The order of an epoch depends on seed and epoch alone, the randomness inside a sample on seed, epoch and sample:
    neither on the number of workers nor on what training draws, and reading data leaves training's random state
    alone. The seed is the one of torch (fix_seed) when the first epoch begins, unless given.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        *args: Any,
        seed: int | None = None,
        seed_samples: bool = True,
        **options: Any,
    ) -> None:
        if options.get("in_order") is False:
            raise UsageError(
                "loader-order",
                "in_order=False hands batches out in an order that no position can describe.",
                "Leave in_order out.",
            )
        super().__init__(
            dataset, batch_size, shuffle, sampler, batch_sampler, num_workers, collate_fn, *args, **options
        )  # fmt: skip
        self._options = options
        self._given_seed = seed
        self._seed = seed
        self._seed_samples = seed_samples and not draws_nothing(dataset, self.collate_fn)
        self._iterable = isinstance(dataset, IterableDataset)
        self._shuffle = bool(shuffle)
        self._own_order = sampler is None and batch_sampler is None and not self._iterable
        self._chain = [] if self._own_order or self._iterable else sampler_chain(batch_sampler, sampler)
        self._epoch = 0
        self._step = 0
        self._shard: Shard | None = None
        self._begun = False  # has this epoch been iterated? Then the next iter() begins the following one
        self._turn = 0
        self._plan: Plan | None = None
        self._inner: TorchDataLoader[Any] | None = None
        self._running: Iterator[Any] | None = None
        self._cell = torch.zeros(3, dtype=torch.int64)
        self._stream_rng = SwappedRng()
        self._stream_state: Mapping[str, Any] | None = (
            None  # of a stateful IterableDataset, until it is begun
        )

    def read_here(self) -> None:
        """From the next epoch on read samples in this process, without workers: for a debugger."""
        self.num_workers, self.timeout = 0, 0
        self._options = {n: value for n, value in self._options.items() if n not in _OF_WORKERS}
        self._inner = None

    def shard(self, rank: int, ranks: int, *, even: bool = True, seed: int | None = None) -> None:
        """From the next epoch on read one rank's part; `even`: as many batches on each, for which a few samples come twice.

        `seed` takes the place of one that nobody gave: it must be the same on all ranks. A batch sampler of the user's and an
        IterableDataset are not sharded.
        """
        if self.batch_size is None or self._iterable:
            raise UsageError(
                "loader-shard",
                "A loader with a batch sampler, without batches or of an IterableDataset cannot be dealt out to ranks.",
                "Have its sampler or dataset give each rank its own part.",
            )
        if not 0 <= rank < ranks:
            raise UsageError("loader-shard", f"There is no rank {rank} of {ranks}.", "Ranks count from 0.")
        if self._seed is None and getattr(self, "generator", None) is None:
            self._seed = seed
        self._shard = Shard(rank, ranks, even)
        self._go_to(self._epoch, 0, None)

    @property
    def is_sharded(self) -> bool:
        """Whether it reads one rank's part."""
        return self._shard is not None

    def __len__(self) -> int:
        if self._shard is None:
            return super().__len__()
        length, size = len(self.sampler), self._shard.batch_size(self.batch_size or 1)  # type: ignore[arg-type]
        return self._shard.count(length // size if self.drop_last else -(-length // size))

    # The position

    @property
    def epoch(self) -> int:
        """The epoch that is read, or will be read next."""
        return self._epoch

    @property
    def step(self) -> int:
        """How many batches of this epoch were handed out."""
        return self._step

    @property
    def seed(self) -> int:
        """The seed of the order and of the samples."""
        if self._seed is None:
            generator = getattr(self, "generator", None)
            self._seed = int(torch.initial_seed() if generator is None else generator.initial_seed()) % 2**63
        return self._seed

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration read this epoch from its start (a position just restored in it stays)."""
        if epoch != self._epoch or self._begun:
            self._go_to(epoch, 0, None)

    def next_epoch(self) -> None:
        """Leave this epoch for good: after a `break`, so that a saved position is the start of the next one."""
        if self._begun or self._step:
            self._go_to(self._epoch + 1, 0, None)

    def get_state(self) -> Position:
        """(epoch, step, indices of the batches still to come in this epoch)."""
        rest = None if self._iterable else self._current_plan().rest(self._step)
        return Position(self._epoch, self._step, rest)

    def set_state(self, position: tuple[int, int, list[Any] | None]) -> None:
        """Go on at a position of get_state(): exactly its indices, then the next epochs as usual."""
        epoch, step, indices = position
        plan: Plan | None = None
        if indices is not None:
            plan = ListedPlan(seed=self.seed, epoch=epoch, batches=list(indices), first=step)
        self._check_step(epoch, step, plan)
        self._go_to(epoch, step, plan)

    def get_batch_data(self) -> Any:
        """The next batch, beginning the next epoch when this one is over."""
        for _ in range(2):
            if self._running is None:
                self._begin_epoch()
                self._running = self._open()
            batch = self._advance(self._running, self._turn)
            if batch is not _END:
                return batch
            self._running = None
        raise UsageError(
            "loader-empty", "The loader has no batch.", "Check the dataset, the sampler and drop_last."
        )

    def state_dict(self) -> dict[str, Any]:
        """Epoch, step, seed and what else the rest of this and all later epochs depend on."""
        state = {
            "luxmeter_loader": STATE_VERSION,
            "epoch": self._epoch,
            "step": self._step,
            "seed": self.seed,
            "shape": self._shape(),
            "sampler": sampler_state(self._chain),
            **({"ranks": self._shard.ranks} if self._shard is not None else {}),
        }
        if self._iterable:
            stream = self._stream_state
            if self._begun and self._stateful_stream():
                dataset: Any = self.dataset
                stream = {"dataset": dataset.state_dict(), "random": self._stream_rng.state}
            return state | {"plan": "stream", "stream": stream}
        if self._plan is None and (self._step == 0 or not self._own_order):
            return state | {"plan": "begin"}
        return state | self._current_plan().state(self._step)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where state_dict() was; refused when dataset, batches or sampler are not those of then."""
        if not isinstance(state, Mapping) or state.get("luxmeter_loader") != STATE_VERSION:
            raise CheckpointError(
                "loader-state",
                "This is not the position of a lux.DataLoader of this version.",
                "Pass what state_dict() of a lux.DataLoader gave.",
            )
        for name, now in self._shape().items():
            if state["shape"].get(name) != now:
                raise CheckpointError(
                    "loader-changed",
                    f"The loader's {name} was {state['shape'].get(name)!r} and is {now!r}: the position has no meaning.",
                    "Build the loader as it was, or begin an epoch anew with set_epoch().",
                )
        self._seed = int(state["seed"])
        epoch, step, kind = int(state["epoch"]), int(state["step"]), state["plan"]
        ranks, ranks_now = int(state.get("ranks", 1)), self._shard.ranks if self._shard is not None else 1
        step = step * ranks // ranks_now  # as much of the epoch is behind it
        plan: Plan | None = None
        set_sampler_state(self._chain, state["sampler_start"] if kind == "endless" else state["sampler"])
        if kind == "listed":
            rest, repeats = unpack(state["rest"]), unpack(state["repeats"])
            if ranks != ranks_now and self.batch_size is not None and rest:
                size = self._dealt_size()
                rest, repeats = cut_anew(rest, size), cut_anew(repeats, size)
            first = step if self._shard is None or self._shard.even else step * ranks_now
            plan = self._own(
                ListedPlan(seed=self.seed, epoch=epoch, first=first, batches=rest, repeats=repeats)
            )
        elif kind == "endless":
            plan = self._own(sampled_plan(self._chain, self._indices, seed=self.seed, epoch=epoch))
        elif kind == "computed":
            computed = self._computed(epoch)
            plan = self._own(computed)
            if computed.digest() != state["order"]:
                raise CheckpointError(
                    "loader-changed",
                    "This version of torch shuffles in another order: the position has no meaning here.",
                    "Use the torch that saved it, or begin an epoch anew with set_epoch().",
                )
        self._go_to(epoch, step, plan)
        self._stream_state = state.get("stream")

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self._begin_epoch()
        return _Epoch(self)

    def __getstate__(self) -> dict[str, Any]:
        """A copy goes on where this one stands, with workers of its own."""
        return {**vars(self), "_inner": None, "_running": None, "_begun": False}

    # Inside

    def _begin_epoch(self) -> None:
        if self._begun:
            self._go_to(self._epoch + 1, 0, None)
        self._begun = True
        self._turn += 1

    def _advance(self, batches: Iterator[Any], turn: int) -> Any:
        """The next batch, or _END; the position moves past it if it is still this turn's."""
        with self._apart():
            batch = next(batches, _END)
        if turn == self._turn:
            if batch is _END:
                self._go_to(self._epoch + 1, 0, None)
            else:
                self._step += 1
        return batch

    def _go_to(self, epoch: int, step: int, plan: Plan | None) -> None:
        self._epoch, self._step, self._plan = epoch, step, plan
        self._begun = False
        self._running = None
        self._stream_state = None
        self._turn += 1  # an iterator still around no longer moves the position

    def _current_plan(self) -> Plan:
        if self._plan is None:
            self._plan = self._own(
                self._computed(self._epoch)
                if self._own_order
                else sampled_plan(self._chain, self._indices, seed=self.seed, epoch=self._epoch)
            )
        return self._plan

    def _own(self, plan: Plan) -> Plan:
        return plan if self._shard is None else ShardedPlan(plan, self._shard)

    def _dealt_size(self) -> int:
        """Samples in a batch before it is dealt out to ranks."""
        return (
            self._shard.batch_size(self.batch_size or 1) if self._shard is not None else self.batch_size or 1
        )

    def _computed(self, epoch: int) -> ComputedPlan:
        return ComputedPlan(
            seed=self.seed, epoch=epoch, length=len(self.dataset), shuffle=self._shuffle,  # type: ignore[arg-type]
            batch_size=None if self.batch_size is None else self._dealt_size(), drop_last=self.drop_last,
        )  # fmt: skip

    def _indices(self) -> Iterator[Any]:
        """What the sampler gives now, as batches where there is automatic batching."""
        if self.batch_size is not None:
            return in_batches(self.sampler, self._dealt_size(), drop_last=self.drop_last)
        if self.batch_sampler is not None:
            return ([plain_index(index) for index in batch] for batch in self.batch_sampler)
        return (plain_index(index) for index in self.sampler)

    def _shape(self) -> dict[str, Any]:
        """What must be as it was for a position to mean the same."""
        shape: dict[str, Any] = {
            "batch_size": self.batch_size,
            "drop_last": self.drop_last,
            "shuffle": self._shuffle,
        }
        shape["samplers"] = len(self._chain)
        if self._iterable:
            # Batches of an IterableDataset come from the workers in turn: another number, another order.
            return shape | {"num_workers": self.num_workers}
        try:
            return shape | {"length of the dataset": len(self.dataset)}  # type: ignore[arg-type]
        except TypeError:
            return shape

    def _check_step(self, epoch: int, step: int, plan: Plan | None) -> None:
        if (
            epoch < 0
            or step < 0
            or (plan is None and self._own_order and step > self._computed(epoch).batches)
        ):
            raise UsageError(
                "loader-position",
                f"There is no position {(epoch, step)} in this loader.",
                "Pass one of get_state().",
            )

    def _stateful_stream(self) -> bool:
        has_state = callable(getattr(self.dataset, "state_dict", None))
        return (
            self.num_workers == 0 and has_state and callable(getattr(self.dataset, "load_state_dict", None))
        )

    def _open(self) -> Iterator[Any]:
        """torch's iterator over the rest of this epoch."""
        if self._inner is None:
            self._inner = self._build_inner()
        generator = self._inner.generator
        if generator is not None:
            generator.manual_seed(stable_seed("workers", self.seed, self._epoch))
        self._cell.copy_(torch.tensor([self.seed, self._epoch, int(self._seed_samples)]))
        if not self._iterable:
            return iter(self._inner)
        return self._open_stream(self._inner)

    def _open_stream(self, inner: TorchDataLoader[Any]) -> Iterator[Any]:
        self._stream_rng = SwappedRng()
        step = self._step
        if self._stream_state is not None:
            self.dataset.load_state_dict(self._stream_state["dataset"])  # type: ignore[attr-defined]
            self._stream_rng = SwappedRng(self._stream_state["random"])
            self._cell[2] = 0
            self._stream_state, step = None, 0
        iterator = iter(inner)
        for _ in range(step):  # a stream has no other way to a position than through what comes before it
            with self._apart():
                if next(iterator, _END) is _END:
                    raise CheckpointError(
                        "loader-replay",
                        f"The stream ended before batch {self._step}, where the position is.",
                        "A stream must give the same data in the same epoch for its position to be found again.",
                    )
        return iterator

    def _apart(self) -> AbstractContextManager[None]:
        """Around reading a batch: in the main process reading must not touch training's random state."""
        if self.num_workers > 0 or not self._seed_samples:
            return nullcontext()
        return self._stream_rng if self._iterable else preserved_cpu_rng()

    def _build_inner(self) -> TorchDataLoader[Any]:
        options = {name: value for name, value in self._options.items() if name in _PASSED_ON}
        options |= {"pin_memory": self.pin_memory, "timeout": self.timeout, "generator": torch.Generator()}
        if self.num_workers:
            options["worker_init_fn"] = partial(start_worker, self.worker_init_fn)
            options["multiprocessing_context"] = self.multiprocessing_context
            self._cell.share_memory_()  # type: ignore[no-untyped-call]
        if self._iterable:
            return TorchDataLoader(
                StreamFetch(self.dataset, self._cell), self.batch_size, drop_last=self.drop_last,
                num_workers=self.num_workers, collate_fn=self.collate_fn, **options,
            )  # fmt: skip
        fetch = SampleFetch(self.dataset, self.collate_fn, batched=self._auto_collation)
        return TorchDataLoader(
            fetch, None, sampler=_Tickets(self), num_workers=self.num_workers, collate_fn=same, **options
        )  # fmt: skip


_OF_WORKERS = ("prefetch_factor", "persistent_workers")
_PASSED_ON = (*_OF_WORKERS, "pin_memory_device")
_END = object()


class _Tickets:
    """The sampler of the inner loader: the tickets of whatever epoch is being read."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        # Weakly: a loader that is dropped is to end its workers at once, not when garbage is collected some day.
        self._loader = weakref.proxy(loader)

    def __iter__(self) -> Iterator[Ticket]:
        # Now, not at the first next(): by then the loader may be elsewhere.
        plan, step, seeding = self._loader._current_plan(), self._loader._step, self._loader._seed_samples
        return (ticket if seeding else ticket._replace(seed=None) for ticket in plan.tickets(step))

    def __len__(self) -> int:
        return len(self._loader)


class _Epoch:
    """Hands out batches and moves the loader's position: past a batch only when it is handed out."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._loader = loader
        self._turn = loader._turn
        self._batches: Iterator[Any] | None = loader._open()

    def __iter__(self) -> _Epoch:
        return self

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> Any:
        if self._batches is None:
            raise StopIteration
        batch = self._loader._advance(self._batches, self._turn)
        if batch is _END:
            self._batches = None  # lets the workers end
            raise StopIteration
        return batch
