"""What MindSpore's tensors and data types say about themselves. Imports nothing: MindSpore is there, or there is none of it."""

from __future__ import annotations

import sys
from typing import Any

from luxmeter.signature.records import TensorSpec, Word


def mindspore_tensor_type() -> Any:
    """The type that tensors and parameters of MindSpore are of; () while it is not imported."""
    return getattr(sys.modules.get("mindspore._c_expression"), "TensorPy", ())


def mindspore_dtype_type() -> Any:
    """The type of MindSpore's data types; () while it is not imported."""
    return getattr(getattr(sys.modules.get("mindspore._c_expression"), "typing", None), "Type", ())


def dtype_name(dtype: Any) -> str:
    """`float32`, as torch and numpy say it."""
    return str(dtype).lower().rpartition(".")[2]


def described(value: Any) -> TensorSpec | Word | None:
    """A tensor or a data type of MindSpore described; None for anything else. Values are not looked at: that would wait for them."""
    if isinstance(value, mindspore_tensor_type()):
        parameter = type(value).__name__ == "Parameter"
        contiguous = not hasattr(value, "is_contiguous") or value.is_contiguous()
        return TensorSpec(
            shape=tuple(value._shape),
            dtype=dtype_name(value._dtype),
            stride=None if contiguous else tuple(value.stride()),
            device=_device(value),
            requires_grad=parameter and bool(value.requires_grad),
            kind="Parameter" if parameter else "",
        )
    if isinstance(value, mindspore_dtype_type()):
        return Word("dtype", dtype_name(value))
    return None


def _device(value: Any) -> str:
    return str(getattr(value, "device", "") or "cpu").lower().removesuffix(":0")
