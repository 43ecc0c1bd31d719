"""Trace a model once, then measure its operators at other sizes and in another dtype."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

import luxmeter as lux

net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
with lux.trace() as t:
    for _ in range(3):
        torch.softmax(net(torch.rand(32, 64)), dim=-1)

# Distinct operators with what they were given, kept as JSON lines; runs can be merged.
folder = Path(tempfile.mkdtemp())
t.operators().save(folder / "ops.jsonl")
ops = lux.load_operators(folder / "ops.jsonl")
assert {"torch.nn.Linear", "torch.nn.ReLU", "torch.softmax"} <= {case.op for case in ops}
assert len(lux.Operators([*ops, *ops])) == len(ops)

result = lux.bench(
    ops.filter(name="Linear")[:1], scales={"batch": [1, 64]}, dtypes=["fp32", "bf16"], budget_s=2, quiet=True
)
print(result)
result.to_csv(folder / "linear.csv")

assert [(row.scale, row.dtype) for row in result] == [
    ("batch=1", "fp32"), ("batch=1", "bf16"), ("batch=64", "fp32"), ("batch=64", "bf16"),
]  # fmt: skip
assert all(row.status in ("ok", "doubtful") and row.median_us for row in result)
assert all(row.max_rel_error is not None and row.max_rel_error < 0.05 for row in result)
