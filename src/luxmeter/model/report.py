"""A cost for the terminal: the numbers in a few lines, the tree, and what stands out."""

from __future__ import annotations

import io
import sys
from typing import IO, TYPE_CHECKING

from luxmeter.model.hotspots import Share, shares
from luxmeter.model.records import ModelCost, ModuleCost
from luxmeter.render.amounts import amount, size, span
from luxmeter.render.tables import console_to

if TYPE_CHECKING:
    from rich.table import Table


def as_text(cost: ModelCost, *, depth: int = 2, width: int = 140) -> str:
    """The whole report as plain text."""
    stream = io.StringIO()
    show(cost, depth=depth, stream=stream, width=width)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def show(
    cost: ModelCost,
    *,
    depth: int = 2,
    stream: IO[str] | None = None,
    width: int | None = None,
    memory: bool = False,
) -> None:
    """Print the whole report; with `memory`, also what training needs by optimizer."""
    out = stream if stream is not None else sys.stdout
    console = console_to(out, width=width or (None if out.isatty() else 140))
    for line in summary_lines(cost):
        console.print(line)
    console.print()
    console.print(_module_table(cost, depth))
    if cost.latency is not None:
        marked = [share for share in shares(cost) if share.mark]
        if marked:
            console.print()
            console.print(_share_table(marked))
    console.print()
    console.print(_operator_table(cost))
    if memory:
        console.print()
        console.print(memory_table(cost))
    for line in warning_lines(cost):
        console.print(line)


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
            f"Unknown operator {unknown.name}: {unknown.calls} calls in {', '.join(unknown.modules)} are not in the "
            f"totals ({unknown.reason}). Give its formula with @lux.flops_of({unknown.name!r})."
        )
    return lines + [f"Note: {note}" for note in cost.notes]


def visible(cost: ModelCost, depth: int) -> list[ModuleCost]:
    """The rows down to `depth`."""
    return [row for row in cost.modules if row.depth <= depth]


def _module_table(cost: ModelCost, depth: int) -> Table:
    timed = cost.latency is not None
    table = _table(
        "module",
        "kind",
        *(("calls", "params", "MACs", "FLOPs", "%", "backward")),
        *(("time", "%") if timed else ()),
        "output",
        "note",
    )
    whole_ns = cost.modules[0].time_ns or 0
    for row in visible(cost, depth):
        name = "  " * row.depth + (row.name.rpartition(".")[2] or cost.name)
        cells = [
            name, row.kind, str(row.calls), amount(row.params), amount(row.macs), amount(row.flops),
            _percent(row.flops, cost.flops), amount(row.backward_flops) if cost.backward_flops is not None else "-",
        ]  # fmt: skip
        if timed:
            cells += [
                span(row.time_ns) if row.time_ns is not None else "-",
                _percent(row.time_ns or 0, whole_ns),
            ]
        shape = "x".join(map(str, row.output_shapes[0])) if row.output_shapes else ""
        table.add_row(*cells, shape, "; ".join(filter(None, [row.note, _in_itself(row, cost)])))
    return table


def _in_itself(row: ModuleCost, cost: ModelCost) -> str:
    """What the modules in a module leave of its time: the work of its own forward."""
    has_modules = any(other.depth == row.depth + 1 and _inside(other, row) for other in cost.modules)
    own, whole = row.own_time_ns, cost.modules[0].time_ns
    return f"{span(own)} in itself" if has_modules and own and whole and own >= 0.01 * whole else ""


def _inside(inner: ModuleCost, outer: ModuleCost) -> bool:
    return not outer.name or inner.name.startswith(f"{outer.name}.")


def _operator_table(cost: ModelCost, limit: int = 10) -> Table:
    table = _table(
        "operator",
        "calls",
        "MACs",
        "FLOPs",
        "%",
        "bytes",
        "FLOP/byte",
        "backward calls",
        "backward FLOPs",
        text=1,
    )
    for op in cost.operators[:limit]:
        table.add_row(
            op.name, str(op.calls), amount(op.macs), amount(op.flops), _percent(op.flops, cost.flops),
            size(op.moved_bytes), f"{op.flops / op.moved_bytes:.1f}" if op.moved_bytes else "-",
            str(op.backward_calls), amount(op.backward_flops),
        )  # fmt: skip
    if len(cost.operators) > limit:
        table.add_row(f"... and {len(cost.operators) - limit} more", *[""] * 8)
    return table


def _share_table(rows: list[Share]) -> Table:
    table = _table("where time and FLOPs part", "kind", "% of time", "% of FLOPs", "mark")
    for row in rows:
        table.add_row(row.name, row.kind, f"{row.time:.1%}", f"{row.flops:.1%}", row.mark)
    return table


def memory_table(cost: ModelCost) -> Table:
    """What rests in memory in training, by optimizer and type."""
    table = _table("optimizer", "numbers", "weights", "gradients", "state", "together")
    for row in cost.training_memory():
        sizes = (row.weight_bytes, row.gradient_bytes, row.optimizer_bytes, row.total_bytes)
        table.add_row(row.optimizer, row.dtype, *(size(n) for n in sizes))
    return table


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"


def _table(*columns: str, text: int = 2) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, column in enumerate(columns):
        left = i < text or column in ("output", "note", "mark")
        table.add_column(column, justify="left" if left else "right", no_wrap=i == 0, overflow="fold")
    return table
