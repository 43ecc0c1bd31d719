"""The line at the end of a run: what changed against the run before, and what that did to the metrics."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from luxmeter.described import Described, told_apart
from luxmeter.experiment.compare.diff import ABSENT, Change, RunDiff
from luxmeter.files import write_file
from luxmeter.literal import show
from luxmeter.render import number
from luxmeter.store import Run, layout, records

_MOST = 4  # things of a kind that are named; the rest is counted
_LAST = "last"  # folder in the lab's index: the run of each experiment that finished last


def against(before: Run | None, after: Run) -> str:
    """The line, without who ended and how."""
    if before is None:
        shown = some(f"{key} {number(value)}" for key, value in _numbers(after).items())
        return f"the first of {after.name!r}" + (f": {shown}" if shown else "")
    diff = RunDiff(before, after)
    changed = [some(_param(change) for change in diff.params), _code(diff), some(_environment(diff))]
    what = "; ".join(filter(None, changed)) or "nothing changed"
    effect = some(_metrics(_numbers(before), _numbers(after)))
    return f"against {before.id[:5]}: {what}" + (f" => {effect}" if effect else "")


def _numbers(run: Run) -> dict[str, float]:
    """The last value of each metric, the machine's own left out."""
    lasts = {key: each["last"] for key, each in run.metrics.items() if not key.startswith(records.SYSTEM)}
    return {key: float(value) for key, value in lasts.items() if isinstance(value, int | float)}


def some(things: Iterable[str]) -> str:
    """The first few of them, and how many more there are."""
    listed = list(things)
    more = len(listed) - _MOST
    return ", ".join(listed[:_MOST]) + (f" and {more} more" if more > 0 else "")


def _param(change: Change) -> str:
    return f"{change.name} {' -> '.join(told_apart(change.a, change.b, _value))}"


def _value(value: Any) -> str:
    text = "unset" if value is ABSENT else str(value) if isinstance(value, Described) else show(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _code(diff: RunDiff) -> str:
    signs = {"changed": "", "new": "+", "gone": "-"}
    listed = [
        f"{sign}{path}"
        for kind, sign in signs.items()
        for path, found in diff.imported.items()
        if found == kind
    ]
    if listed:
        return f"code {some(listed)}"
    return "code that was not imported" if diff.tree_differs else ""


def _environment(diff: RunDiff) -> Iterator[str]:
    """What may change results: packages, and of the machine what computes."""
    for change in diff.environment:
        if change.kind == "package" or (
            change.kind == "machine" and change.name in ("python", "processor", "gpus")
        ):
            yield f"{change.name} {' -> '.join('absent' if v is ABSENT else str(v) for v in (change.a, change.b))}"


def _metrics(before: Mapping[str, float], after: Mapping[str, float]) -> Iterator[str]:
    for key, value in after.items():
        old = before.get(key)
        if old is None:
            yield f"{key} {number(value)} (new)"
        elif old == value or (old != old and value != value):
            yield f"{key} {number(value)} (same)"
        elif number(old) == number(value):
            yield f"{key} {number(value)} (about the same)"
        else:
            share = f" ({(value - old) / abs(old):+.1%})" if old and abs(value - old) < 1e3 * abs(old) else ""
            yield f"{key} {number(old)} -> {number(value)}{share}"


def line(run: Run, lab_folder: Path) -> str:
    """What is said at the end of `run`; if it finished, the next run is compared with it."""
    compared = against(previous_run(lab_folder, run.name), run)
    state = run.state
    if state == "finished":
        note_finished(lab_folder, run.name, run.id)
    secret = _secrets(run)
    left = f"; left out of its code, being secrets: {some(secret)}" if secret else ""
    return f"{run.name} {run.id[:5]} {state} in {duration(run.duration or 0.0)}; {compared}{left}"


def _secrets(run: Run) -> list[str]:
    """Files of the project that were not captured because they hold keys or passwords."""
    code = run.snapshot
    found = code.git.get("secrets", []) if code is not None and code.git else []
    return [str(name) for name in found]


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
        return Run(lab_folder / "runs" / layout.named("run", run_id), lab_folder)
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
