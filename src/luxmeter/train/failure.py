"""A training that fails says where in the user's own code, and on which batch; the whole traceback is in the run."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from torch import nn

import luxmeter
from luxmeter.errors import LuxmeterError
from luxmeter.frames import OURS, frames, users_frames, with_causes
from luxmeter.signature import describe
from luxmeter.train import loop
from luxmeter.train.registries import config_key_of

if TYPE_CHECKING:
    from luxmeter.train.trainer import Trainer

P = ParamSpec("P")
T = TypeVar("T")
FILE = "traceback.txt"
_EXPLAINED = "luxmeter_explained"
# Where a config says what a module of a task is made of.
_MADE_BY = (
    (re.compile(r"task\.model\."), "task.sub_module_cfg."),
    (re.compile(r"task\.loss\."), "task.loss_cfg."),
)
_MOST = 300  # characters of what was given
_OPENS = "(\n"  # in what a module with others inside prints, between its name and them


def explain(error: BaseException, trainer: Trainer) -> None:
    """Say which batch, module and callback it came from, keep all in the run, and leave the user's frames to be shown."""
    vars(error)[_EXPLAINED] = True
    if isinstance(error, SystemExit):
        return
    others = (trainer.train_batch, trainer.eval_batch, trainer.test_batch, loop.evaluate)
    blamed = trainer.callbacks.blamed(error.__traceback__, others)
    if isinstance(error, KeyboardInterrupt):
        if blamed is not None:
            error.add_note(f"It came from the callback {blamed.text}.")
        leave_users_frames(error, trainer)
        return
    module = _module_at_work(error, trainer)
    key = config_key_of(error) or (blamed.key if blamed is not None else "") or _key_of(module)
    if key and (place := trainer._training.where(key)):
        error.add_note(f"It is of {place}.")
    if blamed is not None:
        error.add_note(f"It came from the callback {blamed.text}.")
    for note in surroundings(
        error, trainer, module, in_batch=blamed is None or blamed.hook.endswith("_batch")
    ):
        error.add_note(note)
    writer = trainer.experiment.writer if trainer.experiment is not None else None
    path = None
    if writer is not None:
        with contextlib.suppress(Exception):  # the error itself is what counts
            path = writer.put_file(FILE, "".join(traceback.format_exception(error)))
    has_users = users_frames(error.__traceback__, _folder_of(type(trainer))) is not None
    is_told = isinstance(
        error, LuxmeterError
    )  # what happened, and what to do: where we found it helps nobody
    if has_users or is_told or path is not None:
        leave_users_frames(error, trainer)
    if path is not None and not trainer.options.full_traceback and (has_users or not is_told):
        error.add_note(f"The whole traceback: {path}")


def shows_users_frames(method: Callable[P, T]) -> Callable[P, T]:
    """For what a user calls: an error that was explained, or is a message of ours, comes with the user's frames alone."""

    @functools.wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        training = vars(args[0]).get("_training")
        is_inside = (
            training is not None and training.busy
        )  # a training, which explains it with all its frames
        try:
            return method(*args, **kwargs)
        except BaseException as error:
            if not is_inside and (isinstance(error, LuxmeterError) or _EXPLAINED in vars(error)):
                leave_users_frames(error, args[0], is_full=bool(kwargs.get("full_traceback")))
            raise

    return called


def leave_users_frames(error: BaseException, trainer: Any, *, is_full: bool = False) -> None:
    """Take the frames of Luxmeter and of installed packages out of an error, and out of what it came of."""
    training = vars(trainer).get("_training")  # none while it is made
    if is_full or (training is not None and training.options.full_traceback):
        return
    own = _folder_of(type(trainer))
    for one in with_causes(error):
        if any(tb.tb_frame.f_code.co_filename.startswith(OURS) for tb in frames(one.__traceback__)):
            one.__traceback__ = users_frames(one.__traceback__, own)


def surroundings(
    error: BaseException, trainer: Trainer, module: tuple[str, Any, Any] | None, *, in_batch: bool
) -> Iterator[str]:
    """Which batch it was, what it held, and which module was given what: all that a message on shapes leaves open."""
    batch: tuple[str, int, Any] | None = None
    for tb in frames(error.__traceback__):
        frame = tb.tb_frame
        if frame.f_code is loop.train_epoch.__code__:
            batch = "train", trainer.position.idx, frame.f_locals.get("batch")
        elif frame.f_code is loop.evaluate.__code__:
            known = frame.f_locals
            batch = known["which"], known.get("idx", 0), known.get("batch")
    if batch is not None and in_batch and (batch[2] is not None or not isinstance(error, LuxmeterError)):
        which, idx, data = batch
        at = trainer.position
        epoch = at.eidx if which == "train" else at.begun_epoch
        held = "" if data is None else f": {_short(describe((data,)).text())}"
        yield f"It was {which} batch {idx} of epoch {epoch}{held}."
    if module is not None and not isinstance(error, LuxmeterError):
        name, args, kwargs = module
        yield f"It was in {name}, which was given {_short(describe(args, kwargs).text())}."


def _module_at_work(error: BaseException, trainer: Trainer) -> tuple[str, Any, Any] | None:
    """The innermost module that was called for the batch at hand: its name, and what it was given."""
    module: tuple[nn.Module, Any, Any] | None = None
    for tb in frames(error.__traceback__):
        frame = tb.tb_frame
        if frame.f_code in (loop.train_epoch.__code__, loop.evaluate.__code__):
            module = None
        elif frame.f_code is nn.Module._call_impl.__code__:
            module = frame.f_locals["self"], frame.f_locals["args"], frame.f_locals["kwargs"]
    return None if module is None else (_name_of(module[0], trainer), *module[1:])


def _key_of(module: tuple[str, Any, Any] | None) -> str:
    """The key of the config that made a module of a task: `task.model.head` is of `task.sub_module_cfg.head`."""
    name = "" if module is None else module[0].partition(",")[0]
    for pattern, key in _MADE_BY:
        if pattern.match(name):
            return pattern.sub(key, name)
    return ""


def _name_of(module: nn.Module, trainer: Trainer) -> str:
    for attribute, model in trainer.models.items():
        for path, inner in model.named_modules():
            if inner is module:
                return f"{attribute}{'.' if path else ''}{path}, {_short(repr(inner).partition(_OPENS)[0])}"
    return _short(repr(module).partition(_OPENS)[0])


def _short(text: str) -> str:
    return text if len(text) <= _MOST else f"{text[:_MOST]}..."


def _folder_of(kind: type) -> str:
    """Where the package of a user's class lies, which may be an installed one."""
    package = sys.modules.get(kind.__module__.partition(".")[0])
    file = getattr(package, "__file__", None)
    if package is luxmeter or not file or Path(file).name != "__init__.py":
        return ""
    return str(Path(file).parent)
