"""Parameters and metrics in whatever form a program has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from luxmeter.described import DescribedMapping, described, fields_of
from luxmeter.errors import UsageError
from luxmeter.store import number_of


def plain_params(params: Any) -> DescribedMapping:
    """Nested dicts of a Params, mapping, dataclass, pydantic model or argparse namespace, as they are kept.

    Values that JSON has no word for are described. In what kind of object the outermost names stood is not kept.
    """
    if params is None:
        return DescribedMapping()
    fields = params if isinstance(params, Mapping) else fields_of(params)
    if fields is not None:
        kept: DescribedMapping = described(fields)
        return kept
    method = getattr(params, "to_dict", None)
    if callable(method) and not isinstance(params, type):
        return plain_params(method())
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
