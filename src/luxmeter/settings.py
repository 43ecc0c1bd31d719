"""Variables of the user (global) and of a lab (local), and where the lab is.

Local wins over global, an environment variable `LUXMETER_<NAME>` over both. Values keep their type.
A lab may come from elsewhere: what its settings name outside of it holds once the user trusts these very values.
Each scope is one JSON file, replaced as a whole under a lock, so that two writers lose nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from luxmeter.errors import MissingNameError, StoreError, UsageError, suggestion
from luxmeter.files import json_text, read_json, write_json
from luxmeter.literal import parse, show
from luxmeter.plain_text import plain

LAB_FOLDER = ".luxmeter"
LAB_FILE = "lab.json"
SETTINGS_FILE = "settings.json"
TRUSTED_FILE = "trusted.json"  # the user's: lab -> name -> digest of the value that is trusted
SCOPES = ("global", "local")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_PASSWORD = re.compile(r"(?<=://)([^/@:\s]*):[^/\s]*(?=@)|(?<=[?&]password=)[^&\s]*")

# The names Luxmeter itself reads, with their defaults; any other name is the user's own.
KNOWN: dict[str, tuple[Any, str]] = {
    "home": (None, "the lab to use where walking up finds none"),
    "store.url": (
        None,
        "database of the index, e.g. postgresql://user@host/name; None: a SQLite file in the lab",
    ),
    "store.lost_after_s": (10.0, "a run on another machine that gave no sign for so long is lost"),
    "core": (None, "recorder core: c or python; None: the fastest that works"),
    "operators.libraries": (
        None,
        "libraries whose operators may be replayed beside aten's; of the user's own settings alone",
    ),
    "mindspore.python": (
        None,
        "the Python that has MindSpore and torch; None: the one of make mindspore, or this one",
    ),
}
_TEXTS = ("home", "store.url", "core", "mindspore.python")
_REACHING = ("store.url", "mindspore.python")  # a host that is called, a program that is started


@dataclass(frozen=True)
class LabFolder:
    """Where the lab is (or would be made), and who said so."""

    folder: Path
    said_by: str
    exists: bool


def find_lab(start: Path | None = None) -> LabFolder:
    """LUXMETER_HOME, else the nearest `.luxmeter` upwards, else the global setting `home`, else `~/.luxmeter`."""
    named = os.environ.get("LUXMETER_HOME")
    if named:
        return _lab_at(Path(named).expanduser(), "environment variable LUXMETER_HOME")
    here = (start or Path.cwd()).absolute()
    for folder in (here, *here.parents):
        if (folder / LAB_FOLDER / LAB_FILE).is_file():
            return LabFolder(folder / LAB_FOLDER, f"found walking up from {here}", True)
    setting = _values(_global_file()).get("home")
    if setting:
        return _lab_at(Path(str(setting)).expanduser(), "global setting home")
    return _lab_at(Path.home() / LAB_FOLDER, "default place")


def _lab_at(folder: Path, said_by: str) -> LabFolder:
    folder = folder.absolute()
    inner = folder / LAB_FOLDER
    if not (folder / LAB_FILE).is_file() and (inner / LAB_FILE).is_file():
        folder = inner  # the project's folder was named, not the lab in it
    return LabFolder(folder, said_by, (folder / LAB_FILE).is_file())


def _global_file() -> Path:
    config = os.environ.get("XDG_CONFIG_HOME")
    return (Path(config) if config else Path.home() / ".config") / "luxmeter" / SETTINGS_FILE


def _trust_file() -> Path:
    return _global_file().with_name(TRUSTED_FILE)


def _values(file: Path) -> dict[str, Any]:
    """The variables in a file; none if it is not there."""
    values = read_json(file, {})
    if not isinstance(values, dict):
        raise StoreError(
            "file-damaged",
            f"{file} is not readable: it holds {type(values).__name__} where variables with names should be.",
            "Restore it from a copy, or remove it: its variables are then not set.",
        )
    return dict(values)


def _typed(name: str, value: Any) -> Any:
    """The value, if one that Luxmeter reads has the type it relies on: a lab may come from elsewhere, and files are edited."""
    if name in _TEXTS:
        fits = value is None or isinstance(value, str | Path)
    elif name == "store.lost_after_s":
        fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9
    else:
        fits = True
    if not fits:
        raise UsageError(
            "setting-type",
            f"The setting {name} is {without_password(show(value))[:80]}, which it cannot be.",
            f"luxmeter config -l shows where it is set; {environment_name(name)} overrides it.",
        )
    return value


@contextlib.contextmanager
def _changing(file: Path) -> Iterator[None]:
    """Nobody else changes the file meanwhile."""
    from filelock import FileLock

    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(file.with_name(f".{file.name}.lock")):
        yield


def _digest(value: Any) -> str:
    return hashlib.sha256(json_text(value).encode()).hexdigest()


def _trusted(lab: Path, name: str, value: Any) -> Any:
    """A value out of a lab's settings, if it reaches no farther than the lab or the user trusts it."""
    if name in _REACHING and value:
        known = _values(_trust_file()).get(str(lab.resolve()))
        if not isinstance(known, dict) or known.get(name) != _digest(value):
            raise UsageError(
                "lab-not-trusted",
                f"The lab {lab} sets {name} to {without_password(show(value))}, which reaches outside of the lab.",
                "If you trust that: luxmeter config --trust, in its folder. If not, remove it: luxmeter config --local -u "
                + name,
            )
    return value


class Settings(Mapping[str, Any]):
    """The variables as one mapping: `globs["datasets"]`. Files are read anew each time: they are small and shared."""

    @property
    def glob_fn(self) -> Path:
        """The file of the global variables."""
        return _global_file()

    @property
    def local_fn(self) -> Path:
        """The file of the local variables: the lab's."""
        return find_lab().folder / SETTINGS_FILE

    def scope(self, scope: str) -> dict[str, Any]:
        """The variables of one scope."""
        return _values(self._file(scope))

    def __getitem__(self, name: str) -> Any:
        from_environment = os.environ.get(environment_name(name))
        if from_environment is not None:
            return _typed(name, parse(from_environment))
        lab = find_lab().folder
        for file in (lab / SETTINGS_FILE, self.glob_fn):
            values = _values(file)
            if name in values:
                value = values[name] if file == self.glob_fn else _trusted(lab, name, values[name])
                return _typed(name, value)
        if name in KNOWN:
            return KNOWN[name][0]
        raise MissingNameError(
            "unknown-setting",
            f"There is no setting called {name!r}.",
            suggestion(name, self) or f"Set it with: luxmeter config --global {name} VALUE",
        )

    def of_lab(self, name: str, lab_folder: Path) -> Any:
        """A known variable as it holds for the lab in a folder, wherever the program stands."""
        from_environment = os.environ.get(environment_name(name))
        if from_environment is not None:
            return _typed(name, parse(from_environment))
        values = _values(lab_folder / SETTINGS_FILE)
        if name in values:
            return _typed(name, _trusted(lab_folder, name, values[name]))
        return _typed(name, _values(self.glob_fn).get(name, KNOWN[name][0]))

    def of_user(self, name: str) -> Any:
        """A known variable by the user's own word: environment or global. A lab's settings may come from elsewhere."""
        from_environment = os.environ.get(environment_name(name))
        if from_environment is not None:
            return _typed(name, parse(from_environment))
        return _typed(name, self.scope("global").get(name, KNOWN[name][0]))

    def __iter__(self) -> Iterator[str]:
        return iter({**self.scope("global"), **self.scope("local")})

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        return (
            name in self.scope("local")
            or name in self.scope("global")
            or environment_name(name) in os.environ
        )

    def update(self, scope: str, name: str, value: Any) -> None:
        """Set `name` in "global" or "local". The lab is not made for it: a local value needs one."""
        if not _NAME.fullmatch(name):
            raise UsageError(
                "setting-name",
                f"{name!r} cannot name a setting.",
                "Use letters, digits, '_', '-' and '.', beginning with a letter.",
            )
        self._change(scope, {name: value}, ())
        if scope == "local":  # what users set themselves they trust
            self.trust((name,))

    def trust(self, names: Iterable[str] = _REACHING) -> dict[str, Any]:
        """From now on what this lab's settings name outside of it holds, until it is changed; returns what that is."""
        lab = find_lab().folder
        values = _values(lab / SETTINGS_FILE)
        found = {name: values[name] for name in names if name in _REACHING and values.get(name)}
        if found:
            file = _trust_file()
            with _changing(file):
                known = _values(file)
                of_lab = known.get(str(lab.resolve()))
                digests = {name: _digest(value) for name, value in found.items()}
                known[str(lab.resolve())] = {**(of_lab if isinstance(of_lab, dict) else {}), **digests}
                write_json(file, known, durable=True)
        return found

    def __setitem__(self, name: str, value: Any) -> None:
        """Set `name` in the lab, or for all labs where there is none."""
        self.update("local" if find_lab().exists else "global", name, value)

    def remove(self, scope: str, name: str) -> None:
        """Remove `name` from "global" or "local"."""
        if name not in self.scope(scope):
            raise MissingNameError(
                "setting-not-set",
                f"{name!r} is not set in the {scope} settings ({self._file(scope)}).",
                suggestion(name, self.scope(scope)) or f"See: luxmeter config --{scope} -l",
            )
        self._change(scope, {}, (name,))

    def list_config(self, globa: bool = True, local: bool = True) -> dict[str, Any]:
        """Print and return the variables; where both scopes have one, the local value."""
        listed: dict[str, Any] = {}
        if globa:
            listed.update(self.scope("global"))
        if local:
            listed.update(self.scope("local"))
        for name, value in listed.items():
            sys.stdout.write(plain(f"{name} = {without_password(show(value))}\n"))
        return listed

    def _file(self, scope: str) -> Path:
        if scope not in SCOPES:
            raise UsageError("setting-scope", f"There is no scope {scope!r}.", "Use 'global' or 'local'.")
        return self.glob_fn if scope == "global" else self.local_fn

    def _change(self, scope: str, put: dict[str, Any], drop: tuple[str, ...]) -> None:
        file = self._file(scope)
        if scope == "local" and not find_lab().exists:
            raise UsageError(
                "no-lab-for-local",
                f"There is no lab here to keep a local setting in (looked up from {Path.cwd()}).",
                "Make one with: luxmeter init",
            )
        with _changing(file):
            values = {**_values(file), **put}
            for name in drop:
                values.pop(name, None)
            write_json(file, values, durable=True)


def environment_name(name: str) -> str:
    """The environment variable that overrides setting `name`: `store.url` -> `LUXMETER_STORE_URL`."""
    return "LUXMETER_" + re.sub(r"[^A-Za-z0-9]", "_", name).upper()


def without_password(text: str) -> str:
    """The text with `***` for the password of a URL in it: it may be shown."""
    return _PASSWORD.sub(lambda found: f"{found[1]}:***" if found[1] is not None else "***", text)


globs = Settings()
"""The settings of this process."""
