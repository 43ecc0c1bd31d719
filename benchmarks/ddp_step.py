"""What the Trainer costs a step of data-parallel training: beside bare DDP, in the same two processes, in turns.

    .venv/bin/python benchmarks/ddp_step.py [--rounds 20] [--processes 2] [--check]

Each trains the same MLP on made-up digits with gloo, one thread a process, and keeps the loss of every step. A contender and a bare
loop share the processes and take turns of a few steps, one at a time; compared are stretches of four epochs, at whose end all is on
disk. How memory happens to lie in a process makes one of two equal loops up to a tenth slower for as long as it lives, so a long
round tells no more than a short one: there are many, each in new processes, forked from one that has imported everything. Both
loops are threads, and the one that began tends to be faster: a round has processes for either order. Timed is rank 0. A second bare
loop is a contender, too: what it differs by is the noise. So is the other way to have DDP's buckets the same after a resume.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paired_ratios import FOR_EVER, Paired, Turns, report, take_output

GOAL = 1.03
BATCH, SAMPLES, WIDTH = 32, 3584, 512
STEPS = 7  # in a turn
STRETCH = (
    4  # epochs that are measured as one: some half a second, after which a run is written to disk in any case
)


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


def bare(folder: Path, turns: Turns, **of_ddp: Any) -> None:
    """By hand: DDP, DistributedSampler, a csv file."""
    from torch.nn.functional import cross_entropy
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler

    model, optim = mlp()
    replica, data = DistributedDataParallel(model, **of_ddp), digits()
    sampler: Any = DistributedSampler(data)
    loader, step = DataLoader(data, batch_size=BATCH, sampler=sampler, drop_last=True), 0
    turns.begin()
    # Not printed: what is on standard output, the Trainer beside it captures.
    with open(folder / "metrics.csv", "w", newline="") as file, open(folder / "log.txt", "w") as log:
        metrics = csv.writer(file)
        for epoch in itertools.count():
            sampler.set_epoch(epoch)
            for batch, (xs, ys) in enumerate(loader):
                loss = cross_entropy(replica(xs), ys)
                loss.backward()
                optim.step()
                optim.zero_grad()
                metrics.writerow((step, loss.item()))
                step += 1
                if step % 50 == 0:
                    log.write(f"epoch {epoch} [{batch}/{len(loader)}] loss {loss.item():.4f}\n")
                turns(file.flush)


def unused(folder: Path, turns: Turns) -> None:
    """The other remedy for a resume: DDP looks for unused parameters, and leaves its buckets alone."""
    bare(folder, turns, find_unused_parameters=True)


def luxmeter(folder: Path, turns: Turns) -> None:
    """Everything that is on by itself but checkpoints, which bare DDP has none of here."""
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

    class Turn(lux.Callback):
        priority = 1000

        def before_train(self, trainer: lux.Trainer) -> None:
            turns.begin()

        def after_batch(self, trainer: lux.Trainer, result: Any) -> None:
            turns(trainer.experiment.flush)

    os.environ["LUXMETER_HOME"] = "lab"
    trainer = Digits({"epoch": FOR_EVER}, checkpoint=False)
    trainer.initial_exp("experiment")
    Turn().hook(trainer)
    trainer.train()


CONTENDERS: dict[str, Callable[[Path, Turns], None]] = {
    "bare again": bare,
    "luxmeter": luxmeter,
    "bare, unused parameters looked for": unused,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20, help="each with processes of its own, twice")
    parser.add_argument(
        "--epochs", type=int, default=8, help=f"of each contender in a round, {STRETCH} more or less"
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--systems", nargs="*", default=list(CONTENDERS), choices=list(CONTENDERS))
    parser.add_argument("--check", action="store_true", help="end with 1 if the goal is missed")
    parser.add_argument("--outside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if (
        not options.outside
    ):  # of the repository: a run keeps the code of its project, and a user's is not ours
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(Path(__file__).with_name("paired_ratios.py"), folder)
            command = [sys.executable, shutil.copy(__file__, folder), "--outside", *sys.argv[1:]]
            sys.exit(subprocess.call(command))
    import torch.distributed
    import torch.nn.parallel  # noqa: F401

    import luxmeter as lux

    assert lux.Trainer is not None and lux.DataLoader is not None
    times: dict[str, list[Paired]] = {name: [] for name in options.systems}
    for number in range(options.rounds):
        for name in options.systems:
            print(f"\rround {number + 1} of {options.rounds}: {name:36}", end="", flush=True, file=sys.stderr)
            (base, own), (base_2, own_2) = (
                in_processes(name, options, is_first=first) for first in (False, True)
            )
            times[name].append((base + base_2, own + own_2))
    print(file=sys.stderr)
    steps = in_epoch(options.processes)
    title = f"MLP, {options.rounds} rounds of {options.epochs} epochs of {steps} steps, gloo, {options.processes} processes of 1 thread"
    good = report(title, times, steps=steps * STRETCH, goal=GOAL)
    sys.exit(int(options.check and not good))


def in_epoch(processes: int) -> int:
    """Steps of a rank in an epoch."""
    return SAMPLES // BATCH // processes


def contend(name: str, epochs: int, *, is_first: bool) -> None:
    """A rank: the contender and a bare loop. What one asks of the other ranks is never asked beside the other."""
    take_output()
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    steps = in_epoch(dist.get_world_size())
    pieces, count = max(1, STRETCH * steps // STEPS), max(1, epochs // STRETCH)
    own, base = (Turns(min(STEPS, steps), count, pieces=pieces) for _ in range(2))
    own.other, base.other = base, own
    loops: list[tuple[Turns, Callable[[Path, Turns], None], str]]
    loops = [(base, bare, "base"), (own, CONTENDERS[name], "own")]
    if is_first:
        loops.reverse()
    loops[1][0].first = loops[0][0]

    def loop(turns: Turns, work: Callable[[Path, Turns], None], which: str) -> None:
        torch.set_num_threads(1)  # of this thread
        folder = Path(f"{which}{dist.get_rank()}")
        folder.mkdir()
        try:
            work(folder, turns)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    for one in loops:
        threading.Thread(target=loop, args=one, daemon=True).start()
        one[0].ready.wait()
    signal.pause()  # who has the last turn ends the process


def in_processes(name: str, options: argparse.Namespace, *, is_first: bool) -> Paired:
    """What rank 0 tells of a round."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    reading, writing = os.pipe()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as errors:
        shared = {"WORLD_SIZE": str(options.processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        ranks = []
        for rank in range(options.processes):
            if pid := os.fork():
                ranks.append(pid)
                continue
            try:
                os.environ.update(shared, RANK=str(rank), LOCAL_RANK=str(rank))
                os.chdir(folder)
                os.dup2(writing if rank == 0 else os.open(os.devnull, os.O_WRONLY), 1)
                os.dup2(errors.fileno(), 2)
                for end in (reading, writing):
                    os.close(end)
                contend(name, options.epochs, is_first=is_first)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(writing)
        try:
            with open(reading) as told:
                line = told.readline()
        finally:
            for pid in ranks:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        errors.seek(0)
        if not line:
            raise SystemExit(f"{name} told nothing:\n{errors.read().decode()[-2000:]}")
    base, own = json.loads(line)
    return base, own


if __name__ == "__main__":
    main()
