"""Rollback: a run's code and checkpoints into a folder, never over changes that nobody has saved.

Everything is staged beside the target first; then each file is moved into place, and on any trouble all are moved
back. A folder that is not there yet, or empty, appears in one step.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from luxmeter.errors import StoreError, UsageError
from luxmeter.experiment.capture.git import git_agrees, git_text
from luxmeter.experiment.capture.snapshot import repository_of
from luxmeter.experiment.query import source_code
from luxmeter.experiment.reproduce.entries import check_entries
from luxmeter.files import sha256_of
from luxmeter.store import Run, blob_path, inside, layout, records

_NEWEST_SNAPSHOTS = 100
_EXECUTABLE, _LINK = "100755", "120000"


@dataclass(frozen=True)
class Item:
    """A file to bring back: where to, and where its content comes from."""

    path: str
    read: Callable[[], bytes] | Path
    mode: str = "100644"
    sha256: str = ""  # what the copy must have, where it is known


@dataclass(frozen=True)
class Rollback:
    """What was done. Paths are relative to `folder`."""

    folder: Path
    written: list[str]
    replaced: dict[str, str]  # path -> where the content that was there is saved
    equal: list[str]
    not_kept: list[str]  # known by hash only: too large to keep, and no longer where the run left it


def roll_back(
    run: Run, to: Path | None = None, *, code: bool = True, checkpoints: bool = True, dry_run: bool = False
) -> Rollback:
    """Bring code and checkpoints of a run into the folder `to`; without one into the project it was made in.

    Raises StoreError `unsaved-changes` with the list of files whose content is neither that of the run, nor
    committed, nor kept by another run; then nothing was written.
    """
    kept = run.snapshot
    if kept is None and code and not run.final_files:
        raise StoreError(
            "nothing-to-roll-back",
            f"Run {run.id} keeps neither code nor files.",
            "Runs made by lux.Experiment or luxmeter run do.",
        )
    target = (to.expanduser().absolute() if to else _own_folder(run, kept)).resolve()
    items = _code_items(run) if code else []
    missing: list[str] = []
    if checkpoints:
        more, missing = _checkpoint_items(run, kept.root if kept else "")
        items += more
    links = {item.path: _target(item) for item in items if item.mode == _LINK}
    check_entries([item.path for item in items], links, target)
    return _put(run, target, {item.path: item for item in items}, missing, dry_run=dry_run)


def _own_folder(run: Run, kept: records.Code | None) -> Path:
    """The project that the user stands in, if it is the run's own: a path in a record alone is not to be trusted."""
    here = repository_of(Path.cwd()) or Path.cwd()
    if kept is not None and Path(kept.root).resolve() == here.resolve():
        return here
    raise UsageError(
        "rollback-elsewhere",
        f"Run {run.id} was made in {kept.root if kept else 'an unknown folder'}, not in {here}.",
        "Go there, or name a folder with --to.",
    )


def _code_items(run: Run) -> list[Item]:
    tree = source_code.whole_tree(run)
    items = [Item(path, _reader(tree, path), tree.modes.get(path, "100644")) for path in tree.files]
    ran = source_code.captured_tree(run)  # what ran but is not in the tree: a submodule's files, ignored ones
    items += [Item(path, _reader(ran, path)) for path in ran.files if path not in tree.files]
    return items


def _reader(tree: source_code.SourceTree, path: str) -> Callable[[], bytes]:
    return lambda: tree.read(path)


def _checkpoint_items(run: Run, root: str) -> tuple[list[Item], list[str]]:
    items: list[Item] = []
    missing: list[str] = []
    for change in run.final_files.values():
        folder = Path(change.folder)
        # A part that the run holds itself comes back under its name, not as a lab within the project.
        ids = (run.id, run.identity.get("imported_as"))
        in_run = any(f"/{known}/{records.FILES_FOLDER}/" in f"{folder.as_posix()}/" for known in ids)
        below = bool(root) and not in_run and folder.is_relative_to(root)
        path = (folder.relative_to(root) if below else Path(change.part or folder.name)) / change.path
        original = folder / change.path
        own = run.folder / records.FILES_FOLDER / (change.part or folder.name) / change.path
        if own.is_file() and sha256_of(own) == change.sha256:  # a part that the run holds itself
            original = own
        if change.kept:
            items.append(Item(path.as_posix(), blob_path(run.folder, change.sha256), sha256=change.sha256))
        elif original.is_file() and sha256_of(original) == change.sha256:
            items.append(Item(path.as_posix(), original))
        else:
            missing.append(path.as_posix())
    return items, missing


# -- putting files into a folder ------------------------------------------------------------------------------------


def _put(run: Run, folder: Path, items: dict[str, Item], missing: list[str], *, dry_run: bool) -> Rollback:
    fresh = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    if folder.exists() and not folder.is_dir():
        raise UsageError("rollback-no-folder", f"{folder} is not a folder.", "Name a folder with --to.")
    staging = folder.parent if fresh else folder
    try:
        staging.mkdir(parents=True, exist_ok=True)
        staged = staging / f".luxmeter-rollback-{secrets.token_hex(4)}"
        staged.mkdir()
    except OSError as error:
        raise StoreError(
            "rollback-unwritable",
            f"Nothing can be written in {staging}: {error.strerror}.",
            "Give rights there, or name another folder with --to.",
        ) from error
    try:
        new = staged / "new"
        new.mkdir()
        for item in items.values():
            _stage(item, new)
        if fresh:
            if not dry_run:
                os.replace(new, folder)
            return Rollback(folder, sorted(items), {}, [], missing)
        return _into(run, folder, staged, sorted(items), missing, dry_run=dry_run)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _target(item: Item) -> str:
    """Where a link leads."""
    body = item.read.read_bytes() if isinstance(item.read, Path) else item.read()
    return body.decode("utf-8", "surrogateescape")


def _stage(item: Item, new: Path) -> None:
    target = inside(new, item.path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if item.mode == _LINK:
        target.symlink_to(_target(item))
        return
    if isinstance(item.read, Path):
        shutil.copyfile(item.read, target)
        if item.sha256 and sha256_of(target) != item.sha256:
            raise StoreError(
                "blob-damaged",
                f"{item.path} as the run keeps it is damaged: its SHA-256 is another.",
                "Restore the run from a copy; nothing was written.",
            )
    else:
        target.write_bytes(item.read())
    if item.mode == _EXECUTABLE:
        target.chmod(target.stat().st_mode | 0o111)


def _into(
    run: Run, folder: Path, staged: Path, paths: list[str], missing: list[str], *, dry_run: bool
) -> Rollback:
    new = staged / "new"
    equal, absent, differing, blocked = [], [], [], []
    for path in paths:
        target = folder / path
        if _in_the_way(folder, path):
            blocked.append(path)
        elif not os.path.lexists(target):
            absent.append(path)
        elif _content(target) == _content(new / path):
            equal.append(path)
        else:
            differing.append(path)
    before = {path: _content(folder / path) for path in differing}
    saved = _saved_where(folder, differing, lab_folder=run.folder.parent.parent)
    unsaved = sorted({*blocked, *(path for path in differing if path not in saved)})
    if unsaved:
        shown = ", ".join(unsaved[:20]) + (f" and {len(unsaved) - 20} more" if len(unsaved) > 20 else "")
        raise StoreError(
            "unsaved-changes",
            f"{len(unsaved)} files in {folder} hold changes that are saved nowhere: {shown}.",
            "Commit them or move them away, or bring the run into another folder with --to.",
        )
    written = sorted([*absent, *differing])
    if not dry_run:
        _swap(folder, staged, written, before)
    return Rollback(folder, written, saved, equal, missing)


def _swap(folder: Path, staged: Path, paths: list[str], before: dict[str, str]) -> None:
    """Move each file into place, the old one aside; on any trouble everything goes back."""
    new, old = staged / "new", staged / "old"
    undo: list[Callable[[], object]] = []
    try:
        for path in paths:
            target = folder / path
            for parent in _missing_parents(folder, target):
                parent.mkdir()
                undo.append(parent.rmdir)
            if path in before:
                aside = old / path
                aside.parent.mkdir(parents=True, exist_ok=True)
                os.replace(target, aside)
                undo.append(_mover(aside, target))
                if _content(aside) != before[path]:
                    raise StoreError(
                        "changed-meanwhile",
                        f"{path} was changed while the run was being brought back.",
                        "Nothing was changed by the rollback; try again.",
                    )
            os.replace(new / path, target)
            undo.append(_mover(target, new / path))
    except BaseException:
        for step in reversed(undo):
            with contextlib.suppress(OSError):
                step()
        raise


def _mover(source: Path, target: Path) -> Callable[[], None]:
    return lambda: os.replace(source, target)


def _missing_parents(folder: Path, target: Path) -> Iterable[Path]:
    missing = []
    parent = target.parent
    while parent != folder and not parent.exists():
        missing.append(parent)
        parent = parent.parent
    return reversed(missing)


def _in_the_way(folder: Path, path: str) -> bool:
    """Whether a folder's place is taken by a file or a link, or the file's place by a folder."""
    parts = Path(path).parts
    for i in range(1, len(parts)):
        parent = folder.joinpath(*parts[:i])
        if parent.is_symlink() or (parent.exists() and not parent.is_dir()):
            return True
    target = folder / path
    return target.is_dir() and not target.is_symlink()


def _content(path: Path) -> str:
    """What names a file's content: its hash, or where a link leads."""
    return f"link to {path.readlink()}" if path.is_symlink() else sha256_of(path)


# -- is the content of a file saved somewhere, so that writing over it loses nothing? ---------------------------------


def _saved_where(folder: Path, paths: list[str], *, lab_folder: Path) -> dict[str, str]:
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
