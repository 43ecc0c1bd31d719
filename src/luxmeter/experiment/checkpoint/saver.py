"""Checkpoints, keypoints and final models: atomic, hashed, written in the background (lux.Saver)."""

from __future__ import annotations

import math
import operator
import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from luxmeter.errors import CheckpointError, UsageError, suggestion, warn_once
from luxmeter.experiment.checkpoint import folder as folder_files
from luxmeter.experiment.checkpoint.background import writer_of
from luxmeter.experiment.checkpoint.folder import Kind, SavedFile
from luxmeter.experiment.checkpoint.format import FORMATS, Arena, Snapshot, damaged, read_file
from luxmeter.experiment.checkpoint.shards import (
    is_in_rows,
    not_complete,
    put_together,
    shard_names,
    shards_in,
    take_apart,
)
from luxmeter.experiment.checkpoint.state import Resumed, collect, module_storages, restore_state
from luxmeter.experiment.checkpoint.tree import encode_plain

_SHARDS_S = 600.0  # for the other ranks to write theirs
_LOOKS_EVERY_S = 0.02


class Loaded(NamedTuple):
    """What was saved, and the info beside it. Where nothing was saved yet, the latest is None."""

    checkpoint: Any
    info: dict[str, Any]


class Saver:
    """Saves states into a folder, without pickle and without stopping training.

    Checkpoints: at most max_to_keep stay, the newest ones or, with a metric, those with the best `info[metric]`
    (and always the newest). Keypoints and models stay until clear_*(). A save returns as soon as the state is taken;
    find_*, load_* and flush() wait for what is still being written and raise what went wrong there. What killed programs
    left half written in the folder is removed; with `cleans=False` nothing is: of a folder that a file named.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        max_to_keep: int | None = 3,
        *,
        metric: str | None = None,
        mode: Literal["min", "max"] = "min",
        format: Literal["safetensors", "torch"] = "safetensors",
        background: bool = True,
        max_pending: int = 2,
        cleans: bool = True,
    ) -> None:
        _choice("mode", mode, ("min", "max"))
        _choice("format", format, FORMATS)
        for name, number in (("max_to_keep", max_to_keep), ("max_pending", max_pending)):
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
                raise UsageError(
                    "saver-limit",
                    f"{name} is a whole number from 1 on; got {number!r}.",
                    "Pass max_to_keep=None to keep every checkpoint.",
                )
        self.folder = Path(folder)
        self.max_to_keep = max_to_keep
        self.metric = metric
        self.mode = mode
        self.format = format
        self.background = background
        self._max_pending = max_pending
        self._writer = writer_of(self.folder)
        self._arenas: list[Arena] = []
        self._waits_until = math.inf  # for shards of other ranks, at most
        if cleans:
            folder_files.remove_leftovers(self.folder)

    def save_checkpoint(self, step: int, state: Any, info: Mapping[str, Any] | None = None) -> str:
        """Save `000012.ckpt`; older checkpoints go when there are more than max_to_keep. Returns the path."""
        return self._save("checkpoint", step, state, info)

    def save_keypoint(self, step: int, state: Any, info: Mapping[str, Any] | None = None) -> str:
        """Save `keep.000012.ckpt`, which stays."""
        return self._save("keypoint", step, state, info)

    def save_model(self, step: int, state: Any, info: Mapping[str, Any] | None = None) -> str:
        """Save `model.000012.pth`, which stays."""
        return self._save("model", step, state, info)

    def save_state(
        self,
        step: int,
        /,
        *,
        info: Mapping[str, Any] | None = None,
        kind: Kind = "checkpoint",
        random: Any = True,
        gradients: bool = False,
        **parts: Any,
    ) -> str:
        """Save everything a training needs to go on bit by bit: `save_state(step, model=m, optim=o, loader=d)`.

        A part has state_dict() and load_state_dict(), or is a generator, a list or dict of such, or a plain value.
        The random state of python, numpy, torch and all accelerators is in it; gradients only on request.
        """
        _choice("kind", kind, ("checkpoint", "keypoint", "model"))
        state = collect(_step(step), parts, random=random, gradients=gradients)
        return self._save(kind, step, state, info, owned=module_storages(parts))

    def save_sharded(
        self,
        step: int,
        parts: Mapping[str, Any],
        *,
        rank: int,
        ranks: int,
        who: str,
        info: Mapping[str, Any] | None = None,
        kind: Kind = "checkpoint",
        gradients: bool = False,
    ) -> str:
        """As save_state, by each of several ranks into one folder: each writes its own rows of what is sharded (DTensors).

        `who` is the same on all of them, and of this save alone (`new_save()` of rank 0). Rank 0 completes the checkpoint when the
        files of all are there; until then there is none. A part that is an `Own` is what this rank has for itself.
        """
        _choice("kind", kind, ("checkpoint", "keypoint", "model"))
        self._raise_background_error()
        number = _step(step)
        path = self.folder / folder_files.file_name(kind, number)
        files = shard_names(path.name, ranks, who)
        plain_info = self._checked_info(kind, info)
        state = collect(number, parts, random=True, gradients=gradients)
        state["gradients"] = {  # of what is not sharded each rank has its own
            name: {key: one for key, one in found.items() if one is None or is_in_rows(one)}
            for name, found in state["gradients"].items()
        }
        taken = take_apart(state, files)
        self._writer.wait(pending=self._max_pending - 1)
        arenas = [self._arenas.pop() if self._arenas else Arena() for _ in range(2 if rank == 0 else 1)]
        own = Snapshot(taken.shard(rank, ranks), format="safetensors", arena=arenas[0])
        whole = Snapshot(taken.whole, format="safetensors", arena=arenas[1]) if rank == 0 else None
        saved_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        order = folder_files.next_order(self.folder) if rank == 0 else 0
        record: dict[str, Any] = {
            "step": number,
            "order": order,
            "format": "safetensors",
            "saved_at": saved_at,
        }

        def job() -> None:
            try:
                shard = path.with_name(files[rank])
                folder_files.write_saved(shard, own, {**record, "kind": "shard", "info": {}})
                if whole is not None:
                    self._wait_for_shards(path, files)
                    folder_files.write_saved(
                        path, whole, {**record, "kind": kind, "info": plain_info, "shards": files}
                    )
                    folder_files.remove_replaced_shards(path, who)
                    self._prune(kind)
            finally:
                self._arenas += arenas

        self._write(job)
        return str(path)

    def give_up(self, after_s: float) -> None:
        """The group fails: wait only so long for the shards of other ranks, from now on."""
        self._waits_until = min(self._waits_until, time.monotonic() + after_s)

    def find_checkpoints(self) -> list[str]:
        """The paths of all checkpoints, the latest last."""
        return self._find("checkpoint")

    def find_keypoints(self) -> list[str]:
        """The paths of all keypoints, the latest last."""
        return self._find("keypoint")

    def find_models(self) -> list[str]:
        """The paths of all models, the latest last."""
        return self._find("model")

    def load_checkpoint(self, step: int, *, device: str | torch.device = "cpu") -> Loaded:
        """The checkpoint of a step; one that is damaged raises."""
        return self._load_step("checkpoint", step, device)

    def load_keypoint(self, step: int, *, device: str | torch.device = "cpu") -> Loaded:
        """The keypoint of a step."""
        return self._load_step("keypoint", step, device)

    def load_model(self, step: int, *, device: str | torch.device = "cpu") -> Loaded:
        """The model of a step."""
        return self._load_step("model", step, device)

    def load_latest_checkpoint(self, *, device: str | torch.device = "cpu") -> Loaded:
        """The checkpoint saved last; when it is damaged, the one before it, with a warning; `Loaded(None, {})` before the first."""
        return self._load_latest("checkpoint", device)

    def load_latest_keypoint(self, *, device: str | torch.device = "cpu") -> Loaded:
        """The keypoint saved last, or the last sound one; `Loaded(None, {})` before the first."""
        return self._load_latest("keypoint", device)

    def load_latest_model(self, *, device: str | torch.device = "cpu") -> Loaded:
        """The model saved last, or the last sound one; `Loaded(None, {})` before the first."""
        return self._load_latest("model", device)

    def load_best_checkpoint(
        self, metric: str | None = None, *, mode: str | None = None, device: str | torch.device = "cpu"
    ) -> Loaded:
        """The checkpoint with the best `info[metric]`; metric and mode are those of the Saver unless given."""
        metric, mode = metric or self.metric, _choice("mode", mode or self.mode, ("min", "max"))
        if metric is None:
            raise UsageError(
                "checkpoint-metric",
                "Best by what? No metric was given.",
                "Pass the name of an entry of the info.",
            )
        files = self._listed("checkpoint")
        if files and not any(metric in saved.info for saved in files):
            known = {name for saved in files for name in saved.info}
            raise _no_metric(metric, known)
        return self._load_first(folder_files.ranked(files, metric, mode), "checkpoint", device)[1]

    def load(self, path: str | os.PathLike[str], *, device: str | torch.device = "cpu") -> Loaded:
        """A file by its path: verified against its side-car, nothing in it executed."""
        self.flush()
        saved = folder_files.read_entry(Path(path), 0)
        if saved is None:
            raise CheckpointError(
                "checkpoint-absent", f"There is no file {path}.", "find_checkpoints() lists them."
            )
        return _load(saved, device)

    def resume(
        self,
        source: int | str | os.PathLike[str] | None = None,
        /,
        *,
        random: Any = True,
        must_exist: bool = False,
        device: str | torch.device = "cpu",
        **parts: Any,
    ) -> Resumed:
        """Put back what save_state() saved, into the same parts, and say where it was.

        Takes the latest sound checkpoint, or the one of a step, or a file. Where there is none yet, nothing is
        touched and the answer is false (step 0), unless must_exist.
        """
        if source is None:
            files = self._listed("checkpoint")[::-1]
            if not files and not must_exist:
                return Resumed(step=0, epoch=0, batch=0, path=None, info={}, values={})
            path, loaded = self._load_first(files, "checkpoint", device)
        elif isinstance(source, int):
            path = self.folder / folder_files.file_name("checkpoint", _step(source))
            loaded = self._load_step("checkpoint", source, device)
        else:
            path, loaded = Path(source), self.load(source, device=device)
        return restore_state(loaded.checkpoint, parts, random=random, path=str(path), info=loaded.info)

    def clear_checkpoints(self) -> None:
        """Remove all checkpoints of the folder."""
        self._clear("checkpoint")

    def clear_keypoints(self) -> None:
        """Remove all keypoints of the folder."""
        self._clear("keypoint")

    def clear_models(self) -> None:
        """Remove all models of the folder."""
        self._clear("model")

    def remove(self, path: str | os.PathLike[str]) -> None:
        """Remove one saved file of the folder, with what lies beside it; one that is gone already is no error."""
        self.flush()
        place = self.folder / Path(path).name
        if Path(path).parent.resolve() != self.folder.resolve() or not folder_files.is_saved(place.name):
            raise UsageError(
                "checkpoint-of-another-folder",
                f"{os.fspath(path)} is no saved file of {self.folder}.",
                "Give a path that find_checkpoints(), find_keypoints() or find_models() named.",
            )
        saved = folder_files.read_entry(place, 0)
        if saved is not None:
            folder_files.remove(saved)

    def flush(self) -> None:
        """Wait until everything is on disk; raise what went wrong on the way."""
        self._writer.wait()
        self._raise_background_error()

    def close(self) -> None:
        """flush(), and give the memory of the copies back. The Saver can still be used."""
        try:
            self.flush()
        finally:
            self._arenas.clear()

    def __enter__(self) -> Saver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Saver({str(self.folder)!r}, max_to_keep={self.max_to_keep})"

    def _save(
        self,
        kind: Kind,
        step: int,
        state: Any,
        info: Mapping[str, Any] | None,
        owned: frozenset[int] = frozenset(),
    ) -> str:
        self._raise_background_error()
        number = _step(step)
        plain_info = self._checked_info(kind, info)
        path = self.folder / folder_files.file_name(kind, number)
        self._writer.wait(
            pending=self._max_pending - 1
        )  # before copying: each copy costs the memory of a state
        arena = self._arenas.pop() if self._arenas else Arena()
        try:
            snapshot = Snapshot(
                state, format=self.format, arena=arena, lend=owned if self.background else None
            )
        except BaseException:
            self._arenas.append(arena)
            raise
        record: dict[str, Any] = {
            "kind": kind,
            "step": number,
            "order": folder_files.next_order(self.folder),
            "format": self.format,
        }
        record |= {"saved_at": datetime.now(UTC).isoformat(timespec="milliseconds"), "info": plain_info}

        def job() -> None:
            try:
                folder_files.write_saved(path, snapshot, record)
                self._prune(kind)
            finally:
                self._arenas.append(arena)

        self._write(job)
        return str(path)

    def _write(self, job: Callable[[], None]) -> None:
        """In the background, or now and after what is there still."""
        if self.background:
            self._writer.submit(job)
        else:
            self._writer.wait()
            job()

    def _wait_for_shards(self, path: Path, files: list[str]) -> None:
        """On rank 0: until every rank has written its file."""
        missing = [path.with_name(name) for name in files]
        began = time.monotonic()
        while missing := [one for one in missing if not one.is_file()]:
            now = time.monotonic()
            if now > min(began + _SHARDS_S, self._waits_until):
                raise not_complete(path, missing, now - began)
            time.sleep(_LOOKS_EVERY_S)

    def _checked_info(self, kind: Kind, info: Mapping[str, Any] | None) -> Any:
        if info is not None and not isinstance(info, Mapping):
            raise UsageError(
                "info-type",
                f"The info of a checkpoint is a dict of names and values; got {info!r}.",
                "Pass for example {'loss': 0.5, 'epoch': 3}.",
            )
        info = dict(info or {})
        if kind == "checkpoint" and self.metric is not None and self.metric not in info:
            raise _no_metric(self.metric, info)
        return encode_plain(info)

    def _prune(self, kind: Kind) -> None:
        if kind != "checkpoint" or self.max_to_keep is None:
            return
        files = folder_files.list_files(self.folder, kind)
        for saved in folder_files.to_remove(
            files, max_to_keep=self.max_to_keep, metric=self.metric, mode=self.mode
        ):
            folder_files.remove(saved)

    def _listed(self, kind: Kind) -> list[SavedFile]:
        self.flush()
        return folder_files.list_files(self.folder, kind)

    def _find(self, kind: Kind) -> list[str]:
        return [str(saved.path) for saved in self._listed(kind)]

    def _clear(self, kind: Kind) -> None:
        for saved in self._listed(kind):
            folder_files.remove(saved)

    def _load_step(self, kind: Kind, step: int, device: str | torch.device) -> Loaded:
        files = self._listed(kind)
        for saved in files:
            if saved.step == step:
                return _load(saved, device)
        known = ", ".join(str(saved.step) for saved in files[-10:]) or "none"
        raise CheckpointError(
            "checkpoint-absent",
            f"There is no {kind} of step {step} in {self.folder}.",
            f"There are: {known}.",
        )

    def _load_latest(self, kind: Kind, device: str | torch.device) -> Loaded:
        files = self._listed(kind)[::-1]
        return self._load_first(files, kind, device)[1] if files else Loaded(None, {})

    def _load_first(
        self, files: list[SavedFile], kind: Kind, device: str | torch.device
    ) -> tuple[Path, Loaded]:
        failed: list[str] = []
        for saved in files:
            try:
                loaded = _load(saved, device)
            except CheckpointError as error:
                if error.slug not in ("checkpoint-damaged", "checkpoint-unreadable"):
                    raise
                failed.append(error.what)
                continue
            if failed:
                warn_once(
                    "checkpoint-fallback",
                    f"{' '.join(failed)} {saved.path.name} is loaded instead.",
                    "Remove the damaged file, and look at the disk it lies on.",
                    key=str((self.folder, failed)),
                    stacklevel=4,
                )
            return saved.path, loaded
        if failed:
            raise CheckpointError(
                "checkpoint-damaged",
                f"No sound {kind} in {self.folder}. {' '.join(failed)}",
                "Restore one from a copy.",
            )
        raise CheckpointError(
            "checkpoint-absent",
            f"There is no {kind} in {self.folder}.",
            "Save one first, or check the folder.",
        )

    def _raise_background_error(self) -> None:
        error = self._writer.take_error()
        if error is None:
            return
        if not isinstance(error, Exception):
            raise error
        raise CheckpointError(
            "checkpoint-write-failed",
            f"An earlier save in {self.folder} was not written: {type(error).__name__}: {error}",
            "Earlier checkpoints are intact. Mend the cause (space, rights) and save again.",
        ) from error


def check_file(path: Path) -> CheckpointError | None:
    """What is wrong with a file: None if it is what was written."""
    saved = folder_files.read_entry(path, 0)
    try:
        if saved is None:
            return damaged(path, "it is gone")
        _verified(saved)
    except CheckpointError as error:
        return error
    return None


def read_together(path: Path, rank: int, ranks: int, *, lazily: bool) -> Loaded:
    """A checkpoint as one of several ranks reads it. Each checks a part of its files: it is sound if none of them raises.

    `lazily`: nothing is read of its shards yet (a Sharded in the place of each tensor, see shards.py).
    """
    wrong = check_file(path) if rank == 0 else None
    state = read_file(path) if wrong is None else None
    shards = shards_in(state, path)
    wrongs = [wrong, *(check_file(one) for one in shards[rank::ranks])]
    for one in wrongs:
        if one is not None:
            raise one
    saved = folder_files.read_entry(path, 0)
    info = saved.info if saved is not None else {}
    return Loaded(put_together(state, path, lazily=lazily) if shards else state, info)


def _load(saved: SavedFile, device: str | torch.device) -> Loaded:
    info = _verified(saved)
    state = read_file(saved.path, device=device)
    shards = shards_in(state, saved.path)
    if not shards:
        return Loaded(state, info)
    for shard in shards:
        wrong = check_file(shard)
        if wrong is not None:
            raise wrong
    return Loaded(put_together(state, saved.path), info)


def _verified(saved: SavedFile) -> dict[str, Any]:
    try:
        return folder_files.verify(saved)
    except OSError as error:
        raise CheckpointError(
            "checkpoint-unreadable",
            f"{saved.path} cannot be read: {error.strerror}.",
            "Check the path and its rights.",
        ) from error


def _step(step: Any) -> int:
    try:
        number = operator.index(step)
    except TypeError:
        number = -1
    if number < 0 or isinstance(step, bool):
        raise UsageError(
            "step-number",
            f"A checkpoint is saved under a whole number from 0 on; got {step!r}.",
            "Pass the step or the epoch.",
        )
    return number


def _choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        hint = suggestion(str(value), choices) or f"Choose one of {', '.join(choices)}."
        raise UsageError("saver-choice", f"{name} cannot be {value!r}.", hint)
    return value


def _no_metric(metric: str, known: Any) -> UsageError:
    hint = suggestion(metric, known) or f"The info holds: {', '.join(map(repr, known)) or 'nothing'}."
    return UsageError("checkpoint-metric", f"The info has no entry {metric!r}.", hint)
