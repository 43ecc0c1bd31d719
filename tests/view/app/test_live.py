"""A run that goes on, followed: no point twice and none left out, from any place on; its output, too."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from luxmeter.experiment import open_lab
from luxmeter.store import OutputFile, Run
from luxmeter.view.app.live import Live, ReadSoFar, looked


def test_a_stream_goes_on_where_the_page_ended(tmp_path: Path) -> None:
    lab = open_lab(tmp_path / "lab")
    writer = lab.create_run("going")
    for step in range(50):
        writer.log({"loss": float(step)}, step=step)
    writer.flush()
    run = Run(writer.folder, lab.folder)
    page, place = looked(run, 1500)
    assert page.curves["loss"].n == 50 and page.state == "running"
    live = Live(run, ReadSoFar.of(str(place)))
    assert "points" not in live.news(time.time_ns())
    for step in range(50, 60):
        writer.log({"loss": float(step), "acc": float("nan")}, step=step)
    writer.flush()
    news = live.news(time.time_ns())
    assert [x for x, _ in news["points"]["loss"]] == list(range(50, 60)) and news["points"]["acc"][0][
        1
    ] is None
    assert "step 59" in news["progress"]
    assert 'data-name="loss"' in news["metrics"] and ">59<" in news["metrics"]
    writer.log({"loss": 59.5}, step=59)
    writer.flush()
    soon = time.time_ns()
    assert "metrics" not in live.news(soon), "a table every two seconds is enough"
    assert ">59.5<" in live.news(soon + 3 * 10**9)["metrics"]
    # The connection broke: another goes on from the last place that it named. The run ends meanwhile, and is compacted.
    again = Live(run, ReadSoFar.of(str(live.read_so_far)))
    writer.log({"loss": 60.0}, step=60)
    writer.finish()
    news = again.news(time.time_ns())
    assert news["points"] == {"loss": [[60.0, 60.0]]} and news["state"] == "finished"
    assert again.news(time.time_ns()) == {}


def test_a_long_output_is_followed_through_its_files(tmp_path: Path) -> None:
    lab = open_lab(tmp_path / "lab")
    writer = lab.create_run("loud")
    output = OutputFile(writer.folder, most_bytes=400)
    output.append("before\n")
    run = Run(writer.folder, lab.folder)
    follower = run.follow_output().skip()
    told = ""
    for number in range(40):
        output.append(f"line {number} ü\n")
        told += follower.new()
        if number % 3 == 0:  # another goes on from there
            follower = run.follow_output(follower.position)
    assert told == "".join(f"line {number} ü\n" for number in range(40))
    output.close()
    writer.finish()


@pytest.mark.parametrize("odd", ["", "x", "!!!", "W10", "eyJhIjoxfQ", "A" * 9000, str(ReadSoFar({"../x": (-1, 2)}, {})), str(ReadSoFar({}, {"1": (1 << 70, 0)}))])  # fmt: skip
def test_a_place_that_is_none_is_the_beginning(odd: str) -> None:
    assert ReadSoFar.of(odd) == ReadSoFar()
    assert ReadSoFar.of(str(ReadSoFar({"a-1.arrows": (7, 3)}, {"12": (9, 1)}))) == ReadSoFar(
        {"a-1.arrows": (7, 3)}, {"12": (9, 1)}
    )


def test_a_place_in_the_middle_of_a_piece_does_no_harm(tmp_path: Path) -> None:
    lab = open_lab(tmp_path / "lab")
    writer = lab.create_run("going")
    writer.log({"loss": 1.0}, step=0)
    writer.flush()
    name = next((writer.folder / "tables" / "metrics").glob("*.arrows")).name
    run = Run(writer.folder, lab.folder)
    for place in (3, 10**9):
        assert "points" not in Live(run, ReadSoFar({name: (place, 0)}, {})).news(time.time_ns())
    writer.finish()


def test_of_a_removed_run_it_is_told(tmp_path: Path) -> None:
    lab = open_lab(tmp_path / "lab")
    with lab.create_run("short") as writer:
        writer.log({"loss": 1.0}, step=0)
        writer.flush()
        live = Live(Run(writer.folder, lab.folder), ReadSoFar())
        assert live.news(time.time_ns())["points"]
        writer.folder.rename(tmp_path / "away")
        assert live.news(time.time_ns())["state"] == "removed"
        (tmp_path / "away").rename(writer.folder)
