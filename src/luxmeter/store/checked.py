"""What a run's small files may hold: the types and ranges that lists, the index and readers rely on.

Files are damaged by disks and by hand, and runs come from elsewhere. Each is checked here, where it is read, so that
nothing behind has to doubt it; what does not fit is said with the file's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from luxmeter.errors import StoreError
from luxmeter.files import read_json
from luxmeter.store import layout

STATES = ("running", "finished", "failed", "interrupted", "lost", "damaged")
Test = Callable[[Any], bool]


def damaged(path: Path, why: str) -> StoreError:
    """The error that a file of a run is not as it should be."""
    return StoreError(
        "run-damaged",
        f"{path} is damaged: {why}.",
        "Restore it from a copy, or remove the run with luxmeter rm: the other runs are not touched.",
    )


def read_identity(run_folder: Path) -> dict[str, Any]:
    """run.json: id, name, when and by which process the run was made."""
    path = run_folder / layout.IDENTITY
    said = read_json(path)
    if said is None:
        if is_begun(run_folder):
            raise damaged(path, "it is missing")
        raise StoreError(
            "not-a-run",
            f"{run_folder} is not a run: it has no {layout.IDENTITY}.",
            "Name a run's own folder.",
        )
    found = _object(path, said, {"format": _whole})
    if found["format"] > layout.RUN_FORMAT:
        raise StoreError(
            "run-format",
            f"{run_folder} has format {found['format']}; this version reads up to {layout.RUN_FORMAT}.",
            "Update luxmeter to read it.",
        )
    _object(path, found, {"id": _run_id, "name": _text, "created_ns": _whole, "process": _mapping})
    _object(path, found["process"], {"host": _text, "machine": _text, "pid": _pid, "started": _number})
    if not isinstance(found.get("parent"), str | None):
        raise damaged(path, f"its parent is {_shown(found['parent'])}")
    return found


def read_status(run_folder: Path) -> dict[str, Any] | None:
    """status.json: how the run ended; None if there is none."""
    path = run_folder / layout.STATUS
    said = read_json(path)
    if said is None:
        return None
    usual = {"ended_ns": None, "error": "", "lost_rows": 0}
    tests: dict[str, Test] = {"state": _state, "ended_ns": _moment, "error": _text, "lost_rows": _whole}
    return _object(path, {**usual, **said} if isinstance(said, Mapping) else said, tests)


def read_marks(path: Path) -> dict[str, Any]:
    """marks.json: tags, note, archived."""
    said = read_json(path, {})
    usual = {"tags": [], "note": "", "archived": False}
    tests: dict[str, Test] = {"tags": _texts, "note": _text, "archived": lambda v: isinstance(v, bool)}
    return _object(path, {**usual, **said} if isinstance(said, Mapping) else said, tests)


def read_mapping(path: Path) -> dict[str, Any]:
    """params.json or environment.json: anything under names."""
    return _object(path, read_json(path, {}), {})


def read_summary(run_folder: Path) -> dict[str, dict[str, Any]] | None:
    """summary.json: each metric's n, last, last_step, min and max; None if there is none."""
    path = run_folder / layout.SUMMARY
    said = read_json(path)
    return None if said is None else check_summary(path, said)


def read_sources(run_folder: Path) -> dict[str, str]:
    """sources.json: from where a metric was taken that the program did not log itself."""
    path = run_folder / layout.SOURCES
    found = _object(path, read_json(path, {}), {})
    if not all(isinstance(part, str) for pair in found.items() for part in pair):
        raise damaged(path, "a source is no text")
    return found


def check_summary(path: Path, said: Any) -> dict[str, dict[str, Any]]:
    """A summary, whether it was kept or made from the table at `path`."""
    tests: dict[str, Test] = {
        "n": _whole, "last": _number, "last_step": _whole, "min": _number, "max": _number,
    }  # fmt: skip
    found = _object(path, said, {})
    if not all(isinstance(key, str) for key in found):
        raise damaged(path, "a metric has no name")
    return {key: _object(path, summary, tests) for key, summary in found.items()}


def is_begun(folder: Path) -> bool:
    """Whether a folder is that of a run that was begun, whatever became of its identity since."""
    return any((folder / name).is_file() for name in (layout.IDENTITY, layout.ALIVE, layout.STATUS))


def is_half_made(folder: Path) -> bool:
    """Whether a folder holds no more than what is written before a run begins."""
    names = {entry.name for entry in folder.iterdir() if not entry.name.startswith(".")}
    return names <= {layout.PARAMS, layout.ENVIRONMENT}


def _object(path: Path, said: Any, tests: Mapping[str, Test]) -> dict[str, Any]:
    if not isinstance(said, dict):
        raise damaged(path, f"it holds {_shown(said)}, not names with values")
    for name, fits in tests.items():
        if name not in said:
            raise damaged(path, f"it has no {name!r}")
        if not fits(said[name]):
            raise damaged(path, f"its {name!r} is {_shown(said[name])}")
    return said


def _shown(value: Any) -> str:
    text = repr(value)  # of JSON: no longer, and nested no deeper, than what reads it takes
    return text if len(text) <= 60 else f"{text[:57]}..."


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _whole(value: Any) -> bool:
    """An integer that Arrow and every database hold."""
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def _moment(value: Any) -> bool:
    return value is None or _whole(value)


def _number(value: Any) -> bool:
    return isinstance(value, float) or _whole(value)


def _pid(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 31


def _mapping(value: Any) -> bool:
    return isinstance(value, dict)


def _run_id(value: Any) -> bool:
    return layout.is_named("run", value)


def _state(value: Any) -> bool:
    return isinstance(value, str) and value in STATES
