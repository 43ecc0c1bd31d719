"""The database of a lab: a SQLite file, or the PostgreSQL server that the setting `store.url` names.

database = Database(server_url(lab_folder) or sqlite_url(file))
with database.change("what is changed") as connection:  # alone until it ends
    connection.do("insert into numbers values (?)", 17)

Statements are written once, in the words that both understand, with `?` for values; what differs lies here: how one
waits for the other, what a connection is told, and what becomes of an error. A file is asked through Python's own
sqlite3, so that a list is there at once; SQLAlchemy, which keeps connections to a server, is loaded for a server alone.
"""

from __future__ import annotations

import atexit
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from luxmeter.errors import MissingExtraError, ServerError, UsageError
from luxmeter.settings import globs, without_password

if TYPE_CHECKING:
    import sqlalchemy as sa

# A peer that vanished without a word (power, network) is noticed within a minute, by us and by the server: until then
# its transaction would keep everybody else waiting. What the URL says of them wins.
_CONNECTION = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
    "application_name": "luxmeter",
}
# A server that answers, but not to this user. It gives no code at that time, only words.
_TURNED_AWAY = (
    "authentication failed",
    "no password supplied",
    "does not exist",
    "permission denied",
    "pg_hba.conf",
)
_SERVER_KEEPALIVES = "select set_config('tcp_keepalives_idle', '30', false), set_config('tcp_keepalives_interval', '10', false), set_config('tcp_keepalives_count', '3', false)"
_MEMORY = "sqlite://"


class Database:
    """One database and its connections. With `durable`, a SQLite file holds what cannot be made anew."""

    def __init__(self, url: str, *, durable: bool = False) -> None:
        self.is_server = not url.startswith("sqlite")
        self.shown = without_password(url)
        self._place: _File | _Server = _Server(url) if self.is_server else _File(url, durable)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection to ask with. What a server refuses is a ServerError, what a file does an sqlite3.Error."""
        with self._place.begun("BEGIN") as connection:
            yield connection

    @contextmanager
    def change(self, what: str = "") -> Iterator[Connection]:
        """A transaction; nobody else who changes `what` goes on before it ends."""
        # A writer that begins as a reader can be refused half-way ("database is locked"); one that says so waits.
        with self._place.begun("BEGIN IMMEDIATE") as connection:
            if self.is_server:  # in SQLite a transaction that writes is alone anyway
                connection.do("select pg_advisory_xact_lock(hashtext(?))", "luxmeter" + what)
            yield connection

    def version(self) -> str:
        """`PostgreSQL 18.4`, of what answers."""
        with self.read() as connection:
            if self.is_server:
                return f"PostgreSQL {str(connection.value('show server_version')).split()[0]}"
            return f"SQLite {connection.value('select sqlite_version()')}"

    def close(self) -> None:
        """Let go of its connections."""
        self._place.close()


class Connection:
    """One transaction's connection: a file's or a server's."""

    is_server = False

    def __init__(self, real: Any) -> None:
        self._real = real

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """All rows that a question gives."""
        found: list[tuple[Any, ...]] = self._run(statement, values).fetchall()
        return found

    def value(self, statement: str, *values: Any) -> Any:
        """The first column of the first row; None if there is none."""
        row = self._run(statement, values).fetchone()
        return None if row is None else row[0]

    def do(self, statement: str, *values: Any) -> int:
        """Change something; how many rows it was."""
        return int(self._run(statement, values).rowcount)

    def do_many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """The same for each of these rows."""
        if rows:
            self._real.executemany(statement, rows)

    def has_table(self, name: str) -> bool:
        """Whether there is a table of this name."""
        return bool(self.value("select count(*) from sqlite_master where type = 'table' and name = ?", name))

    def _run(self, statement: str, values: tuple[Any, ...]) -> Any:
        return self._real.execute(statement, values)


class _ServerConnection(Connection):
    is_server = True

    def do_many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            self._real.exec_driver_sql(_as_the_server_writes(statement), list(rows))

    def has_table(self, name: str) -> bool:
        return self.value("select to_regclass(?)", name) is not None

    def _run(self, statement: str, values: tuple[Any, ...]) -> Any:
        return self._real.exec_driver_sql(_as_the_server_writes(statement), values)


def _as_the_server_writes(statement: str) -> str:
    return statement.replace("?", "%s")  # no statement of ours has either sign for anything else


class _File:
    """The connections to a SQLite file: each is used by one thread at a time, and kept for the next."""

    def __init__(self, url: str, durable: bool) -> None:
        self._path = ":memory:" if url == _MEMORY else url.removeprefix("sqlite:///")
        self._durable = durable
        self._free: list[sqlite3.Connection] = []
        self._process = os.getpid()
        # In memory there is one connection, or each would see a database of its own.
        self._lone = threading.RLock() if url == _MEMORY else None

    @contextmanager
    def begun(self, words: str) -> Iterator[Connection]:
        if self._lone is not None:
            self._lone.acquire()
        try:
            connection = self._taken()
            try:
                connection.execute(words)
                yield Connection(connection)
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.rollback()
                self._free.append(connection)
        finally:
            if self._lone is not None:
                self._lone.release()

    def _taken(self) -> sqlite3.Connection:
        if self._process != os.getpid():  # a child of a fork: to use or close its parent's would harm both
            _PARENTS.extend(self._free)
            self._free, self._process = [], os.getpid()
        try:
            return self._free.pop()
        except IndexError:
            return self._opened()

    def _opened(self) -> sqlite3.Connection:
        # Transactions are begun above, not by the driver's guess.
        connection = sqlite3.connect(self._path, timeout=30, check_same_thread=False, isolation_level=None)
        try:
            # A durable file is not in WAL mode: its shared memory does not work over network shares, and such a file
            # serves all machines. What is derived is not written through: after a crash of the machine it is made anew.
            connection.execute(f"PRAGMA journal_mode={'DELETE' if self._durable else 'WAL'}").fetchone()
            connection.execute(f"PRAGMA synchronous={'FULL' if self._durable else 'OFF'}")
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        if self._process == os.getpid():
            while self._free:
                self._free.pop().close()


_PARENTS: list[sqlite3.Connection] = []  # never closed in a child: their locks are the parent's


class _Server:
    """The connections to a PostgreSQL server."""

    def __init__(self, url: str) -> None:
        self._engine = _server_engine(url)
        self._shown = without_password(url)

    @contextmanager
    def begun(self, _: str) -> Iterator[Connection]:
        import sqlalchemy.exc

        try:
            with self._engine.begin() as connection:
                yield _ServerConnection(connection)
        except sqlalchemy.exc.DBAPIError as error:
            raise _server_error(self._shown, error) from error

    def close(self) -> None:
        self._engine.dispose()


def server_url(lab_folder: Path) -> str | None:
    """What `store.url` names for the lab in a folder, checked; None: nothing is set."""
    url = globs.of_lab("store.url", lab_folder)
    if url is None or url == "":
        return None
    scheme, found, _ = str(url).partition("://")
    if not found or scheme not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise UsageError(
            "store-url",
            f"The setting store.url is {without_password(str(url))!r}, which names no PostgreSQL database.",
            "Give it as postgresql://user@host/database, or unset it.",
        )
    return str(url)


def sqlite_url(file: Path) -> str:
    """The URL of a SQLite file."""
    return f"sqlite:///{file}"


def _server_error(shown: str, error: sa.exc.DBAPIError) -> ServerError:
    """The error of a server in our words, on one line: it is not there, or it is and refuses."""
    said = without_password(str(error.orig)).strip().partition("\n")[0].rstrip(".")
    if _is_gone(error) and not any(words in said for words in _TURNED_AWAY):
        return ServerError(
            "index-unreachable",
            f"The database {shown} does not answer: {said}.",
            "Check the server and the setting store.url. Runs go on meanwhile and are listed when it is back.",
        )
    return ServerError(
        "index-refused",
        f"The database {shown} refuses: {said}.",
        "Check the user of store.url, its password and its rights: docs/team-lab.md.",
    )


def _is_gone(error: sa.exc.DBAPIError) -> bool:
    """Whether there was no connection, or it broke: not an answer of the server to a statement."""
    import sqlalchemy.exc

    return error.connection_invalidated or (
        isinstance(error, sqlalchemy.exc.OperationalError) and getattr(error.orig, "sqlstate", None) is None
    )


def _server_engine(url: str) -> sa.Engine:
    try:
        import psycopg  # noqa: F401  (the driver, asked for here: SQLAlchemy would name it only when it connects)
        import sqlalchemy as sa
    except ImportError as error:
        raise MissingExtraError(
            "no-psycopg",
            f"The setting store.url names a PostgreSQL database, which needs psycopg and SQLAlchemy ({error}).",
            "Run: pip install 'luxmeter[postgres]'",
        ) from None
    try:
        # The driver that is an extra of ours.
        parsed = sa.make_url(url).set(drivername="postgresql+psycopg")
    except (sa.exc.ArgumentError, ValueError):
        raise UsageError(
            "store-url",
            f"The setting store.url is {without_password(url)!r}, which cannot be read.",
            "Give it as postgresql://user@host/database; write @ : / % in a password as %40 %3A %2F %25.",
        ) from None  # the cause holds the URL as it is
    told = {name: value for name, value in _CONNECTION.items() if name not in parsed.query}
    if "PGCONNECT_TIMEOUT" in os.environ:
        told.pop("connect_timeout", None)
    # Few connections stay open: a server has about a hundred for all. A broken one is noticed before it is used.
    engine = sa.create_engine(parsed, connect_args=told, pool_pre_ping=True, pool_size=1, max_overflow=20)
    sa.event.listen(engine, "connect", _prepare_server)
    _server_engines.add(engine)
    return engine


def _prepare_server(connection: Any, _: Any) -> None:
    connection.execute(_SERVER_KEEPALIVES)
    connection.commit()


# Closed at the end of the process. A child of a fork must not speak on its parent's connections: both would read
# each other's answers.
_server_engines: weakref.WeakSet[Any] = weakref.WeakSet()


def _leave_to_parent() -> None:
    for engine in list(_server_engines):
        engine.dispose(close=False)


def _say_goodbye() -> None:
    for engine in list(_server_engines):
        engine.dispose()


os.register_at_fork(after_in_child=_leave_to_parent)
atexit.register(_say_goodbye)
