"""Files that come, change and go in watched folders, by content; and the code that ran."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import luxmeter as lux
from luxmeter.experiment.capture.watch_files import FileWatch, to_batch
from luxmeter.experiment.options import ExperimentOptions
from luxmeter.store import Lab, records


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Blobs(dict[str, bytes]):
    """Where kept content goes in these tests."""

    def put(self, body: bytes | Path) -> str:
        data = body if isinstance(body, bytes) else body.read_bytes()
        name = hashlib.sha256(data).hexdigest()
        self[name] = data
        return name


def write(path: str, text: str, stamp: int) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)
    os.utime(path, (stamp, stamp))


def test_created_changed_removed(tmp_path: Path) -> None:
    write("out/old.txt", "old", 1)
    write("out/gone.txt", "gone", 1)
    blobs = Blobs()
    watch = FileWatch(tmp_path / "run", blobs.put, ExperimentOptions(keep_file_bytes=10))
    watch.add(Path("out").absolute(), "out")
    assert watch.scan() == []
    write("out/new.txt", "new", 2)
    write("out/deep/large.bin", "x" * 11, 2)
    write("out/.hidden", "no", 2)
    write("out/old.txt", "changed", 2)
    Path("out/gone.txt").unlink()
    assert [(c.path, c.event) for c in watch.scan()] == [("gone.txt", "removed")]  # the others may still grow
    changes = {change.path: change for change in watch.scan()}
    assert {(c.path, c.event, c.sha256, c.size_bytes, c.kept) for c in changes.values()} == {
        ("new.txt", "created", sha("new"), 3, True),
        ("deep/large.bin", "created", sha("x" * 11), 11, False),
        ("old.txt", "changed", sha("changed"), 7, True),
    }
    assert blobs == {sha("new"): b"new", sha("changed"): b"changed"}
    assert watch.scan() == [] == watch.scan(final=True)
    os.utime("out/new.txt", (5, 5))  # touched, not changed
    write("out/last.txt", "last", 6)
    assert [(c.path, c.event) for c in watch.scan(final=True)] == [("last.txt", "created")]
    rows = to_batch(list(changes.values())).to_pylist()
    assert [records.FileChange(**row) for row in rows] == list(changes.values())


def test_limits_and_suffixes(tmp_path: Path) -> None:
    blobs = Blobs()
    watch = FileWatch(tmp_path / "run", blobs.put, ExperimentOptions(keep_file_bytes=10, keep_total_bytes=5))
    watch.add(Path("a").absolute(), "a", [".ckpt"])
    watch.add(Path("b").absolute(), "b", [".pth"])
    for name in ("a/1.ckpt", "a/2.pth", "a/3.txt", "b/4.ckpt"):
        write(name, f"{name[2]}xx", 1)
    changes = watch.scan(final=True)
    assert sorted(c.path for c in changes) == ["1.ckpt", "2.pth", "4.ckpt"]  # a suffix holds for all parts
    assert sum(c.kept for c in changes) == 1  # then the sum of 5 bytes is used up


def test_a_run_with_watched_folders() -> None:
    write("out/old.txt", "old", 1)
    with lux.Experiment("files", watch=["out", "later"], quiet=True, code=False) as exp:
        write("out/old.txt", "changed", 2)
        write("later/new.txt", "new", 2)
    found = {change.path: change for change in exp.run.changed_files}
    assert {(c.part, c.path, c.event, c.kept) for c in found.values()} == {
        ("out", "old.txt", "changed", True),
        ("later", "new.txt", "created", True),
    }
    assert exp.run.blob(found["new.txt"].sha256) == b"new"
    assert set(exp.run.final_files) == {(str(Path(c.folder)), c.path) for c in found.values()}


def git(*words: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *who, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("repository", [False, True])
def test_the_code_that_ran(repository: bool) -> None:
    Path("train.py").write_text(
        "import luxmeter as lux\nwith lux.Experiment('code', quiet=True) as exp:\n    import late\n"
    )
    Path("late.py").write_text("value = 1\n")
    Path("not_imported.py").write_text("value = 2\n")
    if repository:
        git("init", "-q")
        git("add", "train.py", "late.py")
        git("commit", "-qm", "first")
        Path("late.py").write_text("value = 3\n")
    subprocess.run([sys.executable, "train.py"], check=True, timeout=120)
    run = Lab.open().find("code")
    code = run.snapshot
    assert code is not None and code.root == str(Path.cwd())
    assert {name: run.blob(name_sha).decode() for name, name_sha in code.files.items()} == {
        "train.py": Path("train.py").read_text(),
        "late.py": Path("late.py").read_text(),
    }
    command = run.command
    assert command is not None and (command.script, command.module) == ("train.py", None)
    if not repository:
        assert code.git is None
        return
    assert code.git is not None and code.git["dirty"] and code.git["commit"] == git("rev-parse", "HEAD")
    assert "+value = 3" in code.git["diff"] and code.git["branch"] == "main"
    assert git("show", f"{code.git['ref']}:not_imported.py") == "value = 2"
    status = [line for line in git("status", "--porcelain").splitlines() if "__pycache__" not in line]
    assert status == ["M late.py", "?? not_imported.py"]
    assert git("for-each-ref", "refs/heads", "--format=%(objectname)") == git("rev-parse", "HEAD")
