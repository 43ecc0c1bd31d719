"""From a tree of module calls to one row a module: own costs, and with all it called."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from torch import nn

from luxmeter.errors import UsageError, suggestion
from luxmeter.model.passes import Pass
from luxmeter.model.records import ModelCost, ModuleCost, OperatorCost, UnknownOperator
from luxmeter.model.watch import CallNode

_Totals = dict[int, list[int]]


class Sums(NamedTuple):
    """Costs (calls, MACs, FLOPs, bytes) by module index; -1 is everything."""

    own: _Totals
    total: _Totals


def module_rows(
    model: nn.Module, forward: Pass, sums: Sums, training: Pass | None, back: Sums | None
) -> tuple[ModuleCost, ...]:
    """Every module in the order of the model, the model itself first under the empty name."""
    modules = list(model.named_modules())
    also = _other_names(forward.names, [(name, id(m)) for name, m in modules])
    own, total = sums
    back_total: _Totals = back.total if back is not None else {}
    calls, made = _calls(forward.watch.root)
    sizes = _params(forward)
    rows = []
    for index, (name, module) in enumerate(modules):
        if index and "_orig_mod" in module._modules:
            continue  # the shell that torch.compile puts around a module: what is in it has its own row
        params, own_params, trainable = sizes.get(name, (0, 0, 0))
        seen_in, seen_out = forward.watch.shapes.get(index, ((), ()))
        o, t = own.get(index, _ZERO), total.get(index, _ZERO)
        b = back_total.get(index, _ZERO)
        notes = [f"also {', '.join(also[index])}"] if index in also else []
        if index and not calls.get(index):
            notes.append("not called")
        rows.append(
            ModuleCost(
                name=plain_name(name), kind=type(module).__name__, depth=plain_name(name).count(".") + 1 if name else 0,
                calls=calls.get(index, 0), params=params, own_params=own_params, trainable_params=trainable,
                macs=t[1], flops=t[2], own_macs=o[1], own_flops=o[2], moved_bytes=t[3],
                backward_macs=b[1], backward_flops=b[2], activation_bytes=made.get(index, 0),
                input_shapes=seen_in, output_shapes=seen_out, note="; ".join(notes),
            )
        )  # fmt: skip
    first, everything, outside = rows[0], total[-1], own[-1]
    behind = back_total.get(-1, _ZERO)
    rows[0] = replace(
        first, macs=everything[1], flops=everything[2], moved_bytes=everything[3], backward_macs=behind[1],
        backward_flops=behind[2], own_macs=first.own_macs + outside[1], own_flops=first.own_flops + outside[2],
        activation_bytes=forward.made_bytes,
    )  # fmt: skip
    return tuple(_with_containers(rows))


_ZERO = [0, 0, 0, 0]


def plain_name(name: str) -> str:
    """A module's name without what torch.compile puts into it."""
    return ".".join(part for part in name.split(".") if part != "_orig_mod") if "_orig_mod" in name else name


_ADDED = (
    "macs", "flops", "moved_bytes", "backward_macs", "backward_flops", "activation_bytes",
)  # fmt: skip


def _with_containers(rows: list[ModuleCost]) -> list[ModuleCost]:
    """Lists and namespaces are never called themselves: they cost what their children do."""
    by_name = {row.name: row for row in rows}
    children: dict[str, list[str]] = defaultdict(list)
    for row in rows[1:]:
        children[row.name.rpartition(".")[0]].append(row.name)
    for row in reversed(rows[1:]):
        below = [by_name[name] for name in children[row.name]]
        if row.calls == 0 and any(b.calls or b.flops for b in below):
            sums = {field: sum(getattr(b, field) for b in below) for field in _ADDED}
            note = "; ".join(n for n in row.note.split("; ") if n and n != "not called")
            by_name[row.name] = replace(row, **sums, note=note)
    return [by_name[row.name] for row in rows]


def _walk(node: CallNode) -> Iterator[CallNode]:
    yield node
    for child in node.children.values():
        yield from _walk(child)


def sums_of(root: CallNode, *, backward: bool) -> Sums:
    """Own and total costs of every module; a module inside itself is counted once in its total."""
    own: _Totals = defaultdict(lambda: [0, 0, 0, 0])
    total: _Totals = defaultdict(lambda: [0, 0, 0, 0])

    def visit(node: CallNode, above: frozenset[int]) -> list[int]:
        calls = macs = flops = moved = 0
        for (_, back), totals in node.costs.items():
            if back is backward:
                calls += totals[0]
                macs += totals[1]
                flops += totals[2]
                moved += totals[3]
        mine = own[node.index]
        for i, value in enumerate((calls, macs, flops, moved)):
            mine[i] += value
        inside = above | {node.index} if node.children else above
        for child in node.children.values():
            below = visit(child, inside)
            calls, macs, flops, moved = calls + below[0], macs + below[1], flops + below[2], moved + below[3]
        if node.index not in above:
            whole = total[node.index]
            for i, value in enumerate((calls, macs, flops, moved)):
                whole[i] += value
        return [calls, macs, flops, moved]

    visit(root, frozenset())
    return Sums(own, total)


def _calls(root: CallNode) -> tuple[dict[int, int], dict[int, int]]:
    """How often each module was called, and the bytes made in it."""
    calls: dict[int, int] = defaultdict(int)
    made: dict[int, int] = defaultdict(int)

    def visit(node: CallNode, above: frozenset[int]) -> int:
        whole = node.made_bytes + sum(visit(child, above | {node.index}) for child in node.children.values())
        calls[node.index] += node.calls
        if node.index not in above:
            made[node.index] += whole
        return whole

    visit(root, frozenset())
    return calls, made


def _params(result: Pass) -> dict[str, tuple[int, int, int]]:
    """By module: parameters in and below it (each once), its own, and those that train."""
    inside: dict[str, dict[int, tuple[int, bool]]] = defaultdict(dict)
    own: dict[str, dict[int, int]] = defaultdict(dict)
    for full, weight in result.params.items():
        key, size, trains = weight.key, weight.size, weight.trains
        name = full.rpartition(".")[0]
        own[name][key] = size
        inside[""][key] = (size, trains)
        while name:
            inside[name][key] = (size, trains)
            name = name.rpartition(".")[0]
    return {
        name: (
            sum(s for s, _ in all_.values()),
            sum(own[name].values()),
            sum(s for s, trains in all_.values() if trains),
        )
        for name, all_ in inside.items()
    }


def _other_names(every: list[tuple[str, int]], first: list[tuple[str, int]]) -> dict[int, list[str]]:
    """Modules that hang in the model at several places: their further names, by index."""
    if len(every) == len(first):
        return {}
    index_of = {key: index for index, (_, key) in enumerate(first)}
    others: dict[int, list[str]] = defaultdict(list)
    for name, key in every:
        index = index_of[key]
        if name != first[index][0] and len(others[index]) < 8:
            others[index].append(plain_name(name))
    return dict(others)


def operator_rows(forward: Pass, training: Pass | None) -> tuple[OperatorCost, ...]:
    """One row an operator, the most expensive first."""
    rows: dict[str, list[int]] = defaultdict(lambda: [0] * 7)
    for node in _walk(forward.watch.root):
        for (name, _), (calls, macs, flops, moved) in node.costs.items():
            row = rows[name]
            for i, value in enumerate((calls, macs, flops, moved)):
                row[i] += value
    if training is not None:
        for node in _walk(training.watch.root):
            for (name, backward), (calls, macs, flops, _) in node.costs.items():
                if backward:
                    row = rows[name]
                    for i, value in enumerate((calls, macs, flops)):
                        row[4 + i] += value
    made = [OperatorCost(name, *values) for name, values in rows.items()]
    return tuple(sorted(made, key=lambda o: (-o.flops - o.backward_flops, -o.moved_bytes, o.name)))


def unknown_rows(model: nn.Module, *passes: Pass | None) -> tuple[UnknownOperator, ...]:
    """Operators without a formula, with where they were met."""
    if not any(one is not None and one.unknown for one in passes):
        return ()
    names = [plain_name(name) for name, _ in model.named_modules()]
    rows: dict[str, UnknownOperator] = {}
    for one in passes:
        for name, seen in one.unknown.items() if one is not None else ():
            if name in rows:
                continue
            where = sorted(
                {names[path[-1]] or "(the model)" for path in seen.modules if path} or {"(the model)"}
            )
            shapes = tuple(shape for shapes in seen.shapes for shape in shapes)[:8]
            rows[name] = UnknownOperator(name, len(seen.calls), shapes, tuple(where[:8]), seen.reason)
    return tuple(rows.values())


def find(cost: ModelCost, name: str) -> ModuleCost:
    """The row of one module."""
    for row in cost.modules:
        if row.name == name:
            return row
    raise UsageError(
        "unknown-module",
        f"{cost.name} has no module called {name!r}.",
        suggestion(name, [row.name for row in cost.modules]) or "See the names in .modules.",
    )
