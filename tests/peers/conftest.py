"""The torchvision wheel of PyPI is a CUDA build; beside a CPU torch it imports with this much help."""

from __future__ import annotations

import sys
import types

import pytest
import torch

_library = torch.library.Library("torchvision", "DEF")
_library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
sys.modules.setdefault("torchvision._meta_registrations", types.ModuleType("torchvision._meta_registrations"))


@pytest.fixture(autouse=True, scope="session")
def warm_transformers() -> None:
    """transformers adds a method to torch.nn.Module with its first model: not during a test."""
    transformers = pytest.importorskip("transformers")
    transformers.BertModel(transformers.BertConfig(num_hidden_layers=1, hidden_size=12, vocab_size=10))
