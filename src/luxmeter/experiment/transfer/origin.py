"""Where a run that another tool recorded came from: by that the same run, imported again, is found and not doubled.

The id comes from what names the run in its source; if its source has grown meanwhile, the run is replaced and keeps
what people added to it here (tags, note, archived).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from luxmeter.errors import StoreError
from luxmeter.files import json_text, read_json
from luxmeter.store import FinishedRun, Lab, id_of_origin, layout

IMPORT = "import.json"
# Format history of files/import.json
# 1: format, tool, source (where it was read), key (what names it there), content (changes when the source does), facts.
FORMAT = 1


@dataclass(frozen=True)
class Origin:
    """What import.json holds."""

    tool: str
    source: str
    key: str
    content: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def run_id(self, created_ns: int) -> str:
        """The id of what came from there."""
        return imported_id(self.tool, self.key, created_ns)

    def is_in(self, lab: Lab, run_id: str) -> bool:
        """Whether the lab has the run with just this content."""
        return self._seen(lab, run_id) == (self.key, self.content)

    def _seen(self, lab: Lab, run_id: str) -> tuple[Any, Any] | None:
        """Key and content of the run that is there; None if it is none that was imported, or does not say so."""
        found = None
        with contextlib.suppress(StoreError):  # damaged
            found = read_json(lab.folder / layout.RUNS / run_id / layout.FILES / IMPORT)
        return (found.get("key"), found.get("content")) if isinstance(found, dict) else None

    def bring(self, lab: Lab, run: FinishedRun) -> str:
        """Put the run into the lab unless it is there with this content; returns its id."""
        if self.is_in(lab, run.id):
            return run.id
        seen = self._seen(lab, run.id)
        if (lab.folder / layout.RUNS / run.id).exists() and (seen is None or seen[0] != self.key):
            raise StoreError(
                "run-exists", f"This lab already has another run {run.id}.", "Remove one of the two first."
            )
        record = json_text({"format": FORMAT, **asdict(self)}).encode()
        lab.put_finished(replace(run, files={**run.files, IMPORT: record}))
        return run.id


def imported_id(tool: str, key: str, created_ns: int) -> str:
    """The id that a run from elsewhere has in every lab."""
    return id_of_origin(f"{tool}\0{key}", created_ns)
