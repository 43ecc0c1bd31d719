"""One grammar names a run everywhere: id or its unique beginning, name, tag, `latest`, `latest~2`, or a path.

A name or tag that several runs have means the newest; `name~1` the one before it. A trace that belongs to no run is
named alike; where a trace is asked for, `latest` is the last one of the lab, whether in a run or in none.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path

from luxmeter.errors import StoreError, suggestion
from luxmeter.files import read_json
from luxmeter.store import layout
from luxmeter.store.catalog import Catalog
from luxmeter.store.results import Result
from luxmeter.store.run import Run

_BACK = re.compile(r"(?P<what>.+)~(?P<n>[0-9]+)")


def find_run(lab_folder: Path, catalog: Catalog, reference: str) -> Run:
    """The run that `reference` names in this lab, or at that path."""
    folder = find_folder(lab_folder, catalog, reference)
    return Run(folder, lab_folder if folder.parent == lab_folder / layout.RUNS else None)


def find_folder(lab_folder: Path, catalog: Catalog, reference: str) -> Path:
    """The folder of the run that `reference` names, which need not be readable."""
    if os.sep in reference or reference in (".", ".."):
        return _at_path(reference)
    back = _BACK.fullmatch(reference)
    what, number = (back["what"], int(back["n"])) if back else (reference, 0)
    if what == "latest":
        run_id = catalog.newest(number)
        if run_id is None:
            count = len(catalog.select(""))
            raise StoreError(
                "run-not-found",
                f"There is no run {reference!r}: the lab {lab_folder} holds {count}.",
                "luxmeter runs lists them." if count else "Make one first, for instance with luxmeter run.",
            )
        return lab_folder / layout.RUNS / run_id
    found = catalog.find(what)
    how = found[0][1] if found else ""
    if how == "prefix" and len(found) > 1:
        raise StoreError(
            "run-ambiguous",
            f"{what!r} begins {len(found)} run ids: {', '.join(run_id for run_id, _ in found[:5])}.",
            "Give more of the id.",
        )
    if number < len(found):
        return lab_folder / layout.RUNS / found[number][0]
    if Path(reference).is_dir():
        return _at_path(reference)
    if found:
        raise StoreError(
            "run-not-found",
            f"There are only {len(found)} runs called {what!r}.",
            f"The oldest is {what}~{len(found) - 1}.",
        )
    known = {word for row in catalog.select("", limit=1000) for word in (row.name, row.id, *row.tags)}
    raise StoreError(
        "run-not-found",
        f"No run in {lab_folder} is called {reference!r}.",
        suggestion(reference, known) or "luxmeter runs lists them.",
    )


def find_trace(lab_folder: Path, listed: Callable[..., list[Result]], reference: str) -> Result:
    """The trace that `reference` names among those of this lab (Lab.traces); StoreError if there is none."""
    back = _BACK.fullmatch(reference)
    what, number = (back["what"], int(back["n"])) if back else (reference, 0)
    traces = listed(of_runs=what == "latest")
    if what == "latest":
        found = traces
    else:
        found = [t for t in traces if t.folder.name == what] or [t for t in traces if _name_of(t) == what]
        found = found or [t for t in traces if t.folder.name.startswith(what)]
        if len(found) > 1 and _name_of(found[0]) != what:
            ids = ", ".join(trace.folder.name for trace in found[:5])
            raise StoreError(
                "trace-ambiguous", f"{what!r} begins {len(found)} traces: {ids}.", "Give more of the id."
            )
    if number < len(found):
        return found[-1 - number]
    raise StoreError(
        "trace-not-found",
        f"There is no trace {reference!r} in {lab_folder}"
        + (f": it holds {len(found)} of {what!r}." if found else "."),
        "Make one with luxmeter trace script.py, or luxmeter run --trace script.py.",
    )


def _name_of(trace: Result) -> str:
    with contextlib.suppress(StoreError):  # damaged: it can be named by its id
        said = read_json(trace.folder / "trace.json")
        return str(said.get("name", "")) if isinstance(said, dict) else ""
    return ""


def _at_path(reference: str) -> Path:
    return Path(reference).expanduser().absolute()
