"""Rollback: code and checkpoints come back, and nothing that is saved nowhere is ever lost."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from made_runs import make_run

import luxmeter as lux
from luxmeter.errors import StoreError, UsageError
from luxmeter.experiment.capture import snapshot
from luxmeter.experiment.reproduce import rollback
from luxmeter.experiment.reproduce.rollback import roll_back
from luxmeter.store import Lab, Run


def git(*words: str) -> str:
    who = ["-c", "user.name=T", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]
    return subprocess.run(["git", *who, *words], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab.open(tmp_path / "lab")


def state_of(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and ".git/" not in p.as_posix()
    }


def test_into_a_new_folder(lab: Lab, tmp_path: Path) -> None:
    run = make_run(lab, code={"train.py": "a\n", "pkg/m.py": "b\n"}, files={"x/best.ckpt": b"w"})
    done = roll_back(run, tmp_path / "back" / "there")
    assert state_of(done.folder) == {"train.py": b"a\n", "pkg/m.py": b"b\n", "out/x/best.ckpt": b"w"}
    assert (
        done.written == ["out/x/best.ckpt", "pkg/m.py", "train.py"] and not done.equal and not done.replaced
    )
    assert sorted(p.name for p in (tmp_path / "back").iterdir()) == ["there"]  # nothing staged is left
    again = roll_back(run, done.folder)
    assert again.written == [] and len(again.equal) == 3


def test_unsaved_changes_are_refused_with_their_list_and_nothing_is_written(lab: Lab) -> None:
    run = make_run(lab, code={"train.py": "a\n", "other.py": "b\n", "new.py": "c\n"})
    Path("train.py").write_text("precious\n")
    Path("other.py").write_text("precious too\n")
    before = state_of(Path.cwd())
    with pytest.raises(StoreError, match="unsaved-changes") as error:
        roll_back(run)
    assert "other.py, train.py" in str(error.value) and "2 files" in str(error.value)
    assert state_of(Path.cwd()) == before
    assert not [p for p in Path.cwd().iterdir() if p.name.startswith(".luxmeter-rollback")]


def test_content_that_a_run_keeps_may_be_replaced(lab: Lab) -> None:
    first = make_run(lab, code={"train.py": "first\n"})
    second = make_run(lab, code={"train.py": "second\n"})
    Path("train.py").write_text("second\n")
    done = roll_back(first)
    assert Path("train.py").read_text() == "first\n" and done.replaced == {"train.py": "a run of this lab"}
    roll_back(second)
    assert Path("train.py").read_text() == "second\n"
    lab.delete(first.id)
    lab.gc(older_than_s=0)
    Path("train.py").write_text("first\n")  # nobody keeps it any more
    with pytest.raises(StoreError, match="unsaved-changes"):
        roll_back(second)


def in_git(lab: Lab) -> Run:
    """A repository with a run of uncommitted code."""
    git("init", "-q")
    Path("train.py").write_text("committed\n")
    Path("config.yaml").write_text("lr: 1\n")
    Path("run.sh").write_text("#!/bin/sh\n")
    Path("run.sh").chmod(0o755)
    Path("same.link").symlink_to("train.py")
    git("add", ".")
    git("commit", "-qm", "first")
    Path("train.py").write_text("ran\n")
    Path("config.yaml").write_text("lr: 2\n")
    taken = snapshot.git_snapshot(Path.cwd(), "run-1")
    return make_run(lab, code={"train.py": "ran\n"}, git=taken)


def test_committed_files_may_be_replaced_staged_ones_not(lab: Lab) -> None:
    run = in_git(lab)
    git("checkout", "-q", "--", ".")
    head, branch = git("rev-parse", "HEAD"), git("symbolic-ref", "HEAD")
    done = roll_back(run)
    assert Path("train.py").read_text() == "ran\n" and Path("config.yaml").read_text() == "lr: 2\n"
    assert done.replaced == {"train.py": "the commit HEAD", "config.yaml": "the commit HEAD"}
    assert (git("rev-parse", "HEAD"), git("symbolic-ref", "HEAD")) == (head, branch)
    git("checkout", "-q", "--", ".")
    Path("config.yaml").write_text("lr: 3\n")
    git("add", "config.yaml")  # staged is not committed
    with pytest.raises(StoreError, match=r"config\.yaml"):
        roll_back(run)
    assert Path("train.py").read_text() == "committed\n"


def test_a_snapshot_of_another_run_counts_as_saved(lab: Lab) -> None:
    run = in_git(lab)
    Path("config.yaml").write_text("lr: 9\n")  # never imported, so in no blob: only in the snapshot's tree
    snapshot.git_snapshot(Path.cwd(), "run-2")
    done = roll_back(run)
    assert done.replaced == {"config.yaml": "run run-2"} and Path("config.yaml").read_text() == "lr: 2\n"


def test_modes_and_links_come_back(lab: Lab, tmp_path: Path) -> None:
    folder = roll_back(in_git(lab), tmp_path / "back").folder
    assert os.access(folder / "run.sh", os.X_OK) and not os.access(folder / "config.yaml", os.X_OK)
    assert (folder / "same.link").is_symlink() and (folder / "same.link").read_text() == "ran\n"


def test_a_link_out_of_the_folder_is_not_made(lab: Lab, tmp_path: Path) -> None:
    git("init", "-q")
    Path("train.py").write_text("x\n")
    Path("evil").symlink_to("../../../etc/passwd")
    git("add", ".")
    run = make_run(lab, code={"train.py": "x\n"}, git=snapshot.git_snapshot(Path.cwd(), "run-1"))
    with pytest.raises(StoreError, match="link-outside"):
        roll_back(run, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_without_the_repository_the_blobs_suffice(lab: Lab, tmp_path: Path) -> None:
    import shutil

    run = in_git(lab)
    shutil.rmtree(".git")
    assert state_of(roll_back(run, tmp_path / "back").folder) == {"train.py": b"ran\n"}


@pytest.mark.parametrize("name", ["../outside.py", "/tmp/outside.py", "a/../../outside.py", "a\\b.py"])
def test_names_that_point_outside_are_refused(lab: Lab, tmp_path: Path, name: str) -> None:
    run = make_run(lab, code={name: "x\n"})
    with pytest.raises(UsageError, match="name-outside"):
        roll_back(run, tmp_path / "back")
    assert not (tmp_path / "outside.py").exists()


def test_no_way_through_a_link_in_the_target(lab: Lab, tmp_path: Path) -> None:
    run = make_run(lab, code={"sub/train.py": "x\n"})
    outside = tmp_path / "outside"
    outside.mkdir()
    target = tmp_path / "target"
    target.mkdir()
    (target / "sub").symlink_to(outside)
    with pytest.raises(StoreError, match="unsaved-changes"):
        roll_back(run, target)
    assert list(outside.iterdir()) == []


def test_a_path_of_a_record_alone_is_not_followed(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(lab, code={"train.py": "x\n"}, root=tmp_path / "victim")
    with pytest.raises(UsageError, match="rollback-elsewhere"):
        roll_back(run)
    assert not (tmp_path / "victim" / "train.py").exists()


def test_trouble_half_way_undoes_everything(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    git("init", "-q")
    Path("a.py").write_text("old a\n")
    Path("b.py").write_text("old b\n")
    git("add", ".")
    git("commit", "-qm", "first")
    run = make_run(lab, code={"a.py": "new a\n", "b.py": "new b\n", "deep/er/c.py": "c\n"})
    before = state_of(Path.cwd())
    real = os.replace

    def failing(source: str | Path, target: str | Path) -> None:
        if Path(target).name == "c.py" and Path(source).parent.name == "er":
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(rollback.os, "replace", failing)
    with pytest.raises(OSError, match="No space"):
        roll_back(run)
    assert state_of(Path.cwd()) == before
    assert sorted(p.name for p in Path.cwd().iterdir()) == [".git", "a.py", "b.py"]


def test_a_change_in_the_last_moment_is_not_lost(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    git("init", "-q")
    Path("a.py").write_text("old a\n")
    git("add", ".")
    git("commit", "-qm", "first")
    run = make_run(lab, code={"a.py": "new a\n"})
    real = rollback._saved_where

    def slow(*args: object, **kwargs: object) -> dict[str, str]:
        found = real(*args, **kwargs)  # type: ignore[arg-type]
        Path("a.py").write_text("typed just now\n")
        return found

    monkeypatch.setattr(rollback, "_saved_where", slow)
    with pytest.raises(StoreError, match="changed-meanwhile"):
        roll_back(run)
    assert Path("a.py").read_text() == "typed just now\n"


def test_dry_run_writes_nothing(lab: Lab, tmp_path: Path) -> None:
    run = make_run(lab, code={"train.py": "a\n"})
    assert roll_back(run, tmp_path / "back", dry_run=True).written == ["train.py"]
    assert not (tmp_path / "back").exists()
    assert roll_back(run, dry_run=True).written == ["train.py"] and not Path("train.py").exists()


def test_checkpoints_that_were_not_kept_are_named(lab: Lab, tmp_path: Path) -> None:
    run = make_run(lab, code={"t.py": ""}, files={"big.ckpt": b"large"}, keep=False)
    assert (
        roll_back(run, tmp_path / "one").folder / "out/big.ckpt"
    ).read_bytes() == b"large"  # still where it was
    Path("out/big.ckpt").write_bytes(b"other")
    done = roll_back(run, tmp_path / "two")
    assert done.not_kept == ["out/big.ckpt"] and not (tmp_path / "two" / "out").exists()


def test_a_part_that_the_run_holds_itself_comes_back_under_its_name(tmp_path: Path) -> None:
    lab = Lab.open(".luxmeter")  # in the project, as luxmeter init makes it
    with lux.Experiment("a", quiet=True, system_s=0) as exp:
        (Path(exp.hold_exp_part("ckpt")) / "w.txt").write_text("weights")
    run = lab.find("a")
    assert exp.folder == run.folder
    assert state_of(roll_back(run, tmp_path / "back").folder) == {"ckpt/w.txt": b"weights"}


def test_a_damaged_checkpoint_is_not_brought_back(lab: Lab, tmp_path: Path) -> None:
    run = make_run(lab, code={"t.py": ""}, files={"a.ckpt": b"good"})
    blob = next(p for p in (run.folder / "blobs").glob("*/*") if p.read_bytes() == b"good")
    blob.write_bytes(b"evil")
    with pytest.raises(StoreError, match="blob-damaged"):
        roll_back(run, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_nothing_kept(lab: Lab, tmp_path: Path) -> None:
    with lab.create_run("bare") as run:
        pass
    with pytest.raises(StoreError, match="nothing-to-roll-back"):
        roll_back(Run(run.folder), tmp_path / "back")
    full = make_run(lab, code={"t.py": ""})
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="rollback-no-folder"):
        roll_back(full, tmp_path / "file")
