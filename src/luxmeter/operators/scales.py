"""The same case at other sizes: dimensions get names, found by position and by equal sizes, and are swept together."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from luxmeter.errors import UsageError, suggestion
from luxmeter.operators.case import Case, Operators
from luxmeter.operators.following import RULES, CannotFollowError, items_of, like, regroup
from luxmeter.operators.layouts import GROWS_WITH_DATA, Layout, NamedArgument
from luxmeter.signature import (
    Argument,
    ModuleSpec,
    Signature,
    TensorSpec,
    contiguous_stride,
    map_tensors,
)

# Settings of modules that are sizes of their inputs: they follow where they are equal.
_SIZES = {"in_features", "out_features", "in_channels", "out_channels", "num_features", "num_channels", "normalized_shape",
          "embed_dim", "d_model", "input_size", "hidden_size", "embedding_dim", "in1_features", "in2_features",
          "num_parameters", "kdim", "vdim", "num_embeddings"}  # fmt: skip


@dataclass(frozen=True)
class Scaled:
    """A case at the sizes it could take of those asked for; `lacking` says what it has no dimension for.

    `failed` says why the case could not be resized: then it is as it was recorded and must not be measured as more.
    """

    case: Case
    sizes: dict[str, int] = field(default_factory=dict)
    lacking: str = ""
    failed: str = ""


def dimensions(case: Case) -> dict[str, int]:
    """The named dimensions of a case and their sizes, from what it works on (parameters are not, nor are weights)."""
    return Layout(case).dimensions()


def scaled(case: Case, sizes: Mapping[str, int], *, dims: Mapping[str, int] | None = None) -> Scaled:
    """The case with its named dimensions at these sizes; what else depends on them follows.

    `dims` are the user's: name -> the size it has in the recorded case, everywhere.
    """
    layout = Layout(case)
    found = layout.dimensions()
    own = {name: dims[name] for name in sizes if dims and name in dims}
    whole = {n for t in case.signature.tensors() for n in t.shape} | set(found.values())
    lacking = [f"nothing in it has the size {n} of {name!r}" for name, n in own.items() if n not in whole]
    lacking += [f"it has no dimension {name!r}" for name in sizes if name not in own and name not in found]
    have = {k: n for k, n in sizes.items() if (own[k] in whole if k in own else k in found)}
    try:
        resized = _Resizing(case, layout, found, have, own).done()
    except CannotFollowError as why:
        return Scaled(case, have, "; ".join(lacking), str(why))
    after = dimensions(resized)
    short = {k: n for k, n in have.items() if k not in own and after.get(k) != n}
    if short:
        failed = ", ".join(f"{k} is {after.get(k)} and not {n}" for k, n in short.items())
        return Scaled(case, have, "; ".join(lacking), f"resized, its {failed}")
    return Scaled(resized, have, "; ".join(lacking))


def sweep(scales: Mapping[str, Sequence[int]] | None) -> Iterator[dict[str, int]]:
    """All combinations of the sizes; without scales, one: as recorded."""
    if not scales:
        yield {}
        return
    for combination in itertools.product(*scales.values()):
        yield dict(zip(scales, combination, strict=True))


def check_names(ops: Operators, scales: Mapping[str, Sequence[int]], dims: Mapping[str, int] | None) -> None:
    """A name that no case has is an error."""
    known = {name for case in ops for name in dimensions(case)} | set(dims or {})
    for name, sizes in scales.items():
        if name not in known:
            raise UsageError(
                "unknown-dimension",
                f"No operator has a dimension called {name!r}.",
                suggestion(name, known)
                or f"Known: {', '.join(sorted(known)) or 'none'}; name your own with dims={{'x': 128}}.",
            )
        if not sizes or not all(type(n) is int and n > 0 for n in sizes):
            raise UsageError(
                "bad-scale", f"The sizes of {name!r} are {sizes!r}.", "Give whole numbers above 0."
            )


class _Resizing:
    """All sizes changed at once, so that one that has become 16 is not taken for another that was."""

    def __init__(
        self,
        case: Case,
        layout: Layout,
        found: dict[str, int],
        sizes: Mapping[str, int],
        own: Mapping[str, int],
    ) -> None:
        self._case, self._layout, self._found = case, layout, found
        self._named = {k: n for k, n in sizes.items() if k not in own and n != found[k]}
        # Sizes that weights have, too: there they are known by their number alone.
        self._anywhere = {found[k]: n for k, n in self._named.items() if k not in GROWS_WITH_DATA}
        self._anywhere |= {own[k]: n for k, n in sizes.items() if k in own}
        self._own = {own[k]: n for k, n in sizes.items() if k in own}
        self._together = _same_memory(case)
        self._number = itertools.count()
        shrunk = [n for k, n in self._named.items() if n < found[k]] + [
            b for a, b in self._anywhere.items() if b < a
        ]
        self._smallest = min(shrunk, default=None)

    def done(self) -> Case:
        """The case resized."""
        if not self._named and not self._anywhere:
            return self._case
        new = {argument.slot: self._argument(argument) for argument in self._layout.arguments}
        new = self._numbers(new)
        given = self._case.signature
        args: list[Argument] = []
        for argument in self._layout.arguments:
            if isinstance(argument.slot, str):
                continue
            value = new[argument.slot]
            # Numbers that lie one after another were read as one list.
            loose = isinstance(value, tuple) and given.args[argument.slot] is not argument.value
            args += value if loose else [value]
        return replace(
            self._case,
            outputs=None,
            signature=Signature(tuple(args), tuple((k, new[k]) for k, _ in given.kwargs), given.ranges),
        )

    def _argument(self, argument: NamedArgument) -> Argument:
        if isinstance(argument.value, ModuleSpec):
            return self._module(argument.value)
        changed = map_tensors(argument.value, lambda t: self._tensor(argument, t, next(self._number)))
        sizes = self._layout.sizes_in(argument)
        if sizes and not self._layout.reshapes:
            changed = like(argument.value, self._shape(self._layout.names(argument.name, len(sizes)), sizes))
        return changed

    def _module(self, spec: ModuleSpec) -> ModuleSpec:
        if not self._anywhere:
            return spec

        def setting(name: str, value: Argument) -> Argument:
            if isinstance(value, ModuleSpec):
                return self._module(value)
            if name not in _SIZES:
                return value
            if type(value) is int:
                return self._anywhere.get(value, value)
            return like(value, tuple(self._anywhere.get(n, n) for n in items_of(value)))

        tensors = tuple(
            (k, _fresh(t, self._weight(t.shape)) if isinstance(t, TensorSpec) else t) for k, t in spec.tensors
        )
        return replace(
            spec,
            settings=tuple((k, setting(k, v)) for k, v in spec.settings),
            tensors=tensors,
            parts=tuple((k, self._module(part)) for k, part in spec.parts),
        )

    def _tensor(self, argument: NamedArgument, t: TensorSpec, number: int) -> TensorSpec:
        if self._layout.is_weight(argument, t):
            shape = self._weight(t.shape)
        else:
            shape = self._shape(self._layout.names(argument.name, len(t.shape), number), t.shape)
        return _without_large(_fresh(t, shape, keep_memory=t.memory in self._together), self._smallest)

    def _weight(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self._anywhere.get(n, n) for n in shape)

    def _shape(self, names: tuple[str, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
        """By name where the dimension has one; sizes that weights have, too, elsewhere if not there."""
        heads = self._layout.settings.get("num_heads", self._layout.settings.get("nhead", 1))
        new = list(shape)
        by_name: set[int] = set()
        for i, (name, n) in enumerate(zip(names, shape, strict=False)):
            if name in self._named and n == self._found[name]:
                new[i] = self._named[name]
                by_name.add(n)
            elif name == "batch x heads" and "batch" in self._named and n == self._found["batch"] * heads:
                new[i] = self._named["batch"] * heads
        for i, n in enumerate(shape):
            if new[i] == n and n in self._anywhere and (n not in by_name or n in self._own):
                new[i] = self._anywhere[n]
        return tuple(new)

    def _numbers(self, new: dict[int | str, Argument]) -> dict[int | str, Argument]:
        """Numbers that depend on the sizes of the first tensor: of view, split, x[3], narrow, layer_norm ..."""
        layout = self._layout
        first = next((p for p in layout.arguments if isinstance(p.value, TensorSpec) and p.value.shape), None)
        if layout.plain == "arange":
            return self._arange(new)
        if first is None:
            return new
        was, now = first.value.shape, new[first.slot].shape
        if was == now:
            return new
        by_name = {p.name: p for p in layout.arguments}
        for argument in layout.arguments:
            rule = RULES.get((layout.plain, argument.name)) or RULES.get(("", argument.name))
            if layout.reshapes and layout.sizes_in(argument):
                rule = regroup
            if rule is not None and argument is not first:
                dim = by_name["dim"].value if "dim" in by_name else 0
                fits = isinstance(dim, int) and -len(was) <= dim < len(was)
                new[argument.slot] = rule(new[argument.slot], was, now, dim if fits else 0)
        if layout.plain == "narrow" and {"dim", "start", "length"} <= set(by_name):
            start, length, dim = (by_name[name] for name in ("start", "length", "dim"))
            if type(new[start.slot]) is int and type(new[length.slot]) is int:
                new[length.slot] = min(new[length.slot], now[dim.value] - new[start.slot] % now[dim.value])
        return new

    def _arange(self, new: dict[int | str, Argument]) -> dict[int | str, Argument]:
        argument, step = self._layout.range_end() or (None, 0)
        if argument is not None and "batch" in self._named:
            new[argument.slot] = argument.value + (self._named["batch"] - self._found["batch"]) * step
        return new


def _same_memory(case: Case) -> set[int]:
    """The storages that are met through equal tensors alone: x + x stays x + x at any size."""
    seen: dict[int, set[object]] = defaultdict(set)
    for t in case.signature.tensors():
        if t.memory is not None:
            seen[t.memory].add((t.shape, t.stride, t.offset))
    return {memory for memory, ways in seen.items() if len(ways) == 1}


def _fresh(t: TensorSpec, shape: tuple[int, ...], *, keep_memory: bool = False) -> TensorSpec:
    """The tensor at another size: its dimensions in the same order in memory where they filled it, else contiguous."""
    if shape == t.shape:
        return t
    memory = t.memory if keep_memory else None
    return replace(t, shape=shape, stride=_restrided(t, shape), memory=memory, offset=0)


def _without_large(t: TensorSpec, smallest: int | None) -> TensorSpec:
    """Indices that were seen, and that may lie outside of what has shrunk, are made up anew."""
    facts = t.facts
    if smallest is None or facts is None or facts.values is None or max(facts.values, default=0) < smallest:
        return t
    return replace(t, facts=replace(facts, values=None))


def _restrided(t: TensorSpec, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    if t.stride is None:
        return None
    order = sorted(range(len(shape)), key=lambda i: (-t.stride[i], i))  # type: ignore[index]
    for sizes in (t.shape, shape):
        inner = contiguous_stride(tuple(sizes[i] for i in order))
        strides = tuple(inner[order.index(i)] for i in range(len(sizes)))
        if sizes is t.shape and any(
            a != b for a, b, n in zip(strides, t.stride, sizes, strict=True) if n > 1
        ):
            return None
    return None if strides == contiguous_stride(shape) else strides
