"""An operator's name -> the callable it names here and now, and its arguments by name.

Only torch's own operators can be named: a file from elsewhere must not be able to call `torch.load` or anything
outside torch.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch

from luxmeter.errors import UsageError, suggestion
from luxmeter.operators.case import Case
from luxmeter.signature import Described, ListOf, ModuleSpec, Signature, TensorSpec

_NAMESPACES: dict[str, Any] = {
    "torch": torch,
    "torch.functional": torch.functional,
    "torch.nn.functional": torch.nn.functional,
    "torch.linalg": torch.linalg,
    "torch.fft": torch.fft,
    "torch.special": torch.special,
    "torch.sparse": torch.sparse,
    "torch.nn.init": torch.nn.init,
    "torch.signal.windows": torch.signal.windows,
    "Tensor": torch.Tensor,
    "torch.Tensor": torch.Tensor,
}
# These read or write files, run code, or change the process: no operator file may ask for them.
_FORBIDDEN = re.compile(
    r"load|save|compile|export|from_file|from_numpy|frombuffer|import_.*|parse_.*|fork|wait|set_.*|manual_seed|seed|"
    r"initial_seed|register_.*|get_.*|apply_|map_|map2_|use_deterministic_algorithms|__reduce.*__|__setstate__|"
    r"__getattribute__|__setattr__|__delattr__|__class__|__init.*|__new__|vmap|while_loop|init_num_threads|"
    r"data_ptr|share_memory_|.*hook.*|clear_autocast_cache|autocast_.*|is_.*enabled|typename"
)

_KERNELS = ("aten", "prims")
_FORBIDDEN_KERNELS = re.compile(
    r"load|save|from_file|set_|_?resize_output_?|set_data|warn|pickle|eval|device"
)


def callable_of(op: str) -> Callable[..., Any]:
    """The callable named `op`: `aten.add.Tensor`, `torch.nn.functional.linear`, `Tensor.__add__`, `torch.fft.rfft`.

    A module's name gives a function that takes the module first.
    """
    found = _find(op)
    if found is None:
        raise UsageError(
            "operator-gone",
            f"This torch ({torch.__version__}) has no operator called {op!r}.",
            _near(op) or "It may be of another version, or be no operator of torch.",
        )
    return found


def is_operator(op: str) -> bool:
    """Whether a recorded name is an operator that can be replayed (an optimizer's step, `Tensor.backward` are not)."""
    return plain_name(op) not in _NO_OPERATORS and _find(op) is not None


_NO_OPERATORS = {"backward", "requires_grad", "numpy", "tolist", "storage", "untyped_storage", "retain_grad", "shape",
                 "device", "dtype", "grad", "grad_fn", "data", "layout", "is_leaf", "is_cpu", "is_cuda", "ndim", "dim",
                 "size", "stride", "numel", "repr", "len", "format", "hash", "iter", "array", "is_contiguous",
                 "element_size", "itemsize", "nbytes", "storage_offset", "is_floating_point", "is_complex"}  # fmt: skip


def adapted(case: Case) -> Case:
    """The case under the name and with the arguments that this torch wants, where they have changed."""
    change = _CHANGED.get(case.op)
    if change is None or _find(case.op) is not None:
        return case
    op, arrange = change
    return Case(op, arrange(case.signature), case.count, case.total_ns, case.where, case.source)


def arguments_of(case: Case) -> dict[str, Described]:
    """The arguments by the names the operator's declaration gives them; extra ones by their position."""
    named = tuple("self" if name == "input" else name for name, _ in case.signature.kwargs)
    names = _names(case.op, len(case.signature.args), named)
    given = {names[i] if i < len(names) else f"#{i}": value for i, value in enumerate(case.signature.args)}
    for name, value in case.signature.kwargs:
        given["self" if name == "input" and "self" in names else name] = value
    return given


def parameter_names(op: str, count: int, named: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The names of an operator's parameters, of the declaration that takes `count` by position and these by name."""
    found = _names(op, count, tuple("self" if name == "input" else name for name in named))
    return found or _names(op, count, named)


def plain_name(op: str) -> str:
    """`add` for aten.add.Tensor, Tensor.add_, torch.add and Tensor.__add__: what the operator does."""
    if op.startswith(("aten.", "aten::")):
        name = re.split(r"\.|::", op)[1]
    else:
        name = op.rpartition(".")[2]
    if name.startswith("__") and name.endswith("__"):
        return name.strip("_").removeprefix("r") if name in _REFLECTED else name.strip("_")
    return name[:-1] if name.endswith("_") else name


_REFLECTED = {
    "__radd__",
    "__rsub__",
    "__rmul__",
    "__rdiv__",
    "__rtruediv__",
    "__rfloordiv__",
    "__rpow__",
    "__rmod__",
}


@functools.lru_cache(maxsize=4096)
def _find(op: str) -> Callable[..., Any] | None:
    if "::" in op or op.startswith("aten."):
        return _dispatched(op)
    space, _, name = op.rpartition(".")
    if space in _NAMESPACES and not _FORBIDDEN.fullmatch(name) and op != "torch.cond":
        value = inspect.getattr_static(_NAMESPACES[space], name, None)
        if value is None or inspect.ismodule(value) or isinstance(value, type):
            return None
        if inspect.isgetsetdescriptor(value) or isinstance(value, property):
            return functools.partial(_read, name)
        found = getattr(_NAMESPACES[space], name)
        return found if callable(found) else None
    kind = _module_class(op)
    return None if kind is None else _call_module


def _dispatched(op: str) -> Callable[..., Any] | None:
    """aten.add.Tensor, aten::add.Tensor or aten::add, through torch.ops."""
    space, name, *overload = re.split(r"::|\.", op)
    # Other libraries' kernels may do anything, and some of aten's own read and write files.
    if space not in _KERNELS or not name.isidentifier() or _FORBIDDEN_KERNELS.fullmatch(name):
        return None
    packet = getattr(getattr(torch.ops, space), name, None)
    if packet is None:
        return None
    if not overload:
        return packet  # type: ignore[no-any-return]
    return getattr(packet, overload[0], None)


def module_class(spec: ModuleSpec) -> type[torch.nn.Module]:
    """The class a module's description names; only those of torch.nn."""
    kind = _module_class(spec.name)
    if kind is None:
        raise UsageError(
            "module-not-replayable",
            f"{spec.name} is no module of torch.nn and cannot be built from its settings.",
            "Its parts are operators of their own: replay those.",
        )
    return kind


def record_class(spec: ModuleSpec) -> type[Any] | None:
    """The dataclass of torch's own that a description names; None if it is no such thing."""
    space, _, name = spec.name.rpartition(".")
    if not space.startswith("torch.nn."):
        return None
    found = getattr(sys.modules.get(space), name, None)
    return found if isinstance(found, type) and dataclasses.is_dataclass(found) else None


def _module_class(name: str) -> type[torch.nn.Module] | None:
    space, _, short = name.rpartition(".")
    kind = getattr(torch.nn, short, None) if space == "torch.nn" else None
    return kind if isinstance(kind, type) and issubclass(kind, torch.nn.Module) else None


def _call_module(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    return module(*args, **kwargs)


def _read(name: str, tensor: torch.Tensor, *_: Any) -> Any:
    return getattr(tensor, name)


@functools.lru_cache(maxsize=4096)
def _names(op: str, count: int, named: tuple[str, ...]) -> tuple[str, ...]:
    found = _find(op)
    schema = getattr(found, "_schema", None)
    if schema is not None:
        return tuple(a.name for a in schema.arguments)
    space = op.rpartition(".")[0]
    if space in ("torch.nn.functional", "torch.functional", "torch.nn.init") and found is not None:
        try:
            return tuple(inspect.signature(found).parameters)
        except (TypeError, ValueError):
            pass  # some of torch.nn.functional are builtins: their declaration is that of the operator
    if _module_class(op) is not None:
        return ("module", "input")
    name = plain_name(op)
    return _declared(f"aten::{name}", count, named) or _declared(f"aten::{_home(space)}{name}", count, named)


def _home(space: str) -> str:
    last = space.rpartition(".")[2]
    return f"{last}_" if last in ("linalg", "fft", "special") else ""


def _declared(name: str, count: int, named: tuple[str, ...]) -> tuple[str, ...]:
    """Argument names of the first declaration that takes so many by position and these by name."""
    for schema in torch._C._jit_get_schemas_for_operator(name):
        names = tuple(a.name for a in schema.arguments)
        if (
            len(names) >= count
            and set(named) <= {*names[count:], "out"}
            and not any(a.is_out for a in schema.arguments)
        ):
            return names
    return ()


def _near(op: str) -> str:
    space, _, name = op.rpartition(".")
    if op.startswith(("aten.", "aten::")):
        name = re.split(r"\.|::", op)[1]
        packet = getattr(torch.ops.aten, name, None)
        if packet is not None:
            return f"Its overloads are: {', '.join(packet.overloads())}."
        return suggestion(
            name, {n.removeprefix("aten::").split(".")[0] for n in torch._C._dispatch_get_all_op_names()}
        )
    return suggestion(name, dir(_NAMESPACES[space])) if space in _NAMESPACES else ""


def _scales_apart(signature: Signature) -> Signature:
    """(grad, output size or None, ..., [scale_h, scale_w] or None) -> (grad, output size, ..., scale_h, scale_w)."""
    grad, size, *rest, scales = signature.args
    if size is None and isinstance(grad, TensorSpec):
        size = ListOf(grad.shape[2:])
    both = scales.items if isinstance(scales, ListOf) else (None, None)
    return Signature((grad, size, *rest, *both), signature.kwargs)


# Operators that old logs hold and newer versions do not: the name today, and how the arguments lie there.
_CHANGED: Mapping[str, tuple[str, Callable[[Signature], Signature]]] = {
    "aten.sum.SymInt": ("aten.sum.dim_IntList", lambda s: s),
    "aten.im2col_backward.default": ("aten.col2im.default", lambda s: s),
    "aten.col2im_backward.default": ("aten.im2col.default", lambda s: s),
    "aten.upsample_nearest2d_backward.vec": ("aten.upsample_nearest2d_backward.default", _scales_apart),
    "aten.upsample_bilinear2d_backward.vec": ("aten.upsample_bilinear2d_backward.default", _scales_apart),
    "aten.upsample_bicubic2d_backward.vec": ("aten.upsample_bicubic2d_backward.default", _scales_apart),
}
