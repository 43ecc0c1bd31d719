"""The files of a Saver: their names, their side-cars, their order, and which of them may go."""

from __future__ import annotations

import contextlib
import functools
import glob
import json
import math
import os
import re
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psutil

from luxmeter.errors import CheckpointError, warn_once
from luxmeter.experiment.checkpoint.format import (
    TEMP_SUFFIX,
    Snapshot,
    damaged,
    replacing,
)
from luxmeter.experiment.checkpoint.rebuild import rebuild_plain
from luxmeter.experiment.checkpoint.shards import SUFFIX, named_in, order_of
from luxmeter.files import bytes_of, parsed_json, sha256_of

Kind = Literal["checkpoint", "keypoint", "model"]

# History of the side-car: 1 = kind, step, order, saved_at, size_bytes, sha256, info, previous; shards, of one that has them (shards.py).
SIDECAR_VERSION = 1
_PATTERNS: dict[Kind, re.Pattern[str]] = {
    "checkpoint": re.compile(r"(\d+)\.ckpt"),
    "keypoint": re.compile(r"keep\.(\d+)\.ckpt"),
    "model": re.compile(r"model\.(\d+)\.pth"),
}
_NAMES: dict[Kind, str] = {
    "checkpoint": "{:06d}.ckpt",
    "keypoint": "keep.{:06d}.ckpt",
    "model": "model.{:06d}.pth",
}
_SUFFIXES = (".ckpt", ".pth", SUFFIX)
_DAY_SECONDS = 86_400


@dataclass(frozen=True)
class SavedFile:
    """A file and what its side-car says of it. Without a side-car the time of the file gives the order."""

    path: Path
    step: int
    order: int
    records: tuple[dict[str, Any], ...] = field(
        default=()
    )  # newest first; two while one takes the other's place

    @property
    def info(self) -> dict[str, Any]:
        """The info saved with it; empty when the side-car is gone."""
        return dict(rebuild_plain(self.records[0]["info"])) if self.records else {}


def file_name(kind: Kind, step: int) -> str:
    """000012.ckpt, keep.000012.ckpt or model.000012.pth."""
    return _NAMES[kind].format(step)


def is_saved(name: str) -> bool:
    """Whether a file of this name is a checkpoint, a keypoint or a model."""
    return any(pattern.fullmatch(name) for pattern in _PATTERNS.values())


def sidecar_of(path: Path) -> Path:
    """The JSON file beside a checkpoint."""
    return Path(f"{path}.json")


def list_files(folder: Path, kind: Kind) -> list[SavedFile]:
    """All files of a kind, in the order they were saved: the last one is the latest."""
    found = []
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CheckpointError(
            "checkpoint-unreadable",
            f"{folder} cannot be looked into: {error.strerror}.",
            "Give rights to read it, or its right path.",
        ) from error
    for name in names:
        match = _PATTERNS[kind].fullmatch(name)
        if match:
            path = folder / name
            records = _read_sidecar(path)
            saved = _entry(path, int(match[1]), records) if records else read_entry(path, int(match[1]))
            if saved is not None:
                found.append(saved)
    return sorted(found, key=lambda saved: (saved.order, saved.step))


def read_entry(path: Path, step: int) -> SavedFile | None:
    """What is known of a file; None when there is none."""
    records = _read_sidecar(path)
    try:
        modified_ns = path.stat().st_mtime_ns
    except FileNotFoundError:
        return None
    return _entry(path, step, records) if records else SavedFile(path, step, modified_ns)


def _entry(path: Path, step: int, records: tuple[dict[str, Any], ...]) -> SavedFile:
    return SavedFile(path, step, int(records[0]["order"]), records)


def write_sidecar(path: Path, record: dict[str, Any]) -> None:
    """Write the side-car before the file takes its place.

    While a file replaces an older one of the same name, its side-car describes both: killed between the two
    renames, the older file is still found sound.
    """
    before = [dict(old) for old in _read_sidecar(path)] if path.is_file() else []
    for old in before:
        old.pop("previous", None)
    full = {"version": SIDECAR_VERSION, **record, **({"previous": before[0]} if before else {})}
    # In a folder that has no such file yet, the two names may come to the disk together.
    with replacing(sidecar_of(path), sync_folder=bool(before)) as file:
        # On one line: laid out, json writes it without its C part, while the training waits for the interpreter.
        text = json.dumps(full, ensure_ascii=False, allow_nan=False)
        file.write(text.encode("utf-8", "backslashreplace"))


def write_saved(path: Path, snapshot: Snapshot, record: dict[str, Any]) -> None:
    """Write a file and its side-car; killed at any moment, what lay there before is still whole."""
    try:
        with replacing(path) as file:
            record["sha256"], record["size_bytes"] = snapshot.write(file)
            write_sidecar(path, record)
    except BaseException:
        if not path.is_file():
            sidecar_of(path).unlink(missing_ok=True)
        raise


_last_order: dict[str, int] = {}


def next_order(folder: Path) -> int:
    """Later saves get larger numbers, also when the clock was put back since the last one."""
    key = str(folder.absolute())
    last = _last_order.get(key)
    if last is None:
        last = latest_order(folder)
    _last_order[key] = order = max(last + 1, time.time_ns())
    return order


def latest_order(folder: Path) -> int:
    """The number of what was saved last; 0 if there is nothing."""
    return max((saved.order for kind in _PATTERNS for saved in list_files(folder, kind)), default=0)


def saved_since(folder: Path, order: int) -> list[Path]:
    """The checkpoints that were saved after the one of this number, the latest last."""
    return [saved.path for saved in list_files(folder, "checkpoint") if saved.order > order]


def verify(saved: SavedFile) -> dict[str, Any]:
    """The info of a sound file. Raises when the content is not what was written; warns when nobody can tell."""
    if not saved.records:
        warn_once(
            "checkpoint-unverified",
            f"{saved.path.name} has no readable side-car {sidecar_of(saved.path).name}, so its content cannot be verified.",
            "Copy the .json file along with the checkpoint.",
            key=str(saved.path),
        )
        return {}
    size_bytes = saved.path.stat().st_size
    fitting = [record for record in saved.records if record["size_bytes"] == size_bytes]
    if not fitting:
        expected = saved.records[0]["size_bytes"]
        raise damaged(saved.path, f"it has {size_bytes} bytes, {expected} were written")
    actual = sha256_of(saved.path)
    for record in fitting:
        if record["sha256"] == actual:
            return dict(rebuild_plain(record["info"]))
    raise damaged(saved.path, "its content changed since it was written (the sha256 differs)")


def damage_of_checkpoints(folder: Path) -> Iterator[tuple[Path, str]]:
    """The files with a side-car below a folder that are not what was written, and side-cars that say nothing: where, and what."""
    for sidecar in sorted(folder.rglob("*.json")):
        path = sidecar.with_suffix("")
        if path.suffix not in _SUFFIXES or not path.is_file():
            continue
        saved = read_entry(path, 0)
        try:
            if saved is not None and not saved.records:
                yield sidecar, "it does not say what was written"
            elif saved is not None:
                verify(saved)
        except CheckpointError as error:
            yield path, error.what
        except FileNotFoundError:
            continue  # replaced meanwhile, by a training that goes on
        except OSError as error:
            yield path, str(error)


def to_remove(files: list[SavedFile], *, max_to_keep: int, metric: str | None, mode: str) -> list[SavedFile]:
    """Which files go: all but the newest, or all but the best by a metric; the very newest always stays."""
    if metric is None:
        return files[:-max_to_keep]
    best = {saved.path for saved in ranked(files, metric, mode)[:max_to_keep]}
    return [saved for saved in files[:-1] if saved.path not in best]


def ranked(files: Iterable[SavedFile], metric: str, mode: str) -> list[SavedFile]:
    """Best first, the newer of equals first; a file without the metric, or with nan, is the worst."""

    def value(saved: SavedFile) -> tuple[float, int]:
        number = saved.info.get(metric)
        if isinstance(number, bool) or not isinstance(number, int | float):
            return math.inf, -saved.order
        try:
            found = float(number)
        except OverflowError:  # an integer that no float holds
            found = math.inf if number > 0 else -math.inf
        return (math.inf if math.isnan(found) else found if mode == "min" else -found), -saved.order

    return sorted(files, key=value)


def remove(saved: SavedFile) -> None:
    """Take a file away, then its side-car and its shards; another process may have been faster."""
    shards = _shards_in(saved.records)
    saved.path.unlink(missing_ok=True)
    sidecar_of(saved.path).unlink(missing_ok=True)
    for name in shards:
        _remove_pair(saved.path.with_name(name))


def listed_shards(path: Path) -> set[str]:
    """The shards that belong to a checkpoint, by what its side-car says of the file that is there."""
    try:
        size_bytes = path.stat().st_size
    except OSError:
        return set()
    records = _read_sidecar(path)
    fitting = [record for record in records if record["size_bytes"] == size_bytes]
    return _shards_in(fitting[:1] or records)


def _shards_in(records: Iterable[dict[str, Any]]) -> set[str]:
    found: set[str] = set()
    for record in records:
        names = record.get("shards", [])
        found |= {str(one) for one in names if named_in(str(one))} if isinstance(names, list) else set()
    return found


def remove_leftovers(folder: Path) -> None:
    """Take away what processes that were killed while writing have left: temporary files, and shards of no checkpoint."""
    if not folder.is_dir():
        return
    for path in folder.glob(f".*{TEMP_SUFFIX}"):
        if _is_left(path, path.name.removesuffix(TEMP_SUFFIX)):
            with contextlib.suppress(OSError):  # a folder of somebody's, or no right to
                path.unlink()
    for path in folder.glob(f"*{SUFFIX}"):
        found = named_in(path.name)
        if found is None or not _is_left(path, f".{found['who']}"):
            continue
        main = path.with_name(found["main"])
        is_unknown = main.is_file() and not _read_sidecar(main)  # it may be of those: nobody can tell
        if not is_unknown and path.name not in listed_shards(main):
            with contextlib.suppress(OSError):
                _remove_pair(path)


def remove_replaced_shards(path: Path, who: str) -> None:
    """When a checkpoint has come in the place of another of its name: take away the other's shards, and those of saves before."""
    process, number = order_of(who)
    for shard in path.parent.glob(f"{glob.escape(path.name)}.*{SUFFIX}"):
        found = named_in(shard.name)
        if found is None or found["main"] != path.name or found["who"] == who:
            continue
        of, its = order_of(found["who"])
        is_before = of == process and its < number
        if is_before or (of != process and _is_left(shard, f".{found['who']}")):
            _remove_pair(shard)


def _remove_pair(path: Path) -> None:
    path.unlink(missing_ok=True)
    sidecar_of(path).unlink(missing_ok=True)


def _is_left(path: Path, owner: str) -> bool:
    """Whether the process that its name tells of is gone; of one on another host, whether it is a day old."""
    found = re.search(rf"\.{re.escape(socket.gethostname())}-(\d{{1,9}})-[0-9a-f]{{8}}$", owner)
    try:
        if time.time() - path.stat().st_mtime > _DAY_SECONDS:
            return True
    except OSError:
        return False
    return found is not None and int(found[1]) != os.getpid() and not psutil.pid_exists(int(found[1]))


def _read_sidecar(path: Path) -> tuple[dict[str, Any], ...]:
    sidecar = sidecar_of(path)
    try:
        found = sidecar.stat()
        return _records_in(str(sidecar), found.st_mtime_ns, found.st_ino, found.st_size)
    except OSError:
        return ()


@functools.lru_cache(maxsize=256)
def _records_in(sidecar: str, *_state: int) -> tuple[dict[str, Any], ...]:
    """What a side-car says; it is read again when it is another file than before."""
    try:
        record = parsed_json(bytes_of(Path(sidecar)).decode("utf-8"))
        records = [record, *([record["previous"]] if "previous" in record else [])]
        for one in records:
            if not (isinstance(one["sha256"], str) and isinstance(one["size_bytes"], int)):
                return ()
            int(one["order"])
            if not isinstance(rebuild_plain(one["info"]), dict):
                return ()
    except (ValueError, KeyError, TypeError, OverflowError, CheckpointError):
        return ()
    return tuple(records)
