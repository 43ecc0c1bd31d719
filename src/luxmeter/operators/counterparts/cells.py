"""A module of torch -> a cell of MindSpore with the same settings and the same weights.

Import this only where both frameworks are.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

import mindspore
from luxmeter.operators.counterparts import Target
from luxmeter.operators.counterparts.calling import MindSporeCall, named
from luxmeter.operators.counterparts.composed_cells import BODIES, Composed
from luxmeter.operators.counterparts.values import NotConvertible, to_mindspore
from luxmeter.signature import ListOf, ModuleSpec, TensorSpec, module_of

# What the same thing is called in mindspore.nn; mint.nn speaks as torch does.
_SETTINGS = {
    "bias": ("has_bias",), "groups": ("group",), "in_features": ("in_channels",), "out_features": ("out_channels",),
    "num_embeddings": ("vocab_size",), "embedding_dim": ("embedding_size",), "eps": ("epsilon",), "dim": ("axis",),
    "num_parameters": ("channel",), "min_val": ("min_val",), "negative_slope": ("alpha",),
}  # fmt: skip
_PARAMETERS = {
    "weight": ("gamma", "embedding_table", "w"), "bias": ("beta",), "running_mean": ("moving_mean",),
    "running_var": ("moving_variance",),
}  # fmt: skip
# They change nothing of the result.
_IDLE = {
    "inplace",
    "size_average",
    "reduce",
    "device",
    "dtype",
    "sparse",
    "scale_grad_by_freq",
    "num_batches_tracked",
}


def cell_call(
    target: Target, module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> MindSporeCall:
    """The cell that stands for a module, ready to be called; NotConvertible where something has no place in it."""
    cell = cell_of(target, module)
    given = inspect.signature(module.forward).bind(*args, **kwargs)  # a cell names its arguments otherwise
    return MindSporeCall(cell, to_mindspore(given.args), to_mindspore(given.kwargs))


def cell_of(target: Target, module: torch.nn.Module) -> Any:
    """The cell itself: made with the module's settings, holding copies of its parameters and buffers."""
    if target.name.startswith("composed."):
        return Composed(module, BODIES[target.name.removeprefix("composed.")])
    kind: Any = named(target.name)
    cell = kind(**_settings(target, kind, module))
    _copy(module, cell)
    cell.set_train(module.training)
    return cell


def _settings(target: Target, kind: Any, module: torch.nn.Module) -> dict[str, Any]:
    taken = inspect.signature(kind.__init__).parameters
    anything = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in taken.values())
    defaults = inspect.signature(type(module).__init__).parameters
    renamed, made = dict(target.names), dict(target.fixed)
    for name, value in module_of(module).settings:
        plain = _plain(module, name, value)
        if name in _IDLE or renamed.get(name) == "":
            continue
        goal = renamed.get(name, name)
        if goal not in taken and not anything:
            goal = next((a for a in _SETTINGS.get(name, ()) if a in taken), "")
        if goal:
            made[goal] = plain
        elif name not in defaults or defaults[name].default != plain:
            raise NotConvertible(f"{target.name} has no {name}={plain!r}")
    return _in_its_terms(target.name, made)


def _plain(module: torch.nn.Module, name: str, value: Any) -> Any:
    if isinstance(value, TensorSpec):
        return to_mindspore(getattr(module, name))
    if isinstance(value, ListOf):
        return [*value.items]
    if isinstance(value, ModuleSpec):
        raise NotConvertible(f"{name} is a module of its own: its parts are operators")
    return to_mindspore(value)


def _in_its_terms(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of mindspore.nn that mean something else under the same name."""
    if not name.startswith("mindspore.nn."):
        return settings
    if "BatchNorm" in name and settings.get("momentum") is not None:
        settings["momentum"] = 1 - settings["momentum"]
    padding = settings.get("padding")
    if "Conv" in name and isinstance(padding, str):
        return {**settings, "pad_mode": padding, "padding": 0}
    if name.endswith(("Conv1d", "Conv1dTranspose")):
        return {k: v[0] if isinstance(v, tuple) and len(v) == 1 else v for k, v in settings.items()}
    if "Conv" in name and isinstance(padding, tuple):  # before and after, in each dimension
        settings["padding"] = tuple(p for p in padding for _ in range(2))
    if settings.get("padding_mode", "zeros") == "zeros":
        settings.pop("padding_mode", None)
    return settings


def _copy(module: torch.nn.Module, cell: Any) -> None:
    places = {p.name: p for p in cell.get_parameters()}
    for name, value in (*module.named_parameters(), *module.named_buffers()):
        if name in _IDLE or (isinstance(module, torch.nn.modules.loss._Loss) and name == "weight"):
            continue
        options = (name, *_PARAMETERS.get(name, ()))
        place = next((places[o] for o in options if o in places), None)
        if place is None:
            place = next(
                (f for o in options if isinstance(f := getattr(cell, o, None), mindspore.Tensor)), None
            )
        if place is None:
            raise NotConvertible(f"{type(cell).__name__} has no place for {name}")
        data = to_mindspore(value)
        if place.shape != data.shape and place.size == data.size:
            data = data.reshape(place.shape)  # one-dimensional convolutions are kept as two-dimensional ones
        if isinstance(place, mindspore.Parameter):
            place.set_dtype(data.dtype)
            place.set_data(data)
        else:
            place.assign_value(data)
