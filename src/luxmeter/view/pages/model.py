"""A cost as one HTML page that needs nothing else: numbers, a treemap, the tree that folds, operators, what is unknown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from luxmeter.model import ModelComparison, ModelCost, ModuleCost, compare_models, shares, written
from luxmeter.render import (
    AMOUNT,
    BYTES,
    DURATION,
    NUMBER,
    SHARE,
    Column,
    Html,
    Part,
    Table,
    card,
    element,
    joined,
    pairs,
    table_html,
    tabs,
    tree_html,
    treemap_html,
)
from luxmeter.view.text.model import summary_lines, warning_lines
from luxmeter.view.web import page

KINDS = ("convolution", "linear", "attention", "normalisation", "activation", "embedding", "pooling", "other")
# Parts of a class' name, the first that fits counts.
_NAMED = (
    ("attention", "attention"), ("norm", "normalisation"), ("embedding", "embedding"), ("pool", "pooling"), ("conv", "convolution"),
    ("linear", "linear"), ("relu", "activation"), ("gelu", "activation"), ("silu", "activation"), ("sigmoid", "activation"),
    ("tanh", "activation"), ("softmax", "activation"), ("hardswish", "activation"), ("mish", "activation"), ("elu", "activation"),
)  # fmt: skip


def model_page(cost: ModelCost, path: str | Path | None, *, depth: int | None = None) -> str:
    """The page, also written to `path`; the tree is open down to `depth`."""
    return written(page(cost.name, model_html(cost, depth=depth)), path)


def models_page(costs: Sequence[ModelCost], path: str | Path | None = None) -> str:
    """Several models on one page: their numbers side by side, then each by itself."""
    title = " and ".join(cost.name for cost in costs) if len(costs) == 2 else f"{len(costs)} models"
    names = [cost.name if [c.name for c in costs].count(cost.name) == 1 else f"{cost.name} ({i + 1})" for i, cost in enumerate(costs)]  # fmt: skip
    maps = [card(name, treemap_of(cost)) for name, cost in zip(names, costs, strict=True)]
    each = tabs({name: model_html(cost) for name, cost in zip(names, costs, strict=True)})
    body = (
        card("Side by side", models_html(compare_models(costs))),
        element("div", *maps, class_="lux-two"),
        element("h2", "Each by itself"),
        each,
    )
    return written(page(title, *body), path)


def models_html(together: ModelComparison) -> Html:
    """One line a quantity, each with its ratio to the first model's."""
    first, *others = together.names
    columns = [Column(""), Column(first, NUMBER)]
    for name in others:
        columns += [Column(name, NUMBER), Column(f"/ {first}", NUMBER, form=".2f", missing="")]
    rows = []
    for line in together.lines:
        pairs = zip(line.texts[1:], line.ratios[1:], strict=True)
        rows.append([line.quantity, line.texts[0], *(cell for pair in pairs for cell in pair)])
    return table_html(Table(columns, rows))


def model_html(cost: ModelCost, *, depth: int | None = None) -> Html:
    """Its numbers, the treemap, the tree, operators and warnings: as parts of a page."""
    head, *lines = summary_lines(cost)
    numbers: dict[str, list[str]] = {}
    for line in lines:
        subject, _, rest = line.strip().partition(" ")
        numbers.setdefault(subject, []).append(rest.strip())
    return joined(
        (
            card(
                "In numbers",
                pairs({subject: "; ".join(said) for subject, said in numbers.items()}),
                quiet=head,
            ),
            *(element("p", line, class_="lux-warn") for line in warning_lines(cost)),
            card("What it is made of", treemap_of(cost)),
            card("Modules", _tree(cost, 2 if depth is None else depth)),
            _parting(cost),
            card("Operators", _operators(cost)),
        )
    )


def treemap_of(cost: ModelCost) -> Html:
    """Areas are FLOPs, parameters, activations or time."""
    measures = {"FLOPs": "amount", "parameters": "amount", "activations": "bytes"}
    if cost.latency is not None:
        measures["time"] = "duration"
    rows = list(cost.modules)

    def values(row: ModuleCost) -> list[float]:
        found = [float(row.flops), float(row.params), float(row.activation_bytes)]
        return [*found, float(row.time_ns or 0)] if cost.latency is not None else found

    def build(at: int) -> tuple[Part, int]:
        row, inner, next_ = rows[at], [], at + 1
        while next_ < len(rows) and rows[next_].depth > row.depth:
            part, next_ = build(next_)
            inner.append(part)
        return Part(row.kind, row.name, values(row), module_kind(row.kind), inner), next_

    if not rows:
        return element("p", "no module was counted", class_="lux-quiet")
    return treemap_html(build(0)[0], measures, KINDS)


def module_kind(name: str) -> int:
    """The number of the kind that a module's class is of, by its name."""
    low = name.lower()
    return KINDS.index(next((kind for part, kind in _NAMED if part in low), "other"))


def _tree(cost: ModelCost, open_to: int) -> Html:
    timed = cost.latency is not None
    columns = [
        Column("module"), Column("kind"), Column("calls", NUMBER), Column("parameters", AMOUNT), Column("MACs", AMOUNT), Column("FLOPs", AMOUNT),
        Column("of all", SHARE, bar=True), Column("backward", AMOUNT), Column("activations", BYTES), *([Column("time", DURATION)] if timed else []),
        Column("output"), Column("note", hidden="empty"),
    ]  # fmt: skip
    rows = [
        [
            row.name.rpartition(".")[2] or cost.name, row.kind, row.calls, row.params, row.macs, row.flops,
            row.flops / cost.flops if cost.flops else None, row.backward_flops, row.activation_bytes, *([row.time_ns] if timed else []),
            " ".join("x".join(map(str, s)) for s in row.output_shapes[:2]), row.note or None,
        ]
        for row in cost.modules
    ]  # fmt: skip
    names = [row.name for row in cost.modules]
    return tree_html(columns, rows, [row.depth for row in cost.modules], names=names, open_to=open_to)


def _parting(cost: ModelCost) -> Html | None:
    marked = [share for share in shares(cost) if share.mark] if cost.latency is not None else []
    if not marked:
        return None
    columns = [
        Column("module"),
        Column("kind"),
        Column("of time", SHARE, bar=True),
        Column("of FLOPs", SHARE, bar=True),
        Column("mark"),
    ]
    rows = [[s.name, s.kind, s.time, s.flops, s.mark] for s in marked]
    return card("Modules slow or fast for their FLOPs", table_html(Table(columns, rows)))


def _operators(cost: ModelCost) -> Html:
    columns = [
        Column("operator"), Column("calls", NUMBER), Column("MACs", AMOUNT), Column("FLOPs", AMOUNT), Column("moved", BYTES),
        Column("backward calls", NUMBER), Column("backward FLOPs", AMOUNT),
    ]  # fmt: skip
    return table_html(Table(columns, list(_operator_rows(cost))))


def _operator_rows(cost: ModelCost) -> Iterator[list[object]]:
    for o in cost.operators:
        yield [o.name, o.calls, o.macs, o.flops, o.moved_bytes, o.backward_calls, o.backward_flops]
