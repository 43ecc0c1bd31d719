"""The table of formulas, and how one is put into it.

A formula takes what its operator takes, tensors included, and `out=` what the operator gave. It answers with
FLOPs (an int) or with a pair (MACs, FLOPs). Only shapes and dtypes may be read: the tensors can be empty.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from luxmeter.errors import UsageError, suggestion

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


class Formula(NamedTuple):
    """What computes the cost of a call, and how it is asked."""

    compute: Callable[..., Any]
    accepts: frozenset[str] | None  # None: any keyword
    describe: bool  # a user's formula is given descriptions; ours read the tensors themselves


_table: dict[str, Formula] = {}
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
            _table[name] = Formula(formula, _accepted(formula), describe=True)
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


def formula_for(*names: str) -> Formula | None:
    """The formula under the first of these names that has one."""
    for name in names:
        found = _table.get(name)
        if found is not None:
            return found
    return None


_builtin: dict[str, Formula] = {}


def formula(*names: str) -> Callable[[F], F]:
    """Register one of Luxmeter's own formulas; a bare name is in the aten namespace."""

    def register(compute: F) -> F:
        for name in names:
            full = name if "::" in name else f"aten::{name}"
            made = Formula(compute, _accepted(compute), describe=False)
            if _table.get(full) is _builtin.get(full):  # no formula of a user's is there
                _table[full] = made
            _builtin[full] = made
        return compute

    return register


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
