"""Curves and parallel coordinates from the store and from event files, as values and as files."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from luxmeter.errors import UsageError
from luxmeter.experiment.compare.repeat_stats import estimate
from luxmeter.experiment.transfer.tensorboard import TensorBoardFiles
from luxmeter.render.curves import MOST_POINTS, Axis, Line, smooth, thinned
from luxmeter.render.figures import ticks_of
from luxmeter.render.spark import sparkline
from luxmeter.store import Image, Lab, Run
from luxmeter.view.pages.plots import Plot, parallel, plot, plot_tensorboard

EVIL = "</script><img src=x onerror=alert(1)>&\"'$x_{$"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    opened = Lab.open(tmp_path / "lab")
    yield opened
    opened.close()


def run(
    lab: Lab, params: dict[str, Any], curve: dict[int, float], *, name: str = "net", key: str = "loss"
) -> Run:
    with lab.create_run(name, params=params) as writer:
        for step, value in curve.items():
            writer.metric(key, value, step)
    return lab.find(writer.id)


# -- values -----------------------------------------------------------------------------------------------------


def test_smoothing_is_tensorboards() -> None:
    """Its own loop: last = last * w + (1 - w) * v, divided by 1 - w^n."""
    values, weight, last = [3.0, 1.0, 2.0, 8.0], 0.6, 0.0
    expected = []
    for n, value in enumerate(values, 1):
        last = last * weight + (1 - weight) * value
        expected.append(last / (1 - weight**n))
    assert smooth(values, weight).tolist() == pytest.approx(expected)
    assert smooth(values, 0).tolist() == values and smooth([2.0, 2.0], 0.9).tolist() == [2.0, 2.0]
    with_gap = smooth([3.0, math.nan, 1.0, math.inf], weight)
    assert with_gap[0] == pytest.approx(3.0) and math.isnan(with_gap[1]) and with_gap[3] == math.inf
    assert with_gap[2] == pytest.approx(expected[1])
    for wrong in (1.0, -0.1, 2):
        with pytest.raises(UsageError, match="smoothing-weight"):
            smooth(values, wrong)


def test_thinning_keeps_ends_and_spikes() -> None:
    y = np.zeros(100_000)
    y[77_777], y[5] = 9.0, -3.0
    line = thinned(Line("a", np.arange(100_000.0), y))
    assert len(line.x) <= MOST_POINTS + 2 and line.y.max() == 9.0 and line.y.min() == -3.0
    assert (line.x[0], line.x[-1]) == (0, 99_999)
    assert thinned(line) is line or len(thinned(line).x) <= MOST_POINTS + 2


def test_a_chart_a_metric_and_a_line_a_run(lab: Lab) -> None:
    runs = [run(lab, {"lr": lr}, {0: 1.0, 2: lr, 1: 0.5}) for lr in (0.1, 0.2)]
    made = plot(runs, "loss", smooth=0.5)
    (chart,) = made.charts
    assert [line.name for line in chart.lines] == ["net lr=0.1", "net lr=0.2"]
    assert chart.lines[0].x.tolist() == [0, 1, 2] and chart.lines[0].raw.tolist() == [1.0, 0.5, 0.1]
    assert chart.lines[0].y.tolist() == pytest.approx(smooth([1.0, 0.5, 0.1], 0.5).tolist())
    assert plot(runs).charts[0].lines[0].raw is None


def test_of_a_step_logged_twice_the_later_value_is_drawn(lab: Lab) -> None:
    with lab.create_run("net") as writer:
        for value, step in ((1.0, 0), (2.0, 1), (3.0, 1)):
            writer.metric("loss", value, step)
    assert plot([lab.find(writer.id)], "loss").charts[0].lines[0].y.tolist() == [1.0, 3.0]


def test_the_band_over_repeats_is_the_interval_of_the_mean(lab: Lab) -> None:
    values = [[1.0, 4.0], [2.0, 6.0], [4.0, 5.0]]
    runs = [run(lab, {"lr": 1, "seed": s}, dict(enumerate(v))) for s, v in enumerate(values)]
    (line,) = plot(runs, "loss", repeats=True).charts[0].lines
    for i in (0, 1):
        known = estimate([v[i] for v in values])
        low = max(known.low, 0)  # no loss is below 0
        assert (line.y[i], line.low[i], line.high[i]) == pytest.approx((known.mean, low, known.high))
    assert line.n == 3
    (spread,) = plot(runs, "loss", repeats=True, band="std").charts[0].lines
    assert spread.high[0] - spread.y[0] == pytest.approx(np.std([1, 2, 4], ddof=1))
    (whole,) = plot(runs, "loss", repeats=True, band="range").charts[0].lines
    assert (whole.low[0], whole.high[0]) == (1.0, 4.0)
    assert plot(runs, "loss", repeats=True, band="none").charts[0].lines[0].low is None


def test_repeats_whose_steps_differ_are_interpolated_and_never_extended(lab: Lab) -> None:
    runs = [
        run(lab, {"seed": 0}, {0: 0.0, 2: 2.0, 4: 4.0}),
        run(lab, {"seed": 1}, {1: 3.0, 2: 4.0}),
    ]
    (line,) = plot(runs, "loss", repeats=True).charts[0].lines
    assert line.x.tolist() == [0, 1, 2, 4]
    assert line.y.tolist() == pytest.approx([0.0, (1.0 + 3.0) / 2, 3.0, 4.0])
    assert np.isnan(line.low[[0, 3]]).all() and np.isfinite(line.low[[1, 2]]).all()


def test_seconds_begin_with_each_run(lab: Lab) -> None:
    (line,) = plot([run(lab, {}, {5: 1.0, 6: 2.0})], "loss", x="seconds").charts[0].lines
    assert line.x[0] == 0 and 0 <= line.x[-1] < 60


@pytest.mark.parametrize(
    ("options", "slug"),
    [({"x": "epoch"}, "plot-axis"), ({"band": "iqr"}, "plot-band"), ({"metrics": "los"}, "no-such-metric"),
     ({"smooth": 1}, "smoothing-weight")],
)  # fmt: skip
def test_what_cannot_be_drawn(lab: Lab, options: dict[str, Any], slug: str) -> None:
    with pytest.raises(UsageError, match=slug):
        plot([run(lab, {}, {0: 1.0, 1: 2.0})], **{"metrics": "loss", **options})


def test_nothing_to_draw(lab: Lab, tmp_path: Path) -> None:
    for ask in (lambda: plot([]), lambda: parallel([]), lambda: plot([run(lab, {}, {})])):
        with pytest.raises(UsageError, match="nothing-to-plot"):
            ask()
    with pytest.raises(UsageError, match="plot-suffix"):
        plot([run(lab, {}, {0: 1.0})]).save("a.jpg")
    with pytest.raises(UsageError, match="plot-folder"):
        plot([run(lab, {}, {0: 1.0})]).save(tmp_path / "none" / "a.html")


def test_parallel_coordinates(lab: Lab) -> None:
    runs = [
        run(lab, {"lr": lr, "act": act, "same": 1, "seed": i}, {0: lr})
        for i, (lr, act) in enumerate([(0.001, "relu"), (0.1, "gelu"), (0.03, None)])
    ]
    drawn = parallel(runs, metrics="loss").parallel
    assert [axis.name for axis in drawn.axes] == ["lr", "act", "loss"]
    lr, act, loss = drawn.axes
    assert lr.log and not loss.log and act.categories == ["gelu", "relu"] and act.values[2] is None
    assert [label for _, label in ticks_of(lr)] == ["0.001", "0.03", "0.1"]
    assert [axis.name for axis in parallel(runs).parallel.axes] == ["lr", "act", "loss"]
    assert parallel(runs, ["same", "lr"]).parallel.axes[0].name == "same"
    failed = run(lab, {"lr": 30.0, "act": "relu"}, {0: 2.0})  # before it had all its parameters
    assert [axis.name for axis in parallel([*runs, failed]).parallel.axes] == ["lr", "act", "loss"]
    for wrong in ({"params": ["lrr"]}, {"metrics": ["acc"]}):
        with pytest.raises(UsageError, match="no-such"):
            parallel(runs, **wrong)
    with pytest.raises(UsageError, match="need two axes"):
        parallel(runs[:1])


def test_a_run_has_one_colour_in_all_charts(lab: Lab, tmp_path: Path) -> None:
    first = run(lab, {"lr": 0.1}, {0: 1.0, 1: 2.0}, name="one")
    with lab.create_run("two", params={"lr": 0.2}) as writer:
        for key in ("loss", "acc"):
            writer.metric(key, 1.0, 0)
    drawn = plot([first, lab.find(writer.id)])
    loss, acc = drawn.charts
    assert [i for i, _ in loss.numbered] == [0, 1] and [i for i, _ in acc.numbered] == [1]
    page = drawn.save(tmp_path / "p.html").read_text()
    assert '"numbers":[1]' in page and page.count('class="lux-c1"') == 2


def test_a_seed_is_named_only_where_it_tells_runs_apart(lab: Lab) -> None:
    varied = [run(lab, {"lr": lr, "seed": seed}, {0: 1.0}) for seed, lr in enumerate([0.1, 0.2])]
    repeat = run(lab, {"lr": 0.2, "seed": 7}, {0: 1.0})
    assert [line.name for line in plot(varied).charts[0].lines] == ["net lr=0.1", "net lr=0.2"]
    three = [line.name for line in plot([*varied, repeat]).charts[0].lines]
    assert three == ["net lr=0.1", "net lr=0.2 seed=1", "net lr=0.2 seed=7"]


def test_ticks_of_many_values_are_even() -> None:
    assert [p for p, _ in ticks_of(Axis("a", list(range(100))))] == [0, 0.25, 0.5, 0.75, 1]
    assert next(label for _, label in ticks_of(Axis("a", [10.0**-i for i in range(9)], log=True))) == "1e-08"


# -- files ------------------------------------------------------------------------------------------------------


def evil_plot(lab: Lab) -> Plot:
    runs = [
        run(lab, {EVIL: EVIL + str(i), "_b": i}, {0: 1.0, 1: math.nan, 2: 3.0}, name=EVIL, key=EVIL)
        for i in (0, 1)
    ]
    both = parallel(runs, metrics=EVIL, title=EVIL)
    return Plot(EVIL, plot(runs, EVIL).charts, both.parallel, (EVIL,))


def test_pictures_are_what_their_suffix_says(lab: Lab, tmp_path: Path) -> None:
    made = plot([run(lab, {"lr": i}, {0: 1.0, 5: 2.0 + i}) for i in (1, 2)], "loss", smooth=0.3)
    png = made.save(tmp_path / "a.png", dark=True).read_bytes()
    assert png.startswith(b"\x89PNG") and len(png) > 5000
    tree = ElementTree.fromstring(made.save(tmp_path / "a.svg").read_text())
    assert tree.tag.endswith("svg")
    assert {"net lr=1", "net lr=2", "loss"} <= {(e.text or "").strip() for e in tree.iter()}
    assert made.save(tmp_path / "b.svg").read_bytes() == (tmp_path / "a.svg").read_bytes(), (
        "the same data, the same file"
    )


class Collected(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.outside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.outside += [value or "" for name, value in attrs if name in ("src", "href", "onerror")]


def test_no_value_becomes_markup(lab: Lab, tmp_path: Path) -> None:
    made = evil_plot(lab)
    html = made.save(tmp_path / "a.html").read_text()
    seen = Collected(html)
    assert "img" not in seen.tags and seen.tags.count("script") == 3 and seen.outside == []
    chart, parallel = (
        json.loads(text)
        for text in re.findall(r'<script type="application/json">(.*?)</script>', html, re.DOTALL)
    )
    assert chart["title"] == EVIL and chart["lines"][0]["y"] == [1.0, None, 3.0]
    assert parallel["axes"][0]["name"] == EVIL
    assert "img" not in Collected(made._repr_html_()).tags
    tree = ElementTree.fromstring(made.save(tmp_path / "a.svg").read_text())
    assert not [e for e in tree.iter() if e.tag.endswith(("script", "img"))]
    assert any(EVIL[:40] in (e.text or "") for e in tree.iter())
    made.save(tmp_path / "a.png")


def test_the_page_loads_nothing(lab: Lab, tmp_path: Path) -> None:
    html = plot([run(lab, {}, {0: 1.0})]).to_html()
    addresses = re.findall(r"https?://[^\"'\s)]+", html)
    assert set(addresses) <= {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert "@import" not in html and not re.search(r"url\((?!#)", html)


# -- event files ------------------------------------------------------------------------------------------------


def test_a_run_that_was_repeated_with_its_seed_is_named_like_the_other(lab: Lab) -> None:
    """The older one does not count among repeats, and is a line all the same; so is one that failed."""
    runs = [run(lab, {"lr": lr, "seed": 1}, {0: 1.0}) for lr in (0.1, 0.1, 0.2)]
    shown = plot(runs, "loss")
    names = [line.name for line in shown.charts[0].lines]
    assert names == [
        f"net lr=0.1 seed=1 {runs[0].id[:5]}",
        f"net lr=0.1 seed=1 {runs[1].id[:5]}",
        "net lr=0.2",
    ]
    assert (
        shown.record()["charts"][0]["lines"][0]["x"] == [0]
        and type(shown.record()["charts"][0]["lines"][0]["x"][0]) is int
    )


def test_curves_out_of_event_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with TensorBoardFiles(tmp_path / "tb" / name) as files:
            for step in range(3):
                files.log({"loss": step + 0.5, "acc": 1.0}, step)
    made = plot_tensorboard(tmp_path / "tb", ["loss"])
    assert [(line.name, line.y.tolist()) for line in made.charts[0].lines] == [
        ("a", [0.5, 1.5, 2.5]),
        ("b", [0.5, 1.5, 2.5]),
    ]
    assert [chart.title for chart in plot_tensorboard(tmp_path / "tb").charts] == ["loss", "acc"]
    with pytest.raises(UsageError, match="Did you mean 'loss'"):
        plot_tensorboard(tmp_path / "tb", "losss")
    with TensorBoardFiles(tmp_path / "none") as files:
        files.log({"x": Image(np.zeros((2, 2)))}, 0)
    with pytest.raises(UsageError, match="nothing-to-plot"):
        plot_tensorboard(tmp_path / "none")


# -- in a line --------------------------------------------------------------------------------------------------


def test_sparkline() -> None:
    assert sparkline(range(8)) == "▁▂▃▄▅▆▇█"
    assert sparkline([1, 1, 1]) == "▄▄▄" and sparkline([]) == "" and sparkline([1.0], 0) == ""
    assert sparkline([math.nan, 0, 1, math.inf]) == " ▁█ " and sparkline([math.nan]) == " "
    assert len(sparkline(range(1000), 30)) == 30 and sparkline([1e308, -1e308, 0]) == "█▁▅"
    assert sparkline([0, 0, 1, 1], 2) == "▁█" and sparkline([0, 1, 2], blocks="_-^") == "_-^"
