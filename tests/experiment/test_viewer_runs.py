"""lux.runs(): filters, runs whose parts are read when asked for, and tables of them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from made_runs import make_run

import luxmeter as lux
from luxmeter.errors import StoreError, UsageError
from luxmeter.experiment.query.conditions import C
from luxmeter.experiment.query.runs import Runs, find_run, open_lab
from luxmeter.store import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    made = Lab.open(tmp_path / "work" / ".luxmeter")
    for i in range(4):
        make_run(
            made,
            "mnist" if i < 3 else "cifar",
            params={"lr": 10.0**-i, "optim": {"name": "adam", "betas": (0.9, 0.99)}},
            metrics={"loss": [3.0, 2.0, 1.0 + i], "acc": [0.1 * i]},
            tags=["best"] if i == 1 else [],
            state="failed" if i == 2 else "finished",
            error="Traceback: no memory" if i == 2 else "",
        )
    return made


def lrs(found: Runs) -> list[float]:
    return [run.params.lr for run in found]


def test_newest_first_and_list_like(lab: Lab) -> None:
    found = lux.runs()
    assert len(found) == 4 and lrs(found) == [0.001, 0.01, 0.1, 1.0]
    assert found[0].id == lab.runs()[0].id and found[-1].params.lr == 1.0
    assert lrs(found[1:3]) == [0.01, 0.1] and len(found[1:3]) == 2
    assert found[0] in found and found[0] == next(iter(found))
    with pytest.raises(IndexError):
        found[4]
    assert "4 runs of" in repr(found) and "mnist" in repr(found)


def test_filters(lab: Lab) -> None:
    assert lrs(lux.runs("param.lr > 0.05 and metric.loss < 2")) == [1.0]
    assert lrs(lux.runs(name="cifar")) == [0.001]
    assert lrs(lux.runs(name="mn*")) == [0.01, 0.1, 1.0]
    assert lrs(lux.runs(tags="best")) == lrs(lux.runs(tags=["best"])) == [0.1]
    assert lrs(lux.runs(state="failed")) == [0.01]
    assert lrs(lux.runs(state=["failed", "finished"], limit=2)) == [0.001, 0.01]
    assert lrs(lux.runs(lr=0.1)) == [0.1]
    assert lrs(lux.runs(**{"optim.name": "adam"}, sort="param.lr", limit=1)) == [0.001]  # type: ignore[arg-type]
    assert lrs(lux.runs(sort="-metric.acc")) == [0.001, 0.01, 0.1, 1.0]
    assert (
        len(lux.runs(lab=lab.folder)) == len(lux.runs(lab=lab)) == len(lux.runs(lab=lab.folder.parent)) == 4
    )
    with pytest.raises(UsageError, match="'failed'"):
        lux.runs(state="faild")
    with pytest.raises(UsageError, match="query-syntax"):
        lux.runs("param.lr >")
    with pytest.raises(StoreError, match="no-lab"):
        lux.runs(lab=lab.folder / "nowhere")


def test_questions_in_python(lab: Lab) -> None:
    assert lrs(lux.runs(C.param.lr > 0.05)) == [0.1, 1.0]
    assert lrs(lux.runs((C.param["lr"] > 0.05) & ~(C.tag == "best"))) == [1.0]
    assert lrs(lux.runs((C.name == "cifar") | (C.metric.loss.min <= 1.0))) == [0.001, 1.0]
    assert lrs(lux.runs(C.param.optim.name == "adam", name="cifar")) == [0.001]
    assert lrs(lux.runs(C.name.like("c*"))) == [0.001]
    assert len(lux.runs(C.created > datetime.now() - timedelta(hours=1))) == 4
    assert len(lux.runs(C.created > datetime.now() + timedelta(hours=1))) == 0
    assert lrs(lux.runs(C.status == "failed")) == [0.01]
    with pytest.raises(UsageError, match="question-joined-by-and"):
        lux.runs((C.param.lr > 0.05) and (C.param.lr < 1))
    with pytest.raises(UsageError, match="question-not-a-number"):
        C.metric.loss > "high"
    with pytest.raises(UsageError, match="query-field"):
        C.parm.lr


def test_a_run_and_its_parts(lab: Lab) -> None:
    made = make_run(
        lab, params={"lr": 0.5, "deep": {"er": {"x": 1}}}, metrics={"loss": [3.0, 2.0, float("nan")]},
        code={"train.py": "print(1)\n", "pkg/model.py": "x = 1\n"}, files={"a.ckpt": b"weights"}, output="hello\n",
        tags=["t"], state="failed", error="Traceback\nValueError: no",
    )  # fmt: skip
    run = lux.runs(limit=1)[0]
    assert (run.id, run.name, run.state) == (made.id, "mnist", "failed")
    assert run.params == {"lr": 0.5, "deep": {"er": {"x": 1}}}
    assert run.params.deep.er.x == run.params["deep.er.x"] == run.params["deep"]["er"]["x"] == 1
    with pytest.raises(AttributeError, match="'deep'"):
        run.params.depe
    with pytest.raises(KeyError):
        run.params["nothing.here"]
    assert run.tags == ["t"] and run.note == "" and run.error.endswith("no")
    assert run.duration is not None and run.duration >= 0
    assert abs((datetime.now().astimezone() - run.created).total_seconds()) < 600
    assert run.environment["packages"]["torch"] == "2.13.0"
    assert run.metrics["loss"]["n"] == 3
    points = run.metric("loss")
    assert points.steps.tolist() == [0, 1, 2] and points.values[:2].tolist() == [3.0, 2.0]
    assert (points[0].step, points[0].value) == (0, 3.0) and points[0].time_ns > 0 and points[-1].step == 2
    assert [p.step for p in points] == [0, 1, 2] == [p.step for p in points[:]] and len(points[1:]) == 2
    assert points.to_arrow().column_names == ["step", "value", "time_ns"]
    assert list(points.to_pandas()["step"]) == [0, 1, 2]
    with pytest.raises(StoreError, match="'loss'"):
        run.metric("los")
    assert run.files == ["out/a.ckpt"] and run.read_file("out/a.ckpt") == b"weights"
    with pytest.raises(StoreError, match=r"'out/a\.ckpt'"):
        run.read_file("out/a.ckp")
    assert run.log_text == "hello\n"
    assert run.code == {"train.py": "print(1)\n", "pkg/model.py": "x = 1\n"}
    assert run.folder == made.folder and run.command is not None and run.command.argv == ("train.py",)


def test_marks_of_a_run(lab: Lab) -> None:
    run = find_run("best")
    run.tag("paper")
    run.untag("best")
    run.set_note("see table 3")
    assert (run.tags, run.note) == (["paper"], "see table 3")
    assert lux.runs(tags="paper")[0] == run
    run.archive()
    assert len(lux.runs()) == 3 and len(lux.runs(archived=True)) == 1 and len(lux.runs(archived=None)) == 4


def test_a_file_that_was_too_large_is_known_by_hash(lab: Lab) -> None:
    make_run(lab, code={}, files={"big.ckpt": b"x" * 100}, keep=False)
    with pytest.raises(StoreError, match="file-not-kept"):
        lux.runs(limit=1)[0].read_file("out/big.ckpt")


def test_tables(lab: Lab) -> None:
    params = lux.runs().params_frame()
    assert list(params.index) == [row.id for row in lab.runs()] and params.index.name == "run"
    assert list(params["lr"]) == [0.001, 0.01, 0.1, 1.0] and "optim.name" in params.columns
    assert list(params["state"]) == ["finished", "failed", "finished", "finished"]
    metrics = lux.runs(sort="created").metrics_frame()
    assert list(metrics["loss"]) == [1.0, 2.0, 3.0, 4.0]
    points = lux.runs(name="cifar").points_frame("loss", "nothing")
    assert list(points["value"]) == [3.0, 2.0, 4.0] and set(points["key"]) == {"loss"}
    assert lux.runs(name="none").params_frame().empty and lux.runs(name="none").points_frame("loss").empty


def test_nothing_kept_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tmp_path / "elsewhere"
    empty.mkdir()
    monkeypatch.chdir(empty)
    assert len(lux.runs()) == 0 and list(lux.runs("param.lr > 1")) == []
    assert not (tmp_path / "home" / ".luxmeter").exists()  # looking makes no lab
    with pytest.raises(StoreError, match="no-runs-yet"):
        find_run("latest")


def test_a_run_named_by_its_folder_needs_no_lab(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = lab.find("best").folder
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert find_run(folder).params.lr == 0.1


def test_a_lab_made_anew_is_seen(lab: Lab) -> None:
    import shutil

    assert open_lab() is open_lab()
    shutil.rmtree(lab.folder)
    fresh = Lab.open(lab.folder)
    make_run(fresh, params={"lr": 7.0})
    assert lrs(lux.runs()) == [7.0]


def test_running_then_ended(lab: Lab) -> None:
    writer = lab.create_run("live")
    run = lux.runs(name="live")[0]
    assert run.state == "running" and run.duration is None
    writer.finish()
    assert run.state == "finished" and run.duration is not None  # asked again, it is looked at again


def test_ten_thousand_are_not_read_one_by_one(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lux.runs()
    opened: list[str] = []
    real = Path.read_text

    def counted(self: Path, *args: object, **kwargs: object) -> str:
        opened.append(self.name)
        return real(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "read_text", counted)
    assert [(run.id, run.name) for run in lux.runs()] and lux.runs().params_frame().shape[0] == 4
    assert not {"run.json", "params.json", "summary.json"} & set(opened)


def test_the_page_is_true(lab: Lab) -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "finding-runs.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    make_run(lab, "tiny", params={"lr": 0.2, "seed": 0}, metrics={"loss": [2.0, 1.0]}, code={"train.py": ""})
    seen: dict[str, Any] = {}
    exec(snippet, seen)
    assert [run.name for run in seen["found"]] == ["tiny"]
