"""What logging a metric costs the training loop: Luxmeter beside TensorBoard, Trackio, Aim and MLflow, in one run.

    make peers && .venv-peers/bin/python benchmarks/metric_logging.py [--rounds 5]

For each system, in turn and several times over: one scalar a call and ten scalars a step, in microseconds a call
or step, while running and including a durable close (every value on disk and readable). Medians over the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TEN = {f"metric_{i}": 0.1 * i for i in range(10)}
os.environ.update(
    GIT_PYTHON_REFRESH="quiet",
    MLFLOW_DISABLE_TELEMETRY="true",
    DO_NOT_TRACK="true",
    AIM_UI_TELEMETRY_ENABLED="0",
    TRACKIO_LOGO_LIGHT_URL="",
    HF_HUB_OFFLINE="1",
)


class Luxmeter:
    """A run in a lab of its own."""

    calls = 200_000

    def __init__(self, folder: Path) -> None:
        from luxmeter.store import Lab

        self.run = Lab.open(folder / "lab").create_run("bench")
        self.one = lambda step: self.run.metric("loss", 0.5, step)
        self.ten = lambda step: self.run.log(TEN, step)
        self.close = self.run.finish


class LuxmeterExperiment:
    """The same through lux.Experiment, with everything it does beside (output, code, the machine's load)."""

    calls = 200_000

    def __init__(self, folder: Path) -> None:
        import luxmeter as lux

        self.exp = lux.Experiment("bench", lab=folder / "lab", quiet=True).start_exp()
        self.one = lambda step: self.exp.log("loss", 0.5, step)
        self.ten = lambda step: self.exp.log(TEN, step=step)
        self.close = self.exp.end_exp


class TensorBoard:
    """torch.utils.tensorboard.SummaryWriter."""

    calls = 3_000

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder / "tb"))
        self.one = lambda step: self.writer.add_scalar("loss", 0.5, step)
        self.close = self.writer.close

    def ten(self, step: int) -> None:
        for key, value in TEN.items():
            self.writer.add_scalar(key, value, step)


class Trackio:
    """trackio.init / log / finish, local, no dashboard."""

    calls = 3_000

    def __init__(self, folder: Path) -> None:
        import trackio

        with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
            self.run = trackio.init(project=f"bench{time.time_ns()}", embed=False)
        self.one = lambda step: self.run.log({"loss": 0.5}, step=step)
        self.ten = lambda step: self.run.log(TEN, step=step)

    def close(self) -> None:
        with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
            self.run.finish()


class Aim:
    """aim.Run.track in a repository of its own, without system metrics."""

    calls = 1_000

    def __init__(self, folder: Path) -> None:
        from aim import Repo, Run

        Repo.from_path(str(folder / "aim"), init=True)
        self.run = Run(repo=str(folder / "aim"), system_tracking_interval=None, capture_terminal_logs=False)
        self.one = lambda step: self.run.track(0.5, name="loss", step=step)
        self.close = self.run.close

    def ten(self, step: int) -> None:
        for key, value in TEN.items():
            self.run.track(value, name=key, step=step)


class MLflow:
    """mlflow with SQLite, one call a step."""

    calls = 150

    def __init__(self, folder: Path) -> None:
        import mlflow

        mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
        mlflow.start_run()
        self.one = lambda step: mlflow.log_metric("loss", 0.5, step=step)
        self.ten = lambda step: mlflow.log_metrics(TEN, step=step)
        self.close = mlflow.end_run


SYSTEMS: dict[str, Callable[[Path], Any]] = {
    "luxmeter": Luxmeter,
    "luxmeter Experiment": LuxmeterExperiment,
    "trackio": Trackio,
    "tensorboard": TensorBoard,
    "aim": Aim,
    "mlflow": MLflow,
}


def measure(make: Callable[[Path], Any], what: str) -> tuple[float, float]:
    """Microseconds a call while running, and including the close."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, _quiet():
        os.environ["TRACKIO_DIR"] = f"{folder}/trackio"
        system = make(Path(folder))
        call = getattr(system, what)
        count = system.calls if what == "one" else max(system.calls // 5, 50)
        for step in range(20):
            call(step)
        time.sleep(0.3)  # numpy's own threads, begun when it was imported just now, spin for some 15 ms
        start = time.perf_counter()
        for step in range(20, 20 + count):
            call(step)
        logged = time.perf_counter()
        system.close()
        closed = time.perf_counter()
    return (logged - start) / count * 1e6, (closed - start) / count * 1e6


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def measure_apart(name: str, what: str) -> tuple[float, float]:
    """`measure` in a process of its own: some peers keep threads and locks, and hang or fail in a second round."""
    command = [sys.executable, __file__, "--one", name, what]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip() or "no output").splitlines()[-1])
    running, closed = json.loads(done.stdout.strip().splitlines()[-1])
    return running, closed


def main() -> None:
    """Entry."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--systems", nargs="*", default=list(SYSTEMS))
    parser.add_argument(
        "--one", nargs=2, metavar=("SYSTEM", "WHAT"), help="measure one thing and print it as JSON"
    )
    options = parser.parse_args()
    if options.one:
        logging.disable(logging.WARNING)
        print(json.dumps(measure(SYSTEMS[options.one[0]], options.one[1])), flush=True)
        os._exit(0)  # without waiting for what a peer still does in the background
    times: dict[tuple[str, str], list[tuple[float, float]]] = {}
    missing: dict[str, str] = {}
    for _ in range(options.rounds):
        for name in options.systems:
            for what in ("one", "ten"):
                if name in missing:
                    continue
                try:
                    times.setdefault((name, what), []).append(measure_apart(name, what))
                except Exception as error:  # a peer that does not run here is a row that says so
                    missing[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:80]}"
    print(
        f"microseconds, median of {options.rounds} rounds; 'close' includes a durable end spread over the calls"
    )
    print(
        f"{'system':20} {'1 scalar':>10} {'+ close':>10} {'10 scalars':>11} {'+ close':>10}   against luxmeter"
    )
    medians = {
        key: (statistics.median(t[0] for t in rows), statistics.median(t[1] for t in rows))
        for key, rows in times.items()
    }
    ours = medians.get(("luxmeter", "one")), medians.get(("luxmeter", "ten"))
    for name in options.systems:
        if name in missing:
            print(f"{name:20} not measured: {missing[name]}")
            continue
        one, ten = medians[name, "one"], medians[name, "ten"]
        ratio = (
            f"{one[1] / ours[0][1]:8.1f}x {ten[1] / ours[1][1]:8.1f}x (with close)"
            if ours[0] and ours[1]
            else ""
        )
        print(f"{name:20} {one[0]:10.2f} {one[1]:10.2f} {ten[0]:11.2f} {ten[1]:10.2f}   {ratio}")


if __name__ == "__main__":
    main()
