"""A project's own git configuration starts no program when its code is captured, compared or laid out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from luxmeter.experiment.capture.git import git_text
from luxmeter.experiment.capture.snapshot import git_snapshot

COMMANDS = (
    "filter.planted.clean", "filter.planted.smudge", "filter.planted.process", "filter.In-Other.Case.clean",
    "diff.planted.textconv", "diff.planted.command", "diff.external", "core.fsmonitor", "core.pager", "core.sshCommand",
    "core.editor", "gpg.program", "core.alternateRefsCommand", "credential.helper", "remote.origin.uploadpack",
    "alias.status", "merge.planted.driver", "interactive.diffFilter",
)  # fmt: skip


def git(root: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository whose configuration names a program wherever one can be named; it would leave a file behind."""
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "-q")
    (root / "a.txt").write_text("one\n")
    (root / ".gitattributes").write_text(
        "a.* filter=planted diff=planted merge=planted\n*.py filter=In-Other.Case\n"
    )
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    for number, name in enumerate(COMMANDS):
        git(root, "config", name, f"touch {tmp_path}/ran-{number}; cat")
    git(root, "config", "filter.planted.required", "true")
    (root / ".git" / "more").write_text(
        f'[filter "included"]\n\tclean = touch {tmp_path}/ran-included; cat\n'
    )
    git(root, "config", "include.path", "more")
    (root / "a.txt").write_text("two\n")
    (root / "b.py").write_text("three\n")
    with (root / ".gitattributes").open("a") as file:
        file.write("b.* filter=included\nc.* filter=planted\n")
    (root / "c.txt").write_text("untracked\n")
    for hook in ("post-checkout", "pre-commit", "post-index-change", "reference-transaction"):
        file = root / ".git" / "hooks" / hook
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran-{hook}\n")
        file.chmod(0o755)
    return root


def test_a_snapshot_and_its_worktree_run_nothing(project: Path, tmp_path: Path) -> None:
    for path in tmp_path.glob("ran-*"):
        path.unlink()
    found = git_snapshot(project, "abcde-20260101-000000")
    assert found is not None and "error" not in found, found
    assert "+two" in found["diff"] and set(found["untracked"]) == {"b.py", "c.txt"}
    assert git_text(project, "show", f"{found['snapshot']}:c.txt") == "untracked"
    git_text(
        project,
        "worktree",
        "add",
        "--quiet",
        "--detach",
        "--force",
        str(tmp_path / "laid"),
        found["snapshot"],
    )
    assert (tmp_path / "laid" / "a.txt").read_text() == "two\n"
    assert [path.name for path in tmp_path.glob("ran-*")] == []


def test_a_missing_object_is_fetched_from_nowhere(project: Path, tmp_path: Path) -> None:
    git(project, "config", "extensions.partialClone", "origin")
    git(project, "config", "remote.origin.promisor", "true")
    git(project, "config", "remote.origin.url", f"ext::sh -c touch% {tmp_path}/ran-fetch")
    git(project, "config", "protocol.ext.allow", "always")
    name = git(project, "rev-parse", "HEAD:a.txt").strip()
    (project / ".git" / "objects" / name[:2] / name[2:]).unlink()
    for path in tmp_path.glob("ran-*"):
        path.unlink()
    git_snapshot(project, "abcde-20260101-000000")
    assert [path.name for path in tmp_path.glob("ran-*")] == []


def test_a_filter_of_the_users_own_works_on(project: Path, tmp_path: Path) -> None:
    """As git-lfs does, which is set up for the user."""
    git(project, "config", "--global", "filter.mine.clean", "tr a-z A-Z")
    (project / ".gitattributes").write_text("c.* filter=mine\n")
    found = git_snapshot(project, "abcde-20260101-000000")
    assert found is not None and git_text(project, "show", f"{found['snapshot']}:c.txt") == "UNTRACKED"
