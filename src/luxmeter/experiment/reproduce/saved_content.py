"""Is the content of a file saved somewhere, so that writing over it loses nothing?"""

from __future__ import annotations

from pathlib import Path

from luxmeter.errors import StoreError
from luxmeter.experiment.capture.git import git_agrees, git_text
from luxmeter.experiment.capture.snapshot import repository_of
from luxmeter.files import sha256_of
from luxmeter.store import layout

_NEWEST_SNAPSHOTS = 100


def saved_where(folder: Path, paths: list[str], *, lab_folder: Path) -> dict[str, str]:
    """Path (below `folder`) -> where its present content is saved: a commit, or a run; absent if nowhere."""
    found: dict[str, str] = {}
    root = repository_of(folder)
    if root is not None and paths:
        found.update(_in_git(root, folder, paths))
    for path in paths:
        target = folder / path
        if path not in found and target.is_file() and not target.is_symlink():
            name = sha256_of(target)
            blob = lab_folder / layout.BLOBS / name[:2] / name
            if blob.is_file() and blob.stat().st_nlink > 1:  # in the pool, and a run still links it
                found[path] = "a run of this lab"
    return found


def _in_git(root: Path, folder: Path, paths: list[str]) -> dict[str, str]:
    """By git's own hash, which knows its filters and line ends: HEAD first, then the snapshots of runs."""
    below = {path: (folder / path).relative_to(root.resolve()).as_posix() for path in paths}
    usable = [p for p in paths if "\n" not in p and (folder / p).is_file() and not (folder / p).is_symlink()]
    if not usable:
        return {}
    try:
        listed = "".join(f"{below[path]}\n" for path in usable)
        now = dict(
            zip(usable, git_text(root, "hash-object", "--stdin-paths", given=listed).split("\n"), strict=True)
        )
        names = ["HEAD"] if git_agrees(root, "rev-parse", "--verify", "--quiet", "HEAD") else []
        names += git_text(
            root, "for-each-ref", "--sort=-creatordate", f"--count={_NEWEST_SNAPSHOTS}", "--format=%(refname)",
            "refs/luxmeter/",
        ).split()  # fmt: skip
        asked = [(name, path) for name in names for path in usable]
        wanted = "".join(f"{name}:{below[path]}\n" for name, path in asked)
        answers = git_text(root, "cat-file", "--batch-check=%(objectname)", given=wanted).split("\n")
    except (StoreError, OSError, ValueError):
        return {}  # git does not answer: then nothing counts as saved
    found: dict[str, str] = {}
    for (name, path), answer in zip(asked, answers, strict=False):
        if answer == now[path] and path not in found:
            found[path] = (
                "the commit HEAD" if name == "HEAD" else f"run {name.removeprefix('refs/luxmeter/')}"
            )
    return found
