"""`luxmeter eval RUN`: a run's Trainer with the weights of a checkpoint, evaluated; nothing is trained, and no run is made.

The run's program is started with the code it captured, its command and a job (experiment/reproduce): it goes as far as the
training of the run's Trainer, whatever kind of script makes that, and there it is evaluated instead. Other trainers on the way
are made, and not trained.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any

from luxmeter import scratch
from luxmeter.errors import CheckpointError, LuxmeterError, StoreError, UsageError
from luxmeter.experiment import hide_params, lab_of, plain_params, start_for_job
from luxmeter.files import read_json, sha256_of, to_json, write_json
from luxmeter.plain_text import plain
from luxmeter.ranks import is_main
from luxmeter.store import FileChange, Run, blob_path, number_of, put_result, results_into
from luxmeter.torch_extra import require_torch
from luxmeter.train.evaluation import FILE, FORMAT, Evaluation, read_evaluation

if TYPE_CHECKING:
    from luxmeter.experiment import AvgMeter
    from luxmeter.train.trainer import Trainer

ON = ("eval", "test")
RECORD = "trainer.json"  # what checkpoints.remember wrote
_RESULT, _PASSED = "result.json", "passed.jsonl"
_LAST_LINES = 20
_MACHINES_OWN = ("device",)  # a parameter that may be another one here
_CHECKPOINT = re.compile(r"(keep\.)?[0-9]{1,18}\.ckpt")


def evaluate_run(
    run: Run,
    *,
    on: str = "eval",
    checkpoint: str = "latest",
    keep: bool = True,
    links: Sequence[str] = (),
    folder: Path | None = None,
    python: str = "",
    quiet: bool = False,
    trust: bool = False,
) -> Evaluation:
    """Evaluate a run's Trainer with its `latest` or `best` checkpoint, that of a step, or a file; into the run, unless not `keep`.

    `links`, `folder`, `python` and `trust` are those of `start_rerun`; what the program prints goes to stderr, unless `quiet`.
    """
    require_torch("luxmeter eval")
    if on not in ON:
        raise UsageError("eval-on", f"There is no {on!r} data to evaluate on.", "Use eval or test.")
    record = trainer_record(run)
    command = run.command
    if command is None or command.interactive:
        raise StoreError(
            "eval-no-program",
            f"Run {run.id} was made in a notebook or a console: there is no program to start.",
            f"Evaluate it there: trainer.load_checkpoint({run.id!r}); trainer.eval().",
        )
    _check_checkpoint(run, checkpoint)
    with scratch.folder("eval") as place:
        job = {
            "job": "eval",
            "run": str(run.folder),
            "class": record["class"],
            "on": on,
            "checkpoint": _absolute(checkpoint),
            "answers": str(place),
            "any": False,
        }
        found = _started(run, job, place, links, folder, python, quiet=quiet, trust=trust)
        if found is None:
            passed = _passed(place)
            if len(passed) != 1:
                raise _not_reached(run, record, passed)
            # One Trainer of that class alone, though with other parameters (a random one, a path): it must be that.
            found = _started(
                run, {**job, "any": True}, place, links, folder, python, quiet=quiet, trust=trust
            )
            if found is None:
                raise _not_reached(run, record, passed)
    if keep:
        with results_into(run.folder):
            put_result("eval", found.title, FILE, found.save)
    return found


def trainer_record(run: Run) -> dict[str, Any]:
    """What the run remembers of its Trainer: class, options, save."""
    record: Any = read_json(run.folder / "files" / RECORD)
    fits = isinstance(record, dict) and all(isinstance(record.get(key), str) for key in ("class", "save"))
    if not fits or not _is_path(record["save"]):
        raise StoreError(
            "run-without-trainer",
            f"The run {run.name} ({run.id}) was not made by a Trainer.",
            "Name one that was: luxmeter runs lists them.",
        )
    return dict(record)


def _is_path(text: str) -> bool:
    """Whether the system could have such a path."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _absolute(checkpoint: str) -> str:
    """The program runs in another folder."""
    return str(Path(checkpoint).absolute()) if Path(checkpoint).is_file() else checkpoint


def _check_checkpoint(run: Run, checkpoint: str) -> None:
    """What cannot work is told before a program is started."""
    if Path(checkpoint).is_file():
        return
    if checkpoint not in ("latest", "best") and not checkpoint.isdecimal():
        raise UsageError(
            "eval-checkpoint",
            f"{checkpoint!r} is neither a checkpoint's step nor a file.",
            "Use latest, best, a step such as 120, or a path.",
        )
    folder = _save_folder(run)
    if not any(folder.glob("*.ckpt")) and not _owned(run):
        raise CheckpointError(
            "checkpoint-absent",
            f"The run {run.name} ({run.id}) has no checkpoint in {folder}.",
            "Train it with checkpoints on, or name a file with --checkpoint.",
        )


def _started(
    run: Run,
    job: Mapping[str, Any],
    place: Path,
    links: Sequence[str],
    folder: Path | None,
    python: str,
    *,
    quiet: bool,
    trust: bool,
) -> Evaluation | None:
    """Start the program; what it found. None if it made no such Trainer."""
    with TemporaryFile(dir=place) as said:
        code = start_for_job(
            run,
            lab_of(run),
            job,
            folder=folder,
            links=links,
            python=python,
            output=said.fileno() if quiet else None,
            trust=trust,
        )
        told = read_json(place / _RESULT, {})
        answer = told if isinstance(told, dict) else {}
        if isinstance(answer.get("error"), list) and len(answer["error"]) == 3:
            raise StoreError(*map(str, answer["error"]))
        if "metrics" in answer:
            return read_evaluation(answer, place / _RESULT)
        if code:
            raise StoreError(
                "eval-failed",
                f"The program of run {run.id} ended with {code} before it was evaluated.{_tail(said) if quiet else ''}",
                "Mend what it says above; files that lay beside its code (data) come with --link.",
            )
    return None


def _tail(said: IO[bytes]) -> str:
    said.seek(0, os.SEEK_END)
    said.seek(max(0, said.tell() - 10_000))
    lines = plain(said.read().decode("utf-8", "replace")).strip().splitlines()[-_LAST_LINES:]
    return "".join(f"\n  {line}" for line in ["It said:", *lines]) + "\n"


def _passed(place: Path) -> list[str]:
    """The Trainers of the class that were made and passed over: what their parameters are in place of the run's."""
    file = place / _PASSED
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []


def _not_reached(run: Run, record: Mapping[str, Any], passed: Sequence[str]) -> StoreError:
    kind = str(record["class"]).rpartition(":")[2]
    if not passed:
        return StoreError(
            "eval-not-reached",
            f"The program of run {run.id} ended without training a {kind}.",
            "It did so when the run was made: see what it reads that is another now, or bring it with --link.",
        )
    return StoreError(
        "eval-not-reached",
        f"The program of run {run.id} made {len(passed)} of {kind}, none with the run's parameters: {'; '.join(passed[:3])}.",
        "Load the checkpoint in a program of your own: trainer.load_checkpoint(RUN); trainer.eval().",
    )


# -- in the program that was started ------------------------------------------------------------------------------------


def evaluate_instead(trainer: Trainer, job: Mapping[str, Any]) -> AvgMeter:
    """Called where the training would begin: evaluate the run's Trainer and end the program; pass any other one over."""
    run, place = Run(Path(job["run"])), Path(job["answers"])
    kind = f"{type(trainer).__module__}:{type(trainer).__qualname__}"
    different = _different(trainer, run)
    if kind != job["class"] or (different and not job["any"]):
        if kind == job["class"] and is_main():
            with (place / _PASSED).open("a", encoding="utf-8") as passed:
                passed.write(json.dumps(", ".join(different)) + "\n")
        trainer.notice(f"{type(trainer).__name__} is not trained: run {run.id} is to be evaluated.")
        return trainer.meter
    if not is_main():
        raise SystemExit(0)
    notes = [f"{text}: taken all the same" for text in different]
    try:
        answer = {"format": FORMAT, **_evaluated(trainer, run, job, notes).to_dict()}
    except LuxmeterError as error:
        write_json(place / _RESULT, {"error": [error.slug, error.what, error.next_step]})
        raise SystemExit(1) from error
    write_json(place / _RESULT, answer)
    raise SystemExit(0)


def _evaluated(trainer: Trainer, run: Run, job: Mapping[str, Any], notes: list[str]) -> Evaluation:
    from luxmeter.train import checkpoints

    on, name = str(job["on"]), type(trainer).__name__
    if "train" in trainer.data and not trainer.data.is_lazy("train"):
        notes.append(
            f"{name} makes its training data at once, which took its time: give regist_databundler functions (train=lambda: ...)"
        )
    trainer.callbacks.hooks.call("setup", trainer)
    file = checkpoint_of(run, str(job["checkpoint"]))
    with warnings.catch_warnings():
        if file.suffix not in (".ckpt", ".pth"):  # a blob: its name is its content's
            warnings.simplefilter("ignore")
        _, step = checkpoints.load_weights(trainer, file)
    meter = trainer.evaluate(on)
    if meter is None:
        lacks = f"{on} data" if on not in trainer.data else f"{on}_batch"
        raise UsageError(
            "eval-nothing",
            f"{name} has no {lacks}: there is nothing to evaluate.",
            f"Use --on {next(other for other in ON if other != on)}, or write what is missing and train anew.",
        )
    numbers = {key: number_of(value) for key, value in meter.to_dict().items()}
    metrics = {key: float(number) for key, number in numbers.items() if number is not None}
    shown = {key: meter.shown(key) for key in metrics}
    return Evaluation(
        run.id,
        name,
        on,
        str(file),
        step,
        trainer.position.begun_epoch,
        str(trainer.device),
        metrics,
        shown,
        tuple(notes),
    )


def _different(trainer: Trainer, run: Run) -> list[str]:
    """The parameters that the run did not have so: `lr is 0.2, not 0.1`."""
    given = trainer.experiment.params if trainer.experiment is not None else {}
    mine, theirs = (to_json(hide_params(plain_params(values))) for values in (given, dict(run.params)))
    return [
        f"{key} is {value}, not {theirs.get(key, 'set')}"
        for key, value in mine.items()
        if key not in _MACHINES_OWN and theirs.get(key) != value
    ]


# -- which checkpoint ---------------------------------------------------------------------------------------------------


def checkpoint_of(run: Run, wanted: str) -> Path:
    """The file of a checkpoint, as the run left it: `latest`, `best` (the last keypoint), that of a step; or any file."""
    if Path(wanted).is_file():
        return Path(wanted)
    folder, owned = _save_folder(run), _owned(run)
    names = sorted(owned, key=_step) if owned else _saved(folder)
    fitting = [name for name in names if _fits(name, wanted)]
    if fitting:
        name = fitting[-1]
        return _as_left(run, folder / name, owned[name]) if owned else folder / name
    why = ": no ModelCheckpoint(monitor=...) saved one" if wanted == "best" else ""
    raise CheckpointError(
        "checkpoint-absent",
        f"The run {run.name} ({run.id}) has no checkpoint {wanted}{why}.",
        f"It has {', '.join(names) or 'none'}.",
    )


def _save_folder(run: Run) -> Path:
    return run.folder / str(trainer_record(run)["save"])


def _saved(folder: Path) -> list[str]:
    """The names of keypoints and checkpoints in a folder, each in the order they were saved."""
    from luxmeter.experiment import Saver

    saver = Saver(folder, cleans=False)
    return [Path(path).name for path in (*saver.find_keypoints(), *saver.find_checkpoints())]


def _step(name: str) -> int:
    return int(name.removeprefix("keep.").partition(".")[0])


def _fits(name: str, wanted: str) -> bool:
    if wanted in ("latest", "best"):
        return name.startswith("keep.") == (wanted == "best")
    return _step(name) == int(wanted)


def _owned(run: Run) -> dict[str, FileChange]:
    """What a run that is over left in a folder that it may share with other runs of its experiment; empty if it shares none."""
    if _save_folder(run).is_relative_to(run.folder) or run.state in ("running", "lost"):
        return {}
    return {
        change.path: change
        for change in run.final_files.values()
        if change.part == "save" and _CHECKPOINT.fullmatch(change.path)
    }


def _as_left(run: Run, path: Path, left: FileChange) -> Path:
    """The file, or what the run kept of it if another run has written over it."""
    if path.is_file():
        beside = read_json(path.with_name(f"{path.name}.json"), {})
        said = beside.get("sha256") if isinstance(beside, dict) else None
        if (
            said or sha256_of(path)
        ) == left.sha256:  # what stands beside it is held against it when it is loaded
            return path
    blob = blob_path(run.folder, left.sha256)
    if left.kept and blob.is_file():
        return blob
    raise CheckpointError(
        "checkpoint-replaced",
        f"{path} is not what run {run.id} left there, and the run kept no copy of it.",
        "Another run of the experiment has written over it: give each its own folder, or a name in place of one.",
    )
