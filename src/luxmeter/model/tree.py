"""From a tree of module calls to one row a module: own costs, and with all it called."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from luxmeter.model.passes import Pass
from luxmeter.model.records import ModuleCost, OperatorCost, UnknownOperator
from luxmeter.model.watch import CallNode, NamedModules, distinct_modules

_Totals = dict[int, list[int]]


class Sums(NamedTuple):
    """Costs (calls, MACs, FLOPs, bytes) by module index; -1 is everything."""

    own: _Totals
    total: _Totals
    calls: dict[int, int]  # of each module
    made_bytes: dict[int, int]  # in each module and what it called


def module_rows(forward: Pass, sums: Sums) -> tuple[ModuleCost, ...]:
    """Every module in the order of the model, the model itself first under the empty name; without backward."""
    modules = distinct_modules(forward.modules)
    also = _other_names(forward.modules, modules)
    own, total, calls, made = sums
    sizes = _params(forward)
    shapes = forward.watch.shapes
    rows: list[dict[str, Any]] = []
    for index, (name, module) in enumerate(modules):
        if index and "_orig_mod" in module._modules:
            continue  # the shell that torch.compile puts around a module: what is in it has its own row
        plain = plain_name(name)
        params, own_params, trainable = sizes.get(name, _NONE)
        seen_in, seen_out = shapes.get(index, _NO_SHAPES)
        _, macs, flops, moved = total.get(index, _ZERO)
        _, own_macs, own_flops, _ = own.get(index, _ZERO)
        called = calls.get(index, 0)
        note = f"also {', '.join(also[index])}" if index in also else ""
        if index and not called:
            note = f"{note}; not called" if note else "not called"
        rows.append({
            "index": index, "name": plain, "kind": module.__class__.__name__,
            "depth": plain.count(".") + 1 if name else 0, "calls": called, "params": params, "own_params": own_params,
            "trainable_params": trainable, "macs": macs, "flops": flops, "own_macs": own_macs, "own_flops": own_flops,
            "moved_bytes": moved, "backward_macs": 0, "backward_flops": 0, "activation_bytes": made.get(index, 0),
            "input_shapes": seen_in, "output_shapes": seen_out, "note": note,
        })  # fmt: skip
    _, macs, flops, moved = total[-1]
    rows[0].update(
        macs=macs, flops=flops, moved_bytes=moved, own_macs=rows[0]["own_macs"] + own[-1][1],
        own_flops=rows[0]["own_flops"] + own[-1][2], activation_bytes=forward.made_bytes,
    )  # fmt: skip
    for row, below in _containers(rows):
        _add_up(row, below, "macs", "flops", "moved_bytes", "activation_bytes")
        row["note"] = "; ".join(n for n in row["note"].split("; ") if n and n != "not called")
    return tuple(ModuleCost(**row) for row in rows)


def with_backward(modules: Sequence[ModuleCost], back: Sums) -> tuple[ModuleCost, ...]:
    """The rows with what the backward pass costs."""
    rows = []
    for module in modules:
        _, macs, flops, _ = back.total.get(module.index or -1, _ZERO)  # -1 is everything: the model's own
        rows.append({**vars(module), "backward_macs": macs, "backward_flops": flops})
    for row, below in _containers(rows):
        _add_up(row, below, "backward_macs", "backward_flops")
    return tuple(ModuleCost(**row) for row in rows)


_NONE = (0, 0, 0)
_NO_SHAPES: tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]] = ((), ())
_ZERO = [0, 0, 0, 0]


def plain_name(name: str) -> str:
    """A module's name without what torch.compile puts into it."""
    return ".".join(part for part in name.split(".") if part != "_orig_mod") if "_orig_mod" in name else name


def _containers(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Lists and namespaces are never called themselves: they cost what their children do. Innermost first."""
    uncalled = [row for row in rows[1:] if not row["calls"]]
    if not uncalled:
        return
    children: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows[1:]:
        children[row["name"].rpartition(".")[0]].append(row)
    for row in reversed(uncalled):
        below = children[row["name"]]
        if any(b["calls"] or b["flops"] for b in below):
            yield row, below


def _add_up(row: dict[str, Any], below: list[dict[str, Any]], *names: str) -> None:
    for name in names:
        row[name] = sum(b[name] for b in below)


def _walk(node: CallNode) -> Iterator[CallNode]:
    yield node
    for child in node.children.values():
        yield from _walk(child)


def sums_of(root: CallNode, *, backward: bool) -> Sums:
    """Own and total costs of every module; a module inside itself is counted once in its total."""
    sums = Sums({}, {}, {}, {})
    _visit(root, frozenset(), backward, sums)
    return sums


def _visit(
    node: CallNode, above: frozenset[int], backward: bool, sums: Sums
) -> tuple[int, int, int, int, int]:
    n = macs = flops = moved = 0
    made_bytes = node.made_bytes
    index = node.index
    for (_, back), totals in node.costs.items():
        if back is backward:
            n += totals[0]
            macs += totals[1]
            flops += totals[2]
            moved += totals[3]
    _add(sums.own, index, n, macs, flops, moved)
    if node.children:
        inside = above | {index}
        for child in node.children.values():
            below = _visit(child, inside, backward, sums)
            n, macs, flops = n + below[0], macs + below[1], flops + below[2]
            moved, made_bytes = moved + below[3], made_bytes + below[4]
    sums.calls[index] = sums.calls.get(index, 0) + node.calls
    if index not in above:
        _add(sums.total, index, n, macs, flops, moved)
        sums.made_bytes[index] = sums.made_bytes.get(index, 0) + made_bytes
    return n, macs, flops, moved, made_bytes


def _add(all_totals: _Totals, index: int, calls: int, macs: int, flops: int, moved: int) -> None:
    totals = all_totals.get(index)
    if totals is None:
        all_totals[index] = [calls, macs, flops, moved]
        return
    totals[0] += calls
    totals[1] += macs
    totals[2] += flops
    totals[3] += moved


def _params(result: Pass) -> dict[str, tuple[int, int, int]]:
    """By module: parameters in and below it (each once), its own, and those that train."""
    keys = [weight.key for weight in result.params.values()]
    if len(keys) == len(set(keys)):
        return _params_each_once(result)
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


def _params_each_once(result: Pass) -> dict[str, tuple[int, int, int]]:
    """The same where nothing is shared."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for full, weight in result.params.items():
        size = weight.size
        trains = size if weight.trains else 0
        name = full.rpartition(".")[0]
        sums[name][1] += size
        while True:
            row = sums[name]
            row[0] += size
            row[2] += trains
            if not name:
                break
            name = name.rpartition(".")[0]
    return {name: (row[0], row[1], row[2]) for name, row in sums.items()}


def _other_names(every: NamedModules, first: NamedModules) -> dict[int, list[str]]:
    """Modules that hang in the model at several places: their further names, by index."""
    if len(every) == len(first):
        return {}
    index_of = {id(module): index for index, (_, module) in enumerate(first)}
    others: dict[int, list[str]] = defaultdict(list)
    for name, module in every:
        index = index_of[id(module)]
        if name != first[index][0] and len(others[index]) < 8:
            others[index].append(plain_name(name))
    return dict(others)


def operator_rows(forward: Pass, training: Pass | None = None) -> tuple[OperatorCost, ...]:
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


def unknown_rows(*passes: Pass | None) -> tuple[UnknownOperator, ...]:
    """Operators without a formula, with where they were met."""
    if not any(one is not None and one.unknown for one in passes):
        return ()
    rows: dict[str, UnknownOperator] = {}
    for one in passes:
        names = [plain_name(name) for name, _ in distinct_modules(one.modules)] if one is not None else []
        for name, seen in one.unknown.items() if one is not None else ():
            if name in rows:
                continue
            where = sorted(
                {names[path[-1]] or "(the model)" for path in seen.modules if path} or {"(the model)"}
            )
            shapes = tuple(shape for shapes in seen.shapes for shape in shapes)[:8]
            rows[name] = UnknownOperator(name, len(seen.calls), shapes, tuple(where[:8]), seen.reason)
    return tuple(rows.values())
