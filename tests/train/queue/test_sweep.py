"""Sweeps: what is tried, told, pruned and shown. Programs are pretended, but for the last test."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from in_process import Command
from queue_parts import Clock, Pretended, PretendedEngine, project

from luxmeter.errors import LuxmeterError, UsageError
from luxmeter.store import Lab
from luxmeter.train import Queue, Sweep, SweepOptions, Worker
from luxmeter.train.queue.engines.engine import End, Start
from luxmeter.train.queue.options import JobOptions
from luxmeter.train.queue.space import read_grid, read_space, told_by
from luxmeter.view.text.jobs import best_line


@pytest.fixture
def queue(queue: Queue, tmp_path: Path) -> Queue:
    """Its script takes a learning rate and a seed."""
    project(tmp_path / "project", script="parser.add_argument('--lr')\nparser.add_argument('--seed')\n")
    return queue


class Learned(PretendedEngine):
    """Each program logs what its learning rate gives, at once, and ends; a hopeless one goes on."""

    def __init__(self, lab: Lab, *, goes_on_above: float = 9.0) -> None:
        super().__init__(cpus=4)
        self._lab, self._limit = lab, goes_on_above

    def start(self, start: Start) -> Pretended:
        going = super().start(start)
        lr, seed = start.job.trial["point"]["lr"], start.job.trial["seed"] or 0
        run = self._lab.create_run(
            "script", params={"lr": lr, "seed": seed}, tags=[start.job.group], run_id=start.job.run
        )
        for step in range(3):
            run.log({"acc": 1 - lr + seed * 0.01 - (2 - step) * 0.001}, step=step)
        run.flush()
        if lr <= self._limit:
            going.result = End(0)
        run.finish()
        return going


def swept(queue: Queue, engine: PretendedEngine, *, slots: int = 2, **options: Any) -> Sweep:
    sweep = Sweep(
        queue, Path("project/script.py"), ["--fast"], SweepOptions(**options), JobOptions(cpus=1, memory=0)
    )
    worker = Worker(queue, engine, slots=slots, group=sweep.name, clock=Clock())
    sweep.run(worker, shown=lambda one: None, pause=lambda seconds: None)
    return sweep


def test_a_grid_is_every_combination_with_every_seed(queue: Queue) -> None:
    engine = Learned(queue.lab)
    sweep = swept(queue, engine, grid=("lr=0.5,0.1", "kind=a,b"), seeds=2, metric="acc")
    arguments = [job.arguments for job in queue.table.jobs()]
    assert len(arguments) == 8 and arguments[0] == ("--fast", "--lr=0.5", "--kind=a", "--seed=0")
    assert [trial.point for trial in sweep.trials][1] == {"lr": 0.5, "kind": "b"}
    assert sweep.ranked[0].point == {"lr": 0.1, "kind": "a"} and sweep.ranked[0].mean == pytest.approx(0.905)
    assert {job.state for job in queue.table.jobs()} == {"done"} and not list(
        (queue.folder / "code").iterdir()
    )


def test_less_may_be_better_and_a_config_takes_its_values_as_overrides(queue: Queue, tmp_path: Path) -> None:
    (tmp_path / "project/config.py").write_text("lr = 1\ntask = dict(type='TaskFlow')\n")
    options = SweepOptions(grid=("lr=0.5,0.1",), metric="acc", mode="min", name="mine")
    sweep = Sweep(queue, Path("project/config.py"), ["epoch=2"], options)
    sweep.run(Worker(queue, Learned(queue.lab), group="mine", clock=Clock()), shown=lambda one: None)
    assert queue.table.jobs()[0].arguments == ("epoch=2", "lr=0.5")
    assert sweep.ranked[0].point == {"lr": 0.5} and sweep.ranked[0].mean == pytest.approx(0.498)
    with pytest.raises(UsageError, match="sweep-exists"):
        Sweep(queue, Path("project/config.py"), [], options)


def test_stopping_leaves_the_rest_in_the_queue_with_its_code(queue: Queue) -> None:
    sweep = Sweep(queue, Path("project/script.py"), [], SweepOptions(grid=("lr=1,2,3",)), JobOptions(cpus=1))
    engine = Learned(queue.lab)
    worker = Worker(queue, engine, slots=1, group=sweep.name, clock=Clock())
    sweep.run(worker, shown=lambda one: worker.stop() if engine.order else None, pause=lambda seconds: None)
    states = [job.state for job in queue.table.jobs()]
    assert states.count("queued") >= 1 and "running" not in states
    Worker(queue, engine, clock=Clock()).work(drain=True, pause=lambda seconds: None)
    assert [job.state for job in queue.table.jobs()] == ["done"] * 3


def test_points_are_drawn_within_the_space_and_the_same_each_time(queue: Queue) -> None:
    asked = {"search": 20, "space": ("lr=0.0001:0.1", "width=8:64", "kind=a,b"), "sampler": "random"}
    sweep = Sweep(queue, Path("project/script.py"), [], SweepOptions(**asked))
    points = sweep.search.next_points(1)
    assert len(points) == 20 and points == Sweep(
        queue, Path("project/script.py"), [], SweepOptions(**asked)
    ).search.next_points(1)
    assert all(
        1e-4 <= p["lr"] <= 0.1 and isinstance(p["width"], int) and 8 <= p["width"] <= 64 for p in points
    )
    assert (
        sum(p["lr"] < 0.01 for p in points) > 5
    )  # by the logarithm: a tenth of the range holds two thirds of them
    axis = read_space(["x=-1:1"])["x"]
    assert not axis.log and -1 <= axis.draw(random.Random(0)) <= 1


SAYS = """
import luxmeter as lux
from typing import Literal
from pydantic import Field
class Own(lux.BaseParams):
    kind: Literal["a", "b"] = "a"
    depth: int = Field(3, ge=1, le=9)
    free: float = 1.0
p = Own()
p.arange("free", 1.0, 0.0)
p.inner = {"lr": 0.1}
p.arange("inner.lr", 0.1, 0.001, 1.0)
p.choice("size", 8, 16)
print("before")
p.from_args()
raise RuntimeError("not reached")
"""


def test_the_space_is_told_by_the_params_of_the_script(queue: Queue, tmp_path: Path) -> None:
    script = project(
        tmp_path / "says",
        script=SAYS.replace("class Own(lux.BaseParams)", "class Own(lux.BaseParams, takes_new_names=True)"),
    )
    space = told_by(script, [], queue.lab)
    assert set(space) == {"kind", "depth", "inner.lr", "size"}
    assert space["kind"].choices == ("a", "b") and space["size"].choices == (8, 16)
    assert (space["depth"].low, space["depth"].high, space["depth"].whole) == (1, 9, True)
    assert space["inner.lr"].log and not space["inner.lr"].whole
    with pytest.raises(UsageError, match="sweep-script-silent"):
        told_by(project(tmp_path / "silent", script="raise RuntimeError('early')"), [], queue.lab)


@pytest.mark.parametrize(
    ("options", "slug"),
    [
        ({}, "sweep-what"),
        ({"grid": ("lr=1",), "search": 2}, "sweep-what"),
        ({"grid": ("lr=1",), "prune": True}, "sweep-what"),
        ({"grid": ("lr",)}, "sweep-form"),
        ({"grid": ("=1",)}, "sweep-form"),
        ({"search": 2, "space": ("lr=1:0.1",)}, "sweep-space"),
        ({"search": 2, "space": ("lr=0:1:log",)}, "sweep-space"),
        ({"search": 2, "space": ("lr=a:b",)}, "sweep-space"),
        ({"search": 2, "space": ("lr=0:1",), "prune": True}, "sweep-no-metric"),
    ],
)
def test_what_cannot_be_swept(queue: Queue, options: Mapping[str, Any], slug: str) -> None:
    with pytest.raises(LuxmeterError, match=slug):
        Sweep(queue, Path("project/script.py"), [], SweepOptions(**options))
    assert read_grid(["lr=0.1,1e-3", "b=[1, 2],x"]) == {"lr": [0.1, 0.001], "b": [[1, 2], "x"]}


def test_without_optuna_one_line_says_what_to_do(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    options = SweepOptions(search=2, space=("lr=0:1",), sampler="optuna", metric="acc")
    with pytest.raises(LuxmeterError, match="no-optuna"):
        Sweep(queue, Path("project/script.py"), [], options)


def test_optuna_is_asked_as_there_is_room_and_told_what_came(queue: Queue) -> None:
    pytest.importorskip("optuna")
    engine = Learned(queue.lab)
    sweep = swept(queue, engine, search=6, space=("lr=0.0:1.0",), sampler="optuna", metric="acc")
    assert len(sweep.trials) == 6 and {trial.state for trial in sweep.trials} == {"done"}
    study = sweep.search._study  # type: ignore[attr-defined]
    assert study.best_value == pytest.approx(sweep.ranked[0].mean) and len(study.trials) == 6
    assert {job.code for job in queue.table.jobs()} == {queue.table.jobs()[0].code}


def test_trials_are_asked_for_to_the_end_though_looks_are_not_due(queue: Queue) -> None:
    pytest.importorskip("optuna")
    options = SweepOptions(search=5, space=("lr=0.0:1.0",), sampler="optuna", metric="acc")
    sweep = Sweep(queue, Path("project/script.py"), [], options, JobOptions(cpus=1, memory=0))
    worker = Worker(queue, Learned(queue.lab), slots=2, group=sweep.name, clock=Clock(0.01))
    sweep.run(worker, shown=lambda one: None, pause=lambda seconds: None)
    assert [trial.state for trial in sweep.trials] == ["done"] * 5


def test_a_hopeless_trial_is_pruned_by_what_it_logs(queue: Queue) -> None:
    optuna = pytest.importorskip("optuna")
    points = iter([0.1, 0.1, 0.1, 0.1, 0.9])

    options = SweepOptions(search=5, space=("lr=0.0:1.0",), prune=True, metric="acc")
    sweep = Sweep(queue, Path("project/script.py"), [], options, JobOptions(cpus=1, memory=0))
    sweep.search._suggested = lambda trial, axis: next(points)  # type: ignore[attr-defined]
    worker = Worker(
        queue, engine := Learned(queue.lab, goes_on_above=0.5), slots=1, group=sweep.name, clock=Clock()
    )
    sweep.run(worker, shown=lambda one: None, pause=lambda seconds: None)
    assert queue.find(5).state == "cancelled" and queue.find(5).why == "pruned at step 2"
    assert "kill" in engine.started[5].asked or "ask" in engine.started[5].asked
    assert sweep.search._study.trials[4].state == optuna.trial.TrialState.PRUNED  # type: ignore[attr-defined]


SCRIPT = """
import luxmeter as lux
p = lux.Params()
p.arange("lr", 0.1, 0.001, 1.0)
p.from_args()
with lux.Experiment("swept", p) as exp:
    exp.log({"acc": 1 - p.lr}, step=1)
"""


def test_the_command_runs_a_sweep_and_runs_shows_its_best(command: Command, tmp_path: Path) -> None:
    project(tmp_path / "project", script=SCRIPT)
    words = (
        "project/script.py",
        "--grid",
        "lr=0.5,0.25",
        "--metric",
        "acc",
        "--slots",
        "2",
        "--cpus",
        "1",
        "--mine",
        "7",
    )
    said = command("sweep", *words)
    assert said.code == 0, said
    assert [line.split()[:4] for line in said.out.splitlines()[:3]] == [
        ["trial", "lr", "state", "acc"], ["1", "0.25", "done", "0.75"], ["0", "0.5", "done", "0.5"]
    ]  # fmt: skip
    best = "sweep-1: 2 of 2 trials done; best (max acc): lr=0.25, 0.75"
    assert said.out.splitlines()[-1] == best
    assert command("runs", "--tag", "sweep-1", "--group").out.splitlines()[-1] == best
    job = json.loads(command("queue", "list", "--group", "sweep-1", "--json").out)[1]
    assert job["trial"]["point"] == {"lr": 0.25} and job["arguments"] == ["--mine", "7", "--lr=0.25"]
    assert "bad-sweep-option" in command("sweep", "--mode", "most", "--grid", "lr=1", "project/script.py").err


def test_trials_that_can_never_start_here_are_told(command: Command, tmp_path: Path) -> None:
    project(tmp_path / "project")
    said = command("sweep", "project/script.py", "--grid", "lr=1,2", "--cpus", "10000")
    lines = said.err.splitlines()
    assert said.code == 1 and len(lines) == 2, said
    assert lines[1].startswith("job 2 needs 10,000 CPUs, this machine has ")
    assert "2 jobs of sweep-1 wait: luxmeter queue work --group sweep-1" in said.out


def test_a_metric_that_no_run_has_is_told(queue: Queue) -> None:
    sweep = swept(queue, Learned(queue.lab), grid=("lr=0.5,0.1",), metric="accuracy")
    assert best_line("s", sweep.ranked, "accuracy", "max").startswith(
        "s: 2 of 2 trials done; no run has logged accuracy; "
    )
