"""10,000 runs listed and filtered by `lux.runs`, against MLflow listing 1,000 of its own; asked in turns, medians.

    make peers && .venv-peers/bin/python benchmarks/list_runs.py [--runs 10000] [--mlflow-runs 1000] [--lab FOLDER]

`--lab` takes a lab that `--keep FOLDER` left behind, which saves making the runs again.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import luxmeter as lux
import store as store_benchmark
from luxmeter.experiment.query.runs import C
from luxmeter.store import Lab
from luxmeter.store.layout import RUNS

os.environ.update(MLFLOW_DISABLE_TELEMETRY="true", DO_NOT_TRACK="true", GIT_PYTHON_REFRESH="quiet")


def our_questions(folder: Path, count: int) -> dict[str, Callable[[], Any]]:
    """What is asked of ours. The lab is the project's own: opened once a process, as in a notebook."""

    def listing() -> None:
        assert len(lux.runs(lab=folder)) == count

    def walking() -> None:
        assert len([(run.id, run.name, run.state) for run in lux.runs(lab=folder)]) == count

    def filtering() -> None:
        found = lux.runs((C.param.lr <= 0.01) & (C.metric.acc > 0.9), sort="-metric.acc", lab=folder)
        assert 0 < len(found) < count

    def reading() -> None:
        rows = lux.runs(lab=folder).rows
        last = {row.id: {key: metric["last"] for key, metric in row.metrics.items()} for row in rows}
        assert len([(row.id, row.name, row.state, row.params, last[row.id]) for row in rows]) == count

    return {
        f"lux.runs: list {count}, the list in hand": listing,
        f"lux.runs: filter {count} by parameter and metric, sort": filtering,
        f"lux.runs: list {count}, id, name and status of each read": walking,
        f"lux.runs: list {count}, parameters and last metrics too": reading,
        "lux.runs: the newest 100": lambda: lux.runs(limit=100, lab=folder),
    }


def mlflow_question(folder: Path, count: int) -> Callable[[], Any]:
    """MLflow's list of all its runs, on SQLite."""
    import logging

    logging.disable(logging.WARNING)
    from mlflow.entities import Metric, Param, ViewType
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.create_experiment("bench")
    for i in range(count):
        run = client.create_run(experiment).info.run_id
        client.log_batch(
            run,
            metrics=[Metric("loss", 1.0 / (i + 1), 0, 1), Metric("acc", (i * 7 % count) / count, 0, 1)],
            params=[Param("lr", str(10 ** -(i % 5))), Param("batch", "8"), Param("optim", "adam")],
        )
        client.set_terminated(run)

    def listing() -> None:
        assert len(client.search_runs([experiment], "", ViewType.ACTIVE_ONLY, count)) == count

    return listing


def main() -> None:
    """Entry."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--mlflow-runs", type=int, default=1_000)
    parser.add_argument("--lab", type=Path)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.lab or options.keep or Path(scratch) / "lab"
        lab = Lab.open(folder)
        if options.lab is None:
            store_benchmark.make_runs(lab, options.runs)
        count = len(lab.runs(archived=None))
        aged = time.time() - 60  # as it is when nobody made a run just now
        os.utime(lab.folder / RUNS, (aged, aged))
        questions = our_questions(lab.folder, count)
        peer = f"mlflow: list {options.mlflow_runs}"
        questions[peer] = mlflow_question(Path(scratch), options.mlflow_runs)
        taken: dict[str, list[float]] = {name: [] for name in questions}
        work: dict[str, list[float]] = {
            name: [] for name in questions
        }  # processor time: on a busy machine it says more
        for _ in range(options.rounds + 1):
            for name, ask in questions.items():
                start, busy = time.perf_counter(), time.process_time()
                ask()
                work[name].append((time.process_time() - busy) * 1e3)
                taken[name].append((time.perf_counter() - start) * 1e3)
        medians = {name: statistics.median(times[1:]) for name, times in taken.items()}  # the first warms up
        busy_ms = {name: statistics.median(times[1:]) for name, times in work.items()}
        print(f"\n{'question':62} {'ms':>9} {'times faster':>13} {'cpu ms':>9} {'times faster':>13}")
        for name, ms in medians.items():
            shown = f"{ms:9.1f} {medians[peer] / ms:13.0f} {busy_ms[name]:9.1f} {busy_ms[peer] / busy_ms[name]:13.0f}"
            print(f"{name:62} {shown}")


if __name__ == "__main__":
    main()
