"""Inputs that fit a signature and make sense to the operator: real tensors, seeded, with the recorded strides,
sharing memory where the recorded ones did.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from luxmeter.errors import UsageError
from luxmeter.operators.case import Case
from luxmeter.operators.dtypes import for_cpu
from luxmeter.operators.needs import Need, Needs, needs_of
from luxmeter.operators.rebuild import check_outputs, rebuilt
from luxmeter.operators.resolve import (
    adapted,
    arguments_of,
    callable_of,
    named_value,
    plain_name,
    record_class,
)
from luxmeter.signature import (
    Argument,
    DictOf,
    Facts,
    ListOf,
    ModuleSpec,
    Opaque,
    SliceOf,
    TensorSpec,
    Word,
    contiguous_stride,
    describe,
    tensors_in,
)

# The slugs of what makes a description no call: such a case has no times, and a reason instead.
NOT_REPLAYABLE = ("not-replayable", "module-not-replayable", "module-differs")
_NO_NEED = Need()
_WEIGHTS = Need(
    low=0.1, high=1.0
)  # tensors that a module is built with: weights of classes, samples of a pooling


@dataclass(frozen=True)
class Call:
    """An operator ready to run: what to call, with what, and its name where it has one."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    op: str = ""

    def run(self) -> Any:
        """Call it once."""
        return self.function(*self.args, **self.kwargs)


def make_call(case: Case, *, seed: int = 0, device: str = "cpu") -> Call:
    """The case as a call with made-up inputs on `device`; the same seed gives the same inputs."""
    case = adapted(case) if torch.device(device).type != "cpu" else for_cpu(adapted(case))
    function = callable_of(case.op)
    needs = iter(_needs_in_order(case))
    generator = torch.Generator().manual_seed(seed)
    maker = _Maker(case, list(needs), generator, device)
    args = tuple(maker.value(v) for v in case.signature.args)
    kwargs = {k: maker.value(v) for k, v in case.signature.kwargs}
    return Call(function, args, kwargs, case.op)


def replay(case: Case, *, seed: int = 0, device: str = "cpu") -> Any:
    """Run a case once with made-up inputs: its result. UsageError if that is not of the shapes that were recorded."""
    result = make_call(case, seed=seed, device=device).run()
    check_outputs(case, result)
    return result


def outputs_of(result: Any) -> list[str]:
    """The shapes and dtypes of a result's tensors, in order: `f32[2,3]`."""
    return [str(t) for t in describe((result,)).tensors()]


def _needs_in_order(case: Case) -> Iterator[Need]:
    """The need of each tensor of the signature, in their order."""
    given = arguments_of(case)
    if isinstance(given.get("module"), ModuleSpec):
        given = {**given, "module_input": given.get("input")}
        if len(case.signature.args) > 2:
            given["target"] = case.signature.args[2]
            given["#2"] = None
    needs: Needs = needs_of(plain_name(case.op), given)
    for name, value in _in_order(case, given):
        for position, _ in enumerate(tensors_in(value)):
            yield needs.get((name, position), _NO_NEED)


def _in_order(case: Case, given: dict[str, Argument]) -> Iterator[tuple[str, Argument]]:
    plain = arguments_of(case)
    names = list(plain)
    if "target" in given and "target" not in plain and "#2" in names:
        names[names.index("#2")] = "target"
    yield from zip(names, plain.values(), strict=True)


class _Maker:
    def __init__(self, case: Case, needs: list[Need], generator: torch.Generator, device: str) -> None:
        self._case, self._needs, self._generator, self._device = case, iter(needs), generator, device
        self._storages: dict[int, torch.Tensor] = {}
        self._spans: dict[int, int] = {}
        self._fits: dict[int, TensorSpec] = {}
        for t in case.signature.tensors():
            if t.memory is not None:
                self._spans[t.memory] = max(self._spans.get(t.memory, 0), t.offset + t.span)

    def value(self, value: Argument) -> Any:
        if isinstance(value, TensorSpec):
            return self._tensor(value, next(self._needs, _NO_NEED))
        if isinstance(value, tuple):
            return tuple(self.value(v) for v in value)
        if isinstance(value, ListOf):
            return [self.value(v) for v in value.items]
        if isinstance(value, DictOf):
            return {self.value(k): self.value(v) for k, v in value.pairs}
        if isinstance(value, SliceOf):
            return slice(self.value(value.start), self.value(value.stop), self.value(value.step))
        if isinstance(value, ModuleSpec):
            return self._module(value)
        if isinstance(value, Word):
            return self._word(value)
        if isinstance(value, Opaque):
            raise UsageError(
                "not-replayable",
                f"{self._case.op} was given a {value.type}, which cannot be made again.",
                "Leave this case out.",
            )
        if (
            isinstance(value, str)
            and value.startswith(("cuda", "xpu", "mps"))
            and value.partition(":")[2].isdigit() | (":" not in value)
        ):
            return self._device  # recorded on a device this replay does not use
        return value

    def _word(self, word: Word) -> Any:
        if word.kind == "device":
            return torch.device(self._device)
        if word.kind == "ellipsis":
            return Ellipsis
        if word.kind == "generator":
            return torch.Generator(device=self._device).manual_seed(0)
        if word.kind in ("dtype", "layout", "memory_format"):
            found = vars(torch).get(word.name)
            if isinstance(found, torch.dtype | torch.layout | torch.memory_format):
                return found
        if word.kind in ("function", "class", "enum"):
            found = named_value(word.kind, word.name)
            if found is not None:
                return found
        raise UsageError(
            "not-replayable",
            f"{self._case.op} was given {word.kind} {word.name}, unknown here.",
            "Leave this case out.",
        )

    def _module(self, spec: ModuleSpec) -> Any:
        for _ in tensors_in(spec):  # it makes its own: what they need is its constructor's matter
            next(self._needs, None)
        return self._built(spec)

    def _built(self, spec: ModuleSpec) -> Any:
        record = record_class(spec)
        if record is not None:
            return record(**{name: self._setting(value) for name, value in spec.settings})
        return rebuilt(spec, self._setting).to(self._device)

    def _setting(self, value: Argument) -> Any:
        """A value inside a module's description: none of the call's own tensors, so no need is spent on it."""
        if isinstance(value, ModuleSpec):
            return self._built(value)
        if isinstance(value, tuple):
            return tuple(self._setting(v) for v in value)
        if isinstance(value, ListOf):
            return [self._setting(v) for v in value.items]
        if isinstance(value, DictOf):
            return {self._setting(k): self._setting(v) for k, v in value.pairs}
        return self._tensor(value, _WEIGHTS) if isinstance(value, TensorSpec) else self.value(value)

    def _tensor(self, spec: TensorSpec, need: Need) -> torch.Tensor:
        dtype = vars(torch).get(spec.dtype)
        if not isinstance(dtype, torch.dtype) or -1 in spec.shape:
            raise UsageError(
                "not-replayable",
                f"{self._case.op} was given {spec}, which cannot be made here.",
                "Leave this case out.",
            )
        if spec.layout != "strided":
            return self._sparse(spec, dtype, need)
        if spec.memory is not None:
            tensor = self._shared(spec, dtype, need)
        else:
            tensor = self._alone(spec, dtype, need)
        if spec.kind == "Parameter":
            return torch.nn.Parameter(tensor, requires_grad=spec.requires_grad)
        return tensor.requires_grad_(spec.requires_grad) if spec.requires_grad else tensor

    def _alone(self, spec: TensorSpec, dtype: torch.dtype, need: Need) -> torch.Tensor:
        if spec.stride is None and need.room <= spec.numel:
            return values(spec, need, self._generator).to(dtype).to(self._device)
        stride = contiguous_stride(spec.shape) if spec.stride is None else spec.stride
        room = torch.zeros(max(spec.span, need.room), dtype=dtype)
        _fill(room.as_strided(spec.shape, stride), values(spec, need, self._generator).to(dtype))
        return room.to(self._device).as_strided(spec.shape, stride)

    def _shared(self, spec: TensorSpec, dtype: torch.dtype, need: Need) -> torch.Tensor:
        assert spec.memory is not None
        stride = contiguous_stride(spec.shape) if spec.stride is None else spec.stride
        room = self._storages.get(spec.memory)
        if room is None:
            length = max(self._spans[spec.memory], need.room)
            room = torch.zeros(length, dtype=dtype, device=self._device)
            self._storages[spec.memory] = room
        elif room.dtype != dtype:
            room = room.view(torch.uint8)[
                : len(room) * room.element_size() // dtype.itemsize * dtype.itemsize
            ].view(dtype)
        tensor = room.as_strided(spec.shape, stride, spec.offset)
        # The first to need something, or the first at all, fills the memory: later ones see what is there.
        if need != _NO_NEED or spec.memory not in self._fits:
            self._fits[spec.memory] = spec
            _fill(tensor, values(spec, need, self._generator).to(dtype).to(self._device))
        return tensor

    def _sparse(self, spec: TensorSpec, dtype: torch.dtype, need: Need) -> torch.Tensor:
        dense = values(replace(spec, layout="strided"), need, self._generator).to(dtype)
        kept = torch.rand(dense.shape, generator=self._generator) < 0.3
        return (dense * kept).to_sparse(layout=getattr(torch, spec.layout)).to(self._device)


def _fill(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy into a view that may meet the same memory twice (expanded dimensions)."""
    for dim, step in enumerate(target.stride()):
        if step == 0 and target.shape[dim] > 1:
            target, source = target.narrow(dim, 0, 1), source.narrow(dim, 0, 1)
    try:
        target.copy_(source)
    except RuntimeError:  # windows that overlap (unfold, as_strided): plane by plane, the last one wins
        if target.dim():
            for t, s in zip(target.unbind(0), source.unbind(0), strict=True):
                _fill(t, s)


def values(spec: TensorSpec, need: Need, generator: torch.Generator) -> torch.Tensor:
    """Contiguous values for a tensor, in a dtype wide enough; what the operator needs comes before what was seen."""
    facts = spec.facts or Facts()
    shape = spec.shape
    if facts.values is not None and len(facts.values) == spec.numel and _still_fit(facts.values, need):
        return torch.tensor(facts.values, dtype=torch.int64).reshape(shape)
    if spec.dtype == "bool" or need.count is not None:
        return _mask(shape, need, facts, generator)
    if need.rows and len(shape) == 2 and shape[0] == len(need.rows):
        return torch.stack([_whole((shape[1],), 0, max(n - 1, 0), generator) for n in need.rows])
    if need.kind in ("rising", "lengths"):
        return _counted(spec, need, generator)
    if need.kind == "signs":
        return torch.randint(0, 2, shape, generator=generator) * 2 - 1
    if not spec.dtype.startswith(("float", "bfloat", "complex")):
        return _integers(spec, need, facts, generator)
    wide = torch.float64 if spec.dtype in ("float64", "complex128") else torch.float32
    if spec.dtype.startswith("complex"):
        return torch.randn(
            shape, generator=generator, dtype=torch.complex128 if wide is torch.float64 else torch.complex64
        )
    if (
        need.kind in ("positive_definite", "triangular", "regular")
        and len(shape) >= 2
        and shape[-1] == shape[-2]
    ):
        return _matrix(shape, need.kind, wide, generator)
    if need.kind == "probabilities" or (need == _NO_NEED and facts.sums_to_one is not None):
        dim = facts.sums_to_one if facts.sums_to_one is not None else min(1, len(shape) - 1)
        return (
            torch.rand(shape, generator=generator, dtype=wide).softmax(dim)
            if shape
            else torch.ones(shape, dtype=wide)
        )
    made = _floats(shape, need, facts, wide, generator)
    if facts.density is not None and facts.density < 1 and need == _NO_NEED:
        made = made.masked_fill(~_mask(shape, _NO_NEED, facts, generator), 0.0)
    return made


def _still_fit(seen: tuple[int, ...], need: Need) -> bool:
    """Whether values that were recorded are those of this size: lengths that sum to it, positions inside it."""
    if need.count is not None or need.rows:
        return need.count is None and max(seen, default=0) < min(need.rows)
    if need.total is None:
        return True
    return sum(seen) == need.total if need.kind == "lengths" else max(seen, default=0) <= need.total


def _integers(spec: TensorSpec, need: Need, facts: Facts, generator: torch.Generator) -> torch.Tensor:
    low, high = need.low, need.high
    if facts.low is not None and facts.high is not None:
        # What was really there, cut to what the operator takes (at another scale the range may have shrunk).
        low = facts.low if low is None else min(max(facts.low, low), high if high is not None else facts.low)
        high = facts.high if high is None else max(min(facts.high, high), low)
    low, high = 0 if low is None else low, 1 if high is None else high
    made = _whole(spec.shape, int(low), int(high), generator)
    return made.sort(dim=-1).values if facts.sorted and spec.shape else made


def _whole(shape: tuple[int, ...], low: int, high: int, generator: torch.Generator) -> torch.Tensor:
    if high - low >= 1 << 62:
        low, high = max(low, -(1 << 60)), min(high, 1 << 60)
    return torch.randint(low, max(low, high) + 1, shape, generator=generator)


def _floats(
    shape: tuple[int, ...], need: Need, facts: Facts, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    low, high = need.low, need.high
    if low is None and facts.low is not None and facts.high is not None:
        low, high = facts.low, facts.high
        if low == -math.inf and math.isfinite(high):  # an additive attention mask
            hidden = torch.rand(shape, generator=generator) < 0.3
            return torch.full(shape, float(high), dtype=dtype).masked_fill(hidden, -math.inf)
        if not (math.isfinite(low) and math.isfinite(high)):
            low = high = None
    if low is not None and high is not None and low >= 0:
        return torch.rand(shape, generator=generator, dtype=dtype) * (high - low) + low
    made = torch.randn(shape, generator=generator, dtype=dtype)
    if low is None or high is None:
        return made
    scale = min(max(abs(low), abs(high)) / 3, 1e30)
    return (made * scale).clamp(low, high)


def _mask(shape: tuple[int, ...], need: Need, facts: Facts, generator: torch.Generator) -> torch.Tensor:
    whole = math.prod(shape)
    count = need.count
    if count is None:
        count = round(whole * (0.5 if facts.density is None else facts.density))
    flat = torch.zeros(whole, dtype=torch.bool)
    flat[torch.randperm(whole, generator=generator)[:count]] = True
    return flat.reshape(shape)


def _counted(spec: TensorSpec, need: Need, generator: torch.Generator) -> torch.Tensor:
    """Rising positions in `total`, or lengths that sum to it; without a total, any rising values."""
    shape, n = spec.shape, spec.numel
    if need.kind == "rising":
        if need.total is None:
            return torch.rand(shape, generator=generator).sort(-1).values if shape else torch.rand(shape)
        rows = torch.randint(0, need.total + 1, shape, generator=generator).sort(-1).values
        rows[..., :1] = 0
        return rows
    if not n:
        return torch.zeros(shape, dtype=torch.int64)
    last = shape[-1] if shape else 1
    each, more = divmod(need.total or 0, last)
    return (
        torch.tensor([each + (i < more) for i in range(last)])
        .expand(shape if shape else (1,))
        .reshape(shape)
        .clone()
    )


def _matrix(
    shape: tuple[int, ...], kind: str, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    made = torch.randn(shape, generator=generator, dtype=dtype)
    size = shape[-1]
    if kind == "positive_definite":
        return made @ made.mT / max(size, 1) + torch.eye(size, dtype=dtype)
    strong = made / math.sqrt(max(size, 1)) + 2 * torch.eye(size, dtype=dtype)
    return strong.tril() if kind == "triangular" else strong
