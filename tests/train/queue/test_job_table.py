"""The table of jobs: kept by reindex, and clear words where its database cannot be used."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from luxmeter.errors import StoreError
from luxmeter.train import Queue, Wanted, open_queue


@pytest.fixture
def queue(queue: Queue, tmp_path: Path) -> Queue:
    """With a job in it."""
    queue.add(tmp_path / "project/script.py", [Wanted(["--lr", "0.1"])])
    return queue


def test_jobs_stay_when_the_index_is_made_anew(queue: Queue) -> None:
    before = queue.table.jobs()
    assert queue.lab.reindex() == 0
    assert queue.table.jobs() == before and before[0].arguments == ("--lr", "0.1")
    assert before[0].typed == [before[0].program, "--lr", "0.1"]
    assert queue.lab.gc(older_than_s=-1)["blobs"] == 0  # the code of a job that waits is in use
    queue.lab.close()


def test_the_same_code_is_kept_once(queue: Queue, tmp_path: Path) -> None:
    script = tmp_path / "project/script.py"
    queue.add(script, [Wanted(()), Wanted(())])
    assert len({job.code for job in queue.table.jobs()}) == 1
    script.write_text("print('other')\n")
    queue.add(script, [Wanted(())])
    assert len({job.code for job in queue.table.jobs()}) == 2


def test_a_locked_database_is_told(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.table.close()
    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, timeout, **o: real(*a, timeout=0.02, **o))
    other = real(queue.folder / "jobs.sqlite", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(StoreError, match="queue-locked"):
            queue.cancel(queue.table.jobs()[0])
    finally:
        other.close()
    assert queue.table.jobs()[0].state == "queued"


def test_a_read_only_database_is_listed_but_not_changed(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.table.close()
    real = sqlite3.connect

    def read_only(
        path: str, *args: object, **options: object
    ) -> sqlite3.Connection:  # root may write anything
        return real(f"file:{path}?mode=ro", *args, uri=True, **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(sqlite3, "connect", read_only)
    assert len(queue.table.jobs()) == 1
    with pytest.raises(StoreError, match="queue-not-writable"):
        queue.cancel(queue.table.jobs()[0])


def test_a_damaged_database_is_told(queue: Queue) -> None:
    queue.table.close()
    (queue.folder / "jobs.sqlite").write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match="queue-damaged"):
        queue.table.jobs()


def test_a_newer_format_is_refused(queue: Queue) -> None:
    with queue.table.database.change() as connection:
        connection.do("update luxmeter_jobs_facts set value = '2'")
    again = open_queue()
    with pytest.raises(StoreError, match="queue-format"):
        again.table.jobs()
    again.close()
