"""Repeats: runs that differ only in their seed are one variant, with a mean and an interval instead of a number.

    for group in find_repeats(lab, name="mnist"):
        print(group.label, group.estimate("acc"))
    compare_groups(a, b, "acc").why       # "may be chance (p 0.19); 7 more seeds a side would probably tell"

A group is all finished runs of one name with equal parameters (apart from the seed) and equal code (no file that
two of them imported differs). Two runs of
one seed are one repeat: the newer counts, since a deterministic training run twice is not two observations.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from luxmeter.described import canonical
from luxmeter.errors import LuxmeterError, UsageError, suggestion
from luxmeter.experiment.compare.repeat_stats import Difference, Estimate, difference, estimate
from luxmeter.files import from_json
from luxmeter.store import Lab, Run, records

OF = ("last", "min", "max")
_SMALLER_IS_BETTER = ("loss", "err", "perplexity", "ppl", "mse", "mae", "rmse", "nll", "wer", "fid", "time", "latency", "bpc", "bpb")  # fmt: skip


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seed. `members` count, oldest first; `left_out` says which do not, and why."""

    name: str
    params: dict[str, Any]
    code: str
    members: tuple[Run, ...]
    left_out: dict[str, str] = field(default_factory=dict)  # run id -> reason
    varying: tuple[str, ...] = ()  # the parameters that tell it from the other groups

    @property
    def n(self) -> int:
        """How many repeats there are."""
        return len(self.members)

    @property
    def seeds(self) -> list[int | None]:
        """The seed of each member."""
        return [member.seed for member in self.members]

    @property
    def label(self) -> str:
        """What tells this group from the others: `mnist lr=0.1`."""
        told = [f"{key}={_short(self.params[key])}" for key in self.varying if key in self.params]
        return " ".join([self.name, *told])

    @property
    def metrics(self) -> list[str]:
        """The metrics that any member has, the machine's own left out."""
        return list(
            dict.fromkeys(
                key for member in self.members for key in member.summary if not key.startswith(records.SYSTEM)
            )
        )

    def values(self, metric: str, *, of: str = "last") -> list[float]:
        """That metric's last (or min, max) of each member that has a finite one."""
        return [value for _, value in self.pairs(metric, of=of)]

    def pairs(self, metric: str, *, of: str = "last") -> list[tuple[Run, float]]:
        """Each member with its value; members without a finite one are left out."""
        if of not in OF:
            raise UsageError("repeat-of", f"A metric has no {of!r}.", f"Use one of {', '.join(OF)}.")
        found = []
        for member in self.members:
            value = member.summary.get(metric, {}).get(of)
            if isinstance(value, int | float) and value - value == 0:
                found.append((member, float(value)))
        return found

    def estimate(
        self, metric: str, *, of: str = "last", confidence: float = 0.95, method: str = "t"
    ) -> Estimate | None:
        """The mean over the repeats with its interval; None if no member has the metric."""
        values = self.values(metric, of=of)
        return estimate(values, confidence=confidence, method=method) if values else None


def find_repeats(
    lab: Lab,
    where: str = "",
    *,
    name: str | None = None,
    code: bool = True,
    archived: bool | None = False,
) -> list[Group]:
    """The groups among the lab's runs that fulfil the filter, oldest first. `code=False`: whatever code they ran."""
    rows = lab.runs(where, sort="created", archived=archived)
    kept = [row for row in rows if name is None or row.name == name]
    return group_runs([Run.listed(row, lab.folder) for row in kept], code=code)


def group_runs(runs: Iterable[Any], *, code: bool = True) -> list[Group]:
    """Groups of runs (or anything with a run's `.folder`), in the order of their first run."""
    members = [as_run(run) for run in runs]
    alike: dict[tuple[str, str], list[Run]] = {}
    for member in members:
        alike.setdefault((member.name, canonical(member.variant)), []).append(member)
    groups: list[tuple[str, list[Run]]] = []
    for some in alike.values():
        # Code can only part what is otherwise alike: a run alone need not be looked into.
        groups += _by_code(some) if code and len(some) > 1 else [("", some)]
    varying = _varying([some[0] for _, some in groups])
    made = [_group(some, told, varying) for told, some in groups]
    return sorted(made, key=_first_ns)


def as_run(thing: Any) -> Run:
    """A run itself, or that of an object with a run's `.folder`."""
    return thing if isinstance(thing, Run) else Run(Path(thing.folder))


def group_of(groups: Sequence[Group], reference: str) -> Group:
    """The group that `reference` names: its label, a run id in it or the beginning of one."""
    for group in groups:
        if group.label == reference:
            return group
    named = [g for g in groups if g.name == reference]
    if len(named) == 1:
        return named[0]
    if reference:
        inside = [g for g in groups for m in g.members if m.id.startswith(reference)]
        if len({id(g) for g in inside}) == 1:
            return inside[0]
    raise UsageError(
        "no-such-group",
        f"No group of repeats is called {reference!r}.",
        suggestion(reference, [g.label for g in groups])
        or f"There are: {', '.join(repr(g.label) for g in groups[:8]) or 'none'}.",
    )


def compare_groups(
    a: Group,
    b: Group,
    metric: str,
    *,
    of: str = "last",
    paired: bool = False,
    alpha: float = 0.05,
    power: float | None = 0.8,
    matters: float | None = None,
    tests: int = 1,
) -> Difference:
    """B against A in one metric: test, effect size, interval, and how many seeds more are needed.

    `paired=True` compares seed by seed (the seeds that both sides have): worth it where the seed decides much on
    both sides, such as the split of the data.
    """
    for group in (a, b):
        if not group.values(metric, of=of):
            raise UsageError(
                "no-such-metric",
                f"No run of {group.label!r} has a finite {metric!r}.",
                suggestion(metric, group.metrics) or f"They have: {', '.join(group.metrics) or 'none'}.",
            )
    values_a, values_b = a.values(metric, of=of), b.values(metric, of=of)
    if paired:
        of_a, of_b = _by_seed(a, metric, of), _by_seed(b, metric, of)
        shared = [seed for seed in of_a if seed in of_b]
        if not shared:
            raise UsageError(
                "no-shared-seeds",
                f"{a.label!r} and {b.label!r} have no seed in common.",
                "Compare them without pairs, or run both with the same seeds.",
            )
        values_a, values_b = [of_a[s] for s in shared], [of_b[s] for s in shared]
    return difference(
        values_a, values_b, paired=paired, alpha=alpha, power=power, matters=matters, tests=tests
    )


def higher_is_better(metric: str) -> bool:
    """Whether more of a metric is good, by its name: less is for losses, errors and times."""
    words = metric.lower().replace("/", "_").replace(".", "_").replace("-", "_").split("_")
    return not any(word.startswith(_SMALLER_IS_BETTER) or word.endswith("loss") for word in words)


def _group(members: list[Run], code: str, varying: tuple[str, ...]) -> Group:
    members = sorted(members, key=lambda m: m.created_ns)
    left_out = {m.id: m.state for m in members if m.state != "finished"}
    newest: dict[Any, Run] = {}
    for member in members:
        if member.id in left_out:
            continue
        key = member.id if member.seed is None else member.seed
        if key in newest:
            left_out[newest[key].id] = f"seed {member.seed} was run again"
        newest[key] = member
    counted = tuple(sorted(newest.values(), key=lambda m: m.created_ns))
    return Group(members[0].name, members[0].variant, code, counted, left_out, varying)


def _varying(firsts: list[Run]) -> tuple[str, ...]:
    """The parameters that are not the same in all groups of one name."""
    found: dict[str, None] = {}
    for name in {member.name for member in firsts}:
        params = [member.variant for member in firsts if member.name == name]
        for key in dict.fromkeys(key for one in params for key in one):
            if len({canonical(one[key]) if key in one else "" for one in params}) > 1:
                found[key] = None
    return tuple(found)


def _first_ns(group: Group) -> int:
    return min((member.created_ns for member in group.members), default=0)


def _by_seed(group: Group, metric: str, of: str) -> dict[int, float]:
    return {m.seed: value for m, value in group.pairs(metric, of=of) if m.seed is not None}


def _by_code(members: list[Run]) -> list[tuple[str, list[Run]]]:
    """Members parted where their code differs: a file that both have imported with different content.

    Which files were imported is no difference: the second run of a process finds more modules loaded than the
    first. Where none were kept, git's tree tells; outputs and notes lie in it too, so it is only the second choice.
    """
    parts: list[tuple[dict[str, str], str, list[Run]]] = []
    for member in sorted(members, key=lambda m: m.created_ns):
        try:
            code = member.snapshot
        except (LuxmeterError, OSError):
            code = None
        files = {} if code is None else code.files
        tree = "" if code is None or files else str((code.git or {}).get("tree") or "")
        for known, known_tree, some in parts:
            if tree == known_tree and all(
                known.get(path, content) == content for path, content in files.items()
            ):
                known.update(files)
                some.append(member)
                break
        else:
            parts.append((dict(files), tree, [member]))
    return [
        (hashlib.sha256(_text(files).encode()).hexdigest()[:12] if files else tree, some)
        for files, tree, some in parts
    ]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def _short(value: Any) -> str:
    value = from_json(value)
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 24 else text[:23] + "…"
