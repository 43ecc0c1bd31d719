"""%%luxmeter in a real IPython shell."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("IPython")
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setattr(builtins, "display", None, raising=False)  # which a shell leaves there
    InteractiveShell.clear_instance()
    config = Config()
    config.HistoryManager.enabled = False  # its thread would stay
    made = InteractiveShell.instance(history_length=0, config=config)
    made.run_line_magic("load_ext", "luxmeter")
    made.run_cell("import torch\nx = torch.ones(3)")
    yield made
    InteractiveShell.clear_instance()


def test_a_cell_is_traced(shell: Any) -> None:
    done = shell.run_cell("%%luxmeter --top 5 -o cell.csv -r kept\ny = x.sin()\nz = y + 1")
    assert done.success
    assert "Tensor.sin" in repr(done.result) and "<pre" in done.result._repr_html_()
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
