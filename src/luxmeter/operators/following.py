"""How the numbers among an operator's arguments follow the sizes of its input: of view, split, x[3], narrow ..."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

from luxmeter.signature import Argument, ListOf, SliceOf, TensorSpec


class CannotFollowError(Exception):
    """A number among the arguments depends on the sizes, and there is none that fits."""


Rule = Callable[[Argument, tuple[int, ...], tuple[int, ...], int], Argument]


def regroup(value: Argument, was: tuple[int, ...], now: tuple[int, ...], dim: int) -> Argument:
    """The sizes of a view: each group of dimensions that it makes of some of the input's follows them."""
    target = list(items_of(value))
    if 0 in was or math.prod(n for n in target if n != -1) == 0:
        return value
    open_at = target.index(-1) if -1 in target else None
    if open_at is not None:
        target[open_at] = math.prod(was) // math.prod(n for n in target if n != -1)
    result = list(target)
    for ins, outs in _groups(was, tuple(target)):
        old, new = math.prod(was[i] for i in ins), math.prod(now[i] for i in ins)
        if old == new and all(was[i] == now[i] for i in ins):
            continue
        changed = {was[i]: now[i] for i in ins if was[i] != now[i]}
        # The part that is the dimension itself, else the first that can take the change.
        order = sorted(outs, key=lambda j: (target[j] not in changed, j))
        for j in order:
            rest = old // target[j]
            if new % rest == 0:
                result[j] = new // rest
                break
        else:
            raise CannotFollowError(f"its sizes ({', '.join(map(str, items_of(value)))}) cannot follow: "
                                     f"{new} does not go into them")  # fmt: skip
    if open_at is not None:
        result[open_at] = -1
    return like(value, tuple(result))


def _groups(a: tuple[int, ...], b: tuple[int, ...]) -> Iterator[tuple[list[int], list[int]]]:
    """Runs of positions in both with equal products."""
    i = j = 0
    while i < len(a) or j < len(b):
        ins, outs = ([i] if i < len(a) else []), ([j] if j < len(b) else [])
        i, j = i + len(ins), j + len(outs)
        while (x := math.prod(a[k] for k in ins)) != (y := math.prod(b[k] for k in outs)):
            if x < y and i < len(a):
                ins.append(i)
                i += 1
            elif j < len(b):
                outs.append(j)
                j += 1
            else:
                raise CannotFollowError("its sizes are not those of its input")
        yield ins, outs


def _split(value: Argument, was: tuple[int, ...], now: tuple[int, ...], dim: int) -> Argument:
    """As many parts, each by its share."""
    old, new = was[dim], now[dim]
    if old == new or not old:
        return value
    if type(value) is int:
        return max(1, -(-value * new // old))
    if not isinstance(value, tuple | ListOf):
        return value
    edges = [0, *itertools.accumulate(items_of(value))]
    moved = [round(edge * new / old) for edge in edges]
    return like(value, tuple(b - a for a, b in itertools.pairwise(moved)))


def _positions(value: Argument, was: tuple[int, ...], now: tuple[int, ...], dim: int) -> Argument:
    if not isinstance(value, tuple | ListOf) or was[dim] == now[dim]:
        return value
    return like(value, tuple(round(n * now[dim] / was[dim]) for n in items_of(value)))


def _index(value: Argument, was: tuple[int, ...], now: tuple[int, ...], dim: int) -> Argument:
    """x[3], x[:, 2:8]: a number stays within the size, an end that was the size is the size."""
    items = value if isinstance(value, tuple) else (value,)
    out: list[Argument] = []
    place = 0
    for item in items:
        if item is None or place >= len(was) or not (type(item) is int or isinstance(item, SliceOf)):
            out.append(item)
            place += 1 if item is not None else 0
            if not isinstance(item, TensorSpec) and item is not None:
                out.extend(
                    items[len(out) :]
                )  # behind an ellipsis positions count from the end: left as they are
                break
            continue
        n = now[place]
        if isinstance(item, SliceOf):
            start = item.start if type(item.start) is not int else min(item.start, n - 1)
            stop = n if item.stop == was[place] else item.stop
            if type(start) is int and type(stop) is int and 0 <= stop <= start:
                stop = start + 1
            out.append(SliceOf(start, stop, item.step))
        else:
            out.append(_within(item, was, now, place))
        place += 1
    return tuple(out) if isinstance(value, tuple) else out[0]


def _within(value: Argument, was: tuple[int, ...], now: tuple[int, ...], dim: int) -> Argument:
    return max(-now[dim], min(value, now[dim] - 1)) if type(value) is int else value


def _end(value: Argument, was: tuple[int, ...], now: tuple[int, ...], dim: int) -> Argument:
    return now[dim] if value == was[dim] else value


def _at_most(value: Argument, was: tuple[int, ...], now: tuple[int, ...], dim: int) -> Argument:
    if type(value) is not int:
        return value
    return now[dim] if value == was[dim] else min(value, now[dim])


def _last(value: Argument, was: tuple[int, ...], now: tuple[int, ...], dim: int) -> Argument:
    many = len(items_of(value))
    return like(value, now[-many:]) if many and tuple(items_of(value)) == was[-many:] else value


def _unflatten(value: Argument, was: tuple[int, ...], now: tuple[int, ...], dim: int) -> Argument:
    return regroup(value, (was[dim],), (now[dim],), 0)


# (plain name, or "" for all) and the argument's name -> how its number follows the first tensor's sizes.
RULES: dict[tuple[str, str], Rule] = {
    **dict.fromkeys([(op, name) for op in ("split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes",
                                           "split_copy", "split_with_sizes_copy")
                     for name in ("split_size", "split_sizes", "split_size_or_sections")], _split),
    **dict.fromkeys([("tensor_split", name) for name in ("split_size", "indices", "indices_or_sections")], _positions),
    ("getitem", "index"): _index, ("setitem", "index"): _index, ("select", "index"): _within,
    ("slice", "end"): _end, ("slice", "start"): _within, ("narrow", "start"): _within, ("narrow", "length"): _at_most,
    ("topk", "k"): _at_most, ("kthvalue", "k"): _at_most, ("unflatten", "sizes"): _unflatten,
    ("", "normalized_shape"): _last,
    **{(op, "N"): lambda v, was, now, dim: now[0] for op in ("native_group_norm", "native_group_norm_backward")},
    **{(op, "C"): lambda v, was, now, dim: now[1] for op in ("native_group_norm", "native_group_norm_backward")},
    **{(op, "HxW"): lambda v, was, now, dim: math.prod(now[2:])
       for op in ("native_group_norm", "native_group_norm_backward")},
}  # fmt: skip


def items_of(value: Argument) -> tuple[int, ...]:
    """The numbers of a list, a tuple, or one number."""
    return value.items if isinstance(value, ListOf) else value if isinstance(value, tuple) else (value,)


def like(value: Argument, items: tuple[int, ...]) -> Argument:
    """These numbers as a list, a tuple or one number, as `value` is."""
    if isinstance(value, ListOf):
        return ListOf(items)
    return items if isinstance(value, tuple) else items[0]
