"""One run of a script gives everything else: its trace, operators, benchmarks and models lie in it and have names there."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import luxmeter as lux
from luxmeter.errors import LuxmeterError, StoreError, UsageError
from luxmeter.experiment import export_run, find_run, import_run, open_lab
from luxmeter.model import PlainNet, naswot_score, plainnet, zen_score
from luxmeter.store import Lab, Run
from luxmeter.view.cli import build_app

ONE_CORE = "what lands in a run is the same, whichever core recorded it"
TRAIN = """
import sys
import torch
from net import make

torch.manual_seed(0)
net, x = make(), torch.randn(16, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=float(sys.argv[2]))
for step in range(3):
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
"""
NET = """
import torch


def make():
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
"""
EXPERIMENT = """
import torch
import luxmeter as lux

with lux.Experiment("mine", {"lr": 0.1}, quiet=True):
    torch.ones(2).sum()
"""
STRUCTURE = "SuperConvK3BNRELU(3,8,1,1)SuperResK3K3(8,16,2,8,1)"


def program(*words: str, code: int = 0, **variables: str) -> str:
    """stderr of a command that becomes a program."""
    done = subprocess.run(
        [sys.executable, "-m", "luxmeter", *words],
        capture_output=True, text=True, check=False, timeout=240, env={**os.environ, **variables},
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stderr


def luxmeter(*words: str) -> str:
    """stdout of a command, run in this process."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        build_app()(list(words), standalone_mode=False)
    return out.getvalue()


def here() -> list[str]:
    return sorted(path.name for path in Path().iterdir() if path.name not in ("home", "__pycache__"))


@pytest.fixture
def project() -> Path:
    luxmeter("init")
    for name, text in (("train.py", TRAIN), ("net.py", NET), ("exp.py", EXPERIMENT)):
        Path(name).write_text(text)
    return Path.cwd()


def test_a_training_is_traced_in_its_run_and_the_rest_follows_by_name(project: Path, tmp_path: Path) -> None:
    before = here()
    said = program("run", "--tag", "first", "--trace", "train.py", "--lr", "0.1")
    assert "torch.nn.Linear" in said and f"(luxmeter show {find_run('first').id}/trace)" in said
    said = program("run", "--trace=inside=true top=2", "train.py", "--lr", "0.2", LUXMETER_TRACE="quiet=true")
    assert "more rows" in said  # what is on the command line goes before the variable
    assert here() == before
    run = find_run("latest")
    assert (
        run.log_text.startswith("loss ") and run.log_text.count("\n") == 1
    )  # the table is not the program's

    # its calls, its operators, measured again, beside a model's cost: all of it under the run's name
    rows = json.loads(luxmeter("show", "first/trace", "--json"))
    assert {"torch.nn.Linear": 6, "Tensor.backward": 3}.items() <= {r["name"]: r["n"] for r in rows}.items()
    assert "torch.nn.Linear" in luxmeter("trace", "--from", "first/trace", "--by", "signature")
    ops = json.loads(luxmeter("ops", "first/trace", "--name", "*Linear*", "--into", "first", "--json"))
    assert len(ops) == 2
    luxmeter("bench", "first/ops", "--top", "1", "--budget-s", "0.1", "--into", "first")
    luxmeter("bench", "latest", "--name", "*Linear*", "--top", "1", "--budget-s", "0.1", "--into", "latest")
    luxmeter("model", "net.py:make", "-i", "16,4", "--into", "first")
    luxmeter("model", "net.py:make", "-i", "32,4", "--into", "latest")

    first = find_run("first")
    assert [r.name for r in first.results()] == ["trace", "ops", "bench", "model"]
    page = luxmeter("show", "first")
    for result in first.results():
        assert f"\n  {result.name:5}  {result.title}\n" in page
    assert f"(luxmeter show {first.id}/trace shows one)" in page
    assert first.bench is not None and first.model is not None and first.trace is not None
    assert "Linear" in luxmeter("show", "first/ops")
    assert luxmeter("show", "first/bench") == f"{first.bench}\n"
    assert "640 MACs" in luxmeter("show", "first/model") and first.model.macs == 640
    assert json.loads(luxmeter("show", "first/model", "--json"))["macs"] == first.model.macs
    assert [r["name"] for r in json.loads(luxmeter("show", "first", "--json"))["results"]] == [
        r.name for r in first.results()
    ]

    # compared: one with one, and in two runs all that both have
    assert "nothing is called a difference" in luxmeter("diff", "first/bench", "latest/bench")
    assert "MACs" in luxmeter("diff", "first/model", "latest/model")
    assert "traced with different options" in luxmeter("diff", "first/trace", "latest/trace")
    diff = luxmeter("diff", "first", "latest")
    for kind in ("trace", "bench", "model"):
        assert f"\n{kind}\n  A  {first.results(kind)[-1].title}\n  B  {run.results(kind)[-1].title}\n" in diff
    assert "2.00x" in diff  # the model's MACs
    found = json.loads(luxmeter("diff", "first", "latest", "--json"))["results"]
    assert set(found) == {"trace", "bench", "model"} and found["model"]["quantities"]["MACs"]["ratios"] == [
        1,
        2,
    ]

    # carried along: an archive holds it, and another lab reads it
    archive = export_run(first, tmp_path / "first.tar.gz")
    other = Lab.open(tmp_path / "other")
    copy = Run(import_run(other, archive).folder)
    assert [(r.name, r.title) for r in copy.results()] == [(r.name, r.title) for r in first.results()]
    for mine, theirs in zip(first.results(), copy.results(), strict=True):
        if mine.path.is_file():
            assert theirs.path.read_bytes() == mine.path.read_bytes()
    assert copy.trace is not None and copy.trace.recording.calls == first.trace.recording.calls
    other.close()

    for words, slug in (
        (("show", "first/modle"), "result-kind"), (("show", "first/bench~1"), "result-missing"),
        (("show", "latest/zen"), "result-missing"), (("show", "first/trace", "--log"), "show-run-only"),
        (("diff", "first/bench", "latest/model"), "diff-kinds"), (("diff", "first/ops", "latest/bench"), "diff-kinds"),
        (("ops", "first/bench"), "no-operators-there"), (("model", "net.py:make", "-i", "1,4", "--into", "nothing"), "run-not-found"),
        (("bench", "first/ops", "--into", "nothing"), "run-not-found"), (("trace", "--from", "first", "--into", "first"), "trace-from-runs-nothing"),
    ):  # fmt: skip
        with pytest.raises(LuxmeterError, match=rf"\[{slug}\]"):
            luxmeter(*words)


def test_a_trace_lies_in_the_run_of_its_program_or_in_the_lab(project: Path) -> None:
    before = here()
    # of a program that makes its run itself, whichever command or variable asks for the trace
    program("trace", "exp.py")
    program("run", "exp.py", LUXMETER_TRACE="1")
    traces = [run.results("trace") for run in lux.runs()]
    assert [len(found) for found in traces] == [1, 1]
    assert [found[0].folder.name for found in traces] == ["exp", "exp"]
    lab = open_lab(create=False)
    assert lab.traces() == []

    # of one that makes none
    said = program("trace", "train.py", "--lr", "0.1")
    (free,) = lab.traces()
    assert f".luxmeter/traces/{free.folder.name} (luxmeter show latest/trace)" in said
    assert free.folder.parent == lab.folder / "traces" and here() == before
    for name in ("latest/trace", free.folder.name, free.folder.name[:5], "train", "train/trace"):
        assert "torch.nn.Linear" in luxmeter("show", name)
    assert "torch.nn.Linear" in luxmeter("ops", "latest") and "Linear" in luxmeter(
        "trace", "--from", "latest"
    )
    assert "Tensor.sum" in luxmeter("show", "latest/trace~1")  # the one before, in a run
    program("trace", "--into", "mine", "train.py", "--lr", "0.1")
    assert len(find_run("mine").results("trace")) == 2 and len(lab.traces()) == 1
    with pytest.raises(UsageError, match="two-trace-folders"):
        luxmeter("trace", "--into", "mine", "-o", "there", "train.py")
    with pytest.raises(StoreError, match=r"trace-not-found|run-not-found"):
        luxmeter("show", "nothing/trace")


@pytest.mark.parametrize("text", ["1 / 0", "import torch, sys; sys.exit('no')"])
def test_a_script_that_dies_before_any_call_leaves_none(project: Path, text: str) -> None:
    Path("s.py").write_text(text)
    before = here()
    program("trace", "-o", "there", "-o", "calls.csv", "s.py", code=1)
    said = program("trace", "s.py", code=1)
    assert ("there is no trace" in said) == ("torch" in text)
    program("run", "--trace", "s.py", code=1)
    assert here() == before
    assert open_lab(create=False).traces(of_runs=True) == [] and find_run("latest").results() == []


def test_what_is_measured_inside_an_experiment_lands_there() -> None:
    net = torch.nn.Linear(4, 2)
    with lux.Experiment("measured", quiet=True) as exp:
        with lux.trace() as t:
            net(torch.randn(3, 4))
        ops = t.operators()
        t.operators()  # the same again is not kept twice
        bench = lux.bench(ops.filter(name="*Linear*"), budget_s=0.1, quiet=True)
        mini = lux.bench_model(
            torch.nn.Linear, ["d", "d"], [["n", "d"]], {"n": [1, 2], "d": 4}, budget_s=0.1, quiet=True
        )
        forward = lux.analyze(net, torch.randn(3, 4))
        whole = forward.with_training()
        lux.analyze(net, torch.randn(3, 4), backward=True, name="once")
        score = zen_score(PlainNet(STRUCTURE), input_size=(2, 3, 8, 8), repeat=2)
        value = naswot_score(PlainNet(STRUCTURE), input_size=(2, 3, 8, 8))
        options = plainnet.SearchOptions(population=2, generations=1, input_size=(2, 3, 8, 8))
        found = plainnet.search(STRUCTURE, budget=plainnet.Budget(params=1e5), options=options, quiet=True)
        assert [r.name for r in exp.run.results()] == [
            "trace", "ops", "bench~1", "bench", "model~2", "model~1", "model", "zen~1", "zen", "search",
        ]  # fmt: skip
    run = exp.run
    assert [len(lux.runs()), found.run_id] == [1, run.id]  # the search made no run of its own
    loaded = {r.name: r.load() for r in run.results()}
    assert list(loaded["ops"]) == list(ops) == list(run.ops)
    assert loaded["bench~1"].rows == bench.rows and run.bench.rows == mini.rows
    assert loaded["model~2"] == forward and loaded["model~1"] == whole != forward
    assert run.model.name == "once" and run.model.backward_flops == whole.backward_flops
    assert loaded["zen~1"] == score and float(loaded["zen"]) == value
    assert loaded["search"].population == found.population and not loaded["search"].interrupted
    assert loaded["search"].state_path == found.state_path == run.results("search")[0].path
    assert luxmeter("show", "measured/bench~1") == f"{bench}\n"
    for name, words in (("zen~1", "Zen score"), ("zen", "NASWOT"), ("search", found.best.structure)):
        assert words in luxmeter("show", f"measured/{name}")
    longer = json.loads(
        luxmeter("search", "--resume", "measured", "--generations", "2", "--into", "measured", "--json")
    )
    assert longer["run"] == run.id and len(run.results("search")) == 2
    with lux.Experiment("nothing", quiet=True) as after:
        pass
    assert after.run.results() == [] and after.run.trace is None and after.run.bench is None


def test_a_lab_that_cannot_be_written_is_told_before_the_script_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("s.py").write_text("open('ran', 'w')")
    monkeypatch.setenv("LUXMETER_HOME", "/proc/nothing/here")
    with pytest.raises(StoreError, match="lab-not-writable"):
        luxmeter("trace", "s.py")
    assert not Path("ran").exists()


def test_the_options_of_run_trace_are_checked_before_anything_runs(project: Path) -> None:
    Path("s.py").write_text("open('ran', 'w')")
    for text, slug in (
        ("insde=1", "unknown-trace-variable"),
        ("sample=0", "bad-trace-variable"),
        ("keep=x.htm", "unknown-trace-format"),
    ):
        with pytest.raises(UsageError, match=slug):
            luxmeter("run", f"--trace={text}", "s.py")
    program("run", "--trace=0", "s.py", "--trace=5")  # the script's own
    assert find_run("latest").flat_params == {"trace": 5} and Path("ran").exists()
    assert not (Path(".luxmeter") / "traces").exists()
