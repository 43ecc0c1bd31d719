"""The index: what lists and filters need of every run, in a database that can be thrown away at any time.

It is brought up to date by whoever lists, from the journal and the directories; a process that trains never
opens it. SQLite by default, a file a machine (its shared memory does not work over network shares);
PostgreSQL by the setting `store.url`, where one database serves many labs.

Schema history
1: runs, params, metrics, tags, progress (how far the journal was read).
2: indexes that hold all columns of a list, and of a filter by number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from luxmeter.store.conditions import metadata, metrics, order_by, params, progress, runs, tags, where_clause
from luxmeter.store.query import Expression, Field
from luxmeter.store.rows import Entry, RunHead, RunRow

SCHEMA = 2
_MANY = 500  # rows of one IN list or one insert: SQLite limits the number of variables


class Index:
    """One lab's part of an index database."""

    def __init__(self, url: str, lab_id: str) -> None:
        self._lab = lab_id
        options: dict[str, Any] = {}
        if url == "sqlite://":  # in memory: one connection, or each would see a database of its own
            options = {"poolclass": StaticPool, "connect_args": {"check_same_thread": False}}
        elif url.startswith("sqlite"):
            options = {"connect_args": {"timeout": 30, "check_same_thread": False}}
        self.engine = sa.create_engine(url, **options)
        if self.engine.dialect.name == "sqlite":
            sa.event.listen(self.engine, "connect", _prepare_sqlite)
            sa.event.listen(self.engine, "begin", _begin_immediate)
        metadata.create_all(self.engine)
        with self.engine.begin() as connection:
            self._check_schema(connection)

    def close(self) -> None:
        """Let go of the database."""
        self.engine.dispose()

    # -- bringing it up to date -----------------------------------------------------------------------------

    @contextmanager
    def change(self) -> Iterator[Change]:
        """A transaction in which runs are taken in and dropped."""
        with self.engine.begin() as connection:
            yield Change(connection, self._lab)

    def known(self) -> tuple[set[str], set[str]]:
        """The ids it holds, and those among them to look at again."""
        with self._read() as connection:
            found = connection.execute(
                sa.select(runs.c.id, runs.c.recheck).where(runs.c.lab == self._lab)
            ).all()
        return {row.id for row in found}, {row.id for row in found if row.recheck}

    def to_recheck(self) -> set[str]:
        """The ids to look at again: they were running."""
        with self._read() as connection:
            query = sa.select(runs.c.id).where(runs.c.lab == self._lab, runs.c.recheck.is_(True))
            return set(connection.execute(query).scalars())

    def read_progress(self) -> dict[str, Any]:
        """How far the journal and the directories were read."""
        with self._read() as connection:
            text = connection.execute(
                sa.select(progress.c.value).where(progress.c.lab == self._lab, progress.c.key == "progress")
            ).scalar()
        return dict(json.loads(text)) if text else {}

    # -- asking -----------------------------------------------------------------------------------------------

    def select(
        self,
        expression: Expression | None,
        sort: Sequence[tuple[Field, bool]],
        limit: int | None,
        *,
        archived: bool | None = False,
    ) -> list[RunRow]:
        """The runs that fulfil `expression`; archived: only those, only others, or None for both."""
        query = self._query(RunRow._fields, expression, sort, limit, archived)
        with self._read() as connection:
            return list(map(RunRow._make, connection.execute(query).fetchall()))

    def select_heads(
        self,
        expression: Expression | None,
        sort: Sequence[tuple[Field, bool]],
        limit: int | None,
        *,
        archived: bool | None = False,
    ) -> list[tuple[Any, ...]]:
        """As `select`, but only the columns of a RunHead, as plain tuples: what a list of 10,000 costs is these."""
        query = self._query(RunHead._fields, expression, sort, limit, archived)
        with self._read() as connection:
            # From the driver itself: no column here needs converting, and SQLAlchemy's rows cost as much as the query.
            cursor = connection.execute(query).cursor
            return list(cursor.fetchall()) if cursor is not None else []

    def rows(self, ids: Sequence[str]) -> list[RunRow]:
        """The runs with these ids, in no order; unknown ones are left out."""
        found: list[RunRow] = []
        columns = [runs.c[name] for name in RunRow._fields]
        with self._read() as connection:
            for start in range(0, len(ids), _MANY):
                some = runs.c.id.in_(ids[start : start + _MANY])
                query = sa.select(*columns).where(runs.c.lab == self._lab, some)
                found += map(RunRow._make, connection.execute(query).fetchall())
        return found

    def _query(
        self,
        columns: Sequence[str],
        expression: Expression | None,
        sort: Sequence[tuple[Field, bool]],
        limit: int | None,
        archived: bool | None,
    ) -> sa.Select[Any]:
        query = sa.select(*(runs.c[name] for name in columns)).where(runs.c.lab == self._lab)
        if archived is not None:
            query = query.where(runs.c.archived.is_(archived))
        if expression is not None:
            query = query.where(where_clause(expression, self._lab))
        query = order_by(query, sort)
        return query if limit is None else query.limit(limit)

    def find(self, reference: str) -> list[tuple[str, str]]:
        """Ids that `reference` may mean, newest first, each with how: id, prefix, name or tag."""
        mine = runs.c.lab == self._lab
        newest = runs.c.created_ns.desc()
        with self._read() as connection:

            def ids(condition: Any) -> list[str]:
                return list(
                    connection.execute(sa.select(runs.c.id).where(mine, condition).order_by(newest)).scalars()
                )

            if exact := ids(runs.c.id == reference):
                return [(exact[0], "id")]
            # A range, not LIKE: that could not use the key.
            beginning = (runs.c.id >= reference) & (runs.c.id < reference + "\U0010ffff")
            prefixed = [(id_, "prefix") for id_ in ids(beginning)]
            named = [(id_, "name") for id_ in ids(runs.c.name == reference)]
            tagged = sa.select(tags.c.run).where(tags.c.lab == self._lab, tags.c.tag == reference)
            return named or [(id_, "tag") for id_ in ids(runs.c.id.in_(tagged))] or prefixed

    def newest(self, number: int) -> str | None:
        """The id of the run that is `number` before the newest, archived ones left out."""
        query = sa.select(runs.c.id).where(runs.c.lab == self._lab, runs.c.archived.is_(False))
        with self._read() as connection:
            return connection.execute(
                query.order_by(runs.c.created_ns.desc()).offset(number).limit(1)
            ).scalar()

    @contextmanager
    def _read(self) -> Iterator[sa.Connection]:
        with self.engine.connect().execution_options(luxmeter_reads=True) as connection:
            yield connection

    def _check_schema(self, connection: sa.Connection) -> None:
        key = (progress.c.lab == "") & (progress.c.key == "schema")
        found = connection.execute(sa.select(progress.c.value).where(key)).scalar()
        if found is None:
            connection.execute(progress.insert().values(lab="", key="schema", value=str(SCHEMA)))
        elif int(found) != SCHEMA:
            # Derived data of another version: made anew, from the directories.
            metadata.drop_all(connection)
            metadata.create_all(connection)
            connection.execute(progress.insert().values(lab="", key="schema", value=str(SCHEMA)))


class Change:
    """A transaction on one lab's part."""

    def __init__(self, connection: sa.Connection, lab: str) -> None:
        self._connection = connection
        self._lab = lab

    def drop(self, ids: Iterable[str]) -> None:
        """Forget runs."""
        listed = list(ids)
        for start in range(0, len(listed), _MANY):
            some = listed[start : start + _MANY]
            for table, column in ((params, "run"), (metrics, "run"), (tags, "run"), (runs, "id")):
                self._connection.execute(
                    table.delete().where(table.c.lab == self._lab, table.c[column].in_(some))
                )

    def put(self, entries: Iterable[Entry]) -> None:
        """Take runs in, in place of what was known of them."""
        listed = list(entries)
        self.drop(entry.row.id for entry in listed)
        lab = self._lab
        self._insert(runs, [{"lab": lab, "recheck": e.recheck, **e.row._asdict()} for e in listed])
        self._insert(
            params,
            [
                {"lab": lab, "run": e.row.id, "key": k, **_typed(v)}
                for e in listed
                for k, v in e.params.items()
            ],
        )
        self._insert(
            metrics,
            [
                {"lab": lab, "run": e.row.id, "key": k, **_finite(v)}
                for e in listed
                for k, v in e.metrics.items()
            ],
        )
        self._insert(tags, [{"lab": lab, "run": e.row.id, "tag": t} for e in listed for t in e.row.tags])

    def set_progress(self, value: dict[str, Any]) -> None:
        """Remember how far the journal and the directories were read."""
        key = (progress.c.lab == self._lab) & (progress.c.key == "progress")
        self._connection.execute(progress.delete().where(key))
        self._connection.execute(
            progress.insert().values(lab=self._lab, key="progress", value=json.dumps(value))
        )

    def _insert(self, table: sa.Table, rows: list[dict[str, Any]]) -> None:
        for start in range(0, len(rows), _MANY):
            self._connection.execute(table.insert(), rows[start : start + _MANY])


def sqlite_url(file: Path) -> str:
    """The URL of a SQLite file."""
    return f"sqlite:///{file}"


def _typed(value: Any) -> dict[str, Any]:
    number = float(value) if isinstance(value, bool | int | float) and abs(value) < 1e300 else None
    return {"number": number, "text": str(value)}


def _finite(summary: dict[str, Any]) -> dict[str, Any]:
    return {name: summary[name] for name in ("n", "last", "last_step", "min", "max")}


def _prepare_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # transactions are begun below, not by the driver's guess
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=OFF")  # derived: after a crash of the machine it is made anew


def _begin_immediate(connection: sa.Connection) -> None:
    # A writer that begins as a reader can be refused half-way ("database is locked"); one that says so waits.
    reads = connection.get_execution_options().get("luxmeter_reads")
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
