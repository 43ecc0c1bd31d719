"""The lines that call: whose code counts as the user's, and what a site (a code object, an instruction) is in words.

The core notes numbers only. Words are made when the writer tells them to the trace's folder, and with them goes the text
of each file, by its content: what is shown later is what ran, also after the file has changed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import itertools
import linecache
import os
import sys
import sysconfig
import tokenize
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

from luxmeter.calls.records import SiteNames
from luxmeter.errors import UsageError
from luxmeter.files import bytes_of, write_file

SOURCES = "sources"  # in the folder of a trace
_LARGEST = 1 << 22  # bytes of a file that is kept
_INSTALLED = ("site-packages", "dist-packages")
_FRAMEWORKS = ("torch", "mindspore")  # wherever they lie: one may be built in a folder of its own
# Code that libraries make, which has no file.
_MADE = ("<frozen ", "<eval_with_key>", "<__array_function__", "<attrs generated", "<decorator-gen", "<shim>")
# Parts of a function that are functions to Python (a comprehension is one up to 3.11).
_PARTS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


class UserCode:
    """Whether a code object is the user's: not of the standard library, an installed package, a framework or luxmeter.

    `packages` are those whose code counts as the user's all the same.
    """

    def __init__(self, packages: Sequence[str] = ()) -> None:
        self._mine = tuple(place for name in packages for place in _places_of(name))
        self._not_mine = _library_places()
        self._known: dict[str, bool] = {}
        self._paths: dict[
            str, str
        ] = {}  # absolute from the folder that the program was in when it first came by

    def __call__(self, code: CodeType) -> bool:
        name = code.co_filename
        known = self._known.get(name)
        if known is None:
            self._paths[name] = _path(name)
            known = self._known[name] = self._decide(self._paths[name])
        return known

    def path(self, name: str) -> str:
        """Of a code object's file name."""
        return self._paths.get(name) or _path(name)

    def _decide(self, path: str) -> bool:
        if path.startswith(self._mine):
            return True
        if path.startswith("<"):
            return not path.startswith(_MADE)
        if path.startswith(self._not_mine) or any(part in _INSTALLED for part in Path(path).parts):
            return False
        return not path.startswith(tuple(_loaded_places(_FRAMEWORKS)))


def _path(name: str) -> str:
    return name if name.startswith("<") else str(Path(name).absolute())


def _library_places() -> tuple[str, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
    places = [
        *(Path(place) for name in names if (place := sysconfig.get_path(name))),
        Path(__file__).parents[1],
    ]
    return tuple({_below(each) for place in places for each in (place, place.resolve())})


def _below(folder: Path) -> str:
    """How the path of a file in it begins."""
    return f"{folder.absolute()}{os.sep}"


def _loaded_places(names: Iterable[str]) -> Iterable[str]:
    for name in names:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file:
            yield _below(Path(file).parent)


def _places_of(name: str) -> list[str]:
    """Where the files of a package or a module lie."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None or (spec.submodule_search_locations is None and not spec.origin):
        raise UsageError(
            "unknown-lines-package",
            f"lines_in names {name!r}, and there is no such package.",
            "Name a package or a module that can be imported.",
        )
    if spec.submodule_search_locations is not None:
        return [_below(Path(place)) for place in spec.submodule_search_locations]
    return [str(Path(str(spec.origin)).absolute())]


class Sources:
    """The texts of the program's files, each laid down once in the folder of the trace, under its content's name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / SOURCES
        self._kept: dict[str, str] = {}

    def keep(self, name: str, path: str) -> str:
        """What the text of that file is called; empty if there is none to be had."""
        if name not in self._kept:
            text = _text(name, path)
            self._kept[name] = self._write(text) if text else ""
        return self._kept[name]

    def _write(self, text: str) -> str:
        data = text.encode("utf-8", "replace")
        called = hashlib.sha256(data).hexdigest()[:24]
        target = self._folder / f"{called}.txt"
        if not target.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            write_file(target, data)
        return called


def _text(name: str, path: str) -> str:
    """The file's text; of a notebook's cell, or of code that was given a file name, what Python's own linecache knows."""
    try:
        if not path.startswith("<") and Path(path).stat().st_size <= _LARGEST:
            data = Path(path).read_bytes()
            encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
            return io.TextIOWrapper(io.BytesIO(data), encoding, errors="replace").read()
    except (OSError, SyntaxError, LookupError):
        pass
    text = "".join(linecache.getlines(name))
    return text if len(text) <= _LARGEST else ""


def read_source(folders: Iterable[Path], called: str) -> str | None:
    """The text of that name, in one of the traces' folders."""
    for folder in folders if called else ():
        try:
            return bytes_of(folder / SOURCES / f"{called}.txt").decode("utf-8")
        except OSError:
            continue
    return None


def site_names(code: CodeType, at: int, path: str, source: str) -> SiteNames:
    """File, function and line of an instruction."""
    place = next(itertools.islice(code.co_positions(), at // 2, None), (None,))
    return SiteNames(
        _cell(code.co_filename) or path, _function(code), place[0] or code.co_firstlineno, source
    )


def _function(code: CodeType) -> str:
    parts = code.co_qualname.split(".")
    while len(parts) > 2 and parts[-1] in _PARTS:
        parts = parts[:-2]  # with the <locals> before it
    return "<module>" if parts[-1] in _PARTS else ".".join(parts)


def _cell(name: str) -> str:
    """What IPython calls a cell of a notebook: In[3]. Empty: it is none."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    tell: Callable[[str], tuple[str, str] | None] | None = getattr(
        getattr(shell, "compile", None), "format_code_name", None
    )
    found = tell(name) if tell is not None else None
    return found[1] if found else ""


def short_names(paths: Iterable[str]) -> dict[str, str]:
    """Each file by the last parts of its path, as many as tell it from the others."""
    left = {path: path.replace("\\", "/").split("/") for path in dict.fromkeys(paths)}
    found: dict[str, str] = {}
    length = 1
    while left:
        ends: dict[str, list[str]] = {}
        for path, parts in left.items():
            ends.setdefault("/".join(parts[-length:]), []).append(path)
        for end, same in ends.items():
            if len(same) == 1 or all(length >= len(left[path]) for path in same):
                for path in same:
                    found[path] = end
                    del left[path]
        length += 1
    return found
