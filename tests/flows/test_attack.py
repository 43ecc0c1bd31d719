"""Files damaged and forged, commands killed: four sentences hold (tools/attack.py; docs/trust.md has its table)."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    place = Path(__file__).resolve().parents[2] / "tools" / "attack.py"
    spec = importlib.util.spec_from_file_location("attack_tool", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["attack_tool"] = module
    spec.loader.exec_module(module)
    return module


def test_a_short_attack(tool: ModuleType) -> None:
    table, violations = tool.attack(44, 2, 3, seed=20261118)
    assert violations == [], f"{table}\n" + "\n".join(violations)


@pytest.mark.soak
def test_a_long_attack(tool: ModuleType) -> None:
    table, violations = tool.attack(10_000, 200, 1_000, seed=1)
    assert violations == [], f"{table}\n" + "\n".join(violations)


def test_each_sentence_can_fail(tool: ModuleType, tmp_path: Path) -> None:
    """A reader that crashes, raises, alters or hangs is found."""
    (tmp_path / "a").write_bytes(b"some bytes" * 50)

    def found(read: object, *, summed: bool = False) -> str:
        target = tool.Target("a", tmp_path / "a", read, summed=summed)
        said: str = tool.trial(target, 1, 1, tmp_path / "trial", ([], "good"))
        return said

    assert found(lambda path: ([], "good"), summed=True) == ""
    assert "silently altered" in found(lambda path: ([], "other"), summed=True)
    assert "raw ZeroDivisionError" in found(lambda path: 1 / 0)
    told, status = tool.in_child(lambda tell: tool.os.kill(tool.os.getpid(), 9))
    assert (told, status) == ([], 9)


def test_what_is_damaged_is_the_same_for_a_seed(tool: ModuleType) -> None:
    data = b'{"a": [1, 2, {"b": "c"}], "d": 1.5}'
    for work in (tool.damage, tool.forge):
        assert work(data, random.Random(3)) == work(data, random.Random(3))
    assert {tool.damage(data, random.Random(n))[0] != data for n in range(50)} >= {True}
