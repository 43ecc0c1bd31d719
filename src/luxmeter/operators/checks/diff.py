"""Two results of a check: what fails now, what passes now, what is not there any more."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import asdict, dataclass
from typing import IO, Any

from luxmeter.errors import UsageError
from luxmeter.operators.checks.records import CheckResult
from luxmeter.plain_text import plain
from luxmeter.render import Column, Table
from luxmeter.verdict import Regression

_BAD = ("failed", "crashed", "hung")
KINDS = ("newly failing", "newly passing", "newly missing", "newly there", "otherwise")
_PACKAGES = ("torch", "luxmeter", "mindspore", "onnxruntime", "numpy")


@dataclass(frozen=True)
class CheckChange:
    """One case whose status is another one: `a` and `b` are the statuses, empty where it was not run."""

    kind: str
    case: str
    a: str
    b: str
    reason: str = ""


@dataclass(frozen=True)
class CheckDiff:
    """What changed from A to B; how many are as they were; what else differs between the two (`differences`)."""

    changes: tuple[CheckChange, ...]
    same: int
    differences: tuple[str, ...] = ()

    def of(self, kind: str) -> list[CheckChange]:
        """The changes of one kind."""
        return [change for change in self.changes if change.kind == kind]

    def regressions(self, threshold: float = 0.0) -> list[Regression]:
        """What was right and is not any more, or is not there any more; a check knows no more and less."""
        lost = [*self.of("newly failing"), *self.of("newly missing")]
        return [Regression(c.case, c.b or "not run", None, c.reason) for c in lost]

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    def table(self, *, top: int | None = None) -> Table:
        """A line for each change; below, how many of each kind."""
        shown = self.changes[:top]
        rows = [[c.kind, c.case, c.a or "not run", c.b or "not run", c.reason] for c in shown]
        columns = [
            Column(""),
            Column("case", folds=24),
            Column("A"),
            Column("B"),
            Column("reason", folds=24, most=160),
        ]
        counted = Counter(change.kind for change in self.changes)
        said = (
            ", ".join(f"{counted[kind]} {kind}" for kind in KINDS if counted[kind])
            or "no case has another status"
        )
        notes = [f"not the same: {line}" for line in self.differences]
        if len(self.changes) > len(shown):
            notes.append(f"... and {len(self.changes) - len(shown)} more")
        return Table(columns, rows, notes=[*notes, f"{said}; {self.same} as before"])

    def show(self, stream: IO[str] | None = None, *, top: int | None = None) -> None:
        """Print the table for a terminal; without a change only what is below it."""
        if self.changes:
            self.table(top=top).print(stream)
        else:
            (stream or sys.stdout).write(f"{self}\n")

    def __str__(self) -> str:
        table = self.table()
        return table.text() if self.changes else "\n".join(map(plain, table.notes))

    def _repr_html_(self) -> str:
        """In a notebook."""
        from luxmeter.render import repr_html

        return repr_html(self.table())


def diff_checks(a: CheckResult, b: CheckResult) -> CheckDiff:
    """What changed from A to B. Results that have no case in common are refused.

    >>> diff_checks(load_check("old.json"), load_check("new.json"))  # doctest: +SKIP
    """
    one, two = a.statuses(), b.statuses()
    if not one.keys() & two.keys():
        shown = [next(iter(found), "nothing") for found in (one, two)]
        raise UsageError(
            "check-diff-nothing",
            f"The two checks have no case in common: one has {shown[0]}, the other {shown[1]}.",
            "Check the same sources in the same dtypes, on the same devices and backends.",
        )
    reasons = {row.identity: row.reason for row in (*a.rows, *b.rows)}
    changes = []
    for place in {**one, **two}:
        before, after = one.get(place, ""), two.get(place, "")
        if before != after:
            changes.append(CheckChange(_kind(before, after), place, before, after, reasons.get(place, "")))
    order = {kind: number for number, kind in enumerate(KINDS)}
    changes.sort(key=lambda change: (order[change.kind], change.case))
    same = sum(one[place] == two.get(place) for place in one)
    return CheckDiff(tuple(changes), same, tuple(_differences(a, b)))


def _kind(before: str, after: str) -> str:
    if after in _BAD and before not in _BAD:
        return "newly failing"
    if after == "passed":
        return "newly passing" if before in _BAD or before == "missed" else "newly there"
    if after in ("missed", ""):
        return "newly missing"
    return "otherwise" if before else "newly there"


def _differences(a: CheckResult, b: CheckResult) -> list[str]:
    """What else the two do not share: then a change may come from there."""
    said = []
    for name in ("rounds", "seed", "samples", "backward", "setup"):
        one, two = a.options.get(name), b.options.get(name)
        if one != two:
            said.append(f"{name}: {one} and {two}")
    packages = [r.environment.get("packages", {}) for r in (a, b)]
    for name in _PACKAGES:
        one, two = (found.get(name) for found in packages)
        if one != two:
            said.append(f"{name}: {one or 'none'} and {two or 'none'}")
    machines = [r.environment.get("machine", {}) for r in (a, b)]
    for name in ("processor", "system", "python"):
        one, two = (found.get(name) for found in machines)
        if one != two:
            said.append(f"{name}: {one} and {two}")
    for letter, result in (("A", a), ("B", b)):
        if not result.complete:
            said.append(f"{letter} was stopped early")
    return said
