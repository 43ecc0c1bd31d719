"""Keep runs in a lab, find the best one, read its points back."""

import tempfile

from luxmeter.store import Histogram, Lab

lab = Lab.open(tempfile.mkdtemp())
for lr in (0.5, 0.1, 0.02):
    with lab.create_run("parabola", params={"lr": lr}) as run:
        x = 10.0
        for step in range(50):
            x -= lr * 2 * (x - 3)
            run.log({"x": x, "loss": (x - 3) ** 2}, step=step)
        run.metric("spread", Histogram([x, 3.0]))

best = lab.runs("name = parabola", sort="metric.loss")[0]
print(f"best of {len(lab.runs())} runs: lr={best.params['lr']}, loss={best.metrics['loss']['last']:.3g}")

loss = lab.find(best.id).metric("loss")  # its points: step, value, time_ns
assert best.params["lr"] == 0.5
assert len(loss) == 50
assert lab.find("latest").params == {"lr": 0.02}
assert len(lab.runs("param.lr < 0.2 and metric.loss < 1e-3")) == 1
