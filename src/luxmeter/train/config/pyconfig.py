"""A config written in Python: `PyConfig.fromfile("config.py", ["optimizer.lr=0.2"]).params`."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import (
    BuiltinFunctionType,
    FunctionType,
    GenericAlias,
    MethodType,
    ModuleType,
    UnionType,
)
from typing import Any

from luxmeter.errors import LuxmeterError, UsageError, suggestion
from luxmeter.experiment import Params
from luxmeter.files import write_file
from luxmeter.identity import same
from luxmeter.train.config.dump import NotWritable, importable_module, plain, source_of
from luxmeter.train.config.execute import LoadedFile, Loader, annotation_of
from luxmeter.train.config.lines import shown
from luxmeter.train.config.overrides import Override, parse_overrides, read_like

SOURCES = "config_sources"  # beside a config that was written out: the files it was made of
_PRESETS = {"epoch": 10, "device": "cpu", "seed": 0}  # of every training: overridden without being named
_TRAINER = {"type": "TaskTrainer"}  # that trains where a config names none
_NO_VALUES = (ModuleType, type, FunctionType, BuiltinFunctionType, MethodType, GenericAlias, UnionType)
_CHANGING = (
    "update",
    "append",
    "extend",
    "insert",
    "setdefault",
    "pop",
    "clear",
    "remove",
    "sort",
    "reverse",
)


class PyConfig:
    """The values of a Python config file, those it imports from files beside it included; `params` is their tree.

    Modules, functions, classes and names that begin with `_` are means, not values. `fromfile` makes one.
    """

    def __init__(self, loaded: LoadedFile, loader: Loader, overrides: Iterable[Override] = ()) -> None:
        self.path = loaded.path
        self.files = [file.path for file in loader.files]
        self._loaded = loaded
        self._loader = loader
        self._overrides = list(overrides)
        self._added: dict[str, Any] = {}
        for override in self._overrides:
            self._override(override)
        self.values = self._collected()
        self.params = self._made_params()

    @classmethod
    def fromfile(
        cls, path: str | os.PathLike[str], overrides: Iterable[str] | Mapping[str, Any] = ()
    ) -> PyConfig:
        """Run a config file. `overrides`: texts such as "optimizer.lr=0.2", read by what they replace, or a mapping of values.

        Overridden names are held while the file runs, so that what is derived from them follows.
        """
        given = parse_overrides(overrides)
        changes: dict[str, list[Override]] = {}
        for override in given:
            changes.setdefault(override.parts[0], []).append(override)
        file = Path(os.path.normpath(Path(path).expanduser().absolute()))
        if file.suffix != ".py":
            raise UsageError(
                "config-kind",
                f"{shown(file)} is no Python file by its suffix {file.suffix!r}.",
                "A config is a Python file; luxmeter new config writes one to begin with.",
            )
        loader = Loader()
        return cls(loader.load(file, changes), loader, given)

    def default(self, name: str, value: Any) -> Any:
        """Give a name a value unless it has one; the value that it has then."""
        if name not in self.values:
            self.values[name] = value
            self.params[name] = value
        return self.values[name]

    def check(self) -> None:
        """Whether all that it names is there and takes the arguments it is given: raises what is wrong, makes nothing."""
        from luxmeter.train.config.schema import check_config

        check_config(self)

    def where(self, key: str) -> str:
        """Where a (dotted) key got its value: `configs/small.py:12`, or the override that set it."""
        parts = tuple(key.split("."))
        for override in reversed(self._overrides):
            if parts[: len(override.parts)] == override.parts:
                return f"the override {override}"
        return self._loaded.where(parts)

    def dump(self, path: str | os.PathLike[str] | None = None) -> str:
        """The config as resolved, in Python: run again it gives an equal one. With a path it is written there.

        Where a value is a class or function of a config file itself, or such a file registers some, the files that the
        config was made of are written beside it, into `config_sources/`.
        """
        content = self.written()
        text = content["config.py"].decode()
        if path is not None:
            target = Path(path)
            if target.absolute() in self.files:
                raise UsageError(
                    "config-dump-over",
                    f"{shown(target)} is a file that this config is made of.",
                    "Write it to another one.",
                )
            for name, body in content.items():
                if name == "config.py" or SOURCES in text:
                    file = target if name == "config.py" else target.parent / name
                    file.parent.mkdir(parents=True, exist_ok=True)
                    write_file(file, body)
        return text

    def written(self) -> dict[str, bytes]:
        """What a run keeps: `config.py`, the config as resolved, and the files that it was made of as they are."""
        sources = self._sources()
        imports = [f"import {name}" for name in self._loader.modules]
        if any(_has_code(file) for file in self._loader.files):
            folder, _, name = _module_name(sources[self.path]).rpartition(".")
            imports.append(f"from .{folder} import {name} as _{name}")
        said = " ".join([shown(self.path), *map(str, self._overrides)])
        text = source_of(
            self.values,
            heading=f"A config of luxmeter, as resolved from: {said}",
            find=self._find,
            imports=tuple(imports),
        )
        return {
            "config.py": text.encode(),
            **{sources[file.path]: file.source.content for file in self._loader.files},
        }

    def diff(self, other: PyConfig | Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Dotted name -> (mine, theirs) where they differ, as Params.diff."""
        return self.params.diff(other.params if isinstance(other, PyConfig) else other)

    def __eq__(self, other: object) -> bool:
        return same(self.values, other.values) if isinstance(other, PyConfig) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<PyConfig {shown(self.path)}: {', '.join(self.values) or 'no values'}>"

    def __str__(self) -> str:
        return self.dump()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _override(self, override: Override) -> None:
        """Apply it to what the file gave in the end, or say why it cannot be."""
        names, head = self._loaded.module.__dict__, override.parts[0]
        if (
            head == "trainer"
            and len(override.parts) > 1
            and head not in (*self._loaded.origins, *self._added)
        ):
            names[head] = self._added[head] = dict(_TRAINER)
        if head in self._added and len(override.parts) > 1:
            names[head] = override.applied(names[head], self._loaded.where)
        elif head in self._loaded.origins and head in names and _is_value(head, names[head]):
            if override.is_new and len(override.parts) == 1:
                raise override.is_there(self._loaded.where)
            origin = self._loaded.origins[head]
            statement = origin.source.statement(origin.line, head)
            annotation = annotation_of(self._loaded, statement) if len(override.parts) == 1 else None
            names[head] = override.applied(names[head], self._loaded.where, annotation=annotation)
        elif len(override.parts) == 1 and (override.is_new or head in _PRESETS):
            names[head] = self._added[head] = self._preset(override)
        else:
            raise self._unknown(override)

    def _preset(self, override: Override) -> Any:
        head = override.parts[0]
        if override.text is None or head not in _PRESETS:
            return override.whole()
        try:
            return read_like(override.text, _PRESETS[head])
        except ValueError as error:
            text = override.text
            raise UsageError(
                "override-type", f"{head} cannot be {text!r} ({override}).", str(error)
            ) from None

    def _unknown(self, override: Override) -> UsageError:
        head, here = override.parts[0], shown(self.path)
        for file in self._loader.files:
            if head in file.origins:
                return UsageError(
                    "override-unknown",
                    f"{here} has no {head!r} ({override}): it is in {shown(file.path)} alone, {file.origins[head]}.",
                    f"Take it over there: from {file.path.stem} import {head}.",
                )
        known = list(dict.fromkeys([*self._collected(), *_PRESETS]))
        near = suggestion(head, known) or f"It has {', '.join(known)}."
        new = f" A new one is written +{override}." if len(override.parts) == 1 else ""
        return UsageError("override-unknown", f"{here} has no {head!r} ({override}).", f"{near}{new}")

    def _collected(self) -> dict[str, Any]:
        names = self._loaded.module.__dict__
        found = {}
        for name in (*self._loaded.origins, *self._added):
            if name in names and _is_value(name, names[name]):
                try:
                    found[name] = plain(names[name], self._find, (name,))
                except NotWritable as error:
                    key = ".".join(error.key)
                    raise UsageError(
                        "config-value",
                        f"{self.where(key)}: {key} cannot be kept in a config: {error.why}.",
                        "Keep the name or class and the arguments, dict(type=..., ...), or, if it is only a means,"
                        " begin its name with _.",
                    ) from None
        return found

    def _made_params(self) -> Params:
        params = Params()
        for name, value in self.values.items():
            try:
                params[name] = plain(value, self._find)
            except LuxmeterError as error:
                slug = error.slug
                raise UsageError(slug, f"{self.where(name)}: {error.what}", error.next_step) from None
        return params

    def _find(self, value: Any) -> str | None:
        """The module that a class or function is imported from when the config is run again."""
        found = importable_module(value)
        if found is not None:
            return found
        for file in self._loader.files:
            if vars(file.module).get(value.__name__) is value:
                return f".{_module_name(self._sources()[file.path])}"
        return None

    def _sources(self) -> dict[Path, str]:
        """The files that the config was made of -> their names beside one that is written out."""
        root = Path(os.path.commonpath([path.parent for path in self.files]))
        return {
            path: "/".join([SOURCES, *map(_identifier, path.relative_to(root).with_suffix("").parts)]) + ".py"
            for path in self.files
        }


def _is_value(name: str, value: Any) -> bool:
    return not (
        name.startswith("_")
        or isinstance(value, _NO_VALUES)
        or type(value).__module__ in ("typing", "__future__")
    )


def _has_code(file: LoadedFile) -> bool:
    """Whether a file defines or does something beside giving values: it may register what the config names."""
    for statement in file.source.tree.body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef):
            return True
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            function = statement.value.func
            if not (isinstance(function, ast.Attribute) and function.attr in _CHANGING):
                return True
    return False


def _identifier(name: str) -> str:
    made = re.sub(r"\W", "_", name)
    return made if made.isidentifier() else f"_{made}"


def _module_name(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
