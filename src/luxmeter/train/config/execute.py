"""Running a Python config file.

A file is run by itself: neither sys.modules nor sys.path knows of it afterwards, so that files of one name in two folders
never mix. What it imports from files beside it (`from base import *`, `from .base import model`, `from ..shared.data
import *`) is run in the same way, once; all other imports are Python's.

A name that was overridden is held while a file runs: whatever is assigned to it, it has the value that was asked for, so
that what is derived from it follows. The same holds between files: a plain value that a file gives to a name which it
imports (`from base import *` and below it `lr = 0.3`) is held while the imported file runs.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from luxmeter.errors import LuxmeterError, UsageError, suggestion
from luxmeter.train.config.lines import Origin, Source, evaluate, shown, targets, value_of
from luxmeter.train.config.overrides import Override, copied

_MODULES = "luxmeter_config"  # in the names of the modules that config files become


@dataclass(frozen=True, eq=False)
class Held:
    """A plain value that one file gives to a name of another."""

    origin: Origin

    def value(self) -> Any:
        """A new one each time."""
        assert self.origin.value is not None
        return evaluate(self.origin.value)


Change = Override | Held
Changes = Mapping[str, Sequence[Change]]


@dataclass(eq=False)
class LoadedFile:
    """A config file that was run."""

    source: Source
    changes: Changes
    module: ModuleType
    origins: dict[str, Origin] = field(default_factory=dict)  # of the names that are values of the config
    literals: dict[str, Held] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self.source.path

    def where(self, parts: Sequence[str]) -> str:
        """File and line of a key, as near as it can be told."""
        origin = self.origins.get(parts[0])
        if origin is None:
            return shown(self.path)
        line, known = origin.source.key(origin, parts[1:])
        best = (origin.source.path, line, known)
        for source in dict.fromkeys((origin.source, self.source)):
            edited = source.edit(parts[0], parts[1:])
            if edited and edited[1] and edited[1] >= best[2]:
                best = (source.path, *edited)
        return f"{shown(best[0])}:{best[1]}"


class Loader:
    """Runs a config file and those that it imports."""

    def __init__(self) -> None:
        self.files: list[LoadedFile] = []
        self.modules: dict[str, None] = {}  # of Python, that the files import
        self._running: list[Path] = []
        self._done: dict[tuple[Any, ...], LoadedFile] = {}

    def load(self, path: Path, changes: Changes, *, by: str = "") -> LoadedFile:
        """Run a file with these names held. `by`: file and line that import it."""
        key = (path, *((name, *map(id, several)) for name, several in sorted(changes.items())))
        if path in self._running:
            circle = [*self._running[self._running.index(path) :], path]
            raise UsageError(
                "config-circle",
                f"{by}: the files import each other in a circle: {' -> '.join(map(shown, circle))}.",
                "Put what both need into a third file.",
            )
        if key not in self._done:
            self._done[key] = self._run(path, changes)
        return self._done[key]

    def note(self, module: str, names: Sequence[str]) -> None:
        """A file imports a module of Python, or some of its inner modules."""
        if module.partition(".")[0] not in sys.stdlib_module_names:
            inner = [f"{module}.{name}" for name in names if f"{module}.{name}" in sys.modules]
            self.modules.update(dict.fromkeys([module, *inner]))

    def _run(self, path: Path, changes: Changes) -> LoadedFile:
        content, tree, code = _compiled(path)
        name = f"{_MODULES}.{path.stem if path.name != '__init__.py' else path.parent.name}"
        module = ModuleType(name)
        source = Source(path, tree, content)
        loaded = LoadedFile(source, changes, module)
        loaded.literals = {name: Held(origin) for name, origin in source.literals().items()}
        importer = _Importer(self, loaded)
        module.__dict__.update(
            __file__=str(path), __builtins__={**vars(builtins), "__import__": importer}, __package__=None
        )
        self._running.append(path)
        before = sys.modules.get(name)
        sys.modules[name] = module  # while it runs: dataclasses look there
        try:
            exec(code, module.__dict__, _Names(loaded, importer))  # noqa: S102 - a config is a program
        except LuxmeterError as error:
            raise (error if _is_located(error) else _failed(error, loaded)) from error
        except Exception as error:
            raise _failed(error, loaded) from error
        finally:
            self._running.pop()
            del sys.modules[name]
            if before is not None:
                sys.modules[name] = before
        self.files.append(loaded)
        return loaded


class _Names(MutableMapping[str, Any]):
    """The names of a file while it runs: what is assigned passes through here."""

    def __init__(self, loaded: LoadedFile, importer: _Importer) -> None:
        self._loaded, self._importer = loaded, importer
        self._names = loaded.module.__dict__  # functions of the file look there

    def __getitem__(self, name: str) -> Any:
        return self._names[name]

    def __setitem__(self, name: str, value: Any) -> None:
        loaded = self._loaded
        line = sys._getframe(1).f_lineno
        statement = loaded.source.statement(line, name)
        if statement is not None and name in targets(statement):
            loaded.origins[name] = Origin(loaded.source, statement.lineno, value_of(statement, name))
            value = self._held(name, value, statement)
        elif isinstance(statement, ast.ImportFrom):
            taken = self._importer.taken.get(statement)
            original = _original(statement, name)
            if taken is not None and original in taken.origins:
                loaded.origins[name] = taken.origins[original]
        self._names[name] = value

    def __delitem__(self, name: str) -> None:
        del self._names[name]
        self._loaded.origins.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def _held(self, name: str, value: Any, statement: ast.stmt) -> Any:
        changes = self._loaded.changes.get(name, ())
        if any(isinstance(one, Override) and len(one.parts) > 1 for one in changes):
            value = copied(value)  # another name may stand for the same dict
        for change in changes:
            if isinstance(change, Held):
                value = change.value()
            elif not (change.is_new and len(change.parts) == 1):
                # What does not fit here may fit what the name is in the end; if not, that is told then.
                with contextlib.suppress(UsageError):
                    value = change.applied(
                        value, self._loaded.where, annotation=self._annotation(statement, change)
                    )
        return value

    def _annotation(self, statement: ast.stmt, change: Override) -> Any:
        return annotation_of(self._loaded, statement) if len(change.parts) == 1 else None


def annotation_of(loaded: LoadedFile, statement: ast.stmt | None) -> Any:
    """The type that a statement declares for its name; None if it declares none."""
    if not isinstance(statement, ast.AnnAssign):
        return None
    try:
        code = compile(ast.Expression(statement.annotation), str(loaded.path), "eval")
        return eval(code, loaded.module.__dict__)  # noqa: S307 - as Python would
    except Exception:  # noqa: BLE001 - then the value decides
        return None


class _Importer:
    """`__import__` for one file: what lies beside it comes from there, all else as ever."""

    def __init__(self, loader: Loader, loaded: LoadedFile) -> None:
        self._loader, self._loaded = loader, loaded
        self.taken: dict[ast.stmt, LoadedFile] = {}  # by the statement that imports it

    def __call__(
        self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        folder = self._loaded.path.parent
        for _ in range(level - 1):
            folder = folder.parent
        parts = name.split(".") if name else []
        if not level and (parts[0] in sys.stdlib_module_names or not _resolves(folder, parts, fromlist)):
            try:
                found = builtins.__import__(name, globals, locals, fromlist, level)
                self._loader.note(name, fromlist or ())
                return found
            except ModuleNotFoundError as error:
                if error.name != parts[0]:
                    raise
                beside = [path.stem for path in folder.glob("*.py")]
                raise ModuleNotFoundError(
                    f"No module named {name!r}{_hint(suggestion(parts[0], beside))}", name=error.name
                ) from None
        if not _resolves(folder, parts, fromlist):
            beside = [path.stem for path in folder.glob("*.py")]
            raise ModuleNotFoundError(
                f"There is no file {'.'.join(parts) or '.'} to import in {shown(folder)}"
                f"{_hint(suggestion(parts[-1] if parts else '', beside))}",
                name="." * level + name,
            )
        statement = self._loaded.source.statement(sys._getframe(1).f_lineno)
        if not fromlist:
            return self._package(folder, parts)
        return self._from(folder, parts, fromlist, statement)

    def _load(self, file: Path, statement: ast.stmt | None = None) -> LoadedFile:
        changes = self._changes(statement) if isinstance(statement, ast.ImportFrom) else {}
        by = f"{shown(self._loaded.path)}:{statement.lineno if statement is not None else 1}"
        return self._loader.load(file, changes, by=by)

    def _from(
        self, folder: Path, parts: Sequence[str], names: Sequence[str], statement: ast.stmt | None
    ) -> ModuleType:
        file = _file(folder, parts)
        loaded = self._load(file, statement) if file is not None else None
        module = loaded.module if loaded is not None else ModuleType(".".join(parts))
        if loaded is not None and statement is not None:
            self.taken[statement] = loaded
        for name in names:
            if name != "*" and not hasattr(module, name):
                inner = _file(folder, [*parts, name])
                if inner is not None:
                    setattr(module, name, self._load(inner).module)
                elif loaded is not None:
                    known = [one for one in vars(module) if not one.startswith("__")]
                    raise ImportError(
                        f"{shown(loaded.path)} has no {name!r}{_hint(suggestion(name, known))}", name=name
                    )
        return module

    def _package(self, folder: Path, parts: Sequence[str]) -> ModuleType:
        """What `import a.b` gives: a, with b in it."""
        made: list[ModuleType] = []
        for depth in range(1, len(parts) + 1):
            file = _file(folder, parts[:depth])
            module = self._load(file).module if file else ModuleType(parts[depth - 1])
            if made:
                setattr(made[-1], parts[depth - 1], module)
            made.append(module)
        return made[0]

    def _changes(self, statement: ast.ImportFrom) -> dict[str, list[Change]]:
        """What is held while the imported file runs: names that the statement takes from there."""
        loaded, found = self._loaded, {}
        names = {alias.asname or alias.name: alias.name for alias in statement.names}
        if "*" in names:
            names = {name: name for name in (*loaded.literals, *loaded.changes) if not name.startswith("_")}
        for own, original in names.items():
            changes: list[Change] = []
            literal = loaded.literals.get(own)
            if literal is not None and literal.origin.line > statement.lineno:
                changes.append(literal)
            changes += loaded.changes.get(own, ())
            if changes:
                found[original] = changes
        return found


def _file(folder: Path, parts: Sequence[str]) -> Path | None:
    """The file of a module below a folder."""
    path = folder.joinpath(*parts)
    for file in (
        (path.with_name(f"{path.name}.py"), path / "__init__.py") if parts else (path / "__init__.py",)
    ):
        if file.is_file():
            return file
    return None


def _resolves(folder: Path, parts: Sequence[str], names: Sequence[str] | None) -> bool:
    """Whether `from parts import names`, or `import parts`, means files in that folder."""
    if parts and _file(folder, parts) is not None:
        return True
    listed = [name for name in names or () if name != "*"]
    return bool(listed) and all(_file(folder, [*parts, name]) is not None for name in listed)


def _original(statement: ast.ImportFrom, name: str) -> str:
    """What a name is called where it was imported from."""
    return next((alias.name for alias in statement.names if alias.asname == name), name)


def _hint(near: str) -> str:
    return f". {near[:-1]}" if near else ""


# Errors


def _compiled(path: Path) -> tuple[bytes, ast.Module, CodeType]:
    try:
        content = path.read_bytes()
        tree = ast.parse(content, str(path))
        return content, tree, compile(tree, str(path), "exec", dont_inherit=True)
    except OSError as error:
        beside = [one.name for one in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise UsageError(
            "config-unreadable",
            f"The config {shown(path)} cannot be read: {error.strerror or error}.",
            suggestion(path.name, beside) or "Check the path; luxmeter new config writes one to begin with.",
        ) from error
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        what = getattr(error, "msg", None) or str(error)
        text = (getattr(error, "text", None) or "").strip()
        raise UsageError(
            "config-syntax",
            f"{shown(path)}:{line}: {what}{f': {text}' if text else ''}.",
            "A config is a Python file; correct that line.",
        ) from error


def _is_located(error: LuxmeterError) -> bool:
    """Whether the error is one of a file that this one imports: it says its line already."""
    return error.slug in ("config-failed", "config-syntax", "config-circle")


def _failed(error: Exception, loaded: LoadedFile) -> UsageError:
    """What went wrong, with the last line of the file that it came from and the name that it was to give."""
    line = outer = 1
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == str(loaded.path):
            line = traceback.tb_lineno
            outer = line if traceback.tb_frame.f_code.co_name == "<module>" else outer
        traceback = traceback.tb_next
    statement = loaded.source.statement(outer)
    names = targets(statement) if statement is not None else []
    making = f" (of {', '.join(names)})" if names else ""
    held = _held_in(statement, loaded)
    what = (
        str(error) if isinstance(error, ImportError | LuxmeterError) else f"{type(error).__name__}: {error}"
    )
    return UsageError(
        "config-failed",
        f"{shown(loaded.path)}:{line}{making}: {' '.join(what.split()).rstrip('.')}{held}.",
        "Correct that line of the config.",
    )


def _held_in(statement: ast.stmt | None, loaded: LoadedFile) -> str:
    """The names in a statement that had other values than the file gives them, and why."""
    used = (
        {one.id for one in ast.walk(statement) if isinstance(one, ast.Name)}
        if statement is not None
        else set()
    )
    said = []
    for name in sorted(used & set(loaded.changes)):
        change = loaded.changes[name][-1]
        said.append(f"{name} is held by {change.origin if isinstance(change, Held) else change}")
    return f" ({', '.join(said)})" if said else ""
