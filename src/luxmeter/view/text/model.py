"""A cost for the terminal: the numbers in a few lines, the tree, and what stands out."""

from __future__ import annotations

import io
import sys
from typing import IO

from luxmeter.model import ModelComparison, ModelCost, ModuleCost, Share, shares
from luxmeter.render import (
    AMOUNT,
    BYTES,
    DURATION,
    NUMBER,
    SHARE,
    Column,
    Table,
    amount,
    counted,
    size,
    span,
    terminal_width,
    write_lines,
)


def model_text(cost: ModelCost, *, depth: int = 2, width: int | None = None) -> str:
    """The whole report as plain text."""
    stream = io.StringIO()
    model_report(cost, depth=depth, stream=stream, width=width)
    return stream.getvalue().removesuffix("\n")


def model_report(
    cost: ModelCost,
    *,
    depth: int = 2,
    stream: IO[str] | None = None,
    width: int | None = None,
    memory: bool = False,
) -> None:
    """Print the whole report; with `memory`, also what training needs by optimizer."""
    out = stream if stream is not None else sys.stdout
    width = width or terminal_width(out)
    write_lines(summary_lines(cost), out, width=width)
    for table in cost_tables(cost, depth=depth, memory=memory):
        out.write("\n")
        table.print(out, width=width)
    write_lines(warning_lines(cost), out, width=width)


def cost_tables(cost: ModelCost, *, depth: int = 2, memory: bool = False) -> list[Table]:
    """Modules, those slow or fast for their FLOPs, operators; with `memory`, what training needs by optimizer."""
    tables = [_module_table(cost, depth)]
    if cost.latency is not None and (marked := [share for share in shares(cost) if share.mark]):
        tables.append(_share_table(marked))
    tables.append(_operator_table(cost))
    if memory:
        tables.append(memory_table(cost))
    return tables


def summary_lines(cost: ModelCost) -> list[str]:
    """The numbers that matter, one line a subject."""
    memory = cost.memory
    inputs = ", ".join("x".join(map(str, shape)) for shape in cost.input_shapes) or "nothing"
    lines = [
        f"{cost.name}  input {inputs}  {cost.dtype}  (counted on {cost.device})",
        f"  parameters   {amount(cost.params)} ({cost.params:,}), {amount(cost.trainable_params)} train; buffers {amount(cost.buffers)}",
        f"  forward      {amount(cost.macs)} MACs, {amount(cost.flops)} FLOPs, {cost.intensity:.1f} FLOP/byte",
    ]
    if cost.backward_flops is not None:
        times = f" ({cost.backward_flops / cost.flops:.2f}x forward)" if cost.flops else ""
        lines.append(
            f"  backward     {amount(cost.backward_macs or 0)} MACs, {amount(cost.backward_flops)} FLOPs{times}"
        )
    lines.append(
        f"  inference    {size(memory.forward_peak_bytes)} at the peak: weights {size(memory.weight_bytes)}, "
        f"activations {size(memory.forward_activation_bytes)} in all"
    )
    if memory.training_peak_bytes is not None:
        lines.append(
            f"  training     {size(memory.training_peak_bytes)} at the peak: gradients {size(memory.gradient_bytes)}, "
            f"{memory.optimizer or 'no optimizer'} {size(memory.optimizer_bytes)}, kept for backward "
            f"{size(memory.training_activation_bytes or 0)}"
        )
    elif cost.training_step is not None:
        lines.append("  training     not counted yet: backward=True, or .with_training()")
    if cost.latency is not None and cost.batch not in {None, *(b.batch for b in cost.latency.batches)}:
        lines.append(
            f"  latency      batch {cost.batch}, as given: median {span(cost.latency.median_ns)}, "
            f"p95 {span(cost.latency.p95_ns)}; the modules' times are parts of this"
        )
    for batch in cost.latency.batches if cost.latency is not None else ():
        doubt = f"  (doubtful: {batch.doubt})" if batch.doubt else ""
        lines.append(
            f"  latency      batch {batch.batch}: median {span(batch.median_ns)}, p95 {span(batch.p95_ns)}, "
            f"{batch.throughput_per_s:,.1f} samples/s{doubt}"
        )
    return lines


def warning_lines(cost: ModelCost) -> list[str]:
    """What is missing from the numbers, and notes."""
    lines = []
    for unknown in cost.unknown_ops:
        lines.append(
            f"Unknown operator {unknown.name}: {counted(unknown.calls, 'call')} in {', '.join(unknown.modules)} are not in the "
            f"totals ({unknown.reason}). Give its formula with @lux.flops_of({unknown.name!r})."
        )
    return lines + [f"Note: {note}" for note in cost.notes]


def visible(cost: ModelCost, depth: int) -> list[ModuleCost]:
    """The rows down to `depth`."""
    return [row for row in cost.modules if row.depth <= depth]


def _module_table(cost: ModelCost, depth: int) -> Table:
    timed = cost.latency is not None
    columns = [
        Column("module", one_line=True),
        Column("kind", goes=4),
        Column("calls", NUMBER),
        Column("params", AMOUNT),
        Column("MACs", AMOUNT, goes=5),
        Column("FLOPs", AMOUNT),
        Column("%", NUMBER, form=".1f", goes=1),
        Column("backward", AMOUNT, goes=2),
        *([Column("time", DURATION), Column("%", NUMBER, form=".1f", goes=1)] if timed else []),
        Column("output", goes=3),
        Column("note", folds=16),
    ]
    whole_ns = cost.modules[0].time_ns or 0
    rows = []
    for row in visible(cost, depth):
        times = [row.time_ns, _percent(row.time_ns or 0, whole_ns)] if timed else []
        rows.append(
            ["  " * row.depth + (row.name.rpartition(".")[2] or cost.name), row.kind, row.calls, row.params, row.macs,
             row.flops, _percent(row.flops, cost.flops), row.backward_flops if cost.backward_flops is not None else None,
             *times, "x".join(map(str, row.output_shapes[0])) if row.output_shapes else "",
             "; ".join(filter(None, [row.note, _in_itself(row, cost)]))]
        )  # fmt: skip
    return Table(columns, rows)


def _in_itself(row: ModuleCost, cost: ModelCost) -> str:
    """What the modules in a module leave of its time: the work of its own forward."""
    has_modules = any(other.depth == row.depth + 1 and _inside(other, row) for other in cost.modules)
    own, whole = row.own_time_ns, cost.modules[0].time_ns
    return f"{span(own)} in itself" if has_modules and own and whole and own >= 0.01 * whole else ""


def _inside(inner: ModuleCost, outer: ModuleCost) -> bool:
    return not outer.name or inner.name.startswith(f"{outer.name}.")


def _operator_table(cost: ModelCost, limit: int = 10) -> Table:
    columns = [
        Column("operator", one_line=True),
        Column("calls", NUMBER),
        Column("MACs", AMOUNT),
        Column("FLOPs", AMOUNT),
        Column("%", NUMBER, form=".1f", goes=3),
        Column("bytes", BYTES, goes=5),
        Column("FLOP/byte", NUMBER, form=".1f", goes=2),
        Column("backward calls", NUMBER, goes=1),
        Column("backward FLOPs", AMOUNT, goes=4),
    ]
    rows = [
        [op.name, op.calls, op.macs, op.flops, _percent(op.flops, cost.flops), op.moved_bytes,
         op.flops / op.moved_bytes if op.moved_bytes else None, op.backward_calls, op.backward_flops]
        for op in cost.operators[:limit]
    ]  # fmt: skip
    more = len(cost.operators) - limit
    return Table(columns, rows, notes=[f"... and {more} more"] if more > 0 else [])


def _share_table(rows: list[Share]) -> Table:
    columns = [
        Column("modules slow or fast for their FLOPs", one_line=True),
        Column("kind"),
        Column("% of time", SHARE),
        Column("% of FLOPs", SHARE),
        Column("mark"),
    ]
    return Table(columns, [[row.name, row.kind, row.time, row.flops, row.mark] for row in rows])


def comparison_table(together: ModelComparison) -> Table:
    """Several models' costs, each with its ratio to the first one's."""
    rows = []
    for line in together.lines:
        ratios = ["" if r is None or i == 0 else f"  {r:.2f}x" for i, r in enumerate(line.ratios)]
        rows.append([line.quantity, *(text + ratio for text, ratio in zip(line.texts, ratios, strict=True))])
    return Table([Column(""), *map(Column, together.names)], rows)


def memory_table(cost: ModelCost) -> Table:
    """What rests in memory in training, by optimizer and type."""
    sizes = [Column(name, BYTES) for name in ("weights", "gradients", "state", "together")]
    rows = [
        [row.optimizer, row.dtype, row.weight_bytes, row.gradient_bytes, row.optimizer_bytes, row.total_bytes]
        for row in cost.training_memory()
    ]
    return Table([Column("optimizer", one_line=True), Column("numbers"), *sizes], rows)


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None
