"""What a job knows of its attempts. torchrun starts all ranks again when one of them fails; what its store holds outlives them."""

from __future__ import annotations

import json
import os
from typing import Any

from luxmeter.train.dist.meeting import current_meeting, part_of


def note(name: str, value: Any) -> None:
    """Leave a note for later attempts of this job. Where rank 0 keeps the store there are none: nothing is left."""
    store = _store()
    if store is not None:
        store.set(name, json.dumps(value))


def recall(name: str) -> Any:
    """What an earlier attempt noted; None if there was none."""
    store = _store()
    return json.loads(store.get(name)) if store is not None and store.check([name]) else None


def _store() -> Any:
    """Of the job: of all its attempts, and of no other job that meets there."""
    met = current_meeting()
    if met is None or not met.outlives_ranks:
        return None
    return part_of(met.store.underlying_store, f"luxmeter/job/{os.environ.get('TORCHELASTIC_RUN_ID', '')}")
