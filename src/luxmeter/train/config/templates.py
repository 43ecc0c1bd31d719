"""What `luxmeter new` writes: a config or a whole project that runs as it is. Nothing that exists is overwritten."""

from __future__ import annotations

import keyword
import re
import sys
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from luxmeter.errors import UsageError

_SUFFIX = ".template"
_HIDDEN = {"gitignore": ".gitignore", "pre-commit-config.yaml": ".pre-commit-config.yaml"}


def new_config(path: Path) -> Path:
    """Write a config with comments, which can be trained at once."""
    if path.suffix != ".py":
        raise UsageError("new-name", f"{path} is no name for a Python file.", "Write it as config.py.")
    return _write({path: _filled(_templates() / f"config.py{_SUFFIX}", file=path.name)})[0]


def new_project(folder: Path) -> list[Path]:
    """Write a project: package, configs, a test, pyproject.toml with entry points; the files."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.absolute().name)
    package = re.sub(r"[^a-z0-9]", "_", name.lower())
    taken = (*sys.stdlib_module_names, "luxmeter", "torch")
    if not re.match("[a-z]", package) or keyword.iskeyword(package) or package in taken:
        raise UsageError(
            "new-name",
            f"A project cannot be called {folder.absolute().name!r}: its package would be {package!r}.",
            "Choose a name of letters and digits that no module of Python has.",
        )
    wanted = {}
    for template, parts in _below(_templates() / "project"):
        *above, last = (package if part == "package" else part for part in parts)
        file = last.removesuffix(_SUFFIX)
        wanted[folder.joinpath(*above, _HIDDEN.get(file, file))] = _filled(
            template, name=name, package=package
        )
    return _write(wanted)


def _templates() -> Traversable:
    return files("luxmeter.train.config") / "templates"


def _below(folder: Traversable, parts: tuple[str, ...] = ()) -> list[tuple[Traversable, tuple[str, ...]]]:
    found = []
    for one in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if one.is_dir():
            found += _below(one, (*parts, one.name))
        elif one.name.endswith(_SUFFIX):
            found.append((one, (*parts, one.name)))
    return found


def _filled(template: Traversable, **values: str) -> str:
    text = template.read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    return text


def _write(wanted: dict[Path, str]) -> list[Path]:
    """All of them, or none if one is there already."""
    there = [path for path in wanted if path.exists() or path.is_symlink()]
    if there:
        more = f" and {len(there) - 1} more" if len(there) > 1 else ""
        raise UsageError(
            "new-exists", f"{there[0]}{more} is there already; nothing was written.", "Choose another name."
        )
    for path, text in wanted.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise UsageError(
                "new-unwritable",
                f"{path} cannot be written: {error.strerror or error}.",
                "Choose another place.",
            ) from error
    return list(wanted)
