"""What one operator call costs: its name and the shapes it saw -> multiply-accumulates, FLOPs, bytes.

Formulas read shapes only, so real, meta and fake tensors and plain descriptions (`TensorLike`) all do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from luxmeter.doors import door

if TYPE_CHECKING:
    from luxmeter.flops.cost import cost_of as cost_of
    from luxmeter.flops.cost import moved_bytes as moved_bytes
    from luxmeter.flops.formulas import Cost as Cost
    from luxmeter.flops.formulas import TensorLike as TensorLike
    from luxmeter.flops.formulas import flops_of as flops_of
    from luxmeter.flops.formulas import forget as forget
    from luxmeter.flops.formulas import version as version
    from luxmeter.flops.names import CREATES as CREATES

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "Cost": "formulas",
        "TensorLike": "formulas",
        "cost_of": "cost",
        "flops_of": "formulas",
        "forget": "formulas",
        "moved_bytes": "cost",
        "version": "formulas",
        "CREATES": "names",
    },
)
