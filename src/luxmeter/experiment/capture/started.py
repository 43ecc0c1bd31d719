"""How and where a program was started: its command line, machine, packages and variables."""

from __future__ import annotations

import functools
import os
import re
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from luxmeter import environment
from luxmeter.experiment.capture import redaction
from luxmeter.experiment.capture.system_metrics import gpu_names
from luxmeter.experiment.reproduce.handover import laid_out
from luxmeter.store import Command, records

_DISTRIBUTION = re.compile(r"(?P<name>.+?)-(?P<version>[0-9][^-]*)(-py[0-9.]+.*)?\.(dist|egg)-info")


def gather() -> dict[str, Any]:
    """The circumstances as a run keeps them."""
    return {
        "machine": {**environment.machine(), "gpus": gpu_names()},
        "load": environment.load(),
        "packages": packages(),
        "executable": sys.executable,
        "variables": redaction.allowed_variables(),
    }


def packages() -> dict[str, str]:
    """Every installed package with its version, from the names of its folders: a hundredth of the time of reading each."""
    return dict(_packages(tuple(sys.path)))


@functools.lru_cache(maxsize=1)
def _packages(path: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for place in path:
        try:
            names = [entry.name for entry in os.scandir(place or ".")]
        except OSError:
            continue
        for name in names:
            matched = _DISTRIBUTION.fullmatch(name)
            if matched:  # what stands first on the path is what is imported
                found.setdefault(matched["name"].replace("_", "-").lower(), matched["version"])
    return tuple(sorted(found.items()))


def command(root: Path, params: Mapping[str, Any]) -> Command:
    """How this program was started, its script named from `root`."""
    script, module = main_script()
    laid = laid_out()
    words = sys.argv if laid is None else [laid.as_typed(word) for word in sys.argv]
    return Command(
        argv=tuple(redaction.hide_argv(words)),
        executable=sys.executable,
        cwd=str(Path.cwd()),
        script=None if script is None else relative(script, root),
        module=module,
        seed=_seed_of(params),
        interactive=script is None and module is None,
        by="luxmeter run" if _program_follows else "script",
    )


def main_script() -> tuple[Path | None, str | None]:
    """The file of the program and, after `python -m`, the module's name; (None, None) in a notebook or at a prompt."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    spec = getattr(main, "__spec__", None)
    module = None
    if spec is not None and spec.name:
        module = spec.name.removesuffix(".__main__") if spec.name != "__main__" else None
    if module is None and isinstance(file, str) and _is_own_command(Path(file)):
        module = "luxmeter"  # `luxmeter train`: started again as a module, wherever the command lies
    if (
        not isinstance(file, str) and _program_follows
    ):  # the program is about to begin: its command line tells
        named = sys.orig_argv[sys.orig_argv.index("-m") + 1] if sys.argv[0] == "-m" else None
        return (None if named else Path(sys.argv[0]).absolute()), named
    return (Path(file).absolute() if isinstance(file, str) else None), module


_program_follows = False


def program_follows() -> None:
    """`luxmeter run` is about to begin the program: until it has, the command line tells which."""
    global _program_follows
    _program_follows = True


def code_root() -> Path:
    """The folder whose code ran: the script's, or the current one for an installed program, a notebook, a prompt."""
    script, module = main_script()
    if script is None or module is not None or _is_installed(script):
        return Path.cwd()
    return script.parent


def relative(path: Path, root: Path) -> str:
    """`path` from `root` if it lies below, else as it is."""
    try:
        return path.relative_to(root).as_posix()
    except ValueError:
        return str(path)


def _is_own_command(script: Path) -> bool:
    return script.stem in ("luxmeter", "luxmeter-script") and _is_installed(script.absolute())


def _is_installed(script: Path) -> bool:
    """Links followed: a command may lie in ~/.local/bin and be one of an environment (pipx, uv tool), or all of that be one link."""
    places = [Path(sysconfig.get_paths()[name]) for name in ("stdlib", "purelib", "platlib", "scripts")]
    return any(
        one.is_relative_to(place) or one.is_relative_to(place.resolve())
        for one in (script, script.resolve())
        for place in places
    )


def _seed_of(params: Mapping[str, Any]) -> int | None:
    """The parameter of that name, if it is a whole number."""
    values = (params.get(name) for name in records.SEED_NAMES)
    return next((v for v in values if isinstance(v, int) and not isinstance(v, bool)), None)
