"""How long a save holds training up: lux.Saver in the background against a blocking torch.save.

    python benchmarks/saver_background.py [--megabytes 64] [--rounds 7]

One loop of training steps is run in four ways in turn, several times: without saving, with torch.save into a new file,
with Saver.save_state of the objects, with Saver.save_checkpoint of their state_dict()s. For each comes out of the same
run the time inside the call and all that the loop lost by the save, with what the background thread took from it later
(which needs a core to spare). The goal is for the time that a call holds training up: at most 0.10 of a blocking
torch.save.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

import luxmeter as lux

GOAL = 0.10
Save = Callable[[int], None]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=64, help="size of the state")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=20, help="training steps in each loop")
    parser.add_argument("--folder", type=Path, help="where to save (default: the system's temporary folder)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    width = int((options.megabytes * 2**20 / 4 / 12) ** 0.5)
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(4)))
    optim = torch.optim.Adam(model.parameters())
    data = torch.randn(4, width)
    model(data).sum().backward()
    optim.step()

    def step() -> None:
        optim.zero_grad()
        model(data).square().mean().backward()
        optim.step()

    folder = Path(tempfile.mkdtemp(dir=options.folder))
    saver = lux.Saver(folder / "lux", max_to_keep=2)

    def blocking(number: int) -> None:
        path = folder / f"{number}.pt"
        torch.save({"model": model.state_dict(), "optim": optim.state_dict()}, path)
        (folder / f"{number - 2}.pt").unlink(missing_ok=True)  # the same number of files stays

    def objects(number: int) -> None:
        saver.save_state(number, model=model, optim=optim)

    def states(number: int) -> None:
        saver.save_checkpoint(number, {"model": model.state_dict(), "optim": optim.state_dict()})

    def nothing(number: int) -> None:
        pass

    ways: dict[str, Save] = {
        "nothing": nothing, "torch.save": blocking, "save_state": objects, "save_checkpoint": states
    }  # fmt: skip
    calls: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    loops: dict[str, list[float]] = {name: [] for name in ways}
    try:
        for number in range(options.rounds + 2):
            for name, save in ways.items():
                call_s, cpu_s, loop_s = one_loop(step, save, number, options.steps)
                saver.flush()
                if number >= 2:  # the first rounds make the buffers and warm the caches
                    calls[name].append(call_s)
                    cpu[name].append(cpu_s)
                    loops[name].append(loop_s)
    finally:
        saver.close()
        shutil.rmtree(folder)
    size_bytes = sum(t.numel() * t.element_size() for t in model.state_dict().values()) * 3
    report(calls, cpu, loops, size_bytes)


def one_loop(step: Callable[[], None], save: Save, number: int, steps: int) -> tuple[float, float, float]:
    start = time.perf_counter()
    step()
    before, cpu_before = time.perf_counter(), time.thread_time()
    save(number)
    after, cpu_after = time.perf_counter(), time.thread_time()
    for _ in range(steps):
        step()
    return after - before, cpu_after - cpu_before, time.perf_counter() - start


def report(
    calls: dict[str, list[float]], cpu: dict[str, list[float]], loops: dict[str, list[float]], size_bytes: int
) -> None:
    call = {name: statistics.median(times) for name, times in calls.items()}
    work = {name: statistics.median(times) for name, times in cpu.items()}
    plain = statistics.median(loops["nothing"])
    lost = {name: statistics.median(loops[name]) - plain for name in calls}
    # Round by round, so that what else the machine does weighs on both sides alike.
    ratio = {
        name: statistics.median(
            ours / theirs for ours, theirs in zip(calls[name], calls["torch.save"], strict=True)
        )
        for name in calls
    }
    print(f"state of {size_bytes / 2**20:.0f} MiB, medians of {len(calls['nothing'])} rounds, 1 thread")
    print(f"{'':16} {'in the call':>12} {'ratio':>7} {'processor':>11} {'lost by the loop':>17}")
    for name in ("torch.save", "save_state", "save_checkpoint"):
        print(
            f"{name:16} {call[name] * 1e3:9.1f} ms {ratio[name]:7.3f} {work[name] * 1e3:8.1f} ms {lost[name] * 1e3:14.1f} ms"
        )
    held_up = max(ratio["save_state"], ratio["save_checkpoint"])
    print(f"a save holds training up for {held_up:.3f} of a blocking torch.save (goal: at most {GOAL})")
    print(
        json.dumps(
            {
                "held_up_ratio": ratio,
                "goal": GOAL,
                "met": held_up <= GOAL,
                "lost_s": lost,
                "call_s": call,
                "cpu_s": work,
            }
        )
    )


if __name__ == "__main__":
    main()
