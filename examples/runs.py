"""Find runs again: filters, one run's parts, tables over many."""

import os
import tempfile

import luxmeter as lux
from luxmeter.experiment import C

os.environ["LUXMETER_HOME"] = tempfile.mkdtemp()  # a lab for this example; without it the project's own

for lr in (0.5, 0.1, 0.02):
    with lux.Experiment(
        "parabola", {"lr": lr, "optim": {"name": "sgd"}}, quiet=True, code=False, output=False
    ) as exp:
        x = 10.0
        for step in range(50):
            x -= lr * 2 * (x - 3)
            exp.log({"loss": (x - 3) ** 2}, step=step)

found = lux.runs("metric.loss < 1e-3", sort="metric.loss")
print(found)
best = found[0]
best.tag("best")
print(best.name, best.state, best.params.lr, best.params["optim.name"], f"{best.duration:.2f} s")

loss = best.metric("loss")
print(loss, loss[0].value, loss.steps[-1])
print(lux.runs().params_frame()[["lr", "optim.name"]])
print(lux.runs().metrics_frame()["loss"].describe())

assert [run.params.lr for run in lux.runs(lr=0.1)] == [0.1]
assert len(lux.runs((C.param.lr > 0.05) & (C.tag == "best"))) == 1
assert best.params.lr == 0.5 and len(loss) == 50 and loss.values[-1] < 1e-3
assert lux.runs(tags="best")[0] == best
