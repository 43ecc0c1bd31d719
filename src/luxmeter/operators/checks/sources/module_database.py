"""torch's module database: every layer and loss of `torch.nn` with the inputs that torch's own tests give it."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

from luxmeter.operators.checks.sources.opinfo import no_database, seed_all, seed_lines
from luxmeter.operators.checks.trial import Trial


def cases() -> list[dict[str, Any]]:
    """All cases of the database."""
    names: dict[str, str] = {}
    for info in database():
        names.setdefault(_api(info), info.name)
    return [{"source": "module", "api": api, "name": api, "entry": entry} for api, entry in names.items()]


def dtype_of(case: dict[str, Any], dtype: str, device: str) -> str:
    """The dtype that is asked for, if the module takes it."""
    return dtype if getattr(torch, dtype) in _entry(case["entry"]).dtypes else ""


def trials_of(case: dict[str, Any], *, dtype: str, seed: int, device: str) -> Iterator[Trial]:
    """Each of its inputs, in training and in evaluation."""
    info = _entry(case["entry"])
    kind = getattr(torch, dtype)
    for training in (True, False):
        seed_all(seed)
        given = info.module_inputs_func(info, device="cpu", dtype=kind, requires_grad=True, training=training)
        for number, one in enumerate(list(given)):
            seed_all(seed + number)
            made, inputs = one.constructor_input, one.forward_input
            module: Any = info.module_cls(*made.args, **made.kwargs).to(kind).train(training)
            if inputs is None:
                continue
            if issubclass(info.module_cls, torch.nn.modules.lazy.LazyModuleMixin):
                with torch.no_grad():
                    module(*inputs.args, **inputs.kwargs)  # which makes its parameters
            drawn = _DRAWN.format(
                entry=info.name, seeds=seed_lines(seed), dtype=kind, training=training, number=number,
                own_seeds=seed_lines(seed + number), function=f"function = {_WRITTEN}",
            )  # fmt: skip
            yield Trial(
                case["api"],
                call_module,
                (module, *inputs.args),
                inputs.kwargs,
                written=_WRITTEN,
                drawn=drawn,
            )


_WRITTEN = "(lambda module, *args, **kwargs: (module(*args, **kwargs), list(module.buffers())))"
_DRAWN = """from torch.testing._internal.common_modules import module_db

info = [i for i in module_db if i.name == {entry!r}][0]
{seeds}
one = list(info.module_inputs_func(info, device="cpu", dtype={dtype}, requires_grad=True, training={training}))[{number}]
{own_seeds}
module = info.module_cls(*one.constructor_input.args, **one.constructor_input.kwargs).to({dtype}).train({training})
args, kwargs = (module, *one.forward_input.args), one.forward_input.kwargs
if isinstance(module, torch.nn.modules.lazy.LazyModuleMixin):
    with torch.no_grad():
        module(*args[1:], **kwargs)
{function}
"""


def call_module(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    """The module's result, and its buffers as it leaves them (running statistics)."""
    return module(*args, **kwargs), list(module.buffers())


@functools.cache
def database() -> tuple[Any, ...]:
    """torch's own modules."""
    try:
        from torch.testing._internal.common_modules import module_db
    except ModuleNotFoundError as error:
        raise no_database(error) from error
    return tuple(module_db)


def _entry(name: str) -> Any:
    return next(info for info in database() if info.name == name)


def _api(info: Any) -> str:
    kind = info.module_cls
    name = str(kind.__name__)
    return f"torch.nn.{name}" if getattr(torch.nn, name, None) is kind else f"{kind.__module__}.{name}"
