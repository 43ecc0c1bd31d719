"""A training that fails says where in the user's own code, and on which batch; the whole traceback is in the run."""

from __future__ import annotations

import contextlib
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from torch import nn

import luxmeter
from luxmeter.errors import LuxmeterError
from luxmeter.signature import describe
from luxmeter.train import loop

if TYPE_CHECKING:
    from luxmeter.train.trainer import Trainer

FILE = "traceback.txt"
_OURS = str(Path(luxmeter.__file__).parent)
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_MOST = 300  # characters of what was given
_OPENS = "(\n"  # in what a module with others inside prints, between its name and them


def explain(error: BaseException, trainer: Trainer) -> None:
    """Say which batch, module and callback it came from, keep all in the run, and leave the user's frames to be shown."""
    methods = (trainer.train_batch, trainer.eval_batch, trainer.test_batch)
    callback = trainer.callbacks.blamed(error.__traceback__, methods)
    if callback:
        error.add_note(f"It came from the callback {callback}.")
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return
    for note in surroundings(error, trainer):
        error.add_note(note)
    writer = trainer.experiment.writer if trainer.experiment is not None else None
    path = None
    if writer is not None:
        with contextlib.suppress(Exception):  # the error itself is what counts
            path = writer.put_file(FILE, "".join(traceback.format_exception(error)))
    frames = users_frames(error.__traceback__, _folder_of(type(trainer)))
    if frames is not None and not trainer.options.full_traceback:
        error.__traceback__ = frames
        if path is not None:
            error.add_note(f"The whole traceback: {path}")


def surroundings(error: BaseException, trainer: Trainer) -> Iterator[str]:
    """Which batch it was, what it held, and which module was given what: all that a message on shapes leaves open."""
    batch: tuple[str, int, Any] | None = None
    module: tuple[nn.Module, Any, Any] | None = None
    for tb in _chain(error.__traceback__):
        frame = tb.tb_frame
        if frame.f_code is loop.train_epoch.__code__:
            batch, module = ("train", trainer.position.idx, frame.f_locals.get("batch")), None
        elif frame.f_code is loop.evaluate.__code__:
            known = frame.f_locals
            batch, module = (known["which"], known.get("idx", 0), known.get("batch")), None
        elif frame.f_code is nn.Module._call_impl.__code__:
            module = frame.f_locals["self"], frame.f_locals["args"], frame.f_locals["kwargs"]
    if batch is not None:
        which, idx, data = batch
        held = "" if data is None else f": {_short(describe((data,)).text())}"
        yield f"It was {which} batch {idx} of epoch {trainer.position.eidx}{held}."
    if module is not None and not isinstance(error, LuxmeterError):
        kind, args, kwargs = module
        name = _name_of(kind, trainer)
        yield f"It was in {name}, which was given {_short(describe(args, kwargs).text())}."


def _name_of(module: nn.Module, trainer: Trainer) -> str:
    for attribute, model in trainer.models.items():
        for path, inner in model.named_modules():
            if inner is module:
                return f"{attribute}{'.' if path else ''}{path}, {_short(repr(inner).partition(_OPENS)[0])}"
    return _short(repr(module).partition(_OPENS)[0])


def _short(text: str) -> str:
    return text if len(text) <= _MOST else f"{text[:_MOST]}..."


def users_frames(given: TracebackType | None, own: str) -> TracebackType | None:
    """The traceback without the frames of Luxmeter and of installed packages, `own` excepted; None if nothing would be left."""
    chain: TracebackType | None = None
    for one in reversed(list(_chain(given))):
        file = one.tb_frame.f_code.co_filename
        if not _is_foreign(file) or (own and file.startswith(own)):
            chain = TracebackType(chain, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return chain


def _chain(given: TracebackType | None) -> Iterator[TracebackType]:
    while given is not None:
        yield given
        given = given.tb_next


def _is_foreign(file: str) -> bool:
    return file.startswith((_OURS, "<frozen")) or any(file.startswith(folder) for folder in _INSTALLED)


def _folder_of(kind: type) -> str:
    """Where the package of a user's class lies, which may be an installed one."""
    package = sys.modules.get(kind.__module__.partition(".")[0])
    file = getattr(package, "__file__", None)
    if package is luxmeter or not file or Path(file).name != "__init__.py":
        return ""
    return str(Path(file).parent)
