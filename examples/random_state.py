"""One seed, one state, and marks to go back to, for python, numpy and torch together (lux.random, lux.RndManager)."""

import random
import tempfile

import numpy as np
import torch

import luxmeter as lux


def draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), torch.rand(1).item()


lux.random.fix_seed("my experiment")  # a name or a number
first = draw()
lux.random.fix_seed("my experiment")
assert draw() == first

state = lux.random.get_state()
then = draw()
lux.random.set_state(state)
assert draw() == then

# After a mark the numbers are the same, each time and in later runs: here those after the state that it found at first.
folder = tempfile.TemporaryDirectory()
manager = lux.RndManager(folder.name)
manager.mark("before the split")
split = torch.randperm(5).tolist()
draw()
assert manager.mark("before the split")
assert torch.randperm(5).tolist() == split
print(split, manager.marks())

report = lux.random.deterministic()
print(report)
lux.random.deterministic(False)
assert any("threads" in line for line in report.remaining)
