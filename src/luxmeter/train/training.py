"""A training that goes on: where it stands, what ends it, and the batches that are left of its epoch."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from luxmeter.errors import UsageError
from luxmeter.experiment import AvgMeter, Experiment, Saver, get_rng_state, has_state, set_rng_state
from luxmeter.train import checkpoints
from luxmeter.train.callbacks.callback import Callbacks
from luxmeter.train.data import DataBundle, described, moved, set_epoch
from luxmeter.train.in_step import InStep
from luxmeter.train.options import TrainerOptions
from luxmeter.train.parallel import Replicas
from luxmeter.train.position import Pace, Phase, Position

if TYPE_CHECKING:
    from luxmeter.train.sharding import Shards


@dataclass
class Training:
    """What belongs to the loop, not to the user's subclass."""

    options: TrainerOptions
    position: Position
    callbacks: Callbacks = field(default_factory=Callbacks)
    data: DataBundle = field(default_factory=DataBundle)
    meter: AvgMeter = field(default_factory=AvgMeter)  # of this rank
    merged: AvgMeter | None = None  # of all ranks, at the end of an epoch
    meters: dict[str, AvgMeter] = field(default_factory=lambda: {"eval": AvgMeter(), "test": AvgMeter()})
    pace: Pace = field(default_factory=Pace)
    run_name: str | PathLike[str] | None = None
    experiment: Experiment | None = None
    run_folder: Path | None = None  # on a rank that has no run of its own, that of rank 0
    saver: Saver | None = None
    epochs: int | None = None
    steps: int | None = None
    skip: int = 0  # batches that a resumed epoch has behind it, of a loader that knows no position
    epoch_random: Any = None  # the random state that such an epoch began with
    random: Any = None  # that of a checkpoint: put back when nothing but batches draws any more
    initialised: bool = False
    busy: bool = False
    reading: bool = False  # the training data: between two batches, too
    stop: bool = False
    stop_epoch: bool = False
    interrupted: bool = False
    between_batches: bool = False  # when it was
    told: set[str] = field(default_factory=set)
    in_step: InStep | None = None  # with other ranks
    replicas: Replicas | Shards | None = None  # while they train
    earlier: dict[str, Any] | None = (
        None  # what an earlier attempt of this job has left, until it is gone on from
    )
    shards: Shards | None = None  # of parallel="fsdp"
    contexts: list[Callable[[], AbstractContextManager[Any]]] = field(default_factory=list)
    where: Callable[[str], str] = lambda key: (
        ""
    )  # file, line and key of the config that it comes of, if it does

    def is_over(self) -> bool:
        """Whether nothing is left to train."""
        at = self.position
        if self.steps is not None and at.global_step >= self.steps:
            return True
        return self.stop or (self.epochs is not None and at.eidx > self.epochs)

    def ends_epoch(self) -> bool:
        """Asked after each batch: whether the epoch ends here, before its data does."""
        if self.in_step is not None and self.in_step.is_due(self.position.global_step):
            self.exchange()
        if self.interrupted:
            self.interrupt_if_asked()
        if self.stop or (self.steps is not None and self.position.global_step >= self.steps):
            self.position.cut = True
            return True
        if self.stop_epoch:
            self.stop_epoch = False
            leave = getattr(self.data["train"], "next_epoch", None)
            if leave is not None:
                leave()
            return True
        return False

    def ask(self, what: str) -> None:
        """For "stop", "stop_epoch" or "interrupted": at once, or, with other ranks, when all have heard of it."""
        if self.in_step is None:
            setattr(self, what, True)
        else:
            self.in_step.asked.add(what)

    def is_asked(self, what: str) -> bool:
        """Whether that was asked for here, or holds."""
        return bool(getattr(self, what)) or (self.in_step is not None and what in self.in_step.asked)

    def exchange(self) -> None:
        """With other ranks: what any of them asks for holds on all from here on."""
        if self.in_step is not None:
            before_s = self.in_step.held_s
            for what in self.in_step.exchange(self.position.global_step):
                setattr(self, what, True)
            self.pace.leave_out(self.in_step.held_s - before_s)

    def look_around(self) -> None:
        """Where a checkpoint can go on: hear of what other ranks ask for, and end if Ctrl-C came."""
        self.exchange()
        self.interrupt_if_asked()

    def begin_epoch(self) -> None:
        """Its averages anew, unless it goes on in its middle; its gradients averaged over ranks as they are now."""
        self.merged = None
        if not self.position.idx:
            self.meter.reset()
        if self.replicas is not None:
            self.replicas.renew_if_changed()

    def merge_meter(self) -> AvgMeter:
        """The averages of the epoch: over all ranks, the same on each."""
        if self.in_step is None:
            return self.meter
        if self.merged is None:
            self.merged = self.meter.merge_ranks()
        return self.merged

    def merge_evaluation(self, which: str) -> AvgMeter:
        """The averages of an evaluation: over all ranks, of which some may have had fewer batches than others."""
        if self.shards is not None:
            self.shards.help_others()
        if self.in_step is not None:
            self.meters[which] = self.meters[which].merge_ranks()
            self.look_around()
        return self.meters[which]

    def interrupt_if_alone(self) -> None:
        """Inside an evaluation, which other ranks would go on with."""
        if self.in_step is None:
            self.interrupt_if_asked()

    def interrupt_if_asked(self) -> None:
        """Where a checkpoint can go on: if Ctrl-C came, end as it says."""
        if self.interrupted:
            self.between_batches = True
            raise KeyboardInterrupt

    def batches(self, which: str, device: torch.device) -> Generator[Any]:
        """The batches of an epoch, on the device; for a resumed epoch, those that are left. To be closed when it is left."""
        source: Iterable[Any] = self.data[which]
        if which == "train":
            return self._train_batches(source, device)
        is_trainings = source is self.data.made().get("train")
        if is_trainings and self.reading and has_state(source):
            raise UsageError(
                "data-shared",
                f"The {which} data is the very loader that the training reads at this moment.",
                f"Register a loader of its own: self.regist_databundler({which}=DataLoader(...)).",
            )
        is_inside = is_trainings and self.position.idx and self.position.phase is Phase.BATCHES
        return self._eval_batches(which, source, device, goes_back=bool(is_inside))

    def _eval_batches(
        self, which: str, source: Any, device: torch.device, *, goes_back: bool
    ) -> Generator[Any]:
        """All of them. Afterwards the loader stands behind them; before them if they were left, or `goes_back`."""
        before = source.state_dict() if has_state(source) else None
        is_empty = is_left = True
        if self.in_step is not None:
            is_empty = False  # there may be fewer batches than ranks
        try:
            for batch in moved(source, device):
                is_empty = False
                yield batch
            is_left = False
        finally:
            if before is not None and (is_left or goes_back):
                source.load_state_dict(before)
        if is_empty:
            raise _no_batch(which, source)

    def _train_batches(self, source: Iterable[Any], device: torch.device) -> Generator[Any]:
        if self.random is not None:
            set_rng_state(self.random)
            self.random = None
        is_empty = not self.position.idx
        if self.in_step is not None:
            set_epoch(source, self.position.eidx)
        if self.skip:
            batches: Iterable[Any] = checkpoints.replayed(source, self)
        else:
            batches = source
            if not has_state(source):  # its order is drawn here: to come to it again
                self.epoch_random = get_rng_state()
        self.reading = True
        try:
            for batch in moved(batches, device):
                is_empty = False
                yield batch
        except Exception:
            self.interrupt_if_asked()  # workers that were started afresh die of it
            raise
        finally:
            self.reading = False
        if is_empty:
            raise _no_batch("train", source)


@contextmanager
def ctrl_c_asks(ask: Callable[[], bool]) -> Iterator[None]:
    """Inside, Ctrl-C calls `ask`, and raises KeyboardInterrupt only if that says no: the second one stops at once.

    Only where Ctrl-C would raise it anyway: a handler of the program's own decides for itself. Processes that were forked
    meanwhile (workers that read data) hear it too, and go on: they end with this one.
    """
    owner = os.getpid()
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return

    def asked(number: int, frame: FrameType | None) -> None:
        if os.getpid() == owner and not ask():
            signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, asked)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is asked:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _no_batch(which: str, source: Any) -> UsageError:
    return UsageError(
        "loader-empty",
        f"The {which} data, {described(source)}, gave no batch.",
        "It can be gone through only once: give what can be gone through anew, or a function that makes it."
        if isinstance(source, Iterator)
        else "Check the dataset, the sampler, batch_size and drop_last.",
    )
