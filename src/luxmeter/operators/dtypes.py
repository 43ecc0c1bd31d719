"""The same case in another floating-point dtype."""

from __future__ import annotations

import re
from dataclasses import replace

from luxmeter.errors import UsageError, suggestion
from luxmeter.operators.case import Case
from luxmeter.operators.resolve import arguments_of, plain_name
from luxmeter.signature import (
    DTYPE_SPELLINGS,
    Argument,
    DictOf,
    Facts,
    ListOf,
    ModuleSpec,
    Signature,
    TensorSpec,
    Word,
    dtype_named,
)

_FLOATS = ("float64", "float32", "float16", "bfloat16")
# Their third argument asks for a float32 result of float16 input, and nothing else.
_HALF_TO_FLOAT = ("aten._softmax.default", "aten._log_softmax.default")
_COMPLEX = {"float64": "complex128", "float32": "complex64", "float16": "complex32", "bfloat16": "complex64"}


def float_dtype(spelling: str) -> str:
    """torch's name of a floating-point dtype, however it is written; `recorded` stays."""
    name = dtype_named(spelling)
    if name not in (*_FLOATS, "recorded"):
        known = sorted({*_FLOATS, *(short for short, long in DTYPE_SPELLINGS.items() if long in _FLOATS)})
        raise UsageError(
            "unknown-dtype",
            f"{spelling!r} is no floating-point dtype to run operators in.",
            suggestion(name, known) or f"Known: {', '.join(known)}, recorded.",
        )
    return name


def in_dtype(case: Case, dtype: str) -> Case:
    """The case with every floating-point input in `dtype` (fp32, bf16, ...), integers and masks as they are.

    Complex inputs follow; arguments that name a floating-point dtype do, too. `recorded` changes nothing.
    """
    name = float_dtype(dtype)
    if name == "recorded":
        return case
    args = tuple(_value(v, name) for v in case.signature.args)
    if case.op in _HALF_TO_FLOAT and name != "float16" and len(args) == 3:
        args = (*args[:2], False)
    kwargs = tuple((k, _value(v, name)) for k, v in case.signature.kwargs)
    return replace(case, signature=Signature(args, kwargs, case.signature.ranges))


# What a normalization keeps beside its input: weights, and statistics that are running or were saved for backward.
_BESIDE = (
    "weight",
    "bias",
    "running_mean",
    "running_var",
    "save_mean",
    "save_var",
    "save_invstd",
    "mean",
    "rstd",
)
_NORMALIZES = re.compile(r"(batch|layer|group|instance)_norm")


def for_cpu(case: Case) -> Case:
    """The case as a CPU takes it: a GPU's normalization of float16 has float32 statistics beside float16 weights, a CPU's
    has both in float32 or both in float16. The statistics stay float32, the weights follow.
    """
    if not _NORMALIZES.search(plain_name(case.op)):
        return case
    beside = {
        id(v): v for name, v in arguments_of(case).items() if name in _BESIDE and isinstance(v, TensorSpec)
    }
    if len({v.dtype for v in beside.values()}) < 2 or not all(
        v.dtype in _BESIDE_FLOAT32 for v in beside.values()
    ):
        return case

    def wide(value: Argument) -> Argument:
        return replace(value, dtype="float32") if id(value) in beside else value

    args = tuple(wide(v) for v in case.signature.args)
    kwargs = tuple((k, wide(v)) for k, v in case.signature.kwargs)
    return replace(case, signature=replace(case.signature, args=args, kwargs=kwargs))


_BESIDE_FLOAT32 = ("float32", "float16", "bfloat16")


def _value(value: Argument, dtype: str) -> Argument:
    if isinstance(value, TensorSpec):
        return _tensor(value, dtype)
    if isinstance(value, Word) and value.kind == "dtype":
        return Word("dtype", _renamed(value.name, dtype))
    if isinstance(value, tuple):
        return tuple(_value(v, dtype) for v in value)
    if isinstance(value, ListOf):
        return ListOf(tuple(_value(v, dtype) for v in value.items))
    if isinstance(value, DictOf):
        return DictOf(tuple((k, _value(v, dtype)) for k, v in value.pairs))
    if isinstance(value, ModuleSpec):
        settings = ((k, _value(v, dtype) if k == "dtype" else v) for k, v in value.settings)
        tensors = ((k, _value(t, dtype)) for k, t in value.tensors)
        return replace(value, settings=tuple(settings), tensors=tuple(tensors))
    return value


def _tensor(t: TensorSpec, dtype: str) -> TensorSpec:
    name = _renamed(t.dtype, dtype)
    if name == t.dtype:
        return t
    facts = t.facts
    if name == "float16" and facts is not None and facts.high is not None and facts.low is not None:
        facts = Facts(
            max(facts.low, -6e4), min(facts.high, 6e4), facts.density, facts.sorted, facts.sums_to_one
        )
    return replace(t, dtype=name, facts=facts)


def _renamed(name: str, dtype: str) -> str:
    if name.startswith(("float", "bfloat")):
        return dtype
    return _COMPLEX[dtype] if name.startswith("complex") else name
