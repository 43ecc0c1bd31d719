"""Which trace tests run on one core without saying why. A module says so by `ONE_CORE = "reason"`, a test by its mark."""

from __future__ import annotations

import ast
from pathlib import Path

_CORES = {"core", "core_name"}  # fixtures and parameters that a test gets both cores by
_STARTS = ("lux.trace", "lux.start")


def one_core(tests: Path) -> list[str]:
    """`path::test` of the tests below `tests` that see one core and give no reason.

    All of `calls/` are about the recorder. Elsewhere a test is if it starts a trace in its own process.
    """
    found = []
    for path in sorted(tests.rglob("test_*.py")):
        text, inside = path.read_text(encoding="utf-8"), path.relative_to(tests).parts[0] == "calls"
        if inside or any(f"{name}(" in text for name in _STARTS):
            found += [f"{path.relative_to(tests)}::{name}" for name in _lacking(ast.parse(text), inside)]
    return found


def _lacking(tree: ast.Module, is_about_calls: bool) -> list[str]:
    if _says_why(tree):
        return []
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    arguments = {n.name: {a.arg for a in n.args.args} for n in functions}
    both = {n.name for n in functions if arguments[n.name] & _CORES or _mentions(n.decorator_list)}
    both |= {f.name for n in tree.body if isinstance(n, ast.ClassDef) and _mentions(n.decorator_list)
             for f in n.body if isinstance(f, ast.FunctionDef)}  # fmt: skip
    both = _reaching(both, arguments)  # a fixture of this module leads to a core, too
    used = {n.name: arguments[n.name] | _called(n) for n in functions}
    tracing = _reaching({n.name for n in functions if used[n.name] & set(_STARTS)}, used)
    tests = [n.name for n in functions if n.name.startswith("test_")]
    return [name for name in tests if name not in both and (is_about_calls or name in tracing)]


def _reaching(names: set[str], uses: dict[str, set[str]]) -> set[str]:
    """These and all that use one of them, at however many removes."""
    while more := {name for name, used in uses.items() if used & names} - names:
        names = names | more
    return names


def _says_why(tree: ast.Module) -> bool:
    """By ONE_CORE; or all tests have both: pytestmark."""
    said = {_target(n): n.value for n in tree.body if isinstance(n, ast.Assign)}
    why = said.get("ONE_CORE")
    return bool(getattr(why, "value", "")) or ("pytestmark" in said and _mentions([said["pytestmark"]]))


def _target(node: ast.Assign) -> str:
    return getattr(node.targets[0], "id", "")


def _mentions(decorators: list[ast.expr]) -> bool:
    """parametrize("core", ...), fixture(params=CORES), usefixtures("core_name") or one_core("a reason")."""
    for call in (n for d in decorators for n in ast.walk(d) if isinstance(n, ast.Call)):
        first = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else ""
        name = getattr(call.func, "attr", "")
        if name == "one_core" and first:
            return True
        if name == "fixture" and any(
            k.arg == "params" and ast.unparse(k.value) == "CORES" for k in call.keywords
        ):
            return True
        if name in ("parametrize", "usefixtures") and _CORES & {w.strip() for w in str(first).split(",")}:
            return True
    return False


def _called(function: ast.FunctionDef) -> set[str]:
    return {ast.unparse(n.func) for n in ast.walk(function) if isinstance(n, ast.Call) and _is_plain(n.func)}


def _is_plain(called: ast.expr) -> bool:
    return isinstance(called, ast.Name) or (
        isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name)
    )
