"""The index's tables."""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()

KEY_LENGTH = 512  # characters of a name that can be asked for


def _text(length: int | None = None) -> sa.types.TypeEngine[str]:
    """Text that is compared by its characters alone, as SQLite does: not by the language of PostgreSQL's machine."""
    plain = sa.Text() if length is None else sa.String(length)
    alike = sa.Text(collation="C") if length is None else sa.String(length, collation="C")
    return plain.with_variant(alike, "postgresql")


runs = sa.Table(
    "luxmeter_runs",
    metadata,
    sa.Column("lab", _text(32), primary_key=True),
    sa.Column("id", _text(64), primary_key=True),
    sa.Column("name", _text(), nullable=False),
    sa.Column("state", _text(16), nullable=False),
    sa.Column("created_ns", sa.BigInteger, nullable=False),
    sa.Column("ended_ns", sa.BigInteger),
    sa.Column("archived", sa.Boolean, nullable=False),
    sa.Column("recheck", sa.Boolean, nullable=False),
    sa.Column("head", _text(), nullable=False),  # a RunHead as JSON: what a list hands out of a run
    sa.Column("note", _text(), nullable=False),
    sa.Column("host", _text(), nullable=False),
    sa.Column("params_json", _text(), nullable=False),
    sa.Column("metrics_json", _text(), nullable=False),
    sa.Column("tags_json", _text(), nullable=False),
    sa.Index("luxmeter_runs_created", "lab", "archived", "created_ns"),
    sa.Index("luxmeter_runs_recheck", "lab", "recheck"),
)
# The first two hold all that a list and a filter hand out, the third finds by name. SQLite alone: PostgreSQL refuses
# to index long texts, and a run's name may be long.
for _name, _columns in {
    "luxmeter_runs_list": ("archived", "created_ns", "id", "head"),
    "luxmeter_runs_found": ("id", "archived", "created_ns", "head"),
    "luxmeter_runs_name": ("name",),
}.items():
    sa.Index(_name, runs.c.lab, *(runs.c[column] for column in _columns)).ddl_if(dialect="sqlite")

params = sa.Table(
    "luxmeter_params",
    metadata,
    sa.Column("lab", _text(32), primary_key=True),
    sa.Column("run", _text(64), primary_key=True),
    sa.Column("key", _text(KEY_LENGTH), primary_key=True),
    sa.Column("number", sa.Float(53)),
    sa.Column("text", _text()),
    # With the run: filters read nothing else.
    sa.Index("luxmeter_params_number", "lab", "key", "number", "run"),
    sqlite_with_rowid=False,  # one tree: what is looked up by its whole key is found in one step
)
metrics = sa.Table(
    "luxmeter_metrics",
    metadata,
    sa.Column("lab", _text(32), primary_key=True),
    sa.Column("run", _text(64), primary_key=True),
    sa.Column("key", _text(KEY_LENGTH), primary_key=True),
    sa.Column("n", sa.BigInteger),
    sa.Column("last", sa.Float(53)),
    sa.Column("last_step", sa.BigInteger),
    sa.Column("min", sa.Float(53)),
    sa.Column("max", sa.Float(53)),
    sa.Index("luxmeter_metrics_last", "lab", "key", "last", "run"),
    sqlite_with_rowid=False,
)
tags = sa.Table(
    "luxmeter_tags",
    metadata,
    sa.Column("lab", _text(32), primary_key=True),
    sa.Column("run", _text(64), primary_key=True),
    sa.Column("tag", _text(KEY_LENGTH), primary_key=True),
    sqlite_with_rowid=False,
)
progress = sa.Table(
    "luxmeter_progress",
    metadata,
    sa.Column("lab", _text(32), primary_key=True),
    sa.Column("key", _text(64), primary_key=True),
    sa.Column("value", _text()),
    sqlite_with_rowid=False,
)
