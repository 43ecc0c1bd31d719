"""The search: within budgets, the same for the same seed, stopped and gone on, kept in the lab."""

from __future__ import annotations

import json
import os
import random
import signal
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
from torch import nn

from luxmeter.errors import CheckpointError, StoreError, UsageError
from luxmeter.model.plainnet import (
    Budget,
    PlainNet,
    SearchOptions,
    Space,
    parse_structure,
    resume_search,
    search,
    write_structure,
)
from luxmeter.model.plainnet.candidates import costs_of
from luxmeter.model.plainnet.mutate import KINDS, mutate
from luxmeter.store import Lab

START = (
    "SuperConvK3BNRELU(3,8,2,1)SuperResK3K3(8,16,2,8,1)SuperResK3K3(16,24,2,8,1)SuperConvK1BNRELU(24,32,1,1)"
)
BUDGET = Budget(params=60_000, layers=9)
OPTIONS = SearchOptions(population=6, generations=4, input_size=(2, 3, 16, 16))


def by_params(model: nn.Module, *, input_size: tuple[int, ...], seed: int) -> float:
    """A score that costs nothing: the search is what is tested."""
    return float(sum(p.numel() for p in model.parameters()))


QUICK = replace(OPTIONS, score=by_params)


def test_a_search_finds_better_ones_within_the_budget() -> None:
    result = search(START, budget=BUDGET, options=OPTIONS, keep=False, quiet=True)
    start = search(START, budget=BUDGET, options=replace(OPTIONS, generations=1), keep=False, quiet=True)
    assert result.best.score > start.best.score
    assert [row["best_score"] for row in result.history] == sorted(
        row["best_score"] for row in result.history
    )
    assert len(result.population) == 6
    for candidate in result.population:
        net = PlainNet(candidate.structure, num_classes=10, no_create=True)
        assert (net.get_model_size(), net.get_FLOPs(16), net.get_num_layers()) == (
            candidate.params,
            candidate.macs,
            candidate.layers,
        )
        assert candidate.params <= 60_000
        assert candidate.layers <= 9
    assert [c.score for c in result.population] == sorted((c.score for c in result.population), reverse=True)


def test_the_same_seed_gives_the_same_search() -> None:
    first, again, other = (
        search(START, budget=BUDGET, options=replace(QUICK, seed=seed), keep=False, quiet=True)
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first.population != other.population


def test_macs_and_latency_budgets() -> None:
    tight = search(START, budget=Budget(macs=2e5), options=QUICK, keep=False, quiet=True)
    assert max(c.macs for c in tight.population) <= 2e5
    short = replace(QUICK, population=2, generations=1)
    timed = search(START, budget=Budget(latency_s=10.0), options=short, keep=False, quiet=True)
    assert all(c.latency_s is not None and 0 < c.latency_s < 10 for c in timed.population)
    assert "best_latency_s" in timed.history[-1]
    with pytest.raises(UsageError, match=r"Over budget: latency_s"):
        search(START, budget=Budget(latency_s=1e-9), options=replace(short, tries=2), keep=False, quiet=True)


def test_a_start_over_budget_is_brought_down() -> None:
    large = START.replace("24", "400").replace(",8,1)", ",128,1)")
    size = PlainNet(large, num_classes=10, no_create=True).get_model_size()
    result = search(large, budget=Budget(params=size / 20), options=QUICK, keep=False, quiet=True)
    assert result.best.params <= size / 20
    with pytest.raises(UsageError, match=r"nearest was .* times over") as caught:
        search(START, budget=Budget(params=10), options=replace(QUICK, tries=3), keep=False, quiet=True)
    assert caught.value.slug == "search-nothing-fits"


def test_stopped_and_gone_on_is_as_never_stopped(tmp_path: Path) -> None:
    whole = search(START, budget=BUDGET, options=QUICK, keep=False, quiet=True)
    calls = 0

    def by_params_until_ctrl_c(model: nn.Module, *, input_size: tuple[int, ...], seed: int) -> float:
        nonlocal calls
        calls += 1
        if calls == 10:
            os.kill(os.getpid(), signal.SIGINT)
        return by_params(model, input_size=input_size, seed=seed)

    by_params_until_ctrl_c.__qualname__ = by_params.__qualname__
    file = tmp_path / "search.json"
    stopped = search(
        START,
        budget=BUDGET,
        options=replace(QUICK, score=by_params_until_ctrl_c),
        state=file,
        keep=False,
        quiet=True,
    )
    assert stopped.interrupted
    assert stopped.evaluated == 10  # the step at hand was finished and saved
    rest = search(START, budget=BUDGET, options=QUICK, state=file, keep=False, quiet=True)
    assert not rest.interrupted
    assert (rest.population, rest.history, rest.evaluated) == (
        whole.population,
        whole.history,
        whole.evaluated,
    )


def test_a_killed_search_goes_on_from_its_last_generation(tmp_path: Path) -> None:
    whole = search(START, budget=BUDGET, options=QUICK, keep=False, quiet=True)
    calls = 0

    def by_params_until_killed(model: nn.Module, *, input_size: tuple[int, ...], seed: int) -> float:
        nonlocal calls
        calls += 1
        if calls == 16:
            raise RuntimeError("killed")
        return by_params(model, input_size=input_size, seed=seed)

    by_params_until_killed.__qualname__ = by_params.__qualname__
    file = tmp_path / "search.json"
    dying = replace(QUICK, score=by_params_until_killed)
    with pytest.raises(RuntimeError, match="killed"):
        search(START, budget=BUDGET, options=dying, state=file, keep=False, quiet=True)
    assert json.loads(file.read_text())["step"] == 12
    rest = search(START, budget=BUDGET, options=QUICK, state=file, keep=False, quiet=True)
    assert (rest.population, rest.history) == (whole.population, whole.history)


def test_a_search_is_a_run_of_the_lab(tmp_path: Path) -> None:
    lab = Lab.open(tmp_path / "lab")
    options = replace(OPTIONS, generations=2)
    first = search(START, budget=BUDGET, options=options, lab=lab, quiet=True)
    assert first.run_id is not None
    run = lab.find(first.run_id)
    assert run.state == "finished"
    assert run.params["start"] == START
    assert run.environment["packages"]["torch"] == metadata.version("torch")
    assert run.environment["machine"]
    assert run.params["budget"]["params"] == 60_000
    assert run.params["options"]["population"] == 6
    scores = run.metric("best_score").to_arrow()
    assert scores["step"].to_pylist() == [1, 2]
    assert scores["value"].to_pylist() == [row["best_score"] for row in first.history]
    assert (run.folder / "files" / "best.txt").read_text().strip() == first.best.structure
    assert len((run.folder / "files" / "population.csv").read_text().splitlines()) == 1 + len(
        first.population
    )
    # Going on is a run of its own that names the first one, and leaves the first as it was.
    assert first.state_path is not None
    before = first.state_path.read_bytes()
    second = resume_search(first.state_path, generations=4, lab=lab, quiet=True)
    assert second.run_id is not None
    assert first.state_path.read_bytes() == before
    assert second.state_path != first.state_path
    later = lab.find(second.run_id)
    assert later.identity["parent"] == first.run_id
    assert later.metric("best_score").to_arrow()["step"].to_pylist() == [3, 4]
    whole = search(START, budget=BUDGET, options=OPTIONS, keep=False, quiet=True)
    assert (second.population, second.history) == (whole.population, whole.history)
    lab.close()


@pytest.mark.parametrize("works_for", [0, 8])
def test_a_search_that_fails_is_a_failed_run(tmp_path: Path, works_for: int) -> None:
    left = works_for

    def broken(model: nn.Module, *, input_size: tuple[int, ...], seed: int) -> float:
        nonlocal left
        left -= 1
        if left < 0:
            raise RuntimeError("no score today")
        return 1.0

    lab = Lab.open(tmp_path / "lab")
    with pytest.raises(RuntimeError, match="no score today"):
        search(START, budget=BUDGET, options=replace(OPTIONS, score=broken), lab=lab, quiet=True)
    assert lab.find("latest").state == "failed"
    lab.close()


def test_going_on_with_other_settings_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    search(START, budget=BUDGET, options=replace(QUICK, generations=1), state=file, keep=False, quiet=True)
    other = replace(QUICK, score="synflow", space=Space(most_channels=64), seed=9)
    with pytest.raises(UsageError) as caught:
        search(START, budget=replace(BUDGET, layers=8), options=other, state=file, keep=False)
    assert caught.value.slug == "search-differs"
    for told in (
        "budget.layers was 9, is 8",
        "options.score was by_params, is synflow",
        "options.seed was 0, is 9",
    ):
        assert told in caught.value.what
    with pytest.raises(
        UsageError, match="no score called 'by_params'"
    ):  # a function cannot be found by its name
        resume_search(file, keep=False)


def test_a_search_of_its_own_space(tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    space = Space(kinds=(("SuperResK3K3", "SuperResK5K5"),), least_channels=16, most_channels=32)
    options = replace(OPTIONS, space=space, generations=1, score="synflow")
    search(START, budget=BUDGET, options=options, state=file, keep=False, quiet=True)
    longer = resume_search(file, generations=3, keep=False, quiet=True)
    names = {call.name for c in longer.population for call in parse_structure(c.structure)}
    assert names <= {"SuperConvK3BNRELU", "SuperConvK1BNRELU", "SuperResK3K3", "SuperResK5K5"}
    assert longer.state_path is None


def test_a_state_of_the_first_format_goes_on(tmp_path: Path) -> None:
    """Where multiply-adds were called flops."""
    file, old = tmp_path / "s.json", tmp_path / "old.json"
    options = replace(OPTIONS, generations=1, score="synflow")
    budget = replace(BUDGET, macs=1e9)
    search(START, budget=budget, options=options, state=file, keep=False, quiet=True)
    text = file.read_text()
    assert '"macs"' in text and '"best_macs"' in text and "flops" not in text
    old.write_text(
        text.replace('"macs"', '"flops"')
        .replace('"best_macs"', '"best_flops"')
        .replace('"format": 2', '"format": 1')
    )
    goes_on = resume_search(old, generations=2, keep=False, quiet=True)
    assert goes_on.population == resume_search(file, generations=2, keep=False, quiet=True).population


def test_scores_that_are_no_numbers_rank_last() -> None:
    def sometimes(model: nn.Module, *, input_size: tuple[int, ...], seed: int) -> float:
        size = by_params(model, input_size=input_size, seed=seed)
        return float("nan") if int(size) % 2 else size

    result = search(START, budget=BUDGET, options=replace(QUICK, score=sometimes), keep=False, quiet=True)
    assert result.best.score > 0
    assert not any(c.score != c.score for c in result.population)


def test_mutation_keeps_strides_and_fits_channels() -> None:
    rng = random.Random(4)
    kinds = set()
    for _ in range(10):
        calls = parse_structure(START)
        for _ in range(8):
            calls = mutate(calls, rng, changes=2, space=Space(most_channels=96))
            net = PlainNet(write_structure(calls), no_create=True)  # raises if channels do not fit
            assert net.get_output_resolution(64) == 8
            assert all(8 <= b.out_channels <= 96 and b.out_channels % 8 == 0 for b in net.block_list)
            assert all(getattr(b, "sub_layers", 1) < 6 for b in net.block_list)
            kinds |= {call.name for call in calls}
    assert kinds >= set(KINDS[0])  # every kind of the family was reached, and
    assert not kinds & set(KINDS[1])  # no other family


def test_tiny_stacks_change_their_kernel_argument() -> None:
    rng = random.Random(0)
    calls = parse_structure("ConvKXBNRELU(3,16,3,2)SuperResK1DWK1(16,32,2,64,2,3)")
    kernels = set()
    for _ in range(50):
        changed = mutate(calls, rng, changes=2, space=Space())
        PlainNet(write_structure(changed), no_create=True)
        kernels.add(changed[-1].values[-1])
    assert kernels == {3, 5, 7}


def test_formulas_of_the_search_are_those_of_the_network() -> None:
    for use_se in (False, True):
        for classes in (None, 7):
            net = PlainNet(START, num_classes=classes, use_se=use_se, no_create=True)
            assert costs_of(START, resolution=20, num_classes=classes, use_se=use_se) == {
                "params": net.get_model_size(),
                "macs": net.get_FLOPs(20),
                "layers": net.get_num_layers(),
            }


def test_what_cannot_be_searched(tmp_path: Path) -> None:
    quick = {"budget": BUDGET, "options": QUICK, "keep": False, "quiet": True}
    with pytest.raises(UsageError, match="BN cannot be changed by a search, at character 15"):
        search("ConvKX(3,8,3,1)BN(8)", **quick)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="takes 9 channels"):
        search(START + "SuperConvK1BNRELU(9,8,1,1)", **quick)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="budget params is -1"):
        Budget(params=-1)
    with pytest.raises(UsageError, match="population is 0"):
        SearchOptions(population=0)
    with pytest.raises(UsageError, match="Did you mean 'zen'"):
        search(START, budget=BUDGET, options=replace(OPTIONS, score="zenn"), keep=False)
    with pytest.raises(CheckpointError, match="no such file"):
        resume_search(tmp_path / "nothing.json")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(CheckpointError, match="not the state of a search"):
        search(START, state=tmp_path / "other.json", **quick)  # type: ignore[arg-type]
    (tmp_path / "torn.json").write_text('{"format": 1,')
    with pytest.raises(StoreError):
        resume_search(tmp_path / "torn.json")
