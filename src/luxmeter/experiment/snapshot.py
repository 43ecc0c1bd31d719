"""The code that ran, kept without touching the user's git state.

In a git repository a tree of the working files is made with an index of our own and kept under a ref of our own
(`refs/luxmeter/<run>`): HEAD, the index, branches and the working files stay byte-identical. Besides, with or
without git, the project's imported source files are kept as content-addressed blobs, so that a run's directory
holds the code that ran wherever it is copied.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST_UNTRACKED_BYTES = 1 << 20  # a larger file that git does not track is data, not code: named, not kept


@dataclass(frozen=True)
class Snapshot:
    """What was kept of the code. `files` is path (relative to `root`) -> SHA-256 of its content."""

    root: str
    files: dict[str, str] = field(default_factory=dict)
    git: dict[str, Any] | None = None

    def record(self) -> dict[str, Any]:
        """As it rests in the run."""
        return {"root": self.root, "files": self.files, "git": self.git}


def take(run_id: str, folder: Path, put_blob: Callable[[bytes], str]) -> Snapshot:
    """Keep the code of the project around `folder`: its git tree, and its imported files through `put_blob`."""
    root = repository_of(folder) or folder
    git = git_snapshot(root, run_id) if (root / ".git").exists() else None
    return Snapshot(str(root), keep_files(imported_files(root), root, put_blob), git)


def imported_files(root: Path) -> list[Path]:
    """The source files below `root` that are imported now, the main script among them; installed packages left out."""
    installed = [Path(sysconfig.get_paths()[name]) for name in ("stdlib", "purelib", "platlib")]
    found = set()
    for module in list(sys.modules.values()):
        name = getattr(module, "__file__", None)
        if not isinstance(name, str) or not name.endswith((".py", ".ipynb")):
            continue
        path = Path(name).absolute()
        if (
            path.is_relative_to(root)
            and not any(path.is_relative_to(place) for place in installed)
            and path.is_file()
        ):
            found.add(path)
    return sorted(found)


def keep_files(files: Iterable[Path], root: Path, put_blob: Callable[[bytes], str]) -> dict[str, str]:
    """Keep each file's content; path relative to `root` -> its name in the blobs."""
    kept = {}
    for path in files:
        try:
            kept[path.relative_to(root).as_posix()] = put_blob(path.read_bytes())
        except OSError:
            continue  # it vanished meanwhile
    return kept


def repository_of(folder: Path) -> Path | None:
    """The top of the git working tree that `folder` is in; None outside of one, or where there is no git."""
    for place in (folder.absolute(), *folder.absolute().parents):
        if (place / ".git").exists():
            return place if shutil.which("git") else None
    return None


def git_snapshot(root: Path, run_id: str) -> dict[str, Any] | None:
    """Make a commit of the working files under `refs/luxmeter/<run_id>` and say what it holds.

    None if git refuses (a damaged repository, one that another user owns): a run is kept all the same.
    """
    try:
        return _git_snapshot(root, run_id)
    except subprocess.CalledProcessError as error:
        return {"error": error.stderr.strip() or f"git exited with {error.returncode}"}


def _git_snapshot(root: Path, run_id: str) -> dict[str, Any]:
    head = _git(root, "rev-parse", "--verify", "--quiet", "HEAD", check=False) or None
    branch = _git(root, "symbolic-ref", "--quiet", "--short", "HEAD", check=False) or None
    with tempfile.TemporaryDirectory(prefix="luxmeter-") as place:
        index = Path(place) / "index"
        ours = {"GIT_INDEX_FILE": str(index)}
        real = root / _git(root, "rev-parse", "--git-path", "index")
        if real.is_file():
            # With the stamps of the user's index git reads again only what has changed.
            shutil.copy2(real, index)
        _git(root, "add", "--update", "--", ".", env=ours)
        untracked = [
            name
            for name in _git(root, "ls-files", "-z", "--others", "--exclude-standard", env=ours).split("\0")
            if name
        ]
        small, left_out = _small_enough(root, untracked)
        if small:
            _git(
                root,
                "add",
                "--pathspec-from-file=-",
                "--pathspec-file-nul",
                "--",
                env=ours,
                given="\0".join(small),
            )
        tree = _git(root, "write-tree", env=ours)
    clean = head is not None and tree == _git(root, "rev-parse", f"{head}^{{tree}}")
    who = {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER") for part, value in _WHO.items()}
    parents = ["-p", head] if head else []
    commit = _git(root, "commit-tree", tree, *parents, "-m", f"luxmeter run {run_id}", env=who)
    ref = f"refs/luxmeter/{run_id}"
    _git(root, "update-ref", "--no-deref", ref, commit)
    return {
        "commit": head,
        "branch": branch,
        "dirty": not clean,
        "snapshot": commit,
        "tree": tree,
        "ref": ref,
        "untracked": small,
        "left_out": left_out,
        "diff": ""
        if clean or head is None
        else _git(root, "diff", "--no-color", "--no-ext-diff", head, tree),
    }


_WHO = {"NAME": "luxmeter", "EMAIL": "luxmeter@localhost"}


def _small_enough(root: Path, names: list[str]) -> tuple[list[str], list[str]]:
    small: list[str] = []
    left_out: list[str] = []
    for name in names:
        path = root / name
        regular = path.is_file() and not path.is_symlink()
        (small if regular and path.stat().st_size <= MOST_UNTRACKED_BYTES else left_out).append(name)
    return small, left_out


def _git(
    root: Path, *words: str, env: dict[str, str] | None = None, given: str | None = None, check: bool = True
) -> str:
    """Run one git command. Its own configuration decides nothing here: no hooks, no pager, no lock on the user's index."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
        **(env or {}),
    }
    command = [
        "git",
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "core.fsmonitor=false",
        "-c",
        "commit.gpgSign=false",
        *words,
    ]
    done = subprocess.run(
        command,
        cwd=root,
        env=environment,
        input=given,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        check=False,
    )
    if check and done.returncode != 0:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    return done.stdout.rstrip("\n") if done.returncode == 0 else ""
