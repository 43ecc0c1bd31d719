"""Runs leave and come in whole; what an archive says is not believed before it is checked."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from made_runs import make_run

from luxmeter.errors import LuxmeterError, StoreError, UsageError
from luxmeter.experiment.transfer.archive import export_run, import_run
from luxmeter.store import Lab, Run


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab.open(tmp_path / "lab")


@pytest.fixture
def other(tmp_path: Path) -> Lab:
    return Lab.open(tmp_path / "other")


def full_run(lab: Lab) -> Run:
    return make_run(
        lab, params={"lr": 0.1, "t": (1, 2)}, metrics={"loss": [3.0, 2.0]}, code={"train.py": "print()\n"},
        files={"a.ckpt": b"weights"}, output="hello\n", tags=["best"],
    )  # fmt: skip


@pytest.mark.parametrize("name", ["x.tar.zst", "x.tar.gz", "x.tgz", "x.tar", "x.zip", "folder"])
def test_there_and_back(lab: Lab, other: Lab, tmp_path: Path, name: str) -> None:
    run = full_run(lab)
    target = export_run(run, tmp_path / "sub" / name)
    assert target == tmp_path / "sub" / name and [p.name for p in target.parent.iterdir()] == [name]
    taken = import_run(other, target)
    assert (taken.id, taken.already) == (run.id, False)
    found = other.find(run.id)
    assert found.params == {"lr": 0.1, "t": (1, 2)} and found.metric("loss").values.tolist() == [3.0, 2.0]
    assert found.code == {"train.py": "print()\n"} and found.read_file("out/a.ckpt") == b"weights"
    assert (found.log_text, found.tags, found.state) == ("hello\n", ["best"], "finished")
    assert [row.id for row in other.runs()] == [run.id]
    assert import_run(other, target).already and len(other.runs()) == 1
    assert not [p for p in other.folder.iterdir() if p.name.startswith(".import")]


def test_another_run_with_the_same_id_gets_a_new_one(lab: Lab, other: Lab, tmp_path: Path) -> None:
    run = full_run(lab)
    archive = export_run(run, tmp_path / "x.zip")
    mine = make_run(other, params={"mine": 1})
    mine.folder.rename(other.folder / "runs" / run.id)
    identity = json.loads((other.folder / "runs" / run.id / "run.json").read_text())
    (other.folder / "runs" / run.id / "run.json").write_text(json.dumps({**identity, "id": run.id}))
    taken = import_run(other, archive)
    assert taken.id != run.id == taken.was and not taken.already
    assert other.find(taken.id).params["lr"] == 0.1 and other.find(run.id).params == {"mine": 1}
    assert other.find(taken.id).identity["imported_as"] == run.id


def test_what_cannot_be_exported(lab: Lab, tmp_path: Path) -> None:
    run = full_run(lab)
    (tmp_path / "x.zip").write_text("mine")
    with pytest.raises(UsageError, match="export-exists"):
        export_run(run, tmp_path / "x.zip")
    assert (tmp_path / "x.zip").read_text() == "mine"
    with pytest.raises(UsageError, match="export-ending"):
        export_run(run, tmp_path / "x.rar")
    living = lab.create_run("living")
    with pytest.raises(StoreError, match="run-is-running"):
        export_run(Run(living.folder), tmp_path / "y.zip")
    living.finish()


# -- archives that lie ------------------------------------------------------------------------------------------------


def tar_with(path: Path, change: Callable[[tarfile.TarFile], None], run: Run) -> Path:
    with tarfile.open(path, "w") as archive:
        archive.add(run.folder / "run.json", f"{run.id}/run.json")
        change(archive)
    return path


def member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", body: bytes = b"x"
) -> Callable[[tarfile.TarFile], None]:
    def add(archive: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, link
        info.size = len(body) if kind == tarfile.REGTYPE else 0
        archive.addfile(info, io.BytesIO(body) if kind == tarfile.REGTYPE else None)

    return add


@pytest.mark.parametrize(
    "bad",
    [
        member("../evil"),
        member("/tmp/evil-luxmeter"),
        member("a/../../evil"),
        member("a\\..\\evil"),
        member("run/link", tarfile.SYMTYPE, "/etc/passwd"),
        member("run/hard", tarfile.LNKTYPE, "../../outside"),
        member("run/device", tarfile.CHRTYPE),
        member("run/pipe", tarfile.FIFOTYPE),
    ],
)
def test_members_that_lead_outside_are_refused(
    lab: Lab, other: Lab, tmp_path: Path, bad: Callable[[tarfile.TarFile], None]
) -> None:
    archive = tar_with(tmp_path / "x.tar", bad, full_run(lab))
    before = sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises(StoreError, match="archive-member"):
        import_run(other, archive)
    assert sorted(p.name for p in tmp_path.iterdir()) == before and other.runs() == []
    assert not Path("/tmp/evil-luxmeter").exists()
    assert sorted(p.name for p in other.folder.iterdir() if p.name.startswith(".import")) == []


def test_a_folder_comes_in_with_the_rights_of_this_user(lab: Lab, other: Lab, tmp_path: Path) -> None:
    folder = export_run(full_run(lab), tmp_path / "out")
    program = folder / "run.json"
    program.chmod(0o4777)
    before = os.umask(0o027)
    try:
        taken = import_run(other, folder).folder
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o7777 for path in taken.rglob("*") if path.is_file()}
    assert modes == {0o640}
    assert (taken / "run.json").stat().st_mtime_ns == program.stat().st_mtime_ns


@pytest.mark.parametrize("ending", ["", ".zip", ".tar"])
def test_no_export_holds_what_a_link_leads_to(lab: Lab, tmp_path: Path, ending: str) -> None:
    run = full_run(lab)
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text("the key of the house")
    (run.folder / "files").mkdir(exist_ok=True)
    (run.folder / "files" / "file").symlink_to(tmp_path / "private" / "key")
    (run.folder / "files" / "folder").symlink_to(tmp_path / "private")
    os.mkfifo(run.folder / "files" / "pipe")
    out = export_run(run, tmp_path / f"out{ending}")
    other = Lab.open(tmp_path / "third")
    taken = import_run(other, out).folder
    for place in (taken, *([] if ending else [out])):
        assert not [path for path in place.rglob("*") if path.is_file() and b"house" in path.read_bytes()]
        assert not {path.name for path in (place / "files").rglob("*")} & {"file", "folder", "pipe", "key"}


def test_a_link_that_a_later_member_writes_through(lab: Lab, other: Lab, tmp_path: Path) -> None:
    run = full_run(lab)
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.write(run.folder / "run.json", f"{run.id}/run.json")
        info = zipfile.ZipInfo("out")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, str(tmp_path))
        archive.writestr("out/evil", "x")
    with pytest.raises(StoreError, match="archive-member"):
        import_run(other, tmp_path / "x.zip")
    assert not (tmp_path / "evil").exists()
    with zipfile.ZipFile(tmp_path / "y.zip", "w") as archive:
        archive.writestr("../evil", "x")
    with pytest.raises(StoreError, match="points outside"):
        import_run(other, tmp_path / "y.zip")


def test_a_folder_with_links_is_refused(lab: Lab, other: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(full_run(lab).folder, folder)
    (folder / "files" / "passwd").symlink_to("/etc/passwd")
    with pytest.raises(StoreError, match="archive-member"):
        import_run(other, folder)


@pytest.mark.parametrize("run_id", ["../../evil", "/abs", "a/b", "", ".hidden", "x" * 65, "a\nb"])
def test_an_id_that_is_a_path_is_refused(lab: Lab, other: Lab, tmp_path: Path, run_id: str) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(full_run(lab).folder, folder)
    identity = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**identity, "id": run_id}))
    with pytest.raises(StoreError, match="run-unfit"):
        import_run(other, folder)
    with pytest.raises(StoreError, match="run-damaged"):
        other.adopt(folder)
    assert other.runs() == [] and not (tmp_path / "evil").exists()


def test_a_blob_that_holds_something_else(lab: Lab, other: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(full_run(lab).folder, folder)
    next(p for p in (folder / "blobs").glob("*/*")).write_bytes(b"evil")
    with pytest.raises(StoreError, match="does not hold what its name says"):
        import_run(other, folder)


@pytest.mark.parametrize(
    "broken",
    [
        "{}",
        "[]",
        '{"format": 1, "id": "abc", "name": 3, "created_ns": "x", "process": {}}',
        "not json",
        '{"format": 99}',
    ],
)
def test_a_broken_identity(lab: Lab, other: Lab, tmp_path: Path, broken: str) -> None:
    folder = tmp_path / "copy"
    folder.mkdir()
    (folder / "run.json").write_text(broken)
    with pytest.raises(LuxmeterError):
        import_run(other, folder)
    assert other.runs() == []


def test_files_that_are_no_archives(lab: Lab, other: Lab, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    with pytest.raises(StoreError, match="not-an-archive"):
        import_run(other, tmp_path / "text")
    whole = export_run(full_run(lab), tmp_path / "x.tar.zst")
    (tmp_path / "cut").write_bytes(whole.read_bytes()[:200])
    with pytest.raises(StoreError, match=r"not-an-archive|no-run-in-archive"):
        import_run(other, tmp_path / "cut")
    with zipfile.ZipFile(tmp_path / "empty.zip", "w") as archive:
        archive.writestr("readme", "x")
    with pytest.raises(StoreError, match="no-run-in-archive"):
        import_run(other, tmp_path / "empty.zip")
    with pytest.raises(UsageError, match="import-missing"):
        import_run(other, tmp_path / "nothing")


def test_an_archive_may_not_fill_the_disk(
    lab: Lab, other: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = export_run(full_run(lab), tmp_path / "x.zip")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100))
    with pytest.raises(StoreError, match="archive-too-large"):
        import_run(other, archive)
    assert other.runs() == []


@pytest.mark.parametrize("ending", [".tar.zst", ".tar.gz", ".tar", ".zip"])
def test_one_bit_of_an_archive_is_found(lab: Lab, tmp_path: Path, ending: str) -> None:
    """What is taken in is what was exported, to the byte, or nothing is."""
    run = full_run(lab)
    (run.folder / "files" / "noise").write_bytes(random.Random(0).randbytes(3000))
    target = export_run(run, tmp_path / f"x{ending}")
    good, rng, taken = target.read_bytes(), random.Random(1), 0
    want = contents(run.folder)
    for number in range(60):
        at = rng.randrange(len(good))
        target.write_bytes(good[:at] + bytes([good[at] ^ 1 << rng.randrange(8)]) + good[at + 1 :])
        other = Lab.open(tmp_path / f"other-{number}")
        try:
            found = import_run(other, target)
        except StoreError as error:
            assert error.slug in (
                "archive-damaged",
                "not-an-archive",
                "archive-member",
                "no-run-in-archive",
                "file-damaged",
                "archive-too-large",
            ), error
            assert not [p for p in other.folder.rglob("*") if p.name == "run.json"]
            continue
        taken += 1
        assert contents(found.folder) == want, "altered"
    assert taken < 60 if ending == ".tar" else taken <= 12, "most bits of a packed archive count"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("[!.]*") if p.is_file()}


@pytest.mark.parametrize("name", ["x.tar.gz", "x.zip", "folder"])
def test_a_file_that_is_missing_changed_or_added_is_named(
    lab: Lab, other: Lab, tmp_path: Path, name: str
) -> None:
    run = full_run(lab)
    target = export_run(run, tmp_path / name)
    if target.is_file():
        shutil.unpack_archive(target, tmp_path / "unpacked", "zip" if name == "x.zip" else "gztar")
        target = tmp_path / "unpacked"
    folder = next(target.rglob("run.json")).parent
    (folder / "params.json").write_text('{"lr": 0.2}')
    (folder / "added.txt").write_text("x")
    with pytest.raises(StoreError, match="archive-damaged") as caught:
        import_run(other, target)
    assert "params.json is not what was exported" in str(
        caught.value
    ) and "added.txt is not in its list" in str(caught.value)
    (folder / "manifest.json").unlink()  # as older versions wrote it
    (folder / "added.txt").unlink()
    assert import_run(other, target).id == run.id


def test_gzip_is_read_to_its_checksum(lab: Lab, other: Lab, tmp_path: Path) -> None:
    target = export_run(full_run(lab), tmp_path / "x.tar.gz")
    data = bytearray(target.read_bytes())
    data[-6] ^= 1  # of the CRC, behind all that tar looks at
    target.write_bytes(data)
    with pytest.raises(StoreError, match="not-an-archive"):
        import_run(other, target)
