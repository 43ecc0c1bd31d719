"""Run folders are built by the store alone: nobody else writes to the names that its layout has."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import luxmeter
from luxmeter.store import layout

SOURCE = Path(luxmeter.__file__).parent
OTHERS = [path for path in sorted(SOURCE.rglob("*.py")) if path.relative_to(SOURCE).parts[0] != "store"]
NAMES = ("IDENTITY", "PARAMS", "ENVIRONMENT", "STATUS", "MARKS", "SUMMARY", "ALIVE", "SOURCES")
TEXTS = {getattr(layout, name) for name in NAMES}
WRITERS = {
    "write_json",
    "write_file",
    "write_text",
    "write_bytes",
    "touch",
    "open",
    "copyfile",
    "SegmentWriter",
    "replace",
}


def writes_of(text: str) -> list[str]:
    """Calls that write where a name of a run's layout stands, in them or in what the variables they use were given."""
    tree = ast.parse(text)
    named: dict[str, ast.AST] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            named[node.targets[0].id] = node.value
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and called(node.func) in WRITERS:
            place = node.func.value if isinstance(node.func, ast.Attribute) and not node.args else None
            for start in (place, *node.args[:1], node.func):
                if start is not None and names_layout(start, named):
                    found.append(f"line {node.lineno}: {ast.unparse(node)[:80]}")
                    break
    return found


def called(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def names_layout(node: ast.AST, named: dict[str, ast.AST], depth: int = 3) -> bool:
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and part.attr in NAMES and called(part.value) == "layout":
            return True
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value in TEXTS:
            return True
        if isinstance(part, ast.Name) and part.id in named and depth:  # noqa: SIM102
            if named[part.id] is not node and names_layout(
                named[part.id], {**named, part.id: ast.Pass()}, depth - 1
            ):
                return True
    return False


@pytest.mark.parametrize("path", OTHERS, ids=lambda p: p.relative_to(SOURCE).as_posix())
def test_nobody_but_the_store_writes_a_runs_own_files(path: Path) -> None:
    assert writes_of(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        "write_json(folder / layout.PARAMS, params)",
        "(folder / layout.ALIVE).touch()",
        "file = run.folder / 'run.json'\nbefore = read_json(file)\nwrite_json(file, {**before})",
        "(folder / 'status.json').write_text('{}')",
        "with open(folder / layout.MARKS, 'w') as file:\n    pass",
    ],
)
def test_a_planted_write_is_found(line: str) -> None:
    assert writes_of(line)


@pytest.mark.parametrize(
    "line", ["read_json(folder / layout.PARAMS)", "(folder / 'run.json').is_file()", "write_json(x, 1)"]
)
def test_reading_is_everybodys(line: str) -> None:
    assert writes_of(line) == []
