"""Guides whose snippets run one after the other and print what the page shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import luxmeter as lux
import luxmeter.train as door
from luxmeter.registry import Registry
from luxmeter.train.options import TrainerOptions

DOCS = Path(__file__).parents[2] / "docs"
SNIPPET = re.compile(r"^```python\n(.*?)^```\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def own_registries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in dir(door):
        if name.isupper() and isinstance(registry := getattr(door, name), Registry):
            monkeypatch.setattr(registry, "_things", dict(registry._things))
    yield


@pytest.mark.parametrize("name", ["from-a-script-to-a-trainer", "task-flow"])
def test_the_page_is_true(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    page, names = (DOCS / f"{name}.md").read_text(encoding="utf-8"), dict[str, Any]()
    snippets = SNIPPET.findall(page)
    assert len(snippets) == page.count("```python") > 3
    for code, shown in snippets:
        exec(code, names)
        assert plain(capsys.readouterr().out) == plain(shown), code


def plain(text: str) -> list[str]:
    """Without times and ids, and in lines of the log without the digits of what was averaged."""
    lines = [
        re.sub(r"^\d\d:\d\d:\d\d|\b0:00:\d\d$|in [\d.]+ s\b", "", line.rstrip()) for line in text.splitlines()
    ]
    lines = [re.sub(r"show \w{5}/", "show RUN/", line) for line in lines]
    return [re.sub(r": [\d.e:-]+", ": ", line) if "INFO" in line else line for line in lines]


# Of Python, of other programs, keys of configs, and what a user writes: no names of ours.
_NO_NAMES = {
    "update",
    "compute",
    "torchrun",
    "srun",
    "mpirun",
    "sub_module_cfg",
    "loss_cfg",
    "key=value",
    "...",
}


def test_what_things_are_called_here() -> None:
    """The last column of docs/coming-from.md: each name is one."""
    from typer.main import get_command

    from luxmeter.view import cli

    verbs = get_command(cli.build_app()).commands  # type: ignore[attr-defined]
    options = {one.name for one in fields(TrainerOptions)}
    places = (lux, door, lux.Trainer, lux.Callback, lux.TaskFlow)
    page = (DOCS / "coming-from.md").read_text(encoding="utf-8").partition("## The complaints")[0]
    cells = [line.split("|")[-2] for line in page.splitlines() if line.startswith("| ")][1:]
    names = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell) if name not in _NO_NAMES]
    assert len(names) > 70
    for name in names:
        plain_name = re.sub(r"^(trainer|lux|luxmeter)\.|^print\(trainer\.|\(.*|\)$", "", name)
        if name.startswith("luxmeter "):
            assert name.split()[1] in verbs, name
        elif name.startswith("Trainer(params, "):
            assert set(re.findall(r"(\w+)=", name)) <= options, name
        else:
            first, *rest = plain_name.removesuffix("=").split(".")
            found: Any = next((getattr(place, first) for place in places if hasattr(place, first)), None)
            for attribute in rest:
                found = getattr(found, attribute)
            assert found is not None or first in options or first in verbs, name
