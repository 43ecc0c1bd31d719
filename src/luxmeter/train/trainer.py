"""Trainer: what a user subclasses to train, evaluate, test and predict in one run (lux.Trainer)."""

from __future__ import annotations

import contextlib
import signal
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from luxmeter.errors import UsageError, suggestion
from luxmeter.experiment import AvgMeter, BaseParams, Experiment, Logger, Saver, folder_of, get_rng_state
from luxmeter.model import ModelCost, analyze
from luxmeter.ranks import is_main
from luxmeter.train import checkpoints, loop, parts
from luxmeter.train.callbacks.callback import Callbacks, Hooks
from luxmeter.train.data import DataBundle, moved, to_device
from luxmeter.train.defaults import add_defaults, trace_callback
from luxmeter.train.failure import explained
from luxmeter.train.options import TrainerOptions, TrainerSettings, make_options
from luxmeter.train.own_params import with_own_params
from luxmeter.train.position import Pace, Position

if TYPE_CHECKING:
    from luxmeter.store import Run

_EVALUATED_BY = {"eval": "eval_batch", "test": "test_batch"}
# The run that goes on between the trainings of its trainer, which itself may be gone.
_open: tuple[Experiment, Logger, weakref.ref[Trainer]] | None = None


@dataclass
class _Training:
    """What belongs to the loop, not to the user's subclass."""

    options: TrainerOptions
    position: Position
    callbacks: Callbacks = field(default_factory=Callbacks)
    data: DataBundle = field(default_factory=DataBundle)
    meter: AvgMeter = field(default_factory=AvgMeter)
    meters: dict[str, AvgMeter] = field(default_factory=lambda: {"eval": AvgMeter(), "test": AvgMeter()})
    pace: Pace = field(default_factory=Pace)
    experiment: Experiment | None = None
    saver: Saver | None = None
    epochs: int | None = None
    steps: int | None = None
    skip: int = (
        0  # batches of the epoch that a resumed training has behind it and whose loader knows no position
    )
    epoch_random: Any = None  # the random state that such an epoch began with
    initialised: bool = False
    busy: bool = False
    stop: bool = False
    stop_epoch: bool = False
    interrupted: bool = False
    between_batches: bool = False  # when it was
    told: set[str] = field(default_factory=set)
    contexts: list[Callable[[], contextlib.AbstractContextManager[Any]]] = field(default_factory=list)


class Trainer:
    """A training, written as a class: initial_trainer makes models, optimizers and data, train_batch trains on one batch.

    `trainer = MyTrainer(params); trainer.initial_exp("./experiment"); trainer.train()`. Metrics, log, code, checkpoints and
    the position in the data are kept in one run; models, optimizers, schedulers and whatever else has a state_dict are
    found among the attributes and saved without being listed. A subclass may declare parameters of its own:
    `class Params(lux.BaseParams): alpha: float = 0.5`, which lie in `params.<group>`.
    """

    Params: ClassVar[type[BaseParams] | None] = None
    group: ClassVar[str] = ""

    def __init__(
        self, params: BaseParams | Mapping[str, Any] | None = None, **settings: Unpack[TrainerSettings]
    ) -> None:
        options = make_options(settings)
        self.params = with_own_params(type(self), params)
        self._training = _Training(options, Position(self.params))
        self.device = torch.device(self.params.get("device") or "cpu")
        self.logger = Logger(f"luxmeter.{type(self).__name__}", level="warning" if options.quiet else None)

    # -- what a subclass writes ------------------------------------------------------------------------------------

    def initial_trainer(self, params: Any) -> None:
        """Make models, optimizers and data: called once, by initial_exp."""

    def initial_callback(self) -> None:
        """Hook callbacks: called once, before initial_trainer. By default evaluation every epoch, a test every fifth, a log."""
        from luxmeter.train.callbacks.evaluation import EvalCallback
        from luxmeter.train.callbacks.logger import LoggerCallback

        EvalCallback(1, 5).hook(self)
        LoggerCallback(self.options.log_every).hook(self)

    def train_batch(
        self, eidx: int, idx: int, global_step: int, batch_data: Any, params: Any, device: torch.device
    ) -> Any:
        """Train on one batch and return a Meter; or return the loss alone: backward and step are made for you."""
        raise UsageError(
            "no-train-batch",
            f"{type(self).__name__} does not say how to train on a batch.",
            "Write train_batch(self, eidx, idx, global_step, batch_data, params, device), which returns a Meter or the loss.",
        )

    def eval_batch(
        self, eidx: int, idx: int, global_step: int, batch_data: Any, params: Any, device: torch.device
    ) -> Any:
        """Evaluate one batch and return a Meter. Without it there is no evaluation."""
        raise NotImplementedError

    def test_batch(
        self, eidx: int, idx: int, global_step: int, batch_data: Any, params: Any, device: torch.device
    ) -> Any:
        """Test on one batch; as eval_batch unless it is written."""
        return self.eval_batch(eidx, idx, global_step, batch_data, params, device)

    def predict_batch(self, batch_data: Any, params: Any, device: torch.device) -> Any:
        """What the model says of a batch. By default the one model is called with the batch, or with its first item."""
        model = self._one_model("predict_batch")
        return model(batch_data[0] if isinstance(batch_data, list | tuple) else batch_data)

    # -- what a user calls -----------------------------------------------------------------------------------------

    def initial_exp(self, name: str | PathLike[str] | None = None) -> Experiment:
        """Begin the run, and make callbacks, models and data.

        A folder (`./experiment`) holds one folder for each experiment, called as `params.build_exp_name` said; a name is
        the run's, whose parts then lie in the lab.
        """
        state = self._training
        if state.experiment is not None and state.experiment.state == "running":
            return state.experiment
        close_open(but=self)
        experiment = Experiment(
            self._experiment_name(name),
            {k: v for k, v in self.params.to_dict().items() if k not in ("eidx", "idx", "global_step")},
            tags=self.options.tags,
            quiet=self.options.quiet,
        )
        experiment.start_exp()
        state.experiment = experiment
        try:
            self._initialise()
            self.logger.add_log_dir(experiment.hold_exp_part("log", [".log"]))
            folder = experiment.hold_exp_part("save", [".ckpt", ".pth"])
            state.saver = Saver(folder, max_to_keep=self.options.max_to_keep)
            checkpoints.remember(self)
        except BaseException as error:
            self._fail(error, Hooks([]))
            raise
        global _open
        _open = experiment, self.logger, weakref.ref(self)
        return experiment

    def regist_databundler(self, train: Any = None, eval: Any = None, test: Any = None) -> None:
        """The data: a DataLoader (lux.DataLoader keeps its position), any iterable of batches, or a function that makes it."""
        self._training.data.register(
            {
                name: data
                for name, data in (("train", train), ("eval", eval), ("test", test))
                if data is not None
            }
        )

    register_data = regist_databundler

    def train(
        self,
        *,
        epochs: int | None = None,
        steps: int | None = None,
        resume: bool | int | str | PathLike[str] = False,
        trace: Any = None,
    ) -> AvgMeter:
        """Train to `epochs` (by default params.epoch) or to `steps` batches, whichever comes first; both count from the start.

        `resume`: go on from the latest checkpoint (True), that of a step, a file, or the latest one of another run. `trace`: a
        step, a range of steps or True (five of them): their API calls are traced into the run. Returns the last epoch's averages.
        """
        state = self._training
        self.initial_exp()
        state.epochs, state.steps = self._goal(epochs, steps)
        tracing = trace_callback(trace)
        if tracing is not None:
            tracing.hook(self)
        hooks = state.callbacks.hooks()
        try:
            with self._working(), self._listening_to_ctrl_c():
                hooks.call("setup", self)
                checkpoints.reopen(self)
                if resume is not False:
                    checkpoints.resume(self, resume)
                if self.is_over():
                    self.notice(f"Nothing is left to train: {self.position}, of {epochs or steps or state.epochs}.")
                loop.train(self, hooks)
        except BaseException as error:
            self._fail(error, hooks)
            raise
        finally:
            if tracing is not None and tracing in state.callbacks:
                tracing.unhook(self)
        return state.meter

    def eval(self) -> AvgMeter | None:
        """Evaluate on the eval data; the averages, or None for a Trainer without evaluation."""
        return self.evaluate("eval")

    def test(self) -> AvgMeter | None:
        """Evaluate on the test data."""
        return self.evaluate("test")

    def evaluate(self, which: str) -> AvgMeter | None:
        """One pass over the data called `which`, without gradients, in evaluation mode."""
        state = self._training
        self.initial_exp()
        if not self._can_evaluate(which):
            return None
        nested, hooks = state.busy, state.callbacks.hooks()
        try:
            with contextlib.nullcontext() if nested else self._working(), self._evaluating():
                loop.evaluate(self, hooks, which)
        except BaseException as error:
            if not nested:
                self._fail(error, hooks)
            raise
        return state.meters[which]

    def predict(self, data: Any) -> Any:
        """What predict_batch says of a batch; of a loader, a list of what it says of each."""
        if not self._training.initialised:
            self._initialise()
        with self._evaluating():
            if hasattr(data, "dataset") or isinstance(data, Iterator):
                return [self.predict_batch(b, self.params, self.device) for b in moved(data, self.device)]
            return self.predict_batch(to_device(data, self.device), self.params, self.device)

    def stop_train(self) -> None:
        """End the training after this batch."""
        self._training.stop = True

    def stop_current_epoch(self) -> None:
        """Go on with the next epoch after this batch."""
        self._training.stop_epoch = True

    def save_checkpoint(
        self, info: Mapping[str, Any] | None = None, *, kind: str = "checkpoint", epoch_done: bool = False
    ) -> str:
        """Save everything the training needs to go on bit by bit; returns the path."""
        self.initial_exp()
        return checkpoints.save(self, info, kind=kind, epoch_done=epoch_done)

    def load_checkpoint(self, source: bool | int | str | PathLike[str] = True) -> None:
        """Put back a checkpoint: the latest (True), that of a step, a file, or the latest one of another run."""
        self.initial_exp()
        self.callbacks.hooks().call("setup", self)
        checkpoints.resume(self, source)

    def cost(self, *inputs: Any) -> ModelCost:
        """What the model costs (lux.analyze) on these inputs, or on those of a batch of the training data."""
        self.initial_exp()
        model = self._one_model("cost")
        if not inputs:
            batch = to_device(checkpoints.peek(self.data, "train"), self.device)
            inputs = (batch[0] if isinstance(batch, list | tuple) else batch,)
        return analyze(model, *inputs)

    def close(self) -> None:
        """End the run. Without it the run ends with the program, or when another trainer's begins."""
        state = self._training
        if state.saver is not None:
            state.saver.close()
        self.logger.close()
        if state.experiment is not None:
            state.experiment.end_exp()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        if error is None:
            self.close()
        else:
            self._fail(error, Hooks([]))

    # -- what callbacks look at --------------------------------------------------------------------------------------

    @property
    def options(self) -> TrainerOptions:
        """What was chosen for this Trainer."""
        return self._training.options

    @property
    def callbacks(self) -> Callbacks:
        """The callbacks, in the order they are called."""
        return self._training.callbacks

    @property
    def position(self) -> Position:
        """The epoch, the batch in it, and the batches before."""
        return self._training.position

    @property
    def experiment(self) -> Experiment | None:
        """The run that is written; None before initial_exp."""
        return self._training.experiment

    @property
    def run(self) -> Run:
        """The run, to be read."""
        return self.initial_exp().run

    @property
    def saver(self) -> Saver:
        """Where checkpoints go."""
        self.initial_exp()
        assert self._training.saver is not None
        return self._training.saver

    @property
    def data(self) -> DataBundle:
        """The data by name."""
        return self._training.data

    @property
    def meter(self) -> AvgMeter:
        """The averages of the epoch that runs."""
        return self._training.meter

    @property
    def meters(self) -> dict[str, AvgMeter]:
        """The averages of the last evaluation and of the last test."""
        return self._training.meters

    @property
    def pace(self) -> Pace:
        """How long batches take."""
        return self._training.pace

    @property
    def models(self) -> dict[str, nn.Module]:
        """The modules among the attributes, by name."""
        return parts.models(self)

    @property
    def optimizers(self) -> list[Optimizer]:
        """The optimizers among the attributes."""
        return list(parts.optimizers(self).values())

    @property
    def schedulers(self) -> list[LRScheduler]:
        """torch's schedulers of learning rates among the attributes."""
        return list(parts.schedulers(self).values())

    @property
    def was_interrupted_between_batches(self) -> bool:
        """Whether Ctrl-C ended the training where a checkpoint can go on."""
        return self._training.between_batches

    def steps_in_all(self) -> int | None:
        """How many batches the training will have had at its end, if that is known."""
        state = self._training
        length = state.data.length("train")
        by_epochs = None if length is None or state.epochs is None else length * state.epochs
        known = [steps for steps in (by_epochs, state.steps) if steps is not None]
        return min(known) if known else None

    def metrics(self) -> dict[str, Any]:
        """The averages of this epoch, of the last evaluation and of the last test: `train/loss`, `eval/acc`, `test/acc`."""
        found = {"train": self.meter, **self.meters}
        return {
            f"{which}/{name}": value
            for which, meter in found.items()
            for name, value in meter.to_dict().items()
        }

    def metric(self, name: str) -> float:
        """One of `metrics()`, by its whole name or without its beginning: of the evaluation then, or of the training."""
        known = self.metrics()
        for whole in (name, f"eval/{name}", f"train/{name}", f"test/{name}"):
            if whole in known:
                return float(known[whole])
        raise UsageError(
            "no-such-metric",
            f"No metric {name!r} has come yet.",
            suggestion(name, known) or f"There are {', '.join(known) or 'none'}.",
        )

    def notice(self, text: str) -> None:
        """Say something once."""
        if text not in self._training.told:
            self._training.told.add(text)
            self.logger.info(text)

    def evaluating_with(self, context: Callable[[], contextlib.AbstractContextManager[Any]]) -> None:
        """Have every evaluation inside this context: averaged weights, say."""
        self._training.contexts.append(context)

    # -- what the loop asks ------------------------------------------------------------------------------------------

    @property
    def step(self) -> Callable[..., Any]:
        """train_batch as it is called for a batch: in mixed precision if that was chosen."""
        amp = self.options.amp
        if amp is None:
            return self.train_batch
        step: Callable[..., Any] = torch.autocast(self.device.type, dtype=getattr(torch, amp))(
            self.train_batch
        )
        return step

    def batches(self, which: str) -> Iterator[Any]:
        """The batches of an epoch, on the device; for a resumed epoch, those that are left."""
        state, is_empty = self._training, True
        source: Iterable[Any] = state.data[which]
        if which == "train":
            is_empty = not state.position.idx
            if state.skip:
                source = checkpoints.replayed(source, state)
            elif not isinstance(source, parts.HasState):  # its order is drawn here: to come to it again
                state.epoch_random = get_rng_state()
        for batch in moved(source, self.device):
            is_empty = False
            yield batch
        if is_empty:
            raise UsageError(
                "loader-empty",
                f"The {which} data gave no batch.",
                "Check the dataset, the sampler and drop_last; an iterator can be gone through only once.",
            )

    def batch_method(self, which: str) -> Callable[..., Any]:
        """eval_batch or test_batch."""
        method: Callable[..., Any] = getattr(self, _EVALUATED_BY[which])
        return method

    def is_over(self) -> bool:
        """Whether nothing is left to train."""
        state, at = self._training, self._training.position
        if state.steps is not None and at.global_step >= state.steps:
            return True
        return state.stop or (state.epochs is not None and at.eidx > state.epochs)

    def ends_epoch(self) -> bool:
        """Asked after each batch: whether the epoch ends here, before its data does."""
        state = self._training
        if state.interrupted:
            self.interrupt_if_asked()
        if state.stop or (state.steps is not None and state.position.global_step >= state.steps):
            state.position.cut = True
            return True
        if state.stop_epoch:
            state.stop_epoch = False
            leave = getattr(state.data["train"], "next_epoch", None)
            if leave is not None:
                leave()
            return True
        return False

    def interrupt_if_asked(self) -> None:
        """Between two batches: if Ctrl-C came, end as it says."""
        if self._training.interrupted:
            self._training.between_batches = True
            raise KeyboardInterrupt

    # -- inside ------------------------------------------------------------------------------------------------------

    def _experiment_name(self, name: str | PathLike[str] | None) -> str | Path:
        own = self.params._exp_name or type(self).__name__
        folder = None if name is None else folder_of(name)
        if folder is not None:
            return folder / own
        return own if name is None else str(name)

    def _initialise(self) -> None:
        state = self._training
        if state.initialised:
            return
        self.initial_callback()
        add_defaults(self)
        self.initial_trainer(self.params)
        for model in self.models.values():
            model.to(self.device)
            if self.options.compile:
                model.compile()
        state.initialised = True

    def _goal(self, epochs: int | None, steps: int | None) -> tuple[int | None, int | None]:
        for name, number in (("epochs", epochs), ("steps", steps)):
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
                raise UsageError(
                    "train-length", f"{name}={number!r} trains nothing.", "Give a whole number from 1 on."
                )
        if epochs is None and steps is None:
            epochs = int(self.params.get("epoch", 1))
        return epochs, steps

    def _can_evaluate(self, which: str) -> bool:
        kind = type(self)
        has_logic = kind.eval_batch is not Trainer.eval_batch or (
            which == "test" and kind.test_batch is not Trainer.test_batch
        )
        if has_logic and which in self.data:
            return True
        lacks = f"{which} data" if has_logic else f"{_EVALUATED_BY[which]}"
        self.notice(f"{kind.__name__} has no {lacks}: no {which} is made.")
        return False

    def _one_model(self, what: str) -> nn.Module:
        models = self.models
        trained = {name: m for name, m in models.items() if any(True for _ in m.parameters())} or models
        if len(trained) != 1:
            has = f"has {', '.join(trained)}" if trained else "has none"
            raise UsageError(
                "which-model",
                f"{what} needs one model, and {type(self).__name__} {has}.",
                "Call lux.analyze with the one you mean."
                if what == "cost"
                else f"Write {what} in your Trainer.",
            )
        return next(iter(trained.values()))

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        state = self._training
        if state.busy:
            raise UsageError(
                "trainer-busy", "This trainer is training already.", "Wait for its end, or make another one."
            )
        state.busy = True
        state.stop = state.stop_epoch = state.interrupted = state.between_batches = False
        try:
            yield
        finally:
            state.busy = False

    @contextlib.contextmanager
    def _evaluating(self) -> Iterator[None]:
        modes = [(inner, inner.training) for m in self.models.values() for inner in m.modules()]
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            if self.options.amp is not None:
                stack.enter_context(torch.autocast(self.device.type, dtype=getattr(torch, self.options.amp)))
            for context in self._training.contexts:
                stack.enter_context(context())
            try:
                for module, _ in modes:
                    module.training = False
                yield
            finally:
                for module, was in modes:
                    module.training = was

    @contextlib.contextmanager
    def _listening_to_ctrl_c(self) -> Iterator[None]:
        """The first Ctrl-C ends the training after the batch at hand, the second at once."""
        before = signal.getsignal(signal.SIGINT)
        is_main_thread = threading.current_thread() is threading.main_thread()
        if not is_main_thread or before is None or before == signal.SIG_IGN:
            yield
            return

        def stop_after_this(number: int, frame: FrameType | None) -> None:
            if self._training.interrupted:
                raise KeyboardInterrupt
            self._training.interrupted = True
            if is_main():
                self.logger.warn("Stopping after this batch (Ctrl-C again: at once)")

        signal.signal(signal.SIGINT, stop_after_this)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _fail(self, error: BaseException, hooks: Hooks) -> None:
        """What is done when a training fails: callbacks hear of it, the run holds all of it, the user's frames are shown."""
        state = self._training
        for hook in hooks["on_exception"]:
            try:
                hook(self, error)
            except Exception as other:  # noqa: BLE001 - the first error is the one that counts
                error.add_note(f"{getattr(hook, '__qualname__', hook)} failed, too: {other!r}")
        blamed = state.callbacks.blamed(error.__traceback__)
        experiment = state.experiment
        explained(error, blamed, experiment, whole=self.options.full_traceback)
        self.logger.close()
        if experiment is not None:
            experiment.end_exp(error)


def close_open(but: Trainer | None = None) -> None:
    """End the run that goes on between the trainings of another trainer."""
    global _open
    if _open is None:
        return
    experiment, logger, reference = _open
    trainer = reference()
    if trainer is None or (trainer is not but and not trainer._training.busy):
        _open = None
        logger.close()
        experiment.end_exp()
