"""A snapshot holds the code as it is and leaves the user's git state byte-identical."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from luxmeter.experiment.capture import snapshot


def git(place: Path, *words: str) -> str:
    env = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_OPTIONAL_LOCKS": "0",
    }
    who = [
        "-c",
        "user.name=T",
        "-c",
        "user.email=t@t",
        "-c",
        "protocol.file.allow=always",
        "-c",
        "init.defaultBranch=main",
    ]
    return subprocess.run(
        ["git", *who, *words], cwd=place, env=env, capture_output=True, text=True, check=True
    ).stdout.strip()


def plain(place: Path) -> Path:
    git(place, "init", "-q")
    (place / "train.py").write_text("lr = 1\n")
    (place / "pkg").mkdir()
    (place / "pkg" / "model.py").write_text("model = 1\n")
    (place / ".gitignore").write_text("ignored/\n")
    git(place, "add", ".")
    git(place, "commit", "-qm", "first")
    return place


def dirty(place: Path) -> None:
    (place / "train.py").write_text("lr = 2\n")
    (place / "new.py").write_text("new\n")
    (place / "pkg" / "model.py").unlink()
    (place / "ignored").mkdir()
    (place / "ignored" / "data.py").write_text("x\n")


def staged(place: Path) -> None:
    (place / "train.py").write_text("lr = 3\n")
    git(place, "add", "train.py")
    (place / "train.py").write_text("lr = 4\n")


def detached(place: Path) -> None:
    git(place, "checkout", "-q", "--detach")
    (place / "train.py").write_text("lr = 5\n")


def submodule(place: Path) -> None:
    inner = place.parent / "inner"
    inner.mkdir()
    plain(inner)
    git(place, "submodule", "add", "-q", str(inner), "inner")
    (place / "inner" / "train.py").write_text("changed in the submodule\n")


def conflict(place: Path) -> None:
    git(place, "checkout", "-q", "-b", "other")
    (place / "train.py").write_text("theirs\n")
    git(place, "commit", "-qam", "theirs")
    git(place, "checkout", "-q", "-")
    (place / "train.py").write_text("ours\n")
    git(place, "commit", "-qam", "ours")
    subprocess.run(["git", "merge", "-q", "other"], cwd=place, capture_output=True, check=False)


def state(place: Path) -> dict[str, str]:
    """Every byte of the working tree and of git's own files, objects and our refs aside."""
    seen = {}
    for path in sorted(place.rglob("*")):
        name = path.relative_to(place).as_posix()
        if path.is_file() and "/objects/" not in f"/{name}" and "refs/luxmeter" not in name:
            seen[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    seen["status"] = git(place, "status", "--porcelain=v2", "--branch")
    seen["branches"] = git(place, "for-each-ref", "refs/heads", "refs/tags", "refs/stash")
    return seen


@pytest.mark.parametrize("change", [lambda place: None, dirty, staged, detached, submodule, conflict])
def test_git_state_stays_byte_identical(tmp_path: Path, change: Callable[[Path], None]) -> None:
    place = tmp_path / "project"
    place.mkdir()
    plain(place)
    change(place)
    before = state(place)
    stamp = (place / ".git" / "index").stat().st_mtime_ns
    taken = snapshot.git_snapshot(place, "run1")
    assert taken is not None and "error" not in taken
    assert state(place) == before
    assert (place / ".git" / "index").stat().st_mtime_ns == stamp
    assert not list((place / ".git").glob("*.lock"))
    shown = git(place, "show", f"{taken['ref']}:train.py")
    assert shown == (place / "train.py").read_text().strip()


def test_what_is_in_it(tmp_path: Path) -> None:
    place = plain(tmp_path)
    head = git(place, "rev-parse", "HEAD")
    clean = snapshot.git_snapshot(place, "clean")
    assert clean is not None
    assert (clean["commit"], clean["dirty"], clean["diff"]) == (head, False, "")
    dirty(place)
    (place / "large.bin").write_bytes(b"x" * (snapshot.MOST_UNTRACKED_BYTES + 1))
    (place / "a name with 空格\n.py").write_text("odd\n")
    taken = snapshot.git_snapshot(place, "dirty")
    assert taken is not None
    assert taken["dirty"] and taken["branch"] == git(place, "symbolic-ref", "--short", "HEAD")
    names = git(
        place, "-c", "core.quotePath=false", "ls-tree", "-r", "-z", "--name-only", taken["ref"]
    ).split("\0")
    assert "new.py" in names and "a name with 空格\n.py" in names
    assert "pkg/model.py" not in names and "ignored/data.py" not in names and "large.bin" not in names
    assert taken["left_out"] == ["large.bin"]
    assert "-lr = 1" in taken["diff"] and "+lr = 2" in taken["diff"]


def test_labs_and_floods_of_data_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = plain(tmp_path)
    for name in (".luxmeter/runs/a/run.json", "exp/luxmeter-runs/a.json", "pkg/__pycache__/model.pyc"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("x")
    clean = snapshot.git_snapshot(place, "run1")
    assert clean is not None and not clean["dirty"] and clean["snapshot"] == clean["commit"]
    monkeypatch.setattr(snapshot, "MOST_UNTRACKED_FILES", 3)
    for number in range(5):
        (place / f"data{number}.csv").write_text("1,2\n")
    (place / "new.py").write_text("new\n")
    taken = snapshot.git_snapshot(place, "run2")
    assert taken is not None
    assert (taken["untracked"], taken["left_out"]) == (["new.py"], ["... and 5 more files"])


def test_repository_without_a_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "train.py").write_text("x\n")
    before = state(tmp_path)
    taken = snapshot.git_snapshot(tmp_path, "run1")
    assert taken is not None and taken["commit"] is None and taken["dirty"]
    assert git(tmp_path, "show", f"{taken['ref']}:train.py") == "x"
    assert state(tmp_path) == before


def test_hooks_of_the_user_are_not_run(tmp_path: Path) -> None:
    place = plain(tmp_path)
    for name in ("post-index-change", "reference-transaction", "pre-commit"):
        hook = place / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        hook.chmod(0o755)
    dirty(place)
    assert snapshot.git_snapshot(place, "run1") is not None
    assert not (tmp_path / "ran").exists()


def test_damaged_repository_is_told_and_stops_nothing(tmp_path: Path) -> None:
    place = plain(tmp_path)
    (place / ".git" / "HEAD").write_text("garbage")
    taken = snapshot.git_snapshot(place, "run1")
    assert taken is not None and "error" in taken


def test_imported_files_are_kept_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "snapshot_probe.py").write_text("value = 7\n")
    (tmp_path / "not_imported.py").write_text("value = 8\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import snapshot_probe  # type: ignore[import-not-found]

    assert snapshot_probe.value == 7
    blobs: dict[str, bytes] = {}

    def put(body: bytes) -> str:
        name = hashlib.sha256(body).hexdigest()
        blobs[name] = body
        return name

    taken = snapshot.take("run1", tmp_path, put)
    assert taken.git is None
    assert set(taken.files) == {"snapshot_probe.py"}
    assert blobs[taken.files["snapshot_probe.py"]] == b"value = 7\n"
