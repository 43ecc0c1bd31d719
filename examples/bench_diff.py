"""Benchmarks of the same operators in several settings: what changed beyond chance and noise, and what that means for the program."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

import luxmeter as lux
from luxmeter.operators import diff_benchmark_files, diff_many_files

a = torch.rand(256, 256)
with lux.trace() as t:
    for _ in range(50):
        torch.exp(torch.mm(a, a))
ops = t.operators()

folder = Path(tempfile.mkdtemp())
for dtype in ("fp32", "fp64"):
    lux.bench(ops, dtypes=[dtype], budget_s=1, quiet=True).to_json(folder / f"{dtype}.json")
lux.bench(ops, scales={"batch": [32, 96]}, budget_s=1, quiet=True).plot(folder / "scaling.svg")

found = diff_benchmark_files(folder / "fp32.json", folder / "fp64.json")
print(found)
# One dtype in all of A, another in all of B: that is what is compared.
assert [str(d) for d in found.differences] == ["dtype fp32 and fp64"]
assert found.verdict is not None and found.verdict.rows == 2
print(found.verdict.change, found.verdict.low, found.verdict.high, found.verdict.coverage)
assert not [r for r in found.regressions(0.02) if r.kind == "broken"]

several = diff_many_files([folder / "fp32.json", folder / "fp64.json", folder / "fp32.json"])
print(several)
same = several.diffs[1]
assert not same.of("slower") and not same.of("faster")
assert (folder / "scaling.svg").stat().st_size > 1000
