"""The code of a whole project, kept before anything of it runs, and laid out again for a program: what a job is queued with.

In a git repository these are the files of the snapshot that a run would make (what git ignores is not among them), and
a ref of our own keeps that snapshot; elsewhere the text files below the folder. The same code is kept once.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from luxmeter.errors import LuxmeterError, StoreError, UsageError
from luxmeter.experiment.capture import snapshot
from luxmeter.experiment.capture.git import git_agrees, git_text
from luxmeter.files import read_json, write_json
from luxmeter.store import Lab, inside, layout, read_blob, records
from luxmeter.typed_fields import checked_fields

MOST_FILES = snapshot.MOST_UNTRACKED_FILES
_CODE = "code"
_LINK, _SUBMODULE = "120000", "160000"
_MODE = re.compile("[0-7]{6}")
_REF = re.compile("refs/luxmeter/queue-[0-9a-f]{8}")  # as keep_project names them
_NOT_CODE = {"__pycache__", "node_modules", "site-packages"}


@dataclass(frozen=True)
class ProjectCode:
    """What is kept: path -> [mode, name of content, or where a link leads], and what git says."""

    name: str
    root: str
    files: Mapping[str, tuple[str, str]]
    git: Mapping[str, Any] | None
    paths: tuple[str, ...]  # folders of the project in which Python looks for modules


def keep_project(lab: Lab, folder: Path) -> ProjectCode:
    """Keep the code of the project around `folder`."""
    root = snapshot.repository_of(folder) or _project_of(folder.absolute())
    store = _folder(lab)
    store.mkdir(parents=True, exist_ok=True)
    made = store / f".new-{secrets.token_hex(4)}"
    made.mkdir()
    try:
        git, listed = _listed(root, f"queue-{made.name[5:]}")
        files: dict[str, tuple[str, str]] = {}
        for path, mode in listed:
            source = root / path
            try:
                kept = (
                    _link_target(source, root) if mode == _LINK else lab.pool.put(source.read_bytes(), made)
                )
            except OSError:
                continue  # it vanished meanwhile
            files[path] = (mode, kept)
        paths = _import_paths(root)
        facts = {"root": str(root), "files": {p: list(f) for p, f in files.items()}, "paths": paths}
        told = json.dumps([facts, (git or {}).get("snapshot")], sort_keys=True)
        name = hashlib.sha256(told.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        write_json(made / "code.json", {**facts, "name": name, "git": git})
        try:
            os.replace(made, store / name)
        except OSError:  # the same code is kept already
            _forget(root, git)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return stored_project(lab, name)


def stored_project(lab: Lab, name: str) -> ProjectCode:
    """What is kept under a name."""
    file = _folder(lab) / layout.named("file", name) / "code.json"
    found = read_json(file)
    if found is None:
        raise StoreError(
            "job-code-missing",
            f"The code {name} that the job was queued with is not in {_folder(lab)}.",
            "It was removed by hand: queue the job anew.",
        )
    try:
        files = {path: tuple(kept) for path, kept in found["files"].items()}
        code = ProjectCode(found["name"], found["root"], files, found["git"], tuple(found["paths"]))
        _check(code, name)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = error.what if isinstance(error, LuxmeterError) else str(error)
        raise StoreError(
            "job-code-damaged",
            f"{file} is no record of a project's code: {why}.",
            "Queue the job anew; do not trust where it came from if nobody changed the file here.",
        ) from error
    return code


def stored_names(lab: Lab) -> list[str]:
    """All names under which code is kept."""
    place = _folder(lab)
    there = place.iterdir() if place.is_dir() else ()
    return sorted(p.name for p in there if layout.is_named("file", p.name) and not p.is_symlink())


def drop_project(lab: Lab, name: str) -> None:
    """Forget kept code: no job will be started with it any more."""
    with contextlib.suppress(StoreError):  # damaged: then its ref stays
        code = stored_project(lab, name)
        _forget(Path(code.root), code.git)
    shutil.rmtree(_folder(lab) / layout.named("file", name), ignore_errors=True)


def lay_out(lab: Lab, code: ProjectCode, folder: Path) -> None:
    """Write the project's files below `folder`, which is made; its links come last, so that nothing goes through one."""
    place = _folder(lab) / layout.named("file", code.name)
    folder.mkdir(parents=True)
    for path, (mode, kept) in sorted(code.files.items(), key=lambda one: one[1][0] == _LINK):
        target = inside(folder, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if mode == _LINK:
            target.symlink_to(kept)
            continue
        with open(target, "xb") as file:
            file.write(read_blob(place, kept))
        if mode == "100755":
            target.chmod(target.stat().st_mode | 0o111)


def _check(code: ProjectCode, name: str) -> None:
    """ValueError if a record says what none of ours says: it may come from elsewhere."""
    checked_fields(code)
    if code.name != name or not Path(code.root).is_absolute():
        raise ValueError(f"it is of {code.name[:80]!r} in {code.root[:80]!r}")
    for path in code.paths:
        inside(Path(code.root), path if path != "." else "x")  # the root itself may be one
    for path, (mode, kept) in code.files.items():
        inside(Path(code.root), path)
        if not _MODE.fullmatch(mode):
            raise ValueError(f"the mode of {path[:80]!r} is {mode[:80]!r}")
        if not (layout.is_named("blob", kept) if mode != _LINK else kept and "\0" not in kept):
            raise ValueError(f"{path[:80]!r} holds {kept[:80]!r}")
    known = {Path(path) for path in code.files}
    if len(known) != len(code.files) or any(parent in known for path in known for parent in path.parents):
        raise ValueError("a file stands in the place of a folder, or twice")
    for word in ("commit", "snapshot", "tree"):
        said = (code.git or {}).get(word)
        if said is not None and not (isinstance(said, str) and records.GIT_OBJECT.fullmatch(said)):
            raise ValueError(f"its {word} is {str(said)[:80]!r}")


def _project_of(folder: Path) -> Path:
    """Without git: the nearest folder that has a pyproject.toml, else the folder itself."""
    return next((p for p in (folder, *folder.parents) if (p / "pyproject.toml").is_file()), folder)


def _folder(lab: Lab) -> Path:
    return lab.folder / layout.QUEUE / _CODE


def _forget(root: Path, git: Mapping[str, Any] | None) -> None:
    """Delete the ref that was made for it, while that names the commit that was made."""
    ref, commit = str((git or {}).get("ref")), str((git or {}).get("snapshot"))
    if _REF.fullmatch(ref) and records.GIT_OBJECT.fullmatch(commit) and (root / ".git").exists():
        git_agrees(root, "update-ref", "--no-deref", "-d", ref, commit)


def _listed(root: Path, ref: str) -> tuple[dict[str, Any] | None, list[tuple[str, str]]]:
    """(what git says, path and mode of each file)."""
    git = snapshot.git_snapshot(root, ref) if (root / ".git").exists() else None
    if not git or not git.get("tree"):
        return git, list(_walk(root, root))
    found: list[tuple[str, str]] = []
    for line in git_text(root, "ls-tree", "-r", "-z", "--full-tree", git["tree"]).split("\0"):
        if line:
            facts, _, path = line.partition("\t")
            mode = facts.split()[0]
            found += _walk(root / path, root) if mode == _SUBMODULE else [(path, mode)]
    return git, found


def _walk(folder: Path, root: Path) -> Iterator[tuple[str, str]]:
    """Files that may be code: not large, not binary, in no hidden folder, environment or lab."""
    count = 0
    for place, folders, names in os.walk(folder):
        here = Path(place)
        folders[:] = sorted(f for f in folders if not _is_none_of_ours(here / f))
        for name in sorted(names):
            path = here / name
            if path.is_symlink():
                yield path.relative_to(root).as_posix(), _LINK
            elif snapshot.may_be_code(path):
                count += 1
                if count > MOST_FILES:
                    raise UsageError(
                        "project-too-large",
                        f"There are more than {MOST_FILES} text files below {folder}: that is no project's folder.",
                        "Put the script into a folder of its own, or into a git repository.",
                    )
                mode = "100755" if path.stat().st_mode & stat.S_IXUSR else "100644"
                yield path.relative_to(root).as_posix(), mode


def _is_none_of_ours(folder: Path) -> bool:
    name = folder.name
    is_lab = (folder / "lab.json").is_file() and (folder / layout.RUNS).is_dir()
    return name.startswith(".") or name in _NOT_CODE or (folder / "pyvenv.cfg").exists() or is_lab


def _link_target(link: Path, root: Path) -> str:
    """Where a link leads; out of the project from wherever it is laid out."""
    target = link.readlink()
    leads_to = Path(os.path.normpath(link.parent / target))
    return str(target if leads_to.is_relative_to(root) and not target.is_absolute() else leads_to)


def _import_paths(root: Path) -> list[str]:
    """Of a project that is installed in place, or named in PYTHONPATH, the folders that Python searches."""
    given = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    known = [*given, *sys.path[1:]]
    inner = [Path(p).absolute() for p in known if p and not snapshot.is_installed(f"{p}{os.sep}")]
    return list(dict.fromkeys(p.relative_to(root).as_posix() for p in inner if p.is_relative_to(root)))
