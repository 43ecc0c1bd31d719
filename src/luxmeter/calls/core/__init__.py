"""The hot path and nothing else. Chooses the C core, or the Python core with the same contract, and can say why."""

from __future__ import annotations

import importlib
from types import ModuleType

from luxmeter.errors import UsageError
from luxmeter.settings import globs

_NAMES = {"c": "luxmeter.calls.core._core", "python": "luxmeter.calls.core._pycore"}


def load(name: str | None = None) -> tuple[ModuleType, str]:
    """The core to use and why. `name`, or the setting `core` (LUXMETER_CORE), forces one: "c" or "python"."""
    asked = name or globs["core"]
    if asked is not None:
        if asked not in _NAMES:
            raise UsageError(
                "unknown-core",
                f"There is no recorder core called {asked!r}.",
                "Set LUXMETER_CORE to c or python.",
            )
        try:
            module = importlib.import_module(_NAMES[asked])
            return module, "asked for" if name else "the setting core (LUXMETER_CORE) asks for it"
        except ImportError as error:
            raise UsageError(
                "core-not-built",
                f"The C core was asked for and cannot be imported: {error}.",
                "Install a C compiler and reinstall luxmeter, or set LUXMETER_CORE=python.",
            ) from error
    try:
        return importlib.import_module(_NAMES["c"]), "built with the package"
    except ImportError as error:
        return importlib.import_module(_NAMES["python"]), f"the C core cannot be imported: {error}"


def describe() -> tuple[str, str]:
    """Name of the core in use ("c" or "python") and the reason for it."""
    module, reason = load()
    return ("python" if module.__name__.endswith("_pycore") else "c"), reason
