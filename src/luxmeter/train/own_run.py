"""The run of a trainer: begun, gone on in from one training to the next, and ended, however that comes."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from luxmeter.errors import UsageError
from luxmeter.experiment import Experiment, Logger, Saver, folder_of, job_given, latest_order
from luxmeter.train import checkpoints
from luxmeter.train.dist import Group, broadcast_object, ensure_group, is_echo, note, recall
from luxmeter.train.failure import explain

if TYPE_CHECKING:
    from luxmeter.train.trainer import Trainer

_GONE_S, _THERE_S = (
    3.0,
    60.0,
)  # to wait for the shards of other ranks, if one of them has failed, or this one alone
_begun = 0  # runs, by this process, which is the first of several
_only_classes = False
_COUNTERS = ("eidx", "idx", "global_step")  # among the parameters, but no choice of anybody
# The run that goes on between the trainings of its trainer, which itself may be gone.
_open: tuple[Experiment, Logger, weakref.ref[Trainer]] | None = None


class _ClassesAreThere(BaseException):
    """A program has come to its training, and only what stands above that is wanted."""


@contextlib.contextmanager
def classes_alone() -> Iterator[None]:
    """Inside, a program that is run for its classes is left where it would begin a run: it may have no `__main__` guard."""
    global _only_classes
    _only_classes = True
    try:
        yield
    except _ClassesAreThere:
        pass
    finally:
        _only_classes = False


def begin(trainer: Trainer, name: str | PathLike[str] | None) -> Experiment:
    """The trainer's run: the one that goes on, or a new one, named as the last one if no name is given."""
    global _open
    if _only_classes:
        raise _ClassesAreThere
    state = trainer._training
    if state.experiment is not None and state.experiment.state == "running":
        if name is None or name == state.run_name:
            return state.experiment
        raise UsageError(
            "trainer-has-run",
            f"The run {state.experiment.name!r} of this trainer goes on, so initial_exp({str(name)!r}) begins no other.",
            "Call initial_exp before train, eval, test and cost; or close() first.",
        )
    close_open(but=trainer)
    group = group_of(trainer)
    state.run_name = state.run_name if name is None else name
    params = {key: value for key, value in trainer.params.to_dict().items() if key not in _COUNTERS}
    options = trainer.options
    experiment = Experiment(_experiment_name(trainer), params, tags=options.tags, quiet=options.quiet)
    before = _earlier_attempt(group)
    if before is not None:
        experiment.go_on_in(before["id"])
    experiment.start_exp()
    state.experiment = experiment
    try:
        trainer.initialise()
        is_main = group.rank == 0
        log = experiment.hold_exp_part("log", [".log"]) if is_main else None
        folder = experiment.hold_exp_part("save", [".ckpt", ".pth", ".shard"]) if is_main else None
        if group.world_size > 1:  # all of it lies where rank 0 says
            of_run = str(experiment.folder) if experiment.writer is not None else None
            log, folder, of_run = broadcast_object((log, folder, of_run))
            state.run_folder = Path(of_run) if of_run is not None and not is_main else None
            if state.run_folder is not None:
                experiment.join_run(state.run_folder)
        assert log is not None and folder is not None
        trainer.logger.add_log_dir(log)
        state.saver = Saver(folder, max_to_keep=options.max_to_keep)
        if is_main and experiment.writer is not None and before is None:
            note(_note_name(), {"id": experiment.id, "save": folder, "after": latest_order(Path(folder))})
        if group.world_size > 1:
            state.earlier = broadcast_object(before)
        checkpoints.remember(trainer)
    except BaseException as error:
        fail(trainer, error)
        raise
    _open = experiment, trainer.logger, weakref.ref(trainer)
    return experiment


def _earlier_attempt(group: Group) -> dict[str, Any] | None:
    """The run that an earlier attempt of this job made here, on rank 0: torchrun has started all ranks again.

    A program makes its runs in the same order in every attempt, so that they are known by their numbers.
    """
    global _begun
    if group.world_size == 1 or group.rank != 0 or job_given() is not None:
        return None
    _begun += 1
    found: dict[str, Any] | None = recall(_note_name())
    return found


def _note_name() -> str:
    return f"run/{_begun}"


def group_of(trainer: Trainer) -> Group:
    """The processes that it trains with: those that it was launched with, unless each is to train for itself."""
    return Group(0, 0, 1, "", "none") if trainer.options.parallel == "none" else ensure_group()


def _experiment_name(trainer: Trainer) -> str | Path:
    own, given = trainer.params._exp_name or type(trainer).__name__, trainer._training.run_name
    if given is None:
        return own
    folder = folder_of(given)
    return str(given) if folder is None else folder / own


def end(trainer: Trainer) -> None:
    """End it as finished, with all that was saved on disk."""
    state = trainer._training
    try:
        if state.saver is not None:
            state.saver.close()
    finally:
        trainer.logger.close()
        if state.experiment is not None:
            state.experiment.end_exp()


def fail(trainer: Trainer, error: BaseException) -> None:
    """End it with an error: callbacks hear of it, the run holds all of it, the user's frames are left to be shown."""
    state = trainer._training
    if state.experiment is None or state.experiment.state != "running":
        return  # it has ended with this error already
    if state.saver is not None and not isinstance(error, KeyboardInterrupt):  # who writes shards may be gone
        state.saver.give_up(_GONE_S if is_echo(error) else _THERE_S)
    try:
        for name, hook in zip(
            state.callbacks.hooks.names["on_exception"], state.callbacks.hooks["on_exception"], strict=True
        ):
            try:
                hook(trainer, error)
            except Exception as other:  # noqa: BLE001 - the first error is the one that counts
                error.add_note(f"Then {name}.on_exception failed: {type(other).__name__}: {other}")
    finally:  # whatever they do, a second Ctrl-C included
        explain(error, trainer)
        try:
            if state.saver is not None:
                state.saver.close()
        except Exception as other:  # noqa: BLE001
            error.add_note(str(other))
        finally:
            trainer.logger.close()
            state.experiment.end_exp(error)


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
