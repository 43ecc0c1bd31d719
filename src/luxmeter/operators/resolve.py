"""An operator's name -> the callable it names here and now, and its arguments by name.

An operators file may come from elsewhere, and what it names is called. So names are taken from an allow-list (stated
in docs/format.md): operators of the dispatcher that take or give tensors, torch.nn, and torch's public functions on
tensors; no other name that begins with an underscore, and nothing that loads, saves, imports, compiles, spawns or opens.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch

from luxmeter.errors import UsageError, suggestion
from luxmeter.operators.case import Case
from luxmeter.settings import globs
from luxmeter.signature import Argument, ListOf, ModuleSpec, Signature, TensorSpec

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
# Of what takes or gives tensors: these read or write files, run code, share memory, or change the process.
_FORBIDDEN = re.compile(
    r"load|save|compile|export|from_file|from_numpy|frombuffer|import_.*|parse_.*|fork|wait|set_.*|manual_seed|seed|"
    r"initial_seed|register_.*|get_.*|apply_|map_|map2_|use_deterministic_algorithms|__reduce.*__|__setstate__|"
    r"__getattribute__|__setattr__|__delattr__|__class__|__init.*|__new__|vmap|while_loop|init_num_threads|"
    r".*data_ptr|module_load|share_memory_|.*hook.*|clear_autocast_cache|autocast_.*|is_.*enabled|typename"
)

# Public functions that no operator of the dispatcher stands for by name.
_COMPOSED = {
    "torch": {"tensor", "as_tensor", "asarray", "lobpcg", "lu", "pca_lowrank", "svd_lowrank", "unravel_index", "saddmm",
              "spmm", "dsmm", "hsmm", *torch.functional.__all__},
    "torch.functional": set(torch.functional.__all__),
    "torch.signal.windows": set(torch.signal.windows.__all__),
    "torch.nn.functional": {"logsigmoid"},
    "torch.sparse": {"spdiags", "spsolve", "to_sparse_semi_structured"},
}  # fmt: skip
# Modules all of whose public functions take tensors, but for these.
_OWN = {"torch.nn.functional": {"assert_int_or_pair"}, "torch.nn.init": {"calculate_gain"}}
_HOMES = {
    "torch.linalg": "linalg_",
    "torch.fft": "fft_",
    "torch.special": "special_",
    "torch.sparse": "sparse_",
}
# Python's operators on tensors: + - * / and the like, reflected and in place; comparing, indexing, converting.
_SIGNS = {
    f"__{prefix}{name}__"
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift", "div")
    for prefix in ("", "r", "i")
} | {
    f"__{name}__"
    for name in ("eq", "ne", "lt", "le", "gt", "ge", "invert", "neg", "pos", "abs", "getitem", "setitem", "contains", "bool",
                 "nonzero", "int", "long", "float", "complex", "index")
}  # fmt: skip
_SPAWNS = {"DataParallel"}  # of torch.nn

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
    return Case(
        op, arrange(case.signature), case.count, case.total_ns, case.where, case.source, lines=case.lines
    )


def arguments_of(case: Case) -> dict[str, Argument]:
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
    if "::" in op or op.startswith(("aten.", "prims.")):
        return _dispatched(op)
    space, _, name = op.rpartition(".")
    if space in _NAMESPACES:
        value = inspect.getattr_static(_NAMESPACES[space], name, None)
        if value is None or inspect.ismodule(value) or isinstance(value, type):
            return None
        if not _on_tensors(space, name, value):
            return None
        if inspect.isgetsetdescriptor(value) or isinstance(value, property):
            return functools.partial(_read, name)
        found = getattr(_NAMESPACES[space], name)
        return found if callable(found) else None
    kind = _module_class(op)
    return None if kind is None else _call_module


def _on_tensors(space: str, name: str, value: Any) -> bool:
    """Whether a name of torch's is on the allow-list: by what the dispatcher declares, or by where it stands."""
    if _FORBIDDEN.fullmatch(name):
        return False
    method = space in ("Tensor", "torch.Tensor")
    if name.startswith("_"):
        return name in _SIGNS if method else space == "torch" and name.startswith("_foreach_")
    if method or name in _COMPOSED.get(space, ()):
        return True
    if space in _OWN and getattr(value, "__module__", None) == space:
        return name not in _OWN[space]
    home = _HOMES.get(space, "")
    return any(f"aten::{known}" in _kernels() for known in (name, home + name, f"_{home}{name}"))


@functools.lru_cache(maxsize=1)
def _kernels() -> frozenset[str]:
    """The operators of aten and prims, and of libraries that the user names, whose declaration takes or gives tensors."""
    spaces = tuple(f"{space}::" for space in (*_KERNELS, *_libraries()))
    names = {full.partition(".")[0] for full in torch._C._dispatch_get_all_op_names()}
    return frozenset(
        name
        for name in names
        if name.startswith(spaces)
        and not _FORBIDDEN_KERNELS.fullmatch(name.partition("::")[2])
        and any(map(_has_tensors, torch._C._jit_get_schemas_for_operator(name)))
    )


def _has_tensors(schema: Any) -> bool:
    return any("Tensor" in str(value.type) for value in (*schema.arguments, *schema.returns))


def _libraries() -> list[str]:
    """What the user's own settings or environment trust: the settings of a lab may come from elsewhere."""
    named = globs.of_user("operators.libraries") or []
    return [str(name) for name in ([named] if isinstance(named, str) else named)]


def _dispatched(op: str) -> Callable[..., Any] | None:
    """aten.add.Tensor, aten::add.Tensor or aten::add, through torch.ops."""
    space, name, *overload = re.split(r"::|\.", op)
    # Other libraries' kernels may do anything, and some of aten's own read and write files.
    if f"{space}::{name}" not in _kernels() or len(overload) > 1:
        return None
    packet = getattr(getattr(torch.ops, space), name)
    if not overload:
        return packet  # type: ignore[no-any-return]
    found = getattr(packet, overload[0]) if overload[0] in packet.overloads() else None
    return found if found is not None and _has_tensors(found._schema) else None


def named_value(kind: str, name: str) -> Any:
    """The function, class or member of an enum that `module:path` names, of those an argument may be; else None.

    It is looked for among torch's public ones that are loaded. No module is ever imported because a file names it.
    """
    module, _, path = name.partition(":")
    short = path.rpartition(".")[2]
    if kind == "function":
        if module in _NAMESPACES and path == short:
            return _find(f"{module}.{path}")
        found = (_find(f"{space}.{short}") for space in _NAMESPACES)
        return next((f for f in found if f is not None and _qualified(f) == name), None)
    if kind == "class":
        known = (_module_class(f"torch.nn.{short}"), torch.Tensor, torch.nn.Parameter, vars(torch).get(short))
        classes = (c for c in known if isinstance(c, type) and (c in known[:3] or type(c) is _TENSOR_TYPES))
        return next((c for c in classes if _qualified(c) == name), None)
    public = module.split(".")[0] == "torch" and not any(
        p.startswith("_") for p in (*module.split("."), short)
    )
    owner = (
        vars(sys.modules[module]).get(path.rpartition(".")[0]) if public and module in sys.modules else None
    )
    return owner.__members__.get(short) if isinstance(owner, type) and issubclass(owner, enum.Enum) else None


_TENSOR_TYPES = type(torch.FloatTensor)


def _qualified(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', '')}"


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
    if not space.startswith("torch.nn.") or "._" in spec.name or space not in sys.modules:
        return None
    found = vars(sys.modules[space]).get(name)
    return found if isinstance(found, type) and dataclasses.is_dataclass(found) else None


def _module_class(name: str) -> type[torch.nn.Module] | None:
    space, _, short = name.rpartition(".")
    kind = vars(torch.nn).get(short) if space == "torch.nn" and short not in _SPAWNS else None
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
        if f"aten::{name}" in _kernels():
            packet = getattr(torch.ops.aten, name)
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
