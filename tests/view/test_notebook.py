"""%%luxmeter in a real IPython shell, what a notebook shows of results, and real notebooks with a kernel of their own."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "experiment"))
from made_runs import make_run

import luxmeter as lux
from luxmeter.calls import diff_traces
from luxmeter.errors import MissingExtraError, UsageError
from luxmeter.experiment import diff_runs, group_runs, repeat_table
from luxmeter.model import compare_models
from luxmeter.store import Lab
from luxmeter.view.pages.notebook_report import notebook_report

pytest.importorskip("IPython")

ONE_CORE = "a page of a trace is looked at; what a trace holds is held on both in calls/"


@pytest.fixture
def shell(ipython: Any) -> Any:
    ipython.run_line_magic("load_ext", "luxmeter")
    ipython.run_cell("import torch\nx = torch.ones(3)")
    return ipython


def test_a_cell_is_traced(shell: Any) -> None:
    done = shell.run_cell("%%luxmeter --top 5 -o cell.csv -r kept\ny = x.sin()\nz = y + 1")
    assert done.success
    assert "Tensor.sin" in repr(done.result) and "<td" in done.result._repr_html_()
    assert {row.name for row in shell.user_ns["kept"].table()} == {"Tensor.sin", "+"}
    assert shell.user_ns["z"].shape == (3,)
    assert "Tensor.sin" in Path("cell.csv").read_text()


def test_an_exception_of_the_cell_is_shown_and_the_trace_kept(
    shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    done = shell.run_cell("%%luxmeter\nx.cos()\nraise KeyError('mine')")
    assert isinstance(done.error_in_exec, KeyError)
    assert capsys.readouterr().out.count(": 'mine'") == 1  # told once
    assert "Tensor.cos" in shell.user_ns["_trace"].table()


def test_the_value_of_the_last_line_is_shown_too(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.run_cell("%%luxmeter\nw = x + 1\nw.sum().item() + 0.0078125").success
    assert "6.0078125" in capsys.readouterr().out
    assert shell.run_cell("%%luxmeter\nx.sum().item() + 0.0078125;").success
    assert "3.0078125" not in capsys.readouterr().out


def test_the_table_goes_where_it_is_written_in_a_notebook_too(
    shell: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """rich looks at the shell's class, and would show tables beside the stream it was given."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as a kernel does
    done = shell.run_cell("%%luxmeter --top 5\ny = x.sin()")
    assert "Tensor.sin" in repr(done.result) and "\x1b" not in repr(done.result)
    capsys.readouterr()
    shell.run_cell("print(_trace)")
    assert "Tensor.sin" in capsys.readouterr().out


@pytest.mark.parametrize(
    "line",
    [
        "--insied",
        "-r 1x",
        "-o a.htm",
        "--sample 0",
        "--by apis",
        "--top 0",
        "-o /proc/x/y.html",
        "-o 'a",
    ],
)
def test_wrong_options(shell: Any, line: str, capfd: pytest.CaptureFixture[str]) -> None:
    done = shell.run_cell(f"%%luxmeter {line}\nran = 1")
    assert type(done.error_in_exec).__name__ == "UsageError"
    assert "ran" not in shell.user_ns
    said = "".join(capfd.readouterr())
    assert "UsageError: " in said and "Traceback" not in said


# -- what a notebook shows of results ---------------------------------------------------------------------------------

HOSTILE = "<script>alert(1)</script>"


def as_html(value: Any) -> str:
    """What a notebook shows, checked: harmless, of itself alone, and in the notebook's own colours."""
    shown: str = value._repr_html_()
    body = re.sub(r"<style>.*?</style>", "", shown, flags=re.DOTALL)
    assert shown.startswith('<div class="lux">') and shown.count("<style>") == 1
    assert "<script" not in body and "http" not in re.sub(r"http://www.w3.org/\S+", "", shown)
    style = shown.partition("<style>")[2].partition("</style>")[0]
    assert all(rule.startswith(".lux") for rule in re.findall(r"[^{},]+(?=[^{}]*\{)", style) if rule.strip())
    assert not re.search(r"(?<!-)color:#", style)  # text has the colour of the notebook, on dark as on light
    return html.unescape(re.sub(r"<[^>]+>", " ", body))


@pytest.fixture
def lab() -> Lab:
    return Lab.open(Path.cwd() / ".luxmeter")


def test_runs_and_lists(lab: Lab) -> None:
    make_run(lab, HOSTILE, params={HOSTILE: HOSTILE}, metrics={HOSTILE: [2.0, 1.0, 0.5]}, tags=["x<y"])
    found = lux.runs()
    assert HOSTILE in as_html(found) and HOSTILE in as_html(found[0]) and "<svg" in found[0]._repr_html_()
    assert repr(found[0]).startswith("<run ") and repr(found).startswith("1 run")  # text stays text
    for i in range(60):
        make_run(lab, f"run{i}")
    assert "... and 11 more" in as_html(lux.runs())
    assert "no runs" in as_html(lux.runs("name = 'nobody'"))


def test_a_damaged_run_is_one_line(lab: Lab) -> None:
    run = lux.runs(name=make_run(lab, "mnist", metrics={"loss": [1.0]}).name)[0]
    (run.folder / "params.json").write_text("{")
    assert "params.json" in as_html(run)


def test_traces(lab: Lab) -> None:
    with lux.trace() as trace:
        assert "calls" in as_html(trace)  # while it goes on, too
        torch.ones(3).sin()
    for value in (trace, trace.result, trace.table()):
        assert "Tensor.sin" in as_html(value)
    assert "nothing by section was recorded" in as_html(trace.table("section"))
    assert "not started" in as_html(lux.trace())
    assert "Tensor.sin" in as_html(trace.operators())
    assert "no difference beyond noise" in as_html(diff_traces(trace.result, trace.result))


def test_models_and_runs_side_by_side(lab: Lab) -> None:
    cost = lux.analyze(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU()), torch.ones(1, 3))
    assert "Linear" in as_html(cost) and "aten::addmm" in as_html(cost)
    assert "1.00x" in as_html(compare_models([cost, cost]))
    runs = [make_run(lab, params={"lr": lr, "seed": 0}, metrics={"loss": [2.0, lr]}) for lr in (0.1, 0.2)]
    diff, why = diff_runs(*runs)
    assert why is not None and "lr" in as_html(diff) and why.conclusion in as_html(why)
    assert "lr=0.1" in as_html(repeat_table(group_runs(runs)))


def test_benchmarks_and_checks() -> None:
    from luxmeter.operators import BenchResult, CheckResult, diff_benchmarks, diff_many
    from luxmeter.operators.results import Row

    times = tuple(1e-5 + i * 1e-8 for i in range(30))
    row = Row(HOSTILE, "f32[3]", "", "fp32", "eager", n=30, median_us=10.0, times_s=times)
    made = BenchResult((row,))
    assert HOSTILE in as_html(made) and "no cases" in as_html(CheckResult(()))
    assert "nothing is called a difference" in as_html(diff_benchmarks(made, made))
    as_html(diff_many([made, made, made]))


# -- a run as it goes on ----------------------------------------------------------------------------------------------


def test_watching_needs_a_notebook(lab: Lab, shell: Any) -> None:
    run = make_run(lab)
    for call in (run.watch, run.control_buttons):
        with pytest.raises(UsageError, match="luxmeter top"):
            call()


@pytest.fixture
def execute() -> Callable[..., list[Any]]:
    """Run cells in a kernel; returns what each of them showed."""
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    from luxmeter.view.pages import notebook_report as module

    def run(*cells: str) -> list[Any]:
        notebook = nbformat.v4.new_notebook()
        notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
        module._execute(notebook, Path.cwd())
        return [cell.outputs for cell in notebook.cells]

    return run


def shown_in(outputs: Any) -> str:
    return "".join(
        "".join(out.get("data", {}).get("text/html", "")) + str(out.get("text", "")) + str(out.get("evalue", ""))
        for out in outputs
    )  # fmt: skip


OTHER = """
import sys
from luxmeter.store import Lab
with Lab.open(sys.argv[1]).create_run("other") as run:
    run.log({"acc": 0.5}, step=1)
    run.flush()
    print(run.id, flush=True)
    sys.stdin.readline()
"""


def test_a_real_notebook(execute: Callable[..., list[Any]], lab: Lab) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER, str(lab.folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )  # fmt: skip
    assert other.stdout is not None
    run_id = other.stdout.readline().strip()
    try:
        magic, own, waited, buttons = execute(
            "%load_ext luxmeter\nimport torch\nx = torch.ones(3)\nget_ipython().run_cell_magic('luxmeter', '', 'x.sin()')",
            "import luxmeter as lux\nexp = lux.Experiment('live', quiet=True).start_exp()\nwatch = exp.run.watch(every_s=0.01)\n"
            "for i in range(9):\n    exp.log({'loss': 1 / (i + 1)}, step=i)\nexp.end_exp()\nwatch._thread.join(20)",
            # Of another process: waited for. It ends while that is so.
            f"import os, signal, threading\nrun = lux.runs('id = \"{run_id}\"')[0]\npid = run.identity['process']['pid']\n"
            "threading.Timer(0.3, lambda: os.kill(pid, signal.SIGKILL)).start()\nmade = run.watch('acc', every_s=0.01)",
            "run.control_buttons()",
        )
    finally:
        other.kill()
        other.communicate()
    assert "Tensor.sin" in shown_in(magic) and '<div class="lux">' in shown_in(magic)
    assert len(own) == 1 and "finished" in shown_in(own) and "step 8" in shown_in(own)
    assert "<svg" in shown_in(own) and own[0]["data"]["text/plain"].count("\n") == 1
    assert len(waited) == 1 and "lost" in shown_in(waited) and "acc" in shown_in(waited)
    kinds = buttons[0]["data"]
    assert "application/vnd.jupyter.widget-view+json" in kinds or "run.control('pause')" in shown_in(buttons)


def test_without_ipywidgets_a_line_says_how(monkeypatch: pytest.MonkeyPatch, lab: Lab) -> None:
    from luxmeter.view import watching

    said: list[Any] = []
    monkeypatch.setattr(watching, "_display", lambda _: said.append)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    make_run(lab).control_buttons()
    assert "run.control('stop')" in repr(said[0]) and "pip install ipywidgets" in as_html(said[0])


def test_buttons_ask_the_training(monkeypatch: pytest.MonkeyPatch, lab: Lab) -> None:
    pytest.importorskip("ipywidgets")
    from luxmeter.view import watching

    said: list[Any] = []
    monkeypatch.setattr(watching, "_display", lambda _: said.append)
    make_run(lab).control_buttons()
    *pressed, label = said[0].children
    assert [button.description for button in pressed] == ["pause", "resume", "checkpoint", "stop"]
    pressed[0].click()
    assert "has ended" in label.value


def test_a_run_as_a_notebook(execute: Callable[..., list[Any]], lab: Lab, tmp_path: Path) -> None:
    import nbformat

    run = make_run(lab, "net_*1*", params={"lr": 0.1}, metrics={"loss": [3.0, 2.0]}, output="all done\n")
    path = notebook_report(run, tmp_path / "report.ipynb")
    made = nbformat.read(path, as_version=4)
    nbformat.validate(made)
    assert [c.source for c in made.cells if c.cell_type == "markdown"][1:] == [
        "## Parameters",
        "## Curves",
        "## Output",
    ]
    assert made.cells[0].source.startswith(r"# net\_\*1\*")
    cells = [c for c in made.cells if c.cell_type == "code"]
    assert all(c.execution_count for c in cells) and not any(
        o.output_type == "error" for c in cells for o in c.outputs
    )
    assert run.id in shown_in(cells[0].outputs) and "all done" in shown_in(cells[-1].outputs)
    with pytest.raises(UsageError, match="Make it first"):
        notebook_report(run, tmp_path / "nowhere" / "report.ipynb")


def test_a_notebook_needs_its_extra(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nbclient", None)
    with pytest.raises(MissingExtraError, match=r"luxmeter\[notebook\]"):
        notebook_report(make_run(lab), tmp_path / "report.ipynb")
