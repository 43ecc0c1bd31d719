"""`luxmeter bench`: rows, files and pictures from operators or a mini-model; Ctrl-C and --resume in a real process."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from luxmeter.errors import UsageError
from luxmeter.operators.case import Case, Operators
from luxmeter.operators.results import load_benchmark
from luxmeter.signature import describe
from luxmeter.view.cli import build_app

SPEC = """
model: torch.nn:Linear
model_init_params: [d_in, d_out]
input_params: [[batch, d_in]]
input_scales: {batch: [1, 4], d_in: 16, d_out: 8}
job_configs: [[fp32, pt]]
"""


def operators(n: int = 1) -> str:
    cases = [Case("torch.add", describe((torch.rand(8, 4 + i), torch.rand(8, 4 + i)))) for i in range(n)]
    Operators(cases).save("ops.jsonl")
    return "ops.jsonl"


def luxmeter(*args: str) -> Any:
    return CliRunner().invoke(build_app(), list(args), catch_exceptions=False)


def test_rows_files_and_a_picture() -> None:
    result = luxmeter(
        "bench", operators(), "--dtypes", "fp32,bf16", "--scale", "batch=1,64", "--threads", "1,2", "--budget-s", "2",
        "-o", "b.csv", "-o", "b.parquet", "-o", "b.svg", "--resume", "kept.json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    with open("b.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["scale"], r["dtype"], r["threads"]) for r in rows] == [
        (f"batch={n}", dtype, threads)
        for n in (1, 64)
        for dtype in ("fp32", "bf16")
        for threads in ("1", "2")
    ]
    assert all(r["status"] in ("ok", "doubtful") and float(r["median_us"]) > 0 for r in rows)
    assert load_benchmark("b.parquet") == load_benchmark("kept.json")
    assert "size^" in Path("b.svg").read_text()
    assert "noise floor" in result.stdout and "batch=64" in result.stdout
    again = luxmeter("bench", "ops.jsonl", "--dtypes", "fp32,bf16", "--scale", "batch=1,64", "--threads", "1,2",
                     "--resume", "kept.json", "--json", "--budget-s", "1")  # fmt: skip
    told = json.loads(again.stdout)
    assert [r["median_us"] for r in told["rows"]] == [float(r["median_us"]) for r in rows]
    assert told["complete"] and told["environment"]["machine"]["cores"]


def test_a_mini_model_from_a_file() -> None:
    Path("linear.yaml").write_text(SPEC)
    result = luxmeter("bench", "linear.yaml", "--budget-s", "1", "-o", "out.csv")
    assert result.exit_code == 0, result.output
    with open("out.csv", newline="") as file:
        assert [r["scale"] for r in csv.DictReader(file)] == [f"batch={n},d_in=16,d_out=8" for n in (1, 4)]
    with pytest.raises(UsageError, match="--dtypes does not go with it"):
        luxmeter("bench", "linear.yaml", "--dtypes", "bf16")


@pytest.mark.parametrize(
    ("args", "slug"),
    [
        (["--scale", "bacth=1"], "unknown-dimension"),
        (["--scale", "batch"], "bad-scale"),
        (["--scale", "batch=1,x"], "bad-scale"),
        (["--dtypes", "fp23"], "unknown-dtype"),
        (["--backends", "eagre"], "unknown-name"),
        (["--threads", "0"], "bad-threads"),
        (["-o", "b.xls"], "unknown-benchmark-format"),
        (["-o", "no/such/folder/b.csv"], "bench-out-unwritable"),
        (["--plot", "pie"], "unknown-picture"),
        (["--python", "a", "--python", "b"], "bad-interpreters"),
        (["--name", "mul"], "no-such-operator"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_runs(args: list[str], slug: str) -> None:
    with pytest.raises(UsageError, match=slug):
        luxmeter("bench", operators(), *args)


def test_ctrl_c_keeps_what_is_done_and_resume_goes_on() -> None:
    """A real process in its own session, as a shell would start it."""
    command = [sys.executable, "-m", "luxmeter", "bench", operators(60), "--budget-s", "600", "--target-ci", "1e-9",
               "--resume", "kept.json", "-o", "out.csv"]  # fmt: skip
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
    first = load_benchmark("kept.json")
    assert 1 <= len(first) < 60 and not first.complete
    assert len(Path("out.csv").read_text().splitlines()) == len(first) + 1
    again = luxmeter("bench", "ops.jsonl", "--budget-s", "0", "--resume", "kept.json")
    assert again.exit_code == 0
    second = load_benchmark("kept.json")
    assert second.complete and len(second) == 60
    # Not measured again, but for the second look at some, which shows the noise.
    assert tuple(replace(row, again_s=()) for row in second.rows[: len(first)]) == first.rows
