"""The code that ran, kept without touching the user's git state.

In a git repository a tree of the working files is made with an index of our own and kept under a ref of our own
(`refs/luxmeter/<run>`): HEAD, the index, branches and the working files stay byte-identical. Besides, with or
without git, the project's imported source files are kept as content-addressed blobs, so that a run's directory
holds the code that ran wherever it is copied.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from luxmeter import scratch
from luxmeter.errors import LuxmeterError, StoreError
from luxmeter.experiment.capture.git import git_agrees, git_text
from luxmeter.experiment.capture.secrets import holds_token, is_secret_file
from luxmeter.store import Run, is_own

if TYPE_CHECKING:
    from luxmeter.experiment.reproduce.handover import LaidOut

MOST_UNTRACKED_BYTES = (
    1 << 20
)  # a larger file that git does not track, or a binary one, is data, not code: named, not kept

MOST_UNTRACKED_FILES = 2000
_SOURCE = (
    ".py", ".pyi", ".ipynb", ".sh", ".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".pyx", ".rs",
    ".yaml", ".yml", ".toml", ".cfg", ".ini", ".json",
)  # fmt: skip
_OURS = re.compile(
    r"(^|/)(\.luxmeter|luxmeter-runs|__pycache__)/"
)  # labs, records and what Python makes: no code


# Asked for here: sysconfig fills its table at the first question, and that must not come from two threads at once.
_INSTALLED = tuple(os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "purelib", "platlib"))  # noqa: PTH118


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


def of_laid_out(run_id: str, laid: LaidOut, put_blob: Callable[[bytes], str]) -> Snapshot:
    """As `take`, of code that was kept earlier and laid out for this program: the project and the commit are those of then."""
    git, root = dict(laid.git) if laid.git else None, Path(laid.root)
    if git and git.get("snapshot"):
        git["ref"] = f"refs/luxmeter/{run_id}"
        if (root / ".git").exists():
            git_agrees(root, "update-ref", "--no-deref", git["ref"], git["snapshot"])
    return Snapshot(laid.root, keep_files(imported_files(laid.folder), laid.folder, put_blob), git)


def imported_files(root: Path, *, known: Collection[str] = ()) -> list[Path]:
    """The source files below `root` that are imported now, the main script among them; installed packages left out.

    Modules whose names are `known` are passed over.
    """
    top = os.path.join(root, "")  # noqa: PTH118  (thousands of modules: texts are compared, not paths)
    found = set()
    # A copy is made at once; a list of the items is not, and other threads import meanwhile.
    for module in [module for name, module in sys.modules.copy().items() if name not in known]:
        name = getattr(module, "__file__", None)
        if not isinstance(name, str) or not name.endswith((".py", ".ipynb")):
            continue
        if not name.startswith("/"):
            name = str(Path(name).absolute())
        if name.startswith(top) and not name.startswith(_INSTALLED) and Path(name).is_file():
            found.add(Path(name))
    return sorted(found)


def keep_files(files: Iterable[Path], root: Path, put_blob: Callable[[bytes], str]) -> dict[str, str]:
    """Keep each file's content; path relative to `root` -> its name in the blobs."""
    kept = {}
    for path in files:
        try:
            content = path.read_bytes()
            if not holds_token(content):
                kept[path.relative_to(root).as_posix()] = put_blob(content)
        except (OSError, ValueError):
            continue  # it vanished meanwhile, or lies elsewhere
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
    except StoreError as error:
        return {"error": error.what}


def _git_snapshot(root: Path, run_id: str) -> dict[str, Any]:
    # Few commands: each costs some milliseconds, and the first looks at every file already.
    seen = _read_status(git_text(root, *_STATUS))
    secret = [
        name
        for name in seen.untracked
        if may_be_code(root / name, secrets=True) and is_secret_file(root / name)
    ]
    small, left_out = _small_enough(root, [name for name in seen.untracked if name not in set(secret)])
    real, head_tree = _index_and_tree(root, seen.head)
    tree = (
        _tree_of(root, real, [*seen.changed, *small]) if seen.changed or small or not head_tree else head_tree
    )
    clean = seen.head is not None and tree == head_tree
    ref = f"refs/luxmeter/{run_id}"
    if clean and seen.head is not None:
        commit = seen.head
    else:
        who = {
            f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER") for part, value in _WHO.items()
        }
        parents = ["-p", seen.head] if seen.head else []
        commit = git_text(root, "commit-tree", tree, *parents, "-m", f"luxmeter run {run_id}", env=who)
    git_text(root, "update-ref", "--no-deref", ref, commit)
    changed = not clean and seen.head is not None
    return {
        "commit": seen.head,
        "branch": seen.branch,
        "dirty": not clean,
        "snapshot": commit,
        "tree": tree,
        "ref": ref,
        "untracked": small,
        "left_out": [*secret, *left_out],
        "secrets": secret,
        "diff": git_text(root, "diff", "--no-color", "--no-ext-diff", "--no-textconv", seen.head or "", tree)
        if changed
        else "",
    }


_STATUS = (
    "-c", "status.submoduleSummary=false", "status", "--porcelain=v2", "--branch", "-z", "--no-renames",
    "--no-ahead-behind", "--untracked-files=all", "--ignore-submodules=dirty",
)  # fmt: skip


@dataclass(frozen=True)
class _Status:
    head: str | None
    branch: str | None
    changed: list[str]
    untracked: list[str]


def _read_status(text: str) -> _Status:
    """Out of `git status --porcelain=v2 --branch -z`: a record an entry, the path behind a fixed number of words."""
    facts: dict[str, str] = {}
    changed: list[str] = []
    untracked: list[str] = []
    for record in text.split("\0"):
        if record.startswith("# branch."):
            name, _, value = record[len("# branch.") :].partition(" ")
            facts[name] = value
        elif record.startswith("1 "):
            changed.append(record.split(" ", 8)[8])
        elif record.startswith("u "):  # a conflict that is not resolved
            changed.append(record.split(" ", 10)[10])
        elif record.startswith("? "):
            untracked.append(record[2:])
    head, branch = facts.get("oid", "(initial)"), facts.get("head", "(detached)")
    return _Status(
        None if head == "(initial)" else head, None if branch == "(detached)" else branch, changed, untracked
    )


def _index_and_tree(root: Path, head: str | None) -> tuple[Path, str]:
    """Where the user's index is, and the tree of the commit."""
    found = git_text(root, "rev-parse", "--git-path", "index", *([f"{head}^{{tree}}"] if head else []))
    lines = found.split("\n")
    return root / lines[0], lines[1] if head else ""


def _tree_of(root: Path, index: Path, paths: list[str]) -> str:
    """A tree of the working files: the user's index, copied, with the files that differ from it taken in."""
    with scratch.folder("index") as place:
        private = place / "index"
        ours = {"GIT_INDEX_FILE": str(private)}
        if index.is_file():
            shutil.copy2(index, private)
        if paths:
            git_text(
                root,
                "update-index",
                "--add",
                "--remove",
                "-z",
                "--stdin",
                env=ours,
                given="\0".join(paths) + "\0",
            )
        return git_text(root, "write-tree", env=ours)


_WHO = {"NAME": "luxmeter", "EMAIL": "luxmeter@localhost"}


def _small_enough(root: Path, names: list[str]) -> tuple[list[str], list[str]]:
    """Of the files that git does not track, those that may be code, and those left out. Where there are very many,
    most are data: then only what has the ending of a source file is code."""
    names = [name for name in names if not _OURS.search(name)]
    if len(names) > MOST_UNTRACKED_FILES:
        code = [name for name in names if name.endswith(_SOURCE)][:MOST_UNTRACKED_FILES]
        small, left_out = _small_enough(root, code)
        return small, [*left_out, f"... and {len(names) - len(code)} more files"]
    small = []
    left_out = []
    for name in names:
        (small if may_be_code(root / name) else left_out).append(name)
    return small, left_out


def may_be_code(path: Path, *, secrets: bool = False) -> bool:
    """Whether it is a file, no link, neither large nor binary, nor (but with `secrets`) one that holds secrets."""
    regular = path.is_file() and not path.is_symlink()
    fits = regular and path.stat().st_size <= MOST_UNTRACKED_BYTES and not _is_binary(path)
    return fits and (secrets or not is_secret_file(path))


def is_installed(place: str) -> bool:
    """Whether a path lies among Python's own modules or installed packages."""
    return place.startswith(_INSTALLED)


def _is_binary(path: Path) -> bool:
    """By git's own measure: a zero byte at the beginning. Such a file, untracked, is what a run made, not code."""
    try:
        with path.open("rb") as file:
            return b"\0" in file.read(8000)
    except OSError:
        return True


# -- the refs, forgotten when their runs are gone for good --------------------------------------------------------


def snapshot_refs(runs: Iterable[Run]) -> list[tuple[Path, str]]:
    """(repository, ref) of each run that has a snapshot. Only refs that are ours and that run's own, of runs made here."""
    found = []
    for run in runs:
        try:
            code = run.snapshot if is_own(run.identity, run.folder) else None
        except (LuxmeterError, KeyError, TypeError):
            continue  # damaged: then its ref stays
        ref = f"refs/luxmeter/{run.id}"
        if (
            code is not None
            and code.git
            and code.git.get("ref") == ref
            and (Path(code.root) / ".git").exists()
        ):
            found.append((Path(code.root), ref))
    return found


def forget_refs(refs: Iterable[tuple[Path, str]]) -> int:
    """Delete them; git's own gc frees what only they held. Returns how many there were."""
    return sum(
        git_agrees(root, "rev-parse", "--verify", "--quiet", ref)
        and git_agrees(root, "update-ref", "-d", ref)
        for root, ref in refs
    )
