"""The logger: any values, a line that refreshes itself, a log file, a listener."""

from pathlib import Path
from tempfile import TemporaryDirectory

import luxmeter as lux

logger = lux.Logger()
heard = []
logger.add_listener(heard.append)

with TemporaryDirectory() as folder:
    path = logger.add_log_dir(folder)
    meter = lux.Meter()
    for step in range(1000):
        meter.step = step
        meter.loss = 1 / (step + 1)
        logger.inline(meter, prefix="train")  # one line; in a pipe one every ten seconds
        logger.info("checkpoint", step, every=500)
    logger.info(1, 2, 3, {4: 4}, prefix="examples")
    logger.close()
    lines = Path(path).read_text().splitlines()

assert [line.split()[-1] for line in lines[:2]] == ["0", "500"]
assert lines[2].endswith("examples: 1 2 3 {4: 4}")
assert len(heard) == 1003
