"""A model made to run on tensors of ours for a while, and put back exactly.

Every parameter and buffer is replaced by a stand-in (on meta, or sharing the data without sharing gradients), each
module's call is watched, and afterwards every module's attributes are what they were, whatever the run did to them.
"""

from __future__ import annotations

import random
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from operator import is_
from typing import Any

import torch
from torch import nn

from luxmeter.loaded import loaded
from luxmeter.model.counter import SMALL
from luxmeter.model.leaves import Leaves
from luxmeter.model.watch import Watch, distinct_modules, every_module
from luxmeter.operators import without_collecting

_Twins = dict[int, torch.Tensor]
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = (
    "_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks", "_global_backward_pre_hooks",
)  # fmt: skip
_USUAL = (torch.Tensor, nn.Parameter)


@contextmanager
def standing_in(
    model: nn.Module,
    watch: Watch | None,
    *,
    on_meta: bool,
    training: bool,
    dtype: torch.dtype | None,
    gradients: bool = True,
    leaves: Leaves | None = None,
) -> Iterator[_Twins]:
    """Inside, `model` runs on stand-ins; yields them by the identity of what they stand for.

    Without `gradients`, what has no data anyway stands for itself. With `leaves`, layers seen before are not run.
    """
    modules = [module for _, module in distinct_modules(every_module(model))]
    as_it_is = training and model.training  # parts that were frozen for training stay so
    scripts = {kind for kind in set(map(type, modules)) if issubclass(kind, torch.jit.ScriptModule)}
    scripted = [type(m) in scripts for m in modules]
    before: list[_Memory | _ScriptMemory] = [
        _ScriptMemory(m, training) if script else _Memory(m)
        for m, script in zip(modules, scripted, strict=True)
    ]
    twins: _Twins = {}
    hooks_everywhere = any(map(vars(torch.nn.modules.module).get, _GLOBAL_HOOKS))
    try:
        for index, module in enumerate(modules):
            if scripted[index]:
                continue  # its attributes live elsewhere: it runs as it is
            attributes = module.__dict__
            attributes["training"] = training if not as_it_is else attributes.get("training", False)
            attributes["_compiled_call_impl"] = None
            for place in ("_parameters", "_buffers"):
                if held := attributes[place]:
                    attributes[place] = {
                        name: None
                        if t is None
                        else _twin(t, twins, on_meta=on_meta, dtype=dtype, gradients=gradients)
                        for name, t in held.items()
                    }
            _swap_plain(attributes, twins)
            if watch is None:
                continue
            hooked = hooks_everywhere or any(map(attributes.get, _HOOKS))
            layer = leaves.wrap(index, module, attributes) if leaves is not None and not hooked else None
            attributes["forward"] = layer or watch.wrap(index, module.forward)
            if hooked:  # their work is the module's, too
                attributes["_call_impl"] = watch.wrap_call(index, module._call_impl)
        yield twins
    finally:
        for memory in before:
            memory.restore()


@contextmanager
def as_it_was(model: nn.Module) -> Iterator[None]:
    """Whatever is done to the model's attributes and to the values of its buffers inside is undone."""
    before = [_Memory(module) for module in model.modules()]
    buffers = [(b, b._version, b.detach().clone()) for b in model.buffers() if not b.is_meta]
    try:
        yield
    finally:
        for memory in before:
            memory.restore()
        with torch.no_grad():
            for buffer, version, value in buffers:
                if buffer._version != version:
                    buffer.copy_(value)


@contextmanager
def process_as_it_was(*, eager: bool = True) -> Iterator[None]:
    """Random generators, gradient mode and the compiler's stance come out as they went in."""
    with ExitStack() as stack:
        state = torch.get_rng_state()
        stack.callback(lambda: torch.set_rng_state(state))
        if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            cuda = torch.cuda.get_rng_state_all()
            stack.callback(lambda: torch.cuda.set_rng_state_all(cuda))
        python = random.getstate()
        stack.callback(lambda: random.setstate(python))
        if (numpy := loaded("numpy")) is not None:
            numpy_state = numpy.random.get_state()
            stack.callback(lambda: numpy.random.set_state(numpy_state))
        if eager and "torch._dynamo" in sys.modules and hasattr(torch.compiler, "set_stance"):
            # A function that is compiled while a dispatch mode is on stays uncompiled for good.
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(torch.autograd.set_grad_enabled(torch.is_grad_enabled()))
        stack.enter_context(without_collecting())
        yield


class _Memory:
    """A module's attributes and what is in its dictionaries and lists, to be put back.

    Meanwhile the module works on a copy of its attributes: putting back is giving it its own again.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._kind = type(module)
        self._attributes = own = module.__dict__
        self._full: list[Any] = []
        self._empty: list[Any] = []
        for value in own.values():
            if value.__class__ in _CONTAINERS:
                (self._full if value else self._empty).append(value)
        self._before = [value.copy() for value in self._full]
        object.__setattr__(module, "__dict__", own.copy())

    def restore(self) -> None:
        if type(self._module) is not self._kind:  # lazy modules become what they stand for
            self._module.__class__ = self._kind
        object.__setattr__(self._module, "__dict__", self._attributes)
        if any(self._empty):
            for container in self._empty:
                container.clear()
        for container, inside in zip(self._full, self._before, strict=True):
            if isinstance(container, list):
                container[:] = inside
            elif not _same_inside(container, inside):
                container.clear()
                container.update(inside)


_CONTAINERS: frozenset[Any] = frozenset((dict, OrderedDict, defaultdict, list, set))


class _ScriptMemory:
    """A scripted module runs as it is: its mode, gradients and buffers are put back by value."""

    def __init__(self, module: Any, training: bool) -> None:
        self._module = module
        self._was_training = module.training
        self._gradients = [(p, p.grad) for p in module.parameters(recurse=False)]
        self._buffers = [(b, b.detach().clone()) for b in module.buffers(recurse=False)]
        module.training = training
        for parameter, _ in self._gradients:
            parameter.grad = None

    def restore(self) -> None:
        self._module.training = self._was_training
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        with torch.no_grad():
            for buffer, value in self._buffers:
                buffer.copy_(value)


def _same_inside(now: Any, before: Any) -> bool:
    if isinstance(now, set):
        return bool(now == before)
    if len(now) != len(before):
        return False
    return all(map(is_, now, before)) and all(map(is_, now.values(), before.values()))


def _twin(
    tensor: torch.Tensor, twins: _Twins, *, on_meta: bool, dtype: torch.dtype | None, gradients: bool = True
) -> torch.Tensor:
    """The stand-in of `tensor`; one tensor has one stand-in, however often it is shared."""
    known = twins.get(id(tensor))
    if known is not None:
        return known
    wanted = dtype if dtype is not None and tensor.is_floating_point() else None
    if not gradients and type(tensor) in _USUAL and tensor.is_meta and wanted in (None, tensor.dtype):
        twins[id(tensor)] = tensor
        return tensor
    is_parameter = type(tensor) is nn.Parameter or isinstance(tensor, nn.Parameter)
    if is_lazy(tensor):
        make: Any = type(tensor)
        lazy: torch.Tensor = make(device="meta" if on_meta else None, dtype=wanted or tensor.dtype)
        twins[id(tensor)] = lazy
        return lazy
    if on_meta:
        data = without_data(tensor, dtype=wanted)
    elif is_parameter:
        data = tensor.detach() if wanted is None else tensor.detach().to(wanted)
    else:
        data = tensor.detach().clone() if wanted is None else tensor.detach().to(wanted)
    twin = nn.Parameter(data, requires_grad=tensor.requires_grad) if is_parameter else data
    if not is_parameter and tensor.requires_grad:
        twin.requires_grad_()
    if is_parameter and tensor.__dict__:
        twin.__dict__.update(tensor.__dict__)
    twins[id(tensor)] = twin
    return twin


def is_lazy(tensor: torch.Tensor) -> bool:
    """Whether the tensor has no size before the first call."""
    if type(tensor) in _USUAL:  # isinstance is slow for parameters: they have a metaclass
        return False
    return isinstance(tensor, nn.UninitializedParameter | nn.UninitializedBuffer)


def without_data(tensor: torch.Tensor, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The same on meta; small tensors of whole numbers that have data are copied with it."""
    if _keeps_data(tensor):
        return tensor.detach().clone()
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        return tensor.detach().to("meta")
    return torch.empty_strided(
        tuple(tensor.shape), tensor.stride(), dtype=dtype or tensor.dtype, device="meta"
    )


def _keeps_data(tensor: torch.Tensor) -> bool:
    whole = not (tensor.is_floating_point() or tensor.is_complex() or tensor.is_quantized)
    return whole and tensor.device.type == "cpu" and type(tensor) is torch.Tensor and tensor.numel() <= SMALL


def _swap_plain(attributes: dict[str, Any], twins: _Twins) -> None:
    """Parameters that a module also keeps in a plain list or attribute (recurrent layers do)."""
    changed: dict[str, Any] = {}
    for name in attributes.keys() - _OF_EVERY_MODULE:
        value = attributes[name]
        kind = value.__class__
        if kind in _SCALARS:
            continue
        if kind is list or kind is tuple:
            if not _SCALARS.issuperset(map(type, value)) and any(isinstance(v, torch.Tensor) for v in value):
                changed[name] = kind(_swapped(v, twins) for v in value)
        elif kind is dict:
            if any(isinstance(v, torch.Tensor) for v in value.values()):
                changed[name] = {k: _swapped(v, twins) for k, v in value.items()}
        elif isinstance(value, torch.Tensor):
            changed[name] = _swapped(value, twins)
    attributes.update(changed)


def _swapped(value: Any, twins: _Twins) -> Any:
    return twins.get(id(value), value) if isinstance(value, torch.Tensor) else value


_OF_EVERY_MODULE = frozenset(nn.Module().__dict__)
_SCALARS = frozenset((bool, int, float, str, type(None)))
