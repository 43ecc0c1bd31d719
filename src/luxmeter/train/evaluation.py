"""What an evaluation of a run gave, as the run holds it (`RUN/eval`)."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from luxmeter.errors import StoreError
from luxmeter.files import read_json, write_json
from luxmeter.plain_text import one_line
from luxmeter.render import NUMBER, Column, Table

FILE = "eval.json"
# Format history of eval.json
# 1: format, and the fields of Evaluation.
FORMAT = 1


@dataclass(frozen=True)
class Evaluation:
    """The metrics of a run's Trainer on its eval or test data, with the weights of one of its checkpoints."""

    run: str  # its id
    trainer: str  # the class
    on: str  # eval or test
    checkpoint: str  # the file
    step: int
    epoch: int
    device: str
    metrics: Mapping[str, float]
    shown: Mapping[str, str] = field(default_factory=dict)  # as the Trainer's meter prints them
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """In a line."""
        told = ", ".join(
            f"{name} {self.shown.get(name, f'{value:.4g}')}" for name, value in self.metrics.items()
        )
        return f"{self.on} at step {self.step}: {told}"

    def table(self) -> Table:
        """A row for each metric."""
        rows = [[name, self.shown.get(name, value)] for name, value in self.metrics.items()]
        return Table([Column("metric"), Column("value", NUMBER)], rows)

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {**asdict(self), "notes": list(self.notes)}

    def save(self, path: Path) -> None:
        """Write it to a file."""
        write_json(path, {"format": FORMAT, **self.to_dict()})

    def show(self, stream: IO[str] | None = None) -> None:
        """Print it."""
        out = stream if stream is not None else sys.stdout
        self.table().print(out)
        file = one_line(Path(self.checkpoint).name)
        out.write(
            f"{self.on} of {one_line(self.trainer)} at step {self.step} (epoch {self.epoch}), {file}, on {one_line(self.device)}\n"
        )

    def __str__(self) -> str:
        out = io.StringIO()
        self.show(out)
        return out.getvalue().removesuffix("\n")

    def _repr_html_(self) -> str:
        """In a notebook."""
        from luxmeter.render import repr_html

        return repr_html(self.table(), title=self.title)


def load_evaluation(path: Path) -> Evaluation:
    """What `save` wrote."""
    return read_evaluation(read_json(path), path)


def read_evaluation(said: Any, path: Path) -> Evaluation:
    """An evaluation from plain values, checked: they may come from elsewhere."""
    try:
        if said["format"] > FORMAT:
            raise StoreError(
                "eval-format",
                f"{path} has format {said['format']}; this version reads up to {FORMAT}.",
                "Update luxmeter to read it.",
            )
        return Evaluation(
            run=str(said["run"]),
            trainer=str(said["trainer"]),
            on=str(said["on"]),
            checkpoint=str(said["checkpoint"]),
            step=int(said["step"]),
            epoch=int(said["epoch"]),
            device=str(said["device"]),
            metrics={str(name): float(value) for name, value in said["metrics"].items()},
            shown={str(name): str(text) for name, text in said["shown"].items()},
            notes=tuple(str(note) for note in said["notes"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise StoreError(
            "eval-format",
            f"{path} holds no evaluation: {error!r}.",
            "Evaluate the run again with luxmeter eval.",
        ) from error
