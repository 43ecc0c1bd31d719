"""What differs between two runs: parameters, command, code, environment, metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from luxmeter.by_name import by_name
from luxmeter.described import canonical
from luxmeter.experiment.query import source_code
from luxmeter.files import to_json
from luxmeter.store import Run, flatten


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
    """Two runs, side by side: what differs, each part read when it is first asked for, and all metrics of either."""

    a: Run
    b: Run

    @cached_property
    def params(self) -> list[Change]:
        """Parameters, with dotted names."""
        return changed(self.a.flat_params, self.b.flat_params, "parameter")

    @cached_property
    def command(self) -> list[Change]:
        """Script, arguments, seed; nothing if one of them keeps no command."""
        one, two = self.a.command, self.b.command
        if one is None or two is None:
            return []
        first, second = (
            {"script": c.script or c.module, "arguments": " ".join(c.argv[1:]), "seed": c.seed}
            for c in (one, two)
        )
        return changed(first, second, "command")

    @property
    def code_known(self) -> bool:
        """Whether both keep their code."""
        return self.a.snapshot is not None and self.b.snapshot is not None

    @cached_property
    def code(self) -> list[source_code.FileDiff]:
        """The whole code, with the lines that differ."""
        return source_code.diff_code(self.a, self.b) if self.code_known else []

    @cached_property
    def imported(self) -> dict[str, str]:
        """The files that ran and differ: path -> changed, new (in B alone) or gone. A run without any tells nothing."""
        files_a, files_b = (run.snapshot.files if run.snapshot else {} for run in (self.a, self.b))
        found = {
            path: "changed" for path, content in files_b.items() if files_a.get(path, content) != content
        }
        if files_a:
            found |= {path: "new" for path in files_b if path not in files_a}
        if files_b:
            found |= {path: "gone" for path in files_a if path not in files_b}
        return found

    @cached_property
    def tree_differs(self) -> bool:
        """Whether git's trees differ, whatever of them ran."""
        trees = {(run.snapshot.git or {}).get("tree") for run in (self.a, self.b) if run.snapshot}
        return len(trees) == 2 and None not in trees

    @cached_property
    def environment(self) -> list[Change]:
        """Packages, machine and variables."""
        return _environment(self.a.environment, self.b.environment)

    @cached_property
    def metrics(self) -> list[MetricChange]:
        """Every metric of either, differing or not."""
        return _metrics(self.a.metrics, self.b.metrics)

    def _repr_html_(self) -> str:
        """In a notebook."""
        shown: str = by_name("run diff html")(self)
        return shown


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
