"""Which calls of a trace make a program wait for its device: found by their names and arguments, on any device. Pure.

On an accelerator calls are queued, and the program runs ahead; a call that needs a value on the host waits until all is done.
On a CPU nothing waits, and the same calls are seen: so a test without an accelerator finds them.
Seen are the program's own calls, also in forward of its modules; not what an optimizer's step or another call of torch
does inside, nor copies to a device from memory that is not pinned.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from luxmeter.calls.records import INSIDE, OWN
from luxmeter.calls.result import TraceResult
from luxmeter.signature import Signature, TensorSpec, Word

_VALUE = "a value is read"
_COUNT = "the size of the result hangs on values"
_ALWAYS = {
    **dict.fromkeys(
        (
            "Tensor.item", "Tensor.tolist", "Tensor.numpy", "Tensor.__array__", "Tensor.is_nonzero", "torch.is_nonzero",
            "Tensor.equal", "torch.equal", "Tensor.allclose", "torch.allclose", "Tensor.__contains__",
            "bool()", "int()", "float()", "complex()", "index()", "format()", "repr()", "str()",
        ),
        _VALUE,
    ),
    **dict.fromkeys(
        (
            "Tensor.nonzero", "torch.nonzero", "Tensor.argwhere", "torch.argwhere", "Tensor.masked_select", "torch.masked_select",
            "Tensor.unique", "torch.unique", "Tensor.unique_consecutive", "torch.unique_consecutive", "Tensor.bincount", "torch.bincount",
        ),
        _COUNT,
    ),
    "Tensor.cpu": "copied to the host",
    "torch.cuda.synchronize": "waits for the device", "torch.accelerator.synchronize": "waits for the device",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sync:
    """A call at which the program would wait: what it is called, why it waits, how often, and in which modules."""

    name: str
    why: str
    n: int
    where: tuple[str, ...] = ()

    def __str__(self) -> str:
        places = f" in {', '.join(self.where)}" if self.where else ""
        return f"{self.name} x{self.n}{places}: {self.why}"


def device_syncs(trace: TraceResult) -> list[Sync]:
    """The calls that wait for the device, the most frequent first."""
    recording = trace.recording
    counts: dict[tuple[str, str], int] = defaultdict(int)
    places: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for code, number, module, n in _calls(recording):
        name = recording.callables[code].shown
        words = recording.signatures[number] if number else None
        why = why_it_waits(name, None if words is None or words.general else words.signature)
        if why:
            counts[name, why] += n
            if (
                path := (recording.callables[module].path or recording.callables[module].name)
                if module
                else ""
            ):
                places[name, why][path] = None
    found = [Sync(name, why, n, tuple(places[name, why])) for (name, why), n in counts.items()]
    return sorted(found, key=lambda s: (-s.n, s.name))


def why_it_waits(name: str, signature: Signature | None) -> str:
    """Why a call of this name with these arguments waits for the device; empty if it does not."""
    if name in _ALWAYS:
        return _ALWAYS[name]
    if signature is None:
        return ""
    args, kwargs = signature.args, dict(signature.kwargs)
    if name == "[]" and any(t.dtype in ("bool", "uint8") and t.shape for t in _tensors(args[1:])):
        return "indexed by a mask: " + _COUNT
    if name in ("torch.where", "Tensor.where") and len(args) + len(kwargs) == 1:
        return _COUNT
    if name in ("torch.repeat_interleave", "Tensor.repeat_interleave") and "output_size" not in kwargs:
        return _COUNT if any(_tensors([*args[1:], kwargs.get("repeats")])) else ""
    if name == "Tensor.to" and kwargs.get("non_blocking") is not True:
        target = [*args[1:2], kwargs.get("device")]
        return "copied to the host" if any(_is_host(value) for value in target) else ""
    return ""


def _is_host(value: Any) -> bool:
    return value == "cpu" or (
        isinstance(value, Word) and value.kind == "device" and value.name.endswith("cpu")
    )


def _tensors(values: Any) -> list[TensorSpec]:
    from luxmeter.signature import tensors_in

    return list(tensors_in(tuple(values)))


def _calls(recording: Any) -> Any:
    """(callable, signature, module, count) of the program's own calls, equal ones together."""
    if recording.totals:
        for row in recording.totals:
            if not row.flags & (INSIDE | OWN):
                yield row.callable, row.signature, 0, row.n
        return
    for key, (count, _) in recording.together(
        ("callable", "signature", "module"), 0, without=INSIDE | OWN
    ).items():
        yield *key[:3], count
