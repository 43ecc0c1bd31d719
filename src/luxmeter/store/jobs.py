"""The jobs of a lab's queue: one table, which is no part of the index.

An index can be made anew from the runs' directories; jobs cannot. So they rest in a file of their own
(`queue/jobs.sqlite`, one for all machines that share the lab, written through to the disk), or, where `store.url` names a
PostgreSQL database, in a table of their own there: `luxmeter reindex` touches neither.

Schema history
1: jobs, facts (the schema's number).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from luxmeter.errors import StoreError
from luxmeter.files import parsed_json
from luxmeter.process import Process
from luxmeter.store import layout
from luxmeter.store.database import Connection, Database, server_url, sqlite_url
from luxmeter.typed_fields import checked_fields

SCHEMA = 1
JOB_STATES = ("queued", "running", "done", "failed", "cancelled", "lost")
ENDED = ("done", "failed", "cancelled", "lost")

_JOBS = "luxmeter_jobs"
_FACTS = "luxmeter_jobs_facts"
# `job` is the whole Job as JSON.
_TABLES = (
    f"""create table {_JOBS} (lab varchar(32) not null, id bigint not null, state varchar(16) not null,
        priority integer not null, group_name text not null, job text not null, primary key (lab, id))""",
    f"create index luxmeter_jobs_state on {_JOBS} (lab, state)",
    f"create table {_FACTS} (key varchar(64) not null primary key, value text)",
)


@dataclass(frozen=True)
class Needs:
    """What must be free for a job. `gpus` None: one where the machine has any. `is_measured`: so much memory its last run used."""

    memory_bytes: int = 0
    cpus: int = 1
    gpus: int | None = None
    is_measured: bool = False


@dataclass(frozen=True)
class Job:
    """One entry of the queue."""

    id: int
    program: str  # the script or config, from the project's folder on
    kind: str  # script or config
    arguments: tuple[str, ...]
    cwd: str
    root: str  # the project's folder
    code: str  # what its code is kept under, as it was when the job was queued
    python: str
    created_ns: int
    state: str = "queued"
    needs: Needs = Needs()
    priority: int = 0
    retries: int = 0
    after: tuple[int, ...] = ()
    group: str = ""
    trial: Mapping[str, Any] = field(default_factory=dict)  # of a sweep: the values that were chosen
    engine: str = ""  # what runs it: local, ray, slurm; empty until it was started
    place: str = ""  # what the engine calls it
    attempt: int = 0  # how often it was started
    run: str = ""  # the id reserved for its run
    worker: Process | None = None
    process: Process | None = None
    gpus: tuple[int, ...] = ()
    asked: str = ""  # cancel: somebody wants its end
    started_ns: int | None = None
    ended_ns: int | None = None
    exit_code: int | None = None
    why: str = ""

    @property
    def typed(self) -> list[str]:
        """What it runs, as it was typed."""
        return [self.program, *self.arguments]

    def record(self) -> dict[str, Any]:
        """As plain values."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        for name in ("worker", "process", "needs"):
            plain[name] = None if plain[name] is None else dict(vars(plain[name]))
        return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}

    @staticmethod
    def of(record: Mapping[str, Any]) -> Job:
        """From its record; what a newer version added is passed over."""
        known = {each.name: record[each.name] for each in fields(Job) if each.name in record}
        for name in ("arguments", "after", "gpus"):
            known[name] = tuple(known.get(name, ()))
        for name in ("worker", "process"):
            known[name] = Process.of(known[name]) if known.get(name) else None
        return Job(**{**known, "needs": Needs(**known["needs"])})


class JobTable:
    """One lab's jobs. Whoever changes them is alone while the transaction lasts."""

    def __init__(self, lab_folder: Path, lab_id: str) -> None:
        self.folder = lab_folder / layout.QUEUE
        self._file = self.folder / "jobs.sqlite"
        self._lab = lab_id
        self.database = Database(server_url(lab_folder) or sqlite_url(self._file), durable=True)
        self._is_checked = False

    def close(self) -> None:
        """Let go of the database."""
        self.database.close()

    def jobs(self, *states: str, group: str = "") -> list[Job]:
        """Those in one of these states, or all, in the order they were added."""
        if not self.database.is_server and not self._file.is_file():
            return []
        with self._told(), self.database.read() as connection:
            if not self._is_checked:
                if not connection.has_table(_JOBS):
                    return []
                self._check_version(connection)
            return _select(connection, self._lab, states, group)

    @contextmanager
    def change(self) -> Iterator[JobChange]:
        """A transaction: what is read in it stays true until its end, and nobody else changes anything."""
        if not self.database.is_server:
            try:
                self.folder.mkdir(exist_ok=True)
            except OSError as error:
                raise _not_writable(self.folder, str(error.strerror)) from error
        with self._told():
            if not self._is_checked:
                with self.database.change() as connection:
                    if not connection.has_table(_JOBS):  # `if not exists` would wait for all who write
                        for statement in _TABLES:
                            connection.do(statement)
                    self._check_version(connection)
            with self.database.change(f" queue {self._lab}") as connection:
                yield JobChange(connection, self._lab)

    def _check_version(self, connection: Connection) -> None:
        found = connection.value(f"select value from {_FACTS} where key = 'schema'")
        if found is None:
            connection.do(f"insert into {_FACTS} (key, value) values ('schema', ?)", str(SCHEMA))
        elif not str(found).isdecimal() or len(str(found)) > 9:
            raise _damaged(f"its format is {str(found)[:80]!r}")
        elif int(found) > SCHEMA:
            raise StoreError(
                "queue-format",
                f"The queue of this lab has format {found}; this version reads up to {SCHEMA}.",
                "Update luxmeter to use it.",
            )
        else:
            self._is_checked = True

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What goes wrong with the file, in our words."""
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeError) as error:  # its texts are as they lie in the file
            said = str(error).strip()
            if "locked" in said or "busy" in said:
                raise StoreError(
                    "queue-locked",
                    f"Another program holds {self._file} for itself ({said}).",
                    "End it, then try again; jobs that run go on.",
                ) from error
            if "readonly" in said or "unable to open" in said:
                raise _not_writable(self._file, said) from error
            raise StoreError(
                "queue-damaged",
                f"{self._file} cannot be read: {said}.",
                "Restore it from a copy, or move it away and queue anew: runs are not touched.",
            ) from error


class JobChange:
    """A transaction on one lab's jobs."""

    def __init__(self, connection: Connection, lab: str) -> None:
        self._connection = connection
        self._lab = lab

    def jobs(self, *states: str, group: str = "") -> list[Job]:
        """As `JobTable.jobs`."""
        return _select(self._connection, self._lab, states, group)

    def get(self, number: int) -> Job | None:
        """The job of this number."""
        query = f"select job from {_JOBS} where lab = ? and id = ?"
        text = self._connection.value(query, self._lab, number)
        return None if text is None else _job(text)

    def next_id(self) -> int:
        """The number of the next job: one more than the last ever."""
        last = self._connection.value(f"select max(id) from {_JOBS} where lab = ?", self._lab) or 0
        if not isinstance(last, int):  # SQLite keeps whatever was put into a column
            raise _damaged(f"its last number is {str(last)[:80]!r}")
        return last + 1

    def put(self, job: Job) -> None:
        """Write a job down, in place of what was known of it."""
        values = (job.state, job.priority, job.group, _text(job), self._lab, job.id)
        changed = (
            f"update {_JOBS} set state = ?, priority = ?, group_name = ?, job = ? where lab = ? and id = ?"
        )
        if not self._connection.do(changed, *values):
            added = (
                f"insert into {_JOBS} (state, priority, group_name, job, lab, id) values (?, ?, ?, ?, ?, ?)"
            )
            self._connection.do(added, *values)


def _select(connection: Connection, lab: str, states: Sequence[str], group: str) -> list[Job]:
    query, values = f"select job from {_JOBS} where lab = ?", [lab]
    if states:
        query += f" and state in ({', '.join('?' * len(states))})"
        values += states
    if group:
        query += " and group_name = ?"
        values.append(group)
    return [_job(text) for (text,) in connection.rows(f"{query} order by id", *values)]


def _job(text: str) -> Job:
    try:
        job = checked_fields(Job.of(parsed_json(text)))
        checked_fields(job.needs)
        # Folders are called after these, and cleared away when the job is over.
        if not layout.is_named("file", job.code) or not (job.run == "" or layout.is_named("run", job.run)):
            raise ValueError(f"its code is {job.code[:80]!r} and its run {job.run[:80]!r}")
        if job.state not in JOB_STATES or job.id < 1:
            raise ValueError(f"its number is {job.id} and its state {job.state[:80]!r}")
        return job
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _damaged(f"it holds an entry that is no job: {error}") from error


def _text(job: Job) -> str:
    return json.dumps(job.record()).replace("\\u0000", "\\ufffd")  # PostgreSQL has no NUL


def _damaged(why: str) -> StoreError:
    return StoreError(
        "queue-damaged",
        f"The queue cannot be read: {why}.",
        "Restore it from a copy, or move it away and queue anew: runs are not touched.",
    )


def _not_writable(place: Path, why: str) -> StoreError:
    return StoreError(
        "queue-not-writable",
        f"The queue in {place} cannot be changed: {why}.",
        "Give rights there, or name another lab with LUXMETER_HOME.",
    )
