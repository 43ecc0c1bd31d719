"""What an analysis found: plain frozen values, and the files they are written to. Sizes are in bytes, times in nanoseconds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from luxmeter.by_name import by_name
from luxmeter.csv_text import csv_text
from luxmeter.errors import MissingExtraError, UsageError, suggestion
from luxmeter.files import parsed_json, write_named
from luxmeter.model.optimizers import TrainingMemory, training_memory
from luxmeter.render import amount
from luxmeter.store import put_result

if TYPE_CHECKING:
    import pandas as pd

_FORMAT = "luxmeter.model_cost"
FORMAT_VERSION = 1  # of the JSON form; 1: first


@dataclass(frozen=True)
class OperatorCost:
    """All calls of one operator: forward as in inference, backward as in training."""

    name: str
    calls: int = 0
    macs: int = 0
    flops: int = 0
    moved_bytes: int = 0
    backward_calls: int = 0
    backward_macs: int = 0
    backward_flops: int = 0


@dataclass(frozen=True)
class ModuleCost:
    """One module with all it contains. `own_flops` leaves out what its children do; `index` is its number in torch's order."""

    name: str
    kind: str
    depth: int
    calls: int
    params: int
    own_params: int
    trainable_params: int
    macs: int
    flops: int
    own_macs: int
    own_flops: int
    moved_bytes: int
    backward_macs: int
    backward_flops: int
    activation_bytes: int
    input_shapes: tuple[tuple[int, ...], ...] = ()
    output_shapes: tuple[tuple[int, ...], ...] = ()
    note: str = ""
    time_ns: int | None = None
    own_time_ns: int | None = None
    index: int = field(default=-1, compare=False, repr=False)

    @property
    def intensity(self) -> float:
        """FLOPs for each byte moved."""
        return self.flops / self.moved_bytes if self.moved_bytes else 0.0


@dataclass(frozen=True)
class Memory:
    """Bytes at rest and at the peak. Training values are None when no training step was counted."""

    weight_bytes: int
    buffer_bytes: int
    input_bytes: int
    gradient_bytes: int
    optimizer: str
    optimizer_bytes: int
    forward_activation_bytes: int
    forward_peak_bytes: int
    training_activation_bytes: int | None = None
    training_peak_bytes: int | None = None
    trained_tensors: int = 0


@dataclass(frozen=True)
class BatchLatency:
    """Times of forward passes with one batch size."""

    batch: int
    times_ns: tuple[float, ...]
    median_ns: float
    p95_ns: float
    doubt: str = ""  # why the median is not known as well as wished

    @property
    def throughput_per_s(self) -> float:
        """Samples a second at the median."""
        return self.batch * 1e9 / self.median_ns if self.median_ns else 0.0


@dataclass(frozen=True)
class Latency:
    """Measured forward passes: of the given inputs, and for each batch size asked for."""

    median_ns: float
    p95_ns: float
    batches: tuple[BatchLatency, ...]
    threads: int
    device: str


@dataclass(frozen=True)
class UnknownOperator:
    """An operator nobody gave a formula for: its work is missing from the totals."""

    name: str
    calls: int
    shapes: tuple[tuple[int, ...], ...]
    modules: tuple[str, ...]
    reason: str = "no formula"


@dataclass(frozen=True)
class ModelCost:
    """What a model costs for one call with the given inputs.

    What belongs to a training step (`backward_macs`, `backward_flops`, the training values of `memory`, the backward
    columns of `modules` and `operators`) is None, or 0 in a row, until it is counted: `with_training` gives the whole.
    """

    name: str
    params: int
    trainable_params: int
    buffers: int
    macs: int
    flops: int
    backward_macs: int | None
    backward_flops: int | None
    optimizer_flops: int | None
    moved_bytes: int
    memory: Memory
    modules: tuple[ModuleCost, ...]
    operators: tuple[OperatorCost, ...]
    unknown_ops: tuple[UnknownOperator, ...]
    device: str
    dtype: str
    batch: int | None
    input_shapes: tuple[tuple[int, ...], ...]
    output_shapes: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...]
    latency: Latency | None = None
    seconds: float = field(default=0.0, compare=False)
    training_step: Callable[[ModelCost], ModelCost] | None = field(default=None, compare=False, repr=False)

    def with_training(self) -> ModelCost:
        """The same with a training step counted, which is run now: it takes longer than all the rest.

        Until then the cost holds on to the model. The cost itself if that is done, or was left out (`backward=False`).
        Inside a run it is put into it.
        """
        return self if self.training_step is None else put_cost(self.training_step(self))

    def __getstate__(self) -> dict[str, Any]:  # copies and pickles leave the model behind
        return {**self.__dict__, "training_step": None}

    @property
    def title(self) -> str:
        """In a line: how large it is, and for which inputs."""
        shapes = ", ".join("x".join(map(str, shape)) for shape in self.input_shapes)
        said = f"{self.name}: {amount(self.params)} parameters, {amount(self.macs)} MACs"
        return f"{said} for {shapes} in {self.dtype}"

    @property
    def weight_bytes(self) -> int:
        """Bytes of all parameters, shared ones once."""
        return self.memory.weight_bytes

    @property
    def activation_bytes(self) -> int:
        """Bytes of everything the operators of one forward pass make."""
        return self.memory.forward_activation_bytes

    @property
    def peak_bytes(self) -> int:
        """The most that is alive at once in inference: weights, buffers, inputs and activations."""
        return self.memory.forward_peak_bytes

    @property
    def intensity(self) -> float:
        """FLOPs for each byte moved, if every operator reads and writes memory once."""
        return self.flops / self.moved_bytes if self.moved_bytes else 0.0

    def training_memory(self) -> tuple[TrainingMemory, ...]:
        """Weights, gradients and optimizer state for the common optimizers and types of numbers."""
        return training_memory(self.params, self.trainable_params, self.memory.trained_tensors)

    def module(self, name: str) -> ModuleCost:
        """The module called `name`; the model itself is the empty name."""
        for row in self.modules:
            if row.name == name:
                return row
        raise UsageError(
            "unknown-module",
            f"{self.name} has no module called {name!r}.",
            suggestion(name, [row.name for row in self.modules]) or "See the names in .modules.",
        )

    def tree(self, *, depth: int = 2) -> str:
        """The modules as text, `depth` levels of them, with parameters, MACs and shapes."""
        text: str = by_name("model text")(self, depth=depth)
        return text

    def show(self, *, depth: int = 2, memory: bool = False) -> None:
        """Print the whole report to the terminal; with `memory`, also what training needs by optimizer."""
        by_name("model report")(self, depth=depth, memory=memory)

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, ready for JSON; the totals that are properties are in it too."""
        plain = _lists(asdict(replace(self, training_step=None)))
        del plain["training_step"]
        for row in plain["modules"]:
            del row["index"]
        for batch in (plain["latency"] or {}).get("batches", ()):
            batch["throughput_per_s"] = (
                batch["batch"] * 1e9 / batch["median_ns"] if batch["median_ns"] else 0.0
            )
        totals = {
            name: getattr(self, name)
            for name in ("weight_bytes", "activation_bytes", "peak_bytes", "intensity")
        }
        return {"format": _FORMAT, "format_version": FORMAT_VERSION, **plain, **totals}

    def to_json(self, path: str | Path | None = None, *, indent: int | None = 2) -> str:
        """JSON text, also written to `path` if given."""
        return written(json.dumps(self.to_dict(), indent=indent, default=str), path)

    def to_csv(self, path: str | Path | None = None) -> str:
        """One line a module as CSV text, also written to `path` if given."""
        lines = [_flat(row) for row in self.modules]
        return written(csv_text([list(lines[0]), *(list(line.values()) for line in lines)]), path)

    def to_dataframe(self) -> pd.DataFrame:
        """One row a module, indexed by name (needs pandas)."""
        try:
            import pandas
        except ImportError:
            raise MissingExtraError(
                "needs-pandas",
                "A DataFrame was asked for and pandas is not installed.",
                "Install it: pip install pandas.",
            ) from None
        return pandas.DataFrame.from_records([_flat(row) for row in self.modules]).set_index("name")

    def to_html(self, path: str | Path | None = None, *, depth: int | None = None) -> str:
        """A page of its own with the tree that folds, also written to `path` if given."""
        page: str = by_name("model page")(self, path, depth=depth)
        return page

    def __str__(self) -> str:
        return self.tree(depth=2)

    def _repr_html_(self) -> str:
        """In a notebook."""
        shown: str = by_name("model html")(self)
        return shown


def put_cost(cost: ModelCost) -> ModelCost:
    """The cost, put into the run that it was counted in."""
    put_result("model", cost.title, "model.json", cost.to_json)
    return cost


def load_cost(path: str | Path) -> ModelCost:
    """What `ModelCost.to_json` wrote."""
    from pydantic import TypeAdapter

    try:
        said = parsed_json(Path(path).read_text(encoding="utf-8"))
        if said["format"] != _FORMAT or said["format_version"] > FORMAT_VERSION:
            raise ValueError(f"it is {said['format']!r}, version {said['format_version']!r}")
        return TypeAdapter(ModelCost).validate_python({**said, "training_step": None})
    except OSError as error:
        raise UsageError("cost-unreadable", f"{path} cannot be read: {error}.", "Check the path.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            "cost-damaged",
            f"{path} is no model's cost: {' '.join(str(error).split())[:200]}.",
            "Give a file that ModelCost.to_json wrote.",
        ) from error


def _lists(value: Any) -> Any:
    """The value with lists for tuples, as JSON has it."""
    if isinstance(value, dict):
        return {key: _lists(item) for key, item in value.items()}
    return [_lists(item) for item in value] if isinstance(value, list | tuple) else value


def _flat(row: ModuleCost) -> dict[str, Any]:
    """A module as one flat record; shapes as text."""
    plain = {f.name: getattr(row, f.name) for f in fields(row) if f.name != "index"}
    for name in ("input_shapes", "output_shapes"):
        plain[name] = " ".join("x".join(map(str, shape)) for shape in plain[name])
    return {**plain, "intensity": row.intensity}


def written(text: str, path: str | Path | None) -> str:
    """`text`, written to `path` if there is one."""
    if path is None:
        return text
    write_named(Path(path), text.encode())
    return text
