"""What a module of torch was built with, found again in its attributes and its parts.

Modules are built before anyone watches, and their constructors forget: what `nn.TransformerEncoderLayer` was given
lies in the layers it made of it. What cannot be found is said (`ModuleSpec.unknown`), never assumed.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import torch

from luxmeter.signature.call import describe, plain_tensors
from luxmeter.signature.records import Argument, DictOf, ListOf, ModuleSpec, Word, utf8

Settings: TypeAlias = dict[str, Argument]

_ABSENT: Any = object()
# Not settings: where and as what it is made (its tensors tell), old names for others, what only passes through.
_LEFT_OUT = {
    "self", "device", "dtype", "_weight", "_freeze", "size_average", "reduce", "min_value", "max_value",
}  # fmt: skip
_RECURRENT = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")
# Classes whose constructors take *args: the names that count.
_NAMES = {
    "RNN": (*_RECURRENT, "nonlinearity"),
    "GRU": _RECURRENT,
    "LSTM": (*_RECURRENT, "proj_size"),
}
# What switches a module's own weights on: without them, whether there would be a bias says nothing.
_SWITCHES = ("affine", "elementwise_affine")


def module_of(module: torch.nn.Module) -> ModuleSpec:
    """A module's class, what its constructor would need, all parameters and buffers, and what is inside. Never raises."""
    spec = ModuleSpec("unknown")
    try:
        spec = _bare(module)
        tensors = [(k, t) for k, t in (*module.named_parameters(), *module.named_buffers()) if t is not None]
        described = describe(tuple(t for _, t in tensors)).args
        # Which of its tensors share memory is its own matter: numbers belong to a call's arguments.
        alone = (
            replace(t, memory=None, offset=0) if getattr(t, "memory", None) is not None else t
            for t in described
        )
        spec = replace(spec, tensors=tuple(zip((utf8(k) for k, _ in tensors), alone, strict=True)))
        if is_public(spec.name):
            spec = replace(spec, parts=_parts(module))
    except Exception as error:  # noqa: BLE001  (a user's module may do anything; the call goes on, and is counted)
        return replace(spec, unknown=spec.unknown or f"it cannot be looked into: {_line(error)}")
    return spec


def is_public(name: str) -> bool:
    """Whether a description's name is that of a class of torch.nn, which alone can be built again."""
    return name.startswith("torch.nn.") and name.count(".") == 2


def is_unmade(tensor: Any) -> bool:
    """Whether it is a lazy module's, which has no shape before the first call."""
    return isinstance(tensor, torch.nn.UninitializedParameter | torch.nn.UninitializedBuffer)


def _bare(module: torch.nn.Module, *, inside: bool = False) -> ModuleSpec:
    """Its class and its settings; `inside` another that is described, without those that are modules."""
    kind, wrapped = _base(module)
    name = _public_name(kind)
    unknown, parametrized = "", tuple[tuple[str, ModuleSpec], ...]()
    settings: Settings = {}
    try:
        if is_public(name):
            stack = inside and kind.__name__ in _STACKS
            settings, unknown = ({}, "") if stack else _settings(module, kind, wrapped)
            parametrized = tuple(_parametrizations(module, wrapped))
            if any(not by.name for _, by in parametrized):
                unknown = f"{', '.join(wrapped)} has a parametrization of its own"
            elif hidden := [n for n in ("forward", *module._modules) if n in vars(module)]:
                unknown = f"its {', '.join(hidden)} was replaced"
        else:
            given = {n: v for n in _declared(kind) if (v := _read(module, n)) is not _ABSENT}
            settings = {n: describe((v,)).args[0] for n, v in given.items()}
    except RecursionError:  # it holds itself
        raise
    except Exception as error:  # noqa: BLE001  (parts were replaced by others, a property raises)
        unknown = f"its settings cannot be found: {_line(error)}"
    found, training = tuple(settings.items()), _training(module)
    return ModuleSpec(name, found, training=training, unknown=utf8(unknown), wrapped=parametrized)


def look_of(module: torch.nn.Module) -> Hashable:
    """Equal for modules of one class that do the same: in microseconds, without finding out what they were given."""
    try:
        return tuple((path, _own_look(part)) for path, part in module.named_modules())
    except Exception:  # noqa: BLE001  (a user's module may do anything)
        return None


def _own_look(part: torch.nn.Module) -> Hashable:
    plain = (bool, int, float, str, tuple, type(None))
    settings = tuple((k, v) for k, v in vars(part).items() if type(v) in plain and k != "training")
    with plain_tensors():
        tensors = tuple(
            (k, None if t is None else (t.dtype, is_unmade(t) or (t.shape if not t.is_nested else None)))
            for k, t in (*part._parameters.items(), *part._buffers.items())
        )
    found = type(part), settings, tensors
    hash(found)  # a tuple may hold a list
    return found


def _settings(module: torch.nn.Module, kind: Any, wrapped: tuple[str, ...]) -> tuple[Settings, str]:
    """The constructor's arguments by name, and why they are not all there."""
    found = _RECOVERED[kind.__name__](module) if kind.__name__ in _RECOVERED else {}
    missing = []
    for name in () if kind.__name__ in _WHOLE else _declared(kind):
        if name in found:
            continue
        value = _read(module, name) if name not in wrapped else module
        if name == "bias" and not isinstance(value, bool):
            if all(getattr(module, switch, True) for switch in _SWITCHES):
                found[name] = value is not _ABSENT and value is not None
        elif value is not _ABSENT:
            found[name] = _described(value)
        else:
            missing.append(name)
    if isinstance(module, torch.nn.modules.lazy.LazyModuleMixin):
        found |= _lazy(module)
    return found, f"its {', '.join(missing)} cannot be found" if missing else ""


def _parametrizations(module: torch.nn.Module, wrapped: tuple[str, ...]) -> Iterator[tuple[str, ModuleSpec]]:
    """What makes each wrapped tensor, in order; without a name, where it is none of torch's own."""
    for name in wrapped:
        inside: Any = module._modules["parametrizations"]
        for inner in inside[name]:
            kind: Any = type(inner)
            known = _PARAMETRIZATIONS.get(_public_name(kind))
            if known is None:
                yield name, ModuleSpec("")
            else:
                function, settings = known
                yield name, ModuleSpec(function, tuple(settings(inner).items()))


def _parts(module: torch.nn.Module) -> tuple[tuple[str, ModuleSpec], ...]:
    """Every module inside with its plain settings: two that are the same here, with the same tensors, do the same."""
    found = []
    for path, part in module.named_modules():
        if path and _public_name(_base(part)[0]) not in _CONTAINERS:
            spec = _bare(part, inside=True)
            plain = tuple((k, v) for k, v in spec.settings if not isinstance(v, ModuleSpec))
            found.append((utf8(path), replace(spec, settings=plain)))
    return tuple(found)


@functools.lru_cache(maxsize=1024)
def _declared(kind: Any) -> tuple[str, ...]:
    if kind.__name__ in _NAMES and is_public(_public_name(kind)):
        return _NAMES[kind.__name__]
    try:
        parameters = inspect.signature(kind.__init__).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple(
        p.name
        for p in parameters
        if p.name not in _LEFT_OUT and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    )


def _read(module: torch.nn.Module, name: str) -> Any:
    try:
        return getattr(module, name, _ABSENT)
    except Exception:  # noqa: BLE001  (a property of the user's)
        return _ABSENT


def _described(value: Any) -> Argument:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is tuple and all(
        type(item) is int for item in value
    ):  # kernel sizes, paddings: most of all
        return value
    return _bare(value) if isinstance(value, torch.nn.Module) else describe((value,)).args[0]


def _training(module: Any) -> bool:
    return bool(vars(module).get("training", True))


def _base(module: torch.nn.Module) -> tuple[Any, tuple[str, ...]]:
    """Its class before parametrizations were put on it, and the names of the tensors that have one."""
    kind: Any = type(module)
    if kind.__module__ != "torch.nn.utils.parametrize" or not kind.__name__.startswith("Parametrized"):
        return kind, ()
    names: Any = module._modules["parametrizations"]
    return kind.__bases__[0], tuple(names.keys())


@functools.lru_cache(maxsize=1024)
def _public_name(kind: Any) -> str:
    """The shortest public name: torch.nn.Conv2d rather than torch.nn.modules.conv.Conv2d."""
    name = kind.__name__
    if kind.__module__.startswith("torch.nn.") and getattr(torch.nn, name, None) is kind:
        return f"torch.nn.{name}"
    return utf8(f"{kind.__module__}.{kind.__qualname__}")


def _line(error: Exception) -> str:
    try:
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:120]}"
    except Exception:  # noqa: BLE001  (even its text can raise)
        return type(error).__name__


# -- constructor arguments that are no attributes, by class


def _attention(m: Any) -> Settings:
    return {"bias": m.in_proj_bias is not None, "add_bias_kv": m.bias_k is not None}


def _layer(m: Any) -> Settings:
    attention, activation = m.self_attn, m._modules.get("activation")
    return {
        "d_model": attention.embed_dim,
        "nhead": attention.num_heads,
        "dim_feedforward": m.linear1.out_features,
        "dropout": m.dropout.p,
        "activation": _activation(m.activation if activation is None else activation),
        "layer_norm_eps": m.norm1.eps,
        "batch_first": attention.batch_first,
        "norm_first": m.norm_first,
        "bias": m.linear1.bias is not None,
    }


def _activation(value: Any) -> Argument:
    said = _described(value)
    known = ("torch.nn.functional:relu", "torch.nn.functional:gelu")
    return said.name.partition(":")[2] if isinstance(said, Word) and said.name in known else said


def _stack(layer: str, m: Any) -> Settings:
    """An encoder or decoder: copies of one layer, which must be alike."""
    layers = list(m.layers)
    if not layers:
        raise ValueError("it has no layers")
    if not _alike(layers):
        raise ValueError("its layers are not alike")
    # Copying a decoder's layer puts relu before the activation it was given: the copies in a rebuilt one do the same.
    return {layer: replace(_bare(layers[0]), unknown="")}


def _alike(modules: list[Any]) -> bool:
    described = [(_bare(m), _parts(m)) for m in modules]
    return all(d == described[0] for d in described)


def _transformer(m: Any) -> Settings:
    """From its encoder and decoder; one that its own settings would not have made is `custom`."""
    found: Settings = {"d_model": m.d_model, "nhead": m.nhead, "batch_first": m.batch_first}
    for part, kind, layer_kind in (
        ("encoder", torch.nn.TransformerEncoder, torch.nn.TransformerEncoderLayer),
        ("decoder", torch.nn.TransformerDecoder, torch.nn.TransformerDecoderLayer),
    ):
        stack = getattr(m, part)
        layer = _usual_layer(stack, kind, layer_kind)
        if layer is None or not _same(found, layer):
            found[f"custom_{part}"] = _bare(stack)
        else:
            found |= {f"num_{part}_layers": len(stack.layers), **layer}
    return found


def _usual_layer(stack: Any, kind: type[Any], layer_kind: type[Any]) -> Settings | None:
    """The settings of a stack's layers, if all of it is as `nn.Transformer` makes it of them."""
    usual = all(getattr(stack, switch, True) for switch in ("enable_nested_tensor", "mask_check"))
    if type(stack) is not kind or not usual or type(stack.norm) is not torch.nn.LayerNorm:
        return None
    norm = dict(_bare(stack.norm).settings)
    settings = {"layer_norm_eps": norm["eps"], "bias": norm.get("bias")}
    if len(stack.layers):
        if type(stack.layers[0]) is not layer_kind or not _alike(list(stack.layers)):
            return None
        if not _same(settings, layer := _layer(stack.layers[0])):
            return None
        settings = layer
    return settings


def _same(some: Settings, others: Settings) -> bool:
    return all(others[name] == some[name] for name in some.keys() & others.keys())


def _items(m: Any) -> Settings:
    parts = {name: _bare(part) for name, part in m._modules.items()}
    if list(parts) == [str(i) for i in range(len(parts))]:
        return {"args": tuple(parts.values())}
    return {"args": DictOf(tuple(parts.items()))}


def _lazy(m: Any) -> Settings:
    """Its tensors cannot say yet of which dtype they will be."""
    unmade = filter(is_unmade, (*m._parameters.values(), *m._buffers.values()))
    with plain_tensors():
        return next(({"dtype": Word("dtype", str(t.dtype)[6:])} for t in unmade), {})


_RECOVERED: dict[str, Callable[[Any], Settings]] = {
    "MultiheadAttention": _attention,
    "TransformerEncoderLayer": _layer,
    "TransformerDecoderLayer": _layer,
    "TransformerEncoder": functools.partial(_stack, "encoder_layer"),
    "TransformerDecoder": functools.partial(_stack, "decoder_layer"),
    "Transformer": _transformer,
    "AdaptiveLogSoftmaxWithLoss": lambda m: {"cutoffs": ListOf(tuple(m.cutoffs[:-1]))},  # the last is n_classes
    "LinearCrossEntropyLoss": lambda m: {
        "in_features": m.linear.in_features, "bias": m.linear.bias is not None,
    },
    "PairwiseDistance": lambda m: {"p": m.norm},
    "RNNCellBase": lambda m: {"num_chunks": m.weight_ih.shape[0] // m.hidden_size},
    "Sequential": _items,
    "ModuleList": lambda m: {"modules": ListOf(tuple(map(_bare, m)))},
    "ModuleDict": lambda m: {"modules": DictOf(tuple((k, _bare(v)) for k, v in m.items()))},
    "ParameterList": lambda m: {"values": ListOf(describe(tuple(m)).args)},
    "ParameterDict": lambda m: {"parameters": DictOf(describe(tuple(m.items())).args)},
}  # fmt: skip
_PARAMETRIZATIONS: dict[str, tuple[str, Callable[[Any], Settings]]] = {
    f"torch.nn.utils.parametrizations.{kind}": (f"torch.nn.utils.parametrizations.{function}", settings)
    for kind, function, settings in (
        ("_WeightNorm", "weight_norm", lambda m: {"dim": m.dim}),
        ("_SpectralNorm", "spectral_norm", lambda m: {
            "n_power_iterations": getattr(m, "n_power_iterations", 1), "eps": m.eps, "dim": m.dim,
        }),
        ("_Orthogonal", "orthogonal", lambda m: {
            "orthogonal_map": m.orthogonal_map.name, "use_trivialization": "base" in m._buffers,
        }),
    )
}  # fmt: skip
_WHOLE = ("Transformer",)  # what is not found for these was not given
_STACKS = ("Transformer", "TransformerEncoder", "TransformerDecoder")  # all they have lies in their layers
_CONTAINERS = tuple(f"torch.nn.{name}" for name in ("Sequential", "ModuleList", "ModuleDict"))
