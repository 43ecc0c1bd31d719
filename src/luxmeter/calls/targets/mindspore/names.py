"""Names of MindSpore callables as users write them, and which of them are left alone and why."""

from __future__ import annotations

import sys
from types import BuiltinFunctionType, FunctionType
from typing import Any

from luxmeter.calls.targets.torch.names import LABELS as _TORCH_LABELS

# The operators of Python are those of torch's tensors; in a trace of both they have to be told apart.
LABELS = {f"mindspore.{name}": f"mindspore {label}" for name, label in _TORCH_LABELS.items()}

SWITCH = "asks for or sets a switch, does no work on tensors"
REGISTERS = "registers or decorates an operator, does no work on tensors"
PLUMBING = "part of MindSpore's own dispatch: timing it would count calls twice"
OBJECT = "Python asks every object for it: too frequent, and no work on tensors"
CLASS = "a class: what its instances do is timed where it is called"
GRAPH = "an object that a graph is built from: outside of a graph, what it calls is timed"
JIT = "returns a function: running that is one call"
GRADIENT = "returns a function: running that is timed under this name, whenever it was made"
LEARNING_RATES = "makes a list of numbers, does no work on tensors"
PROPERTY = "a property that tells what is known: computes nothing"

_SWITCHES = ("is_", "get_", "set_", "can_", "has_", "reset_", "enable_")
_REGISTERS = ("mindspore.ops.primitive", "mindspore.ops.op_info_register", "mindspore.ops.vm_impl_registry",
              "mindspore.ops._register_for_op", "mindspore.ops.composite.base", "mindspore.ops._tracefunc",
              "mindspore.ops.operations.manually_defined", "mindspore._checkparam")  # fmt: skip

# Dunders of Tensor that every object has, or that must not be touched: construction, attribute access, protocol hooks.
_UNTOUCHED_DUNDERS = {
    "__class__", "__delattr__", "__dir__", "__getattribute__", "__getattr__", "__getstate__", "__hash__", "__init__",
    "__init_subclass__", "__new__", "__reduce__", "__reduce_ex__", "__setattr__", "__setstate__", "__sizeof__",
    "__str__", "__subclasshook__", "__deepcopy__", "__copy__", "__ms_function__", "__tensor_flatten__",
}  # fmt: skip
# Methods of Tensor that MindSpore itself calls to move, describe or share a tensor.
_PLUMBING_METHODS = {
    "flush_from_cache", "getitem_index_info", "setitem_index_info", "set_param_info", "is_init", "set_init_flag",
    "check_value_validity", "set_cast_dtype", "set_const_arg", "set_dtype", "set_device", "convert_bytes_to_tensor",
    "get_bytes", "data_sync", "is_persistent_data", "is_contiguous", "storage_offset", "stride", "dim", "element_size",
    "is_complex", "is_floating_point", "is_signed", "get_device", "set_user_data", "get_user_data", "data_ptr",
    "register_hook", "remove_hook", "has_storage", "is_shared", "untyped_storage", "storage", "hooks", "is_leaf",
    "asnumpy_of_slice_persistent_data", "slice_num_of_persistent_data", "const_arg", "init_check", "init_data",
    "assign_value", "assign_value_cpp", "set_device_address", "wait_pipeline", "offload_file_path",
}  # fmt: skip


def is_function(value: Any) -> bool:
    """A Python function or a builtin."""
    return type(value) in (FunctionType, BuiltinFunctionType)


def belongs_to_mindspore(value: Any) -> bool:
    """Not a helper that a namespace merely imported."""
    module = getattr(value, "__module__", None) or ""
    return module == "mindspore" or module.startswith("mindspore.")


def why_not(name: str, function: Any) -> str:
    """The reason to leave a public function alone; empty when it is to be timed."""
    module = getattr(function, "__module__", None) or ""
    if module in _REGISTERS:
        return REGISTERS
    if module.startswith("mindspore.nn.dynamic_lr"):
        return LEARNING_RATES
    if name.startswith(_SWITCHES) and not name.startswith(("is_nonzero", "get_grad")):
        return SWITCH
    return ""


def why_not_method(name: str) -> str:
    """The reason to leave a method of Tensor alone; empty when it is to be timed."""
    if name in _UNTOUCHED_DUNDERS:
        return OBJECT
    if name in _PLUMBING_METHODS:
        return PLUMBING
    return ""


def class_name(cls: type) -> str:
    """What the user wrote: `mindspore.nn.Dense`, `Net` for a class of the script, `mindcv.models.vit.Attention`."""
    module = cls.__module__ or ""
    name = cls.__qualname__.rpartition("<locals>.")[2]
    if is_mindspore_class(cls):
        parts = module.split(".")
        short = [".".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
        # mindspore.nn.layer.basic.Linear is public as mindspore.mint.nn.Linear; primitives as mindspore.ops.Add.
        offers = [
            place
            for place in (*short, "mindspore.mint.nn", "mindspore.ops")
            if getattr(sys.modules.get(place), name, None) is cls
        ]
        public = [place for place in offers if name in getattr(sys.modules[place], "__all__", ())]
        if offers:
            return f"{(public or offers)[0]}.{name}"
    return name if module in ("__main__", "__mp_main__", "builtins", "") else f"{module}.{name}"


def is_mindspore_class(cls: type) -> bool:
    """Defined by MindSpore itself, not by the user or another package."""
    module = cls.__module__ or ""
    return module == "mindspore" or module.startswith("mindspore.")
