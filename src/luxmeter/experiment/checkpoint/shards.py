"""A checkpoint that several ranks write: each its rows of every sharded tensor, in a file of its own.

`000012.ckpt` holds all that ranks have alike, and in the place of each sharded tensor what it was; beside it lies
`000012.ckpt.<rank>-of-<ranks>.<who>.shard` for each rank, in the same format (format.py). `who` is drawn, and names the process that
completes the checkpoint and the number of its save: no two saves have the same files. The checkpoint is there when `000012.ckpt` is, which is
written last. A reader takes the rows that it needs from whichever files hold them, on any number of ranks.

Not torch.distributed.checkpoint: its default reader unpickles (`.metadata`, and all that is no tensor), its safetensors reader knows tensors
alone, and neither has what a Saver's files have: a sha256, a name that appears when all is there, a place in the rotation.

Format history (of a shard's state, "luxmeter_shard")
1 = rank, of, starts (of its first row in each tensor), rows, own.
"""

from __future__ import annotations

import copy
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from luxmeter.errors import CheckpointError
from luxmeter.experiment.checkpoint.format import damaged, new_owner, opened
from luxmeter.experiment.checkpoint.rebuild import rebuild

SHARD_VERSION = 1
SUFFIX = ".shard"
_FILES = "luxmeter_shards"  # in a checkpoint's state: its shards, in the order of the ranks
_SHARDED = "luxmeter_sharded"  # in the place of a tensor
_OWN = "luxmeter_own"  # in the place of what each rank has for itself
_NAME = re.compile(r"(?P<main>[^/\\]+\.(?:ckpt|pth))\.(?P<rank>\d+)-of-(?P<of>\d+)\.(?P<who>[^/\\]+)\.shard")


@dataclass(frozen=True)
class Own:
    """In a state: what this rank has for itself. Loaded, it is the list of what each had."""

    value: Any


@dataclass
class Taken:
    """A state taken apart: what all ranks have alike, and what this one has."""

    whole: Any
    rows: dict[str, torch.Tensor] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)
    own: Any = None

    def shard(self, rank: int, of: int) -> dict[str, Any]:
        """The state of this rank's file."""
        rows = {"rows": self.rows, "starts": self.starts, "own": self.own}
        return {"luxmeter_shard": SHARD_VERSION, "rank": rank, "of": of, **rows}


def take_apart(state: Any, files: Sequence[str]) -> Taken:
    """Of a state with DTensors that lie in rows on the ranks. Nothing is copied, and nobody is asked: each takes its own."""
    taken = Taken(None)
    taken.whole = {**_without_shards(state, (), taken), _FILES: list(files)}
    return taken


def _without_shards(value: Any, path: tuple[str, ...], taken: Taken) -> Any:
    if isinstance(value, dict):
        made = copy.copy(value)  # of its own kind, with what hangs on it
        for key, inner in value.items():
            made[key] = _without_shards(inner, (*path, str(key)), taken)
        return made
    if type(value) in (list, tuple):
        return type(value)(
            _without_shards(inner, (*path, str(number)), taken) for number, inner in enumerate(value)
        )
    if isinstance(value, Own):
        taken.own = value.value
        return {_OWN: True}
    if not is_in_rows(value):
        return value
    key = ".".join(path)
    while key in taken.starts:
        key += "#"
    local = value.detach().to_local()
    taken.starts[key] = rows_of(value.shape[0], value.device_mesh.get_local_rank(), value.device_mesh.size())[
        0
    ]
    taken.rows[key] = local
    return {_SHARDED: key, "shape": list(value.shape), "dtype": value.dtype}


def is_in_rows(value: Any) -> bool:
    """Whether it is a DTensor, each rank holding some of its rows."""
    tensors = sys.modules.get("torch.distributed.tensor")  # not loaded: then there is none
    return (
        tensors is not None
        and isinstance(value, tensors.DTensor)
        and value.device_mesh.ndim == 1
        and value.placements[0].is_shard(0)
    )


def rows_of(length: int, rank: int, ranks: int) -> tuple[int, int]:
    """The first row of a rank, and the one behind its last: as torch deals them out."""
    each = -(-length // ranks)
    return min(rank * each, length), min((rank + 1) * each, length)


# -- the files ----------------------------------------------------------------------------------------------------------


def new_save() -> str:
    """`who` of a save that begins. Drawn, too: after a restart of the machine a process may have the number of one before."""
    return f"{secrets.token_hex(4)}.{new_owner()}"


def order_of(who: str) -> tuple[str, str]:
    """The process of a save, and its number among the saves of that process, which can be compared."""
    process, _, number = who.partition(".")[2].rpartition("-")
    return process, number


def shard_names(main: str, ranks: int, who: str) -> list[str]:
    """The names of a checkpoint's shards, in the order of the ranks."""
    return [f"{main}.{rank}-of-{ranks}.{who}{SUFFIX}" for rank in range(ranks)]


def named_in(name: str) -> re.Match[str] | None:
    """`main`, `rank`, `of` and `who` of a shard's name; None if it is no shard's."""
    return _NAME.fullmatch(name)


def shards_in(state: Any, path: Path) -> list[Path]:
    """The shards of a checkpoint that was read from `path`; none, if it is whole in itself."""
    if not isinstance(state, Mapping) or _FILES not in state:
        return []
    names = state[_FILES]
    fits = isinstance(names, list) and all(
        isinstance(one, str) and (found := named_in(one)) and int(found["rank"]) == number
        for number, one in enumerate(names)
    )
    if not fits:
        raise damaged(path, f"what it calls its shards are none: {str(names)[:200]}")
    return [path.parent / name for name in names]


def put_together(state: Any, path: Path, *, lazily: bool = False) -> Any:
    """The state that was taken apart; `lazily`: with a Sharded in the place of each sharded tensor, of which nothing is read yet."""
    shards = [ShardFile(one) for one in shards_in(state, path)]
    found = _with_shards({key: one for key, one in state.items() if key != _FILES}, shards, lazily)
    for one in shards if not lazily else ():
        one.close()
    return found


def _with_shards(value: Any, shards: list[ShardFile], lazily: bool) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_OWN}:
            return OwnOfRanks(shards) if lazily else [one.own() for one in shards]
        if value.keys() == {_SHARDED, "shape", "dtype"}:
            sharded = Sharded(str(value[_SHARDED]), _shape(value["shape"], shards), value["dtype"], shards)
            return sharded if lazily else sharded.full()
        made = copy.copy(value)
        for key, inner in value.items():
            made[key] = _with_shards(inner, shards, lazily)
        return made
    if type(value) in (list, tuple):
        return type(value)(_with_shards(inner, shards, lazily) for inner in value)
    return value


def _shape(said: Any, shards: list[ShardFile]) -> tuple[int, ...]:
    if not isinstance(said, list) or not said or not all(type(n) is int and 0 <= n < 1 << 63 for n in said):
        raise damaged(shards[0].path, f"a tensor in it is said to have the shape {str(said)[:80]}")
    return tuple(said)


class ShardFile:
    """A shard, read as far as it is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def _read(self) -> tuple[Any, Mapping[str, Any]]:
        file, tree = opened(self.path)
        if not isinstance(tree, dict) or tree.get("luxmeter_shard") != SHARD_VERSION:
            raise damaged(self.path, "it is no shard of a checkpoint that this Luxmeter reads")
        return file, tree

    def own(self) -> Any:
        """What its rank had for itself."""
        file, tree = self._read
        try:
            tensors = {name: file.get_tensor(name).clone() for name in _names_in(tree["own"])}
            return rebuild(tree["own"], tensors)
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, SafetensorError) as error:
            raise damaged(self.path, f"what its rank had for itself is not there: {error}") from error

    def start(self, key: str) -> int | None:
        """Its first row of a tensor; None if it has none of it."""
        start = self._read[1]["starts"].get(key)
        return int(start) if isinstance(start, int) else None

    def rows(self, key: str, start: int, stop: int) -> tuple[int, torch.Tensor] | None:
        """Its rows from `start` to `stop` of the whole tensor, and the first of them; None if it has none of those."""
        file, tree = self._read
        first = self.start(key)
        if first is None:
            return None
        node = tree["rows"][key]
        is_plain = isinstance(node, dict) and not node.keys() - {"$", "t", "parameter", "grad"}
        if is_plain:
            held: Any = file.get_slice(node["t"])
            length = held.get_shape()[0]
        else:
            held = rebuild(node, {node["t"]: file.get_tensor(node["t"]).clone()})
            length = held.shape[0]
        begin, end = max(start, first), min(stop, first + length)
        if begin >= end:
            return None
        return begin, held[begin - first : end - first].detach().clone()

    def close(self) -> None:
        """Let the file go."""
        vars(self).pop("_read", None)


@dataclass(frozen=True)
class Sharded:
    """A tensor whose rows lie in several files."""

    key: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    files: list[ShardFile]

    def full(self) -> torch.Tensor:
        """All of it."""
        return self.rows(0, self.shape[0])

    def rows(self, start: int, stop: int) -> torch.Tensor:
        """Its rows from `start` to `stop`, of the files that have them."""
        found = 0
        try:
            made = torch.empty((stop - start, *self.shape[1:]), dtype=self.dtype)
            for file in self.files:
                part = file.rows(self.key, start, stop)
                if part is not None:
                    begin, rows = part
                    if begin - start != found:  # the ranks' rows follow each other
                        raise ValueError(f"rows from {begin} on follow {found} rows from {start} on")
                    made[begin - start : begin - start + len(rows)] = rows
                    found += len(rows)
        except (LookupError, TypeError, ValueError, RuntimeError, AttributeError, SafetensorError) as error:
            raise damaged(self.files[0].path, f"{self.key} in it does not fit: {error}") from error
        if found != stop - start:
            raise damaged(
                self.files[0].path, f"of {self.key} {found} rows from {start} to {stop} are in the shards"
            )
        return made


class OwnOfRanks(Sequence[Any]):
    """What each rank had for itself, read when it is asked for."""

    def __init__(self, files: list[ShardFile]) -> None:
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, rank: Any) -> Any:
        return self._files[rank].own()


def _names_in(node: Any) -> set[str]:
    """The tensors that a part of a tree is made of."""
    if isinstance(node, list):
        return set().union(*map(_names_in, node)) if node else set()
    if not isinstance(node, dict):
        return set()
    own = {node["t"]} if "$" in node and isinstance(node.get("t"), str) else set()
    return own.union(*(_names_in(inner) for inner in node.values()))


def not_complete(path: Path, missing: Sequence[Path], waited_s: float) -> CheckpointError:
    """The error of a checkpoint of which shards did not come."""
    names = [found["rank"] for one in missing if (found := named_in(one.name))]
    return CheckpointError(
        "checkpoint-incomplete",
        f"{path.name} was not written: rank{'s' if len(names) > 1 else ''} {', '.join(names)} did not write "
        f"{'their shards' if len(names) > 1 else 'its shard'} to {path.parent} within {waited_s:.0f} s.",
        "Earlier checkpoints are intact. All ranks need the same folder: see what became of these, and whether they reach it.",
    )
