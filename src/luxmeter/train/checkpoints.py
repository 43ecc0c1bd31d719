"""A trainer's whole state into a checkpoint and back, so that it goes on bit by bit: in the middle of an epoch, too."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.optim import Optimizer

from luxmeter.errors import CheckpointError, LuxmeterError, StoreError, UsageError, warn_once
from luxmeter.experiment import (
    AvgMeter,
    DataLoader,
    HasState,
    Loaded,
    Own,
    Saver,
    file_name,
    find_run,
    folder_of,
    get_rng_state,
    has_state,
    is_in_rows,
    lab_of,
    new_save,
    read_together,
    restore_state,
    runs,
    saved_since,
    seed_everything,
    set_rng_state,
    stable_seed,
)
from luxmeter.ranks import is_main
from luxmeter.store import Lab, Run
from luxmeter.train import parts
from luxmeter.train.callbacks.optimization import Optimization
from luxmeter.train.dist import broadcast_object, gather_objects
from luxmeter.train.position import Phase
from luxmeter.train.run_evaluation import RECORD, trainer_record

if TYPE_CHECKING:
    from luxmeter.train.data import DataBundle
    from luxmeter.train.trainer import Trainer

RANKS = "ranks"  # the part of a checkpoint that holds what each rank has for itself
FORMAT = 1  # of trainer.json; 1: class, file, options, save


def remember(trainer: Trainer) -> None:
    """Write into the run which Trainer made it and where its checkpoints lie."""
    import json

    experiment = trainer.experiment
    if experiment is None or experiment.writer is None:
        return
    kind, folder = type(trainer), trainer.saver.folder
    within = folder.is_relative_to(experiment.folder)
    record = {
        "format": FORMAT,
        "class": f"{kind.__module__}:{kind.__qualname__}",
        "options": {name: repr(value) for name, value in vars(trainer.options).items()},
        "save": str(folder.relative_to(experiment.folder) if within else folder.absolute()),
    }
    experiment.writer.put_file(RECORD, json.dumps(record, indent=1))


def save(trainer: Trainer, info: Mapping[str, Any] | None, *, kind: str, epoch_done: bool) -> str:
    """Save a checkpoint of everything."""
    at, training = trainer.position, trainer._training
    if at.in_batch and not at.batch_done:
        raise UsageError(
            "save-inside-batch",
            f"A checkpoint was to be saved inside batch {at.idx} of epoch {at.eidx}, from where nothing could go on.",
            "Save between batches: in after_batch of a callback, or by ModelCheckpoint(every_steps=...).",
        )
    optimization = trainer.callbacks.find(Optimization)
    gradients = optimization is None or optimization.pending > 0 or not optimization.is_active
    waits = optimization is not None and optimization.pending > 0
    own = None
    if training.in_step is not None:
        has_gradients = gradients if training.shards is not None else waits
        own = _own_of_rank(trainer, epoch_done=epoch_done, gradients=has_gradients)
    of_ranks = None
    if training.shards is None and own is not None:
        of_ranks = gather_objects(own)
        if not is_main():
            return str(trainer.saver.folder / file_name(kind, at.done))  # type: ignore[arg-type]
    found: dict[str, Any] = {
        **_own_parts(trainer),
        **{f"data.{name}": loader for name, loader in _loaders(trainer.data).items()},
        **{f"callback.{name}": callback for name, callback in trainer.callbacks.stateful().items()},
    }
    position = at.state_dict(epoch_done=epoch_done)
    loop = {
        "position": position,
        "meter": trainer.meter.state_dict() if not epoch_done else None,
        "rhythm": trainer.callbacks.rhythm(),
        "epoch_random": training.epoch_random if position["idx"] else None,  # an epoch that begins draws anew
    }
    told = {"epoch": at.eidx, "step": at.done, **(info or {})}
    if training.shards is not None and training.in_step is not None:
        group = training.in_step.group
        return trainer.saver.save_sharded(
            at.done,
            {"loop": loop, RANKS: Own(own), **found},
            rank=group.rank,
            ranks=group.world_size,
            who=broadcast_object(new_save()),
            info=told,
            kind=kind,  # type: ignore[arg-type]
            gradients=gradients,
        )
    return trainer.saver.save_state(
        at.done,
        info=told,
        kind=kind,  # type: ignore[arg-type]
        gradients=gradients,
        loop=loop,
        **({RANKS: of_ranks} if of_ranks is not None else {}),
        **found,
    )


def _own_of_rank(trainer: Trainer, *, epoch_done: bool, gradients: bool) -> dict[str, Any]:
    """What this rank has for itself."""
    training, shards = trainer._training, trainer._training.shards
    return {
        "random": get_rng_state(),
        "epoch_random": training.epoch_random if trainer.position.idx and not epoch_done else None,
        "meter": None if epoch_done else training.meter.state_dict(),
        "data": {
            name: loader.state_dict()
            for name, loader in _loaders(trainer.data).items()
            if not _is_dealt(loader)  # whose state is the same on all ranks
        },
        "gradients": {
            name: {key: one.grad for key, one in model.named_parameters()}
            if shards is None
            else shards.waiting_gradients(model)
            for name, model in trainer.models.items()
        }
        if gradients
        else {},
        "is_sharded": shards is not None,  # then these come beside those of the whole
    }


Source = bool | int | str | PathLike[str] | list[Path]


def resume(trainer: Trainer, source: Source, *, keeps_random: bool = False) -> None:
    """Put a checkpoint back into the trainer. `keeps_random`: the random state again when the first batch is read."""
    found = _load(trainer, source)
    if found is None:
        trainer.notice("There is no checkpoint to go on from: the training begins at its start.")
        return
    path, loaded = found
    state = _fitted(trainer, loaded.checkpoint)
    saved = state.get("parts", {}) if isinstance(state, Mapping) else {}
    if "loop" not in saved:
        raise CheckpointError(
            "resume-no-state",
            f"{path} was not saved by a Trainer.",
            "Load it with trainer.saver.load() and give its parts to load_state_dict() yourself.",
        )
    for name in ("train", "eval", "test"):
        if f"data.{name}" in saved and name in trainer.data:
            trainer.data[name]  # made, so that its position can be put back
    loaders = {f"data.{name}": one for name, one in _loaders(trainer.data).items() if f"data.{name}" in saved}
    callbacks = {
        f"callback.{name}": one
        for name, one in trainer.callbacks.stateful().items()
        if f"callback.{name}" in saved
    }
    own = _own_parts(trainer)
    if all(
        model.state_dict().keys() == _state(saved, name).keys()
        for name, model in parts.models(trainer).items()
    ):
        for name, part in own.items():  # another model is told by what puts it back
            if isinstance(part, Optimizer) and name in saved:
                _check_optimizer(part, _state(saved, name), name, path)
    loop = saved["loop"]["value"]
    absent = [f"{name} ({type(part).__name__})" for name, part in own.items() if name not in saved]
    if absent:
        there = [name for name in saved if name in own or "." not in name]
        raise CheckpointError(
            "checkpoint-of-another-model",
            f"{path} holds no {', '.join(absent)}, which {type(trainer).__name__} has; "
            f"it holds {', '.join(name for name in there if name not in _TAKEN) or 'other things'}.",
            "Build the Trainer as it was when it was saved. Nothing was changed.",
        )
    restore_state(state, {**own, **loaders, **callbacks}, random=True, path=path, info=loaded.info)
    training, at = trainer._training, trainer.position
    at.load_state_dict(loop["position"])
    if at.global_step:
        for optimizer in trainer.optimizers:  # else torch warns of a scheduler that is stepped before it is
            optimizer._opt_called = True  # type: ignore[attr-defined]
    mine = _of_this_rank(trainer, saved, state["random"])
    trainer.callbacks.keep_rhythm(loop["rhythm"])
    training.merged = None
    if mine is not None:
        loop = {**loop, **mine}
    if loop["meter"] is not None:
        training.meter.load_state_dict(loop["meter"])
    has_position = "data.train" in saved
    training.skip = at.idx if at.phase is Phase.BATCHES and not has_position else 0
    training.epoch_random = loop["epoch_random"]
    random = state["random"] if mine is None else mine["random"]
    if mine is not None:
        set_rng_state(random)
    training.random = random if keeps_random and at.phase is Phase.BATCHES else None
    trainer.logger.info(f"Going on from {path}: {at}")


def of_earlier_attempt(trainer: Trainer) -> list[Path]:
    """The checkpoints that an earlier attempt of this job has saved, the latest first; once, and on all ranks the same."""
    training = trainer._training
    earlier, training.earlier = training.earlier, None
    if earlier is None:
        return []
    found: list[Path] = broadcast_object(
        saved_since(Path(earlier["save"]), int(earlier["after"]))[::-1] if is_main() else []
    )
    where = "from its last checkpoint" if found else "which saved no checkpoint: it begins anew"
    trainer.notice(f"The ranks were started again: this goes on in what run {earlier['id']} was, {where}.")
    return found


def _of_this_rank(trainer: Trainer, saved: Mapping[str, Any], random: Any) -> dict[str, Any] | None:
    """Random state, meter and epoch_random of this rank, its data and gradients put back; None if one process goes on alone.

    Of another number of ranks: what they have together is as it was, what each has for itself is worked out anew.
    """
    training = trainer._training
    group = training.in_step.group if training.in_step is not None else None
    of_ranks: Sequence[Any] = saved[RANKS]["value"] if RANKS in saved else []
    rank, ranks, before = group.rank if group else 0, group.world_size if group else 1, max(1, len(of_ranks))
    if ranks == before:
        if not of_ranks:
            return None
        mine = of_ranks[rank]
        for name, state in mine["data"].items():
            if name in trainer.data:
                cast(HasState, trainer.data[name]).load_state_dict(state)
        _put_gradients(trainer, mine["gradients"], is_of_this_rank=True, adds=mine.get("is_sharded", False))
        return {key: mine[key] for key in ("random", "epoch_random", "meter")}
    trainer.notice(
        f"The checkpoint was saved by {before} rank{'s' if before > 1 else ''}, and goes on with {ranks}: weights and optimizers "
        "are as they were, what is random is not."
    )
    meter = AvgMeter()
    for one in of_ranks if rank == 0 else []:
        if one["meter"] is not None:
            other = AvgMeter()
            other.load_state_dict(one["meter"])
            meter = meter.merge(other)
    if not of_ranks and rank == 0:
        own_meter = saved["loop"]["value"]["meter"]
        if own_meter is not None:
            meter.load_state_dict(own_meter)
    if of_ranks:
        adds = of_ranks[0].get("is_sharded", False)
        _put_gradients(
            trainer, _mean([one["gradients"] for one in of_ranks]), is_of_this_rank=False, adds=adds
        )
    at = trainer.position
    if at.phase is Phase.BATCHES and at.idx:
        loader = trainer.data["train"]
        at.idx = loader.step if isinstance(loader, DataLoader) else at.idx * before // ranks
    return {
        "random": random if rank == 0 else _derived(random, rank),
        "epoch_random": None,
        "meter": meter.state_dict(),
    }


def _derived(random: Any, rank: int) -> Any:
    """A random state of a rank that had none: always the same one of the same state of rank 0."""
    now = get_rng_state()
    drawn = random["torch"]
    seed_everything(stable_seed("rank", bytes(drawn.tolist()) if drawn is not None else b"", rank))
    found = get_rng_state()
    set_rng_state(now)
    return found


def _mean(gradients: list[Any]) -> dict[str, dict[str, Any]]:
    """Of each parameter the mean of what the ranks had; what one lacks counts as zero."""
    found: dict[str, dict[str, Any]] = {}
    for name in gradients[0]:
        for key in gradients[0][name]:
            there = [one[name][key] for one in gradients if one[name][key] is not None]
            found.setdefault(name, {})[key] = torch.stack(there).sum(0) / len(gradients) if there else None
    return found


def _put_gradients(
    trainer: Trainer, gradients: Mapping[str, Mapping[str, Any]], *, is_of_this_rank: bool, adds: bool
) -> None:
    """Gradients that wait for a step, whole: in the place of those that are there, or, with `adds`, beside them."""
    shards = trainer._training.shards
    for name, model in trainer.models.items():
        for key, one in model.named_parameters():
            if key not in (of_model := gradients.get(name, {})):
                continue
            gradient, before = of_model[key], one.grad if adds else None
            one.grad = before
            if gradient is None:
                continue
            if shards is not None and is_of_this_rank and shards.wait_for_step(one, gradient):
                continue
            if shards is not None and is_in_rows(one):
                given = shards.sharded(gradient)
            else:
                given = gradient.clone().to(one.device)
            one.grad = given if before is None else before + given


def _is_dealt(loader: Any) -> bool:
    return isinstance(loader, DataLoader) and loader.is_sharded


def reopen(trainer: Trainer) -> None:
    """Go on in an epoch that an earlier training of this trainer left before its end."""
    training, at = trainer._training, trainer.position
    at.cut = False
    if at.in_batch:  # it failed there: its data is behind it, whether or not it was trained on
        at.next_batch()
    if at.idx and at.phase is Phase.BATCHES:
        loader: Any = trainer.data["train"]
        if has_state(loader):
            loader.load_state_dict(loader.state_dict())
        else:
            training.skip = at.idx


def load_weights(trainer: Trainer, source: bool | int | str | PathLike[str]) -> tuple[str, int]:
    """Put back the models alone, for an evaluation; from where, and of which step."""
    found = _load(trainer, source)
    if found is None:
        raise CheckpointError(
            "checkpoint-absent",
            "The run has no checkpoint.",
            "Train it with checkpoints on, or name another run.",
        )
    path, loaded = found
    state = _fitted(trainer, loaded.checkpoint)
    own, held = parts.models(trainer), state.get("parts", {}) if isinstance(state, Mapping) else {}
    absent = [
        name for name, model in own.items() if name not in held and any(True for _ in model.parameters())
    ]
    if absent or "loop" not in held:
        raise CheckpointError(
            "checkpoint-of-another-model",
            f"{path} holds no model {', '.join(absent) or 'of a Trainer'}; it holds {', '.join(held) or 'other things'}.",
            "Name a checkpoint that was saved by a Trainer with these models. Nothing was changed.",
        )
    models = {name: model for name, model in own.items() if name in held}
    averaged = {
        f"callback.{name}": one
        for name, one in trainer.callbacks.stateful().items()
        if f"callback.{name}" in state["parts"] and hasattr(one, "swapped")
    }
    kept = {**state, "parts": {name: state["parts"][name] for name in (*models, *averaged)}, "gradients": {}}
    restore_state(kept, {**models, **averaged}, random=False, path=path, info=loaded.info)
    trainer.position.load_state_dict(state["parts"]["loop"]["value"]["position"])
    return path, int(state["step"])


def replayed(source: Iterable[Any], training: Any) -> Iterator[Any]:
    """The batches behind those that a resumed epoch has had, of a loader that knows no position: read again, and dropped."""
    now = get_rng_state()
    if training.epoch_random is not None:
        set_rng_state(training.epoch_random)
    batches = iter(source)
    for number in range(training.skip):
        if next(batches, batches) is batches:
            raise CheckpointError(
                "loader-replay",
                f"The training data ended at batch {number}, before batch {training.skip}, where the training was.",
                "The data must be as it was, or use lux.DataLoader, which keeps its position.",
            )
    training.skip = 0
    set_rng_state(now)
    return batches


def peek(data: DataBundle, name: str) -> Any:
    """A batch, without moving anything on: neither the loader's position nor the random state."""
    loader: Any = data[name]
    if isinstance(loader, Iterator):
        raise UsageError(
            "data-once",
            f"The {name} data can be gone through only once, so no batch of it can be looked at.",
            "Pass the inputs yourself: trainer.cost(inputs).",
        )
    random = get_rng_state()
    before = loader.state_dict() if has_state(loader) else None
    try:
        for batch in loader:
            return batch
        raise UsageError("loader-empty", f"The {name} data gave no batch.", "Check the dataset.")
    finally:
        if before is not None:
            loader.load_state_dict(before)
        set_rng_state(random)


def save_folder(run: Run) -> Path:
    """Where the checkpoints of a Trainer's run lie."""
    return run.folder / str(trainer_record(run)["save"])


_TAKEN = ("loop", "info", "kind", "random", "gradients", RANKS)  # by save_state


def _own_parts(trainer: Trainer) -> dict[str, Any]:
    """The trainer's attributes that make its state, by names that nothing else has."""
    found = parts.stateful(trainer)
    return {f"own.{name}" if name in _TAKEN else name: part for name, part in found.items()}


def _state(saved: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    state = saved[name].get("state") if name in saved else None
    return state if isinstance(state, Mapping) else {}


def _check_optimizer(optimizer: Optimizer, saved: Mapping[str, Any], name: str, path: str) -> None:
    """Whether this is the state of such an optimizer: torch would take the state of another kind, and fail at the step."""
    groups = saved.get("param_groups", [])
    there = [len(group["params"]) for group in groups]
    here = [len(group["params"]) for group in optimizer.param_groups]
    unknown = sorted(optimizer.defaults.keys() - {key for group in groups for key in group})
    if there == here and not unknown:
        return
    found = f"{there} parameters in its groups there, {here} here" if there != here else ""
    lacks = f"it has no {', '.join(unknown)}" if there == here else ""
    raise CheckpointError(
        "checkpoint-of-another-optimizer",
        f"{path} holds another optimizer than {name!r} ({type(optimizer).__name__}): {found}{lacks}.",
        "Make the optimizer as it was when it was saved. Nothing was changed.",
    )


def _loaders(data: DataBundle) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, loader in data.made().items():
        if has_state(loader) and not any(loader is known for known in found.values()):
            found[name] = loader
    return found


def _fitted(trainer: Trainer, state: Any) -> Any:
    """A state as the trainer's parts take it: of what is sharded here, this rank's rows; whole what is not."""
    shards = trainer._training.shards
    if shards is None or not isinstance(state, Mapping) or "parts" not in state:
        return state
    own = {
        **_own_parts(trainer),
        **{f"callback.{name}": one for name, one in trainer.callbacks.stateful().items()},
    }
    fitted = {
        name: one if name == RANKS else shards.fitted(one, own.get(name))
        for name, one in state["parts"].items()
    }
    models = parts.models(trainer)
    gradients = {name: shards.fitted(one, models.get(name)) for name, one in state["gradients"].items()}
    return {**state, "parts": fitted, "gradients": gradients}


def _load(trainer: Trainer, source: Source) -> tuple[str, Loaded] | None:
    if trainer._training.in_step is not None:
        return _load_together(trainer, source)
    found = _source(trainer, source)
    if found is None:
        return None
    saver = trainer.saver
    if isinstance(found, list):
        return _load_first(found, lambda path: saver.load(path))
    if isinstance(found, int):
        return f"{saver.folder}, step {found}", saver.load_checkpoint(found)
    if found.is_dir():
        return str(found), (
            saver if found == saver.folder else Saver(found, cleans=False)
        ).load_latest_checkpoint()
    return str(found), saver.load(found)


def _load_together(trainer: Trainer, source: Source) -> tuple[str, Loaded] | None:
    """What the first rank finds, which knows the run: on all ranks the same one, sound on all of them."""
    in_step = trainer._training.in_step
    assert in_step is not None
    found: list[Path] | LuxmeterError | None = None
    if is_main():
        try:
            found = _candidates(trainer, source)
        except LuxmeterError as error:
            found = error
    found = broadcast_object(found)
    if isinstance(found, LuxmeterError):
        raise found
    if found is None:
        return None
    group, lazily = in_step.group, trainer._training.shards is not None

    def load(path: Path) -> Loaded:
        read: Loaded | CheckpointError
        try:
            read = read_together(path, group.rank, group.world_size, lazily=lazily)
        except CheckpointError as error:
            read = error
        for wrong in gather_objects(read if isinstance(read, CheckpointError) else None):
            if wrong is not None:
                raise wrong
        assert isinstance(read, Loaded)
        return read

    return _load_first(found, load)


def _candidates(trainer: Trainer, source: Source) -> list[Path] | None:
    """The files that are meant, that which is wanted most first."""
    found = _source(trainer, source)
    if found is None or isinstance(found, list):
        return found
    saver = trainer.saver
    if isinstance(found, int):
        path = saver.folder / file_name("checkpoint", found)
        if not path.is_file():
            saver.load_checkpoint(found)  # tells what there is
        return [path]
    if not found.is_dir():
        return [found]
    there = Saver(found, cleans=False)
    paths = [Path(one) for one in there.find_checkpoints()[::-1]]
    if not paths:
        there.load_latest_checkpoint()  # tells
    return paths


def _load_first(paths: Sequence[Path], load: Callable[[Path], Loaded]) -> tuple[str, Loaded]:
    """The first that is sound, with a warning if others should have been."""
    failed: list[str] = []
    for number, path in enumerate(paths, 1):
        try:
            loaded = load(path)
        except CheckpointError as error:
            if number == len(paths) or error.slug not in ("checkpoint-damaged", "checkpoint-unreadable"):
                raise
            failed.append(error.what)
            continue
        if failed and is_main():
            warn_once(
                "checkpoint-fallback",
                f"{' '.join(failed)} {path.name} is loaded instead.",
                "Remove the damaged file, and look at the disk it lies on.",
                key=str(failed),
            )
        return str(path), loaded
    raise AssertionError("no checkpoint was named")


def _source(trainer: Trainer, source: Source) -> Path | int | list[Path] | None:
    """A folder of which the latest checkpoint is meant, a file, a step of the trainer's own folder, or files by preference."""
    saver = trainer.saver
    saver.flush()  # what was saved a moment ago is a file from here on
    if isinstance(source, list):
        return source
    if source is True:
        if saver.find_checkpoints():
            return saver.folder
        given = trainer._training.run_name
        is_folder = given is not None and folder_of(given) is not None
        return None if is_folder else _last_run(trainer)  # a run without a folder has one of its own
    if isinstance(source, int):
        return source
    if Path(source).is_file() or Path(source).suffix in (".ckpt", ".pth"):
        return Path(source)
    is_saved = Path(source).is_dir() and any(Path(source).glob("*.ckpt"))
    return Path(source) if is_saved else save_folder(find_run(str(source)))


_LAST_RUNS = 20  # of a name, in which a checkpoint is looked for


def _last_run(trainer: Trainer) -> Path | None:
    """Of the last run of this name that has a checkpoint."""
    experiment = trainer.experiment
    if experiment is None or not experiment.id:
        return None
    for run in _runs_named(experiment.name, lab_of(experiment.run)):
        if run.id == experiment.id or not (run.folder / "files" / RECORD).is_file():
            continue
        saver = Saver(save_folder(run), cleans=False)
        if saver.find_checkpoints():
            return saver.folder
    return None


def _runs_named(name: str, lab: Lab) -> Sequence[Run]:
    """The last runs of a name. Where the index does not answer their folders tell: no training stops because a database is away."""
    with contextlib.suppress(StoreError):
        return runs(name=name, limit=_LAST_RUNS, lab=lab)
    found = []
    for folder in (lab.folder / "runs").iterdir():
        with contextlib.suppress(LuxmeterError, OSError):
            if Run(folder).name == name:
                found.append(Run(folder, lab.folder))
    return sorted(found, key=lambda run: -run.created_ns)[:_LAST_RUNS]
