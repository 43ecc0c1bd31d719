"""Two benchmarks of the same operators: what got slower beyond chance and noise, and a picture."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

import luxmeter as lux
from luxmeter.operators import diff_benchmark_files

with lux.trace() as t:
    torch.mm(torch.rand(96, 96), torch.rand(96, 96))
ops = t.operators().filter(name="mm")

folder = Path(tempfile.mkdtemp())
before = lux.bench(ops, scales={"batch": [32, 96]}, budget_s=1, quiet=True)
after = lux.bench(ops, scales={"batch": [32, 96]}, dtypes=["fp64"], budget_s=1, quiet=True)
before.to_json(folder / "before.json")
after.to_json(folder / "after.json")
before.plot(folder / "scaling.svg")

found = diff_benchmark_files(folder / "before.json", folder / "after.json")
print(found)
# Another dtype is another row: nothing to compare it with, and nothing is called slower.
assert {change.call for change in found.changes} == {"gone", "new"}
assert (folder / "scaling.svg").stat().st_size > 1000
same = diff_benchmark_files(folder / "before.json", folder / "before.json")
assert not same.of("slower") and not same.of("faster")
