"""Blobs: kept once, linked where links are, copied where not; what is not whole is refused."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from luxmeter.errors import StoreError
from luxmeter.files import sha256_of
from luxmeter.store import Lab, RunWriter
from luxmeter.store.blobs import BlobPool, blob_path, read_blob

BODY = b"body" * 99


@pytest.fixture
def run(lab: Lab) -> RunWriter:
    return lab.create_run("a")


def end(run: RunWriter) -> None:
    run.finish()


def test_a_file_is_taken_as_bytes_are(lab: Lab, run: RunWriter, tmp_path: Path) -> None:
    (tmp_path / "big.bin").write_bytes(BODY)
    name = lab.pool.put(tmp_path / "big.bin", run.folder)
    assert name == lab.pool.put(BODY, run.folder) == sha256_of(tmp_path / "big.bin")
    assert read_blob(run.folder, name) == BODY
    assert blob_path(run.folder, name).stat().st_nlink == 2
    end(run)


def test_where_there_are_no_links_the_run_gets_a_copy(
    lab: Lab, run: RunWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        name = lab.pool.put(BODY, run.folder)
    assert read_blob(run.folder, name) == BODY
    assert blob_path(run.folder, name).stat().st_nlink == 1
    assert sorted(path.name for path in blob_path(run.folder, name).parent.iterdir()) == [name]
    end(run)


def test_two_that_put_the_same_at_once(lab: Lab, run: RunWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.link

    def link(source: Path, target: Path) -> None:
        real(source, target)  # another process was faster
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", link)
        name = lab.pool.put(BODY, run.folder)
    assert read_blob(run.folder, name) == BODY
    end(run)


def test_blobs_that_are_gone_or_not_whole(lab: Lab, run: RunWriter) -> None:
    name = lab.pool.put(BODY, run.folder)
    place = blob_path(run.folder, name)
    place.unlink()
    with pytest.raises(StoreError, match="blob-missing"):
        read_blob(run.folder, name)
    place.write_bytes(BODY[:-1])
    with pytest.raises(StoreError, match="does not hold what its name says"):
        read_blob(run.folder, name)
    place.unlink()
    place.mkdir()
    with pytest.raises(StoreError, match=r"cannot be read: Is a directory.*blob-damaged"):
        read_blob(run.folder, name)
    end(run)


def test_a_file_that_cannot_be_read_leaves_nothing(tmp_path: Path) -> None:
    pool = BlobPool(tmp_path / "lab")
    with pytest.raises(FileNotFoundError):
        pool.put(tmp_path / "none", tmp_path)
    assert not pool.folder.exists()
