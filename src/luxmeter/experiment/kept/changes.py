"""What differs between two runs: parameters, command, code, environment, metrics. Pure but for reading the runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from luxmeter.described import canonical
from luxmeter.experiment import records
from luxmeter.experiment.kept import source_code
from luxmeter.experiment.kept.kept_run import KeptRun
from luxmeter.files import to_json
from luxmeter.store.rows import flatten


class _Absent:
    """Stands for what one side does not have."""

    def __repr__(self) -> str:
        return "-"

    __str__ = __repr__


ABSENT = _Absent()


@dataclass(frozen=True)
class Change:
    """One named thing that is `a` here and `b` there. kind: parameter, command, package, machine or variable."""

    kind: str
    name: str
    a: Any
    b: Any


@dataclass(frozen=True)
class MetricChange:
    """The last value of one metric on both sides."""

    key: str
    a: float | None
    b: float | None
    a_best: tuple[float, float] | None = None  # least and greatest
    b_best: tuple[float, float] | None = None

    @property
    def differs(self) -> bool:
        """Whether the two are not the same; not-a-number is the same as itself."""
        return self.a != self.b and not (self.a != self.a and self.b != self.b)

    @property
    def difference(self) -> float | None:
        """B minus A."""
        return None if self.a is None or self.b is None else self.b - self.a

    @property
    def relative(self) -> float | None:
        """The difference as a share of A."""
        gap = self.difference
        return None if gap is None or not self.a or not math.isfinite(gap) else gap / abs(self.a)


@dataclass(frozen=True)
class RunDiff:
    """Two runs, side by side."""

    a: KeptRun
    b: KeptRun
    params: list[Change] = field(default_factory=list)
    command: list[Change] = field(default_factory=list)
    code: list[source_code.FileDiff] = field(default_factory=list)
    environment: list[Change] = field(default_factory=list)
    metrics: list[MetricChange] = field(default_factory=list)
    code_known: bool = True  # whether both keep their code


def compare_runs(a: KeptRun, b: KeptRun) -> RunDiff:
    """Everything that differs, and all metrics of either."""
    code_known = all(records.read_code(run.stored) is not None for run in (a, b))
    return RunDiff(
        a,
        b,
        params=changed(flatten(dict(a.params)), flatten(dict(b.params)), "parameter"),
        command=_command(a, b),
        code=source_code.compare(a.stored, b.stored) if code_known else [],
        environment=_environment(a.environment, b.environment),
        metrics=_metrics(a.metrics, b.metrics),
        code_known=code_known,
    )


def changed(a: Mapping[str, Any], b: Mapping[str, Any], kind: str) -> list[Change]:
    """The names whose values differ, in the order of A, then B."""
    return [
        Change(kind, name, a.get(name, ABSENT), b.get(name, ABSENT))
        for name in dict.fromkeys([*a, *b])
        if not _same(a.get(name, ABSENT), b.get(name, ABSENT))
    ]


def _same(a: Any, b: Any) -> bool:
    if a is ABSENT or b is ABSENT:
        return a is b
    return canonical(to_json(a)) == canonical(to_json(b))


def _command(a: KeptRun, b: KeptRun) -> list[Change]:
    one, two = a.command, b.command
    if one is None or two is None:
        return []
    first, second = (
        {"script": c.script or c.module, "arguments": " ".join(c.argv[1:]), "seed": c.seed}
        for c in (one, two)
    )
    return changed(first, second, "command")


def _environment(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Change]:
    """Packages, machine and variables; how busy the machine was is no property of it."""

    def part(environment: Mapping[str, Any], name: str) -> dict[str, Any]:
        found = environment.get(name)
        return flatten(dict(found)) if isinstance(found, Mapping) else {}

    def rest(environment: Mapping[str, Any]) -> dict[str, Any]:
        left = {k: v for k, v in environment.items() if k not in ("packages", "variables", "load", "git")}
        flat = flatten({**{k: v for k, v in left.items() if k != "machine"}, **part(environment, "machine")})
        return {k: v for k, v in flat.items() if not k.startswith("load.")}

    if not a or not b:
        return []
    return [
        *changed(part(a, "packages"), part(b, "packages"), "package"),
        *changed(rest(a), rest(b), "machine"),
        *changed(part(a, "variables"), part(b, "variables"), "variable"),
    ]


def _metrics(a: Mapping[str, Mapping[str, Any]], b: Mapping[str, Mapping[str, Any]]) -> list[MetricChange]:
    def best(summary: Mapping[str, Any] | None) -> tuple[float, float] | None:
        if not summary or summary.get("min") is None or summary.get("max") is None:
            return None
        return float(summary["min"]), float(summary["max"])

    return [
        MetricChange(
            key,
            a[key]["last"] if key in a else None,
            b[key]["last"] if key in b else None,
            best(a.get(key)),
            best(b.get(key)),
        )
        for key in sorted({*a, *b})
    ]
