"""Which API of MindSpore does what an API of torch does, and how sure that is.

`data.json` is made by `tools/counterparts/make.py`: every entry was run on both frameworks with the same inputs.
Format `counterparts`, version 1: {"what", "version", "torch", "mindspore", "tolerance", "operators": {torch's name:
{"status", "why", "error", "targets": [{"name", "how", "names", "samples", "agree", "why"}]}}}. History: 1, the first.
Nothing of either framework is imported here.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

VERSION = 1
DATA = Path(__file__).with_name("data.json")

# equal: on every sample. partly: on those that MindSpore takes. random: shape and dtype, values cannot be compared.
# The others name what is wrong with the best target; absent: there is none.
Status: TypeAlias = Literal[
    "equal", "partly", "random", "value", "dtype", "shape", "raises", "crashes", "hangs", "absent"
]
# How arguments are handed over. same: as they are. by_name: all but the first under their names.
# packed: loose numbers at the end as one tuple. unpacked: a tuple at the end as loose numbers.
How: TypeAlias = Literal["same", "by_name", "packed", "unpacked"]
GOOD: tuple[Status, ...] = ("equal", "partly", "random")


@dataclass(frozen=True)
class Target:
    """One API of MindSpore, how it is handed torch's arguments, and on how many samples it agreed."""

    name: str  # mindspore.mint.add, Tensor.add, mindspore.nn.Dense
    how: How = "same"
    names: tuple[tuple[str, str], ...] = ()  # argument names that differ: torch's, MindSpore's
    fixed: tuple[tuple[str, Any], ...] = ()  # arguments MindSpore needs beside torch's to mean the same
    samples: int = 0
    agree: int = 0
    status: Status = "equal"
    why: str = ""


@dataclass(frozen=True)
class Counterpart:
    """What is known of one operator of torch: the best target first, others that agree on some samples after it."""

    op: str
    status: Status
    targets: tuple[Target, ...] = ()
    why: str = ""
    error: float | None = None  # the largest seen where they agree, relative to the largest value

    @property
    def is_good(self) -> bool:
        """Whether MindSpore gives what torch gives, wherever it takes the arguments."""
        return self.status in GOOD


def counterpart_of(op: str) -> Counterpart | None:
    """What is known of an operator of torch; None if nothing is.

    >>> counterpart_of("torch.add").targets[0].name
    'mindspore.mint.add'
    """
    return counterparts().get(op)


@functools.cache
def counterparts() -> Mapping[str, Counterpart]:
    """All operators of torch that were looked at, by name."""
    said = json.loads(DATA.read_text(encoding="utf-8"))
    return MappingProxyType({op: from_json(op, entry) for op, entry in said["operators"].items()})


def made_from() -> dict[str, str]:
    """The versions of torch and MindSpore that were compared."""
    said = json.loads(DATA.read_text(encoding="utf-8"))
    return {"torch": said["torch"], "mindspore": said["mindspore"]}


def to_json(counterpart: Counterpart) -> dict[str, Any]:
    """An entry of the data file."""
    said: dict[str, Any] = {"status": counterpart.status}
    if counterpart.why:
        said["why"] = counterpart.why
    if counterpart.error is not None:
        said["error"] = counterpart.error
    said["targets"] = [
        {
            "name": t.name,
            **({"how": t.how} if t.how != "same" else {}),
            **({"names": dict(t.names)} if t.names else {}),
            **({"fixed": dict(t.fixed)} if t.fixed else {}),
            "samples": t.samples,
            "agree": t.agree,
            **({"status": t.status} if t.status != "equal" else {}),
            **({"why": t.why} if t.why else {}),
        }
        for t in counterpart.targets
    ]
    return said


def from_json(op: str, said: Mapping[str, Any]) -> Counterpart:
    """What `to_json` made of it, read back."""
    targets = tuple(
        Target(
            t["name"], t.get("how", "same"), tuple(t.get("names", {}).items()), tuple(t.get("fixed", {}).items()),
            t["samples"], t["agree"], t.get("status", "equal"), t.get("why", ""),
        )
        for t in said["targets"]
    )  # fmt: skip
    return Counterpart(op, said["status"], targets, said.get("why", ""), said.get("error"))
