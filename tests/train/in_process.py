"""The command line inside the test's process, where torch is loaded already; and registries as they were after a test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from luxmeter.train import registries
from luxmeter.train.config import plugins
from luxmeter.view.cli import main


@dataclass(frozen=True)
class Said:
    """How a command ended."""

    code: int
    out: str
    err: str


class Command:
    """`command("train", "config.py")`: runs luxmeter."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys, self._monkeypatch = capsys, monkeypatch

    def __call__(self, *words: object) -> Said:
        self._monkeypatch.setattr(sys, "argv", ["luxmeter", *map(str, words)])
        self._capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        return Said(code, *self._capsys.readouterr())

    def refused(self, *words: object) -> str:
        """The one line that it says on bad input; nothing is written."""
        said = self(*words)
        assert said.code == 2 and said.out == "" and said.err.count("\n") == 1, said
        assert not list(Path("lab").glob("runs/*")), "a run was made"
        return said.err.removeprefix("luxmeter: ").strip()


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, own_names: None) -> Command:
    """Runs commands."""
    return Command(capsys, monkeypatch)


@pytest.fixture
def own_names() -> Iterator[None]:
    """What a test registers, imports or loads as a plug-in is forgotten after it."""
    every = [getattr(registries, kind.upper()) for kind in plugins.KINDS]
    before = [(dict(one._things), one._offered) for one in every]
    modules, loaded, path = set(sys.modules), dict(plugins._loaded), list(sys.path)
    yield
    for one, (things, offered) in zip(every, before, strict=True):
        one._things, one._offered = things, offered
    for name in set(sys.modules) - modules:
        if not name.startswith("luxmeter") and not _is_installed(sys.modules[name]):
            del sys.modules[name]
    plugins._loaded.clear()
    plugins._loaded.update(loaded)
    sys.path[:] = path


def _is_installed(module: ModuleType) -> bool:
    """Whether a module is a package's or Python's own: half of a package that is imported anew does not fit the other half."""
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    known = [place for place in places if place]
    return not known or any(Path(known[0]).is_relative_to(root) for root in (sys.prefix, sys.base_prefix))
