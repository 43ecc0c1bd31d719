"""What machine, what versions, what load: the circumstances of a measurement or a run. Imports no framework."""

from __future__ import annotations

import functools
import os
import platform
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

# Shown first wherever versions are shown; the rest of what is installed comes behind.
MAIN_PACKAGES = ("luxmeter", "torch", "mindspore", "numpy", "pyarrow", "duckdb", "sqlalchemy", "onnxruntime")


def versions(names: tuple[str, ...] = MAIN_PACKAGES) -> dict[str, str | None]:
    """Installed version of each package, None if it is not there. Nothing is imported for it."""
    return {name: _version(name) for name in names}


def installed() -> dict[str, str]:
    """Every installed package with its version, by name."""
    found = {
        dist.metadata["Name"]: dist.version for dist in metadata.distributions() if dist.metadata["Name"]
    }
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def extras() -> dict[str, dict[str, bool]]:
    """Each optional part of luxmeter -> its packages and whether they are there, read from our own metadata."""
    found: dict[str, dict[str, bool]] = {}
    for line in metadata.requires("luxmeter") or []:
        requirement, _, marker = line.partition(";")
        extra = re.search(r"""extra\s*==\s*["']([^"']+)["']""", marker)
        name = re.match(r"[A-Za-z0-9_.-]+", requirement.strip())
        if extra is None or name is None or name.group() == "luxmeter":
            continue
        found.setdefault(extra.group(1), {})[name.group()] = _version(name.group()) is not None
    return found


@functools.lru_cache(maxsize=1)
def machine() -> dict[str, Any]:
    """Processor, memory, system. Constant for the life of the process."""
    import psutil

    return {
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": psutil.cpu_count(logical=False) or os.cpu_count(),
        "threads": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "python": sys.version.split()[0],
        "python_implementation": platform.python_implementation(),
    }


def load() -> dict[str, Any]:
    """How busy the machine is now: load average, share of memory in use, clock governor and frequency."""
    import psutil

    frequency = psutil.cpu_freq() if hasattr(psutil, "cpu_freq") else None
    return {
        "load_1min": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "memory_used": psutil.virtual_memory().percent / 100,
        "frequency_mhz": frequency.current if frequency else None,
        "governor": _first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    }


def collect() -> dict[str, Any]:
    """The circumstances in one record, as a run keeps them."""
    return {"machine": machine(), "load": load(), "packages": installed(), "executable": sys.executable}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or "unknown"
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else platform.processor() or "unknown"


def _first_line(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None
