"""Words that are not to be in the names of modules, classes, functions and options. Prose may use them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

# Each had to be explained; beside it the word that says it.
RETIRED = {
    "again": "rerun, reproduce",
    "kept": "captured, found, stored",
    "way_back": "rollback",
    "circumstances": "environment, explain",
    "misfit": "mismatch",
    "aside": "suspended",
    "words": "names",
    "interop": "transfer",
    "place": "folder, rank, argument",
}
EMPTY = {"utils", "util", "helpers", "common", "misc", "base"}  # module names that say nothing


def retired(root: Path) -> list[str]:
    """`path:line name` of what is called by a retired word below `root`, modules and folders included."""
    found = []
    for path in sorted(root.rglob("*.py")):
        where = path.relative_to(root)
        found += [f"{where}: module {part}" for part in where.with_suffix("").parts if _has_retired(part)]
        for line, name in _named(ast.parse(path.read_text(encoding="utf-8"))):
            if _has_retired(name):
                found.append(f"{where}:{line} {name}")
    return found


def saying_nothing(root: Path) -> list[str]:
    """The modules and folders below `root` whose names say nothing."""
    found = [path.relative_to(root) for path in sorted(root.rglob("*.py"))]
    return [str(path) for path in found if EMPTY & {*path.with_suffix("").parts}]


def _named(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, name) of classes, functions and command-line options."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.AnnAssign) and "option(" in ast.unparse(node.value or node.target):
            yield node.lineno, ast.unparse(node.target)  # declared once: luxmeter.options
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("Option", "Argument"):
            for text in (
                a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)
            ):
                if text.startswith("--"):
                    yield node.lineno, text
    # typer makes options of the parameters of commands
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(
            "command" in ast.unparse(d) for d in node.decorator_list
        ):
            yield from ((arg.lineno, arg.arg) for arg in (*node.args.args, *node.args.kwonlyargs))


def _has_retired(name: str) -> bool:
    split = "_".join(re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)).lower()
    split = split.replace("in_place", "inplace")  # torch's word
    return any(f"_{word}_" in f"_{split}_" for word in RETIRED)
