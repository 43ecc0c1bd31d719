"""Rooms import only from the left, and from another room only what its door names."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import luxmeter

SOURCE = Path(luxmeter.__file__).parent
ROOMS = ["signature", "flops", "render", "store", "calls", "operators", "model", "experiment", "train"]
TOP = ["view", "classic"]
FILES = sorted(SOURCE.rglob("*.py"))
# A method of a result names the type it gives, which stands to the right; the value is reached by name (by_name.py).
TYPES_FROM_THE_RIGHT = {
    ("luxmeter.calls.result", "luxmeter.operators.Operators"),
    ("luxmeter.calls.session", "luxmeter.operators.Operators"),
    ("luxmeter.store.results", "luxmeter.calls.TraceResult"),
    ("luxmeter.store.results", "luxmeter.model.ModelCost"),
    ("luxmeter.store.results", "luxmeter.model.SearchResult"),
    ("luxmeter.store.results", "luxmeter.model.ZenScore"),
    ("luxmeter.store.results", "luxmeter.operators.BenchResult"),
    ("luxmeter.store.results", "luxmeter.operators.CheckResult"),
    ("luxmeter.store.results", "luxmeter.operators.Operators"),
    ("luxmeter.store.run", "luxmeter.calls.TraceResult"),
    ("luxmeter.store.run", "luxmeter.model.ModelCost"),
    ("luxmeter.store.run", "luxmeter.operators.BenchResult"),
    ("luxmeter.store.run", "luxmeter.operators.CheckResult"),
    ("luxmeter.store.run", "luxmeter.operators.Operators"),
    ("luxmeter.store.run", "luxmeter.train.Answer"),
    ("luxmeter.store.results", "luxmeter.train.Evaluation"),
}


def room_of(module: str) -> str:
    """The room of a dotted name; "" is the ground floor."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in (*ROOMS, *TOP) else ""


def height(room: str) -> int:
    """How far to the right a room stands."""
    if room == "":
        return 0
    return len(ROOMS) + 1 if room in TOP else ROOMS.index(room) + 1


def module_of(path: Path, source: Path = SOURCE) -> str:
    parts = path.relative_to(source.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> list[tuple[str, str]]:
    """(module, name) for everything of luxmeter that a file imports, for Python or for mypy alone, or names in a string."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names if alias.name.startswith("luxmeter")]
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("luxmeter"):
            found += [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            raise AssertionError(f"{path}: imports are absolute here, so that a reader sees the room")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named = re.fullmatch(r"(luxmeter(?:\.[a-z_]+)+)(?::(\w+))?", node.value)
            if named and room_of(named[1]) and not named[1].endswith((".json", ".css")):
                found.append((named[1], named[2] or ""))
    return found


def faults_of(path: Path, source: Path = SOURCE) -> list[str]:
    """Which rules about imports a file breaks."""
    me = module_of(path, source)
    mine = room_of(me)
    faults = []
    for module, name in imports_of(path):
        full = f"{module}.{name}" if name else module
        theirs = room_of(full)
        if module == "luxmeter" and not theirs and name in luxmeter.__all__ and name != "__version__":
            theirs = room_of(type_home(name))  # through the front door
        if theirs in ("", mine):
            continue
        if (
            me not in ("luxmeter", "luxmeter.__main__")
            and height(theirs) >= height(mine)
            and (me, full) not in TYPES_FROM_THE_RIGHT
        ):
            faults.append(f"{me} ({mine or 'ground floor'}) imports {full}, which does not stand to its left")
        if module not in ("luxmeter", f"luxmeter.{theirs}") or (name and name not in doors_names(theirs)):
            faults.append(f"{me} imports {full}, which luxmeter/{theirs}/__init__.py does not name")
    return faults


def type_home(name: str) -> str:
    """The module that holds a public name."""
    return str(getattr(getattr(luxmeter, name), "__module__", "luxmeter"))


def doors_names(room: str) -> list[str]:
    """What the door of a room names."""
    return list(importlib.import_module(f"luxmeter.{room}").__all__)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(SOURCE).as_posix())
def test_imports_only_from_the_left_and_through_the_door(path: Path) -> None:
    assert faults_of(path) == []


@pytest.mark.parametrize(
    ("where", "line", "fault"),
    [
        ("calls/x.py", "from luxmeter.view import main", "to its left"),
        ("calls/x.py", "if 0:\n    from luxmeter.model import analyze", "to its left"),
        ("calls/x.py", "from luxmeter import Operators", "to its left"),
        ("calls/x.py", "import luxmeter.model.analysis", "to its left"),
        ("store/x.py", "NAME = 'luxmeter.calls.session:trace'", "to its left"),
        ("render/x.py", "from luxmeter.store import Lab", "to its left"),
        ("operators/x.py", "from luxmeter.calls.session import Trace", "does not name"),
        ("operators/x.py", "from luxmeter.calls import session", "does not name"),
        ("__init__.py", "NAMES = {'a': 'luxmeter.view.pages.trace:trace_page'}", "does not name"),
    ],
)
def test_a_planted_import_is_found(tmp_path: Path, where: str, line: str, fault: str) -> None:
    source = tmp_path / "luxmeter"
    (source / where).parent.mkdir(parents=True)
    (source / where).write_text(line)
    found = faults_of(source / where, source)
    assert found, line
    assert any(fault in said for said in found), found


def first_imports(path: Path, source: Path, known: set[str]) -> set[str]:
    """The modules that a file imports as soon as it is imported itself."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            full = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else node.module for name in full}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return (found & known) - {module_of(path, source)}


def circle_of(source: Path) -> list[str]:
    """Modules of which each imports the next, and the last the first; empty if there are none."""
    files = {module_of(path, source): path for path in source.rglob("*.py")}
    try:
        tuple(
            TopologicalSorter(
                {m: first_imports(p, source, set(files)) for m, p in files.items()}
            ).static_order()
        )
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_two_files_need_each_other(tmp_path: Path) -> None:
    assert circle_of(SOURCE) == []
    planted = tmp_path / "luxmeter"
    (planted / "calls").mkdir(parents=True)
    (planted / "calls" / "__init__.py").touch()
    (planted / "calls" / "a.py").write_text("from luxmeter.calls import b")
    (planted / "calls" / "b.py").write_text("from luxmeter.calls.a import name")
    assert set(circle_of(planted)) == {"luxmeter.calls.a", "luxmeter.calls.b"}


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


def test_what_is_reached_by_name_is_there() -> None:
    """Results reach what stands to the right by name: every name leads somewhere, and every name asked for is known."""
    from luxmeter.by_name import NAMES, by_name

    assert all(callable(by_name(name)) for name in NAMES)
    asked = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "by_name":
                assert isinstance(node.args[0], ast.Constant), path
                asked.add(node.args[0].value)
    assert asked == set(NAMES)


DOORS = [p for p in FILES if p.name == "__init__.py" and "= door(" in p.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", DOORS, ids=lambda p: module_of(p))
def test_a_door_says_the_same_to_readers_and_to_python(path: Path) -> None:
    room, tree = module_of(path), ast.parse(path.read_text(encoding="utf-8"))
    (call,) = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "door"]
    names = {name: f"{room}.{module}" for name, module in ast.literal_eval(call.args[1]).items()}
    (block,) = [
        n for n in tree.body if isinstance(n, ast.If) and getattr(n.test, "id", "") == "TYPE_CHECKING"
    ]
    typed = {
        alias.asname: f"{room}.{alias.name}" if n.module == room else n.module
        for n in block.body
        if isinstance(n, ast.ImportFrom)
        for alias in n.names
    }
    assert names == typed
    assert all(getattr(importlib.import_module(room), name) is not None for name in names)


# Packages with a door of their own.
ALSO_FOR_USERS = ("classic", "experiment.integrations", "model.plainnet", "operators.counterparts")


def test_users_come_through_the_doors() -> None:
    root = Path(__file__).parents[2]
    pages = [*root.glob("docs/*.md"), root / "README.md", *root.glob("examples/*.py")]
    deep = {
        f"{page.name}: {module}"
        for page in pages
        for module in re.findall(r"from luxmeter\.([a-z_.]+) import", page.read_text(encoding="utf-8"))
        if "." in module and not module.startswith(ALSO_FOR_USERS)
    }
    assert len(pages) > 20 and deep == set()


def test_the_walks_name_files_that_are_there() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    walks = page.partition("## Six walks")[2].partition("\n## ")[0].strip().split("\n\n")[1:]
    named = [re.findall(r"`([a-z_/]+(?:\.py|\.c|/))`", walk) for walk in walks]
    assert len(walks) == 6 and all(len(files) >= 9 for files in named)
    assert [file for files in named for file in files if not (SOURCE / file).exists()] == []
