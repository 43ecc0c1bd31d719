"""Guides whose snippets run one after the other and print what the page shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import luxmeter.train as door
from luxmeter.registry import Registry

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
