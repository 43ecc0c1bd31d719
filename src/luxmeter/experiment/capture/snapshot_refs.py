"""The refs that snapshots left in users' repositories: forgotten when their runs are gone for good."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from luxmeter.errors import LuxmeterError
from luxmeter.experiment.capture.git import git_agrees
from luxmeter.store import Run


def snapshot_refs(runs: Iterable[Run]) -> list[tuple[Path, str]]:
    """(repository, ref) of each run that has a snapshot. Only refs that are ours and that run's own."""
    found = []
    for run in runs:
        try:
            code = run.snapshot
        except (LuxmeterError, KeyError, TypeError):
            continue  # damaged: then its ref stays
        ref = f"refs/luxmeter/{run.id}"
        if (
            code is not None
            and code.git
            and code.git.get("ref") == ref
            and (Path(code.root) / ".git").exists()
        ):
            found.append((Path(code.root), ref))
    return found


def forget_refs(refs: Iterable[tuple[Path, str]]) -> int:
    """Delete them; git's own gc frees what only they held. Returns how many there were."""
    return sum(
        git_agrees(root, "rev-parse", "--verify", "--quiet", ref)
        and git_agrees(root, "update-ref", "-d", ref)
        for root, ref in refs
    )
