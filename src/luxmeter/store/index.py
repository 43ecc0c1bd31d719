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

from luxmeter.errors import StoreError
from luxmeter.store import tables
from luxmeter.store.conditions import asked
from luxmeter.store.database import Connection, Database
from luxmeter.store.query import Expression, Field
from luxmeter.store.rows import Entry, RunHeads, RunRow
from luxmeter.store.tables import KEY_LENGTH, METRICS, PARAMS, PROGRESS, RUNS, TAGS

SCHEMA = 3
_MANY = 500  # values of one IN list: SQLite limits the number of variables
_ROW = ", ".join(f"{RUNS}.{name}" for name in RunRow._fields)
_RUN = ", ".join(("lab", "recheck", "head", *RunRow._fields))
_SUMMARY = ("n", "last", "last_step", "min", "max")
_PROGRESS = f"select value from {PROGRESS} where lab = ? and key = ?"
_SET_PROGRESS = f"insert into {PROGRESS} (lab, key, value) values (?, ?, ?)"


class Index:
    """One lab's part of an index database."""

    def __init__(self, url: str, lab_id: str) -> None:
        self._lab = lab_id
        self.database = Database(url)
        self._read = self.database.read
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
            found = connection.rows(f"select id, recheck from {RUNS} where lab = ?", self._lab)
        return {id_ for id_, _ in found}, {id_ for id_, recheck in found if recheck}

    def standing(self) -> tuple[dict[str, Any], set[str]]:
        """How far the journal and the directories were read, and the ids to look at again: they were running."""
        with self._read() as connection:
            text = connection.value(_PROGRESS, self._lab, "progress")
            recheck = connection.rows(f"select id from {RUNS} where lab = ? and recheck = ?", self._lab, True)
        return dict(json.loads(text)) if text else {}, {id_ for (id_,) in recheck}

    def folder_on(self, host: str) -> str | None:
        """Where the lab lay on a machine when that last opened the index."""
        with self._read() as connection:
            found: str | None = connection.value(_PROGRESS, self._lab, _folder_key(host))
        return found

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
        query = asked(_ROW, expression, sort, self._lab, archived=archived, limit=limit)
        with self._read() as connection:
            return list(map(RunRow._make, connection.rows(query.text, *query.values)))

    def select_heads(
        self,
        expression: Expression | None,
        sort: Sequence[tuple[Field, bool]],
        limit: int | None,
        *,
        archived: bool | None = False,
    ) -> RunHeads:
        """As `select`, but only the head of each, all in one text: 10,000 of them come as quickly as 100 rows do."""
        query = asked(f"{RUNS}.head", expression, sort, self._lab, archived=archived, limit=limit)
        join = "string_agg" if self.database.is_server else "group_concat"
        with self._read() as connection:
            statement = f"select count(*), {join}(head, ',') from ({query.text}) found"
            ((count, text),) = connection.rows(statement, *query.values)
        return RunHeads(count, text or "")

    def rows(self, ids: Sequence[str]) -> list[RunRow]:
        """The runs with these ids, in no order; unknown ones are left out."""
        found: list[RunRow] = []
        with self._read() as connection:
            for some in _batches(list(ids)):
                query = f"select {_ROW} from {RUNS} where lab = ? and id in ({_marks(some)})"
                found += map(RunRow._make, connection.rows(query, self._lab, *some))
        return found

    def find(self, reference: str) -> list[tuple[str, str]]:
        """Ids that `reference` may mean, newest first, each with how: id, prefix, name or tag."""
        with self._read() as connection:

            def ids(condition: str, *values: str) -> list[str]:
                query = f"select id from {RUNS} where lab = ? and {condition} order by created_ns desc"
                return [id_ for (id_,) in connection.rows(query, self._lab, *values)]

            if exact := ids("id = ?", reference):
                return [(exact[0], "id")]
            # A range, not LIKE: that could not use the key.
            prefixed = [
                (id_, "prefix") for id_ in ids("id >= ? and id < ?", reference, reference + "\U0010ffff")
            ]
            named = [(id_, "name") for id_ in ids("name = ?", reference)]
            tagged = f"id in (select run from {TAGS} where lab = ? and tag = ?)"
            return named or [(id_, "tag") for id_ in ids(tagged, self._lab, reference)] or prefixed

    def newest(self, number: int) -> str | None:
        """The id of the run that is `number` before the newest, archived ones left out."""
        query = (
            f"select id from {RUNS} where lab = ? and archived = ? order by created_ns desc limit 1 offset ?"
        )
        with self._read() as connection:
            found: str | None = connection.value(query, self._lab, False, number)
        return found

    def _check_schema(self, connection: Connection) -> None:
        if self.database.is_server:
            tables.create(connection, PROGRESS)
            self._refuse_newer(connection.value(_PROGRESS, "", "schema"))
        tables.create(connection)
        found = connection.value(_PROGRESS, "", "schema")
        if found is not None and int(found) != SCHEMA:
            # Derived data of another version: made anew, from the directories.
            tables.drop(connection)
            tables.create(connection)
            found = None
        if found is None:
            connection.do(_SET_PROGRESS, "", "schema", str(SCHEMA))

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

    def __init__(self, connection: Connection, lab: str) -> None:
        self._connection = connection
        self._lab = lab

    def drop(self, ids: Iterable[str]) -> None:
        """Forget runs."""
        for some in _batches(list(ids)):
            for table, column in ((PARAMS, "run"), (METRICS, "run"), (TAGS, "run"), (RUNS, "id")):
                statement = f"delete from {table} where lab = ? and {column} in ({_marks(some)})"
                self._connection.do(statement, self._lab, *some)

    def put(self, entries: Iterable[Entry]) -> None:
        """Take runs in, in place of what was known of them."""
        listed = list(entries)
        self.drop(entry.row.id for entry in listed)
        lab = self._lab
        self._insert(RUNS, _RUN, [_run(lab, e) for e in listed])
        self._insert(
            PARAMS,
            "lab, run, key, number, text",
            [(lab, e.row.id, key, *_typed(v)) for e in listed for key, v in _short(e.params)],
        )
        self._insert(
            METRICS,
            f"lab, run, key, {', '.join(_SUMMARY)}",
            [(lab, e.row.id, key, *_summary(v)) for e in listed for key, v in _short(e.metrics)],
        )
        self._insert(
            TAGS,
            "lab, run, tag",
            [(lab, e.row.id, tag) for e in listed for tag, _ in _short(dict.fromkeys(e.row.tags))],
        )

    def set_progress(self, value: dict[str, Any]) -> None:
        """Remember how far the journal and the directories were read."""
        self._set("progress", json.dumps(value))

    def set_folder(self, host: str, folder: str) -> None:
        """Remember where the lab lies on a machine: its runs are in `runs/<id>` below."""
        self._set(_folder_key(host), _storable(folder))

    def _set(self, key: str, value: str) -> None:
        self._connection.do(f"delete from {PROGRESS} where lab = ? and key = ?", self._lab, key)
        self._connection.do(_SET_PROGRESS, self._lab, key, value)

    def _insert(self, table: str, columns: str, rows: list[tuple[Any, ...]]) -> None:
        statement = f"insert into {table} ({columns}) values ({_marks(columns.split(','))})"
        self._connection.do_many(statement, rows)


def _batches(ids: list[str]) -> Iterator[list[str]]:
    return (ids[start : start + _MANY] for start in range(0, len(ids), _MANY))


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))


def _folder_key(host: str) -> str:
    return f"folder on {host}"[:64]


def _run(lab: str, entry: Entry) -> tuple[Any, ...]:
    row = [_storable(value) if isinstance(value, str) else value for value in entry.row]
    return (lab, entry.recheck, entry.row.head.text, *row)


def _short(values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What can be asked for by name. A name past the column's length is not refused, but no filter finds it."""
    plain = {_storable(key): value for key, value in values.items()}
    return ((key, value) for key, value in plain.items() if len(key) <= KEY_LENGTH)


def _storable(text: str) -> str:
    """A text that any database takes: PostgreSQL has no NUL, neither has half a character (a file name's odd byte)."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def _typed(value: Any) -> tuple[float | None, str]:
    number = float(value) if isinstance(value, bool | int | float) and abs(value) < 1e300 else None
    return number, _storable(str(value))


def _summary(summary: dict[str, Any]) -> list[Any]:
    return [summary[name] for name in _SUMMARY]
