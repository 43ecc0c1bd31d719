"""The database of a lab: a SQLite file, or the PostgreSQL server that the setting `store.url` names.

database = Database(server_url(lab_folder) or sqlite_url(file))
with database.translated(), database.change("what is changed") as connection:  # alone until it ends
    connection.execute(table.insert(), rows)

Tables are declared once, with SQLAlchemy, which says the same in both tongues; what differs besides lies here:
how one waits for the other, what a connection is told, and what becomes of an error.
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from luxmeter.errors import MissingExtraError, StoreError, UsageError
from luxmeter.settings import globs, without_password

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


class Database:
    """One database and its connections. With `durable`, a SQLite file holds what cannot be made anew."""

    def __init__(self, url: str, *, durable: bool = False) -> None:
        self.is_server = not url.startswith("sqlite")
        self.shown = without_password(url)
        self.engine = _server_engine(url) if self.is_server else _sqlite_engine(url, durable)

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A connection to ask with."""
        with self.engine.connect().execution_options(luxmeter_reads=True) as connection:
            yield connection

    @contextmanager
    def change(self, what: str = "") -> Iterator[sa.Connection]:
        """A transaction; nobody else who changes `what` goes on before it ends."""
        with self.engine.begin() as connection:
            if self.is_server:  # in SQLite a transaction that writes is alone anyway
                name = sa.func.hashtext("luxmeter" + what)
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(name)))
            yield connection

    @contextmanager
    def translated(self) -> Iterator[None]:
        """What a server refuses, as an error of ours. Errors of SQLite pass: what to do differs with the file."""
        try:
            yield
        except sa.exc.DBAPIError as error:
            if not self.is_server:
                raise
            raise server_error(self.shown, error) from error

    def version(self) -> str:
        """`PostgreSQL 18.4`, of what answers."""
        with self.translated(), self.read() as connection:
            if self.is_server:
                number = connection.execute(sa.text("show server_version")).scalar_one()
                return f"PostgreSQL {str(number).split()[0]}"
            return f"SQLite {connection.execute(sa.text('select sqlite_version()')).scalar_one()}"

    def close(self) -> None:
        """Let go of its connections."""
        self.engine.dispose()


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


def server_error(shown: str, error: sa.exc.DBAPIError) -> StoreError:
    """The error of a server in our words, on one line: it is not there, or it is and refuses."""
    said = without_password(str(error.orig)).strip().partition("\n")[0].rstrip(".")
    if _is_gone(error) and not any(words in said for words in _TURNED_AWAY):
        return StoreError(
            "index-unreachable",
            f"The database {shown} does not answer: {said}.",
            "Check the server and the setting store.url. Runs go on meanwhile and are listed when it is back.",
        )
    return StoreError(
        "index-refused",
        f"The database {shown} refuses: {said}.",
        "Check the user of store.url, its password and its rights: docs/team-lab.md.",
    )


def _is_gone(error: sa.exc.DBAPIError) -> bool:
    """Whether there was no connection, or it broke: not an answer of the server to a statement."""
    return error.connection_invalidated or (
        isinstance(error, sa.exc.OperationalError) and getattr(error.orig, "sqlstate", None) is None
    )


def _server_engine(url: str) -> sa.Engine:
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
    try:
        # Few connections stay open: a server has about a hundred for all. A broken one is noticed before it is used.
        engine = sa.create_engine(parsed, connect_args=told, pool_pre_ping=True, pool_size=1, max_overflow=20)
    except ImportError as error:
        raise MissingExtraError(
            "no-psycopg",
            f"The setting store.url names a PostgreSQL database, which needs psycopg ({error}).",
            "Run: pip install 'luxmeter[postgres]'",
        ) from None
    sa.event.listen(engine, "connect", _prepare_server)
    _server_engines.add(engine)
    return engine


def _sqlite_engine(url: str, durable: bool) -> sa.Engine:
    options: dict[str, Any] = {}
    if url == "sqlite://":  # in memory: one connection, or each would see a database of its own
        options = {"poolclass": StaticPool, "connect_args": {"check_same_thread": False}}
    else:
        options = {"connect_args": {"timeout": 30, "check_same_thread": False}}
    engine = sa.create_engine(url, **options)
    sa.event.listen(engine, "connect", _prepare_durable if durable else _prepare_derived)
    sa.event.listen(engine, "begin", _begin_immediate)
    return engine


def _prepare_derived(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # transactions are begun below, not by the driver's guess
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=OFF")  # derived: after a crash of the machine it is made anew


def _prepare_durable(connection: Any, _: Any) -> None:
    connection.isolation_level = None
    # Not WAL: its shared memory does not work over network shares, and a durable file serves all machines.
    connection.execute("PRAGMA journal_mode=DELETE")
    connection.execute("PRAGMA synchronous=FULL")


def _begin_immediate(connection: sa.Connection) -> None:
    # A writer that begins as a reader can be refused half-way ("database is locked"); one that says so waits.
    reads = connection.get_execution_options().get("luxmeter_reads")
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def _prepare_server(connection: Any, _: Any) -> None:
    connection.execute(_SERVER_KEEPALIVES)
    connection.commit()


# Closed at the end of the process. A child of a fork must not speak on its parent's connections: both would read
# each other's answers.
_server_engines: weakref.WeakSet[sa.Engine] = weakref.WeakSet()


def _leave_to_parent() -> None:
    for engine in list(_server_engines):
        engine.dispose(close=False)


def _say_goodbye() -> None:
    for engine in list(_server_engines):
        engine.dispose()


os.register_at_fork(after_in_child=_leave_to_parent)
atexit.register(_say_goodbye)
