"""docs/coming-from.md: what it calls Lightning's is Lightning's."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

pytest.importorskip("lightning")
pytestmark = pytest.mark.peers

PAGE = Path(__file__).parents[2] / "docs" / "coming-from.md"
# What is not a name of lightning itself: Python's, torch's, or a key of its configuration files.
OTHERS = {"__init__", "class_path", "lr_scheduler", "torch.compile(model)"}


def names() -> list[str]:
    """The code in Lightning's column."""
    rows = [line.split("|") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    column = next(index for index, cell in enumerate(rows[0]) if cell.strip() == "Lightning")
    cells = [row[column] for row in rows[2:] if len(row) > column]
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell) if name not in OTHERS]


def test_lightnings_column() -> None:
    import lightning as pl
    from lightning.pytorch import callbacks, cli, loggers

    given = {
        name for kind in (pl.Trainer.__init__, pl.Trainer.fit) for name in inspect.signature(kind).parameters
    }
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    places = (pl, trainer, pl.LightningModule, pl.LightningDataModule, callbacks, loggers, cli)
    assert len(names()) > 30
    for name in names():
        plain = re.sub(r"^(trainer|self)\.|\(.*\)$|=$", "", name)
        assert plain in given or any(hasattr(place, plain) for place in places), name
