"""Which run left this file? Asked by its content, wherever it lies now."""

import os
import pprint as pp
import shutil
import tempfile
from datetime import timedelta
from pathlib import Path

import luxmeter as lux

os.environ["LUXMETER_HOME"] = tempfile.mkdtemp()  # a lab for this example; without it the project's own

for lr in (0.5, 0.1):
    with lux.Experiment("tiny", {"lr": lr}, quiet=True) as exp:
        saver = lux.Saver(exp.hold_exp_part("save", [".ckpt"]))
        saver.save_checkpoint(1, {"weight": lr})
        saver.close()

expview = lux.ExperimentViewer()
pp.pprint(expview.list())
print(len(expview.recent(timedeltaobj=timedelta(minutes=20))), "runs in the last 20 minutes")
made = expview.backtracking("ckpt")
pp.pprint(made)

newest, oldest = expview.list()
file = made[oldest][0]["path"]
moved = shutil.copy(file, Path(tempfile.mkdtemp()) / "some-model.bin")
assert list(expview.backtracking(moved)) == [oldest]  # its name and place have changed, its content has not
assert expview.exp_info(newest)["params"] == {"lr": 0.1}
assert any("backtracking(moved)" in text for text in expview.exp_code(oldest).values())  # path -> source text
print(moved, "was made by", oldest)
