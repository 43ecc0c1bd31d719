"""Two traces held against each other: made-up recordings with known times, and the command on real ones."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import luxmeter as lux
from luxmeter.calls.diff import diff_traces
from luxmeter.calls.reader import Recording
from luxmeter.calls.records import FIRST, CallableNames
from luxmeter.calls.result import TraceResult
from luxmeter.environment import Difference
from luxmeter.errors import TraceError, UsageError
from luxmeter.view.cli import build_app

ONE_CORE = "differences are found in recordings, whichever core made them"


class Made:
    """A trace of made-up self times: name -> nanoseconds of each call."""

    folder = Path("made")
    recorded_with: ClassVar[dict[str, Any]] = {}
    environment: ClassVar[dict[str, Any]] = {}

    def __init__(self, times: dict[str, np.ndarray]) -> None:
        names = list(times)
        code = np.concatenate([np.full(len(times[n]), i + 1) for i, n in enumerate(names)]).astype(np.uint32)
        duration = np.concatenate([times[n] for n in names]).astype(np.int64)
        size = len(code)
        zeros = np.zeros(size, np.uint32)
        events = {
            "start_ns": np.arange(size, dtype=np.int64) * 1000, "duration_ns": duration, "child_ns": zeros.astype(np.int64),
            "wait_ns": zeros.astype(np.int64), "callable": code, "signature": zeros, "thread": zeros, "section": zeros,
            "module": zeros, "depth": zeros.astype(np.uint16), "flags": zeros.astype(np.uint16), "process": zeros,
        }  # fmt: skip
        words = (CallableNames("(luxmeter)"), *(CallableNames(n) for n in names))
        self.recording = Recording(events, (), words, (None,), ())


def made(seed: int, **scale: float) -> TraceResult:
    rng = np.random.default_rng(seed)
    names = {
        "torch.mm": 90_000,
        "torch.add": 5_000,
        "torch.cat": 3_000,
        "torch.sin": 2_000,
        "torch.exp": 1_000,
    }
    names |= {f"torch.other{n}": 1_000 + n for n in range(10)}
    times = {
        name: mean * scale.get(name.removeprefix("torch."), 1.0) * rng.lognormal(0, 0.05, 300)
        for name, mean in names.items()
        if scale.get(name.removeprefix("torch."), 1.0) > 0
    }
    return Made(times)  # type: ignore[return-value]


def test_what_got_slower_is_found_and_weighed() -> None:
    found = diff_traces(made(1), made(2, mm=1.2, exp=3.0, cat=0.5))
    kinds = {c.name: c.kind for c in found.changes}
    assert kinds["torch.mm"] == kinds["torch.exp"] == "slower" and kinds["torch.cat"] == "faster"
    assert {kinds[n] for n in ("torch.add", "torch.sin", "torch.other3")} <= {"same", "unclear"}
    assert found.changes[0].name == "torch.mm"  # +20 % of nearly all weighs more than +200 % of a little
    assert found.changes[0].relative == pytest.approx(0.2, abs=0.02)
    assert found.changes[0].weight == pytest.approx(0.2 * found.changes[0].share_a, abs=0.02)


@pytest.mark.parametrize("seed", range(8))
def test_noise_is_no_difference(seed: int) -> None:
    found = diff_traces(made(seed), made(seed + 100), smallest=0.01)
    assert not found.of("slower") and not found.of("faster")


def test_a_slower_machine_is_told_as_such() -> None:
    names = ("mm", "add", "cat", "sin", "exp", *(f"other{n}" for n in range(10)))
    found = diff_traces(made(1), made(2, **dict.fromkeys(names, 1.3)))
    assert found.common == pytest.approx(0.3, abs=0.02)
    beyond = diff_traces(made(1), made(2, **{**dict.fromkeys(names, 1.3), "mm": 2.0}))
    assert next(c.name for c in beyond.of("slower")) == "torch.mm"


@pytest.mark.parametrize("seed", range(4))
def test_another_run_of_the_same_program_is_no_difference(seed: int) -> None:
    """Between two runs every name moves by some percent of its own: memory, frequency, other programs."""
    rng = np.random.default_rng(seed)
    names = ("mm", "add", "cat", "sin", "exp", *(f"other{n}" for n in range(10)))
    moved = dict(zip(names, 1 + rng.normal(0.03, 0.08, len(names)), strict=True))
    found = diff_traces(made(seed), made(seed + 50, **moved))
    assert not found.of("slower") and not found.of("faster")
    beyond = diff_traces(made(seed), made(seed + 50, **{**moved, "mm": 2.5}))
    assert [c.name for c in beyond.of("slower")] == ["torch.mm"]


def test_new_and_gone() -> None:
    found = diff_traces(made(1, exp=0), made(2, sin=0))
    assert [c.name for c in found.of("new")] == ["torch.exp"] and [c.name for c in found.of("gone")] == [
        "torch.sin"
    ]
    assert found.of("gone")[0].weight < 0 < found.of("new")[0].weight


def often(seed: int, number: int, **other: int) -> TraceResult:
    """Fifteen names, each called so often."""
    rng = np.random.default_rng(seed)
    names = ("mm", "add", "cat", "sin", "exp", *(f"other{n}" for n in range(10)))
    return Made({name: 1_000 * rng.lognormal(0, 0.05, other.get(name, number)) for name in names})  # type: ignore[return-value]


def test_what_is_called_more_or_less_often_is_told() -> None:
    found = diff_traces(often(1, 100), often(2, 100, sin=400, exp=50))
    (more,), (fewer,) = found.of("more"), found.of("fewer")
    assert (more.name, more.n_a, more.n_b) == ("sin", 100, 400) and "4 times as often" in more.why
    assert fewer.name == "exp" and "0.5 times as often" in fewer.why
    assert more.weight == pytest.approx(3 * more.share_a, rel=0.01) and fewer.weight < 0
    assert found.changes[0] is more and not found.of("slower") and not found.of("faster")


def test_a_longer_run_is_no_difference() -> None:
    found = diff_traces(often(1, 100, add=3), often(2, 250, add=3))  # add: setting up, once in each run
    assert found.longer == 2.5
    assert {c.kind for c in found.changes} <= {"same", "unclear"}
    assert [c.name for c in diff_traces(often(1, 100), often(2, 250, cat=500)).of("more")] == ["cat"]


def test_more_calls_that_are_each_quicker_are_weighed_together() -> None:
    one, two = often(1, 100), often(2, 100, sin=400)
    quicker = two.recording.events["callable"] == 4
    two.recording.events["duration_ns"][quicker] //= 2
    (change,) = diff_traces(one, two).of("more")
    assert change.weight == pytest.approx(change.share_a, rel=0.1)  # 4 times as often, half as long: twice
    assert "4 times as often; a call -" in change.why


def test_a_few_calls_are_never_enough() -> None:
    one = Made({"torch.mm": np.array([100.0, 100.0])})
    two = Made({"torch.mm": np.array([900.0, 900.0])})
    (change,) = diff_traces(one, two).changes  # type: ignore[arg-type]
    assert change.kind == "unclear" and "cannot reach" in change.why


def test_wrong_requests() -> None:
    with pytest.raises(UsageError, match="'signature'"):
        diff_traces(made(1), made(2), by="signatures")
    with pytest.raises(UsageError, match="bad-smallest"):
        diff_traces(made(1), made(2), smallest=0)


def test_two_runs_of_one_program_are_told_to_be_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        with lux.trace(keep=name):
            for _ in range(5):
                torch.ones(4) + 1
    build_app()(["diff", "a", "b"], standalone_mode=False)
    assert capsys.readouterr().out.startswith(
        "no difference beyond noise; of 2 none differs by more than 5.0%"
    )


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    small, large = torch.ones(8, 8), torch.ones(256, 256)
    for name, x in (("a", small), ("b", large)):
        with lux.trace(keep=name):
            for _ in range(40):
                x @ x
                torch.ones(4)
            if name == "b":
                torch.zeros(2)
    build_app()(["diff", "a", "b", "--json"], standalone_mode=False)
    changes = {c["name"]: c for c in json.loads(capsys.readouterr().out)["changes"]}
    assert set(changes) == {"@", "torch.ones", "torch.zeros"} and changes["torch.zeros"]["kind"] == "new"
    assert changes["@"]["n_a"] == changes["@"]["n_b"] == 40
    assert changes["@"]["median_b_ns"] > changes["@"]["median_a_ns"]
    build_app()(["diff", "a", "b", "--by", "signature"], standalone_mode=False)
    said = capsys.readouterr().out
    assert re.search(r"gone +@ +f32\[8,8\], f32\[8,8\] ", said) and "2 new, 1 gone" in said
    with pytest.raises(UsageError, match="no-trace-to-compare"):
        Path("empty").mkdir()
        build_app()(["diff", "a", "empty"], standalone_mode=False)
    with lux.trace(keep="t", totals=True):
        torch.ones(1)
    with pytest.raises(TraceError, match="totals-only"):
        build_app()(["diff", "a", "t"], standalone_mode=False)


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [("inside", True, "yes"), ("sync", True, "yes"), ("signatures", False, "no"), ("sample", 3, "3"),
     ("only", ["torch.ones", "torch.zeros"], "torch.ones, torch.zeros"), ("skip", "torch.zeros", "torch.zeros"),
     ("also", "json", "json"), ("strides", True, "yes"), ("budget", 0.9, "0.9"), ("lossless", True, "yes")],
)  # fmt: skip
def test_other_options_are_said_before_any_number(
    name: str, value: object, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder, options in (("a", {}), ("b", {name: value})):
        with lux.trace(keep=folder, **options):  # type: ignore[arg-type]
            for _ in range(3):
                torch.ones(4)
    build_app()(["diff", "a", "b"], standalone_mode=False)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "A and B were traced with different options: their numbers may not compare."
    assert said[2].split()[0] == name and shown in said[2]
    build_app()(["diff", "b", "a", "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert next(iter(found)) == "options" and [o["name"] for o in found["options"]] == [name]
    (change,) = diff_traces(lux.load_trace("a"), lux.load_trace("b")).options
    assert change.name == name and change.a != change.b and change.touches


def test_options_that_touch_no_number_are_not_said(capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("a", "b"):
        with lux.trace(
            keep=folder, name=folder, only=["torch.ones", "torch.*"][:: 1 if folder == "a" else -1]
        ):
            torch.ones(4)
    kept = json.loads(Path("a/trace.json").read_text())
    del kept["options"]["sync"]  # a trace of an older version, without an option that has its default
    Path("a/trace.json").write_text(json.dumps(kept))
    assert diff_traces(lux.load_trace("a"), lux.load_trace("b")).options == ()


def test_an_empty_trace_against_a_full_one(capsys: pytest.CaptureFixture[str]) -> None:
    for name, calls in (("a", 0), ("b", 3)):
        with lux.trace(framework=None, keep=name) as t:
            for _ in range(calls):
                t.wrap(len, name="work")("")
    found = diff_traces(lux.load_trace("a"), lux.load_trace("b"))
    assert [(c.name, c.kind, c.weight) for c in found.changes] == [("work", "new", 1.0)]
    assert found.longer == 1.0 and found.summary() == ["1 new"]


def test_traces_of_two_programs_have_nothing_to_compare() -> None:
    one = Made({"torch.mm": np.full(5, 10.0)})
    two = Made({"torch.add": np.full(5, 10.0), "torch.sin": np.full(5, 10.0)})
    with pytest.raises(UsageError, match=r"A has torch\.mm, B torch\.add and 1 more"):
        diff_traces(one, two)  # type: ignore[arg-type]


def test_another_environment_is_told_above_the_table() -> None:
    found = replace(diff_traces(made(1), made(2)), differences=(Difference("torch", "2.12", "2.13"),))
    assert found.warnings() == ["not the same environment: torch 2.12 and 2.13"]
    assert "not the same environment" in found._repr_html_()


def test_what_is_called_a_little_more_often_and_is_much_slower_is_slower() -> None:
    one, two = often(1, 100), often(2, 100, sin=130)
    slower = two.recording.events["callable"] == 4
    two.recording.events["duration_ns"][slower] *= 5
    found = diff_traces(one, two)
    (change,) = found.of("slower")
    assert change.name == "sin" and change.why.startswith("1.3 times as often; a call +")
    assert change.weight == pytest.approx((1.3 * 5 - 1) * change.share_a, rel=0.1)
    assert [r.kind for r in found.regressions(0.5)] == ["slower"] and not found.regressions(5.0)


def test_of_a_name_that_was_called_once_the_first_call_is_compared() -> None:
    one, two = (
        Made({"torch.mm": np.full(50, 10.0), "torch.compile": np.array([took])}) for took in (70.0, 90.0)
    )
    for trace in (one, two):
        events = trace.recording.events
        events["flags"][events["callable"] == 2] = FIRST
    found = {c.name: c for c in diff_traces(one, two).changes}  # type: ignore[arg-type]
    assert (found["torch.compile"].median_a_ns, found["torch.compile"].median_b_ns) == (70, 90)
    assert found["torch.compile"].kind == "unclear"
