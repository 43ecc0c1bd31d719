"""One structure -> a neighbour of it: another kind of block, other widths, other depths. Pure, and seeded."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from luxmeter.errors import UsageError
from luxmeter.model.plainnet.block import block_class
from luxmeter.model.plainnet.parser import Call, Number, pointed

_KERNELS = (3, 5, 7)
_WIDTHS = (2.5, 2.0, 1.5, 1.25, 1.0, 1 / 1.25, 1 / 1.5, 0.5, 0.4)
_DEPTHS = (-2, -1, 0, 1, 2)

_PLAIN = [f"SuperResK{k}K{k}" for k in _KERNELS] + [f"SuperResK1K{k}K1" for k in _KERNELS]
_INVERTED = [f"SuperResIDWE{e}K{k}" for k in _KERNELS for e in (1, 2, 4, 6)]
KINDS = (
    tuple(_PLAIN),
    tuple(_INVERTED),
    tuple(name + "SE" for name in _PLAIN),
    tuple(name + "SE" for name in _INVERTED),
)
"""Blocks that may take each other's place, as in the published search spaces."""


@dataclass(frozen=True)
class Space:
    """What a search may change: block kinds within one of `kinds`, widths in steps of 8, depths by up to 2."""

    kinds: tuple[tuple[str, ...], ...] = KINDS
    least_channels: int = 8
    most_channels: int = 2048
    split_at: int = 6
    """A block of this many sub-layers becomes two, which can then change on their own."""


def check_searchable(calls: Sequence[Call], text: str) -> None:
    """Raise unless every block says its input and output channels, which is what a search changes."""
    for call in calls:
        block = block_class(call, text)
        if not {"in_channels", "out_channels"} <= set(block.arguments):
            raise UsageError(
                "search-structure",
                pointed(text, call.start, f"{call.name} cannot be changed by a search"),
                "Start from blocks with in_channels and out_channels, such as SuperConvK3BNRELU and SuperResK3K3.",
            )


def mutate(calls: Sequence[Call], rng: random.Random, *, changes: int, space: Space) -> tuple[Call, ...]:
    """A structure with up to `changes` blocks changed, deep blocks split, and channels made to fit again."""
    changed = list(calls)
    for index in sorted({rng.randrange(len(changed)) for _ in range(changes)}):
        changed[index] = _change(changed[index], rng, space)
    return _chained([part for call in changed for part in _split(call, space)])


def _change(call: Call, rng: random.Random, space: Space) -> Call:
    alternatives = next((kinds for kinds in space.kinds if call.name in kinds), (call.name,))
    call = replace(call, name=rng.choice(alternatives))
    values = _named(call)
    values["out_channels"] = _width(values["out_channels"], rng, space)
    if "bottleneck_channels" in values:
        values["bottleneck_channels"] = _width(values["bottleneck_channels"], rng, space)
        values["sub_layers"] = max(1, values["sub_layers"] + rng.choice(_DEPTHS))
        if values.get("kernel_size") in _KERNELS:
            values["kernel_size"] = rng.choice(_KERNELS)
    return _with(call, values)


def _width(channels: int, rng: random.Random, space: Space) -> int:
    scaled = round(channels * rng.choice(_WIDTHS) / 8) * 8
    return min(space.most_channels, max(space.least_channels, scaled))


def _split(call: Call, space: Space) -> list[Call]:
    values = _named(call)
    if "bottleneck_channels" not in values or values["sub_layers"] < space.split_at:
        return [call]
    first = space.split_at // 2
    rest = {"in_channels": values["out_channels"], "stride": 1, "sub_layers": values["sub_layers"] - first}
    return [_with(call, {**values, "sub_layers": first}), _with(call, {**values, **rest})]


def _chained(calls: Sequence[Call]) -> tuple[Call, ...]:
    fitting = [calls[0]]
    for call in calls[1:]:
        before = _named(fitting[-1])["out_channels"]
        fitting.append(_with(call, {**_named(call), "in_channels": before}))
    return tuple(fitting)


def _named(call: Call) -> dict[str, int]:
    return dict(zip(block_class(call, str(call)).arguments, call.values, strict=True))


def _with(call: Call, values: dict[str, int]) -> Call:
    return replace(call, numbers=tuple(Number(value) for value in values.values()))
