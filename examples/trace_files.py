"""Write what was traced to files for other tools: a page to look at, tables, a timeline for Perfetto."""

import json
import tempfile
from pathlib import Path

import torch
from torch import nn

import luxmeter as lux
from luxmeter.calls import Window, export

torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
inputs, targets = torch.randn(8, 16), torch.randint(0, 4, (8,))

with lux.trace(inside=True) as trace:
    for _ in range(5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs), targets).backward()
        optimizer.step()

with tempfile.TemporaryDirectory() as folder:
    there = Path(folder)
    export.write(trace, there / "calls.html")  # open it in a browser
    export.write(trace, there / "calls.csv")  # every call, one row each
    export.write(trace, there / "apis.parquet", what="api")  # the table instead
    export.write(trace, there / "stacks.folded")  # for flame-graph tools
    export.write(
        trace, there / "top.perfetto.json", window=Window(depth=1)
    )  # for ui.perfetto.dev, without details
    top = json.loads((there / "top.perfetto.json").read_text())["traceEvents"]
    page = (there / "calls.html").read_text(encoding="utf-8")

frame = export.frame(trace)  # pandas
print(frame.groupby("label", observed=True)["self_ns"].sum().nlargest(5))
assert len(frame[frame["name"] == "torch.nn.Linear"]) == 10
assert 0 < sum(event["ph"] == "X" for event in top) < len(frame)
assert "torch.nn.functional.cross_entropy" in page
