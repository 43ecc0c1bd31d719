"""`luxmeter plot` and `luxmeter repeats` as a user types them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from luxmeter.errors import LuxmeterError
from luxmeter.experiment.transfer.tensorboard import TensorBoardFiles
from luxmeter.store import Image, Lab
from luxmeter.view.cli import build_app


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("LUXMETER_HOME", str(tmp_path / "lab"))
    opened = Lab.open(tmp_path / "lab")
    for lr, base in ((0.1, 0.9), (0.2, 0.5)):
        for seed in range(3):
            with opened.create_run("net", params={"lr": lr, "seed": seed}) as run:
                for step in range(5):
                    run.log({"acc": base * step / 4 + 0.001 * seed, "loss": 1.0 - step / 5}, step)
    yield opened
    opened.close()


def call(*arguments: str) -> Result:
    return CliRunner().invoke(build_app(), list(arguments), catch_exceptions=False)


def test_repeats_as_a_table_and_for_machines(lab: Lab) -> None:
    out = call("repeats").stdout
    assert "net lr=0.1" in out and "0.9010 ± 0.0025" in out and "0..2" in out
    rows = json.loads(call("repeats", "-m", "acc", "-m", "loss", "--json").stdout)
    assert rows[0]["metrics"]["acc"]["n"] == 3 and rows[0]["seeds"] == [0, 1, 2]


def test_repeats_with_one_metric_are_tested(lab: Lab) -> None:
    out = call("repeats", "-m", "acc").stdout
    assert "worse" in out and "1 tests" in out
    told = json.loads(call("repeats", "-m", "acc", "--baseline", "net lr=0.2", "--json").stdout)
    assert told["reference"] == "net lr=0.2" and told["rows"][0]["against"]["call"] == "higher"
    for wrong, slug in (
        (["--baseline", "net"], "repeats-one-metric"),
        (["name = none"], "no-repeats"),
        (["-m", "acc", "--correction", "x"], "correction-name"),
    ):
        with pytest.raises(LuxmeterError, match=slug):
            call("repeats", *wrong)


def test_repeats_say_what_is_left_out(lab: Lab) -> None:
    lab.create_run("net", params={"lr": 0.1, "seed": 9}).finish("failed")
    assert "1 run left out" in call("repeats").stdout


def test_plot_in_the_terminal_and_into_files(lab: Lab, tmp_path: Path) -> None:
    out = call("plot", "latest", "-m", "acc").stdout
    assert "▁▃▅▇█" in out and "0.502" in out
    assert "n" in call("plot", "--where", "name = net", "-m", "acc", "--repeats").stdout
    for suffix in ("png", "svg", "html"):
        target = tmp_path / f"out.{suffix}"
        assert (
            str(target)
            in call("plot", "--where", "name = net", "-m", "acc", "--repeats", "-o", str(target)).stdout
        )
        assert target.stat().st_size > 3000
    call(
        "plot",
        "--where",
        "name = net",
        "--parallel",
        "-m",
        "acc",
        "--param",
        "lr",
        "-o",
        str(tmp_path / "p.html"),
    )
    assert (tmp_path / "p.html").is_file()
    with pytest.raises(LuxmeterError, match="plot-needs-file"):
        call("plot", "--where", "name = net", "--parallel", "-m", "acc")


def test_several_files_and_the_points_for_machines(lab: Lab, tmp_path: Path) -> None:
    out = call(
        "plot", "latest", "-m", "acc", "-o", str(tmp_path / "a.html"), "-o", str(tmp_path / "b.svg")
    ).stdout
    assert (
        out.count("wrote ") == 2
        and (tmp_path / "a.html").stat().st_size
        and (tmp_path / "b.svg").stat().st_size
    )
    found = json.loads(call("plot", "--where", "name = net", "-m", "acc", "--repeats", "--json").stdout)
    (chart,) = found["charts"]
    assert chart["metric"] == "acc" and [line["n"] for line in chart["lines"]] == [3, 3]
    assert chart["lines"][0]["x"] == [0, 1, 2, 3, 4] and len(chart["lines"][0]["low"]) == 5
    assert (
        min(low for line in chart["lines"] for low in line["low"]) == 0.0
    )  # an accuracy is never below nothing


def test_plot_of_event_files(lab: Lab, tmp_path: Path) -> None:
    with TensorBoardFiles(tmp_path / "tb") as files:
        for step in range(4):
            files.log({"loss": float(step), "img": Image(np.zeros((2, 2)))}, step)
    folder = str(tmp_path / "tb")
    assert "▁▃▆█" in call("plot", "--tensorboard", folder).stdout
    assert "wrote 4 pictures" in call("plot", "--tensorboard", folder, "--images", str(tmp_path / "i")).stdout
    assert len(list((tmp_path / "i").rglob("*.png"))) == 4
    with pytest.raises(LuxmeterError, match="plot-tensorboard-alone"):
        call("plot", "latest", "--tensorboard", folder)
    with pytest.raises(LuxmeterError, match="plot-images"):
        call("plot", "latest", "--images", folder)
