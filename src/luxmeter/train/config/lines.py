"""Which line of a config file says what: names and the keys inside their values, read off its syntax tree."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BUILDERS = ("list", "tuple", "set")
_DEEPEST = 20  # names that stand for names
Assignment = ast.Assign | ast.AnnAssign | ast.AugAssign


@dataclass(frozen=True)
class Origin:
    """Where a name of a config got its value."""

    source: Source
    line: int
    value: ast.expr | None  # as it is written there

    def __str__(self) -> str:
        return f"{shown(self.source.path)}:{self.line}"


@dataclass(frozen=True)
class _Edit:
    """`name["a"]["b"] = value`, or `name["a"].update(b=value)`, below a name's own assignment."""

    name: str
    path: tuple[str, ...]
    line: int
    value: ast.expr | None


class Source:
    """A config file as it is written."""

    def __init__(self, path: Path, tree: ast.Module, content: bytes) -> None:
        self.path = path
        self.tree = tree
        self.content = content  # as it was run
        self._statements = list(_statements(tree.body))
        self._edits = [edit for statement in self._statements for edit in _edits(statement)]

    def statement(self, line: int, name: str = "") -> ast.stmt | None:
        """The statement of the file's own level that stands there; of several, the one that binds `name`."""
        here = [one for one in self._statements if one.lineno <= line <= (one.end_lineno or one.lineno)]
        named = [one for one in here if name and name in targets(one)]
        found = named or here
        return found[-1] if found else None

    def literals(self) -> dict[str, Origin]:
        """The names that are given a value once, in one plain statement that refers to nothing else; dicts are none of them."""
        bound = [name for statement in self._statements for name in targets(statement)]
        found = {}
        for statement in self.tree.body:
            if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
                (name, *more) = [*targets(statement), ""]
                if name and more == [""] and bound.count(name) == 1 and _refers_to_nothing(statement.value):
                    found[name] = Origin(self, statement.lineno, statement.value)
        return found

    def edit(self, name: str, parts: Sequence[str]) -> tuple[int, int] | None:
        """The last line that changed this key of a name, or one above it, and how much of the key it names."""
        found = None
        for edit in self._edits:
            if edit.name == name and tuple(parts[: len(edit.path)]) == edit.path:
                line, depth = _inside(edit.value, parts[len(edit.path) :]) or (edit.line, 0)
                found = max(found or (0, 0), (len(edit.path) + depth, line or edit.line))
        return (found[1], found[0]) if found else None

    def key(self, origin: Origin, parts: Sequence[str], depth: int = 0) -> tuple[int, int]:
        """The line of a key inside a value, as near as it can be told, and how much of the key that is."""
        line, known = _inside(origin.value, parts) or (origin.line, 0)
        if known < len(parts) and depth < _DEEPEST:
            for name in _names_at(origin.value, parts[:known]):
                # It is another name of this file, or has one in it.
                statement = next((s for s in reversed(self._statements) if name in targets(s)), None)
                value = value_of(statement, name) if statement is not None else None
                if statement is None or value is None:
                    continue
                further = self.key(Origin(self, statement.lineno, value), parts[known:], depth + 1)
                if further[1]:
                    return further[0], known + further[1]
        return line or origin.line, known


def shown(path: Path) -> str:
    """A path as a person would type it here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def targets(statement: ast.stmt) -> list[str]:
    """The names that an assignment binds; none for other statements."""
    if isinstance(statement, ast.Assign):
        return [name for target in statement.targets for name in _names_in(target)]
    if isinstance(statement, ast.AnnAssign | ast.AugAssign):
        return _names_in(statement.target)
    return []


def value_of(statement: ast.stmt, name: str) -> ast.expr | None:
    """What an assignment gives a name, as it is written; None if that cannot be told."""
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Name) and target.id == name:
                return statement.value
            pair = isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple)
            if pair and len(target.elts) == len(statement.value.elts):  # type: ignore[attr-defined]
                for one, value in zip(target.elts, statement.value.elts, strict=True):  # type: ignore[attr-defined]
                    if isinstance(one, ast.Name) and one.id == name:
                        return value  # type: ignore[no-any-return]
        return None
    return statement.value if isinstance(statement, ast.AnnAssign) else None


def evaluate(expression: ast.expr) -> Any:
    """The value of an expression that refers to nothing."""
    code = compile(ast.Expression(expression), "<config>", "eval")
    return eval(code, {name: getattr(builtins, name) for name in _BUILDERS})  # noqa: S307 - of a file that is run anyway


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Every statement of a module's own level, those inside `if`, `for`, `with` and `try` included."""
    for statement in body:
        inner = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
        inner += [one.body for name in ("handlers", "cases") for one in getattr(statement, name, [])]
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or not any(inner):
            yield statement
        else:
            for block in inner:
                yield from _statements(block)


def _names_in(target: ast.expr) -> list[str]:
    if isinstance(target, ast.Name):
        return [target.id]
    if isinstance(target, ast.Starred):
        return _names_in(target.value)
    if isinstance(target, ast.Tuple | ast.List):
        return [name for one in target.elts for name in _names_in(one)]
    return []


def _refers_to_nothing(node: ast.expr) -> bool:
    """A number, a text or a list of them. No dict: what reads a key of the one it replaces would not find it."""
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return all(_refers_to_nothing(one) for one in node.elts)
    if isinstance(node, ast.UnaryOp):
        return _refers_to_nothing(node.operand)
    if isinstance(node, ast.BinOp):
        return _refers_to_nothing(node.left) and _refers_to_nothing(node.right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _BUILDERS:
        return not node.keywords and all(_refers_to_nothing(one) for one in node.args)
    return False


def _items(node: ast.expr | None) -> Iterator[tuple[str, int, ast.expr]]:
    """(key, line, value) of a dict, list or tuple as it is written."""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant):
                yield str(key.value), key.lineno, value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        for keyword in node.keywords:
            if keyword.arg is not None:
                yield keyword.arg, keyword.lineno, keyword.value
    elif isinstance(node, ast.List | ast.Tuple):
        for number, value in enumerate(node.elts):
            yield str(number), value.lineno, value
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):  # one dict over another
        yield from _items(node.right)
        yield from _items(node.left)


def _inside(node: ast.expr | None, parts: Sequence[str]) -> tuple[int, int] | None:
    """The line of the key, or of the last of its parts that is written, and how many that are."""
    line, known = 0, 0
    for part in parts:
        found = next(((n, value) for key, n, value in _items(node) if key == part), None)
        if found is None:
            break
        line, node = found
        known += 1
    return (line, known) if known else None


def _names_at(node: ast.expr | None, parts: Sequence[str]) -> list[str]:
    """The names that the value of a key is, or takes its keys from (`**common`)."""
    for part in parts:
        node = next((value for key, _, value in _items(node) if key == part), None)
    if isinstance(node, ast.Name):
        return [node.id]
    spread: list[Any] = []
    if isinstance(node, ast.Call):
        spread = [*(keyword.value for keyword in node.keywords if keyword.arg is None), *node.args]
    elif isinstance(node, ast.Dict):
        spread = [value for key, value in zip(node.keys, node.values, strict=True) if key is None]
    elif isinstance(node, ast.BinOp):
        spread = [node.right, node.left]
    return [one.id for one in reversed(spread) if isinstance(one, ast.Name)]


def _edits(statement: ast.stmt) -> Iterator[_Edit]:
    if isinstance(statement, Assignment):
        several = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in several:
            name, path = _subscript(target)
            if path:
                yield _Edit(name, path, statement.lineno, statement.value)
            elif isinstance(statement, ast.AugAssign) and name:
                yield _Edit(name, (), statement.lineno, statement.value)
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        if isinstance(call.func, ast.Attribute) and call.func.attr == "update":
            name, path = _subscript(call.func.value)
            made = ast.Call(ast.Name("dict"), [], call.keywords)
            if name:
                yield from (_Edit(name, path, statement.lineno, one) for one in (*call.args, made))


def _subscript(target: ast.expr) -> tuple[str, tuple[str, ...]]:
    """`name["a"][0]` -> name, ("a", "0")."""
    path: list[str] = []
    while isinstance(target, ast.Subscript):
        if not isinstance(target.slice, ast.Constant):
            return "", ()
        path.append(str(target.slice.value))
        target = target.value
    return (target.id, tuple(reversed(path))) if isinstance(target, ast.Name) else ("", ())
