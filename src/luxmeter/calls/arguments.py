"""How the arguments of torch calls take part in a signature: the hooks the core asks when it cannot see by itself."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

OPAQUE, EXCHANGE, KEY, IDENTITY, HASH = 0, 1, 2, 3, 4


class Arguments:
    """The hooks for one recorder. `exchange=False` reads every tensor by its attributes, as for an old torch."""

    def __init__(self, *, strides: bool = False, exchange: bool = True) -> None:
        torch: Any = sys.modules.get("torch")
        self._torch = torch
        self._strides = strides
        self.tensor_type: type | None = torch.Tensor if torch is not None else None
        self.exchange: object | None = None
        if torch is not None and exchange:
            self.exchange = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
        words = ("dtype", "layout", "memory_format", "qscheme")
        self._for_ever: tuple[type, ...] = tuple(
            getattr(torch, name) for name in words if hasattr(torch, name)
        )
        self._device: type | None = getattr(torch, "device", None)

    def hooks(self) -> dict[str, Any]:
        """As keyword arguments of a Recorder."""
        return {
            "tensor_type": self.tensor_type,
            "exchange": self.exchange,
            "classify": self.classify,
            "key": self.key,
        }

    def quiet(self) -> contextlib.AbstractContextManager[Any]:
        """Nothing that is read here may reach a user's __torch_function__."""
        if self._torch is None:
            return contextlib.nullcontext()
        quiet: Callable[[], Any] = self._torch._C.DisableTorchFunction
        return quiet()  # type: ignore[no-any-return]

    def may_compute(self) -> bool:
        """Whether torch operations on the arguments stay unseen: no mode or transform would take part in them."""
        torch = self._torch
        if torch is None:
            return False
        stack = torch._C._functorch.peek_interpreter_stack()
        return stack is None and torch._C._len_torch_dispatch_stack() == 0 and not torch.jit.is_tracing()

    def classify(self, kind: type) -> int:
        """How arguments of this type take part."""
        torch = self._torch
        if torch is not None and issubclass(kind, torch.Tensor):
            # A subclass that dispatches by itself may have no memory behind it (FakeTensor, DTensor).
            plain = kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__  # type: ignore[attr-defined]
            return EXCHANGE if plain else KEY
        if issubclass(kind, self._for_ever):
            return IDENTITY
        if kind is self._device:
            return HASH
        if kind.__module__ == "numpy" or kind is complex:
            return KEY
        return OPAQUE

    def key(self, value: Any) -> object:
        """A hashable that is equal for arguments that look the same."""
        with self.quiet():
            return self._key(value)

    def _key(self, value: Any) -> object:
        if self.tensor_type is not None and isinstance(value, self.tensor_type):
            return self._tensor_key(value)
        if isinstance(value, (bool, float, complex)) or type(value).__module__ != "numpy":
            return type(value)
        shape = getattr(value, "shape", None)
        dtype = str(getattr(value, "dtype", ""))
        if shape == () and dtype.startswith(("int", "uint", "bool")):
            return dtype, int(value)
        return shape, dtype

    def _tensor_key(self, value: Any) -> object:
        # Sizes of a program that is being captured are symbols: to compare or hash one would specialise it.
        shape = tuple(size if type(size) is int else "?" for size in value.shape)
        known = (shape, value.dtype, str(value.device), value.layout)
        if self._strides and value.layout is self._torch.strided:
            return *known, tuple(step if type(step) is int else "?" for step in value.stride())
        return known
