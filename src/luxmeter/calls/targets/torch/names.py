"""Names of torch callables as users write them, and which of them are left alone and why."""

from __future__ import annotations

import contextlib
import sys
from types import BuiltinFunctionType, FunctionType
from typing import Any

# What Python calls for an operator, and what stands in the user's code.
_BINARY = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
    "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>", "div": "/",
}  # fmt: skip
LABELS = {
    **{f"Tensor.__{name}__": sign for name, sign in _BINARY.items()},
    **{f"Tensor.__r{name}__": f"{sign} (reflected)" for name, sign in _BINARY.items()},
    **{f"Tensor.__i{name}__": f"{sign}=" for name, sign in _BINARY.items()},
    "Tensor.__eq__": "==",
    "Tensor.__ne__": "!=",
    "Tensor.__lt__": "<",
    "Tensor.__le__": "<=",
    "Tensor.__gt__": ">",
    "Tensor.__ge__": ">=",
    "Tensor.__invert__": "~",
    "Tensor.__neg__": "- (unary)",
    "Tensor.__pos__": "+ (unary)",
    "Tensor.__abs__": "abs()",
    "Tensor.__getitem__": "[]",
    "Tensor.__setitem__": "[] =",
    "Tensor.__delitem__": "del []",
    "Tensor.__contains__": "in",
    "Tensor.__iter__": "iter()",
    "Tensor.__len__": "len()",
    "Tensor.__bool__": "bool()",
    "Tensor.__int__": "int()",
    "Tensor.__long__": "int()",
    "Tensor.__float__": "float()",
    "Tensor.__complex__": "complex()",
    "Tensor.__index__": "index()",
    "Tensor.__repr__": "repr()",
    "Tensor.__format__": "format()",
}

SWITCH = "asks for or sets a switch, does no work on tensors"
CONTEXT = "makes a context manager, does no work of its own"
PLUMBING = "part of torch's own dispatch: timing it would count calls twice"
SYMBOLIC = "works on symbolic sizes while a program is compiled"
SCRIPTING = "part of the TorchScript compiler"
OBJECT = "Python asks every object for it: too frequent, and no work on tensors"
REMOVED = "removed from torch: only raises an error"
OBJECT_CALL = "an object that can be called, not a function"
CLASS = "a class: what its instances do is timed where it is called"

_SWITCHES = (
    "is_", "are_", "get_", "set_", "can_", "has_", "supports_", "use_", "autocast_", "clear_", "init_num", "prepare_", "profiler_",
    "compiled_with", "classproperty", "noop_", "register_", "typename", "breakpoint",
)  # fmt: skip
_SCRIPTING = ("parse_", "import_ir", "merge_type", "unify_type", "fork", "wait")
_PLUMBING_MODULES = (
    "torch.overrides",
    "torch._jit_internal",
    "torch._utils",
    "torch._utils_internal",
    "torch._C._functorch",
)
_REMOVED = {"eig", "symeig", "lstsq", "solve", "matrix_rank", "reinforce"}
_HELPER_CODE = contextlib.contextmanager(lambda: iter(())).__code__

# Dunders of Tensor that every object has, or that must not be touched: construction, attribute access, protocol hooks.
_UNTOUCHED_DUNDERS = {
    "__class__", "__delattr__", "__dir__", "__getattribute__", "__getstate__", "__hash__", "__init__", "__init_subclass__", "__new__",
    "__reduce__", "__setattr__", "__sizeof__", "__str__", "__subclasshook__", "__torch_dispatch__", "__torch_function__",
    "__setstate__", "__dlpack_c_exchange_api__",
}  # fmt: skip


def is_function(value: Any) -> bool:
    """A Python function or a builtin: by exact type, because lazy objects in torch answer isinstance with a warning."""
    return type(value) in (FunctionType, BuiltinFunctionType)


def belongs_to_torch(function: Any) -> bool:
    """Not a helper that a namespace merely imported, such as contextlib.contextmanager."""
    module = getattr(function, "__module__", None)
    return module is None or module == "torch" or module.startswith("torch.")


def why_not(name: str, function: Any, *, namespace: str, overridable: bool) -> str:
    """The reason to leave a public torch function alone; empty when it is to be timed."""
    if name in _REMOVED and namespace == "torch":
        return REMOVED
    if name.startswith("sym_"):
        return SYMBOLIC
    if overridable:
        return ""
    module = getattr(function, "__module__", None) or ""
    if module in _PLUMBING_MODULES:
        return PLUMBING
    if getattr(function, "__code__", None) is _HELPER_CODE:
        return CONTEXT
    if name.startswith(_SCRIPTING):
        return SCRIPTING
    if name.startswith(_SWITCHES[:1] if namespace.startswith("torch.nn.utils") else _SWITCHES):
        return SWITCH
    return ""


def why_not_method(name: str) -> str:
    """The reason to leave a method of Tensor alone; empty when it is to be timed."""
    if name in _REMOVED:
        return REMOVED
    if name in _UNTOUCHED_DUNDERS:
        return OBJECT
    return ""


def class_name(cls: type) -> str:
    """What the user wrote: `torch.nn.Linear`, `Net` for a class of the script, `timm.layers.mlp.Mlp`."""
    module = cls.__module__ or ""
    name = cls.__qualname__.rpartition("<locals>.")[2]
    for depth in range(1, module.count(".") + 2):  # the shortest namespace that offers this very class
        short = ".".join(module.split(".")[:depth])
        if short.startswith("torch") and _offers(short, name, cls):
            return f"{short}.{name}"
    return name if module in ("__main__", "__mp_main__", "builtins", "") else f"{module}.{name}"


def _offers(module: str, name: str, cls: type) -> bool:
    return getattr(sys.modules.get(module), name, None) is cls


def is_torch_class(cls: type) -> bool:
    """Defined by torch itself, not by the user or another package."""
    module = cls.__module__ or ""
    return module == "torch" or module.startswith("torch.")
