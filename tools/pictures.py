"""Pictures of the pages for the docs, of real runs: `make pictures`. Needs Chromium, as the tests of pages do.

A lab of its own is filled (a small classifier, two learning rates with three seeds each, one of them traced, benchmarked and
analysed; one that fails; one that goes on meanwhile), its pages are written or served, and a browser takes the pictures.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from torch import nn

import luxmeter as lux
from luxmeter.calls import export
from luxmeter.experiment import find_run
from luxmeter.operators import operators_of
from luxmeter.view import models_page, parallel, write_report
from luxmeter.view.top import Top, shown_text

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
LARGEST_KB = 150  # a picture of more has fewer colours, or is not kept
GOING = """
import time
import luxmeter as lux
with lux.Experiment("digits-long", {"lr": 0.001, "seed": 7}, quiet=True) as exp:
    for step in range(100_000):
        exp.log({"loss": 2.3 / (1 + step / 40) + 0.05 * (step % 7) / 7, "accuracy": 1 - 0.9 / (1 + step / 30)}, step)
        print(f"step {step}", flush=True)
        time.sleep(0.02)
"""


class Block(nn.Module):
    """A convolution with a way around it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.act = nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of the same shape."""
        changed: torch.Tensor = self.act(self.norm(self.conv(x)))
        return x + changed


class Digits(nn.Module):
    """A classifier of pictures of 8 x 8."""

    def __init__(self, width: int = 16, blocks: int = 3) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(blocks)))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(width * 16, 64), nn.ReLU(), nn.Linear(64, 10))  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Pictures (N, 1, 8, 8) -> scores (N, 10)."""
        scores: torch.Tensor = self.head(self.blocks(self.stem(x)))
        return scores


def train(lr: float, seed: int, *, measured: bool = False) -> str:
    """A run of the classifier; its id."""
    torch.manual_seed(seed)
    pictures, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pictures, dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(labels)
    with lux.Experiment("digits", {"lr": lr, "seed": seed, "width": 16, "batch": 64}, quiet=True) as exp:
        model = Digits()
        optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        trace = lux.trace() if measured else None
        if trace is not None:
            trace.start()
        for step in range(80):
            batch = torch.randint(0, 1500, (64,))
            loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            exp.log({"loss": loss.item()}, step)
            if step % 8 == 7:
                with torch.no_grad():
                    accuracy = (model(x[1500:]).argmax(1) == y[1500:]).float().mean().item()
                exp.log({"accuracy": accuracy}, step)
                print(f"step {step}: loss {loss.item():.3f}, accuracy {accuracy:.3f}")
        if trace is not None:
            trace.stop()
            layers = operators_of(trace).filter(name="torch.nn.*").top(4)
            lux.bench(layers, scales={"batch": [1, 16, 64]}, dtypes=["fp32", "bf16"], budget_s=15)
            lux.analyze(model, torch.zeros(1, 1, 8, 8), backward=True, name="Digits")
            export.write(trace, "calls.html")
    return exp.run.id


def fail() -> None:
    """A run that says why it failed."""
    try:
        with lux.Experiment("digits", {"lr": 30.0, "seed": 0}, quiet=True) as exp:
            exp.log({"loss": 2.3}, 0)
            Digits()(torch.zeros(4, 3, 8, 8))
    except RuntimeError:
        pass


@dataclass(frozen=True)
class Shot:
    """One picture: of what, how large, and what is done first."""

    name: str
    address: str
    width: int = 1280
    height: int = 940
    dark: bool = False
    at: str = ""  # what is scrolled to the top


@contextmanager
def served() -> Iterator[str]:
    """The app over the lab at hand: its address."""
    with subprocess.Popen(
        [sys.executable, "-m", "luxmeter", "ui", "--port", "0", "--no-browser"], stderr=subprocess.PIPE, text=True
    ) as server:  # fmt: skip
        try:
            assert server.stderr is not None
            line = next(line for line in server.stderr if "shown at" in line)
            yield line.partition("shown at ")[2].split()[0].rstrip("/")
        finally:
            server.terminate()


@contextmanager
def going_on() -> Iterator[None]:
    """While a training runs."""
    Path("going.py").write_text(GOING)
    with subprocess.Popen([sys.executable, "going.py"], stdout=subprocess.DEVNULL) as training:
        try:
            until = time.monotonic() + 60
            while not any("loss" in run.metrics for run in lux.runs(state="running")):
                if time.monotonic() > until or training.poll() is not None:
                    raise SystemExit("pictures: the training that goes on did not begin")
                time.sleep(0.2)
            yield
        finally:
            training.terminate()


def terminal() -> str:
    """`luxmeter top` as a page."""
    top = Top(find_run("latest").folder.parents[1])
    for _ in range(3):
        top.look()
        time.sleep(1)
    console = Console(record=True, width=110, file=io.StringIO(), force_terminal=True)
    console.print(shown_text(top.lines(110, 8)))
    return console.export_svg(title="luxmeter top")


def shoot(shots: list[Shot]) -> None:
    """Take them."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for shot in shots:
            context = browser.new_context(
                viewport={"width": shot.width, "height": shot.height}, color_scheme="dark" if shot.dark else "light"
            )  # fmt: skip
            tab = context.new_page()
            tab.goto(shot.address, wait_until="load")
            tab.wait_for_timeout(500)  # until what is drawn by the width of its box is drawn
            if shot.at:
                tab.evaluate("(at) => scrollTo(0, document.querySelector(at).getBoundingClientRect().top - 56)", shot.at)  # fmt: skip
            taken: Any = Image.open(io.BytesIO(tab.screenshot()))
            path = PICTURES / f"{shot.name}.png"
            taken.convert("RGB").save(path, optimize=True)
            if path.stat().st_size > LARGEST_KB * 1000:
                taken.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
            kb = path.stat().st_size / 1000
            print(f"{path.relative_to(PICTURES.parents[1])}: {kb:.0f} kB")
            if kb > LARGEST_KB:
                raise SystemExit(f"pictures: {path.name} has {kb:.0f} kB: make it smaller than {LARGEST_KB}")
            context.close()
        browser.close()


def main() -> None:
    """Fill a lab, and take the pictures."""
    if not (shutil.which("chromium") or shutil.which("google-chrome")):
        raise SystemExit("pictures: no Chromium here: apt-get install chromium")
    torch.set_num_threads(1)
    folder = Path(tempfile.gettempdir()) / "luxmeter-pictures"  # the same each time: it is seen in pictures
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    os.chdir(folder)
    try:
        subprocess.run([sys.executable, "-m", "luxmeter", "init"], check=True, stdout=subprocess.DEVNULL)
        fail()
        for lr in (0.01, 0.001):
            for seed in (0, 1, 2):
                train(lr, seed)
        told = train(0.003, 0, measured=True)
        run = find_run(told)
        write_report([run], Path("report.html"))
        wide = lux.analyze(Digits(32, 5), torch.zeros(1, 1, 8, 8), backward=True, name="wide")
        assert run.model is not None
        models_page([run.model, wide], Path("models.html"))
        parallel(lux.runs("name = digits"), metrics=["loss", "accuracy"]).save("parallel.html")
        with going_on(), served() as app:
            Path("top.html").write_text(f'<body style="margin:0">{terminal()}</body>')
            page = {name: Path(f"{name}.html").absolute().as_uri() for name in ("report", "calls", "models", "parallel", "top")}  # fmt: skip
            both = f"{app}/compare?where=name+%3D+digits+and+state+%3D+finished&by=param.lr"
            shoot([
                Shot("report", page["report"], height=1060),
                Shot("report-phone", page["report"], 390, 844, dark=True, at="#calls"),
                Shot("trace-page", page["calls"], height=1160),
                Shot("bench-page", page["report"], height=1160, at="#operators-measured"),
                Shot("model-page", page["models"], height=760, dark=True),
                Shot("parallel-page", page["parallel"], height=560),
                Shot("top", page["top"], 1120, 122),
                Shot("app-start", f"{app}/", height=800),
                Shot("app-runs", f"{app}/runs", height=640),
                Shot("app-runs-phone", f"{app}/runs", 390, 844, dark=True),
                Shot("app-run", f"{app}/run/{find_run('digits-long').id}", dark=True),
                Shot("app-compare", both, height=1000),
                Shot("app-trace", f"{app}/run/{told}/trace"),
            ])  # fmt: skip
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
