"""Curves with a band over seeds, parallel coordinates, and curves out of TensorBoard's files."""

import math
import random
import tempfile
from pathlib import Path

from luxmeter.experiment import TensorBoardFiles, import_tensorboard, scalars
from luxmeter.render import sparkline
from luxmeter.store import Lab
from luxmeter.view import parallel, plot, plot_tensorboard

with tempfile.TemporaryDirectory() as folder:
    place = Path(folder)
    lab = Lab.open(place / "lab")
    runs = []
    for lr in (0.02, 0.1):
        for seed in range(4):
            noise = random.Random(seed)
            with lab.create_run("fit", params={"lr": lr, "seed": seed}) as run:
                for step in range(200):
                    run.log({"loss": math.exp(-lr * step / 2) + noise.gauss(0.2, 0.03)}, step)
            runs.append(lab.find(run.id))

    bands = plot(runs, "loss", repeats=True, smooth=0.6)  # a line a learning rate, a band over its seeds
    for name in ("bands.png", "bands.svg", "bands.html"):
        print(f"{name}: {bands.save(place / name).stat().st_size:,} bytes")
    assert [line.n for line in bands.charts[0].lines] == [4, 4]
    parallel(runs, metrics="loss").save(place / "params.html")
    print(sparkline(runs[-1].metric("loss").to_arrow()["value"].to_pylist(), width=40))

    with TensorBoardFiles(place / "tb" / "run1") as files:  # the real TensorBoard reads these
        for step in range(20):
            files.log({"loss": 1 / (step + 1)}, step)
    frame = scalars(place / "tb")
    assert list(frame["value"])[:2] == [1.0, 0.5]
    plot_tensorboard(place / "tb", "loss").save(place / "tb.png")
    (imported,) = import_tensorboard(lab, place / "tb")
    assert import_tensorboard(lab, place / "tb") == [imported], "importing twice does not double"
    print(f"imported as {lab.find(imported)}")
    lab.close()
