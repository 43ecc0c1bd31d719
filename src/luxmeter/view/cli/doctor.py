"""`luxmeter doctor`: what is here, what is missing, and what to do about it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import typer

from luxmeter import environment
from luxmeter.errors import LuxmeterError
from luxmeter.render.json_text import print_json
from luxmeter.render.table import Column, Table
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

    name, reason = core.describe()
    findings.core = {"in use": name, "because": reason}
    if name != "c" and globs["core"] != "python":
        findings.problems.append(
            (
                f"The recorder runs on its Python core: {reason}",
                "It works, but each call costs more. Install a C compiler (gcc) and install luxmeter again.",
            )
        )


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
        Table([Column(title), Column("")], list(part.items())).print()
        sys.stdout.write("\n")
    for what, next_step in findings.problems:
        sys.stdout.write(f"PROBLEM {what}\n        {next_step}\n")
    if not findings.problems:
        sys.stdout.write("No problems found.\n")
