"""`luxmeter check`: from a source to a table, files, scripts and an exit code; Ctrl-C and --resume in a real process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from luxmeter.errors import UsageError
from luxmeter.operators import load_check
from luxmeter.operators.case import Case, Operators
from luxmeter.signature import describe
from luxmeter.view.cli import build_app

FAULT = """
import torch
right = torch.cos
torch.cos = lambda x: right(x) * 1.001 if x.dtype is torch.float32 else right(x)
"""


def operators() -> str:
    cases = [Case(f"torch.{name}", describe((torch.rand(8, 4),))) for name in ("sin", "cos")]
    Operators(cases).save("ops.jsonl")
    return "ops.jsonl"


def luxmeter(*args: str) -> Any:
    return CliRunner().invoke(build_app(), list(args), catch_exceptions=False)


def test_a_fault_is_shown_written_compared_and_shown_again() -> None:
    Path("fault.py").write_text(FAULT)
    wrong = luxmeter(
        "check",
        operators(),
        "--setup",
        "fault.py",
        "--workers",
        "1",
        "-o",
        "b.json",
        "-o",
        "b.html",
        "--scripts",
        "s",
    )
    assert wrong.exit_code == 1, wrong.output
    assert "failed" in wrong.stdout and "torch.cos" in wrong.stdout and "1 passed, 1 failed" in wrong.stdout
    assert "torch.cos" in Path("b.html").read_text() and len(list(Path("s").glob("*cos*.py"))) == 1
    right = luxmeter("check", "ops.jsonl", "--workers", "1", "--json", "-o", "a.json")
    assert right.exit_code == 0 and json.loads(right.stdout)["counts"]["passed"] == 2
    compared = luxmeter("diff", "a.json", "b.json")
    assert "newly failing" in compared.stdout and "setup: [] and ['fault.py']" in compared.stdout
    assert (
        json.loads(luxmeter("diff", "b.json", "a.json", "--json").stdout)["changes"][0]["kind"]
        == "newly passing"
    )
    shown = luxmeter("show", "b.json")
    assert (
        "torch.cos" in shown.stdout
        and json.loads(luxmeter("show", "b.json", "--json").stdout)["version"] == 1
    )


@pytest.mark.parametrize(
    ("args", "slug"),
    [
        (["opinof"], "check-source"),
        (["torch.cos"], r"luxmeter check opinfo --only torch\.cos\. \[check-source"),
        (["nowhere.py"], "check-source"),
        (["ops.jsonl", "-o", "b.xls"], "unknown-check-format"),
        (["ops.jsonl", "-o", "no/such/folder/b.json"], "bench-out-unwritable"),
        (["ops.jsonl", "-o", "folder.json"], "file-unwritable"),
        (["ops.jsonl", "--scripts", "ops.jsonl"], "check-scripts"),
        (["no_such_folder/"], "check-source"),
        (["ops.jsonl", "--dtypes", "fp23"], "unknown-dtype"),
        (["ops.jsonl", "--dtypes", ""], "bad-check-option"),
        (["ops.jsonl", "--into", "nothing"], "no-lab|run-not-found|no-runs-yet"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_runs(args: list[str], slug: str) -> None:
    operators()
    Path("folder.json").mkdir()
    with pytest.raises((UsageError, Exception), match=slug):
        luxmeter("check", *args)


def test_no_rounds_is_refused() -> None:
    assert luxmeter("check", operators(), "--rounds", "0").exit_code == 2


def test_ctrl_c_keeps_what_is_done_and_resume_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real process in its own session, as a shell would start it."""
    waits = ("0.05" if n < 3 else 'float(os.environ.get("WAIT", "0.5"))' for n in range(40))
    cases = "".join(f"def test_{n}():\n    time.sleep({wait})\n" for n, wait in enumerate(waits))
    Path("slow.py").write_text(f"import os, time\n{cases}")
    command = [
        sys.executable,
        "-m",
        "luxmeter",
        "check",
        "slow.py",
        "--workers",
        "1",
        "--resume",
        "kept.json",
    ]
    # A shell in the background leaves SIGINT ignored; the program must see it as in a terminal.
    start = "import signal, sys, os; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", start, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 100
        while not Path("kept.json").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGINT)
        out, said = process.communicate(timeout=100)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, said
    assert "stopped early" in out and "--resume kept.json" in said
    first = load_check("kept.json")
    assert 1 <= len(first) < 40 and not first.complete
    monkeypatch.setenv("WAIT", "0")
    assert luxmeter("check", "slow.py", "--workers", "1", "--resume", "kept.json").exit_code == 0
    second = load_check("kept.json")
    assert second.complete and len(second) == 40 and second.rows[: len(first)] == first.rows
