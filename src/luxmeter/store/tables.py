"""The index's tables.

What a name or a text is compared by is its characters alone, as SQLite does: not the language of PostgreSQL's machine.
"""

from __future__ import annotations

from luxmeter.store.database import Connection

KEY_LENGTH = 512  # characters of a name that can be asked for

RUNS = "luxmeter_runs"
PARAMS = "luxmeter_params"
METRICS = "luxmeter_metrics"
TAGS = "luxmeter_tags"
PROGRESS = "luxmeter_progress"

# [alike], [real] and [one tree] are said in each database's words. One tree: what is looked up by its whole key is
# found in one step. `head` is a RunHead as JSON: what a list hands out of a run.
_TABLES = {
    RUNS: """
        lab varchar(32)[alike] not null, id varchar(64)[alike] not null, name text[alike] not null,
        state varchar(16)[alike] not null, created_ns bigint not null, ended_ns bigint, archived boolean not null,
        recheck boolean not null, head text[alike] not null, note text[alike] not null, host text[alike] not null,
        params_json text[alike] not null, metrics_json text[alike] not null, tags_json text[alike] not null,
        primary key (lab, id))""",
    PARAMS: f"""
        lab varchar(32)[alike] not null, run varchar(64)[alike] not null, key varchar({KEY_LENGTH})[alike] not null,
        number [real], text text[alike], primary key (lab, run, key))[one tree]""",
    METRICS: f"""
        lab varchar(32)[alike] not null, run varchar(64)[alike] not null, key varchar({KEY_LENGTH})[alike] not null,
        n bigint, last [real], last_step bigint, min [real], max [real], primary key (lab, run, key))[one tree]""",
    TAGS: f"""
        lab varchar(32)[alike] not null, run varchar(64)[alike] not null, tag varchar({KEY_LENGTH})[alike] not null,
        primary key (lab, run, tag))[one tree]""",
    PROGRESS: """
        lab varchar(32)[alike] not null, key varchar(64)[alike] not null, value text[alike],
        primary key (lab, key))[one tree]""",
}
_INDEXES = {
    "luxmeter_runs_created": (RUNS, "lab, archived, created_ns"),
    "luxmeter_runs_recheck": (RUNS, "lab, recheck"),
    # With the run: filters read nothing else.
    "luxmeter_params_number": (PARAMS, "lab, key, number, run"),
    "luxmeter_metrics_last": (METRICS, "lab, key, last, run"),
}
# The first two hold all that a list and a filter hand out, the third finds by name. SQLite alone: PostgreSQL refuses
# to index long texts, and a run's name may be long.
_INDEXES_OF_A_FILE = {
    "luxmeter_runs_list": (RUNS, "lab, archived, created_ns, id, head"),
    "luxmeter_runs_found": (RUNS, "lab, id, archived, created_ns, head"),
    "luxmeter_runs_name": (RUNS, "lab, name"),
}


def create(connection: Connection, *names: str) -> None:
    """The tables that are not there, all or those named, with their indexes."""
    words = {
        "[alike]": ' collate "C"' if connection.is_server else "",
        "[real]": "double precision" if connection.is_server else "real",
        "[one tree]": "" if connection.is_server else " without rowid",
    }
    indexes = _INDEXES if connection.is_server else {**_INDEXES, **_INDEXES_OF_A_FILE}
    # Asked for, not `if not exists`: for an index that is there, that would still wait for all who write.
    for table in names or _TABLES:
        if connection.has_table(table):
            continue
        statement = f"create table {table} ({_TABLES[table]}"
        for mark, word in words.items():
            statement = statement.replace(mark, word)
        connection.do(statement)
        for index, (of, columns) in indexes.items():
            if of == table:
                connection.do(f"create index {index} on {table} ({columns})")


def drop(connection: Connection) -> None:
    """All of them."""
    for table in _TABLES:
        connection.do(f"drop table if exists {table}")
