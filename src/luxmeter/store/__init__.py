"""Where runs rest: a lab is a folder, a run is a directory complete in itself, the index is derived.

lab = Lab.open()
with lab.create_run("mnist", params={"lr": 0.1}) as run, activate(run):
    run.log({"loss": 0.3, "acc": 0.9}, step=7)
lab.runs("param.lr >= 0.1 and metric.acc > 0.8", sort="-metric.acc")
lab.find("latest").metric("loss")
"""

from luxmeter.store.active import activate, active_run
from luxmeter.store.lab import Lab
from luxmeter.store.rows import RunHead, RunHeads, RunRow
from luxmeter.store.run import Run
from luxmeter.store.segments import Follower, SegmentWriter, compact, read_segments
from luxmeter.store.values import File, Histogram, Image, Text
from luxmeter.store.writer import RunWriter

__all__ = [
    "File", "Follower", "Histogram", "Image", "Lab", "Run", "RunHead", "RunHeads", "RunRow", "RunWriter",
    "SegmentWriter", "Text", "activate", "active_run", "compact", "read_segments",
]  # fmt: skip
