"""Which files a run may bring back into a folder. Its records may come from elsewhere, and git and Luxmeter obey files.

Refused, with the name of the entry, before anything is written: names that point outside; a component that git, another
version control or Luxmeter takes its orders from, in any case or Unicode form (`.git`, `.GIT`, `.g\u200cit`, `git~1`,
`.git. `, `.git::$INDEX_ALLOCATION`); a folder that git would take for a repository of its own; links that lead outside,
also by way of each other, and files that would be written through one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath

from luxmeter.errors import StoreError
from luxmeter.store import inside

_CONTROL = {".git", ".luxmeter", ".venv-mindspore", ".hg", ".svn", ".bzr", ".jj"}
_SHORT = re.compile(r"(git|luxmet|venv-m)~[0-9]+")  # the names that Windows gives to long ones
# Read by git where it finds them, and followed if they are links.
_NO_LINKS = {".gitmodules", ".gitattributes", ".gitignore", ".mailmap"}
# What HFS+ leaves out when it compares names (as in git's own check).
_IGNORED = dict.fromkeys([*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF])
_MOST_STEPS = 255


def check_entries(paths: Collection[str], links: Mapping[str, str], folder: Path) -> None:
    """Raise if one of `paths` may not be written below `folder`; `links` are those that are links, and where to."""
    for path in paths:
        inside(folder, path)
        if any(is_control(part) for part in PurePosixPath(path).parts):
            raise _refused(path, "is obeyed by git or by Luxmeter itself")
    _check_repositories(paths)
    ends = {_alike(path): path for path in links}
    for path in paths:
        parents = (parent.as_posix() for parent in PurePosixPath(path).parents)
        through = next((ends[key] for key in map(_alike, parents) if key in ends), None)
        if through is not None:
            raise _refused(path, f"would be written through the link {through}")
        if path not in links and _alike(path) in ends:
            raise _refused(path, f"differs from the link {ends[_alike(path)]} in case alone")
    targets = {_alike(path): target for path, target in links.items()}
    for path, target in links.items():
        if _alike(PurePosixPath(path).name) in _NO_LINKS:
            raise _refused(path, "is a link, which git would follow")
        _follow(path, target, targets, folder)


def is_control(name: str) -> bool:
    """Whether one component of a path is what git, another version control or Luxmeter obeys, on any file system."""
    plain = _alike(name).partition(":")[0].rstrip(". ")
    return plain in _CONTROL or _SHORT.fullmatch(plain) is not None


def _alike(path: str) -> str:
    """The same text for all names that some file system takes for one."""
    return unicodedata.normalize("NFKC", path.translate(_IGNORED)).casefold().translate(_IGNORED)


def _check_repositories(paths: Collection[str]) -> None:
    """A folder with HEAD, objects and refs is a repository to git, and its config is obeyed."""
    held: dict[str, set[str]] = {}
    for path in paths:
        parts = PurePosixPath(_alike(path)).parts
        for depth, part in enumerate(parts):
            if part in ("head", "objects", "refs"):
                held.setdefault("/".join(parts[:depth]), set()).add(part)
    for path in paths:
        place = PurePosixPath(_alike(path))
        if place.name == "head" and len(held[_parent(place)]) == 3:
            raise _refused(path, "makes its folder a repository, whose config git obeys")


def _parent(path: PurePosixPath) -> str:
    return "/".join(path.parts[:-1])


def _follow(path: str, target: str, targets: Mapping[str, str], folder: Path) -> None:
    """Walk to where a link leads, over the other links of the run and those that are in the folder already."""
    here = list(PurePosixPath(path).parts[:-1])
    ahead, steps = [target], 0
    while ahead:
        step = ahead.pop(0)
        if step.startswith("/") or "\\" in step or "\0" in step or not step:
            raise _outside(path, target)
        for number, part in enumerate(parts := step.split("/")):
            if part == "..":
                if not here:
                    raise _outside(path, target)
                here.pop()
            elif part not in ("", "."):
                here.append(part)
                if is_control(part):
                    raise _refused(path, f"leads to {target}, which is obeyed by git or by Luxmeter itself")
                further = _link_at("/".join(here), targets, folder)
                if further is not None:
                    here.pop()
                    ahead[:0] = [further, *(["/".join(rest)] if (rest := parts[number + 1 :]) else [])]
                    steps += 1
                    break
        if steps > _MOST_STEPS:
            raise _outside(path, target)


def _link_at(path: str, targets: Mapping[str, str], folder: Path) -> str | None:
    found = targets.get(_alike(path))
    if found is not None:
        return found
    place = folder / path
    return str(place.readlink()) if place.is_symlink() else None


def _refused(path: str, why: str) -> StoreError:
    return StoreError(
        "entry-unsafe",
        f"{path!r} of this run's files {why}.",
        "Nothing was written; do not trust where the run came from. luxmeter code RUN PATH prints single files.",
    )


def _outside(path: str, target: str) -> StoreError:
    return StoreError(
        "link-outside",
        f"{path} of this run's code is a link to {target}, outside of the folder.",
        "Nothing was written. Bring single files back with luxmeter code RUN PATH.",
    )
