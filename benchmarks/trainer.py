"""What a training framework costs a training: lux.Trainer beside a bare loop, Lightning, Ignite and Accelerate, in one run.

    make peers && .venv-peers/bin/python benchmarks/trainer.py [--rounds 12] [--check]

Each trains the same MLP on scikit-learn's digits with the same batches, keeps the loss of every step, writes a line every
50 steps and saves model, optimizer and random state after every epoch. The bare loop does that by hand: csv, write,
torch.save. A contender and a bare loop share a process and take turns of a few epochs, one at a time; a turn ends when everything is
on disk. So what the machine does, and how memory happens to lie, falls on both alike. The next round has new processes. A second
bare loop is a contender, too: what it differs by is the noise. Ignite and Accelerate run without metrics, lines and checkpoints as
well. Then the time from `python train.py` to the first step.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import itertools
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paired_ratios import FOR_EVER, Paired, Turns, report, take_output

GOAL = 1.03
BATCH = 32
os.environ.update(HF_HUB_OFFLINE="1", DO_NOT_TRACK="true")


def digits() -> Any:
    import torch
    from sklearn.datasets import load_digits
    from torch.utils.data import TensorDataset

    found = load_digits()
    return TensorDataset(torch.tensor(found.data, dtype=torch.float32) / 16, torch.tensor(found.target))


def mlp() -> tuple[Any, Any]:
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def torch_loader(data: Any) -> Any:
    from torch.utils.data import DataLoader

    return DataLoader(data, batch_size=BATCH, shuffle=True, drop_last=True)


def bare(folder: Path, turns: Turns) -> None:
    """By hand."""
    import random

    import numpy
    import torch
    from torch.nn.functional import cross_entropy

    model, optim = mlp()
    loader, step = torch_loader(digits()), 0
    turns.begin()
    # Not printed: what is on standard output, a framework beside it may capture.
    with open(folder / "metrics.csv", "w", newline="") as file, open(folder / "log.txt", "w") as log:
        metrics = csv.writer(file)
        for epoch in itertools.count():
            total = 0.0
            for batch, (xs, ys) in enumerate(loader):
                loss = cross_entropy(model(xs), ys)
                loss.backward()
                optim.step()
                optim.zero_grad()
                number = loss.item()
                total += number
                metrics.writerow((step, number))
                step += 1
                if step % 50 == 0:
                    log.write(
                        f"epoch {epoch} [{batch}/{len(loader)}] loss {number:.4f} mean {total / (batch + 1):.4f}\n"
                    )
            state = {
                "model": model.state_dict(), "optim": optim.state_dict(), "epoch": epoch, "step": step,
                "random": (torch.get_rng_state(), numpy.random.get_state(), random.getstate()),
            }  # fmt: skip
            torch.save(state, folder / "new.pt")
            os.replace(folder / "new.pt", folder / f"{epoch % 3}.pt")
            turns()


def luxmeter(folder: Path, turns: Turns, *, own_loader: bool = True) -> None:
    """Everything that is on by itself: meters, metrics, log, checkpoints, output, code, Control; and lux.DataLoader."""
    from torch.nn.functional import cross_entropy

    import luxmeter as lux

    class Digits(lux.Trainer):
        def initial_trainer(self, params: Any) -> None:
            self.model, self.optim = mlp()
            data = digits()
            loader = lux.DataLoader(data, batch_size=BATCH, shuffle=True, drop_last=True)
            self.regist_databundler(train=loader if own_loader else torch_loader(data))

        def train_batch(self, eidx, idx, global_step, batch_data, params, device):  # type: ignore[no-untyped-def]
            xs, ys = batch_data
            return cross_entropy(self.model(xs), ys)

    class Turn(lux.Callback):
        priority = 1000

        def before_train(self, trainer: lux.Trainer) -> None:
            turns.begin()

        def after_epoch(self, trainer: lux.Trainer, meter: Any) -> None:
            turns(lambda: (trainer.saver.flush(), trainer.experiment.flush()))

    os.environ["LUXMETER_HOME"] = str(folder / "lab")
    trainer = Digits({"epoch": FOR_EVER})
    trainer.initial_exp(str(folder / "experiment"))
    Turn().hook(trainer)
    trainer.train()


def luxmeter_torch_loader(folder: Path, turns: Turns) -> None:
    """With torch's DataLoader, as in the bare loop: what is left is the Trainer itself."""
    luxmeter(folder, turns, own_loader=False)


def lightning(folder: Path, turns: Turns) -> None:
    """CSVLogger, ModelCheckpoint, a progress bar."""
    import torch
    from torch.nn.functional import cross_entropy

    quiet_lightning()
    import lightning as pl
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.loggers import CSVLogger

    class Digits(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.optim = mlp()

        def training_step(self, batch: Any, idx: int) -> Any:
            xs, ys = batch
            loss = cross_entropy(self.net(xs), ys)
            self.log("loss", loss, prog_bar=True)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return self.optim

        def on_train_epoch_start(self) -> None:  # what ends the epoch before, its checkpoint too, is done
            turns() if self.current_epoch else turns.begin()

    trainer = pl.Trainer(
        max_epochs=-1, accelerator="cpu", logger=CSVLogger(str(folder)), log_every_n_steps=1,
        callbacks=[ModelCheckpoint(folder / "save", save_top_k=3, monitor="step", mode="max")],
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Digits(), torch_loader(digits()))


def ignite(folder: Path, turns: Turns, *, alone: bool = False) -> None:
    """Its Engine, with a running average, csv and Checkpoint."""
    from ignite.engine import Engine, Events
    from ignite.handlers import Checkpoint, DiskSaver
    from torch.nn.functional import cross_entropy

    model, optim = mlp()

    def step(engine: Any, batch: Any) -> float:
        xs, ys = batch
        loss = cross_entropy(model(xs), ys)
        loss.backward()
        optim.step()
        optim.zero_grad()
        return loss.item()

    engine, loader = Engine(step), torch_loader(digits())
    with open(folder / "metrics.csv", "w", newline="") as file:
        if not alone:
            metrics = csv.writer(file)
            engine.add_event_handler(
                Events.ITERATION_COMPLETED, lambda e: metrics.writerow((e.state.iteration, e.state.output))
            )
            engine.add_event_handler(
                Events.ITERATION_COMPLETED(every=50),
                lambda e: print(f"epoch {e.state.epoch} [{e.state.iteration}] loss {e.state.output:.4f}"),
            )
            saver = Checkpoint(
                {"model": model, "optim": optim, "engine": engine}, DiskSaver(str(folder / "save"), require_empty=False), n_saved=3
            )  # fmt: skip
            engine.add_event_handler(Events.EPOCH_COMPLETED, saver)
        engine.add_event_handler(Events.EPOCH_COMPLETED, lambda: turns())
        turns.begin()
        engine.run(loader, max_epochs=FOR_EVER)


def ignite_alone(folder: Path, turns: Turns) -> None:
    """Without metrics, lines and checkpoints."""
    ignite(folder, turns, alone=True)


def accelerate(folder: Path, turns: Turns, *, alone: bool = False) -> None:
    """The bare loop with its prepare, backward and save_state."""
    from accelerate import Accelerator
    from torch.nn.functional import cross_entropy

    accelerator = Accelerator(cpu=True)
    model, optim = mlp()
    model, optim, loader = accelerator.prepare(model, optim, torch_loader(digits()))
    turns.begin()
    step = 0
    with open(folder / "metrics.csv", "w", newline="") as file:
        metrics = csv.writer(file)
        for epoch in itertools.count():
            for xs, ys in loader:
                loss = cross_entropy(model(xs), ys)
                accelerator.backward(loss)
                optim.step()
                optim.zero_grad()
                number = loss.item()
                step += 1
                if not alone:
                    metrics.writerow((step, number))
                    if step % 50 == 0:
                        print(f"epoch {epoch} step {step} loss {number:.4f}")
            if not alone:
                accelerator.save_state(str(folder / f"save-{epoch % 3}"))
            turns()


def accelerate_alone(folder: Path, turns: Turns) -> None:
    """Without metrics, lines and checkpoints."""
    accelerate(folder, turns, alone=True)


CONTENDERS: dict[str, Callable[[Path, Turns], None]] = {
    "bare again": bare,
    "luxmeter": luxmeter,
    "luxmeter, torch's loader": luxmeter_torch_loader,
    "ignite": ignite,
    "ignite alone": ignite_alone,
    "accelerate": accelerate,
    "accelerate alone": accelerate_alone,
    "lightning": lightning,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=12, help="each with processes of its own")
    parser.add_argument("--turns", type=int, default=12, help="of each contender in a round")
    parser.add_argument("--epochs", type=int, default=8, help="of 56 batches, in each turn")
    parser.add_argument(
        "--starts", type=int, default=5, help="processes of each for the time to the first step"
    )
    parser.add_argument("--systems", nargs="*", default=list(CONTENDERS), choices=list(CONTENDERS))
    parser.add_argument("--check", action="store_true", help="end with 1 if the goal is missed")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if (Path(__file__).parent.parent / "pyproject.toml").is_file():
        sys.exit(in_a_folder_of_its_own())
    if options.contender:
        contend(options.contender, options.epochs, options.turns)
        return
    times = rounds(options.systems, options.rounds, options.turns, options.epochs)
    steps = options.epochs * (1797 // BATCH)
    title = f"MLP on digits, {options.rounds} rounds of {options.turns} turns of {steps} steps, 1 thread"
    good = report(title, times, steps=steps, goal=GOAL)
    if options.starts:
        starts(["bare", *(name for name in options.systems if " " not in name)], options.starts)
    sys.exit(int(options.check and not good))


def contend(name: str, epochs: int, turns: int) -> None:
    """A process: the contender and, in a thread, a bare loop. What is printed goes nowhere: a terminal's speed is no matter of theirs."""
    take_output()
    with contextlib.suppress(ImportError):
        if name == "lightning":
            import cpu_torchvision  # noqa: F401 - the torchvision of PyPI imports beside a CPU torch only after it
    import torch

    torch.set_num_threads(1)
    own, base = Turns(epochs, turns), Turns(epochs, turns)
    if not os.environ.get("TELL_FIRST_STEP"):
        own.other, base.other, own.first = base, own, base
        folder = Path("base")
        folder.mkdir()

        def beside() -> None:
            torch.set_num_threads(1)  # of this thread
            bare(folder, base)

        threading.Thread(target=beside, daemon=True).start()
    (bare if name == "bare" else CONTENDERS[name])(Path.cwd(), own)


def in_a_folder_of_its_own() -> int:
    """Run a copy outside of the repository: a run keeps the code of its project, and a user's is not ours."""
    with tempfile.TemporaryDirectory() as folder:
        for source in (
            Path(__file__),
            Path(__file__).with_name("paired_ratios.py"),
            Path(__file__).parent.parent / "tests" / "peers" / "cpu_torchvision.py",
        ):
            shutil.copy(source, folder)
        return subprocess.call(
            [sys.executable, str(Path(folder) / Path(__file__).name), *sys.argv[1:]], cwd=folder
        )


def rounds(names: list[str], count: int, turns: int, epochs: int) -> dict[str, list[Paired]]:
    """Of each contender and round: the seconds of the bare loop beside it, and its own, turn by turn."""
    times: dict[str, list[Paired]] = {name: [] for name in names}
    for number in range(count):
        for name in names:
            print(f"\rround {number + 1} of {count}: {name:24}", end="", flush=True, file=sys.stderr)
            told = in_a_process(name, "--epochs", epochs, "--turns", turns)
            base, own = json.loads(told)
            times[name].append((base, own))
    print(file=sys.stderr)
    return times


def in_a_process(name: str, *options: object, **variables: str) -> str:
    """What a contender's process tells."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, __file__, "--contender", name, *map(str, options)],
            cwd=folder, capture_output=True, text=True, env={**os.environ, **variables},
        )  # fmt: skip
    if not done.stdout:
        raise SystemExit(f"{name} told nothing:\n{done.stderr[-2000:]}")
    return done.stdout


def starts(names: list[str], count: int) -> None:
    """From the start of Python to the first step, each in a process of its own, in turns."""
    taken: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(count):
        for name in names:
            began = time.time()
            told = in_a_process(name, TELL_FIRST_STEP="1")
            taken[name].append(float(told.split()[-1]) - began)
    print(f"from `python train.py` to the first step, medians of {count}:")
    for name, seconds in taken.items():
        middle, base = (sorted(found)[count // 2] for found in (seconds, taken["bare"]))
        print(f"  {name:24} {middle:6.2f} s   {middle / base:.2f}x of bare")


def quiet_lightning() -> None:
    warnings.simplefilter("ignore")
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)


if __name__ == "__main__":
    main()
