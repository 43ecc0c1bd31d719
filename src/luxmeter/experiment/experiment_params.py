"""Parameters and metrics in whatever form a program has them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from luxmeter.errors import UsageError
from luxmeter.store.values import number_of


def plain_params(params: Any) -> dict[str, Any]:
    """Nested dicts of a Params, mapping, dataclass, pydantic model or argparse namespace."""
    if params is None:
        return {}
    if isinstance(params, Mapping):
        return {str(name): _inner(value) for name, value in params.items()}
    if dataclasses.is_dataclass(params) and not isinstance(params, type):
        return {field.name: _inner(getattr(params, field.name)) for field in dataclasses.fields(params)}
    for way in ("to_dict", "model_dump"):  # Params; pydantic
        method = getattr(params, way, None)
        if callable(method) and not isinstance(params, type):
            return plain_params(method())
    if type(params).__name__ == "Namespace":  # argparse, and those who imitate it
        return plain_params(vars(params))
    raise UsageError(
        "params-kind",
        f"Parameters cannot be a {type(params).__name__}: {str(params)[:80]!r}.",
        "Pass a Params, a dict, a dataclass, a pydantic model or an argparse namespace.",
    )


def several(values: Any) -> Mapping[str, Any]:
    """The metrics in a mapping, or the numbers in a Meter or AvgMeter (of which the averages)."""
    if isinstance(values, Mapping):
        return values
    if hasattr(values, "to_dict") and hasattr(values, "scalars"):
        return {name: value for name, value in values.to_dict().items() if number_of(value) is not None}
    raise UsageError(
        "log-what",
        f"log() was given a {type(values).__name__}.",
        'Log a dict, a Meter, or a name and a value: log("loss", 0.3, step=7).',
    )


def _inner(value: Any) -> Any:
    nested = isinstance(value, Mapping) or (dataclasses.is_dataclass(value) and not isinstance(value, type))
    return plain_params(value) if nested else value
