"""Does a backend give what eager torch gives, on the same inputs? Values within the room of their dtype; of operators
that draw numbers what can be compared: shapes, that they draw at all, and how many zeros they leave.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from luxmeter.nested import tensors_of
from luxmeter.operators.backends import Prepared
from luxmeter.operators.counterparts.agreement import agreement
from luxmeter.operators.inputs import Call
from luxmeter.operators.resolve import plain_name
from luxmeter.signature import is_unmade

# The largest difference, as a share of the largest value, that another order of summation explains.
ROOM = {"float64": 1e-7, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
_DRAWS = "random: shapes and the share of zeros were compared, values cannot be"
_UNFILLED = "memory as it was found: shapes were compared, values cannot be"
_ELSEWHERE = 1 << 20  # from the seed the inputs are drawn with: the same numbers again would meet themselves
_SIGMAS = 6.0  # so far apart are two shares of zeros by chance never


@dataclass(frozen=True)
class Judged:
    """`differs` says how the result is another one than eager's; `note` what could not be compared."""

    differs: str = ""
    note: str = ""
    random: bool = False


def judge(
    call: Call, prepared: Prepared, eager: Callable[[], Any], restore: Callable[[], None], *, seed: int, exact: Any = None
) -> Judged:  # fmt: skip
    """Compare what `prepared` gives with what `eager` gives for the same call; `exact` is the fp32 result.

    Eager runs twice from other random states: if its own results differ, the operator draws numbers.
    """
    first, second = (_fresh(eager, restore, seed + turn) for turn in (0, 1))
    got = _fresh(prepared.outputs, restore, seed)
    if "empty" in plain_name(call.op).split("_"):
        return Judged(_other_form(first, got), _UNFILLED, random=True)
    if not _apart(first, second, 0.0):
        room = _room(call, first)
        differs = _apart(first, got, room)
        # In 16 bits a backend may well be nearer to fp32 than eager is.
        return Judged(differs if exact is None or not differs or _apart(exact, got, room) else "")
    differs = _other_form(first, got)
    if not differs and not _apart(got, _fresh(prepared.outputs, restore, seed + 1), 0.0):
        differs = "draws no numbers: the same values at every call, where eager's change"
    return Judged(differs or _other_zeros(first, got), _DRAWS, random=True)


def draws(run: Callable[[], Any], restore: Callable[[], None], *, seed: int) -> bool:
    """Whether something inside draws numbers, as a layer of a transformer does in training: its errors mean nothing."""
    first, second = (_fresh(run, restore, seed + turn) for turn in (0, 1))
    return bool(_apart(first, second, 0.0))


def restorer(call: Call) -> Callable[[], None]:
    """What puts the values of all inputs, parameters and buffers back to what they are now.

    Operators that change their inputs would be compared on others.
    """
    storages = {}
    for tensor in _all_tensors(call):
        if tensor.layout is torch.strided and not tensor.is_meta and not is_unmade(tensor):
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage
    kept = [(storage, storage.clone()) for storage in storages.values() if storage.nbytes()]  # type: ignore[no-untyped-call]

    def restore() -> None:
        for storage, values in kept:
            storage.copy_(values)

    return restore


def _all_tensors(call: Call) -> Iterator[torch.Tensor]:
    yield from tensors_of((call.args, call.kwargs))
    for module in call.args:
        if isinstance(module, torch.nn.Module):
            yield from module.parameters()
            yield from module.buffers()


def _fresh(run: Callable[[], Any], restore: Callable[[], None], seed: int) -> Any:
    """A result of its own, from inputs as they were made."""
    restore()
    torch.default_generator.manual_seed(seed + _ELSEWHERE)
    result = _copied(run())
    restore()
    return result


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {k: _copied(v) for k, v in value.items()}
    return [_copied(v) for v in value] if isinstance(value, list | tuple) else value


def _apart(wanted: Any, got: Any, room: float) -> str:
    """How far two results are apart beyond `room`; dtypes alone are no difference, nor are indices beside values."""
    ours, theirs = tensors_of(wanted), tensors_of(got)
    if len(ours) != len(theirs):
        return f"gives {len(theirs)} tensors, eager gives {len(ours)}"
    pairs = list(zip(ours, theirs, strict=True))
    valued = [(a, b) for a, b in pairs if a.is_floating_point() or a.is_complex()]
    for a, b in pairs:
        found = agreement(a, b.cpu().to(a.dtype) if b.is_complex() == a.is_complex() else b,
                          values=not valued or any(a is x for x, _ in valued))  # fmt: skip
        if found.kind in ("shape", "dtype"):
            return f"gives {found.why.replace('torch', 'eager')}"
        if found.error > room:
            return f"{found.why or 'values differ'}: a relative error of {found.error:.2g}, {room:.0e} is the most"
    return ""


def _other_form(wanted: Any, got: Any) -> str:
    shapes = [[list(t.shape) for t in tensors_of(value)] for value in (wanted, got)]
    return "" if shapes[0] == shapes[1] else f"gives {shapes[1]}, eager gives {shapes[0]}"


def _other_zeros(wanted: Any, got: Any) -> str:
    for a, b in zip(tensors_of(wanted), tensors_of(got), strict=True):
        n = a.numel()
        if not n or not a.is_floating_point():
            continue
        x, y = (1 - int(t.count_nonzero()) / n for t in (a, b))
        middle = (x + y) / 2
        if abs(x - y) > _SIGMAS * math.sqrt(2 * middle * (1 - middle) / n) + 1 / n:
            return f"leaves {y:.1%} zeros, eager {x:.1%}"
    return ""


def _room(call: Call, result: Any) -> float:
    """By the coarsest dtype that is part of it; none for whole numbers."""
    dtypes = {str(t.dtype).removeprefix("torch.") for t in (*_all_tensors(call), *tensors_of(result))}
    wide = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
    return max((ROOM.get(wide.get(d, d), 0.0) for d in dtypes), default=0.0)
