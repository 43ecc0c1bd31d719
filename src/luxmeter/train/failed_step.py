"""A step of a training that failed, put into its run with a script that makes it again."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from luxmeter import scratch
from luxmeter.errors import CheckpointError, LuxmeterError, UsageError
from luxmeter.experiment import BaseParams, Meter, Params, Saver, restore_state, set_rng_state
from luxmeter.files import read_json
from luxmeter.plain_text import one_line
from luxmeter.store import Run, RunWriter, inside, is_own, layout, number_of
from luxmeter.train import own_run, parts
from luxmeter.train.callbacks.callback import Callback
from luxmeter.train.callbacks.optimization import loss_of
from luxmeter.train.data import to_device
from luxmeter.train.nan_origin import check_given, name_infinities, stop_at_nan
from luxmeter.train.options import TrainerOptions

if TYPE_CHECKING:
    from luxmeter.train.trainer import Trainer

SCRIPT, RECORD, PARAMS_FILE = "replay.py", "step.json", "values.json"
FORMAT = 1  # of step.json; 1: step, epoch, batch, first, what, value, run, params


def save(
    trainer: Trainer,
    writer: RunWriter,
    *,
    what: str,
    value: float,
    batch: Any,
    random: Mapping[str, Any],
    state: Mapping[str, Any] | None,
    first: int,
    anomaly: bool,
) -> Path:
    """Put the step at hand into the run; returns its folder.

    `state`: the parts as they were before the step, None if they are lost. `first`: from this step on it may have begun.
    """
    at = trainer.position
    step, name = at.global_step, f"nan-{at.global_step:06d}"
    folder = inside(writer.folder / layout.FILES, name)
    saver = Saver(folder, max_to_keep=None, background=False)
    # A batch, or a part of the trainer, may hold objects that no checkpoint holds: then what there is without it.
    for before, held in ((state, batch), (state, None), (None, batch), (None, None)):
        failing = {"random": random, "batch": held, "modes": _modes(trainer)}
        try:
            saver.save_state(step, kind="keypoint", random=False, failing=failing, **(before or {}))
            break
        except (CheckpointError, UsageError) as error:
            trainer.logger.warn(f"The step cannot be kept as it is: {error.what}")
    checkpoint = None
    if trainer.saver.find_checkpoints():
        loaded = trainer.saver.load_latest_checkpoint()
        checkpoint = int(loaded.checkpoint["step"])
        saver.save_checkpoint(checkpoint, loaded.checkpoint, loaded.info)
    with contextlib.suppress(UsageError):  # parameters that no file holds: whoever replays gives them
        writer.put_file(f"{name}/{PARAMS_FILE}", trainer.params.to_json())
    record = {
        "format": FORMAT,
        "step": step,
        "epoch": at.eidx,
        "batch": at.idx,
        "first": first,
        "what": what,
        "value": str(value),
        "run": writer.id,
        "params": _reference(type(trainer.params)),
        "is_exact": before is not None,
    }
    writer.put_file(f"{name}/{RECORD}", json.dumps(record, indent=1))
    writer.put_file(f"{name}/{SCRIPT}", script(trainer, record, checkpoint, anomaly=anomaly))
    return folder


_SCRIPT = '''"""Step {step} (epoch {epoch}, batch {batch}) of the run {run}: its {what} was {value}.

This makes it again and stops at the call that makes the first such value:

{ways}
    python -m pdb replay.py               the same, to look around there

It takes {source} as it is now; luxmeter code {run} shows it as it was.
"""

import os
import sys
from pathlib import Path

from luxmeter.train import FailedStep

os.chdir({folder!r})  # where the training ran
sys.path[:0] = {folders!r}

step = FailedStep(Path(__file__).parent, trust=True)
{trainer_class}
trainer = {name}(step.params{options}, quiet=True, full_traceback=True)
step.replay(trainer, anomaly={anomaly}, from_checkpoint="--from-checkpoint" in sys.argv)
'''


def script(trainer: Trainer, record: Mapping[str, Any], checkpoint: int | None, *, anomaly: bool) -> str:
    """A program that makes the step again."""
    where = _reference(type(trainer))
    name = str(where["name"]).rpartition(".")[2]
    is_script = where["module"] == "__main__"
    source = where["file"] if is_script else where["module"]
    if where["file"] is None or "<locals>" in where["name"]:
        made = f'raise SystemExit("{where["name"]} is no class of a file: import it here, and remove this line.")'
    else:
        made = f"{name} = step.class_of({source!r}, {where['name']!r})"
    said = _options(trainer)
    unsaid = [key for key, text in said.items() if not text]
    made += "".join(
        f"\n# {key}={getattr(trainer.options, key)!r} was given, too: add it below" for key in unsaid
    )
    exact, training = (
        "the step, from the weights before it",
        f"the training, from its checkpoint of step {checkpoint} on",
    )
    return _SCRIPT.format(
        **{key: record[key] for key in ("step", "epoch", "batch", "run", "what", "value")},
        ways=f"    python replay.py                      {exact}\n    python replay.py --from-checkpoint    {training}"
        if record["is_exact"]
        else f"    python replay.py                      {training}",
        source=Path(source).name if is_script and source else source,
        folder=str(Path.cwd()),
        folders=where["folders"],
        trainer_class=made,
        name=name,
        options="".join(f", {key}={text}" for key, text in said.items() if text),
        anomaly=anomaly,
    )


def _options(trainer: Trainer) -> dict[str, str]:
    """The options that the trainer was given, as they are written in a program; empty if that cannot be."""
    default, left_out = TrainerOptions(), ("quiet", "full_traceback", "tags", "compile")
    given = {k: v for k, v in vars(trainer.options).items() if k not in left_out and v != getattr(default, k)}
    plain = (bool, int, float, str, type(None))
    return {key: repr(value) if isinstance(value, plain) else "" for key, value in given.items()}


class FailedStep:
    """What a run holds of a step that failed; see NaNGuard, whose `replay.py` uses it.

    Looking at it runs nothing. `trust`: that `params` may import the class that a run from elsewhere names.
    """

    def __init__(self, folder: str | PathLike[str], *, trust: bool = False) -> None:
        self.folder = Path(folder)
        self._trust = trust
        said: Any = read_json(self.folder / RECORD, {})
        if not isinstance(said, dict) or said.get("format") != FORMAT or not _fits(said):
            raise self._unknown()
        self.record: dict[str, Any] = said
        self._saver = Saver(self.folder)
        self._state = self._saver.load_latest_keypoint().checkpoint
        try:
            failing = self._failing
            if not isinstance(failing["modes"], Mapping) or not {"batch", "random"} <= set(failing):
                raise self._unknown()
        except (KeyError, TypeError, AttributeError) as error:
            raise self._unknown() from error

    def _unknown(self) -> CheckpointError:
        return CheckpointError(
            "failed-step-unknown",
            f"{self.folder} holds no step of a training that failed.",
            "Give the folder nan-<step> of a run, as NaNGuard made it.",
        )

    @property
    def batch(self) -> Any:
        """The batch; None if it could not be kept."""
        return self._failing["batch"]

    @property
    def params(self) -> BaseParams:
        """The parameters of the training. Their class is imported: that is code, as the training was."""
        file, where = self.folder / PARAMS_FILE, self.record["params"]
        if not file.is_file():
            raise UsageError(
                "failed-step-params",
                "The parameters of the training could not be kept.",
                "Give your Trainer its parameters here, in the place of step.params.",
            )
        kind = Params
        if where["module"] != Params.__module__:
            source = (where["file"] or "") if where["module"] == "__main__" else where["module"]
            if not self._trust and not _is_made_here(self.folder):
                raise UsageError(
                    "failed-step-foreign",
                    f"The parameters are a {one_line(where['name'])} of {one_line(source)}, which would be imported to read them, "
                    "and their run was not made here by you.",
                    "If you trust that code: FailedStep(folder, trust=True).",
                )
            kind = self.class_of(source, where["name"])
        return kind().from_file(file)

    def class_of(self, source: str, name: str) -> Any:
        """A class by name, of a module or of a script, which is not run as one, and left where it would begin a run."""
        if source.endswith(".py"):
            alias = f"replayed_{Path(source).stem}"
            if alias not in sys.modules:
                spec = importlib.util.spec_from_file_location(alias, source)
                if spec is None or spec.loader is None or not Path(source).is_file():
                    raise UsageError("failed-step-class", f"There is no file {source}.", "Correct its path.")
                sys.modules[alias] = module = importlib.util.module_from_spec(spec)
                with own_run.classes_alone():
                    spec.loader.exec_module(module)
            found: Any = sys.modules[alias]
        else:
            try:
                found = importlib.import_module(source)
            except (ImportError, ValueError) as error:
                raise UsageError(
                    "failed-step-class", f"{source} cannot be imported: {error}.", "Correct its name."
                ) from error
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is None:
            raise UsageError(
                "failed-step-class", f"{source} has no {name}.", "It was changed: correct its name."
            )
        return found

    def replay(self, trainer: Trainer, *, anomaly: bool = True, from_checkpoint: bool = False) -> Any:
        """Make the step again; raises where its first value that is not finite arises. Else returns what train_batch did.

        From the weights before the step if they were kept, otherwise (or on request) from the last checkpoint on, as often
        as it takes. With `anomaly`, the backward is watched by torch's detect_anomaly.
        """
        with _scratch_lab():
            try:
                trainer.initial_exp("replay")
                if from_checkpoint or not self.record["is_exact"] or self.batch is None:
                    result = self._go_on(trainer, anomaly)
                else:
                    result = self._make_step(trainer, anomaly)
            except Exception as error:
                name_infinities(error, self.batch)
                raise
            finally:
                trainer.close()
        sys.stdout.write(f"All was finite this time: {self.record['what']} {_shown(result)}\n")
        return result

    @property
    def _failing(self) -> Any:
        return self._state["parts"]["failing"]["value"]

    @property
    def _is_inf(self) -> bool:
        return not math.isnan(float(self.record["value"]))

    def _make_step(self, trainer: Trainer, anomaly: bool) -> Any:
        trainer.callbacks.hooks.call("setup", trainer)
        live = {name: one for name, one in parts.stateful(trainer).items() if name in self._state["parts"]}
        restore_state(self._state, live, random=False, path=str(self.folder), info={})
        for name, model in trainer.models.items():
            for module, is_training in zip(
                model.modules(), self._failing["modes"].get(name, ()), strict=False
            ):
                module.training = is_training
        at = {"eidx": self.record["epoch"], "idx": self.record["batch"], "global_step": self.record["step"]}
        trainer.position.load_state_dict({**trainer.position.state_dict(), **at})
        batch = to_device(self.batch, trainer.device)
        check_given(batch, trainer.models)
        set_rng_state(self._failing["random"])
        with stop_at_nan(inf=self._is_inf, anomaly=anomaly):
            result = trainer.batch_method("train")(*at.values(), batch, trainer.params, trainer.device)
            loss = result if isinstance(result, Tensor) else _loss(result)
            if isinstance(loss, Tensor) and loss.requires_grad and loss.grad_fn is not None:
                self._check_gradients(trainer, loss_of(result, type(trainer).__name__))
        return result

    def _check_gradients(self, trainer: Trainer, loss: Tensor) -> None:
        if any(weight.grad is not None for model in trainer.models.values() for weight in model.parameters()):
            return  # train_batch has gone back itself
        loss.backward()  # type: ignore[no-untyped-call]
        for name, model in trainer.models.items():
            for key, weight in model.named_parameters():
                if weight.grad is not None and not bool(torch.isfinite(weight.grad).all()):
                    raise LuxmeterError(
                        "nan-origin",
                        f"The gradient of {name}.{key} is not finite, though the loss is {_shown(loss)}.",
                        "No call of the backward made a nan of itself: it overflowed. Clip it, or lower the rate.",
                    )

    def _go_on(self, trainer: Trainer, anomaly: bool) -> Any:
        found = self._saver.find_checkpoints()
        if not found:
            raise CheckpointError(
                "failed-step-no-state",
                "Neither the weights before the step nor a checkpoint were kept.",
                "Train again with NaNGuard(exact=True).",
            )
        watch = _Watch(self.record["first"], inf=self._is_inf, anomaly=anomaly).hook(trainer)
        trainer.train(resume=found[-1], steps=self.record["step"] + 1)
        return watch.result


class _Watch(Callback):
    """Stops at the call that makes a nan, from a step on."""

    priority = -100

    def __init__(self, first: int, *, inf: bool, anomaly: bool) -> None:
        self.first = first
        self.result: Any = None
        self._how = {"inf": inf, "anomaly": anomaly}
        self._stack = contextlib.ExitStack()
        self._watches = False

    def before_batch(self, trainer: Trainer, batch: Any) -> None:
        """Begin to look."""
        if trainer.position.global_step < self.first:
            return
        check_given(batch, trainer.models)
        if not self._watches:
            self._stack.enter_context(stop_at_nan(**self._how))
            self._watches = True

    def after_batch(self, trainer: Trainer, result: Any) -> None:
        """Remember what came."""
        self.result = result

    def after_train(self, trainer: Trainer) -> None:
        """Look no longer."""
        self._stack.close()

    def on_exception(self, trainer: Trainer, error: BaseException) -> None:
        """Look no longer."""
        self._stack.close()


@contextlib.contextmanager
def _scratch_lab() -> Iterator[None]:
    """Inside, runs rest in a folder that goes."""
    before = os.environ.get("LUXMETER_HOME")
    with scratch.folder("replay") as folder:
        os.environ["LUXMETER_HOME"] = str(folder)
        try:
            yield
        finally:
            if before is None:
                os.environ.pop("LUXMETER_HOME", None)
            else:
                os.environ["LUXMETER_HOME"] = before


def _modes(trainer: Trainer) -> dict[str, list[bool]]:
    return {name: [inner.training for inner in model.modules()] for name, model in trainer.models.items()}


def _reference(kind: type) -> dict[str, Any]:
    """Where a class comes from: module, name, file, and the folders in which python has to look for it."""
    try:
        file: Path | None = Path(inspect.getfile(kind)).absolute()
    except (OSError, TypeError):  # of a notebook, or built in
        file = None
    folders = []
    if file is not None:
        depth = (
            0 if kind.__module__ == "__main__" else kind.__module__.count(".") + (file.name == "__init__.py")
        )
        folders.append(str(file.parents[depth]))
    return {
        "module": kind.__module__,
        "name": kind.__qualname__,
        "file": None if file is None or not file.is_file() else str(file),
        "folders": folders,
    }


def _is_made_here(folder: Path) -> bool:
    """Whether the run that holds the step is one of this user's own."""
    run_folder = folder.absolute().parents[1] if len(folder.absolute().parents) > 1 else folder
    try:
        return is_own(Run(run_folder).identity, run_folder)
    except LuxmeterError:
        return False


def _fits(said: Mapping[str, Any]) -> bool:
    """Whether a step's record has the types of those that were made: it may come from elsewhere."""
    where = said.get("params")
    return (
        all(type(said.get(name)) is int and 0 <= said[name] < 1 << 63 for name in ("step", "epoch", "batch", "first"))
        and all(isinstance(said.get(name), str) for name in ("what", "value", "run"))
        and isinstance(said.get("is_exact"), bool)
        and _is_float(said["value"])
        and isinstance(where, dict)
        and all(isinstance(where.get(name), str) for name in ("module", "name"))
        and isinstance(where.get("file"), str | None)
    )  # fmt: skip


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _loss(result: Any) -> Any:
    return result.get("loss") if isinstance(result, Meter | Mapping) else None


def _shown(result: Any) -> str:
    value = number_of(result if isinstance(result, Tensor) else _loss(result))
    return "" if value is None else f"{float(value):.6g}"
