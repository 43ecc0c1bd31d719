"""Trainer: what a user subclasses to train, evaluate, test and predict in one run (lux.Trainer)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from os import PathLike
from typing import Any, ClassVar, Unpack

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from luxmeter.errors import UsageError, suggestion, warn_once
from luxmeter.experiment import (
    AvgMeter,
    BaseParams,
    Experiment,
    Logger,
    Saver,
    job_given,
    seed_everything,
    stable_seed,
)
from luxmeter.model import ModelCost, analyze
from luxmeter.ranks import is_main
from luxmeter.render import counted
from luxmeter.store import Run
from luxmeter.train import checkpoints, loop, own_run, parts
from luxmeter.train.callbacks.callback import Callbacks
from luxmeter.train.callbacks.evaluation import EvalCallback
from luxmeter.train.callbacks.logger import LoggerCallback
from luxmeter.train.callbacks.optimization import Optimization
from luxmeter.train.compiling import compile_in_place
from luxmeter.train.data import DataBundle, Dealer, moved, to_device
from luxmeter.train.defaults import add_defaults, check_options, trace_callback, usual_steps
from luxmeter.train.dist import Group, agree, broadcast_object
from luxmeter.train.failure import shows_users_frames
from luxmeter.train.in_step import InStep
from luxmeter.train.options import TrainerOptions, TrainerSettings, make_options
from luxmeter.train.own_params import with_own_params
from luxmeter.train.parallel import Replicas, identity, same_weights, shapes
from luxmeter.train.position import Pace, Position
from luxmeter.train.run_evaluation import evaluate_instead
from luxmeter.train.training import Training, ctrl_c_asks


class Trainer:
    """A training, written as a class: initial_trainer makes models, optimizers and data, train_batch trains on one batch.

    `trainer = MyTrainer(params); trainer.initial_exp("./experiment"); trainer.train()`. Metrics, log, code, checkpoints and
    the position in the data are kept in one run; models, optimizers, schedulers and whatever else has a state_dict are
    found among the attributes and saved without being listed. A subclass may declare parameters of its own:
    `class Params(lux.BaseParams): alpha: float = 0.5`, which lie in `params.<group>`.
    """

    Params: ClassVar[type[BaseParams] | None] = None
    group: ClassVar[str] = ""
    _how_to_optimize: ClassVar[str] = (
        "Make one in initial_trainer: self.optim = SGD(self.model.parameters(), lr=params.lr)."
    )

    @shows_users_frames
    def __init__(
        self, params: BaseParams | Mapping[str, Any] | None = None, **settings: Unpack[TrainerSettings]
    ) -> None:
        options = make_options(settings)
        self.params = with_own_params(type(self), params)
        self._training = Training(options, Position(self.params))
        self.device = device_of(self.params.get("device"))
        self.logger = Logger(f"luxmeter.{type(self).__name__}", level="warning" if options.quiet else "info")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in vars(cls).keys() & _READ:
            raise _taken(cls, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _TAKEN:
            raise _taken(type(self), name)
        object.__setattr__(self, name, value)

    # -- what a subclass writes ------------------------------------------------------------------------------------

    def initial_trainer(self, params: Any) -> None:
        """Make models, optimizers and data: called once, by initial_exp."""

    def initial_callback(self) -> None:
        """Hook callbacks: called once, before initial_trainer. By default evaluation every epoch, a test every fifth, a log."""
        self.callbacks.add_default(EvalCallback(1, 5))
        self.callbacks.add_default(LoggerCallback())

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

    @shows_users_frames
    def initial_exp(self, name: str | PathLike[str] | None = None) -> Experiment:
        """Begin the run, and make callbacks, models and data. While a run goes on, that one; without a name, as the last one.

        A folder (`./experiment`) holds one folder for each experiment, called as `params.build_exp_name` said; a name is
        the run's, whose parts then lie in the lab.
        """
        return own_run.begin(self, name)

    def regist_databundler(self, train: Any = None, eval: Any = None, test: Any = None) -> None:
        """The data: a DataLoader (lux.DataLoader keeps its position), any iterable of batches, or a function that makes it.

        A function is called when its data is first used.
        """
        given = {"train": train, "eval": eval, "test": test}
        self._training.data.register({name: data for name, data in given.items() if data is not None})

    register_data = regist_databundler

    @shows_users_frames
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
        goal, tracing = self._goal(epochs, steps), trace_callback(trace)
        self._refuse_if_busy()
        self.initial_exp()
        if (job := job_given()) is not None:  # of `luxmeter eval`
            return evaluate_instead(self, job)
        state.epochs, state.steps = goal
        try:
            with self._working(), ctrl_c_asks(self._ask_to_stop):
                check_options(self)
                state.data.demand("train")
                state.callbacks.hooks.call("setup", self)
                checkpoints.reopen(self)
                source = checkpoints.of_earlier_attempt(self) or resume
                if source is not False:
                    checkpoints.resume(self, source, keeps_random=True)
                if tracing is not None:
                    if trace is True:
                        tracing.steps = usual_steps(self.position.global_step)
                    tracing.hook(self)
                if state.in_step is not None:
                    agree(**{"number of training batches": self.data.length("train")})
                    state.replicas = Replicas(self) if state.shards is None else state.shards.begin()
                if self.is_over():
                    self.notice(f"Nothing is left to train: {self.position} is behind the end.")
                loop.train(self, state)
        except BaseException as error:
            own_run.fail(self, error)
            raise
        finally:
            if state.replicas is not None:
                state.replicas.end()
                state.replicas = None
            if tracing is not None and tracing in state.callbacks:
                tracing.unhook(self)
        return self.meter

    @shows_users_frames
    def eval(self) -> AvgMeter | None:
        """Evaluate on the eval data; the averages, or None for a Trainer without evaluation."""
        return self.evaluate("eval")

    @shows_users_frames
    def test(self) -> AvgMeter | None:
        """Evaluate on the test data."""
        return self.evaluate("test")

    @shows_users_frames
    def evaluate(self, which: str) -> AvgMeter | None:
        """One pass over the data called `which`, without gradients, in evaluation mode."""
        state = self._training
        if which not in state.meters:
            raise UsageError(
                "evaluate-what",
                f"There is no evaluation {which!r}.",
                suggestion(which, state.meters) or "There are eval and test.",
            )
        self.initial_exp()
        if not self._can_evaluate(which):
            return None
        if state.busy:  # inside a training, whose failure it is if this fails
            with self._evaluating():
                loop.evaluate(self, state, which)
            return state.meters[which]
        try:
            with self._working(), self._evaluating():
                loop.evaluate(self, state, which)
        except BaseException as error:
            own_run.fail(self, error)
            raise
        return state.meters[which]

    @shows_users_frames
    def predict(self, data: Any) -> Any:
        """What predict_batch says of a batch; of a loader, a list of what it says of each."""
        self.initialise()
        predict = self.batch_method("predict")
        with self._evaluating():
            if hasattr(data, "dataset") or isinstance(data, Iterator):
                found = [predict(batch, self.params, self.device) for batch in moved(data, self.device)]
            else:
                found = predict(to_device(data, self.device), self.params, self.device)
            if self._training.shards is not None:
                self._training.shards.help_others()
            return found

    def stop_train(self) -> None:
        """End the training after this batch; with several ranks, when all of them have heard of it (`agree_every`)."""
        self._training.ask("stop")

    def stop_current_epoch(self) -> None:
        """Go on with the next epoch after this batch; with several ranks, when all of them have heard of it."""
        self._training.ask("stop_epoch")

    @shows_users_frames
    def save_checkpoint(
        self, info: Mapping[str, Any] | None = None, *, kind: str = "checkpoint", epoch_done: bool = False
    ) -> str:
        """Save everything the training needs to go on bit by bit; returns the path."""
        return checkpoints.save(self, info, kind=kind, epoch_done=epoch_done)

    @shows_users_frames
    def load_checkpoint(self, source: bool | int | str | PathLike[str] = True) -> None:
        """Put back a checkpoint: the latest (True), that of a step, a file, or the latest one of another run."""
        self._refuse_if_busy()
        self.initial_exp()
        self.callbacks.hooks.call("setup", self)
        checkpoints.resume(self, source)

    @shows_users_frames
    def cost(self, *inputs: Any) -> ModelCost:
        """What the model costs (lux.analyze) on these inputs, or on those of a batch of the training data; into the run."""
        self.initial_exp()
        if self._training.shards is not None:
            raise UsageError(
                "fsdp-unfit",
                "The model is sharded over the ranks, and none of them can analyze it alone.",
                'Ask for its cost in one process, without parallel="fsdp".',
            )
        model = self._one_model("cost")
        if not inputs:
            if self._training.reading:
                raise UsageError(
                    "cost-while-training",
                    "The training data is being read, so that no batch of it can be looked at.",
                    "Pass the inputs, trainer.cost(inputs), or ask before or after the training.",
                )
            batch = to_device(checkpoints.peek(self.data, "train"), self.device)
            inputs = (batch[0] if isinstance(batch, list | tuple) else batch,)
        return analyze(model, *inputs)

    def close(self) -> None:
        """End the run. Without it the run ends with the program, or when another trainer's begins."""
        own_run.end(self)

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        if error is None:
            self.close()
        else:
            own_run.fail(self, error)

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
        """The run, to be read; after its end, and on every rank, too."""
        experiment = self.experiment or self.initial_exp()
        folder = self._training.run_folder
        return experiment.run if folder is None else Run(folder)

    @property
    def saver(self) -> Saver:
        """Where checkpoints go; after the run's end, where they went."""
        if self._training.saver is None:
            self.initial_exp()
        assert self._training.saver is not None
        return self._training.saver

    @property
    def data(self) -> DataBundle:
        """The data by name."""
        return self._training.data

    @property
    def meter(self) -> AvgMeter:
        """The averages of the epoch that runs; with several ranks those of this one, and at the epoch's end of all."""
        state = self._training
        return state.meter if state.merged is None else state.merged

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

    @property
    def is_interrupted(self) -> bool:
        """Whether Ctrl-C came: then the training ends after the batch at hand."""
        return self._training.is_asked("interrupted")

    def is_over(self) -> bool:
        """Whether nothing is left to train."""
        return self._training.is_over()

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

    def metric_name(self, name: str) -> str:
        """The whole name of one of `metrics()`: without its beginning it is the evaluation's, or the training's."""
        known = self.metrics()
        for whole in (name, f"eval/{name}", f"train/{name}", f"test/{name}"):
            if whole in known:
                return whole
        raise UsageError(
            "no-such-metric",
            f"No metric {name!r} has come yet.",
            suggestion(name, known) or f"There are {', '.join(known) or 'none'}.",
        )

    def metric(self, name: str) -> float:
        """One of `metrics()`, by its whole name or without its beginning."""
        whole = self.metric_name(name)
        return float(self.metrics()[whole])

    def notice(self, text: str) -> None:
        """Say something once."""
        if text not in self._training.told:
            self._training.told.add(text)
            self.logger.info(text)

    def evaluating_with(self, context: Callable[[], contextlib.AbstractContextManager[Any]]) -> None:
        """Have every evaluation inside this context: averaged weights, say."""
        self._training.contexts.append(context)

    def batch_method(self, which: str) -> Callable[..., Any]:
        """train_batch, eval_batch, test_batch or predict_batch, as it is called: in mixed precision if that was chosen."""
        method: Callable[..., Any] = getattr(self, f"{which}_batch")
        amp = getattr(self.callbacks.find(Optimization), "amp", None)
        method = method if amp is None else self._autocast(amp)(method)
        return method if self._training.shards is None else self._training.shards.told(method)

    def initialise(self) -> None:
        """Make callbacks, models and data, if that was not done yet: what initial_exp does apart from the run."""
        state = self._training
        if state.initialised:
            return
        before = list(state.callbacks)
        group = own_run.group_of(self)
        is_alone = group.world_size == 1
        if not is_alone:
            agree(**identity(self))
            if self.options.parallel == "fsdp" and self.options.compile:
                raise UsageError(
                    "fsdp-unfit",
                    f'parallel="fsdp" cannot be: a sharded model is not compiled (compile={self.options.compile!r}).',
                    "Leave one of them out.",
                )
        try:
            self.initial_callback()
            self.initial_trainer(self.params)
            add_defaults(self)
        except BaseException:
            for callback in [one for one in state.callbacks if not any(one is known for known in before)]:
                state.callbacks.remove(callback)  # another attempt hooks them anew
            raise
        for parameter in parts.loose(self).values():
            parameter.data = parameter.data.to(self.device)
        for model in self.models.values():
            model.to(self.device)
            if self.options.compile and any(True for _ in model.parameters()):
                compile_in_place(model, self.options.compile)
        for name, count in parts.homeless(self).items():
            warn_once(
                "unsaved-weights",
                f"{count} of the parameters that {type(self).__name__}.{name} trains belong to no model among its attributes.",
                "No checkpoint holds them. Make their model an attribute, or put it into a list, dict or dataclass that is one.",
                key=f"{type(self).__qualname__}.{name}",
            )
        if not is_alone:
            self._join(group)
        elif self.options.parallel == "fsdp":
            self.notice('parallel="fsdp": in one process nothing is sharded.')
        state.initialised = True

    # -- inside ------------------------------------------------------------------------------------------------------

    def _goal(self, epochs: int | None, steps: int | None) -> tuple[int | None, int | None]:
        own = self.params.get("epoch", 1) if epochs is None and steps is None else epochs
        for name, number in (("epochs" if own is epochs else "params.epoch", own), ("steps", steps)):
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
                raise UsageError(
                    "train-length", f"{name}={number!r} trains nothing.", "Give a whole number from 1 on."
                )
        return own, steps

    def _join(self, group: Group) -> None:
        """Train with other ranks: the same weights, a part of the data, and what is random each for itself."""
        state = self._training
        agree(**shapes(self))
        same_weights(self)
        if self.options.parallel == "fsdp":
            from luxmeter.train.sharding import (
                Shards,
            )  # loads a good deal of torch that no other training needs

            state.shards = Shards(self, group.world_size)
            state.contexts.insert(0, state.shards.evaluating)
        exchanged_on = self.device if group.backend == "nccl" else torch.device("cpu")
        state.in_step = InStep(group, exchanged_on, self.options.agree_every)
        seed = int(broadcast_object(torch.initial_seed())) % 2**63
        state.data.deal(Dealer(group.rank, group.world_size, seed, self.notice))
        if group.rank:  # what they draw for the same layer is not to be the same on all ranks
            seed_everything(stable_seed("rank", seed, group.rank))

    def _can_evaluate(self, which: str) -> bool:
        """Whether there are logic and data for "eval" or "test"; if not, that is said once."""
        kind = type(self)
        evaluates = kind.eval_batch is not Trainer.eval_batch
        if not evaluates and kind.test_batch is Trainer.test_batch:
            self.notice(f"{kind.__name__} has no eval_batch: it is not evaluated.")
        elif not evaluates and which == "eval":
            self.notice(f"{kind.__name__} has no eval_batch, only test_batch: it is tested, not evaluated.")
        elif which not in self.data:
            self.notice(f"{kind.__name__} has no {which} data: there is no {which}.")
        else:
            return True
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

    def _refuse_if_busy(self) -> None:
        if self._training.busy:
            raise UsageError(
                "trainer-busy", "This trainer is training already.", "Wait for its end, or make another one."
            )

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        self._refuse_if_busy()
        state = self._training
        state.busy = True
        state.stop = state.stop_epoch = state.interrupted = state.between_batches = False
        if state.in_step is not None:
            state.in_step.asked.clear()
        try:
            yield
        finally:
            state.busy = False

    @contextlib.contextmanager
    def _evaluating(self) -> Iterator[None]:
        models = list(self.models.values())
        modes = [(model, inner, inner.training) for model in models for inner in model.modules()]
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            for context in self._training.contexts:
                stack.enter_context(context())
            try:
                for model in models:
                    model.eval()
                yield
            finally:
                for model, inner, was in modes:
                    if inner is model and was:
                        model.train()  # a model may do more there than set a flag
                for _, inner, was in modes:
                    inner.training = was

    def _autocast(self, amp: str) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=getattr(torch, amp))

    def _ask_to_stop(self) -> bool:
        """By Ctrl-C: the first one ends the training after the batch at hand."""
        if self._training.is_asked("interrupted"):
            return False
        self._training.ask("interrupted")
        if is_main():
            self.logger.warn("Stopping after this batch (Ctrl-C again: at once)")
        return True


# What a subclass may set: all else of these names is the Trainer's own.
_OPEN = {
    "Params",
    "group",
    "initial_trainer",
    "initial_callback",
    "train_batch",
    "eval_batch",
    "test_batch",
    "predict_batch",
}
_TAKEN = frozenset(name for name in vars(Trainer) if not name.startswith("_") and name not in _OPEN)
_READ = frozenset(name for name in _TAKEN if isinstance(vars(Trainer)[name], property))


def _taken(kind: type, name: str) -> UsageError:
    return UsageError(
        "trainer-name",
        f"{kind.__name__} sets {name!r}, which every Trainer has: {str(vars(Trainer)[name].__doc__).partition('.')[0]}.",
        "Choose another name.",
    )


def device_of(given: Any) -> torch.device:
    """The device that a parameter names; one that is not here is refused."""
    try:
        device = torch.device(given or "cpu")
    except (RuntimeError, TypeError) as error:
        raise UsageError(
            "trainer-device",
            f"params.device is {given!r}: {str(error).partition(' at start')[0]}.",
            'Give one such as "cpu", "cuda" or "cuda:1".',
        ) from error
    if device.type == "cuda" and (device.index or 0) >= (there := torch.cuda.device_count()):
        raise UsageError(
            "trainer-device",
            f"params.device is {given!r}, and torch sees {counted(there, 'CUDA device')} here.",
            'Check the driver and CUDA_VISIBLE_DEVICES, or give another one: "cpu".',
        )
    return device
