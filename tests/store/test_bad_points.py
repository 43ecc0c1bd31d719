"""A point that cannot be kept is refused or dropped alone: never with others."""

from __future__ import annotations

import fractions
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import luxmeter as lux
from luxmeter.errors import UsageError
from luxmeter.files import read_json
from luxmeter.store import Lab
from luxmeter.store.finished import FinishedRun
from luxmeter.store.points import Summary, to_batch
from luxmeter.store.values import File, Stored, Text


class Late:
    """Stands for a value on a device that can only be read when it is written, and then not."""

    def __float__(self) -> float:
        raise RuntimeError("the device is gone")


class Odd:
    def stored(self) -> Any:
        return Stored("odd", 7)  # type: ignore[arg-type]


class Raising:
    def stored(self) -> Any:
        raise ZeroDivisionError("stored() of somebody else")


BAD_KEYS: list[Any] = [1, None, 1.5, b"x", (1,), "\udcff", "a\ud800b", True, math.nan]
BAD_STEPS: list[Any] = [2**63, -(2**63) - 1, 10**30, 1.5, "7", "x", [1], math.nan, np.float32(2), np.array([1, 2]),
                        torch.tensor([1, 2]), torch.tensor(1.5), torch.tensor(1, device="meta"), np.uint64(2**63)]  # fmt: skip
BAD_VALUES: list[Any] = [None, object(), 10**400, {"a": 1}, b"x", fractions.Fraction(1, 3), Odd(), Raising(),
                         [object()], torch.zeros(3, device="meta")]  # fmt: skip
GOOD_KEYS = ["loss", "", "a" * 2000, "a\0b", "train/loss", "Ω", "$tuple", "a.b"]
GOOD_STEPS: list[Any] = [0, -5, 2**63 - 1, -(2**63), np.int8(3), np.array(4), torch.tensor(5), True, None]
GOOD_VALUES: list[Any] = [0.5, math.nan, math.inf, -math.inf, 7, True, 1e308, np.float32(1), torch.tensor([2.0]), 2**70,
                          np.array([[3]]), "text", "\udcff", np.arange(3), np.array(["\udc80"]), 1 + 2j and np.array([1j])]  # fmt: skip


def kept_points(folder: Path) -> dict[str, int]:
    """How many points and objects of each key a run holds."""
    from luxmeter.store import Run

    run = Run(folder)
    found = {key: each["n"] for key, each in run.metrics.items()}
    for row in run.objects():
        found[row["key"]] = found.get(row["key"], 0) + 1
    return found


@pytest.mark.parametrize("bad", [{"key": k} for k in BAD_KEYS] + [{"step": s} for s in BAD_STEPS]
                         + [{"value": v} for v in BAD_VALUES], ids=lambda bad: next(iter(bad)))  # fmt: skip
@pytest.mark.parametrize("way", ["log", "metric"])
def test_a_bad_point_is_refused_at_the_call_and_costs_no_other(
    lab: Lab, bad: dict[str, Any], way: str
) -> None:
    point = {"key": "bad", "value": 1.0, "step": 3, **bad}
    with lab.create_run("x") as run:
        for step in range(30):
            run.log({"loss": float(step)}, step=step)
        with pytest.raises((UsageError, ZeroDivisionError)) as refused:
            if way == "metric":
                run.metric(point["key"], point["value"], point["step"])
            elif "step" in bad:
                run.log({"bad": 1.0}, step=point["step"])
            else:
                run.log({"before": 1.0, point["key"]: point["value"], "after": 2.0}, step=3)
        if isinstance(refused.value, UsageError):
            assert repr(point["key"]) in str(refused.value)
        run.log({"loss": 30.0}, step=30)
    assert run.state == "finished" and run.lost_rows == 0
    others = {} if way == "metric" or "step" in bad else {"before": 1, "after": 1}
    assert kept_points(run.folder) == {"loss": 31, **others}


def test_the_issue_s_three_cases_through_an_experiment(tmp_path: Path) -> None:
    with lux.Experiment("x", lab=tmp_path / "lab", quiet=True, system_s=0) as exp:
        for step in range(300):
            exp.log({"loss": float(step)}, step=step)
        for values, step in (({1: 2.0}, 5), ({"\udcff": 1.0}, 5), ({"x": 1.0}, 2**63)):
            with pytest.raises(UsageError):
                exp.log(values, step=step)
    assert exp.run.metrics["loss"]["n"] == 300 and set(exp.run.metrics) == {"loss"}
    assert exp.state == "finished" and exp.run.lost_rows == 0


def test_a_value_that_cannot_be_read_later_is_dropped_alone_and_named(lab: Lab) -> None:
    with pytest.warns(UserWarning) as told, lab.create_run("x") as run:
        for step in range(300):
            run.log({"loss": float(step)}, step=step)
        run.metric("on/meta", torch.zeros((), device="meta"), 3)
        run._put(("late", Late(), 4, 5))
        run._put(("far", 1.0, 4, 2**70))
        run.flush()
        run.log({"loss": 1.0}, step=301)
    said = [str(w.message) for w in told if "points-dropped" in str(w.message)]
    assert len(said) == 1
    for name in ("'on/meta'", "'late'", "'far'"):
        assert name in said[0]
    assert kept_points(run.folder) == {"loss": 301}
    assert run.lost_rows == 3 == read_json(run.folder / "status.json")["lost_rows"]


def test_each_flush_names_what_it_dropped(lab: Lab) -> None:
    with warnings.catch_warnings(record=True) as told, lab.create_run("x") as run:
        warnings.simplefilter("always")
        for name in ("one", "two"):
            run._put((name, Late(), 4, 5))
            run.flush()
    assert ["'one'" in str(told[0].message), "'two'" in str(told[1].message)] == [True, True]


def test_rows_that_do_not_fit_their_table_hold_nothing_up(lab: Lab) -> None:
    fits = pa.record_batch({"a": [1]})
    with pytest.warns(UserWarning, match="rows-dropped"), lab.create_run("x") as run:
        run.append_rows("mine", fits)
        run.flush()
        with pytest.raises(UsageError, match="same columns"):
            run.append_rows("mine", pa.record_batch({"a": ["text"]}))
        run.append_rows("no\0name", pa.record_batch({"a": [1, 2]}))
        run.append_rows("mine", fits)
        run.log({"loss": 1.0}, step=0)
        run.flush()
    assert kept_points(run.folder) == {"loss": 1}
    found = lab.find(run.id).table("mine")
    assert found is not None and found.num_rows == 2 == run.lost_rows


def test_text_of_half_characters_is_kept(lab: Lab, tmp_path: Path) -> None:
    odd = tmp_path / "a\udcff.t\udcfe"
    odd.write_bytes(b"content")
    with lab.create_run("x") as run:
        run.metric("text", Text("half \udcff"), 0)
        run.metric("file", File(odd), 0)
        run.metric("plain", "whole", 0)
    rows = {row["key"]: row for row in lab.find(run.id).objects()}
    assert rows["text"]["text"] == "half \udcff"
    assert rows["file"]["text"] == {"name": odd.name}
    assert rows["plain"]["text"] == "whole"


def test_tags_and_notes(lab: Lab) -> None:
    with lab.create_run("x") as run:
        for bad in (1, None, "", " a", "a/b"):
            with pytest.raises(UsageError, match="tag"):
                run.marks.tag("good", bad)  # type: ignore[arg-type]
        run.marks.tag("\udcff", "a\0")
        run.marks.set_note("\ud800 note")
        run.log({"loss": 1.0}, step=0)
    found = lab.find(run.id)
    assert found.tags == ["\udcff", "a\0"] and found.marks.note == "\ud800 note"
    assert [row.id for row in lab.runs()] == [run.id]


def test_imported_points_are_dropped_alone(lab: Lab) -> None:
    points = [
        "loss",
        1.0,
        0,
        10,
        "loss",
        2.0,
        2**64,
        11,
        "\udcff",
        3.0,
        1,
        12,
        "loss",
        4.0,
        2,
        2**70,
        "acc",
        5.0,
        3,
        13,
    ]
    objects = [("text", 0, 1, Stored("text", '"x"')), ("bad", 2**64, 1, Stored("text", '"y"'))]
    run = FinishedRun("abc", "name", 10**18, 10**18 + 1, points=points, objects=objects)
    with pytest.warns(UserWarning, match=r"4 points were left out: 'loss' has the step 18446744073709551616"):
        kept = lab.put_finished(run)
    assert kept_points(kept.folder) == {"loss": 1, "acc": 1, "text": 1}


def test_a_batch_that_fails_is_counted_once() -> None:
    summaries: dict[str, Summary] = {}
    dropped: list[Any] = []
    batch = to_batch(["a", 1.0, 0, 0, "a", Late(), 1, 0, "b", 2.0, 0, 0], summaries, dropped)
    assert batch.num_rows == 2 and {k: s.n for k, s in summaries.items()} == {"a": 1, "b": 1}
    assert [key for key, _ in dropped] == ["a"]


GOOD = st.tuples(st.sampled_from(GOOD_KEYS), st.sampled_from(GOOD_VALUES), st.sampled_from(GOOD_STEPS))
ANY = st.tuples(
    st.sampled_from([*GOOD_KEYS, *BAD_KEYS]),
    st.sampled_from([*GOOD_VALUES, *BAD_VALUES]),
    st.sampled_from([*GOOD_STEPS, *BAD_STEPS]),
)


def holds(some: list[Any], one: Any) -> bool:
    return any(one is each for each in some)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.one_of(GOOD, ANY), min_size=1, max_size=6), max_size=6), st.booleans())
def test_any_mixture_keeps_all_good_points(lab: Lab, calls: list[list[Any]], one_by_one: bool) -> None:
    wanted: dict[str, int] = {}
    with lab.create_run("x") as run:
        for call in calls:
            step = call[0][2]
            by_key = {key: value for key, value, _ in call}
            good = {
                key
                for key, value in by_key.items()
                if holds(GOOD_KEYS, key) and holds(GOOD_VALUES, value) and holds(GOOD_STEPS, step)
            }
            for key in good:
                wanted[key] = wanted.get(key, 0) + 1
            tries = [{key: value} for key, value in by_key.items()] if one_by_one else [by_key]
            refused = 0
            for values in tries:
                try:
                    run.log(values, step)
                except (UsageError, ZeroDivisionError):
                    refused += 1
            assert bool(refused) == (len(good) < len(by_key))
    assert kept_points(run.folder) == wanted
    assert run.lost_rows == 0
