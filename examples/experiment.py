"""Keep every run of a training: parameters, code, output, files and metrics, and how it ended."""

import tempfile
from pathlib import Path

import torch

import luxmeter as lux

lab = tempfile.mkdtemp()
data = torch.randn(256, 8, generator=torch.Generator().manual_seed(0))
target = data.sum(1, keepdim=True)


def train(exp: lux.Experiment, lr: float) -> None:
    lux.random.fix_seed(1)
    model = torch.nn.Linear(8, 1)
    optim = torch.optim.SGD(model.parameters(), lr=lr)
    saver = lux.Saver(exp.hold_exp_part("save", [".ckpt"]))
    for step in range(40):
        loss = (model(data) - target).square().mean()
        optim.zero_grad()
        loss.backward()
        optim.step()
        exp.log({"loss": loss}, step=step)
    saver.save_checkpoint(step, {"model": model.state_dict()}, {"loss": loss.item()})
    print(f"lr={lr}: loss {loss.item():.4f}")


for lr in (0.01, 0.1):  # each run ends with a line against the run before: what changed, and what that did
    with lux.Experiment("linear", {"lr": lr}, tags=["example"], lab=lab) as exp:
        exp.keycode(train)
        train(exp, lr)

run = exp.run
print(run, run.params, run.metrics["loss"]["last"])
assert run.state == "finished" and run.metrics["loss"]["last"] < 1e-3
assert "lr=0.1: loss" in run.log_text
assert [change.path for change in run.changed_files] == ["000039.ckpt"]
code = run.snapshot
assert code is not None and Path(__file__).read_bytes() in {run.blob(sha) for sha in code.files.values()}
try:
    with lux.Experiment("linear", {"lr": 100.0}, lab=lab) as exp:
        raise FloatingPointError("the loss is not finite")
except FloatingPointError:
    assert exp.state == "failed" and "the loss is not finite" in exp.run.error
