"""lux.FolderState: a folder as one state."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
import torch

import luxmeter as lux
from luxmeter.errors import CheckpointError, LuxmeterWarning, UsageError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    (made / "deep" / "er").mkdir(parents=True)
    (made / "empty").mkdir()
    (made / "a.txt").write_text("a")
    (made / "nothing").write_bytes(b"")
    (made / "deep" / "er" / "b.bin").write_bytes(bytes(range(256)))
    (made / "run.sh").write_text("#!/bin/sh\n")
    (made / "run.sh").chmod(0o750)
    (made / "link").symlink_to("a.txt")
    (made / "中文 name").write_text("unicode")
    return made


def content(folder: Path) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            seen[name] = str(path.readlink())
        else:
            seen[name] = path.read_bytes() if path.is_file() else None
            seen[name + " mode"] = stat.S_IMODE(path.stat().st_mode) if path.is_file() else None
    return seen


def test_a_folder_goes_back_to_its_state(folder: Path) -> None:
    before = content(folder)
    state = lux.FolderState(folder).state_dict()
    (folder / "a.txt").write_text("changed")
    (folder / "run.sh").chmod(0o600)
    (folder / "new").mkdir()
    (folder / "new" / "file").write_text("added")
    (folder / "deep" / "er" / "b.bin").unlink()
    (folder / "deep" / "er").rmdir()
    (folder / "deep" / "er").write_text("a file where a folder was")
    (folder / "nothing").unlink()
    (folder / "nothing").mkdir()
    (folder / "link").unlink()
    (folder / "link").symlink_to("nothing")
    lux.FolderState(folder).load_state_dict(state)
    assert content(folder) == before


def test_through_a_checkpoint_to_another_place(folder: Path, tmp_path: Path) -> None:
    saver = lux.Saver(tmp_path / "s")
    saver.save_state(1, data=lux.FolderState(folder))
    saver.resume(data=lux.FolderState(tmp_path / "other" / "place"))
    assert content(tmp_path / "other" / "place") == content(folder)
    torch.save(lux.FolderState(folder).state_dict(), tmp_path / "x.pt")
    lux.FolderState(tmp_path / "third").load_state_dict(torch.load(tmp_path / "x.pt", weights_only=True))
    assert content(tmp_path / "third") == content(folder)


def test_files_that_are_right_are_not_touched(folder: Path) -> None:
    state = lux.FolderState(folder)
    inode = (folder / "a.txt").stat().st_ino
    state.load_state_dict(state.state_dict())
    assert (folder / "a.txt").stat().st_ino == inode


def test_excluded_names_are_neither_saved_nor_removed(folder: Path) -> None:
    (folder / "deep" / "x.tmp").write_text("1")
    state = lux.FolderState(folder, exclude=("*.tmp",))
    saved = state.state_dict()
    assert not any(name.endswith(".tmp") for name in saved["files"])
    (folder / "fresh").mkdir()
    (folder / "fresh" / "y.tmp").write_text("2")
    (folder / "fresh" / "z").write_text("3")
    state.load_state_dict(saved)
    assert (folder / "deep" / "x.tmp").exists() and (folder / "fresh" / "y.tmp").exists()
    assert not (folder / "fresh" / "z").exists()


@pytest.mark.parametrize("name", ["../out", "/tmp/out", "a/../../out", "", "C:\\out", "..", 3])
def test_names_that_lead_outside_are_refused(folder: Path, name: Any) -> None:
    before = content(folder)
    state = lux.FolderState(folder).state_dict()
    for kind in ("files", "links"):
        forged = {
            **state,
            kind: {**state[kind], name: {"data": torch.zeros(1, dtype=torch.uint8), "mode": 0o644}},
        }
        with pytest.raises(CheckpointError, match="folder-unsafe-name"):
            lux.FolderState(folder).load_state_dict(forged)
    assert content(folder) == before


def test_a_file_below_a_link_cannot_leave_the_folder(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep").write_text("kept")
    data = {"data": torch.zeros(1, dtype=torch.uint8), "mode": 0o4755}
    state = {"luxmeter_folder": 1, "files": {"way/keep": data}, "folders": [], "links": {"way": str(outside)}}
    (folder / "way").symlink_to(outside)
    with pytest.raises(CheckpointError, match="folder-unsafe-name"):
        lux.FolderState(folder).load_state_dict(state)
    assert (outside / "keep").read_text() == "kept"
    lux.FolderState(folder).load_state_dict({**state, "links": {}})
    assert (outside / "keep").read_text() == "kept" and not (folder / "way").is_symlink()
    assert stat.S_IMODE((folder / "way" / "keep").stat().st_mode) == 0o755


def test_home_and_links_are_not_replaced(folder: Path, tmp_path: Path) -> None:
    state = lux.FolderState(folder).state_dict()
    (tmp_path / "alias").symlink_to(folder)
    for target in (Path.home(), Path("/"), tmp_path / "alias"):
        with pytest.raises(UsageError, match="folder-target"):
            lux.FolderState(target).load_state_dict(state)


def test_other_mistakes(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(UsageError, match="folder-absent"):
        lux.FolderState(tmp_path / "nowhere").state_dict()
    with pytest.raises(CheckpointError, match="folder-state"):
        lux.FolderState(folder).load_state_dict({"files": {}})
    os.mkfifo(folder / "pipe")
    with pytest.warns(LuxmeterWarning, match="folder-special-file"):
        assert "pipe" not in lux.FolderState(folder).state_dict()["files"]
