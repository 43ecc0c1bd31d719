"""What one operator call costs: its name and the shapes it saw -> multiply-accumulates, FLOPs, bytes.

Formulas read shapes only, so real, meta and fake tensors and plain descriptions (`TensorLike`) all do.
"""

from __future__ import annotations

from luxmeter.flops.formulas import Cost, TensorLike, cost_of, flops_of, forget, moved_bytes, version

__all__ = ["Cost", "TensorLike", "cost_of", "flops_of", "forget", "moved_bytes", "version"]
