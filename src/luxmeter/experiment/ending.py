"""The line at the end of a run: what changed against the run before, and what that did to the metrics."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from luxmeter.described import Described, canonical, told_apart
from luxmeter.experiment.records import SYSTEM, read_code
from luxmeter.files import to_json, write_file
from luxmeter.literal import show
from luxmeter.store import Run
from luxmeter.store.layout import named
from luxmeter.store.rows import flatten

_MOST = 4  # things of a kind that are named; the rest is counted
_LAST = "last"  # folder in the lab's index: the run of each experiment that finished last


@dataclass(frozen=True)
class Facts:
    """What two runs are compared by."""

    id: str
    params: Mapping[str, Any] = field(default_factory=dict)  # flat: optim.lr
    files: Mapping[str, str] = field(default_factory=dict)
    tree: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)  # package or part of the machine -> version
    metrics: Mapping[str, float] = field(default_factory=dict)  # the last value of each


def facts_of(run: Run) -> Facts:
    """The facts of a run as it rests."""
    code = read_code(run)
    found = run.environment
    machine = {name: str(found.get("machine", {}).get(name)) for name in ("python", "processor", "gpus")}
    metrics = {key: each["last"] for key, each in run.summary.items() if not key.startswith(SYSTEM)}
    return Facts(
        run.id,
        flatten(run.params),
        code.files if code else {},
        (code.git or {}).get("tree") if code else None,
        {**(machine if found else {}), **found.get("packages", {})},
        {key: float(value) for key, value in metrics.items() if isinstance(value, int | float)},
    )


def against(before: Facts | None, after: Facts, *, name: str) -> str:
    """The line, without who ended and how."""
    if before is None:
        shown = some(f"{key} {number(value)}" for key, value in after.metrics.items())
        return f"the first of {name!r}" + (f": {shown}" if shown else "")
    changed = [*_changed_params(before.params, after.params), *_changed_code(before, after)]
    changed += _changed_environment(before.environment, after.environment)
    what = "; ".join(changed) or "nothing changed"
    effect = some(_changed_metrics(before.metrics, after.metrics))
    return f"against {before.id[:5]}: {what}" + (f" => {effect}" if effect else "")


def some(things: Iterable[str]) -> str:
    """The first few of them, and how many more there are."""
    listed = list(things)
    more = len(listed) - _MOST
    return ", ".join(listed[:_MOST]) + (f" and {more} more" if more > 0 else "")


def number(value: float) -> str:
    """Short, with the digits that matter."""
    return f"{value:.4g}"


def _changed_params(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    changed = [
        f"{name} {' -> '.join(told_apart(before.get(name, _ABSENT), after.get(name, _ABSENT), _value))}"
        for name in {**before, **after}
        if not (name in before and name in after)
        or canonical(to_json(before[name])) != canonical(to_json(after[name]))
    ]
    return [some(changed)] if changed else []


_ABSENT = object()


def _value(value: Any) -> str:
    text = "unset" if value is _ABSENT else str(value) if isinstance(value, Described) else show(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _changed_code(before: Facts, after: Facts) -> list[str]:
    # Only files that both runs had loaded, or new ones: what a run did not import is no change.
    both = [name for name, sha in after.files.items() if before.files.get(name, sha) != sha]
    new = [name for name in after.files if name not in before.files] if before.files else []
    gone = [name for name in before.files if name not in after.files] if after.files else []
    listed = [*both, *(f"+{name}" for name in new), *(f"-{name}" for name in gone)]
    if listed:
        return [f"code {some(listed)}"]
    if before.tree and after.tree and before.tree != after.tree:
        return ["code that was not imported"]
    return []


def _changed_environment(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    if not before or not after:
        return []
    changed = [
        f"{name} {before.get(name, 'absent')} -> {after.get(name, 'absent')}"
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    ]
    return [some(changed)] if changed else []


def _changed_metrics(before: Mapping[str, float], after: Mapping[str, float]) -> list[str]:
    shown = []
    for key, value in after.items():
        old = before.get(key)
        if old is None:
            shown.append(f"{key} {number(value)} (new)")
        elif old == value or (old != old and value != value):
            shown.append(f"{key} {number(value)} (same)")
        elif number(old) == number(value):
            shown.append(f"{key} {number(value)} (about the same)")
        else:
            share = f" ({(value - old) / abs(old):+.1%})" if old and abs(value - old) < 1e3 * abs(old) else ""
            shown.append(f"{key} {number(old)} -> {number(value)}{share}")
    return shown


def line(run: Run, lab_folder: Path) -> str:
    """What is said at the end of `run`; if it finished, the next run is compared with it."""
    before = previous_run(lab_folder, run.name)
    compared = against(facts_of(before) if before else None, facts_of(run), name=run.name)
    status = run.status
    if status["state"] == "finished":
        note_finished(lab_folder, run.name, run.id)
    took = duration((status["ended_ns"] - run.created_ns) / 1e9)
    return f"{run.name} {run.id[:5]} {status['state']} in {took}; {compared}"


def duration(seconds: float) -> str:
    """A time as people say it: `0.42 s`, `3 min 5 s`, `2 h 10 min`."""
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def is_silenced() -> bool:
    """Whether LUXMETER_QUIET asks for no words."""
    return os.environ.get("LUXMETER_QUIET", "").lower() not in ("", "0", "no", "off", "false")


# -- which run came before ----------------------------------------------------------------------------------------


def previous_run(lab_folder: Path, name: str) -> Run | None:
    """The run of this experiment that finished last, by the note that it left; None if there is none any more."""
    try:
        run_id = _last_file(lab_folder, name).read_text(encoding="utf-8").strip()
        return Run(lab_folder / "runs" / named("run", run_id), lab_folder)
    except Exception:  # noqa: BLE001  (never left, or its run was removed: then there is nothing to compare with)
        return None


def note_finished(lab_folder: Path, name: str, run_id: str) -> None:
    """Leave the note. It is derived, as all in `index/`: without it a line says less, nothing else."""
    file = _last_file(lab_folder, name)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, f"{run_id}\n".encode())
    except OSError:
        return


def _last_file(lab_folder: Path, name: str) -> Path:
    # The name itself may hold anything, a slash too.
    digest = hashlib.sha256(name.encode("utf-8", "backslashreplace")).hexdigest()
    return lab_folder / "index" / _LAST / digest[:32]
