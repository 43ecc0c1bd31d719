"""The names inside a lab and a run.

Format history of a run's directory
1: run.json (identity), params.json, environment.json, status.json (how it ended), marks.json (tags, archived,
   note), summary.json (each metric's count, last, least and greatest value), alive (its age tells whether the
   process lives), tables/<name>/ (segments.py), files/, logs/, blobs/.

Format history of a lab
1: lab.json (identity), settings.json, runs/<id>/, trash/<id>/, blobs/ (the pool that runs link theirs from),
   journal/<host>.log (ids of runs that changed, for the index), index/<host>.sqlite (derived), .gitignore (all of it).
"""

from __future__ import annotations

RUN_FORMAT = 1
LAB_FORMAT = 1

RUNS, TRASH, JOURNAL, BLOBS, INDEX = "runs", "trash", "journal", "blobs", "index"

IDENTITY, PARAMS, ENVIRONMENT = "run.json", "params.json", "environment.json"
STATUS, MARKS, SUMMARY, ALIVE = "status.json", "marks.json", "summary.json", "alive"
TABLES, FILES, LOGS = "tables", "files", "logs"
METRICS, OBJECTS = "metrics", "objects"
