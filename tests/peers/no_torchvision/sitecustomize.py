"""With this folder on PYTHONPATH a program finds no torchvision: its CUDA build does not import beside a CPU torch."""

import sys

sys.modules["torchvision"] = None  # type: ignore[assignment]
