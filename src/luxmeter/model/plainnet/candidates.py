"""What a search weighs: budgets, and candidates with what they cost."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import torch

from luxmeter.errors import UsageError
from luxmeter.model.plainnet.block import BuildOptions, build_blocks
from luxmeter.model.plainnet.network import PlainNet
from luxmeter.model.plainnet.parser import parse_structure
from luxmeter.operators import measure


@dataclass(frozen=True)
class Budget:
    """The most a network may cost; None is no limit. `macs` are multiply-adds for one image, as get_FLOPs."""

    params: float | None = None
    macs: float | None = None
    layers: int | None = None
    latency_s: float | None = None

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if value is not None and not value > 0:
                raise UsageError(
                    "search-budget",
                    f"The budget {one.name} is {value}.",
                    "Give a number above 0, or leave it out.",
                )

    def excess(self, costs: Mapping[str, float | None]) -> dict[str, float]:
        """Name -> by how many times a limit is exceeded; empty if all are kept."""
        over = {}
        for name, limit in asdict(self).items():
            cost = costs.get(name)
            if limit is not None and cost is not None and cost > limit:
                over[name] = cost / limit
        return over


@dataclass(frozen=True)
class Candidate:
    """A structure with its score and its costs for one image."""

    structure: str
    score: float
    params: int
    macs: int
    layers: int
    latency_s: float | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return self.structure


def costs_of(structure: str, *, resolution: int, num_classes: int | None, use_se: bool) -> dict[str, Any]:
    """Parameters, multiply-adds and layers of a structure, by formula."""
    params = macs = layers = 0
    channels = 0
    for call in parse_structure(structure):
        one = _block_costs(str(call), resolution, use_se)
        params, macs, layers = params + one[0], macs + one[1], layers + one[2]
        resolution, channels = one[3], one[4]
    if num_classes is not None:
        params += (channels + 1) * num_classes
        macs += channels * num_classes
    return {"params": params, "macs": macs, "layers": layers}


@functools.lru_cache(maxsize=65536)
def _block_costs(text: str, resolution: int, use_se: bool) -> tuple[int, int, int, int, int]:
    # Neighbours share most of their blocks, so a search sees few new ones.
    (block,) = build_blocks(parse_structure(text), text, BuildOptions(no_create=True, use_se=use_se))
    return (
        block.get_model_size(),
        block.get_FLOPs(resolution),
        int(getattr(block, "sub_layers", 1)),
        block.get_output_resolution(resolution),
        block.out_channels,
    )


def latency_of(
    structure: str, *, input_size: tuple[int, ...], num_classes: int | None, use_se: bool
) -> float:
    """Seconds of one forward pass of one image on this machine: the median by the benchmark's timer."""
    net = PlainNet(structure, num_classes=num_classes, use_se=use_se).eval()
    image = torch.zeros((1, *input_size[1:]))
    with torch.inference_mode():
        return measure(lambda: net(image), target_ci=0.05, budget_s=0.5).median_s
