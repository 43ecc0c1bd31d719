"""lux.random and RndManager: seeds, states, marks, determinism."""

from __future__ import annotations

import json
import os
import random as python_random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import luxmeter as lux
from luxmeter.errors import CheckpointError, LuxmeterWarning, MissingNameError, UsageError
from luxmeter.experiment.seed.rng_state import get_rng_state, set_rng_state


def draw() -> list[float]:
    """One number from each generator, and the normal ones, which keep a second number in hand."""
    return [
        python_random.random(),
        python_random.gauss(0, 1),
        float(np.random.rand()),
        float(np.random.randn()),
        torch.rand(1).item(),
        torch.randn(3).sum().item(),
    ]


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**32, 2**63 - 1, "a name"])
def test_fix_seed_fixes_every_library(seed: int | str) -> None:
    used = lux.random.fix_seed(seed)
    first = draw()
    assert lux.random.fix_seed(seed) == used
    assert draw() == first
    assert draw() != first


def test_small_seeds_are_the_seeds_of_the_libraries() -> None:
    lux.random.fix_seed(7)
    ours = [python_random.random(), float(np.random.rand()), torch.rand(1).item()]
    python_random.seed(7), np.random.seed(7), torch.manual_seed(7)
    assert ours == [python_random.random(), float(np.random.rand()), torch.rand(1).item()]


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, True, None])
def test_a_seed_out_of_range_is_refused(seed: Any) -> None:
    with pytest.raises(UsageError, match="seed-range"):
        lux.random.fix_seed(seed)


def test_set_state_goes_back() -> None:
    python_random.gauss(0, 1), np.random.randn()  # leaves one number in hand in each
    state = lux.random.get_state()
    first, second = draw(), draw()
    lux.random.set_state(state)
    assert [draw(), draw()] == [first, second]


def test_a_state_is_plain_and_survives_json_and_torch() -> None:
    state = lux.random.get_state()
    first = draw()
    as_json = json.dumps({**state, "torch": state["torch"].tolist()})
    lux.random.set_state(json.loads(as_json))
    assert draw() == first
    torch.save(state, "state.pt")
    lux.random.set_state(torch.load("state.pt", weights_only=True))
    assert draw() == first


def test_save_and_load_without_pickle(tmp_path: Path) -> None:
    lux.random.save(tmp_path / "deep" / "now.rnd")
    first = draw()
    lux.random.load(tmp_path / "deep" / "now.rnd")
    assert draw() == first
    content = (tmp_path / "deep" / "now.rnd").read_bytes()
    assert int.from_bytes(content[:8], "little") < len(content)
    assert content[8:9] == b"{"  # safetensors: a length, then JSON


def test_wrong_states_are_refused() -> None:
    with pytest.raises(UsageError, match="random-state-unknown"):
        lux.random.set_state([1, 2])  # type: ignore[arg-type]
    state = lux.random.get_state()
    with pytest.raises(CheckpointError, match="random-state-version"):
        lux.random.set_state({**state, "version": 99})
    with pytest.raises(CheckpointError, match="random-state-unfit"):
        lux.random.set_state({**state, "torch": torch.zeros(3, dtype=torch.uint8)})


def test_marks_keep_first_and_restore_later(tmp_path: Path) -> None:
    manager = lux.RndManager(tmp_path)
    assert manager.mark("a") is False
    first = draw()
    assert manager.mark("b") is False
    other = draw()
    assert manager.mark("a") is True
    assert draw() == first
    assert manager.mark("b") is True
    assert draw() == other
    assert manager.marks() == ["a", "b"]
    manager.forget("a")
    assert manager.mark("a") is False
    with pytest.raises(MissingNameError, match=r"Did you mean 'weights'.*mark-unknown"):
        manager.mark("weights")
        manager.forget("wieghts")


def test_a_mark_without_a_folder_draws_the_same_in_every_process() -> None:
    code = (
        "import random, numpy, torch, luxmeter as lux\n"
        "lux.random.fix_seed(int(input()))\n"
        "m = lux.RndManager()\n"
        "for name in ('split', 'weights', 'split'):\n"
        "    print(m.mark(name), random.random(), numpy.random.rand(), torch.rand(1).item(), torch.randn(3).sum().item())\n"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", code], input=seed, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1]
    split, weights, again = said[0].splitlines()
    assert (split.split()[0], again.split()[0]) == ("False", "True")
    assert split.split()[1:] == again.split()[1:] != weights.split()[1:]


def test_marks_in_a_folder_hold_in_another_process(tmp_path: Path) -> None:
    name = "any name/../with\n everything"
    manager = lux.RndManager(tmp_path / "marks")
    manager.mark(name)
    first = draw()
    code = (
        "import sys, luxmeter as lux, random, numpy, torch\n"
        "m = lux.RndManager(sys.argv[1])\n"
        "assert m.marks() == [sys.argv[2]]\n"
        "assert m.mark(sys.argv[2])\n"
        "print(repr([random.random(), random.gauss(0, 1), float(numpy.random.rand()), float(numpy.random.randn()),"
        " torch.rand(1).item(), torch.randn(3).sum().item()]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "marks"), name],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == repr(first)


def test_state_dict_carries_the_marks(tmp_path: Path) -> None:
    manager = lux.RndManager()
    manager.mark("start")
    at_mark = draw()
    saver = lux.Saver(tmp_path / "s")
    saver.save_state(1, random=manager)
    now = draw()
    other = lux.RndManager(tmp_path / "marks")
    saver.resume(random=other)
    assert draw() == now
    assert lux.RndManager(tmp_path / "marks").mark("start") is True
    assert draw() == at_mark


def test_names_have_seeds_of_their_own_and_for_ever() -> None:
    assert len({lux.random.seed_of(f"name {i}") for i in range(200_000)}) == 200_000
    assert lux.random.seed_of("1") != lux.random.seed_of("1", 1) != lux.random.seed_of("1", "1")
    # Written down once: the seed of a name never changes, on no machine and in no version.
    assert lux.random.seed_of("experiment") == 4492179738258757822


def test_isolated_leaves_no_trace() -> None:
    lux.random.fix_seed(1)
    first = draw()
    lux.random.fix_seed(1)
    with lux.random.isolated("inner"):
        inner = draw()
    assert draw() == first
    with pytest.raises(KeyError), lux.random.isolated("inner"):
        assert draw() == inner
        raise KeyError


class DeviceModule:
    """Stands in for torch.cuda where there is none: the same four functions over generators of the CPU."""

    def __init__(self, count: int) -> None:
        self.generators = [torch.Generator().manual_seed(i) for i in range(count)]

    def get_rng_state_all(self) -> list[torch.Tensor]:
        return [generator.get_state() for generator in self.generators]

    def set_rng_state_all(self, states: list[torch.Tensor]) -> None:
        raise AssertionError("devices may differ in number: they are set one by one")

    def set_rng_state(self, state: torch.Tensor, device: int) -> None:
        self.generators[device].set_state(state)

    def draw(self) -> list[float]:
        return [torch.rand(1, generator=generator).item() for generator in self.generators]


def test_every_device_of_an_accelerator_is_kept() -> None:
    devices = DeviceModule(3)
    state = get_rng_state(modules={"cuda": devices})
    first = devices.draw()
    set_rng_state(state, modules={"cuda": devices})
    assert devices.draw() == first
    fewer = DeviceModule(2)
    with pytest.warns(LuxmeterWarning, match=r"holds 3 cuda device\(s\), here are 2.*random-state-devices"):
        set_rng_state(state, modules={"cuda": fewer})
    assert fewer.draw() == first[:2]


def test_a_state_of_an_accelerator_that_is_not_here() -> None:
    state = get_rng_state(modules={"cuda": DeviceModule(1)})
    first = draw()
    with pytest.warns(LuxmeterWarning, match="here are 0"):
        set_rng_state(state, modules={})
    assert draw() == first


def test_deterministic_says_what_remains_and_gives_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    manager = lux.RndManager()
    assert not torch.are_deterministic_algorithms_enabled()
    report = manager.deterministic()
    try:
        assert torch.are_deterministic_algorithms_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
        assert any("threads" in line for line in report.remaining)
        assert "still not deterministic: results on other hardware" in str(report)
        assert any("only warn" in line for line in manager.deterministic(warn_only=True).remaining)
    finally:
        off = manager.deterministic(False)
    assert not torch.are_deterministic_algorithms_enabled()
    assert not torch.is_deterministic_algorithms_warn_only_enabled()
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ
    assert any("order of additions" in line for line in off.remaining)


class NumpyDraws(torch.utils.data.Dataset[float]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> float:
        return float(np.random.rand()) + python_random.random()


def test_worker_init_seeds_the_workers_of_torchs_loader() -> None:
    def values() -> list[float]:
        torch.manual_seed(1)
        loader = torch.utils.data.DataLoader(
            NumpyDraws(), num_workers=2, worker_init_fn=lux.random.worker_init
        )
        return [batch.item() for batch in loader]

    first = values()
    assert len(set(first)) == 4
    assert values() == first
