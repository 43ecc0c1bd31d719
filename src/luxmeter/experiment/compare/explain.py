"""Which of the differences between two runs plausibly explains that a metric differs. Ranked, and honest about chance.

A rank is a judgement from what kind of thing differs; it becomes evidence only where other runs of the lab differ in
one of the things alone. Whether there is anything to explain is asked first: repeats with other seeds tell how far
chance reaches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from luxmeter.by_name import by_name
from luxmeter.described import canonical
from luxmeter.errors import UsageError, suggestion
from luxmeter.experiment.compare.diff import RunDiff
from luxmeter.experiment.compare.plausible import CANNOT, Candidate, candidates
from luxmeter.experiment.compare.repeat_stats import difference
from luxmeter.experiment.compare.repeats import Group, group_runs
from luxmeter.experiment.query.conditions import C
from luxmeter.experiment.query.runs import runs
from luxmeter.experiment.query.source_code import same_code
from luxmeter.files import to_json
from luxmeter.render import counted
from luxmeter.store import Run, records

ALPHA = 0.05
_MOST_GROUPED = 2000  # of the newest runs of these names: repeats are sought among them


@dataclass(frozen=True)
class Chance:
    """How the difference compares with what the seed alone does. `p` is None where nothing tells."""

    p: float | None
    words: str

    @property
    def may_be_chance(self) -> bool | None:
        """True, False, or None if it cannot be judged."""
        return None if self.p is None else self.p >= ALPHA


@dataclass(frozen=True)
class Explanation:
    """The answer for one metric: candidates from the most to the least plausible, and what they come to."""

    metric: str
    a: float | None
    b: float | None
    differs: bool
    chance: Chance
    candidates: tuple[Candidate, ...]
    conclusion: str

    def _repr_html_(self) -> str:
        """In a notebook."""
        shown: str = by_name("explanation html")(self)
        return shown


def diff_runs(a: Run, b: Run, *, metric: str = "") -> tuple[RunDiff, Explanation | None]:
    """What differs, and what plausibly explains it."""
    found = RunDiff(a, b)
    keys = [m.key for m in found.metrics]
    if metric and metric not in keys:
        raise UsageError(
            "diff-metric",
            f"Neither run has a metric {metric!r}.",
            suggestion(metric, keys) or f"They have: {', '.join(keys) or 'none'}.",
        )
    return found, explain(found, _groups(a, b), metric=metric or None)


def main_metric(diff: RunDiff) -> str | None:
    """The metric people look at: of both runs, not the machine's; validation before training, score before loss.

    One that differs, if any does.
    """
    both = [
        m
        for m in diff.metrics
        if m.a is not None and m.b is not None and not m.key.startswith(records.SYSTEM)
    ]
    both = [m for m in both if m.differs] or both

    def rank(key: str) -> tuple[int, int, str]:
        low = key.lower()
        held_out = 0 if any(word in low for word in ("test", "val", "eval")) else 1
        score = next((i for i, word in enumerate(("acc", "f1", "auc", "score", "loss")) if word in low), 9)
        return held_out, score, key

    return min((m.key for m in both), key=rank, default=None)


def explain(diff: RunDiff, groups: Sequence[Group], *, metric: str | None = None) -> Explanation | None:
    """Why `metric` differs. `groups` are the repeats of the lab's runs of these names; None without a common metric."""
    key = metric or main_metric(diff)
    found = next((m for m in diff.metrics if m.key == key), None)
    if found is None:
        return None
    group_a, group_b = _group_with(groups, diff.a.id), _group_with(groups, diff.b.id)
    chance = _chance(found.key, found.a, found.b, group_a, group_b)
    listed = [_with_evidence(c, diff, found.key, found.difference, groups, group_a) for c in candidates(diff)]
    ranked = tuple(sorted(listed, key=lambda c: -c.weight))
    conclusion = _conclusion(found.key, found.difference, found.differs, chance, ranked)
    return Explanation(found.key, found.a, found.b, found.differs, chance, ranked, conclusion)


def _conclusion(
    key: str, gap: float | None, differs: bool, chance: Chance, ranked: Sequence[Candidate]
) -> str:
    if not differs:
        return f"{key} is the same in both: there is nothing to explain."
    if gap is None or not math.isfinite(gap):
        return f"{key} is not a number on both sides: look at where it stopped being one."
    real = [c for c in ranked if c.kind != "seed" and c.weight > CANNOT]
    if not ranked:
        return (
            "Nothing that is recorded differs. What is left is a computation that does not repeat itself, other data "
            "under the same name, or something that is not recorded."
        )
    if not real:
        if any(c.kind == "seed" for c in ranked):
            return (
                f"Only the seed differs, and nothing else that can matter: this is what chance does to {key}."
            )
        return f"Nothing differs that can plausibly change {key}."
    if chance.may_be_chance:
        return f"The difference may be chance. If it is real, {real[0].what} comes first."
    proven = [c for c in real if c.evidence and c.weight >= 1]
    certain = (
        ""
        if chance.may_be_chance is False
        else " Whether it is more than chance, one run a side cannot tell."
    )
    if proven:
        return f"{proven[0].what} explains it best: {proven[0].evidence}.{certain}"
    if len(real) == 1:
        return f"{real[0].what} is the only difference that can plausibly explain it.{certain}"
    return (
        f"{len(real)} things differ that can explain it; these runs cannot tell them apart. Change one at a time, "
        f"beginning with {real[0].what}.{certain}"
    )


# -- chance -----------------------------------------------------------------------------------------------------------


def _chance(key: str, a: float | None, b: float | None, one: Group | None, two: Group | None) -> Chance:
    if a is None or b is None or not math.isfinite(b - a):
        return Chance(None, "there is no difference of two numbers")
    of_a = one.values(key) if one else [a]
    of_b = two.values(key) if two else [b]
    if one is not None and one is two:
        return _inside(of_a)
    if len(of_a) >= 2 and len(of_b) >= 2:
        found = difference(of_a, of_b, alpha=ALPHA)
        words = f"{len(of_a)} and {counted(len(of_b), 'seed')}, means {found.mean_a:.4g} and {found.mean_b:.4g}: {found.why}"
        return Chance(found.p_value, words)
    if max(len(of_a), len(of_b)) >= 2:
        many, few = (of_a, of_b or [b]) if len(of_a) >= 2 else (of_b, of_a or [a])
        return _one_against(many, few[0])
    return Chance(None, "one run a side tells nothing about chance; repeat both with other seeds")


def _inside(values: Sequence[float]) -> Chance:
    """Both runs are repeats of each other."""
    if len(values) < 2:
        return Chance(1.0, "both are repeats of one variant")
    spread = max(values) - min(values)
    return Chance(
        1.0, f"both are repeats of one variant, whose {counted(len(values), 'seed')} span {spread:.4g}"
    )


def _one_against(many: Sequence[float], one: float) -> Chance:
    """How often a further repeat of the many would lie as far off as the one (a t prediction interval)."""
    from scipy.special import stdtr

    n = len(many)
    mean = math.fsum(many) / n
    std = math.sqrt(math.fsum((v - mean) ** 2 for v in many) / (n - 1))
    if std == 0:
        return Chance(
            None,
            f"{counted(n, 'seed')} on one side gave the same value; one run on the other tells no spread",
        )
    p = float(2 * stdtr(n - 1, -abs(one - mean) / (std * math.sqrt(1 + 1 / n))))
    words = f"{counted(n, 'seed')} on one side spread by {std:.2g} around {mean:.4g}, the other run has {one:.4g} (p {p:.2g})"
    return Chance(p, words)


# -- evidence ---------------------------------------------------------------------------------------------------------


def _with_evidence(
    candidate: Candidate,
    diff: RunDiff,
    key: str,
    gap: float | None,
    groups: Sequence[Group],
    of_a: Group | None,
) -> Candidate:
    """Runs that differ from A in this parameter alone show what it does by itself."""
    if (
        candidate.kind != "parameter"
        or of_a is None
        or not gap
        or len(_real_params(diff)) + len(diff.code) < 2
    ):
        return candidate
    name = candidate.name
    wanted = canonical({**of_a.params, name: _json_param(diff, name)})
    alike = (g for g in groups if g.members and g.name == of_a.name and canonical(g.params) == wanted)
    twin = next((g for g in alike if same_code(g.members[-1], diff.a)), None)
    values, base = (twin.values(key) if twin else []), of_a.values(key)
    if twin is None or not values or not base:
        return candidate
    effect = math.fsum(values) / len(values) - math.fsum(base) / len(base)
    share = effect / gap
    words = f"run {twin.members[-1].id} differs from A in {name} alone, and {key} moved by {effect:+.3g} of {gap:+.3g}"
    weight = 1 + min(share, 1.0) if share >= 0.5 else candidate.weight * (0.3 if share < 0.1 else 1)
    return replace(candidate, evidence=words, weight=weight)


def _json_param(diff: RunDiff, name: str) -> Any:
    """B's value as groups hold it: JSON, as the index has it."""
    return to_json(diff.b.flat_params.get(name))


def _real_params(diff: RunDiff) -> list[Any]:
    return [c for c in diff.params if c.name.rpartition(".")[2] not in records.SEED_NAMES]


def _group_with(groups: Sequence[Group], run_id: str) -> Group | None:
    return next((g for g in groups if any(m.id == run_id for m in g.members) or run_id in g.left_out), None)


def _groups(a: Run, b: Run) -> list[Group]:
    """The repeats among the runs of these names; the two themselves if they are of no lab."""
    names = {a.name, b.name}
    question = C.name == a.name
    for name in names - {a.name}:
        question = question | (C.name == name)
    lab_folder = a.folder.parent.parent
    if not (lab_folder / "lab.json").is_file():
        return group_runs([a, b])
    found = runs(question, lab=lab_folder, archived=None, limit=_MOST_GROUPED)
    members = found.in_full()
    missing = [run for run in (a, b) if run.id not in {member.id for member in members}]
    return group_runs([*members, *missing])
