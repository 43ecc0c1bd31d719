"""Packages that are not installed: everything else works, and what needs one says which."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from luxmeter.errors import MissingExtraError
from luxmeter.store import Lab


def hide(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """As if not installed: None in sys.modules makes an import fail."""
    for name in list(sys.modules):
        if name.partition(".")[0] in {n.partition(".")[0] for n in names}:
            monkeypatch.setitem(sys.modules, name, None)
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize(
    ("module", "packages", "slug"),
    [
        ("lightning", ("lightning", "lightning.pytorch", "pytorch_lightning"), "no-lightning"),
        ("hf", ("transformers",), "no-transformers"),
        ("ignite", ("ignite", "ignite.engine"), "no-ignite"),
    ],
)
def test_callbacks(
    monkeypatch: pytest.MonkeyPatch, module: str, packages: tuple[str, ...], slug: str
) -> None:
    hide(monkeypatch, *packages)
    importlib.import_module("luxmeter.experiment.integrations")
    monkeypatch.delitem(sys.modules, f"luxmeter.experiment.integrations.{module}", raising=False)
    with pytest.raises(MissingExtraError, match=slug):
        importlib.import_module(f"luxmeter.experiment.integrations.{module}")


def tensorboard_written(folder: Path) -> None:
    from luxmeter.experiment.transfer.tensorboard import TensorBoardFiles

    TensorBoardFiles(folder / "tb")


def tensorboard_read(folder: Path) -> None:
    from luxmeter.experiment.transfer.tensorboard_events import read_run

    read_run(folder)


def mlflow_read(folder: Path) -> None:
    from luxmeter.experiment.transfer.mlflow import import_mlflow

    lab = Lab.open(folder / "lab")
    import_mlflow(lab, folder)


def picture_drawn(folder: Path) -> None:
    from luxmeter.view.pages.plots import Plot

    Plot("nothing").save(folder / "a.html")
    Plot("nothing").save(folder / "a.png")


@pytest.mark.parametrize(
    ("use", "package", "slug"),
    [
        (tensorboard_written, "tensorboard", "no-tensorboard"),
        (tensorboard_read, "tensorboard", "no-tensorboard"),
        (mlflow_read, "mlflow", "no-mlflow"),
        (picture_drawn, "matplotlib", "no-matplotlib"),
    ],
)
def test_extras(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[Path], None], package: str, slug: str
) -> None:
    hide(monkeypatch, package)
    with pytest.raises(MissingExtraError, match=slug):
        use(tmp_path)
