"""`luxmeter report`: a run told whole; several side by side; what is damaged does not hide the rest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import luxmeter as lux
from browser import needs_browser, opened
from luxmeter.errors import UsageError
from luxmeter.experiment import find_run
from luxmeter.view.cli import build_app
from luxmeter.view.pages.report import report_markdown, report_page, write_report

ONE_CORE = "what a page shows of a trace is the same, whichever core recorded it"
EVIL = "<img src=x onerror=alert(1)>\u202e'\"&</script>"


def trained(seed: int, lr: float = 0.1, name: str = "tiny") -> lux.Experiment:
    torch.manual_seed(seed)
    with lux.Experiment(name, params={"lr": lr, "seed": seed, "evil": EVIL}, quiet=True) as exp:
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        x, y = torch.rand(16, 4), torch.randint(0, 2, (16,))
        with lux.trace():
            for step in range(24):  # as many as its curve over the steps needs
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                exp.log({"loss": loss.item(), EVIL: step}, step)
        lux.analyze(model, torch.rand(1, 4), name="Tiny")
        print("printed", EVIL)
    return exp


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[lux.Experiment]:
    monkeypatch.chdir(tmp_path)
    return [trained(0), trained(1), trained(2, lr=0.2)]


def told(*args: str) -> str:
    done = CliRunner().invoke(build_app(), ["report", *args])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_latest_run_whole(runs: list[lux.Experiment]) -> None:
    assert "wrote report.html" in told()
    page = Path("report.html").read_text()
    for title in ("Summary", "Parameters", "Metrics", "Curves", "Flame graph", "Hottest calls", "Timeline", "What it is made of",
                  "Compared with another run", "Output"):  # fmt: skip
        assert f'aria-label="{title}"' in page, title
    assert [*re.findall(r'<a href="#([\w-]+)">', page)] == ["summary", "curves", "calls", "model", "compared", "output"]  # fmt: skip
    assert all(f'id="{part}"' in page for part in ("summary", "model", "output"))
    assert "Where the time of a step goes" in page and "torch.nn.Linear" in page
    assert "\u202e" not in re.sub(r'<script type="application/json">.*?</script>|="[^"]*"', "", page)
    assert "<img" not in page and page.count("</script>") == len(re.findall(r"<script", page))
    assert len(page) < 2_000_000
    # What changed since the run before it: the learning rate, and what that did.
    compared = page.split("Compared with another run<")[1]
    assert runs[1].run.id in compared and "lr" in compared


def test_repeats_have_a_band(runs: list[lux.Experiment]) -> None:
    told(runs[1].run.id, "-o", "r.html")
    page = Path("r.html").read_text()
    assert 'aria-label="Repeats"' in page and "95 % interval" in page and 'class="band' in page


def test_against_several_and_markdown(runs: list[lux.Experiment]) -> None:
    told(runs[2].run.id, "--against", runs[0].run.id, "-o", "a.html")
    assert f"A is tiny {runs[0].run.id}" in Path("a.html").read_text()
    told(runs[0].run.id, runs[2].run.id, "-o", "two.html")
    two = Path("two.html").read_text()
    assert all(f'data-tab="tiny {exp.run.id}"' in two for exp in (runs[0], runs[2]))
    told("-o", "report.md")
    text = Path("report.md").read_text()
    assert "## Parameters" in text and "| lr | 0.2 |" in text and "## The hottest calls" in text
    assert "<img" not in text.split("## Output")[0]


def test_bad_input(runs: list[lux.Experiment]) -> None:
    for args, slug in (
        (["-o", "report.pdf"], "report-format"),
        (["-o", "nowhere/report.html"], "no-such-folder"),
        (["-o", "/proc/report.md"], "file-unwritable"),
        ([runs[0].run.id, runs[1].run.id, "--against", runs[2].run.id], "report-against"),
        ([runs[0].run.id, runs[1].run.id, "--notebook"], "report-against"),
    ):
        done = CliRunner().invoke(build_app(), ["report", *args])
        assert isinstance(done.exception, UsageError) and done.exception.slug == slug
    assert not Path("report.pdf").exists()


def test_a_damaged_run_is_told_as_far_as_it_goes(runs: list[lux.Experiment]) -> None:
    run = find_run(runs[0].run.id)
    for file in (run.folder / "results" / "model").rglob("*.json"):
        file.write_text("{")
    page = report_page([find_run(runs[0].run.id)])
    assert "This cannot be read" in page and 'aria-label="Flame graph"' in page


def test_a_run_with_nothing_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with lux.Experiment("empty", quiet=True):
        pass
    run = find_run("latest")
    assert "Summary" in report_page([run]) and "# empty" in report_markdown([run])


@needs_browser
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_in_a_browser(runs: list[lux.Experiment], width: int, dark: bool) -> None:
    path = write_report([find_run("latest")], Path("report.html").absolute())
    with opened(path.as_uri(), width=width, dark=dark) as tab:
        assert tab.locator("path.curve").count() >= 2 and tab.locator(".lux-f").count() > 3
        assert tab.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0
        tab.locator("tr[data-name='torch.nn.Linear']").first.click()
        assert tab.locator(".lux-f.lux-dim").count() > 0
