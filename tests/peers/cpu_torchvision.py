"""The torchvision wheel of PyPI is a CUDA build; beside a CPU torch it imports after this module."""

from __future__ import annotations

import sys
import types

import torch

_library = torch.library.Library("torchvision", "DEF")  # the name lasts as long as this object
_library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
sys.modules.setdefault("torchvision._meta_registrations", types.ModuleType("torchvision._meta_registrations"))
