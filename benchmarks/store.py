"""How fast the store answers: 10,000 runs listed and filtered, a metric of a million points read, MLflow beside.

    make peers && .venv-peers/bin/python benchmarks/store.py [--runs 10000] [--no-mlflow]

Each question is asked several times by a fresh `Lab` on a warm file cache; the median is shown. The index is made
once before: by then every run is in it, as it is after the first list.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from luxmeter.store import Lab
from luxmeter.store.layout import RUNS

os.environ.update(MLFLOW_DISABLE_TELEMETRY="true", DO_NOT_TRACK="true", GIT_PYTHON_REFRESH="quiet")


def median_ms(question: Callable[[], Any], times: int = 7) -> float:
    """Median milliseconds of a question."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        question()
        taken.append((time.perf_counter() - start) * 1e3)
    return statistics.median(taken)


def make_runs(lab: Lab, count: int) -> float:
    """Real runs, each with three parameters and two metrics; returns seconds."""

    def make(i: int) -> None:
        params = {"lr": 10 ** -(i % 5), "batch": 2 ** (i % 8), "optim": {"name": ("adam", "sgd")[i % 2]}}
        with lab.create_run(f"exp{i % 20}", params=params) as run:
            run.log({"loss": 1.0 / (i + 1), "acc": (i * 7 % count) / count}, step=1)

    start = time.perf_counter()
    with ThreadPoolExecutor(
        8
    ) as pool:  # most of the time of a run this short is waiting for the disk at its end
        list(pool.map(make, range(count)))
    return time.perf_counter() - start


def ours(count: int) -> dict[str, float]:
    """Luxmeter's answers in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab.open(Path(folder) / "lab")
        print(f"made {count} runs in {make_runs(lab, count):.1f} s", flush=True)
        start = time.perf_counter()
        assert len(lab.runs(archived=None)) == count
        print(f"index made from the directories in {time.perf_counter() - start:.1f} s", flush=True)
        newest = sorted((lab.folder / RUNS).iterdir())[0]
        os.utime(
            lab.folder / RUNS, (time.time() - 60, time.time() - 60)
        )  # as it is when nobody made a run just now
        lab.runs(limit=1)
        answers = {
            "list the newest 100": median_ms(lambda: lab.runs(limit=100)),
            f"list all {count}": median_ms(lab.runs),
            "filter by parameter and metric": median_ms(
                lambda: lab.runs("param.lr <= 0.01 and metric.acc > 0.9", sort="-metric.acc")
            ),
            "filter, first 100 by metric": median_ms(
                lambda: lab.runs("param.optim.name = adam", sort="-metric.acc", limit=100)
            ),
            "find one by the beginning of its id": median_ms(lambda: lab.find(newest.name[:12])),
        }
        lab.close()
        return answers


def million() -> dict[str, float]:
    """Reading one metric of a million points, in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab.open(Path(folder) / "lab")
        with lab.create_run("long") as run:
            for step in range(1_000_000):
                run.metric("loss", 1.0 / (step + 1), step)
                if step % 10 == 0:
                    run.metric("acc", 0.5, step)
        found = lab.find("latest")
        assert found.metric("loss").to_arrow().num_rows == 1_000_000
        answer = {"read one metric of 1,000,000 points": median_ms(lambda: found.metric("loss"))}
        lab.close()
        return answer


def mlflow(count: int) -> dict[str, float]:
    """MLflow's listing on SQLite, in milliseconds."""
    import logging

    logging.disable(logging.WARNING)
    from mlflow.entities import Metric, Param, ViewType
    from mlflow.tracking import MlflowClient

    with tempfile.TemporaryDirectory() as folder:
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
            found, token = [], None
            while True:
                page = client.search_runs([experiment], "", ViewType.ACTIVE_ONLY, 1000, page_token=token)
                found += page
                token = page.token
                if not token:
                    break
            assert len(found) == count

        def filtering() -> None:
            client.search_runs(
                [experiment], "metrics.acc > 0.9", ViewType.ACTIVE_ONLY, 1000, ["metrics.acc DESC"]
            )

        return {
            f"mlflow: list all {count}": median_ms(listing, 3),
            f"mlflow: filter {count} by metric": median_ms(filtering, 3),
        }


def main() -> None:
    """Entry."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--mlflow-runs", type=int, nargs="*", default=[1_000, 10_000])
    parser.add_argument("--no-mlflow", action="store_true")
    options = parser.parse_args()
    answers = {**ours(options.runs), **million()}
    for count in [] if options.no_mlflow else options.mlflow_runs:
        answers.update(mlflow(count))
    print(f"\n{'question':44} {'ms':>10}")
    for question, taken in answers.items():
        print(f"{question:44} {taken:10.1f}")


if __name__ == "__main__":
    main()
