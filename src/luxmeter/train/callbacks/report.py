"""A report of a training, in its run: tables and curves, whatever way it ended."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from luxmeter import scratch
from luxmeter.by_name import by_name
from luxmeter.errors import MissingExtraError, UsageError
from luxmeter.plain_text import one_line
from luxmeter.render import (
    AMOUNT,
    BYTES,
    NUMBER,
    Chart,
    Column,
    Line,
    Table,
    long_span,
    markdown,
    markdown_text,
    number,
    save_figure,
    smooth,
    sparkline,
    thinned,
)
from luxmeter.store import flatten, layout, records
from luxmeter.train.callbacks.callback import Callback
from luxmeter.train.callbacks.checkpoint import ModelCheckpoint
from luxmeter.train.data import NAMES

if TYPE_CHECKING:
    from luxmeter.store import Run
    from luxmeter.train.trainer import Trainer

_MOST_CHARTS = 12
_MANY_POINTS = 40  # a line of more is drawn smoothed, with what it was behind it
_SMOOTHING = 0.8
_MANY_SIZES = 1000
_CURVE = 24  # letters of a curve in a table


class AutoReport(Callback):
    """Writes `report.md`, the picture `report.svg` and the page `report.html` into the run when the training ends, by an error, too.

    How it ended, metrics with their best and last values, curves (with the package matplotlib), time, parameters, models,
    checkpoints, callbacks. `metrics`: only these, `train/loss` and the like. `luxmeter show RUN` names the files.
    """

    priority = 99

    def __init__(
        self, metrics: Sequence[str] | None = None, *, clock: Callable[[], float] = perf_counter
    ) -> None:
        if isinstance(metrics, str):
            raise UsageError(
                "report-metrics", f"metrics={metrics!r} is one text.", f"Give a list: [{metrics!r}]."
            )
        self.metrics = metrics
        self.path: Path | None = None  # of the last report
        self._clock = clock
        self._began = self._paused_at = 0.0
        self._times = _Times()

    def before_train(self, trainer: Trainer) -> None:
        """Begin to measure."""
        self._began = self._clock()
        self._times.first_step = min(self._times.first_step, trainer.position.global_step)

    def before_eval(self, trainer: Trainer) -> None:
        """What follows is no training."""
        self._paused_at = self._clock()

    def after_eval(self, trainer: Trainer, meter: Any) -> None:
        """The evaluation is over."""
        self._times.evaluating_s += self._clock() - self._paused_at
        self._times.evaluations += 1

    before_test, after_test = before_eval, after_eval

    def after_train(self, trainer: Trainer) -> None:
        """Write the report."""
        self._write(trainer, None)

    def on_exception(self, trainer: Trainer, error: BaseException) -> None:
        """Write the report, with the error."""
        self._write(trainer, error)

    def _write(self, trainer: Trainer, error: BaseException | None) -> None:
        self._times.total_s += self._clock() - self._began
        self._began = self._clock()
        experiment = trainer.experiment
        if experiment is None or experiment.writer is None:
            return
        experiment.flush()
        run, writer = experiment.run, experiment.writer
        shown = self._shown(run)
        picture = ""
        if shown:
            with scratch.folder("report") as folder:
                try:
                    save_figure(charts_of(run, shown), folder / "report.svg")
                    writer.put_file("report.svg", folder / "report.svg")
                    picture = "![The metrics, by step](report.svg)"
                except MissingExtraError as missing:
                    picture = one_line(str(missing))
        text = report_text(trainer, run, shown, self._times, picture, error)
        self.path = writer.put_file("report.md", text)
        said = traceback.format_exception_only(error)[-1].strip() if error is not None else ""
        page = by_name("report page")([run], said=how_it_ended(trainer, error), error=said)
        writer.put_file("report.html", page)
        trainer.logger.info(f"The report: {self.path}, and as a page report.html beside it")

    def _shown(self, run: Run) -> list[str]:
        known = [key for key in run.metrics if not key.startswith(records.SYSTEM)]
        if self.metrics is None:
            return known
        return [key for key in self.metrics if key in run.metrics]


@dataclass
class _Times:
    """What was measured."""

    total_s: float = 0.0
    evaluating_s: float = 0.0
    evaluations: int = 0
    first_step: int = 2**63


def charts_of(run: Run, keys: Iterable[str]) -> list[Chart]:
    """A chart for each name, with the curves of training, evaluation and test in it."""
    together: dict[str, dict[str, str]] = {}
    for key in keys:
        group, _, name = key.partition("/")
        group, name = (group, name) if group in NAMES else (key, key)
        together.setdefault(name, {})[group] = key
    charts = []
    for name, groups in together.items():
        title = name if len(groups) > 1 else next(iter(groups.values()))  # a line alone has no legend
        lines = [_line(run, key, group) for group, key in groups.items()]
        charts.append(Chart(title, "step", lines, log_y=_spans_sizes(lines)))
    return charts[:_MOST_CHARTS]


def _spans_sizes(lines: Sequence[Line]) -> bool:
    """Whether the values are of so many sizes that most of them would lie on the axis."""
    values = np.concatenate([line.y[np.isfinite(line.y)] for line in lines])
    return bool(values.size and values.min() > 0 and values.max() / values.min() > _MANY_SIZES)


def _line(run: Run, key: str, name: str) -> Line:
    points = run.metric(key)
    steps, values = points.steps.astype(np.float64), points.values
    line = Line(name, steps, values)
    if len(steps) > _MANY_POINTS:
        line = Line(name, steps, smooth(values, _SMOOTHING), raw=values)
    return thinned(line)


def report_text(
    trainer: Trainer, run: Run, keys: Sequence[str], times: _Times, picture: str, error: BaseException | None
) -> str:
    """The report, as Markdown."""
    parts = [f"# {markdown_text(run.name)} ({run.id})", how_it_ended(trainer, error)]
    if error is not None and not isinstance(error, KeyboardInterrupt):
        parts.append(_code("".join(traceback.format_exception_only(error)).strip()))
    if run.note:
        parts.append("\n".join(f"> {markdown_text(line)}" for line in run.note.splitlines()))
    if keys:
        parts += ["## Metrics", markdown(_metric_table(run, keys)), picture]
    parts += ["## Time", markdown(_time_table(trainer, times))]
    params = flatten(dict(run.params))
    if params:
        rows = [(name, _value(value)) for name, value in params.items()]
        parts += ["## Parameters", markdown(Table([Column("parameter"), Column("value")], rows))]
    if trainer.models:
        parts += ["## Models", markdown(_model_table(trainer))]
    checkpoints = _checkpoint_table(trainer)
    if checkpoints.rows:
        parts += ["## Checkpoints", f"In `{_folder(trainer, run)}`:", markdown(checkpoints)]
    parts += ["## Callbacks", "In the order they are called:", _code(str(trainer.callbacks))]
    return "\n\n".join(filter(None, parts)) + "\n"


def how_it_ended(trainer: Trainer, error: BaseException | None) -> str:
    """In a sentence."""
    at = trainer.position
    how = (
        "ended" if error is None else "was interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
    )
    return f"The training {how} in epoch {at.begun_epoch} after {at.done} batches."


def _folder(trainer: Trainer, run: Run) -> Path:
    """Where the checkpoints lie; from the report, if they lie in the run, which may be copied elsewhere."""
    folder, files = trainer.saver.folder, run.folder / layout.FILES
    return folder.relative_to(files) if folder.is_relative_to(files) else folder


def _metric_table(run: Run, keys: Sequence[str]) -> Table:
    numbers = [Column(name, NUMBER) for name in ("values", "last", "lowest", "highest")]
    rows = []
    for key in keys:
        points = run.metric(key)
        values = points.values
        at = np.flatnonzero(np.isfinite(values))
        ends = ["-", "-"]
        if len(at):
            found = (at[find(values[at])] for find in (np.argmin, np.argmax))
            ends = [f"{number(float(values[i]))} (step {points.steps[i]})" for i in found]
        rows.append([key, len(values), float(values[-1]), *ends, sparkline(values.tolist(), _CURVE)])
    return Table([Column("metric"), *numbers, Column("curve")], rows)


def _time_table(trainer: Trainer, times: _Times) -> Table:
    batches = trainer.position.done - min(times.first_step, trainer.position.done)
    training_s = times.total_s - times.evaluating_s
    rows = [("in all", long_span(times.total_s)), (f"training, {batches} batches", long_span(training_s))]
    if batches:
        rows.append(("a batch", long_span(training_s / batches)))
    if times.evaluations:
        rows.append((f"evaluation, {times.evaluations} times", long_span(times.evaluating_s)))
    rows.append(("device", f"{trainer.device}, torch {torch.__version__}"))
    return Table([Column("what"), Column("how long")], rows)


def _model_table(trainer: Trainer) -> Table:
    rows = []
    for name, model in trainer.models.items():
        weights = list(model.parameters())
        if not weights:
            continue
        trained = sum(w.numel() for w in weights if w.requires_grad)
        rows.append((name, type(model).__name__, sum(w.numel() for w in weights), trained))
    return Table(
        [Column("model"), Column("class"), Column("weights", AMOUNT), Column("trained", AMOUNT)], rows
    )


def _checkpoint_table(trainer: Trainer) -> Table:
    saver = trainer.saver
    best = {
        one.best_path: f"best {one.monitor.whole}: {one.best:.6g}, epoch {one.monitor.best_epoch}"
        for one in trainer.callbacks
        if isinstance(one, ModelCheckpoint) and one.monitor is not None and one.best is not None
    }
    rows = []
    for kind, paths in (("checkpoint", saver.find_checkpoints()), ("keypoint", saver.find_keypoints())):
        rows += [(Path(path).name, kind, Path(path).stat().st_size, best.get(path)) for path in paths]
    columns = [
        Column("file"),
        Column("kind"),
        Column("size", BYTES),
        Column("what", hidden="empty", missing=""),
    ]
    return Table(columns, rows)


def _code(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _value(value: Any) -> Any:
    return value if isinstance(value, int | float | str) else str(value)
