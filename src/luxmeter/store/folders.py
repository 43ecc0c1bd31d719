"""Folders inside a run: made when something comes into them, but never the run's own again once it was removed."""

from __future__ import annotations

from pathlib import Path


def make_below(root: Path, folder: Path) -> None:
    """Make `folder`, which lies below `root`; FileNotFoundError if `root` itself is not there."""
    place = root
    for part in folder.relative_to(root).parts:
        place = place / part
        place.mkdir(exist_ok=True)
