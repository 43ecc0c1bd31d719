"""What a short command costs before it says anything: CPU seconds of ours beside those of others, in turns.

    python benchmarks/start_up.py [--runs 200] [--rounds 5] [--json]

A lab of 200 runs is made, and 200 runs for MLflow and Guild where they are installed (in the environment of `make bench`);
`git log` over 200 commits is the floor of what a person expects of a list. Each command runs once unmeasured (files in
memory, bytecode written), then `--rounds` times in turns; the least and the median of user + system time are shown.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

OURS = ("--help", "runs", "show latest", "diff latest latest~1", "code latest", "doctor --no-try")


def cpu_s(command: list[str], where: Path, env: dict[str, str]) -> float:
    """User and system time of a process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        command, cwd=where, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def make_lab(folder: Path, count: int) -> None:
    """Runs of seven names, with parameters and two metrics."""
    import luxmeter as lux

    for number in range(count):
        params = {"lr": 10 ** -(1 + number % 3), "seed": number, "optim": {"name": "adam"}}
        with lux.Experiment(
            f"mnist-{number % 7}", params=params, lab=folder, quiet=True, code=number == count - 1
        ) as run:
            for step in range(20):
                run.log({"loss": 2.0 / (step + 1), "acc": step / 20}, step=step)
    lux.runs(lab=folder)


def make_git(folder: Path, count: int) -> list[str]:
    """A repository of so many commits."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q", str(folder)], check=True)
    for number in range(count):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", f"run {number}"], cwd=folder, check=True)
    return ["git", "--no-pager", "log", "--oneline"]


def make_mlflow(folder: Path, count: int) -> list[str] | None:
    """Its runs in a SQLite file, and the command that lists them."""
    try:
        import mlflow
    except ImportError:
        return None
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    experiment = mlflow.create_experiment("mnist")
    for number in range(count):
        with mlflow.start_run(experiment_id=experiment):
            mlflow.log_params({"lr": 0.1, "seed": number})
            mlflow.log_metrics({"loss": 0.1, "acc": 0.9})
    return [sys.executable, "-m", "mlflow", "runs", "list", "--experiment-id", experiment]


def main() -> None:
    """Make the labs, measure in turns, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    said = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_lab(folder / "lab", said.runs)
        env = {
            **os.environ,
            "LUXMETER_HOME": str(folder / "lab"),
            "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        }
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        env["PYTHONPYCACHEPREFIX"] = str(
            folder / "bytecode"
        )  # as after an installation, whatever this tree has
        commands = {"python -c pass": [sys.executable, "-c", "pass"]}
        commands |= {
            f"luxmeter {words}": [sys.executable, "-m", "luxmeter", *words.split()] for words in OURS
        }
        (folder / "git").mkdir()
        commands["git log --oneline"] = make_git(folder / "git", said.runs)
        if (listing := make_mlflow(folder, said.runs)) is not None:
            commands["mlflow runs list"] = listing
        if shutil.which("guild"):
            commands["guild runs"] = ["guild", "runs"]
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for turn in range(said.rounds + 1):
            for name, command in commands.items():
                where = folder / "git" if name.startswith("git") else folder
                took = cpu_s(command, where, env)
                if turn:
                    taken[name].append(took)
    found = {
        name: {"least_s": min(times), "median_s": statistics.median(times)} for name, times in taken.items()
    }
    if said.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{'CPU seconds':32}{'least':>8}{'median':>8}")
    for name, times in found.items():
        print(f"{name:32}{times['least_s']:8.2f}{times['median_s']:8.2f}")


if __name__ == "__main__":
    main()
