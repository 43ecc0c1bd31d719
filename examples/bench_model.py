"""A mini-model measured over input scales: names take their values from `input_scales`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

import luxmeter as lux


class Head(torch.nn.Module):
    """A classifier on token ids."""

    def __init__(self, words: int, dim: int) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(words, dim)
        self.out = torch.nn.Linear(dim, 10)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Mean of the embeddings, then the classes."""
        logits: torch.Tensor = self.out(self.table(ids).mean(1))
        return logits


result = lux.bench_model(
    Head,
    model_init_params=["words", "dim"],
    input_params=[["batch", "length"]],
    input_scales={"words": 1000, "dim": 32, "length": 16, "batch": [1, 16]},
    job_configs=[["fp32", "pt"], ["bf16", "pt"]],
    integer_inputs={0: "words"},
    budget_s=2,
    quiet=True,
)
print(result)
path = result.to_csv(Path(tempfile.mkdtemp()) / "head.csv")
assert len(path.read_text().splitlines()) == 5
assert [row.dtype for row in result] == ["fp32", "bf16", "fp32", "bf16"]
assert all(row.status in ("ok", "doubtful") for row in result)
