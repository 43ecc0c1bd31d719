"""A run whose process dies at once: nothing is closed, nothing compacted."""

import os
import signal

import luxmeter as lux

exp = lux.Experiment("killed", {"lr": 0.5}, system_s=0).start_exp()
for step in range(3):
    exp.log({"loss": 1.0 / (step + 1)}, step=step)
exp.flush()
os.kill(os.getpid(), signal.SIGKILL)
