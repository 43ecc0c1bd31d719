"""What a training framework costs a training: lux.Trainer beside a bare loop, Lightning, Ignite and Accelerate, in one run.

    make peers && .venv-peers/bin/python benchmarks/trainer.py [--rounds 25] [--check]

Each trains the same MLP on scikit-learn's digits with the same batches, keeps the loss of every step, prints a line every
50 steps and saves model, optimizer and random state after every epoch. The bare loop does that by hand: csv, print,
torch.save. All of them take turns, round by round; timed is the loop, from its first batch until everything is on disk. A
second bare loop stands beside the first: what it differs by is the noise. Ignite and Accelerate run without metrics, lines
and checkpoints, too. Then the time from `python train.py` to the first step, each in a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import gc
import io
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from paired_ratios import report

GOAL = 1.03
BATCH = 32
Timed = Callable[[Path, int], float]
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


def bare(folder: Path, epochs: int) -> float:
    """By hand."""
    import random

    import numpy
    import torch
    from torch.nn.functional import cross_entropy

    model, optim = mlp()
    loader, step = torch_loader(digits()), 0
    start = first_step()
    with open(folder / "metrics.csv", "w", newline="") as file:
        metrics = csv.writer(file)
        for epoch in range(epochs):
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
                    print(
                        f"epoch {epoch} [{batch}/{len(loader)}] loss {number:.4f} mean {total / (batch + 1):.4f}"
                    )
            state = {
                "model": model.state_dict(), "optim": optim.state_dict(), "epoch": epoch, "step": step,
                "random": (torch.get_rng_state(), numpy.random.get_state(), random.getstate()),
            }  # fmt: skip
            torch.save(state, folder / "new.pt")
            os.replace(folder / "new.pt", folder / f"{epoch % 3}.pt")
    return time.perf_counter() - start


def luxmeter(folder: Path, epochs: int, *, own_loader: bool = True) -> float:
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

    class Start(lux.Callback):
        at = 0.0

        def before_train(self, trainer: lux.Trainer) -> None:
            self.at = first_step()

    os.environ["LUXMETER_HOME"] = str(folder / "lab")
    trainer = Digits({"epoch": epochs})
    trainer.initial_exp(str(folder / "experiment"))
    start = Start().hook(trainer)
    trainer.train()
    took = time.perf_counter() - start.at
    trainer.close()
    return took


def luxmeter_torch_loader(folder: Path, epochs: int) -> float:
    """With torch's DataLoader, as in the bare loop: what is left is the Trainer itself."""
    return luxmeter(folder, epochs, own_loader=False)


def lightning(folder: Path, epochs: int) -> float:
    """CSVLogger, ModelCheckpoint, a progress bar."""
    import torch
    from torch.nn.functional import cross_entropy

    quiet_lightning()
    import lightning as pl
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.loggers import CSVLogger

    class Digits(pl.LightningModule):
        start = 0.0

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

        def on_train_start(self) -> None:
            self.start = first_step()

    trainer = pl.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=CSVLogger(str(folder)), log_every_n_steps=1,
        callbacks=[ModelCheckpoint(folder / "save", save_top_k=3, monitor="step", mode="max")],
        enable_model_summary=False,
    )  # fmt: skip
    model = Digits()
    trainer.fit(model, torch_loader(digits()))
    return time.perf_counter() - model.start


def ignite(folder: Path, epochs: int, *, alone: bool = False) -> float:
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
        start = first_step()
        engine.run(loader, max_epochs=epochs)
        return time.perf_counter() - start


def ignite_alone(folder: Path, epochs: int) -> float:
    """Without metrics, lines and checkpoints."""
    return ignite(folder, epochs, alone=True)


def accelerate(folder: Path, epochs: int, *, alone: bool = False) -> float:
    """The bare loop with its prepare, backward and save_state."""
    from accelerate import Accelerator
    from torch.nn.functional import cross_entropy

    accelerator = Accelerator(cpu=True)
    model, optim = mlp()
    model, optim, loader = accelerator.prepare(model, optim, torch_loader(digits()))
    start, step = first_step(), 0
    with open(folder / "metrics.csv", "w", newline="") as file:
        metrics = csv.writer(file)
        for epoch in range(epochs):
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
    return time.perf_counter() - start


def accelerate_alone(folder: Path, epochs: int) -> float:
    """Without metrics, lines and checkpoints."""
    return accelerate(folder, epochs, alone=True)


CONTENDERS: dict[str, Timed] = {
    "bare": bare,
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
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--epochs", type=int, default=30, help="of 56 batches, in each round")
    parser.add_argument(
        "--starts", type=int, default=5, help="processes of each for the time to the first step"
    )
    parser.add_argument("--systems", nargs="*", default=list(CONTENDERS), choices=list(CONTENDERS))
    parser.add_argument("--check", action="store_true", help="end with 1 if the goal is missed")
    parser.add_argument("--first-step", choices=list(CONTENDERS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if (Path(__file__).parent.parent / "pyproject.toml").is_file():
        sys.exit(in_a_folder_of_its_own())
    with contextlib.suppress(ImportError):
        if "lightning" in (options.first_step or options.systems):
            import cpu_torchvision  # noqa: F401 - the torchvision of PyPI imports beside a CPU torch only after it
    if options.first_step:
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(SystemExit):
            CONTENDERS[options.first_step](Path(folder), 1)
        return
    import torch

    torch.set_num_threads(1)
    names = ["bare", *(name for name in options.systems if name != "bare")]
    times = rounds(names, options.rounds, options.epochs)
    steps = options.epochs * (1797 // BATCH)
    title = f"MLP on digits, {steps} steps in each of {options.rounds} rounds, 1 thread"
    good = report(title, times, steps=steps, goal=GOAL)
    if options.starts:
        starts([name for name in names if " " not in name], options.starts)
    sys.exit(int(options.check and not good))


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


def rounds(names: list[str], count: int, epochs: int) -> dict[str, list[float]]:
    """Seconds of each, in turns; the order changes from round to round, and the first round warms up."""
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(count + 1):
        turn = number % len(names)
        for name in (*names[turn:], *names[:turn]):
            gc.collect()
            with tempfile.TemporaryDirectory() as folder, silence():
                took = CONTENDERS[name](Path(folder), epochs)
            if number:
                times[name].append(took)
        print(f"\rround {number} of {count}", end="", flush=True, file=sys.stderr)
    print(file=sys.stderr)
    return times


def starts(names: list[str], count: int) -> None:
    """From the start of Python to the first step, each in a process of its own, in turns."""
    taken: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(count):
        for name in names:
            began = time.time()
            done = subprocess.run(
                [sys.executable, __file__, "--first-step", name],
                capture_output=True, text=True, env={**os.environ, "TELL_FIRST_STEP": "1"},
            )  # fmt: skip
            told = [line for line in done.stderr.splitlines() if line.startswith("first step ")]
            if not told:
                raise SystemExit(f"{name} made no step:\n{done.stderr[-2000:]}")
            taken[name].append(float(told[0].split()[-1]) - began)
    print(f"from `python train.py` to the first step, medians of {count}:")
    for name, seconds in taken.items():
        middle, base = (sorted(found)[count // 2] for found in (seconds, taken["bare"]))
        print(f"  {name:24} {middle:6.2f} s   {middle / base:.2f}x of bare")


def first_step() -> float:
    """Now; where the time to the first step is asked for, that is told and the process ends."""
    if os.environ.get("TELL_FIRST_STEP"):
        print(f"first step {time.time()}", file=sys.stderr, flush=True)
        os._exit(0)
    return time.perf_counter()


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """What they print goes into memory: a terminal's speed is no matter of theirs."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def quiet_lightning() -> None:
    warnings.simplefilter("ignore")
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)


if __name__ == "__main__":
    main()
