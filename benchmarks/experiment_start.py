"""What an Experiment costs: its start and its end in a git repository of 5,000 files, clean and with changes.

The goal is at most 150 ms for both together. `git status`, which looks at the same files, is timed in the same rounds.
Run: python benchmarks/experiment_start.py [--files 5000] [--rounds 15]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GOAL_MS = 150.0
_TRAIN = """
import sys
from pathlib import Path
sys.path.append({folder!r})
from experiment_start import print_rounds
print_rounds(Path.cwd(), int(sys.argv[1]))
"""


def git(place: Path, *words: str) -> None:
    who = ["-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0"]
    subprocess.run(["git", *who, *words], cwd=place, check=True, capture_output=True)


def make_repository(place: Path, files: int) -> None:
    for number in range(files):
        path = place / f"part{number // 100:03}" / f"module{number:05}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"value = {number}\n" * 40)
    (place / "train.py").write_text(_TRAIN.format(folder=str(Path(__file__).parent.absolute())))
    git(place, "init", "-q")
    git(place, "add", ".")
    git(place, "commit", "-qm", "all")
    time.sleep(1.1)  # so that no file is as young as the index: git would read each again, every time
    git(place, "status")


def one_round(place: Path) -> tuple[float, float, float]:
    """Start, end and `git status`, in milliseconds."""
    import luxmeter as lux

    t0 = time.perf_counter()
    exp = lux.Experiment("bench", {"lr": 0.1}, quiet=True)
    with exp:
        t1 = time.perf_counter()
        exp.log({"loss": 0.3, "acc": 0.9}, step=0)
        t2 = time.perf_counter()
    t3 = time.perf_counter()
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    subprocess.run(
        ["git", "status", "--porcelain"], cwd=place, check=True, capture_output=True, env=environment
    )
    t4 = time.perf_counter()
    return (t1 - t0) * 1e3, (t3 - t2) * 1e3, (t4 - t3) * 1e3


def print_rounds(place: Path, rounds: int) -> None:
    """What the repository's own script does, so that its code is the code that ran."""
    import torch  # as in a program that trains: thousands of modules are loaded

    torch.set_num_threads(1)
    for _ in range(2):
        one_round(place)
    print(json.dumps([one_round(place) for _ in range(rounds)]))


def measure(title: str, place: Path, rounds: int) -> float:
    done = subprocess.run(
        [sys.executable, "train.py", str(rounds)], cwd=place, check=True, capture_output=True, text=True
    )
    found = json.loads(done.stdout)
    start, end, status = (statistics.median(column) for column in zip(*found, strict=True))
    both = statistics.median(a + b for a, b, _ in found)
    least = min(a + b for a, b, _ in found)
    print(
        f"{title:14} start {start:6.1f}  end {end:6.1f}  both {both:6.1f} (least {least:6.1f})  git status {status:6.1f}"
    )
    return both


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--files", type=int, default=5000)
    options.add_argument("--rounds", type=int, default=15)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="luxmeter-bench-") as folder:
        place = Path(folder) / "project"
        place.mkdir()
        os.environ["LUXMETER_HOME"] = str(Path(folder) / "lab")
        make_repository(place, chosen.files)
        print(f"medians of {chosen.rounds} rounds, ms; repository of {chosen.files:,} files")
        clean = measure("clean", place, chosen.rounds)
        for number in range(5):
            (place / "part000" / f"module{number:05}.py").write_text("changed = 1\n")
        (place / "new.py").write_text("new = 1\n")
        dirty = measure("with changes", place, chosen.rounds)
    worst = max(clean, dirty)
    verdict = "met" if worst <= GOAL_MS else "MISSED"
    print(f"goal: start and end together at most {GOAL_MS:.0f} ms: {verdict} ({worst:.1f} ms)")
    return 0 if worst <= GOAL_MS else 1


if __name__ == "__main__":
    sys.exit(main())
