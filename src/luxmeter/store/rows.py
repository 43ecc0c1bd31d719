"""What lists show of a run, and what the index takes in of it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple, overload

from luxmeter.described import TYPE, type_of
from luxmeter.errors import StoreError


def _json_of(text: str) -> Any:
    """What the index kept as JSON."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise StoreError(
            "index-damaged",
            f"The index holds {text[:60]!r}, which is no JSON: {error}.",
            "Make it anew: luxmeter reindex.",
        ) from error


class RunHead(NamedTuple):
    """The little of a run that a list of 10,000 needs: the index answers it without touching the runs' rows."""

    id: str
    name: str
    state: str
    created_ns: int
    ended_ns: int | None

    @property
    def text(self) -> str:
        """As the index keeps it, and hands it out in lists."""
        return json.dumps(self)


class RunHeads(Sequence[RunHead]):
    """The heads of a list: one text, as the index gave it, taken apart when the first of them is looked at."""

    def __init__(self, count: int, text: str) -> None:
        self._count = count
        self._text = text

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> RunHead: ...
    @overload
    def __getitem__(self, index: slice) -> list[RunHead]: ...
    def __getitem__(self, index: int | slice) -> RunHead | list[RunHead]:
        if isinstance(index, slice):
            return list(map(RunHead._make, self._parts[index]))
        return RunHead._make(self._parts[index])

    def __iter__(self) -> Iterator[RunHead]:
        return map(RunHead._make, self._parts)

    @cached_property
    def _parts(self) -> list[list[Any]]:
        parts: list[list[Any]] = _json_of(f"[{self._text}]")
        return parts


class RunRow(NamedTuple):
    """A run as lists show it. A tuple: lists of 10,000 are made of them."""

    id: str
    name: str
    state: str
    created_ns: int
    ended_ns: int | None
    archived: bool
    note: str
    host: str
    params_json: str
    metrics_json: str
    tags_json: str

    def __repr__(self) -> str:
        return f"<RunRow {self.id} {self.name!r} {self.state}>"

    @property
    def head(self) -> RunHead:
        """Its first columns."""
        return RunHead(self.id, self.name, self.state, self.created_ns, self.ended_ns)

    @property
    def duration_s(self) -> float | None:
        """How long it took; None while it has not ended."""
        return None if self.ended_ns is None else (self.ended_ns - self.created_ns) / 1e9

    @property
    def params(self) -> dict[str, Any]:
        """Parameters, flat: `optim.lr`."""
        return dict(_json_of(self.params_json))

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """Each metric's n, last, last_step, min, max; None where it is not a number."""
        return dict(_json_of(self.metrics_json))

    @property
    def tags(self) -> list[str]:
        """Its tags."""
        return list(_json_of(self.tags_json))

    def record(self) -> dict[str, Any]:
        """As lists give it, as plain values."""
        return {
            "name": self.name,
            "state": self.state,
            "created": datetime.fromtimestamp(self.created_ns / 1e9).isoformat(sep=" ", timespec="seconds"),
            "duration": self.duration_s,
            "params": self.params,
            "metrics": {key: summary["last"] for key, summary in self.metrics.items()},
            "tags": self.tags,
            "note": self.note,
            "archived": bool(self.archived),
        }


@dataclass(frozen=True)
class Entry:
    """What the index takes in of one run."""

    row: RunRow
    params: dict[str, Any]
    metrics: dict[str, dict[str, Any]]
    recheck: bool  # running, or lost as far as a clock tells: look again next time


def flatten(params: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"optim": {"lr": 1}} -> {"optim.lr": 1}; of an object that is kept field by field also its `$type`."""
    flat: dict[str, Any] = {}
    if name := type_of(params):
        flat[f"{prefix}{TYPE}"] = name
    for key, value in params.items():
        if isinstance(value, dict) and (value or type_of(value)):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def finite(value: Any) -> Any:
    """The value as the index holds it: what is not a number is None."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
