"""`luxmeter doctor`: what is here, what is missing, and what to do about it."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from luxmeter import environment
from luxmeter.errors import LuxmeterError
from luxmeter.render.tables import print_json, print_table
from luxmeter.settings import find_lab, globs

_DEVELOPERS_ONLY = ("dev", "peers")


@dataclass
class Findings:
    """What the doctor saw. A problem is (what, what to do)."""

    versions: dict[str, Any] = field(default_factory=dict)
    core: dict[str, str] = field(default_factory=dict)
    extras: dict[str, Any] = field(default_factory=dict)
    store: dict[str, Any] = field(default_factory=dict)
    problems: list[tuple[str, str]] = field(default_factory=list)


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(epilog="Example: luxmeter doctor --json")
    def doctor(as_json: bool = typer.Option(False, "--json", help="For machines.")) -> None:
        """Show versions, the recorder core, extras and the store; exit code 1 if something needs mending."""
        findings = examine()
        if as_json:
            print_json(vars(findings))
        else:
            _show(findings)
        raise typer.Exit(1 if findings.problems else 0)


def examine() -> Findings:
    """Look at everything; change nothing."""
    findings = Findings()
    machine = environment.machine()
    findings.versions = {"python": machine["python"], **environment.versions(), "system": machine["system"]}
    _look_at_torch(findings)
    _look_at_core(findings)
    for extra, packages in environment.extras().items():
        if extra not in _DEVELOPERS_ONLY:
            missing = [name for name, there in packages.items() if not there]
            findings.extras[extra] = "present" if not missing else f"pip install 'luxmeter[{extra}]'"
    _look_at_store(findings)
    return findings


def _look_at_torch(findings: Findings) -> None:
    version = findings.versions["torch"]
    if version is None:
        findings.problems.append(("torch is not installed.", "Install it: pip install torch"))
    elif tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit()) < (2, 4):
        findings.problems.append((f"torch {version} is older than 2.4.", "Update it: pip install -U torch"))


def _look_at_core(findings: Findings) -> None:
    from luxmeter.calls import core

    unlocked = getattr(sys.flags, "gil", None) == 0  # PYTHON_GIL=0
    try:
        name, reason = core.describe()
    except LuxmeterError as error:  # the setting asks for one that is not there
        findings.core = {"in use": "none", "because": error.what}
        advice = _build_advice() if error.slug == "core-not-built" else error.next_step
        if unlocked:
            advice = "Leave out PYTHON_GIL=0, or set LUXMETER_CORE=python."
        findings.problems.append((error.what, advice))
        return
    findings.core = {"in use": name, "because": reason}
    if core.free_threaded():
        findings.core["without the GIL"] = (
            "tracing turns the GIL on for the whole process; LUXMETER_CORE=python leaves it off"
            if name == "c"
            else "counts are right, one event at a time"
        )
    # Who keeps the GIL off chose the Python core with that.
    if name != "c" and globs["core"] != "python" and not unlocked:
        findings.problems.append(
            (
                f"The recorder runs on its Python core: {reason}.",
                f"It works, but each call costs more. {_build_advice()}",
            )
        )


def _build_advice() -> str:
    """The steps that bring the C core, of those that are left to do."""
    missing = []
    if not any(shutil.which(name.split()[0]) for name in (os.environ.get("CC"), "cc", "gcc") if name):
        missing.append("a C compiler (gcc)")
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        missing.append("the headers of this Python (python3-dev)")
    first = f"Install {' and '.join(missing)}, then run: " if missing else "Run: "
    return first + environment.reinstall_command()


def _look_at_store(findings: Findings) -> None:
    place = find_lab()
    findings.store = {"lab": str(place.folder), "chosen by": place.said_by, "exists": place.exists}
    if not place.exists:
        findings.store["next"] = "made on first use, or now with: luxmeter init"
        return
    from luxmeter.store import Lab

    try:
        lab = Lab.open(place.folder, create=False)
        try:
            findings.store["runs"] = len(lab.runs(archived=None))
            findings.store["index"] = globs["store.url"] or "SQLite file in the lab"
        finally:
            lab.close()
    except LuxmeterError as error:
        findings.problems.append((error.what, error.next_step))
    except OSError as error:
        findings.problems.append(
            (f"The lab cannot be read: {error}.", "Give rights to it, or name another one.")
        )


def _show(findings: Findings) -> None:
    for title, part in (
        ("versions", findings.versions),
        ("recorder core", findings.core),
        ("extras", findings.extras),
        ("store", findings.store),
    ):
        print_table([title, ""], list(part.items()))
        sys.stdout.write("\n")
    for what, next_step in findings.problems:
        sys.stdout.write(f"PROBLEM {what}\n        {next_step}\n")
    if not findings.problems:
        sys.stdout.write("No problems found.\n")
