"""Repeats: which runs are one variant, and what may be said about it."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from luxmeter.errors import UsageError
from luxmeter.experiment.compare.repeat_stats import corrected, difference, estimate, power_of, seeds_needed
from luxmeter.experiment.compare.repeat_tables import repeat_table, shown, variant_table
from luxmeter.experiment.compare.repeats import (
    Group,
    compare_groups,
    find_repeats,
    group_of,
    group_runs,
    higher_is_better,
)
from luxmeter.store import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    opened = Lab.open(tmp_path / "lab")
    yield opened
    opened.close()


def run(
    lab: Lab,
    params: dict[str, Any],
    *,
    name: str = "net",
    code: str = "a",
    end: str = "finished",
    **metrics: float,
) -> str:
    writer = lab.create_run(name, params=params)
    writer.put_file("code.json", json.dumps({"root": "/", "files": {"train.py": code * 64}, "git": None}))
    writer.log(metrics, 0)
    writer.finish(end)
    return writer.id


def variants(lab: Lab, values: dict[float, list[float]]) -> list[Group]:
    for lr, accs in values.items():
        for seed, acc in enumerate(accs):
            run(lab, {"optim": {"lr": lr}, "seed": seed}, acc=acc)
    return find_repeats(lab)


# -- statistics -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [[1.0, 2.0], [0.3, 0.1, 0.4], [5.0, 5.5, 4.0, 6.1, 5.2]])
def test_interval_is_that_of_the_t_distribution(values: list[float]) -> None:
    found = estimate(values)
    low, high = scipy_stats.t.interval(0.95, len(values) - 1, np.mean(values), scipy_stats.sem(values))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.mean == pytest.approx(np.mean(values)) and found.method == "t"


@pytest.mark.parametrize("n", [2, 3, 5])
def test_interval_covers_as_often_as_it_says(n: int) -> None:
    draws = np.random.default_rng(n).normal(3.0, 2.0, size=(4000, n))
    covered = [e.low <= 3.0 <= e.high for e in map(estimate, draws)]  # type: ignore[operator]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.015)


def test_one_value_has_no_interval_and_equal_values_a_narrow_one() -> None:
    assert (estimate([2.0]).low, estimate([2.0]).half_width) == (None, None)
    same = estimate([0.1, 0.1, 0.1])
    assert same.std == 0 and same.low == same.high


def test_bootstrap_is_for_many() -> None:
    with pytest.raises(UsageError, match="bootstrap-too-few"):
        estimate([1.0, 2.0, 3.0], method="bootstrap")
    values = np.random.default_rng(0).normal(size=30)
    found = estimate(values, method="bootstrap")
    assert found.low < values.mean() < found.high
    assert found.half_width == pytest.approx(estimate(values).half_width, rel=0.2)


@pytest.mark.parametrize("paired", [False, True])
def test_difference_is_that_of_the_t_tests(paired: bool) -> None:
    a, b = [1.0, 2.0, 3.5, 2.2], [2.5, 4.0, 6.0, 3.0]
    ours = difference(a, b, paired=paired)
    theirs = scipy_stats.ttest_rel(b, a) if paired else scipy_stats.ttest_ind(b, a, equal_var=False)
    interval = theirs.confidence_interval()
    assert ours.p_value == pytest.approx(theirs.pvalue)
    assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high))
    assert ours.test == ("paired t" if paired else "welch")


def test_false_alarms_are_as_rare_as_alpha_says() -> None:
    draws = np.random.default_rng(1).normal(size=(400, 2, 3))
    called = [difference(a, b).call != "unclear" for a, b in draws]
    assert np.mean(called) <= 0.08


def test_effect_is_hedges_g() -> None:
    a, b = [1.0, 2.0, 3.0], [3.0, 4.0, 5.0]
    assert difference(a, b).effect == pytest.approx(2.0 * (1 - 3 / (4 * 4 - 1)), rel=0.01)
    assert difference(b, a).effect == pytest.approx(-difference(a, b).effect)


@pytest.mark.parametrize(("effect", "n"), [(0.2, 394), (0.5, 64), (0.8, 26), (1.0, 17), (2.0, 6)])
def test_seeds_needed_are_the_published_numbers(effect: float, n: int) -> None:
    """Cohen's tables: two-sided test, 5 %, power 80 %."""
    assert seeds_needed(effect) == n
    assert power_of(effect, n) >= 0.8 > power_of(effect, n - 1)


def test_seeds_needed_are_enough_in_truth() -> None:
    n = seeds_needed(1.5)
    rng = np.random.default_rng(2)
    found = [difference(rng.normal(0, 1, n), rng.normal(1.5, 1, n)).call == "higher" for _ in range(300)]
    assert np.mean(found) == pytest.approx(0.8, abs=0.08)


def test_seeds_needed_at_the_edges() -> None:
    assert seeds_needed(0.0) is None and seeds_needed(1e-4) is None
    assert seeds_needed(math.inf) == 2 and seeds_needed(0.5, paired=True) == 34


def test_too_few_values_are_said() -> None:
    one = difference([1.0], [2.0, 3.0])
    assert one.p_value is None and one.more_seeds == 1 and "another seed" in one.why
    stiff = difference([1.0, 1.0], [2.0, 2.0])  # nothing varies: a t test would claim certainty
    assert stiff.call == "unclear" and stiff.p_value == pytest.approx(1 / 3) and stiff.more_seeds == 2
    assert difference([1.0] * 4, [2.0] * 4).call == "higher"
    assert difference([1.0] * 3, [1.0] * 3).why == "the means are equal"


def test_matters_asks_for_the_seeds_of_that_difference() -> None:
    a, b = [1.0, 2.0, 3.0], [1.1, 2.1, 3.1]
    assert difference(a, b).more_seeds > 1000
    assert difference(a, b, matters=1.0).more_seeds == 17 - 3


def test_corrections() -> None:
    p = [0.01, 0.04, 0.03, 0.005]
    assert corrected(p, "holm") == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert corrected(p, "fdr") == pytest.approx([0.02, 0.04, 0.04, 0.02])
    assert corrected(p, "none") == p and corrected([], "holm") == []
    with pytest.raises(UsageError, match="correction-name"):
        corrected(p, "bonferoni")  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, 1, -0.1, 1.5])
def test_shares_are_checked(value: float) -> None:
    with pytest.raises(UsageError, match="not-a-share"):
        difference([1, 2], [3, 4], alpha=value)


# -- groups -----------------------------------------------------------------------------------------------------


def test_runs_that_differ_only_in_the_seed_are_one_group(lab: Lab) -> None:
    for seed in (1, 2, 3):
        run(lab, {"lr": 0.1, "seed": seed}, acc=0.5 + seed / 10)
        run(lab, {"lr": 0.2, "train": {"random_seed": seed}}, acc=0.9)
    run(lab, {"lr": 0.1, "seed": 1}, name="other", acc=0.1)
    groups = find_repeats(lab)
    assert [(g.label, g.seeds) for g in groups] == [
        ("net lr=0.1", [1, 2, 3]),
        ("net lr=0.2", [1, 2, 3]),
        ("other lr=0.1", [1]),
    ]
    assert groups[0].estimate("acc").mean == pytest.approx(0.7)
    assert groups[0].values("acc") == pytest.approx([0.6, 0.7, 0.8])
    assert [g.label for g in find_repeats(lab, "param.lr = 0.2")] == ["net"]
    assert [g.n for g in find_repeats(lab, name="other")] == [1]


def test_the_seed_of_the_command_counts_where_no_parameter_names_one(lab: Lab) -> None:
    for seed in (7, 8):
        writer = lab.create_run("net", params={"lr": 1})
        writer.put_file("command.json", json.dumps({"format": 1, "argv": [], "seed": seed}))
        writer.finish()
    (group,) = find_repeats(lab)
    assert group.seeds == [7, 8]


def test_changed_code_parts_a_group(lab: Lab) -> None:
    for seed, code in enumerate("aab"):
        run(lab, {"seed": seed}, code=code, acc=1.0)
    assert [g.n for g in find_repeats(lab)] == [2, 1]
    assert [g.n for g in find_repeats(lab, code=False)] == [3]


def test_modules_that_only_one_run_had_loaded_are_no_change_of_code(lab: Lab) -> None:
    """The second run of a process finds more modules imported than the first."""
    for seed, files in enumerate([{"a": "1"}, {"a": "1", "b": "2"}, {"a": "1", "b": "3"}, {}]):
        writer = lab.create_run("net", params={"seed": seed})
        writer.put_file("code.json", json.dumps({"root": "/", "files": files, "git": None}))
        writer.finish()
    assert [g.seeds for g in find_repeats(lab)] == [[0, 1, 3], [2]]


def test_without_kept_files_the_tree_of_git_tells(lab: Lab) -> None:
    for seed, tree in enumerate(("a" * 40, "a" * 40, "b" * 40)):
        writer = lab.create_run("net", params={"seed": seed})
        writer.put_file("code.json", json.dumps({"root": "/", "files": {}, "git": {"tree": tree}}))
        writer.finish()
    assert [g.seeds for g in find_repeats(lab)] == [[0, 1], [2]]


def test_a_seed_run_twice_counts_once_and_unfinished_runs_do_not(lab: Lab) -> None:
    first = run(lab, {"seed": 1}, acc=0.1)
    run(lab, {"seed": 1}, acc=0.2)
    failed = run(lab, {"seed": 2}, end="failed", acc=0.9)
    (group,) = find_repeats(lab)
    assert group.values("acc") == [0.2]
    assert group.left_out == {first: "seed 1 was run again", failed: "failed"}


def test_groups_of_store_runs_and_values_that_are_not_finite(lab: Lab) -> None:
    ids = [run(lab, {"seed": s}, acc=a) for s, a in enumerate([1.0, math.nan, 3.0])]
    (group,) = group_runs([lab.find(i) for i in ids])
    assert group.n == 3 and group.values("acc") == [1.0, 3.0] and group.estimate("none of these") is None
    with pytest.raises(UsageError, match="repeat-of"):
        group.values("acc", of="median")


def test_a_group_is_named_by_its_label_or_a_run(lab: Lab) -> None:
    groups = variants(lab, {0.1: [1, 2], 0.2: [3, 4]})
    assert group_of(groups, "net optim.lr=0.2") is groups[1]
    assert group_of(groups, groups[0].members[1].id[:7]) is groups[0]
    with pytest.raises(UsageError, match=r"Did you mean 'net optim\.lr=0\.2'"):
        group_of(groups, "net optim.lr=0.02")


def test_compare_groups_pairs_by_seed(lab: Lab) -> None:
    a, b = variants(lab, {0.1: [1.0, 5.0, 9.0], 0.2: [1.5, 5.4, 9.6]})
    assert compare_groups(a, b, "acc").call == "unclear"
    assert compare_groups(a, b, "acc", paired=True).call == "higher"
    with pytest.raises(UsageError, match="no-such-metric"):
        compare_groups(a, b, "accuracy")


# -- tables -----------------------------------------------------------------------------------------------------


def test_table_of_repeats(lab: Lab) -> None:
    table = repeat_table(variants(lab, {0.1: [0.90, 0.92, 0.94], 0.2: [0.5]}))
    frame = table.to_pandas()
    assert list(frame["acc.mean"]) == pytest.approx([0.92, 0.5]) and list(frame["n"]) == [3, 1]
    assert math.isnan(frame["acc.low"][1]) and list(frame["param.optim.lr"]) == [0.1, 0.2]
    out = io.StringIO()
    table.print(out)
    assert "0.920 ± 0.050" in out.getvalue() and "0..2" in out.getvalue()
    assert json.loads(json.dumps(table.records()))[0]["metrics"]["acc"]["n"] == 3


def test_table_of_variants_against_the_best_minds_all_pairs(lab: Lab) -> None:
    groups = variants(lab, {0.1: [0.90, 0.91, 0.92], 0.2: [0.5, 0.51, 0.52], 0.3: [0.89, 0.905, 0.91]})
    table = variant_table(groups, "acc")
    assert [row.group.params["optim.lr"] for row in table.rows] == [0.1, 0.3, 0.2]
    assert table.reference is groups[0] and table.tests == 3 and table.rows[0].against is None
    near, far = table.rows[1].against, table.rows[2].against
    assert near.call == "unclear" and near.more_seeds > 0 and far.call == "lower"
    raw = compare_groups(groups[0], groups[1], "acc").p_value
    assert far.p_corrected > raw == far.p_value
    out = io.StringIO()
    table.print(out)
    assert "worse" in out.getvalue() and "3 tests, p corrected after Holm" in out.getvalue()
    assert list(table.to_pandas()["call"])[1:] == ["unclear", "lower"]


def test_table_against_a_baseline_minds_only_those(lab: Lab) -> None:
    groups = variants(lab, {0.1: [1.0, 1.1], 0.2: [2.0, 2.1], 0.3: [3.0, 3.1]})
    table = variant_table(groups, "acc", baseline="net optim.lr=0.1", correction="fdr")
    assert table.tests == 2 and table.rows[-1].against is None
    assert [row.against.difference for row in table.rows[:2]] == pytest.approx([2.0, 1.0])
    assert variant_table(groups, "acc", best="low").reference is groups[0]
    for wrong in ({"best": "middle"}, {"baseline": "none"}):
        with pytest.raises(UsageError):
            variant_table(groups, "acc", **wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no-such-metric"):
        variant_table(groups, "loss")


def test_a_variant_with_one_repeat_is_no_reference(lab: Lab) -> None:
    groups = variants(
        lab, {0.1: [0.99], 0.2: [0.5, 0.51, 0.52], 0.3: [0.89, 0.9, 0.905, 0.91], 0.4: [0.6, 0.61]}
    )
    table = variant_table(groups, "acc")
    assert table.rows[0].group is groups[0] and table.reference is groups[2]
    calls = {row.group.params["optim.lr"]: row.against and row.against.call for row in table.rows}
    assert calls == {0.1: "unclear", 0.2: "lower", 0.3: None, 0.4: "lower"}
    assert table.tests == 3  # of the pairs with two repeats on both sides
    assert table.rows[0].against is not None and table.rows[0].against.difference > 0
    out = io.StringIO()
    table.print(out)
    assert "net optim.lr=0.1 is the best but has one repeat" in out.getvalue()
    assert "the reference is net optim.lr=0.3, which has the most (4)" in out.getvalue()
    assert out.getvalue().count("worse") == 2


def test_without_repeats_it_says_why_there_is_no_verdict(lab: Lab) -> None:
    groups = variants(lab, {0.1: [0.9], 0.2: [0.5]})
    assert "no variant has two repeats" in variant_table(groups, "acc").note
    one = variants(Lab.open(lab.folder.parent / "other"), {0.1: [0.9], 0.2: [0.5, 0.6]})
    table = variant_table(one, "acc", baseline="net optim.lr=0.1")
    assert table.reference is one[0] and "has one repeat, so nothing can be judged against it" in table.note
    assert variant_table(one, "acc", best="low").note == ""  # the best has two


def test_which_end_is_best() -> None:
    assert all(map(higher_is_better, ["acc", "val/accuracy", "mAP", "f1", "reward", "metrics"]))
    assert not any(map(higher_is_better, ["loss", "val_loss", "train/err", "top1.error", "rmse", "valloss"]))


@pytest.mark.parametrize(
    ("values", "text"),
    [([0.5], "0.5"), ([0.51, 0.53], "0.52 ± 0.13"), ([1e-9, 3e-9], "2e-09 ± 1.3e-08"), ([2.0, 2.0], "2 ± 0")],
)
def test_numbers_are_shown_as_far_as_they_mean_something(values: list[float], text: str) -> None:
    assert shown(estimate(values)) == text
    assert shown(None) == "-"
