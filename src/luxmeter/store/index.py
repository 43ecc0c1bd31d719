"""The index: what lists and filters need of every run, in a database that can be thrown away at any time.

It is brought up to date by whoever lists, from the journal and the directories; a process that trains never
opens it. SQLite by default, a file a machine (its shared memory does not work over network shares);
PostgreSQL by the setting `store.url` (database.py), where one database serves many labs on many machines.

Schema history
1: runs, params, metrics, tags, progress (how far the journal was read).
2: indexes that hold all columns of a list, and of a filter by number.
3: the head of a run as one text, tables without row numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from luxmeter.errors import StoreError
from luxmeter.store.conditions import asked
from luxmeter.store.database import Database
from luxmeter.store.query import Expression, Field
from luxmeter.store.rows import Entry, RunHeads, RunRow
from luxmeter.store.tables import KEY_LENGTH, metadata, metrics, params, progress, runs, tags

SCHEMA = 3
_MANY = 500  # rows of one IN list or one insert: SQLite limits the number of variables


class Index:
    """One lab's part of an index database."""

    def __init__(self, url: str, lab_id: str) -> None:
        self._lab = lab_id
        self.database = Database(url)
        self._read = self.database.read
        # Asked before each answer: made once.
        self._progress = sa.select(progress.c.value).where(
            progress.c.lab == lab_id, progress.c.key == "progress"
        )
        self._recheck = sa.select(runs.c.id).where(runs.c.lab == lab_id, runs.c.recheck.is_(True))
        try:
            with self.database.change() as connection:
                self._check_schema(connection)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the database."""
        self.database.close()

    # -- bringing it up to date -----------------------------------------------------------------------------

    @contextmanager
    def change(self) -> Iterator[IndexChange]:
        """A transaction in which runs are taken in and dropped."""
        with self.database.change(self._lab) as connection:
            yield IndexChange(connection, self._lab)

    def known(self) -> tuple[set[str], set[str]]:
        """The ids it holds, and those among them to look at again."""
        with self._read() as connection:
            found = connection.execute(
                sa.select(runs.c.id, runs.c.recheck).where(runs.c.lab == self._lab)
            ).all()
        return {row.id for row in found}, {row.id for row in found if row.recheck}

    def standing(self) -> tuple[dict[str, Any], set[str]]:
        """How far the journal and the directories were read, and the ids to look at again: they were running."""
        with self._read() as connection:
            text = connection.execute(self._progress).scalar()
            recheck = set(connection.execute(self._recheck).scalars())
        return dict(json.loads(text)) if text else {}, recheck

    def folder_on(self, host: str) -> str | None:
        """Where the lab lay on a machine when that last opened the index."""
        found = sa.select(progress.c.value).where(
            progress.c.lab == self._lab, progress.c.key == _folder_key(host)
        )
        with self._read() as connection:
            return connection.execute(found).scalar()

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
        columns = [runs.c[name] for name in RunRow._fields]
        with self._read() as connection:
            found = connection.execute(self._query(columns, expression, sort, limit, archived)).fetchall()
        return list(map(RunRow._make, found))

    def select_heads(
        self,
        expression: Expression | None,
        sort: Sequence[tuple[Field, bool]],
        limit: int | None,
        *,
        archived: bool | None = False,
    ) -> RunHeads:
        """As `select`, but only the head of each, all in one text: 10,000 of them come as quickly as 100 rows do."""
        found = self._query([runs.c.head], expression, sort, limit, archived).subquery()
        join = sa.func.string_agg if self.database.is_server else sa.func.group_concat
        with self._read() as connection:
            count, text = connection.execute(sa.select(sa.func.count(), join(found.c.head, ","))).one()
        return RunHeads(count, text or "")

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
        columns: Sequence[Any],
        expression: Expression | None,
        sort: Sequence[tuple[Field, bool]],
        limit: int | None,
        archived: bool | None,
    ) -> sa.Select[Any]:
        query = sa.select(*columns).where(runs.c.lab == self._lab)
        if archived is not None:
            query = query.where(runs.c.archived.is_(archived))
        return asked(query, expression, sort, self._lab, limit=limit)

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

    def _check_schema(self, connection: sa.Connection) -> None:
        key = (progress.c.lab == "") & (progress.c.key == "schema")
        version = sa.select(progress.c.value).where(key)
        if self.database.is_server:
            progress.create(connection, checkfirst=True)
            self._refuse_newer(connection.execute(version).scalar())
        metadata.create_all(connection)
        found = connection.execute(version).scalar()
        if found is None:
            connection.execute(progress.insert().values(lab="", key="schema", value=str(SCHEMA)))
        elif int(found) != SCHEMA:
            # Derived data of another version: made anew, from the directories.
            metadata.drop_all(connection)
            metadata.create_all(connection)
            connection.execute(progress.insert().values(lab="", key="schema", value=str(SCHEMA)))

    def _refuse_newer(self, found: str | None) -> None:
        """Others use it: made anew by this version, it would be made anew by theirs, and so on."""
        if found is not None and int(found) > SCHEMA:
            raise StoreError(
                "index-version",
                f"The index in {self.database.shown} is of version {found}; this luxmeter knows up to {SCHEMA}.",
                "Update luxmeter on this machine.",
            )


class IndexChange:
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
        self._insert(runs, [_run(lab, e) for e in listed])
        self._insert(
            params,
            [
                {"lab": lab, "run": e.row.id, "key": key, **_typed(v)}
                for e in listed
                for key, v in _short(e.params)
            ],
        )
        self._insert(
            metrics,
            [
                {"lab": lab, "run": e.row.id, "key": key, **_finite(v)}
                for e in listed
                for key, v in _short(e.metrics)
            ],
        )
        self._insert(
            tags,
            [
                {"lab": lab, "run": e.row.id, "tag": tag}
                for e in listed
                for tag, _ in _short(dict.fromkeys(e.row.tags))
            ],
        )

    def set_progress(self, value: dict[str, Any]) -> None:
        """Remember how far the journal and the directories were read."""
        self._set("progress", json.dumps(value))

    def set_folder(self, host: str, folder: str) -> None:
        """Remember where the lab lies on a machine: its runs are in `runs/<id>` below."""
        self._set(_folder_key(host), _storable(folder))

    def _set(self, key: str, value: str) -> None:
        same = (progress.c.lab == self._lab) & (progress.c.key == key)
        self._connection.execute(progress.delete().where(same))
        self._connection.execute(progress.insert().values(lab=self._lab, key=key, value=value))

    def _insert(self, table: sa.Table, rows: list[dict[str, Any]]) -> None:
        for start in range(0, len(rows), _MANY):
            self._connection.execute(table.insert(), rows[start : start + _MANY])


def _folder_key(host: str) -> str:
    return f"folder on {host}"[:64]


def _run(lab: str, entry: Entry) -> dict[str, Any]:
    row = {name: _storable(v) if isinstance(v, str) else v for name, v in entry.row._asdict().items()}
    return {"lab": lab, "recheck": entry.recheck, "head": entry.row.head.text, **row}


def _short(values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What can be asked for by name. A name past the column's length is not refused, but no filter finds it."""
    plain = {_storable(key): value for key, value in values.items()}
    return ((key, value) for key, value in plain.items() if len(key) <= KEY_LENGTH)


def _storable(text: str) -> str:
    """A text that any database takes: PostgreSQL has no NUL, neither has half a character (a file name's odd byte)."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def _typed(value: Any) -> dict[str, Any]:
    number = float(value) if isinstance(value, bool | int | float) and abs(value) < 1e300 else None
    return {"number": number, "text": _storable(str(value))}


def _finite(summary: dict[str, Any]) -> dict[str, Any]:
    return {name: summary[name] for name in ("n", "last", "last_step", "min", "max")}
