"""The names inside a lab and a run.

Format history of a run's directory
1: run.json (identity), params.json, environment.json, status.json (how it ended), marks.json (tags, archived,
   note), summary.json (each metric's count, last, least and greatest value), alive (its age tells whether the
   process lives), tables/<name>/ (segments.py), files/, logs/, blobs/, calls/<name>/ (traces), results/ (results.py);
   sources.json (of metrics that the program did not log itself: from where they were taken);
   ranks/<n>/ (of a run in many processes, what rank n > 0 logged: tables/, summary.json, status.json, alive as the run's own);
   while it trains, control/ (what is asked of a Trainer from outside: train/requests.py).

Format history of a lab
1: lab.json (identity), settings.json, runs/<id>/, trash/<id>/, traces/<id>/ (of no run), blobs/ (the pool that runs link theirs from),
   journal/<host>.log (ids of runs that changed, for the index), index/<host>.sqlite (derived), .gitignore (all of it),
   ranks/<job>.json (where the other ranks of a job find the run of rank 0: rank_writer.py),
   queue/ (jobs.sqlite, logs/<job>.log, code/<name>/ and, while a job runs, going/<job>-<attempt>/: jobs.py).
"""

from __future__ import annotations

import re
from typing import Literal

from luxmeter.errors import StoreError

RUN_FORMAT = 2  # 2: pieces of tables have checksums (segments.py), and run.json may have a mark (origin.py)
LAB_FORMAT = 1

ID_LETTERS = "23456789bcdfghjkmnpqrstvwxz"  # no vowels, no look-alikes: ids spell nothing and read well

RUNS, TRASH, JOURNAL, BLOBS, INDEX, TRACES = "runs", "trash", "journal", "blobs", "index", "traces"
STAGING = (".import-*",)  # in a lab: of imports that go on, or were killed
QUEUE, RANKS = "queue", "ranks"

IDENTITY, PARAMS, ENVIRONMENT = "run.json", "params.json", "environment.json"
STATUS, MARKS, SUMMARY, ALIVE = "status.json", "marks.json", "summary.json", "alive"
SOURCES = "sources.json"
TABLES, FILES, CALLS, RESULTS = "tables", "files", "calls", "results"
METRICS, OBJECTS = "metrics", "objects"

Kind = Literal["run", "segment", "blob", "result", "file"]
_NAMES: dict[Kind, re.Pattern[str]] = {
    "run": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"),
    "segment": re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}-[0-9]{4,9}\.arrows"),
    "blob": re.compile(r"[0-9a-f]{64}"),
    "result": re.compile(r"[0-9]{4,9}"),
    "file": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"),
}


def is_named(kind: Kind, name: object) -> bool:
    """Whether a name is one component of a path, of the pattern that names of its kind have."""
    return isinstance(name, str) and _NAMES[kind].fullmatch(name) is not None


def named(kind: Kind, name: object) -> str:
    """`name`, checked: whatever a file says, only this may become a part of a path inside a lab."""
    if not isinstance(name, str) or not is_named(kind, name):
        raise StoreError(
            "name-unsafe",
            f"{str(name)[:200]!r} cannot name a {kind}.",
            "It was not written by luxmeter: do not trust where it came from.",
        )
    return name
