"""What a model costs. Every part of it computes with torch."""

from luxmeter.torch_extra import require_torch

require_torch("luxmeter.model")
