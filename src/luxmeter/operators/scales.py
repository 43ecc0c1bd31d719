"""The same case at other sizes: dimensions get names, found by position and by equal sizes, and are swept together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from luxmeter.errors import UsageError, suggestion
from luxmeter.operators.case import Case, Operators
from luxmeter.signature import ListOf, Signature, TensorSpec, map_tensors

# The names of an activation's dimensions, by how many it has.
_NAMES = {
    1: ("batch",),
    2: ("batch", "features"),
    3: ("batch", "sequence", "features"),
    4: ("batch", "channels", "height", "width"),
    5: ("batch", "channels", "depth", "height", "width"),
}
_ONLY_DATA = ("batch", "sequence", "height", "width", "depth")  # weights do not grow with these
# Where functionals and operators take weights: plain tensors there are none of the data, whatever their sizes.
_WEIGHTS = {
    **dict.fromkeys(("mm", "matmul", "__matmul__", "embedding", "prelu", "dot", "mv"), (1,)),
    **dict.fromkeys(("linear", "conv1d", "conv2d", "conv3d", "convolution", "bilinear", "conv_transpose1d",
                     "conv_transpose2d", "conv_transpose3d"), (1, 2)),
    **dict.fromkeys(("layer_norm", "native_layer_norm", "group_norm", "rms_norm"), (2, 3)),
    **dict.fromkeys(("batch_norm", "instance_norm", "native_batch_norm"), (1, 2, 3, 4)),
    "addmm": (2,),
}  # fmt: skip
_WEIGHT_NAMES = ("weight", "bias", "mat2", "running_mean", "running_var")


def dimensions(case: Case) -> dict[str, int]:
    """The named dimensions of a case and their sizes, from its first activation (a tensor that is no parameter)."""
    first = next((t for t in case.signature.tensors() if t.kind != "Parameter" and t.shape), None)
    return {} if first is None else dict(zip(_NAMES.get(len(first.shape), ()), first.shape, strict=False))


def at_scale(case: Case, sizes: Mapping[str, int], *, names: Mapping[str, int] | None = None) -> Case:
    """The case with its named dimensions at these sizes; other tensors' equal sizes follow.

    `names` are the user's: name -> the size it has in the recorded case, everywhere.
    """
    found = dimensions(case)
    for name, size in sizes.items():
        if names and name in names:
            case = _resized(case, names[name], size, everywhere=True)
        elif name in found:
            case = _resized(case, found[name], size, everywhere=name not in _ONLY_DATA, only=name)
    return case


def sweep(scales: Mapping[str, Sequence[int]] | None) -> Iterator[dict[str, int]]:
    """All combinations of the sizes; without scales, one: as recorded."""
    if not scales:
        yield {}
        return
    for combination in itertools.product(*scales.values()):
        yield dict(zip(scales, combination, strict=True))


def check_names(ops: Operators, scales: Mapping[str, Sequence[int]], names: Mapping[str, int] | None) -> None:
    """A name that no case has is an error."""
    known = {name for case in ops for name in dimensions(case)} | set(names or {})
    for name, sizes in scales.items():
        if name not in known:
            raise UsageError(
                "unknown-dimension",
                f"No operator has a dimension called {name!r}.",
                suggestion(name, known)
                or f"Known: {', '.join(sorted(known)) or 'none'}; name your own with names={{'x': 128}}.",
            )
        if not sizes or not all(type(n) is int and n > 0 for n in sizes):
            raise UsageError(
                "bad-scale", f"The sizes of {name!r} are {sizes!r}.", "Give whole numbers above 0."
            )


def _resized(case: Case, old: int, new: int, *, everywhere: bool, only: str = "") -> Case:
    if old == new:
        return case

    def tensor(t: TensorSpec) -> TensorSpec:
        if t.kind == "Parameter" and not everywhere:
            return t
        wanted = _NAMES.get(len(t.shape), ())
        # batch is the first dimension: an equal size elsewhere is another thing by chance.
        fits = [n == old and (only != "batch" or i == 0) for i, n in enumerate(t.shape)]
        if only and only != "batch" and only in wanted and not everywhere:
            fits = [n == old and wanted[i] == only for i, n in enumerate(t.shape)]
        shape = tuple(new if fit else n for n, fit in zip(t.shape, fits, strict=True))
        if shape == t.shape:
            return t
        # Odd strides and shared memory belong to the recorded size: at another one the tensor is fresh.
        return replace(t, shape=shape, stride=None, memory=None, offset=0)

    held = _weights(case.op) if not everywhere else ()
    given = case.signature
    kept = tuple(v if i in held else map_tensors(v, tensor) for i, v in enumerate(given.args))
    named = tuple((k, v if k in _WEIGHT_NAMES and held else map_tensors(v, tensor)) for k, v in given.kwargs)
    changed = Signature(kept, named, given.ranges)
    args = tuple(_number(v, old, new) if only in ("", "batch") else v for v in changed.args)
    return replace(case, signature=Signature(args, changed.kwargs, changed.ranges))


def _weights(op: str) -> tuple[int, ...]:
    parts = op.split(".")
    return _WEIGHTS.get(parts[1] if parts[0] == "aten" and len(parts) > 1 else parts[-1], ())


def _number(value: object, old: int, new: int) -> object:
    """Sizes given as arguments (view, expand, normalized_shape): the first equal number in a list follows."""
    items = value.items if isinstance(value, ListOf) else value if isinstance(value, tuple) else None
    if items is None or old not in items or not all(type(n) is int for n in items):
        return value
    at = items.index(old)
    changed = (*items[:at], new, *items[at + 1 :])
    return ListOf(changed) if isinstance(value, ListOf) else changed
