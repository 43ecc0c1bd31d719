"""lux.Saver: names, order, what stays, what is loaded, damage."""

from __future__ import annotations

import json
import math
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import luxmeter as lux
from luxmeter.errors import CheckpointError, LuxmeterWarning, UsageError


def names(paths: list[str]) -> list[str]:
    return [Path(path).name for path in paths]


def steps(saver: lux.Saver) -> list[int]:
    return [int(name.split(".")[0]) for name in names(saver.find_checkpoints())]


def test_latest_means_saved_last_not_the_largest_number() -> None:
    saver = lux.Saver("s", max_to_keep=None)
    for step in (10, 2, 6):
        saver.save_checkpoint(step, {"step": step})
    assert steps(saver) == [10, 2, 6]
    assert saver.load_latest_checkpoint().checkpoint == {"step": 6}
    again = lux.Saver("s", max_to_keep=None)
    assert again.load_latest_checkpoint().checkpoint == {"step": 6}
    again.save_checkpoint(2, {"step": "2 again"})
    assert steps(saver) == [10, 6, 2]
    assert saver.load_checkpoint(2).checkpoint == {"step": "2 again"}


def test_order_holds_when_the_clock_was_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from luxmeter.experiment.checkpoint import folder as checkpoint_folder

    saver = lux.Saver("s", max_to_keep=None)
    saver.save_checkpoint(1, 1)
    saver.flush()
    checkpoint_folder._last_order.clear()  # as in a new process
    monkeypatch.setattr(checkpoint_folder.time, "time_ns", lambda: 1000)
    saver.save_checkpoint(0, 0)
    assert steps(saver) == [1, 0]


def test_keeps_the_newest(tmp_path: Path) -> None:
    saver = lux.Saver(tmp_path / "s", max_to_keep=2)
    for step in range(5):
        saver.save_checkpoint(step, {})
        saver.save_keypoint(step, {})
        saver.save_model(step, {})
    assert steps(saver) == [3, 4]
    assert len(saver.find_keypoints()) == len(saver.find_models()) == 5
    saver.flush()
    assert len(list((tmp_path / "s").iterdir())) == 2 * (
        2 + 5 + 5
    )  # no side-car of a removed one, no temporary file


@pytest.mark.parametrize(("mode", "kept"), [("min", [2, 4, 5]), ("max", [1, 3, 5])])
def test_keeps_the_best_and_the_newest(mode: Any, kept: list[int]) -> None:
    saver = lux.Saver("s", max_to_keep=2, metric="loss", mode=mode)
    for step, loss in enumerate([0.5, 0.9, 0.1, 0.8, 0.2, math.nan]):
        saver.save_checkpoint(step, {"step": step}, {"loss": torch.tensor(loss)})
    assert steps(saver) == kept
    assert saver.load_best_checkpoint().checkpoint == {"step": {"min": 2, "max": 1}[mode]}
    assert (
        saver.load_best_checkpoint("loss", mode="max" if mode == "min" else "min").checkpoint["step"] in kept
    )
    assert math.isnan(saver.load_latest_checkpoint().info["loss"])


def test_a_metric_that_is_not_in_the_info_gets_a_suggestion() -> None:
    saver = lux.Saver("s", metric="loss")
    with pytest.raises(UsageError, match=r"no entry 'loss'.*Did you mean 'los'"):
        saver.save_checkpoint(1, {}, {"los": 1})
    saver.save_checkpoint(1, {}, {"loss": 1})
    with pytest.raises(UsageError, match=r"Did you mean 'loss'"):
        saver.load_best_checkpoint("lss")


@pytest.mark.parametrize(
    "options",
    [{"max_to_keep": 0}, {"max_to_keep": True}, {"mode": "mni"}, {"format": "pickle"}, {"max_pending": 0}],
)
def test_wrong_options(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        lux.Saver("s", **options)


@pytest.mark.parametrize("step", [-1, 1.5, "3", True, None])
def test_wrong_steps(step: Any) -> None:
    with pytest.raises(UsageError, match="step-number"):
        lux.Saver("s").save_checkpoint(step, {})


def test_steps_may_be_numpy_numbers_and_large() -> None:
    saver = lux.Saver("s")
    saver.save_checkpoint(np.int64(3), "three")
    saver.save_checkpoint(12_345_678, "large")
    assert names(saver.find_checkpoints()) == ["000003.ckpt", "12345678.ckpt"]
    assert saver.load_checkpoint(12_345_678).checkpoint == "large"


def test_info_comes_back_as_it_was() -> None:
    saver = lux.Saver("s")
    info = {"loss": 0.5, "nested": {"a": [1, None, "é"]}, "pair": (1, 2), "inf": math.inf, 3: "three"}
    saver.save_checkpoint(1, {}, {**info, "tensor": torch.tensor(2.5), "numpy": np.float32(0.5)})
    assert saver.load_latest_checkpoint().info == {**info, "tensor": 2.5, "numpy": 0.5}
    side_car = json.loads(Path("s/000001.ckpt.json").read_text())
    assert side_car["info"].get("loss", 0.5) == 0.5 and side_car["step"] == 1
    with pytest.raises(UsageError, match="info-tensor"):
        saver.save_checkpoint(2, {}, {"w": torch.ones(3)})
    with pytest.raises(UsageError, match="info-type"):
        saver.save_checkpoint(2, {}, 0.5)  # type: ignore[arg-type]


def test_the_side_car_holds_what_sha256sum_says() -> None:
    import hashlib

    lux.Saver("s", background=False).save_checkpoint(1, {"w": torch.randn(10)}, {"loss": 0.5})
    side_car = json.loads(Path("s/000001.ckpt.json").read_text())
    content = Path("s/000001.ckpt").read_bytes()
    assert side_car["sha256"] == hashlib.sha256(content).hexdigest()
    assert side_car["size_bytes"] == len(content)
    assert side_car["info"] == {"loss": 0.5}


def test_loaded_is_a_named_pair() -> None:
    saver = lux.Saver("s")
    path = saver.save_model(1, {"w": torch.ones(2)}, {"acc": 1})
    state, info = loaded = saver.load_latest_model()
    assert loaded.checkpoint is state and loaded.info is info == {"acc": 1}
    assert torch.equal(saver.load(path).checkpoint["w"], state["w"])


def test_what_is_absent_is_named() -> None:
    saver = lux.Saver("s")
    for load in (saver.load_latest_checkpoint, saver.load_latest_keypoint, saver.load_latest_model):
        assert load() == (None, {})
    with pytest.raises(CheckpointError, match="checkpoint-absent"):
        saver.load_best_checkpoint("loss")
    saver.save_keypoint(3, {})
    with pytest.raises(CheckpointError, match=r"no keypoint of step 4.*There are: 3"):
        saver.load_keypoint(4)
    with pytest.raises(CheckpointError, match=r"no file nowhere\.ckpt"):
        saver.load("nowhere.ckpt")
    assert not Path("elsewhere").exists() and lux.Saver("elsewhere").find_models() == []


def test_clear_removes_only_its_kind(tmp_path: Path) -> None:
    saver = lux.Saver(tmp_path / "s")
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "notes.ckpt").write_text("mine")
    for save in (saver.save_checkpoint, saver.save_keypoint, saver.save_model):
        save(1, {})
    saver.clear_checkpoints()
    assert (saver.find_checkpoints(), len(saver.find_keypoints()), len(saver.find_models())) == ([], 1, 1)
    saver.clear_keypoints()
    saver.clear_models()
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["notes.ckpt"]


def damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "truncated":
        content = content[: len(content) // 2]
    elif how == "emptied":
        content = bytearray()
    elif how == "one bit":
        content[-3] ^= 1
    else:
        content = bytearray(os.urandom(len(content)))
    path.write_bytes(content)


@pytest.mark.parametrize("how", ["truncated", "emptied", "one bit", "overwritten"])
@pytest.mark.parametrize("format", ["safetensors", "torch"])
def test_damage_falls_back_and_says_so(how: str, format: Any) -> None:
    saver = lux.Saver("s", format=format)
    for step in range(3):
        saver.save_checkpoint(step, {"w": torch.full((50,), float(step))}, {"step": step})
    saver.flush()
    damage(Path("s/000002.ckpt"), how)
    with pytest.warns(
        LuxmeterWarning, match=r"000002.ckpt is damaged.*000001.ckpt is loaded instead.*checkpoint-fallback"
    ):
        loaded = saver.load_latest_checkpoint()
    assert loaded.info == {"step": 1} and loaded.checkpoint["w"][0] == 1
    with pytest.raises(CheckpointError, match="checkpoint-damaged"):
        saver.load_checkpoint(2)
    with pytest.raises(CheckpointError, match="checkpoint-damaged"):
        saver.load("s/000002.ckpt")
    for step in (0, 1):
        damage(Path(f"s/{step:06d}.ckpt"), how)
    with pytest.raises(CheckpointError, match=r"No sound checkpoint.*000002.*000001.*000000"):
        saver.load_latest_checkpoint()


def test_every_flipped_bit_is_noticed() -> None:
    saver = lux.Saver("s")
    saver.save_checkpoint(1, {"w": torch.ones(3)})
    saver.flush()
    path = Path("s/000001.ckpt")
    content = path.read_bytes()
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 1 << position % 8
        path.write_bytes(changed)
        with pytest.raises(CheckpointError, match="checkpoint-damaged"):
            saver.load_latest_checkpoint()


def test_without_its_side_car_a_file_is_loaded_with_a_warning() -> None:
    saver = lux.Saver("s", max_to_keep=None)
    saver.save_checkpoint(1, {"a": 1}, {"b": 1})
    saver.flush()
    Path("s/000001.ckpt.json").unlink()
    with pytest.warns(LuxmeterWarning, match="cannot be verified.*checkpoint-unverified"):
        assert saver.load_latest_checkpoint() == ({"a": 1}, {})
    Path("s/000001.ckpt.json").write_text("{ torn")
    saver.save_checkpoint(0, {"a": 0})
    assert steps(saver) == [1, 0]


def test_a_malicious_checkpoint_stops_the_load_with_the_reason() -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.system, ("touch hacked",)

    saver = lux.Saver("s")
    saver.save_checkpoint(1, {"a": 1})
    saver.flush()
    torch.save({"a": Evil()}, "s/000002.ckpt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LuxmeterWarning)
        with pytest.raises(
            CheckpointError, match=r"000002.ckpt is refused: loading it would run code.*posix.system"
        ):
            saver.load_latest_checkpoint()
    assert not Path("hacked").exists()


def test_torch_format_keeps_the_names_and_loads_anywhere() -> None:
    model = torch.nn.Linear(2, 2)
    saver = lux.Saver("s", format="torch")
    saver.save_model(3, {"model": model.state_dict(), "epoch": 3}, {"acc": 0.5})
    saver.flush()
    assert torch.equal(torch.load("s/model.000003.pth", weights_only=True)["model"]["weight"], model.weight)
    loaded = saver.load_latest_model()
    assert loaded.info == {"acc": 0.5} and loaded.checkpoint["epoch"] == 3


def test_formats_mix_in_one_folder() -> None:
    lux.Saver("s", format="torch", background=False).save_checkpoint(1, {"a": 1})
    saver = lux.Saver("s")
    saver.save_checkpoint(2, {"a": 2})
    assert [saver.load_checkpoint(step).checkpoint["a"] for step in (1, 2)] == [1, 2]
