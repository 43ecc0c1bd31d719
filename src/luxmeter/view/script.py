"""Running a program of the user's as Python itself would: in a fresh interpreter that this process becomes."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from luxmeter.errors import UsageError


def checked_program(words: Sequence[str], module: str) -> list[str]:
    """What Python is started with, a script or `-m module`; refused here if it cannot run."""
    if module:
        sys.path.insert(0, str(Path.cwd()))
        try:
            found = importlib.util.find_spec(module.partition(".")[0])
        finally:
            sys.path.pop(0)
        if found is None:
            raise UsageError("no-script", f"There is no module {module!r}.", "Check the name after -m.")
        return ["-m", module, *words]
    if not words:
        raise UsageError("no-script", "There is nothing to run.", "Name a script, or a module with -m.")
    if not Path(words[0]).exists():
        raise UsageError(
            "no-script", f"There is no script {words[0]}.", "Check the path; for a module use -m."
        )
    return list(words)


def program_name(words: Sequence[str], module: str) -> str:
    """What a program is called: the module's last part, or the script's name without its suffix."""
    return module.rpartition(".")[2] if module else Path(words[0]).absolute().stem if words else "luxmeter"


def interpreter_flags() -> list[str]:
    """The options this interpreter was started with, so that another one behaves alike."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return flags


def become(program: Sequence[str], variables: Mapping[str, str]) -> None:
    """Become the program, in a fresh interpreter with these variables."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *interpreter_flags(), *program], dict(variables))


def end_as_interrupted() -> None:
    """After Ctrl-C Python ends by the signal itself, unless code was run from text since (an import does that):
    its note of the interrupt is then lost. Running such code that is interrupted sets it again."""
    if getattr(sys, "last_type", None) is KeyboardInterrupt:
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")  # noqa: S102
