"""Several models side by side: every number with its ratio to the first model's (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from luxmeter.by_name import by_name
from luxmeter.errors import UsageError
from luxmeter.model.records import ModelCost
from luxmeter.render import amount, size, span
from luxmeter.verdict import Regression

# What is the worse the more it is, and counted rather than timed.
_COSTS = ("parameters", "MACs", "FLOPs", "backward FLOPs", "weights", "inference peak", "training peak")


@dataclass(frozen=True)
class Line:
    """One quantity of all models; ratios are to the first (None where it is nothing or unknown)."""

    quantity: str
    values: tuple[float | None, ...]
    ratios: tuple[float | None, ...]
    texts: tuple[str, ...]


@dataclass(frozen=True)
class ModelComparison:
    """The models' names and one line a quantity."""

    names: tuple[str, ...]
    lines: tuple[Line, ...]

    def line(self, quantity: str) -> Line:
        """The line of one quantity."""
        return next(line for line in self.lines if line.quantity == quantity)

    def regressions(self, threshold: float) -> list[Regression]:
        """What the last model needs more of than the first, by more than `threshold`: exact numbers, no times."""
        found = []
        for line in self.lines:
            ratio = line.ratios[-1]
            if line.quantity in _COSTS and ratio is not None and ratio - 1 > threshold:
                why = f"{line.texts[0]} and {line.texts[-1]}"
                found.append(Regression(line.quantity, "more", ratio - 1, why))
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, ready for JSON."""
        return {
            "models": list(self.names),
            "quantities": {
                line.quantity: {"values": list(line.values), "ratios": list(line.ratios)}
                for line in self.lines
            },
        }

    def _repr_html_(self) -> str:
        """In a notebook."""
        shown: str = by_name("models html")(self)
        return shown


def compare_models(costs: Sequence[ModelCost]) -> ModelComparison:
    """The costs side by side, the first as the measure; give costs with training, or none, to compare that too."""
    if len(costs) < 2:
        raise UsageError(
            "nothing-to-compare",
            f"{len(costs)} model cannot be compared.",
            "Give at least two costs from lux.analyze.",
        )
    lines = [
        _line("parameters", [c.params for c in costs], amount),
        _line("MACs", [c.macs for c in costs], amount),
        _line("FLOPs", [c.flops for c in costs], amount),
        _line("backward FLOPs", [c.backward_flops for c in costs], amount),
        _line("weights", [c.weight_bytes for c in costs], size),
        _line("activations", [c.activation_bytes for c in costs], size),
        _line("inference peak", [c.peak_bytes for c in costs], size),
        _line("training peak", [c.memory.training_peak_bytes for c in costs], size),
        _line("FLOP/byte", [c.intensity for c in costs], lambda v: f"{v:.2f}"),
        _line("unknown operators", [len(c.unknown_ops) for c in costs], amount),
    ]
    if any(c.latency is not None for c in costs):
        lines.append(_line("latency", [c.latency.median_ns if c.latency else None for c in costs], span))
        speeds = [c.flops / c.latency.median_ns if c.latency else None for c in costs]
        lines.append(_line("GFLOP/s", speeds, lambda v: f"{v:.2f}"))
    return ModelComparison(tuple(c.name for c in costs), tuple(lines))


def _line(quantity: str, values: Sequence[float | None], show: Any) -> Line:
    first = values[0]
    ratios = tuple(None if v is None or not first else v / first for v in values)
    return Line(quantity, tuple(values), ratios, tuple("-" if v is None else show(v) for v in values))
