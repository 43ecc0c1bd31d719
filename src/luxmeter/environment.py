"""What machine, what versions, what load: the circumstances of a measurement or a run. Imports no framework."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from luxmeter.loaded import loaded

# Shown first wherever versions are shown; the rest of what is installed comes behind.
MAIN_PACKAGES = ("luxmeter", "torch", "mindspore", "numpy", "pyarrow", "duckdb", "sqlalchemy", "onnxruntime")
_MEASURED_PACKAGES = (
    "torch",
    "onnxruntime",
    "mindspore",
    "numpy",
)  # whose versions change how fast things are
_NUMBERS = (("load", "load_1min"), ("machine", "threads"))  # that are reckoned with


@dataclass(frozen=True)
class Difference:
    """One thing that is `a` where A was measured and `b` where B was."""

    name: str
    a: Any
    b: Any

    def __str__(self) -> str:
        return f"{self.name} {self.a} and {self.b}"


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


def reinstall_command() -> str:
    """What builds luxmeter anew from where it came from, the C core with it, and leaves all else as it is.

    A plain `pip install --force-reinstall` would bring the wheel back that pip kept when there was no compiler.
    """
    pip = [sys.executable, "-m", "pip", "install", "--force-reinstall"]
    if importlib.util.find_spec("pip") is None:  # an environment made by uv
        pip = ["uv", "pip", "install", "--python", sys.executable, "--reinstall-package", "luxmeter"]
    fresh = ["--no-deps", "--no-cache-dir", "--no-binary", "luxmeter"]
    return shlex.join([*pip, *fresh, *_origin()])


def _origin() -> list[str]:
    """What pip is to be given to install luxmeter from where it came from."""
    root = Path(__file__).parent.parent.parent
    if (root / "setup.py").is_file() and (root / "pyproject.toml").is_file():  # run from its sources
        return ["-e", str(root)]
    try:
        ours = metadata.distribution("luxmeter")
    except metadata.PackageNotFoundError:
        return ["luxmeter"]
    origin = json.loads(ours.read_text("direct_url.json") or "{}")  # PEP 610; an index leaves none
    url: str = origin.get("url", "")
    if not url or url.endswith(".whl"):  # a wheel without the core has none to build
        return [f"luxmeter=={ours.version}"]
    if "vcs_info" in origin:
        url = f"{origin['vcs_info']['vcs']}+{url}@{origin['vcs_info']['commit_id']}"
    if "subdirectory" in origin:
        url = f"{url}#subdirectory={origin['subdirectory']}"
    return [url]  # alone: older versions of pip refuse `luxmeter @ git+file:///...`


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


def brief() -> dict[str, Any]:
    """What a measurement's numbers hang on, known at once: for a record made at the beginning of something that is timed."""
    torch = loaded("torch")  # asked for nothing that imports
    threads = getattr(torch, "get_num_threads", None)
    return {
        "machine": {"processor": _processor(), "threads": os.cpu_count(), "python": sys.version.split()[0]},
        "packages": {
            name: str(getattr(sys.modules[name], "__version__", ""))
            for name in ("torch", "mindspore")
            if name in sys.modules
        },
        "torch_threads": threads() if callable(threads) else None,
    }


def checked(said: Any) -> dict[str, Any]:
    """A record (`collect`, `brief`) that was read from a file; ValueError if it is none."""
    if not isinstance(said, dict):
        raise ValueError("its environment has no names")
    for part in ("machine", "load", "packages", "env"):
        held = said.get(part) or {}
        if not isinstance(held, dict):
            raise ValueError(f"its environment's {part} has no names")
        for name, value in held.items():
            plain = value if isinstance(value, list) else [value]
            if not all(one is None or isinstance(one, str | int | float) for one in plain):
                raise ValueError(f"its environment's {name} is a {type(value).__name__}")
            if (part, name) in _NUMBERS and isinstance(value, str | list):
                raise ValueError(f"its environment's {name} is {value!r:.80}")
    return said


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """What of two records (`collect`, `brief`) changes how fast things are, and is not the same; nothing of what one does not tell."""
    found = []
    one, two = (said.get("machine") or {} for said in (a, b))
    for word in ("processor", "cores", "threads", "memory_bytes", "system", "python"):
        if word in one and word in two and one[word] != two[word]:
            found.append(Difference(word, one[word], two[word]))
    one, two = (said.get("packages") or {} for said in (a, b))
    for package in _MEASURED_PACKAGES:
        if one and two and one.get(package) != two.get(package):
            found.append(Difference(package, one.get(package), two.get(package)))
    for name, words in (("torch_threads", "threads of torch"),):
        if None not in (a.get(name), b.get(name)) and a[name] != b[name]:
            found.append(Difference(words, a[name], b[name]))
    one, two = (said.get("env") or {} for said in (a, b))  # that workers were given
    for variable in sorted({*one, *two}):
        if one.get(variable) != two.get(variable):
            found.append(Difference(variable, one.get(variable), two.get(variable)))
    if a.get("setup") != b.get("setup"):
        found.append(Difference("setup", a.get("setup"), b.get("setup")))
    governors = [(said.get("load") or {}).get("governor") for said in (a, b)]
    if None not in governors and governors[0] != governors[1]:
        found.append(Difference("clock governor", *governors))
    return found


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
