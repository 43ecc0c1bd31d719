"""Find the bottom of a parabola with noisy steps: a training that needs no framework and ends in an instant."""

import random
from pathlib import Path

import luxmeter as lux

params = lux.BaseParams({"lr": 0.1, "steps": 12, "seed": 0, "optim": {"name": "sgd", "noise": 0.05}})
params.from_args()
random.seed(params.seed)

with lux.Experiment("parabola", params, tags=["golden"], watch=["out"], system_s=0, watch_s=0) as exp:
    logger = lux.Logger()
    meter = lux.AvgMeter()
    x = 10.0
    for step in range(params.steps):
        x -= params.lr * (2 * (x - 3) + random.gauss(0, params.optim.noise))
        meter.update({"loss": (x - 3) ** 2, "acc": 1 / (1 + abs(x - 3))})
        exp.log({"x": x, "loss": (x - 3) ** 2, "acc": 1 / (1 + abs(x - 3))}, step=step)
        if abs(x) > 1e4:
            raise FloatingPointError(f"x left the parabola at step {step}")
    exp.metric("words", "the bottom is near", step=params.steps)
    Path("out").mkdir(exist_ok=True)
    Path("out/x.txt").write_text(f"{x:.6f}\n")
    logger.info("done")
    print(f"x = {x:.4f}")
