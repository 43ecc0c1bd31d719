"""What the tests beside the peers have in common."""

from __future__ import annotations

import cpu_torchvision  # noqa: F401 - before anything that imports torchvision
import pytest


@pytest.fixture(autouse=True, scope="session")
def warm_transformers() -> None:
    """transformers adds a method to torch.nn.Module with its first model: not during a test."""
    transformers = pytest.importorskip("transformers")
    transformers.BertModel(transformers.BertConfig(num_hidden_layers=1, hidden_size=12, vocab_size=10))
