"""`lux.runs()`: the runs of a lab, filtered and sorted, as a list and as tables."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from luxmeter.by_name import by_name
from luxmeter.errors import StoreError, UsageError, suggestion, warn_once
from luxmeter.experiment.query.conditions import C, Question, all_of, any_of, equals
from luxmeter.files import from_json, read_json
from luxmeter.render import counted
from luxmeter.settings import LAB_FILE, find_lab
from luxmeter.store import STATES, Expression, Lab, Run, RunHead, RunRow, parse_filter

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["C", "Run", "Runs", "find_run", "lab_of", "open_lab", "runs"]

_open: dict[tuple[int, Path], Lab] = {}  # by process: a database connection does not survive a fork
_open_lock = threading.Lock()


class Runs(Sequence[Run]):
    """Runs in the order that was asked for. A run is read in full only when something of it is asked for."""

    def __init__(self, heads: Sequence[RunHead], lab: Lab | None) -> None:
        self._heads = heads
        self.lab = lab

    def __len__(self) -> int:
        return len(self._heads)

    @cached_property
    def rows(self) -> list[RunRow]:
        """What the index holds of each: parameters and metrics too, got in one go. Runs that are gone are left out."""
        if self.lab is None:
            return []
        found = self.lab.catalog.rows([head.id for head in self._heads])
        return [found[head.id] for head in self._heads if head.id in found]

    def in_full(self) -> list[Run]:
        """The same runs, each with what the index holds of it: asked for in one go, where much of many is looked at."""
        return [] if self.lab is None else [Run.listed(row, self.lab.folder) for row in self.rows]

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> Runs: ...
    def __getitem__(self, index: int | slice) -> Run | Runs:
        if isinstance(index, slice):
            return Runs(self._heads[index], self.lab)
        return self._read(self._heads[index])

    def __iter__(self) -> Iterator[Run]:
        return map(self._read, self._heads)

    def params_frame(self) -> pd.DataFrame:
        """A DataFrame, one row a run: name, state, created, duration, then a column a parameter (dotted names)."""
        return self._frame(
            [{**_facts(row), **{k: _in_frame(v) for k, v in row.params.items()}} for row in self.rows]
        )

    def metrics_frame(self) -> pd.DataFrame:
        """A DataFrame, one row a run: name, state, created, duration, then each metric's last value."""
        return self._frame(
            [{**_facts(row), **{k: m["last"] for k, m in row.metrics.items()}} for row in self.rows]
        )

    def points_frame(self, *keys: str) -> pd.DataFrame:
        """A DataFrame of all points of these metrics: run, key, step, value, time_ns. Runs without one are left out."""
        import pandas as pd

        parts = []
        for run in self.in_full():
            for key in keys:
                if key in run.summary:
                    try:
                        points = run.metric(key).to_pandas()
                    except StoreError as error:  # damaged since: the others are there all the same
                        warn_once("table-damaged", error.what, "Its points are not among these.", key=run.id)
                        continue
                    points.insert(0, "key", key)
                    points.insert(0, "run", run.id)
                    parts.append(points)
        columns = ["run", "key", "step", "value", "time_ns"]
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)

    def _read(self, head: RunHead) -> Run:
        assert self.lab is not None  # without a lab there are no heads
        return Run.listed(head, self.lab.folder)

    def _frame(self, records: list[dict[str, Any]]) -> pd.DataFrame:
        import pandas as pd

        columns = list(dict.fromkeys(key for record in records for key in record))
        index = pd.Index([row.id for row in self.rows], name="run")
        return pd.DataFrame(records, index=index, columns=columns or None)

    def __repr__(self) -> str:
        shown = [f"  {run.id}  {run.name}  {run.state}" for run in self[:10]]
        more = [f"  ... and {len(self) - 10} more"] if len(self) > 10 else []
        return "\n".join(
            [counted(len(self), "run") + (f" of {self.lab.folder}" if self.lab else ""), *shown, *more]
        )

    def _repr_html_(self) -> str:
        """In a notebook."""
        shown: str = by_name("runs html")(self)
        return shown


def runs(
    where: str | Question = "",
    *,
    name: str | None = None,
    tags: str | Iterable[str] = (),
    state: str | Iterable[str] | None = None,
    sort: str = "-created",
    limit: int | None = None,
    archived: bool | None = False,
    lab: Lab | str | Path | None = None,
    **params: Any,
) -> Runs:
    """The runs that fulfil all conditions, newest first.

    `where` is the filter language ("param.lr > 0.1 and metric.acc >= 0.9") or a question (`C.param.lr > 0.1`);
    name and tags may have * and ?; further keywords are parameters that must be equal. archived: True for those
    alone, None for both. `lab` is a folder or a Lab; without one the lab that holds here.
    """
    place = open_lab(lab, create=False) if lab is not None or find_lab().exists else None
    expression = _expression(where, name, tags, state, params)
    if place is None:
        return Runs([], None)
    return Runs(place.catalog.select_heads(expression, sort=sort, limit=limit, archived=archived), place)


def open_lab(lab: Lab | str | Path | None = None, *, create: bool = True) -> Lab:
    """The lab in a folder (by default the one that holds here), opened once a process."""
    if isinstance(lab, Lab):
        return lab
    folder = Path(lab).expanduser().absolute() if lab is not None else find_lab().folder
    if not (folder / LAB_FILE).is_file() and (folder / ".luxmeter" / LAB_FILE).is_file():
        folder = folder / ".luxmeter"  # the project's folder was named, not the lab in it
    key = (os.getpid(), folder)
    with _open_lock:
        known = _open.get(key)
        if known is not None:
            identity = read_json(folder / LAB_FILE)
            if identity is not None and identity.get("id") == known.id:
                return known
            known.close()
            del _open[key]
        opened = Lab.open(folder, create=create)
        for other in [k for k in _open if k[0] != key[0]]:
            del _open[other]  # a parent process's: not ours to close
        _open[key] = opened
        return opened


def find_run(reference: str | Path, *, lab: Lab | str | Path | None = None) -> Run:
    """The run that `reference` names: id or its beginning, name, tag, `latest`, `latest~2`, or a path."""
    text = str(reference)
    if lab is None and not find_lab().exists:
        if (Path(text) / "run.json").is_file():
            return Run(Path(text).absolute())
        raise StoreError(
            "no-runs-yet",
            f"There is no run {text!r}: nothing is kept here yet ({find_lab().folder}).",
            "Make one with luxmeter run script.py, or name another lab with LUXMETER_HOME.",
        )
    return open_lab(lab, create=False).find(text)


def lab_of(run: Run) -> Lab:
    """The lab that a run lies in; for one that was named by a path outside of any, the lab that holds here."""
    folder = run.folder.parent.parent
    return open_lab(folder if (folder / LAB_FILE).is_file() else None)


def _expression(
    where: str | Question,
    name: str | None,
    tags: str | Iterable[str],
    state: str | Iterable[str] | None,
    params: dict[str, Any],
) -> Expression | None:
    parts: list[Expression] = []
    given = where.expression if isinstance(where, Question) else parse_filter(where)
    if given is not None:
        parts.append(given)
    if name is not None:
        parts.append(equals("name", name))
    parts += [equals("tag", tag) for tag in ([tags] if isinstance(tags, str) else tags)]
    if state is not None:
        wanted = [state] if isinstance(state, str) else list(state)
        for one in wanted:
            if one not in STATES:
                raise UsageError(
                    "unknown-state",
                    f"Runs have no state {one!r}.",
                    suggestion(one, STATES) or f"Use one of {', '.join(STATES)}.",
                )
        if wanted:
            parts.append(any_of([equals("state", one) for one in wanted]))
    parts += [equals(f"param.{key}", value) for key, value in params.items()]
    return all_of(parts)


def _in_frame(value: Any) -> Any:
    """A parameter as a DataFrame takes it: half characters (odd bytes of a file name) are spelled out."""
    found = from_json(value)
    return found.encode("utf-8", "backslashreplace").decode() if isinstance(found, str) else found


def _facts(row: RunRow) -> dict[str, Any]:
    import pandas as pd

    created = pd.Timestamp(row.created_ns, unit="ns", tz="UTC")
    return {"name": row.name, "state": row.state, "created": created, "duration": row.duration_s}
