"""How the arguments of torch calls take part in a signature: the hooks the core asks when it cannot see by itself."""

from __future__ import annotations

import _thread
import contextlib
import sys
from collections.abc import Callable
from typing import Any

from luxmeter.signature import mindspore_dtype_type, mindspore_tensor_type, plain_tensors

OPAQUE, EXCHANGE, KEY, IDENTITY, HASH = 0, 1, 2, 3, 4

_known_samples: list[tuple[Any, int | None]] = []


def _samples(torch: Any) -> list[tuple[Any, int | None]]:
    """Tensors from which the core learns where one keeps its sizes: all kinds of them, with a number for each data type.

    One that the exchange table refuses comes last, with None. Made once a process.
    """
    if _known_samples or not may_compute(torch):
        return _known_samples
    shapes = ((3,), (), (2, 3), (7, 1, 5), (2, 3, 5, 7), (1, 2, 1, 3, 11), (0, 4), (1,))
    dtypes = (torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool, torch.bfloat16,
              torch.float16, torch.complex64, torch.int8)  # fmt: skip

    def make() -> None:
        made = [(torch.empty(shape, device="cpu", dtype=torch.float32), 0) for shape in shapes]
        made += [(torch.empty((2, 3), device="cpu", dtype=dtype), n) for n, dtype in enumerate(dtypes)]
        made.append((torch.empty((5, 4), device="cpu", dtype=torch.float32)[1:4, 2:], 0))
        made.append((torch.empty((5, 4), device="cpu", dtype=torch.float64).t(), 1))
        refused = torch.empty((2, 3), device="meta", dtype=torch.float32)
        _known_samples.extend([*made, (refused, None)])

    unseen(make)
    return _known_samples


def unseen(work: Callable[[], None]) -> None:
    """Run operations of torch where no profiler, mode or transform of the user's sees them: they belong to a thread."""
    done, failed = _thread.allocate_lock(), list[BaseException]()

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again below
            failed.append(error)
        finally:
            done.release()

    done.acquire()
    try:
        _thread.start_new_thread(run, ())
    except RuntimeError:  # no more threads
        run()
    done.acquire()
    if failed:
        raise failed[0]


def may_compute(torch: Any) -> bool:
    """Whether torch operations stay unseen: no mode or transform would take part in them."""
    try:
        stack, modes = torch._C._functorch.peek_interpreter_stack(), torch._C._len_torch_dispatch_stack()
    except AttributeError:  # a torch that cannot be asked
        return False
    return stack is None and modes == 0 and not torch.jit.is_tracing()


def _listed(kind: Any) -> tuple[type, ...]:
    return kind if isinstance(kind, tuple) else (kind,)


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
        self._group: type | None = getattr(getattr(torch, "distributed", None), "ProcessGroup", None)
        self._mindspore_tensors: set[type] = set()

    def hooks(self) -> dict[str, Any]:
        """As keyword arguments of a Recorder."""
        return {
            "tensor_type": self.tensor_type,
            "exchange": self.exchange,
            "classify": self.classify,
            "key": self.key,
            "samples": _samples(self._torch) if self.exchange is not None else None,
        }

    def quiet(self) -> contextlib.AbstractContextManager[Any]:
        """Nothing that is read here may reach a user's __torch_function__."""
        return plain_tensors()

    def may_compute(self) -> bool:
        """Whether torch operations on the arguments stay unseen: no mode or transform would take part in them."""
        return self._torch is not None and may_compute(self._torch)

    def classify(self, kind: type) -> int | tuple[str, ...]:
        """How arguments of this type take part; a tuple: by these attributes, which the core reads in half the time of `key`."""
        torch = self._torch
        if torch is not None and issubclass(kind, torch.Tensor):
            # A subclass that dispatches by itself may have no memory behind it (FakeTensor, DTensor).
            plain = kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__  # type: ignore[attr-defined]
            return EXCHANGE if plain else KEY
        if torch is not None and issubclass(kind, torch.nn.Module):
            return ("training",)  # in the other mode it does something else
        if issubclass(kind, mindspore_tensor_type()):
            self._mindspore_tensors.add(kind)
            return KEY if self._strides else ("_shape", "_dtype")
        if issubclass(kind, (*self._for_ever, *_listed(mindspore_dtype_type()))):
            return IDENTITY
        if kind is self._device:
            return HASH
        if kind is self._group:
            return ("group_name",)  # another group is another collective
        if kind.__module__ == "numpy" or kind is complex:
            return KEY
        return OPAQUE

    def key(self, value: Any) -> object:
        """A hashable that is equal for arguments that look the same."""
        if type(value) in self._mindspore_tensors:
            # There is one object for each data type, and its hash would take a microsecond.
            known = value._shape, id(value._dtype)
            return (*known, tuple(value.stride())) if self._strides else known
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
