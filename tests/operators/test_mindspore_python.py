"""Which Python runs MindSpore, and what is said where there is none. No MindSpore needed."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from luxmeter.errors import LuxmeterError, MissingExtraError
from luxmeter.operators.counterparts import counterpart_of, counterparts, interpreter
from luxmeter.operators.counterparts.interpreter import mindspore_python
from luxmeter.operators.results import BenchResult, Row, pair_table, side_by_side


def python_with(folder: Path, **versions: str | None) -> Path:
    """A program that answers as a Python with these packages would."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "python"
    said = json.dumps({"mindspore": "2.10.0", "torch": "2.13.0", "numpy": "1.26.4", **versions})
    file.write_text(f"#!/bin/sh\necho '{said}'\n")
    file.chmod(0o755)
    return file


def test_the_setting_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = python_with(tmp_path / "mine")
    python_with(tmp_path / "work" / ".venv-mindspore" / "bin")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("LUXMETER_MINDSPORE_PYTHON", str(mine))
    assert mindspore_python() == str(mine)


def test_what_lies_where_one_stands_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = tmp_path / "work" / ".venv-mindspore" / "bin"
    python_with(planted).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (tmp_path / "work" / "deeper").mkdir()
    monkeypatch.chdir(tmp_path / "work" / "deeper")
    with contextlib.suppress(LuxmeterError):
        assert not mindspore_python().startswith(str(planted))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("versions", "slug", "said"),
    [
        ({"numpy": "2.4.1"}, "mindspore-numpy", "numpy 2.4.1, and MindSpore 2.10.0 needs one below 2"),
        ({"mindspore": None}, "mindspore-missing", "has no mindspore"),
        ({"torch": None}, "mindspore-missing", "has no torch"),
    ],
)
def test_what_is_wrong_there_is_said_in_one_line(
    versions: dict, slug: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUXMETER_MINDSPORE_PYTHON", str(python_with(tmp_path, **versions)))
    with pytest.raises(MissingExtraError) as caught:
        mindspore_python()
    assert caught.value.slug == slug and said in str(caught.value) and "pip install" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_python_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUXMETER_MINDSPORE_PYTHON", str(tmp_path / "nowhere"))
    with pytest.raises(MissingExtraError, match="mindspore-python-broken"):
        mindspore_python()
    monkeypatch.delenv("LUXMETER_MINDSPORE_PYTHON")
    monkeypatch.setattr(interpreter, "ENVIRONMENT", ".venv-nothing")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(LuxmeterError, match="make mindspore"):
        mindspore_python()


def test_the_mapping_needs_neither_framework() -> None:
    script = (
        "import sys\n"
        "from luxmeter.operators.counterparts import counterpart_of\n"
        "assert counterpart_of('torch.add').targets[0].name == 'mindspore.mint.add'\n"
        "assert 'mindspore' not in sys.modules and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_an_entry_tells_what_differs() -> None:
    assert counterpart_of("torch.nonsense") is None
    leaky = counterpart_of("torch.nn.functional.leaky_relu")
    assert leaky is not None and leaky.is_good
    assert (
        counterparts()["torch.einsum"].status == "raises" and "Ascend" in counterparts()["torch.einsum"].why
    )


def row(op: str, backend: str, median: float | None, **more: object) -> Row:
    times = (
        {}
        if median is None
        else {"n": 9, "median_us": median, "ci_low_us": median - 1, "ci_high_us": median + 1}
    )
    return Row(op, "f32[2]", "", "fp32", backend, **{**times, **more})  # type: ignore[arg-type]


def test_pairs_and_their_table() -> None:
    pairs = side_by_side([
        row("torch.add", "eager", 10.0), row("torch.add", "mindspore", 25.0, max_abs_error=0.5, max_rel_error=0.1),
        row("torch.mul", "eager", 10.0), row("torch.mul", "mindspore", None, status="crashed", reason="ended by SIGFPE"),
        row("torch.sub", "eager", 10.0),
    ])  # fmt: skip
    assert [p.first.op for p in pairs] == ["torch.add", "torch.mul"]
    assert pairs[0].ratio == 2.5 and pairs[0].differs and pairs[0].remark == "results differ"
    assert pairs[1].ratio is None and pairs[1].remark == "mindspore crashed: ended by SIGFPE"
    table = pair_table(pairs)
    columns, lines = table.names, table.cells
    assert columns[3:5] == ["eager", "mindspore"]
    assert lines[0][3:7] == ["10.0 us [9.00 us, 11.0 us]", "25.0 us [24.0 us, 26.0 us]", "2.50", "5.0e-01"]
    assert pair_table([]).rows == []


def test_a_benchmark_of_both_shows_them_beside_each_other() -> None:
    both = (row("torch.add", "eager", 10.0), row("torch.add", "mindspore", 4000.0))
    table = BenchResult(both).table()
    columns, lines = table.names, table.cells
    assert columns == ["op", "signature", "dtype", "eager", "mindspore", "ratio", "max error", "remark"]
    assert lines == [
        [
            "add",
            "f32[2]",
            "fp32",
            "10.0 us [9.00 us, 11.0 us]",
            "4.00 ms [4.00 ms, 4.00 ms]",
            "400.00",
            "",
            "",
        ]
    ]
    # A third backend, or one that lacks a case: one line a measurement, so that none is lost.
    for rows in ((*both, row("torch.add", "compile", 5.0)), (*both, row("torch.mul", "eager", 5.0))):
        table = BenchResult(rows).table()
        assert len(table.rows) == 3 and "backend" in table.names


def test_pairs_at_several_scales_say_which() -> None:
    rows = [
        replace(row("torch.add", backend, 10.0), scale=scale, threads=2)
        for scale in ("batch=1", "batch=8")
        for backend in ("eager", "mindspore")
    ]
    table = pair_table(side_by_side(rows))
    columns, lines = table.names, table.cells
    assert columns[2] == "scale" and "threads" not in columns
    assert [line[2] for line in lines] == ["batch=1", "batch=8"]
