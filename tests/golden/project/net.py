"""Train a small network for three steps, traced, with a checkpoint and a child run that evaluates."""

from typing import Any

import torch

import luxmeter as lux


class Net(torch.nn.Module):
    """A convolution and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU()
        )
        self.head = torch.nn.Linear(4 * 8 * 8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of five classes."""
        return self.head(self.body(x).flatten(1))


def train(exp: lux.Experiment, tracing: Any) -> Net:
    """Three steps; the last state is saved."""
    lux.random.fix_seed(0)
    net = Net()
    optim = torch.optim.SGD(net.parameters(), lr=0.1)
    saver = lux.Saver(exp.hold_exp_part("save", [".ckpt"]))
    images, labels = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 3])
    for step in range(3):
        with tracing.section("forward"):
            loss = torch.nn.functional.cross_entropy(net(images), labels)
        with tracing.section("backward"):
            optim.zero_grad()
            loss.backward()
        optim.step()
        exp.log({"loss": loss}, step=step)
    saver.save_checkpoint(2, {"model": {"bias": net.head.bias.detach()}}, {"loss": round(loss.item(), 3)})
    saver.close()
    return net


def small() -> Net:
    """What `luxmeter model` analyses."""
    return Net().eval()


if __name__ == "__main__":
    with lux.Experiment("net", {"lr": 0.1, "seed": 0}, system_s=0) as run, lux.trace() as calls:
        made = train(run, calls)
        with lux.Experiment("net-eval", {"images": 2}, system_s=0, quiet=True) as child:
            child.log("score", float(made.eval()(torch.ones(2, 3, 8, 8)).shape[1]), step=0)
