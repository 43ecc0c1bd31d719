"""Meters: values of a step that print in one line, and their averages over many steps."""

import torch

import luxmeter as lux

average = lux.AvgMeter(window=10)
torch.manual_seed(0)
for step in range(100):
    meter = lux.Meter()
    meter.step = step
    meter.loss = torch.rand(()) + 100 / (step + 1)  # a tensor stays on its device until somebody looks
    meter.acc = step / 100
    meter.percent(meter.acc_)
    average.update(meter, weight=32)

print(meter)
print(average)
loss = average.loss
print(
    f"mean {loss.mean:.3f}  last {loss.last:.3f}  min {loss.min:.3f}  last ten {loss.windowed:.3f}  ema {loss.ema:.3f}"
)

assert str(meter).startswith("@step=99  @loss=") and str(meter).endswith("@acc=99.00%")
assert str(average).endswith("@acc=99.00%(49.50%)")
assert loss.count == 100 and loss.weight == 3200
assert loss.min <= loss.windowed < loss.mean <= loss.max

# Two ranks, or two halves of a training: merged exactly.
other = lux.AvgMeter()
other.update({"acc": 1.0}, weight=3200)
assert abs(average.merge(other).acc.mean - (0.495 + 1.0) / 2) < 1e-9
