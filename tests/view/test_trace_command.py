"""`luxmeter trace`: the program runs as without it, and the trace lies where it was asked for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from luxmeter.calls import load_trace
from luxmeter.errors import UsageError
from luxmeter.store import Lab
from luxmeter.view.cli import build_app
from luxmeter.view.startup import HERE, Request, environment, read_request
from luxmeter.view.startup.shown import shown

FACTS = """
import json, os, sys
os.environ["OMP_NUM_THREADS"] = "1"  # still early enough: torch is not imported yet
assert "torch" not in sys.modules
import torch
from torch import sin
here = {"argv": sys.argv, "name": __name__, "path": sys.path, "file": __file__, "doc": __doc__,
        "main": sys.modules["__main__"].__file__, "names": sorted(n for n in globals() if n.startswith("__"))}
sys.stdout.write(json.dumps(here))
torch.ones(2) + 1
sin(torch.ones(3))
"""


def run(*args: str, **more: str) -> subprocess.CompletedProcess[str]:
    variables = dict(os.environ, **more)
    return subprocess.run(
        [sys.executable, *args], capture_output=True, text=True, check=False, env=variables, timeout=120
    )


def luxmeter(*args: str, **more: str) -> subprocess.CompletedProcess[str]:
    return run("-m", "luxmeter", *args, **more)


def counts(folder: str | Path) -> dict[str, int]:
    return {row.name: row.n for row in load_trace(folder).table()}


def test_a_script_runs_as_without_it() -> None:
    Path("s.py").write_text(FACTS + "sys.exit(5)\n")
    plain = run("s.py", "-o", "a b", "--inside")
    traced = luxmeter("trace", "--top", "3", "s.py", "-o", "a b", "--inside")
    assert traced.returncode == plain.returncode == 5
    assert json.loads(traced.stdout) == json.loads(plain.stdout)
    (kept,) = Lab.open(create=False).traces()
    assert f"the trace is in {kept.folder}" in traced.stderr and "torch.ones" in traced.stderr
    assert counts(kept.folder) == {"torch.ones": 2, "+": 1, "torch.sin": 1}
    again = luxmeter("trace", "s.py")
    assert str(Lab.open(create=False).traces()[-1].folder) in again.stderr
    table = luxmeter("trace", "--from", kept.folder.name, "--json")
    assert {row["name"]: row["n"] for row in json.loads(table.stdout)} == counts(kept.folder)
    assert [path.name for path in Path().iterdir() if path.name not in ("home", "__pycache__")] == ["s.py"]


FAILING = """
import atexit, sys, torch
from luxmeter.calls import {module} as module
def fails(*args, **kwargs):
    raise RuntimeError("a fault of the writer")
{owner}.{name} = fails
atexit.register(print, "the program's own work at exit")
torch.ones(3).sum()
{end}
"""


@pytest.mark.parametrize(
    ("module", "owner", "name"),
    [
        ("writer", "module", "_write_folded"),
        ("writer", "module.Spill", "_take"),
        ("result", "module.TraceResult", "table"),
    ],
)
def test_a_trace_that_failed_is_told_by_the_exit_code(module: str, owner: str, name: str) -> None:
    Path("s.py").write_text(FAILING.format(module=module, owner=owner, name=name, end=""))
    traced = luxmeter("trace", "s.py")
    assert traced.returncode == 3
    assert traced.stdout == "the program's own work at exit\n"
    assert "RuntimeError" in traced.stderr and "a fault of the writer" in traced.stderr
    by_variable = run("s.py", LUXMETER_TRACE="elsewhere")
    assert by_variable.returncode == 0 and "a fault of the writer" in by_variable.stderr


def test_a_program_that_failed_itself_keeps_its_exit_code() -> None:
    Path("s.py").write_text(FAILING.format(module="writer", owner="module.Spill", name="_take", end="1 / 0"))
    traced = luxmeter("trace", "s.py")
    assert traced.returncode == 1
    assert "ZeroDivisionError" in traced.stderr and "2 calls lost: RuntimeError: a fault" in traced.stderr


def test_a_module_and_its_exception(tmp_path: Path) -> None:
    Path("pack").mkdir()
    Path("pack", "__init__.py").write_text("")
    Path("pack", "__main__.py").write_text("import torch\ntorch.ones(3).sum()\nraise KeyError('lost')\n")
    plain = run("-m", "pack", "x")
    traced = luxmeter("trace", "--totals", "-o", "kept", "-m", "pack", "x")
    assert traced.returncode == plain.returncode == 1
    assert traced.stderr.startswith(plain.stderr)  # the very same traceback, then the table
    assert "Tensor.sum" in traced.stderr
    assert counts("kept") == {"torch.ones": 1, "Tensor.sum": 1}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_as_without(number: signal.Signals) -> None:
    Path("s.py").write_text(
        "import glob, os, signal, time, torch\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background job ignores it
        "torch.ones(2)\n"
        "while not glob.glob('kept/rank*/events/*/*'): time.sleep(0.05)\n"  # what was on disk stays there
        f"os.kill(os.getpid(), {int(number)})\ntime.sleep(30)\n"
    )
    done = luxmeter("trace", "-o", "kept", "-o", "calls.csv", "s.py")
    assert done.returncode == -number
    assert counts("kept")["torch.ones"] == 1
    assert Path("calls.csv").exists() == (number is signal.SIGINT)
    assert ("torch.ones" in done.stderr) == (
        number is signal.SIGINT
    )  # nothing runs after SIGTERM, as without


def test_subprocesses_and_spawned_workers_join() -> None:
    Path("s.py").write_text(
        "import multiprocessing as mp, subprocess, sys\n"
        "def work(n):\n    import torch\n    torch.zeros(n).cos()\n"
        "if __name__ == '__main__':\n"
        "    import torch\n    torch.ones(1)\n"
        "    subprocess.run([sys.executable, '-c', 'import torch; torch.ones(1).tan()'], check=True)\n"
        "    p = mp.get_context('spawn').Process(target=work, args=(2,)); p.start(); p.join(); sys.exit(p.exitcode)\n"
    )
    variables = environment(Request(keep=("kept",)), os.environ)
    done = run("s.py", **variables)
    assert done.returncode == 0, done.stderr
    assert counts("kept") == {"torch.ones": 2, "Tensor.tan": 1, "torch.zeros": 1, "Tensor.cos": 1}
    assert len(load_trace("kept").recording.processes) == 3
    assert done.stderr.count("the trace is in") == 1


def test_the_variable_in_a_program_without_torch_and_with_a_sitecustomize_of_its_own() -> None:
    Path("own").mkdir()
    Path("own", "sitecustomize.py").write_text("import builtins; builtins.seen = 1")
    code = "import sys; print(seen, sys.modules['sitecustomize'].__file__, sys.path)"
    plain = run("-c", code, PYTHONPATH="own")
    traced = run("-c", code, LUXMETER_TRACE="1", PYTHONPATH=f"{HERE}{os.pathsep}own")
    assert traced.stdout == plain.stdout and traced.stderr == ""
    assert not Lab.open().traces()


def test_wrong_options_are_told_before_the_script_runs() -> None:
    Path("s.py").write_text("open('ran', 'w')\nimport torch\n")
    Path("full").mkdir()
    Path("full", "x").touch()
    wrong = {
        ("trace", "nowhere.py"): "no-script",
        ("trace", "-m", "no_such_module_here"): "no-script",
        ("trace",): "no-script",
        ("trace", "-o", "calls.htm", "s.py"): "unknown-trace-format",
        ("trace", "-o", "full", "s.py"): "trace-out-taken",
        ("trace", "-o", "a", "-o", "b", "s.py"): "two-trace-folders",
        ("trace", "-o", "/proc/nothing/here", "s.py"): "trace-out-unwritable",
        ("trace", "--window", "1:2", "s.py"): "trace-needs-from",
        ("trace", "-o", "left", "nowhere.py"): "no-script",
        ("trace", "--totals", "-o", "calls.csv", "s.py"): "totals-in-file",
        ("trace", "--insied", "s.py"): "unknown-trace-flag",
        ("trace", "--by", "lines", "s.py"): "unknown-grouping",
        ("trace", "--by", "line", "--no-lines", "s.py"): "trace-without-lines",
        ("trace", "--source", "--no-lines", "s.py"): "trace-without-lines",
        ("trace", "--steps", "--totals", "s.py"): "totals-only",
        ("trace", "--section", "train", "s.py"): "section-needs-steps",
        ("trace", "--by", "line", "-o", "calls.html", "s.py"): "no-table-in-format",
    }
    for args, slug in wrong.items():
        with pytest.raises(UsageError) as told:
            build_app()(list(args), standalone_mode=False)
        assert told.value.slug == slug
    done = luxmeter("trace", "nowhere.py")
    assert done.returncode == 2 and "[no-script]" in done.stderr and "Traceback" not in done.stderr
    assert not Path("ran").exists() and not Path("left").exists()


def test_lines_steps_and_source_at_the_end_of_a_script() -> None:
    Path("s.py").write_text(
        "import torch\nfrom torch import nn\nnet = nn.Linear(2, 2)\n"
        "opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "for _ in range(4):\n    net(torch.ones(1, 2)).sum().backward()\n    opt.step()\n"
    )
    lines = luxmeter("trace", "--by", "line", "-o", "lines.csv", "-o", "kept", "s.py").stderr
    assert "\nline " in lines and "s.py:6" in lines and "\napi " not in lines
    assert Path("lines.csv").read_text().startswith("line,") and "s.py:7" in Path("lines.csv").read_text()
    done = run("s.py", **environment(Request(steps=True), os.environ))
    assert "3 steps by the optimizer's step" in done.stderr and "\napi " not in done.stderr
    source = shown(load_trace("kept"), Request(source=True), None)
    assert "net(torch.ones(1, 2)).sum().backward()" in source


def test_a_filter_that_matches_nothing_ends_the_script_at_its_import() -> None:
    Path("s.py").write_text("import torch\nopen('ran', 'w')\n")
    done = luxmeter("trace", "--only", "torch.no_such_thing", "s.py")
    assert done.returncode == 2 and "[filter-matches-nothing]" in done.stderr
    assert not Path("ran").exists()
    assert not Lab.open().traces()


def test_inside_filter_and_coverage() -> None:
    Path("s.py").write_text(
        "import torch\nx = torch.ones(2, 2)\ntorch.nn.functional.gelu(x)\ntorch.mm(x, x)\n"
    )
    done = luxmeter("trace", "--only", "torch.mm", "--coverage", "-o", "kept", "s.py")
    assert counts("kept") == {"torch.mm": 1}
    assert "callables are timed" in done.stderr


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("", None),
        ("off", None),
        ("1", Request()),
        ("calls.html", Request(keep=("calls.html",))),
        ("inside=true sample=10 only=torch.* only=+ keep='a b'", Request(inside=True, sample=10, only=("torch.*", "+"), keep=("a b",))),
        ("budget=0.01 signatures=false name=7", Request(budget=0.01, signatures=False, name="7")),
    ],
)  # fmt: skip
def test_the_variable(text: str, request_: Request | None) -> None:
    assert read_request(text) == request_
    if request_ is not None:
        assert read_request(request_.text()) == request_


@pytest.mark.parametrize(
    "text", ["insied=true", "every=10", "sample=0", "inside=3", "top=many", '{"only":[3]}']
)
def test_a_wrong_variable_is_told(text: str) -> None:
    with pytest.raises(UsageError, match=r"LUXMETER_TRACE"):
        read_request(text)


def test_a_wrong_variable_does_not_stop_a_program() -> None:
    done = run("-c", "print(1)", LUXMETER_TRACE="insied=1", PYTHONPATH=str(HERE))
    assert done.stdout == "1\n" and done.returncode == 0
    assert "not traced" in done.stderr and "'inside'" in done.stderr


def test_a_place_that_cannot_be_written_is_told_before_the_program_runs() -> None:
    for wanted in ("/proc/no/calls.csv", "totals=true keep=calls.csv"):
        done = run("-c", "import torch; print(1)", LUXMETER_TRACE=wanted, PYTHONPATH=str(HERE))
        assert done.returncode == 0 and done.stdout == "1\n"
        assert "luxmeter: not traced: " in done.stderr.splitlines()[0], done.stderr


def test_env_prints_what_a_shell_can_read() -> None:
    Path("s.py").write_text("import torch\ntorch.ones(2)\n")
    shell = f'eval "$({sys.executable} -m luxmeter trace --env -o kept)"; {sys.executable} s.py'
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert counts("kept") == {"torch.ones": 1}


def test_sample_records_each_second_step_and_sync_times_to_completion() -> None:
    Path("s.py").write_text(
        "import torch\n"
        "w = torch.ones(2, requires_grad=True)\n"
        "o = torch.optim.SGD([w], lr=0.1)\n"
        "for _ in range(6):\n"
        "    w.sum().backward()\n"
        "    o.step()\n"
    )
    whole = luxmeter("trace", "--sync", "-o", "whole", "s.py")
    half = luxmeter("trace", "--sample", "2", "-o", "half", "s.py")
    assert whole.returncode == half.returncode == 0, whole.stderr + half.stderr
    assert (counts("whole")["Tensor.backward"], counts("half")["Tensor.backward"]) == (6, 3)
    assert set(load_trace("whole").events()["completed"].to_pylist()) == {True}


def test_a_script_that_traces_by_itself_does_so() -> None:
    Path("s.py").write_text(
        "import torch\nimport luxmeter as lux\ntorch.ones(2)\n"
        "with lux.trace() as t:\n    torch.zeros(2)\n"
        "assert [row.name for row in t.table()] == ['torch.zeros']\n"
    )
    done = luxmeter("trace", "-o", "outer", "s.py")
    assert done.returncode == 0, done.stderr
    assert "started a trace of its own; this one ended there" in done.stderr
    assert counts("outer") == {"torch.ones": 1}
