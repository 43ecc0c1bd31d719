"""The code of a run, read back: from its blobs, or, where the repository is still there, from the whole git tree."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from luxmeter.errors import StoreError, suggestion
from luxmeter.experiment.capture.git import git_agrees, git_bytes, git_text
from luxmeter.store import Run

_MODULE = "160000"  # git's mode of a submodule


@dataclass(frozen=True)
class SourceTree:
    """The files of a run's code: path -> what names the content (SHA-256, or git's object where `repository` is set)."""

    run: Run
    files: dict[str, str]
    repository: Path | None = None
    modes: dict[str, str] = field(default_factory=dict)

    def read(self, path: str) -> bytes:
        """The content of one file."""
        if path not in self.files:
            raise StoreError(
                "code-file-missing",
                f"The code of run {self.run.id} has no file {path!r}.",
                suggestion(path, self.files) or f"luxmeter code {self.run.id} lists its files.",
            )
        if self.repository is None:
            return self.run.blob(self.files[path])
        return git_bytes(self.repository, "cat-file", "blob", self.files[path])


@dataclass(frozen=True)
class FileDiff:
    """How one file of the code differs: kind is changed, only in A, or only in B; `text` a unified diff."""

    path: str
    kind: str
    text: str
    added: int
    removed: int


def captured_tree(run: Run) -> SourceTree:
    """The imported files, which every run holds itself."""
    code = run.snapshot
    return SourceTree(run, dict(code.files) if code else {})


def whole_tree(run: Run) -> SourceTree:
    """All files of the git tree, if the repository still has it; else the kept ones."""
    code = run.snapshot
    found = None if code is None or not code.git else _git_tree(run, Path(code.root), code.git.get("tree"))
    return found or captured_tree(run)


def read_source(run: Run, path: str) -> bytes:
    """One file of a run's code, whether git's tree has it or only the run itself."""
    whole = whole_tree(run)
    return (whole if path in whole.files else captured_tree(run)).read(path)


def texts(run: Run) -> dict[str, str]:
    """The source files that ran: path -> text."""
    tree = captured_tree(run)
    return {path: tree.read(path).decode("utf-8", "replace") for path in tree.files}


def diff_code(a: Run, b: Run) -> list[FileDiff]:
    """How the code differs: the whole git trees where both are there, and the files that ran and are not in them."""
    tree_a, tree_b = whole_tree(a), whole_tree(b)
    kept_a, kept_b = captured_tree(a), captured_tree(b)
    if tree_a.repository is None or tree_b.repository is None or _apart(a, b):
        found = _changed(kept_a, kept_b)
    else:
        # Of a submodule, and of what is ignored, git's tree has no file; but it ran.
        outside = {*kept_a.files, *kept_b.files} - {*tree_a.files, *tree_b.files}
        found = _changed(tree_a, tree_b) + _changed(kept_a, kept_b, only=outside)
    return sorted(found, key=lambda diff: diff.path)


def same_code(a: Run, b: Run) -> bool:
    """Whether both ran the same code: the files that were imported, or, where none are known, the git tree."""
    one, two = a.snapshot, b.snapshot
    if one is None or two is None:
        return one is two
    if one.files or two.files:
        return one.files == two.files
    return (one.git or {}).get("tree") == (two.git or {}).get("tree")


def unified(path: str, a: str, b: str) -> list[str]:
    """The lines of a unified diff."""
    made = difflib.unified_diff(a.splitlines(), b.splitlines(), f"a/{path}", f"b/{path}", lineterm="")
    return list(made)


def is_binary(data: bytes) -> bool:
    """As git sees it: a zero byte near the beginning."""
    return b"\0" in data[:8000]


def _git_tree(run: Run, root: Path, tree: object) -> SourceTree | None:
    if not isinstance(tree, str) or not all(c in "0123456789abcdef" for c in tree) or not tree:
        return None
    if not (root / ".git").exists():
        return None
    if not git_agrees(root, "cat-file", "-e", f"{tree}^{{tree}}"):
        return None  # another clone, or its luxmeter refs were removed: the blobs still hold what ran
    files, modes = {}, {}
    for line in git_text(root, "ls-tree", "-r", "-z", "--full-tree", tree).split("\0"):
        if line:
            facts, _, path = line.partition("\t")
            mode, _, name = facts.split()
            if mode != _MODULE:
                files[path], modes[path] = name, mode
    return SourceTree(run, files, root, modes)


def _apart(a: Run, b: Run) -> bool:
    """Whether git names contents in two ways (SHA-1, SHA-256): then trees cannot be held against each other."""
    codes = [run.snapshot for run in (a, b)]
    return len({len(code.git.get("tree") or "") for code in codes if code and code.git}) > 1


def _changed(a: SourceTree, b: SourceTree, *, only: set[str] | None = None) -> list[FileDiff]:
    paths = {*a.files, *b.files} if only is None else only
    return [_file_diff(path, a, b) for path in paths if a.files.get(path) != b.files.get(path)]


def _file_diff(path: str, a: SourceTree, b: SourceTree) -> FileDiff:
    old = a.read(path) if path in a.files else b""
    new = b.read(path) if path in b.files else b""
    kind = (
        "changed" if path in a.files and path in b.files else "only in A" if path in a.files else "only in B"
    )
    if is_binary(old) or is_binary(new):
        return FileDiff(path, kind, f"binary: {len(old)} bytes and {len(new)} bytes", 0, 0)
    lines = unified(path, old.decode("utf-8", "replace"), new.decode("utf-8", "replace"))
    return FileDiff(path, kind, "\n".join(lines), _count(lines, "+"), _count(lines, "-"))


def _count(lines: Iterable[str], sign: str) -> int:
    return sum(line.startswith(sign) and not line.startswith(sign * 3) for line in lines)
