"""A folder as one state: everything in it, as a value that a checkpoint can hold (lux.FolderState)."""

from __future__ import annotations

import fnmatch
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from luxmeter.errors import CheckpointError, UsageError, warn_once
from luxmeter.files import write_file
from luxmeter.torch_extra import HAS_TORCH, Tensor, torch

# History: 1 = files (data: bytes as a tensor, without torch as an array; mode), folders, links.
STATE_VERSION = 1


class FolderState:
    """state_dict() takes all files, folders and links below path; load_state_dict() makes path exactly that again.

    Names that match a pattern of exclude (`*.tmp`, `cache/*`) are neither saved nor touched.
    """

    def __init__(self, path: str | os.PathLike[str], *, exclude: tuple[str, ...] = ()) -> None:
        self.path = Path(path)
        self._exclude = exclude

    def state_dict(self) -> dict[str, Any]:
        """The content of every file, its rights, the folders (empty ones too) and where links point."""
        if not self.path.is_dir():
            raise UsageError(
                "folder-absent", f"There is no folder {self.path}.", "Make it first, or check the path."
            )
        files: dict[str, Any] = {}
        folders: list[str] = []
        links: dict[str, str] = {}
        for name, entry in self._walk():
            if entry.is_symlink():
                links[name] = str(Path(entry.path).readlink())
            elif entry.is_dir(follow_symlinks=False):
                folders.append(name)
            elif entry.is_file(follow_symlinks=False):
                mode = stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode)
                files[name] = {"data": _bytes_of(Path(entry.path)), "mode": mode}
            else:
                warn_once(
                    "folder-special-file",
                    f"{entry.path} is no ordinary file (a pipe, socket or device) and is left out.",
                    "Name it in exclude= to have no warning.",
                    key=entry.path,
                )
        return {"luxmeter_folder": STATE_VERSION, "files": files, "folders": folders, "links": links}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the folder as it was: what was added since is removed, what was changed or removed comes back.

        Each file is replaced in one step; files that are already right are not touched.
        """
        if not isinstance(state, Mapping) or state.get("luxmeter_folder") != STATE_VERSION:
            raise CheckpointError(
                "folder-state",
                "This is not the state of a folder of this version.",
                "Pass what state_dict() gave.",
            )
        ends = {*state["files"], *state["links"]}
        for name in (*ends, *state["folders"]):
            _check_name(name, ends)
        self._check_target()
        self.path.mkdir(parents=True, exist_ok=True)
        self._remove_others(state)
        for name in sorted(state["folders"]):
            (self.path / name).mkdir(parents=True, exist_ok=True)
        for name, saved in state["files"].items():
            self._put_file(self.path / name, saved)
        for name, target in state["links"].items():
            link = self.path / name
            if not link.is_symlink():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(target)

    def __repr__(self) -> str:
        return f"FolderState({str(self.path)!r})"

    def _walk(self) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Everything below, by its name relative to the folder, in order; links are not followed."""
        waiting = [self.path]
        while waiting:
            for entry in sorted(os.scandir(waiting.pop()), key=lambda one: one.name):
                name = Path(entry.path).relative_to(self.path).as_posix()
                if any(fnmatch.fnmatch(name, pattern) for pattern in self._exclude):
                    continue
                yield name, entry
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))

    def _remove_others(self, state: Mapping[str, Any]) -> None:
        """Take away what is not in the state, or is there as another kind of thing."""
        for name, entry in list(self._walk()):
            path = Path(entry.path)
            if path.is_symlink():
                if state["links"].get(name) != str(path.readlink()):
                    path.unlink()
            elif path.is_dir():
                if name not in state["folders"] and not self._shelters_excluded(path):
                    shutil.rmtree(path)
            elif path.exists() and name not in state["files"]:
                path.unlink()

    def _shelters_excluded(self, folder: Path) -> bool:
        names = (path.relative_to(self.path).as_posix() for path in folder.rglob("*"))
        return any(fnmatch.fnmatch(name, pattern) for name in names for pattern in self._exclude)

    def _put_file(self, path: Path, saved: Mapping[str, Any]) -> None:
        data = np.ascontiguousarray(saved["data"], dtype=np.uint8)
        mode = int(saved["mode"]) & 0o777  # no set-user-id bit out of a file
        if not (path.is_file() and not path.is_symlink() and np.array_equal(_read(path), data)):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, data.tobytes(), durable=True)
        path.chmod(mode)

    def _check_target(self) -> None:
        target = self.path.resolve()
        home = Path("~").expanduser().resolve()
        if target in (home, *home.parents) or self.path.is_symlink():
            raise UsageError(
                "folder-target",
                f"{self.path} is the home folder, one above it, or a link: it is not replaced by a saved state.",
                "Give the folder itself, as far down as possible.",
            )


def _bytes_of(path: Path) -> Tensor | np.ndarray[Any, Any]:
    data = _read(path)
    return torch.from_numpy(data) if HAS_TORCH else data


def _read(path: Path) -> np.ndarray[Any, Any]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(
            "folder-unreadable",
            f"{path} cannot be read: {error.strerror}.",
            "Change its rights, or name it in exclude=.",
        ) from error
    return np.frombuffer(bytearray(data), dtype=np.uint8)


def _check_name(name: Any, ends: set[Any]) -> None:
    """A name out of a file must stay below the folder, and not lead through one of its links or files."""
    path = PurePosixPath(name) if isinstance(name, str) else PurePosixPath()
    wrong = not path.parts or path.is_absolute() or ".." in path.parts or "\\" in name or ":" in path.parts[0]
    if wrong or any(parent.as_posix() in ends for parent in path.parents):
        raise CheckpointError(
            "folder-unsafe-name",
            f"The state names {name!r}, which lies outside of the folder.",
            "Do not load folder states you did not make.",
        )
