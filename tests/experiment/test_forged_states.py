"""Checkpoints whose values somebody chose: what resume() and the random state make of them is a word, and nothing is half done."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from luxmeter.errors import CheckpointError, LuxmeterError, LuxmeterWarning
from luxmeter.experiment import Saver
from luxmeter.experiment.checkpoint.folder import sidecar_of
from luxmeter.experiment.checkpoint.format import read_file, write_file
from luxmeter.experiment.seed.rng_state import get_rng_state, set_rng_state


def parts() -> dict[str, Any]:
    torch.manual_seed(1)
    model = torch.nn.Linear(2, 2)
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)}


def saved(folder: Path) -> Path:
    with Saver(folder) as saver:
        made = parts()
        made["model"](torch.ones(1, 2)).sum().backward()
        return Path(saver.save_state(1, gradients=True, **made))


def forged(folder: Path, change: Callable[[dict[str, Any]], object]) -> Saver:
    path = saved(folder)
    state = read_file(path)
    change(state)
    write_file(path, state)
    sidecar_of(path).unlink()
    return Saver(folder)


SHAPES: list[Callable[[dict[str, Any]], object]] = [
    lambda s: s.pop("parts"),
    lambda s: s.pop("gradients"),
    lambda s: s.pop("step"),
    lambda s: s.update(parts=7),
    lambda s: s.update(step="many"),
    lambda s: s.update(step=float("inf")),
    lambda s: s.update(gradients=[1]),
    lambda s: s["parts"].update(model="x"),
    lambda s: s["parts"]["model"].pop("kind"),
    lambda s: s["parts"]["model"].update(state=None),
    lambda s: s["parts"].update(
        other={"kind": "state", "state": {"luxmeter_loader": 1, "epoch": "x", "step": 1}}
    ),
]


@pytest.mark.parametrize("change", SHAPES)
def test_a_state_of_another_shape_changes_nothing(
    tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    saver, now = forged(tmp_path, change), parts()
    torch.nn.init.zeros_(now["model"].weight)
    random = get_rng_state()
    with pytest.raises(LuxmeterError):
        saver.resume(**now)
    assert not now["model"].weight.any() and repr(get_rng_state()) == repr(random)


INSIDE: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda s: s["parts"]["optimizer"].update(state={"state": 7, "param_groups": "x"}), "'optimizer'"),
    (lambda s: s["parts"]["optimizer"].update(kind="generator"), "'optimizer' was saved as a generator"),
    (lambda s: s["gradients"].update(model={"weight": 7}), "gradients of 'model'"),
    (lambda s: s["gradients"].update(model=7), "gradients of 'model'"),
    (lambda s: s["random"]["python"]["internal"].__setitem__(0, 2**64), "random state"),
    (lambda s: s["random"]["python"].update(gauss_next="x"), "random state"),
    (lambda s: s["random"].update(accelerators=[1]), "random state"),
    (lambda s: s["random"].update(python=[1]), "random state"),
    (lambda s: s.update(random={}), "not a random state"),
    (lambda s: s.update(random={**s["random"], "version": 99}), "random state has version 99"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), INSIDE)
def test_a_part_that_does_not_fit_is_named(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    before = get_rng_state()
    try:
        with pytest.raises(LuxmeterError, match=words):
            forged(tmp_path, change).resume(**parts())
    finally:
        set_rng_state(before)


def test_a_newer_state_is_told(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has state version 99"):
        forged(tmp_path, lambda s: s.update(luxmeter_state=99)).resume(**parts())


def test_gradients_of_a_part_that_is_not_asked_for(tmp_path: Path) -> None:
    saved(tmp_path)
    now = parts()
    with pytest.warns(LuxmeterWarning, match="resume-left-out"):
        assert Saver(tmp_path).resume(model=now["model"], random=False).step == 1
    assert now["model"].weight.grad is not None
    with pytest.raises(LuxmeterError, match="resume-random"):
        Saver(tmp_path).resume(model=now["model"], random=7)
    with pytest.warns(LuxmeterWarning, match="resume-left-out"):
        optimizer = Saver(tmp_path).resume(optimizer=now["optimizer"], random=False)
    assert optimizer.step == 1


@pytest.mark.parametrize("value", ["1e400", "-1e400", '"x"', "null", "[]", "{}", "NaN"])
@pytest.mark.parametrize("name", ["order", "size_bytes", "sha256", "info", "previous"])
def test_a_side_car_that_is_none_is_passed_over(tmp_path: Path, name: str, value: str) -> None:
    """The file is there without what it said, or is found not to be what was written."""
    path = saved(tmp_path)
    said = json.loads(sidecar_of(path).read_text())
    said[name] = "VALUE"
    sidecar_of(path).write_text(json.dumps(said).replace('"VALUE"', value))
    saver = Saver(tmp_path)
    try:
        assert set(saver.load_latest_checkpoint().checkpoint) >= {"parts", "step"}
    except CheckpointError as error:
        assert error.slug == "checkpoint-damaged" and name in ("sha256", "size_bytes")
    assert saver.find_checkpoints() == [str(path)]
