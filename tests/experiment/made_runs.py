"""Runs with everything an experiment keeps, made in an instant: records as `lux.Experiment` writes them."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from luxmeter.experiment.capture.watch_files import to_batch
from luxmeter.files import to_json
from luxmeter.store import Lab, Run
from luxmeter.store.records import FileChange

ENVIRONMENT = {
    "machine": {"processor": "abacus", "python": "3.11.7", "gpus": []},
    "load": {"load_1min": 0.5},
    "packages": {"torch": "2.13.0", "numpy": "2.4.0", "pip": "24.0"},
    "variables": {"OMP_NUM_THREADS": "2"},
}


def make_run(
    lab: Lab,
    name: str = "mnist",
    *,
    params: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Sequence[float]] | None = None,
    code: Mapping[str, str] | None = None,
    root: Path | None = None,
    argv: Sequence[str] = ("train.py",),
    seed: int | None = None,
    environment: Mapping[str, Any] | None = None,
    files: Mapping[str, bytes] | None = None,
    keep: bool = True,
    output: str = "",
    tags: Sequence[str] = (),
    state: str = "finished",
    error: str = "",
    git: Mapping[str, Any] | None = None,
) -> Run:
    """A run that has ended. `files` lie below root/out, which was watched as the part `out`."""
    place = root or Path.cwd()
    run = lab.create_run(name, params=params, environment=environment or ENVIRONMENT, tags=tags)
    for key, values in (metrics or {}).items():
        for step, value in enumerate(values):
            run.metric(key, float(value), step)
    if code is not None:
        kept = {path: run.put_blob(text.encode()) for path, text in code.items()}
        run.put_file("code.json", json.dumps({"root": str(place), "files": kept, "git": git}))
        command = {
            "format": 1, "argv": list(argv), "executable": "python", "cwd": str(place), "script": argv[0], "module": None,
            "seed": seed, "interactive": False, "by": "script",
        }  # fmt: skip
        run.put_file("command.json", json.dumps(to_json(command)))
    changes = []
    for path, body in (files or {}).items():
        target = place / "out" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(body)
        name_ = run.put_blob(body) if keep else hashlib.sha256(body).hexdigest()
        changes.append(
            FileChange(path, str(place / "out"), "out", "created", name_, len(body), time.time_ns(), keep)
        )
    if changes:
        run.append_rows("files", to_batch(changes))
    if output:
        (run.folder / "logs").mkdir()
        (run.folder / "logs" / "output.log").write_text(output)
    run.finish(state, error=error)
    return Run(run.folder, lab.folder)
