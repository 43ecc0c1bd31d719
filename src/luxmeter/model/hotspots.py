"""Where the time goes against where the FLOPs go (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from luxmeter.model.records import ModelCost

TELLING = 0.05  # shares below this are not worth a mark
FACTOR = 2.0


@dataclass(frozen=True)
class Share:
    """One module's own part of the model's time and FLOPs."""

    name: str
    kind: str
    time: float
    flops: float
    mark: str


def shares(cost: ModelCost) -> list[Share]:
    """Every module with time of its own, the longest first; marked where time and FLOPs part by a factor of two."""
    timed = [row for row in cost.modules if row.own_time_ns is not None and row.own_time_ns > 0]
    whole_ns = sum(row.own_time_ns or 0 for row in timed)
    found = [
        Share(
            row.name or cost.name,
            row.kind,
            time := (row.own_time_ns or 0) / whole_ns,
            flops := row.own_flops / cost.flops if cost.flops else 0.0,
            _mark(time, flops),
        )
        for row in timed
    ]
    return sorted(found, key=lambda share: -share.time)


def _mark(time: float, flops: float) -> str:
    if time >= TELLING and time >= FACTOR * flops:
        return "slow for its FLOPs"
    if flops >= TELLING and flops >= FACTOR * time:
        return "fast for its FLOPs"
    return ""
