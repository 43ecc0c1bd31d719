"""The hot path and nothing else. Chooses the C core, or the Python core with the same contract, and can say why."""

from __future__ import annotations

import importlib
import sys
import sysconfig
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

from luxmeter.errors import UsageError
from luxmeter.settings import globs

_NAMES = {"c": "luxmeter.calls.core._core", "python": "luxmeter.calls.core._pycore"}


def load(name: str | None = None) -> tuple[ModuleType, str]:
    """The core to use and why. `name`, or the setting `core` (LUXMETER_CORE), forces one: "c" or "python"."""
    asked = name or globs["core"]
    if asked is not None:
        if not isinstance(asked, str) or asked not in _NAMES:
            raise UsageError(
                "unknown-core",
                f"There is no recorder core called {asked!r}.",
                "Set LUXMETER_CORE to c or python.",
            )
        try:
            return _import(asked), "asked for" if name else "the setting core (LUXMETER_CORE) asks for it"
        except ImportError as error:
            raise UsageError(
                "core-not-built",
                f"The C core was asked for and cannot be used: {_why_not(error)}.",
                "luxmeter doctor says how to get it; or set LUXMETER_CORE=python.",
            ) from error
    try:
        return _import("c"), "built with the package"
    except ImportError as error:
        return _import("python"), _why_not(error)


def free_threaded() -> bool:
    """Whether this Python can run without its global lock (GIL). The C core needs it: importing it turns it on."""
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def locked() -> bool:
    """Whether the global lock is on now."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def _import(name: str) -> ModuleType:
    try:
        module = importlib.import_module(_NAMES[name])
    except RuntimeWarning as warning:  # python -W error, where the lock had to be turned on
        raise ImportError(str(warning)) from None
    if name == "c" and not locked():
        raise ImportError("it needs the global lock (GIL), which PYTHON_GIL=0 or -X gil=0 keeps off")
    return module


def _why_not(error: ImportError) -> str:
    """Why the C core is not in use: never built, built for others, or broken."""
    built = [path.name for path in Path(__file__).parent.glob("_core.*") if path.suffix in (".so", ".pyd")]
    if error.name != _NAMES["c"] or any(f"_core{suffix}" in built for suffix in EXTENSION_SUFFIXES):
        return f"the C core cannot be imported: {error}"
    if not built:
        return "the C core was not built when luxmeter was installed"
    return f"the C core was built for another Python: {', '.join(sorted(built))}"


def describe() -> tuple[str, str]:
    """Name of the core in use ("c" or "python") and the reason for it."""
    module, reason = load()
    return ("python" if module.__name__.endswith("_pycore") else "c"), reason
