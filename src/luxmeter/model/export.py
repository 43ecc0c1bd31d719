"""A cost as JSON (and back), CSV and DataFrame."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from luxmeter.errors import MissingExtraError, UsageError
from luxmeter.model.records import FORMAT_VERSION, ModelCost, ModuleCost
from luxmeter.render import amount

if TYPE_CHECKING:
    import pandas as pd

_FORMAT = "luxmeter.model_cost"


def as_dict(cost: ModelCost) -> dict[str, Any]:
    """Plain values only; the totals that are properties are in it too."""
    plain = _lists(asdict(cost))
    for batch in (plain["latency"] or {}).get("batches", ()):
        batch["throughput_per_s"] = batch["batch"] * 1e9 / batch["median_ns"] if batch["median_ns"] else 0.0
    totals = {
        name: getattr(cost, name) for name in ("weight_bytes", "activation_bytes", "peak_bytes", "intensity")
    }
    return {"format": _FORMAT, "format_version": FORMAT_VERSION, **plain, **totals}


def _lists(value: Any) -> Any:
    """The value with lists for tuples, as JSON has it."""
    if isinstance(value, dict):
        return {key: _lists(item) for key, item in value.items()}
    return [_lists(item) for item in value] if isinstance(value, list | tuple) else value


def as_json(cost: ModelCost, path: str | Path | None, *, indent: int | None = 2) -> str:
    """JSON text, also written to `path`."""
    return written(json.dumps(as_dict(cost), indent=indent, default=str), path)


def load_cost(path: str | Path) -> ModelCost:
    """What `ModelCost.to_json` wrote."""
    from pydantic import TypeAdapter

    try:
        said = json.loads(Path(path).read_text(encoding="utf-8"))
        if said["format"] != _FORMAT or said["format_version"] > FORMAT_VERSION:
            raise ValueError(f"it is {said['format']!r}, version {said['format_version']!r}")
        return TypeAdapter(ModelCost).validate_python(said)
    except OSError as error:
        raise UsageError("cost-unreadable", f"{path} cannot be read: {error}.", "Check the path.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            "cost-damaged",
            f"{path} is no model's cost: {' '.join(str(error).split())[:200]}.",
            "Give a file that ModelCost.to_json wrote.",
        ) from error


def title_of(cost: ModelCost) -> str:
    """A cost in a line; nothing is counted for it."""
    shapes = ", ".join("x".join(map(str, shape)) for shape in cost.input_shapes)
    said = f"{cost.name}: {amount(cost.params)} parameters, {amount(cost.macs)} MACs"
    return f"{said} for {shapes} in {cost.dtype}"


_LISTS = ("input_shapes", "output_shapes")


def module_records(cost: ModelCost) -> list[dict[str, Any]]:
    """One flat record a module; shapes as text."""
    rows = []
    for row in cost.modules:
        plain = {f.name: getattr(row, f.name) for f in fields(ModuleCost)}
        for name in _LISTS:
            plain[name] = " ".join("x".join(map(str, shape)) for shape in plain[name])
        rows.append({**plain, "intensity": row.intensity})
    return rows


def as_csv(cost: ModelCost, path: str | Path | None) -> str:
    """CSV text with a line a module, also written to `path`."""
    records = module_records(cost)
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return written(stream.getvalue(), path)


def as_dataframe(cost: ModelCost) -> pd.DataFrame:
    """One row a module, indexed by name."""
    try:
        import pandas
    except ImportError:
        raise MissingExtraError(
            "needs-pandas",
            "A DataFrame was asked for and pandas is not installed.",
            "Install it: pip install pandas.",
        ) from None
    return pandas.DataFrame.from_records(module_records(cost)).set_index("name")


def written(text: str, path: str | Path | None) -> str:
    """`text`, written to `path` if there is one."""
    if path is None:
        return text
    target = Path(path)
    if not target.parent.is_dir():
        raise UsageError(
            "no-such-folder",
            f"{target} cannot be written: there is no folder {target.parent}.",
            "Make the folder first.",
        )
    target.write_text(text, encoding="utf-8")
    return text
