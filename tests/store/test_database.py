"""The databases of a lab where they are no file, not there, or inherited by a fork; and what filters ask of them."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from luxmeter.errors import LuxmeterWarning, StoreError, UsageError
from luxmeter.store import Job, JobTable, Lab, layout
from luxmeter.store.database import Database, _server_engine, sqlite_url


def _count(database: Database, told: multiprocessing.Queue[int]) -> None:
    with database.read() as connection:
        told.put(connection.value("select count(*) from numbers"))
    database.close()


def test_a_forked_child_opens_a_file_anew(tmp_path: Path) -> None:
    """On its parent's connection it would let go of its parent's locks; what the parent holds it neither uses nor closes."""
    database = Database(sqlite_url(tmp_path / "a.sqlite"))
    with database.change() as connection:
        connection.do("create table numbers (n integer)")
        connection.do_many("insert into numbers values (?)", [(1,), (2,)])
        connection.do_many("insert into numbers values (?)", [])
    context = multiprocessing.get_context("fork")
    told: multiprocessing.Queue[int] = context.Queue()
    child = context.Process(target=_count, args=(database, told))
    child.start()
    assert told.get(timeout=60) == 2
    child.join()
    idle = context.Process(target=database.close)  # what it never used is its parent's
    idle.start()
    idle.join()
    assert idle.exitcode == 0
    told.close()
    told.join_thread()
    assert child.exitcode == 0
    with database.read() as connection:
        assert connection.value("select count(*) from numbers") == 2
    assert database.version().startswith("SQLite 3")
    database.close()


def test_the_time_to_connect_is_the_users_if_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """libpq reads PGCONNECT_TIMEOUT, unless the connection says another."""
    seen: list[dict[str, str]] = []
    import sqlalchemy

    real = sqlalchemy.create_engine

    def create(*arguments: object, **options: object) -> sqlalchemy.Engine:
        seen.append(dict(options["connect_args"]))  # type: ignore[call-overload]
        return real(*arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(sqlalchemy, "create_engine", create)
    _server_engine("postgresql://u@h/d").dispose()
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "3")
    _server_engine("postgresql://u@h/d").dispose()
    assert ["connect_timeout" in one for one in seen] == [True, False]
    with pytest.raises(UsageError, match="store-url"):
        _server_engine("postgresql://u@h:port/d")


def test_filters_of_what_is_archived(lab: Lab) -> None:
    for name in ("kept", "away"):
        lab.create_run(name).finish()
    lab.find("away").archive()
    for where, names in (
        ("archived = true", ["away"]),
        ("archived != true", ["kept"]),
        ("archived = false", ["kept"]),
    ):
        assert [row.name for row in lab.runs(where, archived=None)] == names
    with pytest.raises(UsageError, match="expected a field"):
        lab.runs("> 3")


def test_a_run_in_a_folder_that_no_id_names_is_said(lab: Lab) -> None:
    lab.create_run("a").finish()
    (lab.folder / layout.RUNS / lab.runs()[0].id).rename(lab.folder / layout.RUNS / "not an id")
    with pytest.warns(LuxmeterWarning, match=r"'not an id'.*cannot be a run's id"):
        assert lab.reindex() == 0


JOB = Job(1, "a.py", "script", (), "/", "/", "c", "python", 1, group="g")
JOB_TEXT = json.dumps(JOB.record())


def test_the_jobs_of_a_group(lab: Lab) -> None:
    table = JobTable(lab.folder, lab.id)
    assert table.jobs() == [] and not table.folder.exists()
    with table.change() as change:
        change.put(JOB)
        change.put(Job(2, "b.py", "script", (), "/", "/", "c", "python", 1))
        assert [job.id for job in change.jobs(group="g")] == [1] and change.get(3) is None
    assert [job.id for job in table.jobs(group="g")] == [1] and [job.id for job in table.jobs("queued")] == [
        1,
        2,
    ]
    table.close()


def test_where_the_queue_cannot_be_made(lab: Lab) -> None:
    (lab.folder / layout.QUEUE).write_text("a file lies here")
    table = JobTable(lab.folder, lab.id)
    with pytest.raises(StoreError, match="queue-not-writable"), table.change():
        pass
    table.close()


@pytest.mark.parametrize("lab", ["postgresql"], indirect=True)
def test_the_jobs_of_a_lab_on_a_server(lab: Lab) -> None:
    table = JobTable(lab.folder, lab.id)
    assert table.jobs() == [], "there is no table yet"
    with table.change() as change:
        change.put(JOB)
    assert [job.id for job in table.jobs(group="g")] == [1] and not table.folder.exists()
    table.close()


@pytest.mark.parametrize("lab", ["postgresql"], indirect=True)
def test_a_lab_that_moved_is_no_copy_of_where_it_was(lab: Lab, tmp_path: Path) -> None:
    """Whatever lies there now: another lab, something damaged, nothing."""
    lab.create_run("a").finish()
    assert len(lab.runs()) == 1
    lab.close()
    for number, left in enumerate(("{broken", '{"format": 1, "id": "other"}', "[1]")):
        folder = lab.folder.rename(tmp_path / f"moved{number}")
        lab.folder.mkdir()
        (lab.folder / "lab.json").write_text(left)
        lab = Lab.open(folder)
        assert len(lab.runs()) == 1
        lab.close()


@pytest.mark.parametrize(
    "text",
    ["{broken", "[1]", "{}", '{"id": 1}', '{"id": "x", "program": 7}', "[" * 100_000,
     JOB_TEXT.replace('"memory_bytes": 0', '"memory_bytes": "all"'), JOB_TEXT.replace('"process": null', '"process": {"pid": 1}')],
)  # fmt: skip
def test_a_job_that_is_none(lab: Lab, text: str) -> None:
    table = JobTable(lab.folder, lab.id)
    with table.change() as change:
        change.put(JOB)
        change._connection.do("update luxmeter_jobs set job = ?", text)
    with pytest.raises(StoreError, match=r"an entry that is no job.*queue-damaged"):
        table.jobs()
    with table.change() as change, pytest.raises(StoreError, match="queue-damaged"):
        change.get(1)
    table.close()


def test_texts_of_a_queue_that_are_none(lab: Lab) -> None:
    table = JobTable(lab.folder, lab.id)
    with table.change() as change:
        change.put(JOB)
    with pytest.raises(StoreError, match="queue-damaged"), table.change() as change:
        change._connection.do("update luxmeter_jobs set job = ?", "\ud800")
    with table.change() as change:
        change._connection.do("update luxmeter_jobs set job = cast(x'ff8c' as text)")
    with pytest.raises(StoreError, match="queue-damaged"):
        table.jobs()
    table.close()


@pytest.mark.parametrize("column", ["params", "metrics", "tags"])
def test_what_a_disk_changed_in_the_index(lab: Lab, column: str) -> None:
    """Text that is none, and JSON that is none: made anew where it is asked, told where it is shown."""
    with lab.create_run("a", params={"lr": 0.1}, tags=["best"]) as run:
        run.log({"loss": 1.0}, step=0)
    assert lab.runs()[0].params == {"lr": 0.1}
    lab.close()
    [file] = (lab.folder / layout.INDEX).glob("*.sqlite")
    good = {"params": b'"lr"', "metrics": b'"loss"', "tags": b'["best"'}[column]
    data = file.read_bytes()
    assert good in data
    file.write_bytes(data.replace(good, b"[" * len(good)))
    [row] = lab.runs()
    with pytest.raises(StoreError, match="index-damaged"):
        row.record()
    lab.close()
    data = file.read_bytes()
    file.write_bytes(
        data.replace(b"create table", b"create \xff\xfeble").replace(b"CREATE TABLE", b"CREATE \xff\xfeBLE")
    )
    with pytest.warns(LuxmeterWarning, match="index-damaged"):
        assert lab.runs()[0].params == {"lr": 0.1}
