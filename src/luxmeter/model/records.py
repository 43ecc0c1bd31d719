"""What an analysis found: plain frozen values. Sizes are in bytes, times in nanoseconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from luxmeter.by_name import by_name

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from luxmeter.model.optimizers import TrainingMemory

FORMAT_VERSION = 1  # of the JSON form; 1: first


class Open:
    """A record with fields that are found out when one of them is first looked at; then it is as any other.

    What the training step costs takes longer to count than all the rest, and is often not asked for.
    """

    @classmethod
    def open(cls, **values: Any) -> Self:
        """A record with these values; fields that are left out stay open until they are filled."""
        made = cls.__new__(cls)
        made.__dict__.update(values)
        return made

    def fill(self, **values: Any) -> None:
        """Set fields of a record that is still being made."""
        self.__dict__.update(values)

    def found_by(self, find: Callable[[], None]) -> None:
        """`find` fills what is open, when something is looked at."""
        self.__dict__["_find"] = find

    def __getattr__(self, name: str) -> Any:  # only for what is not there
        find = self.__dict__.get("_find") if name in type(self).__dict__["__dataclass_fields__"] else None
        if find is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        find()
        return self.__dict__[name]

    def __getstate__(self) -> dict[str, Any]:  # a copy, and what is pickled, has nothing open
        if (find := self.__dict__.get("_find")) is not None:
            find()
        return {name: value for name, value in self.__dict__.items() if name != "_find"}


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
class ModuleCost(Open):
    """One module with all it contains. `own_flops` leaves out what its children do."""

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

    @property
    def index(self) -> int:
        """Which module of the model it is, in torch's order; -1 for a row that was made by hand."""
        return int(self.__dict__.get("_index", -1))

    @property
    def intensity(self) -> float:
        """FLOPs for each byte moved."""
        return self.flops / self.moved_bytes if self.moved_bytes else 0.0


@dataclass(frozen=True)
class Memory(Open):
    """Bytes at rest and at the peak. Training values are None when no training step was counted."""

    weight_bytes: int
    buffer_bytes: int
    input_bytes: int
    gradient_bytes: int
    optimizer: str
    optimizer_bytes: int
    forward_activation_bytes: int
    forward_peak_bytes: int
    training_activation_bytes: int | None
    training_peak_bytes: int | None
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
class ModelCost(Open):
    """What a model costs for one call with the given inputs."""

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
        from luxmeter.model.optimizers import training_memory

        return training_memory(self.params, self.trainable_params, self.memory.trained_tensors)

    def module(self, name: str) -> ModuleCost:
        """The module called `name`; the model itself is the empty name."""
        from luxmeter.model.tree import find

        return find(self, name)

    def tree(self, *, depth: int = 2) -> str:
        """The modules as text, `depth` levels of them, with parameters, MACs and shapes."""
        text: str = by_name("model text")(self, depth=depth)
        return text

    def show(self, *, depth: int = 2, memory: bool = False) -> None:
        """Print the whole report to the terminal; with `memory`, also what training needs by optimizer."""
        by_name("model report")(self, depth=depth, memory=memory)

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, ready for JSON."""
        from luxmeter.model.export import as_dict

        return as_dict(self)

    def to_json(self, path: str | Path | None = None, *, indent: int | None = 2) -> str:
        """JSON text, also written to `path` if given."""
        from luxmeter.model.export import as_json

        return as_json(self, path, indent=indent)

    def to_csv(self, path: str | Path | None = None) -> str:
        """One line a module as CSV text, also written to `path` if given."""
        from luxmeter.model.export import as_csv

        return as_csv(self, path)

    def to_dataframe(self) -> pd.DataFrame:
        """One row a module (needs pandas)."""
        from luxmeter.model.export import as_dataframe

        return as_dataframe(self)

    def to_html(self, path: str | Path | None = None, *, depth: int | None = None) -> str:
        """A page of its own with the tree that folds, also written to `path` if given."""
        page: str = by_name("model page")(self, path, depth=depth)
        return page

    def __str__(self) -> str:
        return self.tree(depth=2)
