"""ExperimentViewer as documented, and which run made a file, wherever it lies now."""

from __future__ import annotations

import pprint as pp
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from made_runs import make_run

import luxmeter as lux
from luxmeter.errors import UsageError
from luxmeter.store import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab.open(tmp_path / "work" / ".luxmeter")


def test_the_documents_snippet(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(lab, code={"train.py": "lr = 1\n"}, files={"first.ckpt": b"1", "first.log": b"2"})
    make_run(lab, code={"train.py": "lr = 2\n"}, files={"second.ckpt": b"3"})
    first, second = [row.id for row in lab.runs(sort="created")]
    # from thexp.frame import ExperimentViewer
    from luxmeter import ExperimentViewer  # isort: skip

    expview = ExperimentViewer()
    pp.pprint(expview.list())
    pp.pprint(expview.recent(timedeltaobj=timedelta(minutes=20)))
    pp.pprint(expview.backtracking("ckpt"))
    pp.pprint(expview.exp_code(first))  # An key of the list()
    pp.pprint(expview.exp_info(second))  # An key of the list()
    said = capsys.readouterr().out
    assert (
        said.count(f"'{first}': {{") == 2
        and "first.ckpt" in said
        and "first.log" not in said.split("'id':")[0]
    )
    assert list(expview.list()) == [second, first]
    assert expview.exp_code(first) == {"train.py": "lr = 1\n"}
    assert expview.exp_info(second)["command"]["argv"] == ["train.py"]
    assert {k: [f["path"] for f in v] for k, v in expview.backtracking(".ckpt").items()} == {
        second: [str(Path.cwd() / "out" / "second.ckpt")],
        first: [str(Path.cwd() / "out" / "first.ckpt")],
    }


def test_recent(lab: Lab) -> None:
    make_run(lab)
    assert len(lux.ExperimentViewer().recent()) == 1
    assert lux.ExperimentViewer().recent(timedelta(seconds=-60)) == {}


def test_a_file_is_found_by_content_wherever_it_lies(lab: Lab, tmp_path: Path) -> None:
    made = make_run(lab, code={}, files={"model.ckpt": b"weights one"})
    other = make_run(lab, code={}, files={"model.ckpt": b"weights two"})
    kept = tmp_path / "usb" / "renamed.bin"
    kept.parent.mkdir()
    kept.write_bytes(b"weights one")
    viewer = lux.ExperimentViewer()
    assert list(viewer.backtracking(kept)) == list(viewer.backtracking(str(kept))) == [made.id]
    assert list(viewer.backtracking("out/model.ckpt")) == [
        other.id
    ]  # its path is the first's too; its content is not
    again = make_run(lab, code={}, files={"model.ckpt": b"weights one"})
    assert list(viewer.backtracking(kept)) == [again.id, made.id]  # both made it
    kept.write_bytes(b"changed since")
    assert viewer.backtracking(kept) == {}
    with pytest.raises(UsageError, match="file-to-trace-back"):
        viewer.backtracking("out/nothing.ckpt")
    with pytest.raises(UsageError, match="file-to-trace-back"):
        viewer.backtracking(tmp_path)


def test_a_file_inside_a_run_belongs_to_it(lab: Lab) -> None:
    with lab.create_run("x") as run:
        path = run.put_file("model.ckpt", b"inside")
    assert list(lux.ExperimentViewer().backtracking(path)) == [run.id]


def test_archived_runs_are_found_and_removed_ones_are_not(lab: Lab, tmp_path: Path) -> None:
    made = make_run(lab, code={}, files={"a.ckpt": b"a"})
    made.marks.set_archived()
    copy = tmp_path / "copy"
    shutil.copy("out/a.ckpt", copy)
    viewer = lux.ExperimentViewer()
    assert list(viewer.backtracking(copy)) == list(viewer.list()) == [made.id]
    lab.delete(made.id)
    assert viewer.backtracking(copy) == {} and viewer.list() == {}


def test_no_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    viewer = lux.ExperimentViewer()
    assert viewer.list() == {} and viewer.recent() == {} and viewer.backtracking("ckpt") == {}
