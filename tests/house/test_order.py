"""Rooms import only from the left, and from another room only its public names."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import luxmeter

SOURCE = Path(luxmeter.__file__).parent
ROOMS = ["store", "calls", "operators", "model", "experiment", "train"]
TOP = ["view", "classic"]
FILES = sorted(SOURCE.rglob("*.py"))


def room_of(module: str) -> str:
    """The room of a dotted name; "" is the ground floor."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in (*ROOMS, *TOP) else ""


def height(room: str) -> int:
    """How far to the right a room stands."""
    if room == "":
        return 0
    return len(ROOMS) + 1 if room in TOP else ROOMS.index(room) + 1


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> list[tuple[str, str]]:
    """(module, name) for everything of luxmeter that a file imports."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names if alias.name.startswith("luxmeter")]
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("luxmeter"):
            found += [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            raise AssertionError(f"{path}: imports are absolute here, so that a reader sees the room")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(SOURCE).as_posix())
def test_imports_only_from_the_left(path: Path) -> None:
    mine = room_of(module_of(path))
    if module_of(path) in ("luxmeter", "luxmeter.__main__"):
        return  # the front door names every room, lazily
    for module, name in imports_of(path):
        full = f"{module}.{name}" if name else module
        theirs = room_of(full)
        if theirs == mine:
            continue
        assert height(theirs) < height(mine), f"{path.name} ({mine or 'ground floor'}) imports {full}"
        private = [part for part in full.split(".")[1:] if part.startswith("_") and part != "__version__"]
        assert not private, f"{path.name} imports the private {full} of another room"


def test_import_is_light() -> None:
    code = "import sys, luxmeter; print([m for m in ('torch', 'mindspore', 'pyarrow', 'rich', 'numpy') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_command_line_starts_without_a_framework() -> None:
    code = "import sys; from luxmeter.view.cli import build_app; build_app(); print([m for m in ('torch', 'mindspore', 'pyarrow') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def rich_tables(path: Path) -> list[str]:
    """What a file imports of rich that lays out tables."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name for name in found if name.startswith(("rich.table", "rich.columns"))]


def test_there_is_one_table() -> None:
    inside = {path.relative_to(SOURCE).parts[0] for path in FILES if rich_tables(path)}
    assert inside == {"render"}


def test_views_stand_in_view() -> None:
    """Results reach views by name: every name leads to a function in view/, and every name asked for is known."""
    from luxmeter.views import VIEWS, view

    assert all(place.startswith("luxmeter.view.") and callable(view(name)) for name, place in VIEWS.items())
    asked = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "view":
                assert isinstance(node.args[0], ast.Constant), path
                asked.add(node.args[0].value)
    assert asked == set(VIEWS)


DOORS = [p for p in FILES if p.name == "__init__.py" and "= door(" in p.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", DOORS, ids=lambda p: module_of(p))
def test_a_door_says_the_same_to_readers_and_to_python(path: Path) -> None:
    room, tree = module_of(path), ast.parse(path.read_text(encoding="utf-8"))
    (call,) = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "door"]
    names = {name: f"{room}.{module}" for name, module in ast.literal_eval(call.args[1]).items()}
    (block,) = [
        n for n in tree.body if isinstance(n, ast.If) and getattr(n.test, "id", "") == "TYPE_CHECKING"
    ]
    typed = {alias.asname: n.module for n in block.body if isinstance(n, ast.ImportFrom) for alias in n.names}
    assert names == typed
    assert all(getattr(importlib.import_module(room), name) is not None for name in names)
