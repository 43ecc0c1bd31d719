"""What the Trainer costs a step of data-parallel training: beside bare DDP, in the same two processes, in turns.

    .venv/bin/python benchmarks/ddp_step.py [--rounds 25] [--processes 2] [--check]

Each trains the same MLP on made-up digits with gloo, one thread a process, and keeps the loss of every step; timed, on rank 0,
is the loop from its first batch to its last, with a barrier before. Both take turns, round by round, and a second bare loop stands
beside the first: what it differs by is the noise. Then the ways to have DDP's buckets the same after a resume, by themselves.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import gc
import io
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paired_ratios import report

GOAL = 1.03
BATCH, SAMPLES, WIDTH = 32, 3584, 512


def digits() -> Any:
    import torch
    from torch.utils.data import TensorDataset

    generator = torch.Generator().manual_seed(0)
    return TensorDataset(
        torch.rand(SAMPLES, 64, generator=generator), torch.randint(0, 10, (SAMPLES,), generator=generator)
    )


def mlp() -> tuple[Any, Any]:
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = [nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)]
    model = nn.Sequential(*layers)
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def bare(folder: Path, epochs: int, **of_ddp: Any) -> float:
    """By hand: DDP, DistributedSampler, a csv file."""
    import torch.distributed as dist
    from torch.nn.functional import cross_entropy
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler

    model, optim = mlp()
    replica, data = DistributedDataParallel(model, **of_ddp), digits()
    sampler: Any = DistributedSampler(data)
    loader, step = DataLoader(data, batch_size=BATCH, sampler=sampler, drop_last=True), 0
    dist.barrier()
    start = time.perf_counter()
    with open(folder / f"metrics{dist.get_rank()}.csv", "w", newline="") as file:
        metrics = csv.writer(file)
        for epoch in range(epochs):
            sampler.set_epoch(epoch)
            for batch, (xs, ys) in enumerate(loader):
                loss = cross_entropy(replica(xs), ys)
                loss.backward()
                optim.step()
                optim.zero_grad()
                metrics.writerow((step, loss.item()))
                step += 1
                if step % 50 == 0:
                    print(f"epoch {epoch} [{batch}/{len(loader)}] loss {loss.item():.4f}")
    return time.perf_counter() - start


def unused(folder: Path, epochs: int) -> float:
    """The other remedy for a resume: DDP looks for unused parameters, and leaves its buckets alone."""
    return bare(folder, epochs, find_unused_parameters=True)


def luxmeter(folder: Path, epochs: int) -> float:
    """Everything that is on by itself but checkpoints, which bare DDP has none of here."""
    import torch.distributed as dist
    from torch.nn.functional import cross_entropy

    import luxmeter as lux

    class Digits(lux.Trainer):
        def initial_trainer(self, params: Any) -> None:
            self.model, self.optim = mlp()
            self.regist_databundler(
                train=lux.DataLoader(digits(), batch_size=BATCH, shuffle=True, drop_last=True)
            )

        def train_batch(self, eidx, idx, global_step, batch_data, params, device):  # type: ignore[no-untyped-def]
            xs, ys = batch_data
            return cross_entropy(self.model(xs), ys)

    class Clock(lux.Callback):
        start = end = 0.0
        priority = 1000

        def before_train(self, trainer: lux.Trainer) -> None:
            dist.barrier()
            self.start = time.perf_counter()

        def after_epoch(self, trainer: lux.Trainer, meter: Any) -> None:
            self.end = time.perf_counter()

    os.environ["LUXMETER_HOME"] = str(folder / "lab")
    trainer = Digits({"epoch": epochs}, checkpoint=False)
    trainer.initial_exp(str(folder / "experiment"))
    clock = Clock().hook(trainer)
    trainer.train()
    trainer.close()
    return clock.end - clock.start


CONTENDERS: dict[str, Callable[..., float]] = {
    "bare": bare,
    "bare again": bare,
    "luxmeter": luxmeter,
    "bare, unused parameters looked for": unused,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument(
        "--epochs", type=int, default=4, help="of 56 batches with two processes, in each round"
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--check", action="store_true", help="end with 1 if the goal is missed")
    options = parser.parse_args()
    if "RANK" not in os.environ:
        sys.exit(launch(options.processes))
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    times = rounds(options.rounds, options.epochs)
    is_met = True
    if dist.get_rank() == 0:
        steps = options.epochs * (SAMPLES // BATCH // options.processes)
        title = f"\nMLP, {steps} steps in each of {options.rounds} rounds, gloo, 1 thread a process"
        paired = {
            name: [([base], [own]) for base, own in zip(times["bare"], taken, strict=True)]
            for name, taken in times.items()
            if name != "bare"
        }
        is_met = report(title, paired, steps=steps, goal=GOAL)
    dist.destroy_process_group()
    sys.exit(int(options.check and not is_met))


def launch(processes: int) -> int:
    """The ranks, in a folder outside of the repository: a run keeps the code of its project, and a user's is not ours."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(Path(__file__).with_name("paired_ratios.py"), folder)
        script = shutil.copy(__file__, folder)
        known = {**os.environ, "WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        ranks = [
            subprocess.Popen(
                [sys.executable, script, *sys.argv[1:]],
                cwd=folder,
                env={**known, "RANK": str(rank), "LOCAL_RANK": str(rank), "PLACE": folder},
            )
            for rank in range(processes)
        ]
        try:
            return max(abs(rank.wait()) for rank in ranks)
        finally:
            for rank in ranks:
                rank.kill()


def rounds(count: int, epochs: int) -> dict[str, list[float]]:
    """Seconds of each, in turns; the order changes from round to round, and the first round warms up."""
    import torch.distributed as dist

    names = list(CONTENDERS)
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(count + 1):
        turn = number % len(names)
        for name in (*names[turn:], *names[:turn]):
            folder = Path(os.environ["PLACE"]) / f"{number}-{names.index(name)}"
            folder.mkdir(exist_ok=True)
            gc.collect()
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                took = CONTENDERS[name](folder, epochs)
            dist.barrier()
            if dist.get_rank() == 0:
                shutil.rmtree(folder, ignore_errors=True)
            dist.barrier()
            if number:
                times[name].append(took)
        if dist.get_rank() == 0:
            print(f"\rround {number} of {count}", end="", flush=True, file=sys.stderr)
    return times


if __name__ == "__main__":
    main()
