"""A module built again from its description, and compared with it: what differs is not measured."""

from __future__ import annotations

import re
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.utils import parametrizations

from luxmeter.errors import UsageError
from luxmeter.operators.case import Case
from luxmeter.operators.resolve import module_class
from luxmeter.signature import (
    Argument,
    DictOf,
    ListOf,
    ModuleSpec,
    TensorSpec,
    Word,
    describe,
    is_unmade,
    module_of,
    tensors_in,
)


def rebuilt(spec: ModuleSpec, value: Callable[[Argument], Any]) -> torch.nn.Module:
    """The module with its settings, the dtypes, strides and gradients of its tensors, its modes; `value` makes settings.

    UsageError where it cannot be built, or what was built is not what was described.
    """
    kind: Any = module_class(spec)
    if spec.unknown:
        raise UsageError(
            "module-not-replayable",
            f"This {spec.name} cannot be built again: {spec.unknown}.",
            "Its parts are operators of their own: trace with inside=True and replay those.",
        )
    settings = {name: value(setting) for name, setting in spec.settings}
    try:
        with warnings.catch_warnings():  # about the user's settings: the user has seen them
            warnings.simplefilter("ignore")
            module = _made(kind, settings)
            for name, by in spec.wrapped:
                _PARAMETRIZATIONS[by.name](module, name, **{k: value(v) for k, v in by.settings})
        _fit(module, spec)
    except Exception as error:
        raise UsageError(
            "module-not-replayable",
            f"{spec} cannot be built: {type(error).__name__}: {str(error).partition(chr(10))[0]}",
            "The file was changed, or is of another version of torch.",
        ) from error
    found = module_of(module)
    if why := next(_differences(spec, found), ""):
        raise UsageError(
            "module-differs",
            f"Built again from its settings, {spec} is another module than the recorded one: {why}.",
            "It was changed after it was built; its parts are operators of their own: replay those.",
        )
    return module


_PARAMETRIZATIONS: dict[str, Callable[..., Any]] = {
    f"torch.nn.utils.parametrizations.{function.__name__}": function
    for function in (
        parametrizations.weight_norm,
        parametrizations.spectral_norm,
        parametrizations.orthogonal,
    )
}


def check_outputs(case: Case, result: Any) -> None:
    """UsageError where a rebuilt module gives other shapes than the recorded one gave.

    Of functions the shapes may depend on values (`nonzero`), which a replay makes up.
    """
    if case.outputs is None or not any(isinstance(v, ModuleSpec) for v in case.signature.args[:1]):
        return
    given = tuple(t.shape for t in tensors_in(describe((result,)).args))
    if given != case.outputs and -1 not in (n for shape in case.outputs for n in shape):
        raise UsageError(
            "module-differs",
            f"Built again from its settings, {case.op} gives {_listed(given)}, the recorded one gave {_listed(case.outputs)}.",
            "It was changed after it was built; its parts are operators of their own: replay those.",
        )


def _listed(shapes: tuple[tuple[int, ...], ...]) -> str:
    return ", ".join(str(list(shape)) for shape in shapes) or "no tensors"


def _made(kind: Any, settings: dict[str, Any]) -> torch.nn.Module:
    given = settings.pop("args", ())
    args = (OrderedDict(given),) if isinstance(given, dict) else given
    made: torch.nn.Module = kind(*args, **settings)
    return made


def _fit(module: torch.nn.Module, spec: ModuleSpec) -> None:
    """Bring tensors and modes to what was recorded, as far as shapes allow."""
    module.train(spec.training)
    for path, part in spec.parts:
        with_path = _found(module, path)
        if with_path is not None:
            with_path.training = part.training
    own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name, t in spec.tensors:
        mine = own.get(name)
        dtype = getattr(torch, t.dtype, None) if isinstance(t, TensorSpec) else None
        if not isinstance(t, TensorSpec) or mine is None or not isinstance(dtype, torch.dtype):
            continue
        if is_unmade(mine) or tuple(mine.shape) != t.shape:
            continue
        data = mine.detach().to(dtype)
        if t.stride is not None and -1 not in t.stride and t.layout == "strided":
            data = torch.empty_strided(t.shape, t.stride, dtype=dtype).copy_(data)
        mine.requires_grad_(False).data = data
        mine.requires_grad_(t.requires_grad)


def _found(module: torch.nn.Module, path: str) -> torch.nn.Module | None:
    try:
        return module.get_submodule(path)
    except AttributeError:
        return None


def _differences(spec: ModuleSpec, made: ModuleSpec) -> Iterator[str]:
    """What a description says of the recorded module that the one built from it is not."""
    yield from _setting_differences(spec, made)
    wanted, found = dict(spec.tensors), dict(made.tensors)
    if wanted:
        for name in (*sorted(wanted.keys() - found.keys()), *sorted(found.keys() - wanted.keys())):
            yield f"{name} is there only in the {'recorded' if name in wanted else 'new'} one"
        for name, t in wanted.items():
            if _shown(t) != _shown(found[name]):
                yield f"{name} is {_shown(found[name])} instead of {_shown(t)}"
    inside, parts = dict(spec.parts), dict(made.parts)
    if inside:
        for path in (*sorted(inside.keys() - parts.keys()), *sorted(parts.keys() - inside.keys())):
            yield f"{path} is there only in the {'recorded' if path in inside else 'new'} one"
        for path, part in inside.items():
            if part.unknown != parts[path].unknown:
                yield f"of {path}, {part.unknown or parts[path].unknown}"
            for why in _setting_differences(part, parts[path]):
                yield f"in {path}, {why}"


def _setting_differences(spec: ModuleSpec, made: ModuleSpec) -> Iterator[str]:
    if spec.name != made.name:
        yield f"its class is {made.name} instead of {spec.name}"
    if spec.wrapped != made.wrapped:
        yield "its parametrizations are others"
    found = dict(made.settings)
    for name, value in spec.settings:
        if name not in found or not _same(value, found[name]):
            yield f"{name} is {found.get(name)} instead of {value}"


def _same(a: Argument, b: Argument) -> bool:
    """Equal settings; of tensors the shape counts, of lists and tuples what they hold."""
    if isinstance(a, TensorSpec) and isinstance(b, TensorSpec):
        return a.shape == b.shape
    if isinstance(a, ModuleSpec) and isinstance(b, ModuleSpec):
        return not any(_setting_differences(a, b))
    if isinstance(a, tuple | ListOf) and isinstance(b, tuple | ListOf):
        x, y = (v.items if isinstance(v, ListOf) else v for v in (a, b))
        return len(x) == len(y) and all(map(_same, x, y))
    if isinstance(a, DictOf) and isinstance(b, DictOf):
        return _same(a.pairs, b.pairs)
    return bool(_function(a) == _function(b)) or (a != a and b != b)


def _function(value: Argument) -> Argument:
    """A function by its bare name: what a module is given as "relu" it keeps as a function, and the reverse."""
    named = isinstance(value, Word) and value.kind == "function"
    return re.split("[:.]", value.name)[-1] if named else value


def _shown(t: Argument) -> str:
    kind = getattr(t, "kind", "")
    return f"{t} ({kind})" if kind else str(t)
