"""docs/coming-from.md: what it calls Lightning's is Lightning's, and what it calls mmengine's is mmengine's."""

from __future__ import annotations

import importlib.util
import inspect
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.peers

PAGE = Path(__file__).parents[2] / "docs" / "coming-from.md"
# What is not a name of lightning itself: Python's, torch's, or a key of its configuration files.
OTHERS = {"__init__", "class_path", "lr_scheduler", "torch.compile(model)"}


def names(of: str) -> list[str]:
    """The code in a column."""
    rows = [line.split("|") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    column = next(index for index, cell in enumerate(rows[0]) if cell.strip() == of)
    cells = [row[column] for row in rows[2:] if len(row) > column]
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell) if name not in OTHERS]


def test_lightnings_column() -> None:
    pl = pytest.importorskip("lightning")
    from lightning.pytorch import callbacks, cli, loggers

    given = {
        name for kind in (pl.Trainer.__init__, pl.Trainer.fit) for name in inspect.signature(kind).parameters
    }
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    places = (pl, trainer, pl.LightningModule, pl.LightningDataModule, callbacks, loggers, cli)
    assert len(names("Lightning")) > 30
    for name in names("Lightning"):
        plain = re.sub(r"^(trainer|self)\.|\(.*\)$|=$", "", name)
        assert plain in given or any(hasattr(place, plain) for place in places), name


def test_mmengines_column() -> None:
    """By its source: importing it takes OpenCV, which may want libraries of the system."""
    spec = importlib.util.find_spec("mmengine")
    if spec is None or spec.origin is None:
        pytest.skip("mmengine is not installed")
    source = "\n".join(path.read_text(encoding="utf-8") for path in Path(spec.origin).parent.rglob("*.py"))
    known = set(re.findall(r"[A-Za-z_]\w*", source))
    assert len(names("mmengine")) > 30
    for name in names("mmengine"):
        assert set(re.findall(r"[A-Za-z_]\w*", name)) <= known, name
