"""torch's own test samples, by the names operators have in a trace.

They come from torch.testing._internal (OpInfo), which is there in every torch but wants the package expecttest.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

_SPACES = (
    ("torch.nn.functional", torch.nn.functional), ("torch.linalg", torch.linalg), ("torch.fft", torch.fft),
    ("torch.special", torch.special), ("torch.signal.windows", torch.signal.windows), ("torch", torch),
)  # fmt: skip
_DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)
# The methods behind Python's operators, and whose samples fit them.
_OPERATORS = {
    "add": "__add__ __iadd__", "sub": "__sub__ __isub__", "mul": "__mul__ __imul__",
    "div": "__truediv__ __itruediv__", "floor_divide": "__floordiv__", "remainder": "__mod__", "pow": "__pow__",
    "matmul": "__matmul__", "neg": "__neg__", "abs": "__abs__", "eq": "__eq__", "ne": "__ne__", "lt": "__lt__",
    "le": "__le__", "gt": "__gt__", "ge": "__ge__", "bitwise_and": "__and__", "bitwise_or": "__or__",
    "bitwise_xor": "__xor__", "bitwise_not": "__invert__", "bitwise_left_shift": "__lshift__",
    "bitwise_right_shift": "__rshift__",
}  # fmt: skip
# OpInfo calls these through a wrapper with the differentiable argument first: back to torch's order.
_ORDER: dict[str, Callable[[Any, Any], tuple[Any, ...]]] = {
    "einsum": lambda x, args: (args[0], *x),
    "where": lambda x, args: (args[0], x, *args[1:]),
    "nn.functional.embedding": lambda x, args: (args[0], x, *args[1:]),
    "polygamma": lambda x, args: (args[0], x, *args[1:]),
    "special.polygamma": lambda x, args: (args[0], x, *args[1:]),
    "broadcast_tensors": lambda x, args: (x, *args),
}
# What OpInfo has no samples of.
_OWN: dict[str, list[Callable[[], tuple[Any, ...]]]] = {
    "Tensor.T": [lambda: (torch.rand(3, 4),), lambda: (torch.rand(5, 5),)],
    "Tensor.mT": [lambda: (torch.rand(3, 4),), lambda: (torch.rand(2, 3, 4),)],
    "torch.rand": [lambda: (3, 4), lambda: ((2, 3),), lambda: (5,)],
    "torch.randperm": [lambda: (7,)],
}


@dataclass(frozen=True)
class Sampled:
    """A name of torch, whose samples fit it (OpInfo's names and variants), and whether it changes its argument."""

    op: str
    infos: tuple[tuple[str, str], ...]
    in_place: bool = False


@functools.cache
def _infos() -> dict[tuple[str, str], Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return {(info.name, info.variant_test_name): info for info in op_db}


def sampled() -> Iterator[Sampled]:
    """Every name of torch that has samples: functions, their aliases, methods, in-place methods, operators."""
    found: dict[str, Sampled] = {}
    for key, info in _infos().items():
        for op, in_place in _names(key[0], info):
            known = found.get(op, Sampled(op, (), in_place))
            if key not in known.infos:
                found[op] = Sampled(op, (*known.infos, key), in_place)
    yield from found.values()
    yield from (Sampled(op, ()) for op in _OWN if op not in found)


def _names(name: str, info: Any) -> Iterator[tuple[str, bool]]:
    for called in (name, *(alias.name for alias in info.aliases)):
        space, _, last = called.rpartition(".")
        home = f"torch.{space}" if space else "torch"
        if any(home == s and callable(getattr(m, last, None)) for s, m in _SPACES):
            yield f"{home}.{last}", False
        if space == "nn.functional" and callable(getattr(torch, last, None)):
            yield f"torch.{last}", False
        if space != "signal.windows":
            for short in dict.fromkeys((last, called.replace(".", "_"))):
                if callable(getattr(torch.Tensor, short, None)):
                    yield f"Tensor.{short}", False
                if callable(getattr(torch.Tensor, f"{short}_", None)) and not short.startswith("__"):
                    yield f"Tensor.{short}_", True
        if not space and callable(getattr(torch.nn.functional, last, None)):
            yield f"torch.nn.functional.{last}", False
    yield from (
        (f"Tensor.{m}", m.startswith("__i")) for m in _OPERATORS.get(name, "").split() if m != "__invert__"
    )
    if name == "bitwise_not":
        yield "Tensor.__invert__", False


def samples_of(what: Sampled, *, most: int) -> tuple[list[tuple[tuple[Any, ...], dict[str, Any]]], str]:
    """Arguments for it, spread over all its samples, and the dtype they are in. The same ones each time."""
    found: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    dtypes: dict[str, None] = {}
    if not what.infos:
        torch.manual_seed(0)
        return [(make(), {}) for make in _OWN[what.op]], "float32"
    for key in what.infos:
        supported = _infos()[key].supported_dtypes("cpu")
        dtype = next((d for d in _DTYPES if d in supported), None)
        if dtype is None:
            continue
        dtypes[str(dtype).removeprefix("torch.")] = None
        torch.manual_seed(0)
        order = _ORDER.get(key[0], lambda x, args: (x, *args))
        samples = [
            (order(s.input, s.args), dict(s.kwargs)) for s in _infos()[key].sample_inputs("cpu", dtype)
        ]
        found += _spread(samples, most)
    return _spread(found, most), ", ".join(dtypes)


def _spread(values: list[Any], most: int) -> list[Any]:
    if len(values) <= most:
        return values
    return [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]
