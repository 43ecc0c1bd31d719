"""What one call costs: the formula of its operator is found and asked; bytes are those of its tensors."""

from __future__ import annotations

from typing import Any

from luxmeter.errors import UsageError
from luxmeter.flops import attention, convolution, elementwise, linear_algebra, matmul, recurrent
from luxmeter.flops.formulas import Cost, Formula, TensorLike, formula_for
from luxmeter.nested import found_in

FILES = (attention, convolution, elementwise, linear_algebra, matmul, recurrent)  # register their formulas


def cost_of(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Cost | None:
    """The cost of one call, or None if nobody gave a formula for this operator.

    `op` is an operator of `torch.ops` or a name like `aten::mm`.
    """
    name = op if isinstance(op, str) else op.name()
    base = name.partition(".")[0]
    found = formula_for(name, base, base.removesuffix("_"))
    if found is not None:
        return _ask(found, name, args, kwargs, out)
    return elementwise.general_cost(op, base.removesuffix("_"), args, kwargs, out)


def _ask(found: Formula, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Cost:
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
