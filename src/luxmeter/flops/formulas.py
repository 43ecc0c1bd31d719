"""The table of formulas, and how an operator finds its own.

A formula takes what its operator takes, tensors included, and `out=` what the operator gave. It answers with
FLOPs (an int) or with a pair (MACs, FLOPs). Only shapes and dtypes may be read: the tensors can be empty.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from luxmeter.errors import UsageError, suggestion
from luxmeter.nested import found_in

F = TypeVar("F", bound=Callable[..., Any])


class Cost(NamedTuple):
    """Multiply-accumulates of products, and all floating-point operations (2 a MAC, and element-wise work)."""

    macs: int = 0
    flops: int = 0


def products(macs: int, extra: int = 0) -> Cost:
    """The cost of `macs` multiply-accumulates and `extra` element-wise operations beside them."""
    return Cost(macs, 2 * macs + extra)


class TensorLike(tuple[int, ...]):
    """A tensor described: its shape as a tuple, with the `shape`, `dtype`, `dim()`, `size()` and `numel()` of one."""

    dtype: Any

    def __new__(cls, shape: Iterable[int], dtype: Any = None) -> TensorLike:
        described = super().__new__(cls, tuple(int(n) for n in shape))
        described.dtype = dtype
        return described

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self)

    @property
    def ndim(self) -> int:
        return len(self)

    def dim(self) -> int:
        return len(self)

    def size(self, dim: int | None = None) -> Any:
        return tuple(self) if dim is None else self[dim]

    def numel(self) -> int:
        total = 1
        for n in self:
            total *= n
        return total


class _Formula(NamedTuple):
    compute: Callable[..., Any]
    accepts: frozenset[str] | None  # None: any keyword
    describe: bool  # a user's formula is given descriptions; ours read the tensors themselves


_table: dict[str, _Formula] = {}
_version = 0


def flops_of(op: Any) -> Callable[[F], F]:
    """Register the decorated formula for `op`: an operator of `torch.ops`, a custom op, or its name.

    The formula is called with the operator's own arguments; each tensor is given as a description that is its
    shape (a tuple) and has `.shape`, `.dtype` and `.numel()`. If it names an `out` (or `out_shape`) argument it
    also gets the result. It returns FLOPs, or a pair (MACs, FLOPs). A later formula replaces an earlier one.
    """
    names = _names_of(op)

    def register(formula: F) -> F:
        global _version
        if not callable(formula):
            raise UsageError(
                "formula-not-callable",
                f"flops_of({op!r}) was given {formula!r} as its formula.",
                "Decorate a function that takes the operator's arguments and returns FLOPs.",
            )
        for name in names:
            _table[name] = _Formula(formula, _accepted(formula), describe=True)
        _version += 1
        return formula

    return register


def forget(op: Any) -> None:
    """Take a user's formula for `op` out again; what came with Luxmeter under that name is back."""
    global _version
    for name in _names_of(op):
        _table.pop(name, None)
        if name in _builtin:
            _table[name] = _builtin[name]
    _version += 1


def version() -> int:
    """Grows whenever a formula changes: results kept for reuse are stale when it does."""
    return _version


_builtin: dict[str, _Formula] = {}


def formula(*names: str) -> Callable[[F], F]:
    """Register one of Luxmeter's own formulas; a bare name is in the aten namespace."""

    def register(compute: F) -> F:
        for name in names:
            full = name if "::" in name else f"aten::{name}"
            _table[full] = _builtin[full] = _Formula(compute, _accepted(compute), describe=False)
        return compute

    return register


def cost_of(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Cost | None:
    """The cost of one call, or None if nobody gave a formula for this operator.

    `op` is an operator of `torch.ops` or a name like `aten::mm`.
    """
    from luxmeter.flops import elementwise

    _load_builtin()
    name = op if isinstance(op, str) else op.name()
    base = name.partition(".")[0]
    found = _table.get(name) or _table.get(base) or _table.get(base.removesuffix("_"))
    if found is not None:
        return _ask(found, name, args, kwargs, out)
    return elementwise.general_cost(op, base.removesuffix("_"), args, kwargs, out)


def _ask(found: _Formula, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Cost:
    given = dict(kwargs)
    if found.describe:
        args, given, out = _described(args), _described(given), _described(out)
    if found.accepts is None or "out" in found.accepts:
        given["out"] = out
    elif "out_shape" in found.accepts:  # a formula written for torch's own counter
        given["out_shape"] = out
    if found.accepts is not None:
        given = {key: value for key, value in given.items() if key in found.accepts}
    answer = found.compute(*args, **given)
    if isinstance(answer, Cost):
        if answer.macs and getattr(getattr(_first(out), "dtype", None), "is_complex", False):
            return Cost(4 * answer.macs, 4 * answer.flops)  # a complex product is four real ones
        return answer
    if isinstance(answer, tuple) and len(answer) == 2 and all(_is_count(n) for n in answer):
        return Cost(int(answer[0]), int(answer[1]))
    if _is_count(answer):
        return Cost(0, int(answer))
    raise UsageError(
        "formula-bad-answer",
        f"The formula for {name} answered {answer!r}.",
        "Return FLOPs as a number that is not negative, or a pair (MACs, FLOPs).",
    )


def _first(out: Any) -> Any:
    return out[0] if isinstance(out, list | tuple) and not isinstance(out, TensorLike) and out else out


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _described(value: Any) -> Any:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return TensorLike(value.shape, value.dtype)
    if isinstance(value, dict):
        return {key: _described(item) for key, item in value.items()}
    if isinstance(value, list | tuple) and not isinstance(value, TensorLike):
        return type(value)(_described(item) for item in value) if type(value) in (list, tuple) else value
    return value


def _accepted(compute: Callable[..., Any]) -> frozenset[str] | None:
    try:
        parameters = inspect.signature(compute).parameters.values()
    except (TypeError, ValueError):
        return frozenset()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD))


def _names_of(op: Any) -> tuple[str, ...]:
    """The names under which calls of `op` are seen: `space::name` or `space::name.overload`."""
    if isinstance(op, str):
        dotted = op.removeprefix("torch.ops.")
        name = dotted if "::" in dotted else dotted.replace(".", "::", 1)
        if "::" in name and all(name.split("::", 1)):
            return (name.removesuffix(".default"),)
    elif hasattr(op, "_opoverload"):  # torch.library.custom_op
        return (str(op._opoverload.name()),)
    elif hasattr(op, "overloads") and hasattr(op, "_qualified_op_name"):  # torch.ops.space.name
        return (str(op._qualified_op_name),)
    elif hasattr(op, "_schema") and callable(getattr(op, "name", None)):  # torch.ops.space.name.overload
        return (str(op.name()).removesuffix(".default"),)
    elif hasattr(op, "name") and hasattr(op, "dispatch"):  # a higher order operator
        name = op.name() if callable(op.name) else op.name
        return (f"higher_order::{name}",)
    near = suggestion(op, _table) if isinstance(op, str) else ""
    raise UsageError(
        "not-an-operator",
        f"flops_of was given {op!r}, which is no operator.",
        near
        or "Give torch.ops.space.name, what torch.library.custom_op returned, or a text like 'space::name'.",
    )


def moved_bytes(args: Any, kwargs: Any, out: Any) -> int:
    """Bytes an operator reads and writes at least: every tensor it takes and gives, once."""
    found = found_in((args, kwargs, out), _is_tensor)
    return sum(_size_bytes(t) for one in found for t in (one.unbind() if _is_nested(one) else (one,)))


def _is_tensor(value: Any) -> bool:
    """Of any framework, or its description."""
    return _is_nested(value) or (hasattr(value, "shape") and hasattr(value, "dtype"))


def _is_nested(value: Any) -> bool:
    return bool(getattr(value, "is_nested", False))


def _size_bytes(tensor: Any) -> int:
    size = getattr(tensor, "element_size", None)
    return int(tensor.numel() * (size() if size is not None else getattr(tensor.dtype, "itemsize", 4)))


_loaded = False


def _load_builtin() -> None:
    """Import the formula files: they register themselves, without taking a user's place."""
    global _loaded
    if _loaded:
        return
    _loaded = True
    own = dict(_table)
    from luxmeter.flops import attention, convolution, elementwise, linear_algebra, matmul, recurrent

    del attention, convolution, elementwise, linear_algebra, matmul, recurrent
    _table.update(own)
