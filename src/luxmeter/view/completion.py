"""What Tab offers where a run is named. Each Tab starts the program: the index is read with sqlite3 alone, and nothing heavy is imported.

Whatever goes wrong, nothing is offered: a traceback at the prompt is worse.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from luxmeter.errors import LuxmeterError
from luxmeter.files import read_json
from luxmeter.settings import find_lab

_MOST = 50  # offered at once
_NEWEST = 200  # run folders that are looked into where no index tells
_WHOLE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._=+@,~-]*"
)  # what every shell takes as one word; Bash splits at a colon
_ODD = re.compile(
    r"[^A-Za-z0-9 ._=+@,/-]"
)  # zsh evaluates what it is offered: nothing that it could obey may be in it
_KINDS = (
    "trace",
    "ops",
    "bench",
    "check",
    "model",
    "zen",
    "search",
    "eval",
)  # as store.KINDS has it; a test compares them
_LATEST = [("latest", "the last run"), ("latest~1", "the one before")]


def complete_run(incomplete: str) -> list[tuple[str, str]]:
    """The runs whose id, name or tag begins so, the newest first, each with a word about it; of `RUN/`, what it holds."""
    try:
        lab = find_lab()
        if not lab.exists:
            return []
        run, slash, kind = incomplete.rpartition("/")
        return _held(lab.folder, run, kind) if slash else _named(lab.folder, incomplete)
    except Exception:  # noqa: BLE001 - see above
        return []


def _named(folder: Path, begins: str) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for run_id, name, said in _runs(folder):
        found.setdefault(run_id, said)
        found.setdefault(name, f"the last of this name, {run_id}")
    for tag in _tags(folder):
        found.setdefault(tag, "a tag")
    offered = [
        (word, _ODD.sub("?", said)[:80])
        for word, said in [*_LATEST, *found.items()]
        if word.startswith(begins) and _WHOLE.fullmatch(word)
    ]
    return offered[:_MOST] if found else []


def _runs(folder: Path) -> Iterator[tuple[str, str, str]]:
    """(id, name, a word about it) of each run, the newest first: those that the index does not know yet, then its own."""
    known = _indexed(folder)
    ids = {run_id for run_id, _, _ in known}
    fresh = [entry for entry in os.scandir(folder / "runs") if entry.name not in ids]
    fresh.sort(
        key=lambda entry: entry.name.partition("-")[2], reverse=True
    )  # an id ends with the time of its run
    for entry in fresh[:_NEWEST]:
        with contextlib.suppress(
            LuxmeterError, OSError, KeyError, TypeError
        ):  # one that is damaged hides no other
            identity = read_json(Path(entry.path) / "run.json")
            yield entry.name, str(identity["name"]), str(identity["name"])
    yield from known


def _indexed(folder: Path) -> list[tuple[str, str, str]]:
    """The runs that this machine's index holds."""
    rows = _asked(
        folder, "select id, name, state from luxmeter_runs where not archived order by created_ns desc limit 2000"
    )  # fmt: skip
    there = [row for row in rows if (folder / "runs" / row[0]).exists()]
    return [(run_id, name, f"{name} {state}") for run_id, name, state in there]


def _tags(folder: Path) -> list[str]:
    return [tag for (tag,) in _asked(folder, "select distinct tag from luxmeter_tags limit 200")]


def _asked(folder: Path, question: str) -> list[tuple[str, ...]]:
    """What the index says as it was last brought up to date; nothing if there is none, or if it is on a server."""
    from luxmeter.store import host_name

    file = folder / "index" / f"{host_name()}.sqlite"
    if not file.is_file():
        return []
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=0.2)) as index,
    ):
        return index.execute(question).fetchall()
    return []


def _held(folder: Path, run: str, begins: str) -> list[tuple[str, str]]:
    """`RUN/trace` and the like, as far as that run has them."""
    every = list(_runs(folder))
    match = next((r for r, name, _ in every if r.startswith(run) or name == run), None)
    if run == "latest" and every:
        match = every[0][0]
    if match is None:
        return []
    place = folder / "runs" / match
    held = [kind for kind in _KINDS if any((place / ("calls" if kind == "trace" else f"results/{kind}")).glob("*/*.json"))]  # fmt: skip
    return [(f"{run}/{kind}", "") for kind in held if kind.startswith(begins)]
