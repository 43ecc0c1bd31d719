"""The main job on a small real training: a classifier of scikit-learn's digits, traced, kept and shown.

`make demo` runs it. Everything is kept in ./demo.
"""

import sys
import time
from pathlib import Path

import torch
from rich.console import Console
from sklearn.datasets import load_digits
from torch import nn

import luxmeter as lux
from luxmeter.environment import collect
from luxmeter.experiment import find_run
from luxmeter.operators import operators_of
from luxmeter.store import Lab, activate, results_into
from luxmeter.view import write_report

console = Console()


class Digits(nn.Module):
    """A small convolutional classifier."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Linear(width * 16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Pictures (N, 64) -> scores (N, 10)."""
        return self.head(self.features(x.view(-1, 1, 8, 8)).flatten(1))


def train(params: dict, run) -> Digits:
    """Train; every epoch's loss and accuracy go into the run."""
    pictures, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pictures, dtype=torch.float32) / 16, torch.tensor(labels)
    model = Digits(params["width"])
    optimizer = torch.optim.Adam(model.parameters(), lr=params["lr"])
    for epoch in range(params["epochs"]):
        for batch in torch.randperm(1500).split(params["batch"]):
            loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.metric("loss", loss)
        with torch.no_grad():
            accuracy = (model(x[1500:]).argmax(1) == y[1500:]).float().mean()
        run.metric("accuracy", accuracy, epoch)
    return model


def main() -> None:
    """Train under tracing, keep the run, show where the time went."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the model is small: one thread is fastest, and the times are steady
    start = time.perf_counter()
    lab = Lab.open(Path("demo"))
    params = {"lr": 3e-3, "width": 16, "batch": 64, "epochs": 5}
    console.rule("1. train a classifier of digits under tracing, and keep the run")
    with (
        lab.create_run("digits", params=params, environment=collect()) as run,
        activate(run),
        lux.trace() as trace,
    ):
        model = train(params, run)
    row = lab.runs(limit=1)[0]
    accuracy = row.metrics["accuracy"]
    console.print(
        f"run {row.id}: {row.state}, accuracy {accuracy['last']:.1%}, {row.metrics['loss']['n']} losses kept"
    )
    console.rule("2. the hottest calls")
    print(trace)
    console.rule("3. its hottest layers, replayed at other sizes and in bf16")
    layers = operators_of(trace).filter(name="torch.nn.*").top(2)
    with results_into(run.folder):  # what is measured now belongs to the run
        print(lux.bench(layers, scales={"batch": [1, 64]}, dtypes=["fp32", "bf16"], budget_s=10))
        console.rule("4. what the model costs")
        print(lux.analyze(model, torch.zeros(1, 64), backward=True))
    console.rule("5. every run of this folder")
    for other in lab.runs(sort="-metric.accuracy", limit=5):
        console.print(f"{other.id}  accuracy {other.metrics['accuracy']['last']:.3f}  {other.params}")
    page = write_report([find_run(run.id, lab=lab)], Path("demo") / "report.html")
    taken = time.perf_counter() - start
    console.print(f"\nEverything lies in {run.folder.relative_to(Path.cwd())} ({taken:.1f} s)")
    console.print(
        f"Open {page} in a browser: curves, flame graph, tables and timeline of a step, benchmark and model cost"
    )
    if accuracy["last"] < 0.8:
        sys.exit("the classifier did not learn: something is wrong")


if __name__ == "__main__":
    main()
