"""`luxmeter doctor`: what is here, what is missing, and what to do about it."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from luxmeter import environment, supported
from luxmeter.errors import LuxmeterError, UsageError
from luxmeter.render import Column, Table, print_json
from luxmeter.settings import find_lab, globs, without_password
from luxmeter.torch_extra import has_torch

_DEVELOPERS_ONLY = ("dev", "launch", "peers")
_WITHOUT = {
    "torch": "without it: no trace of torch, bench, analyze, zen, search, Saver, DataLoader; runs and traces of MindSpore work"
}


@dataclass
class Findings:
    """What the doctor saw. A problem is (what, what to do)."""

    versions: dict[str, Any] = field(default_factory=dict)
    torch: dict[str, Any] = field(default_factory=dict)
    core: dict[str, str] = field(default_factory=dict)
    extras: dict[str, Any] = field(default_factory=dict)
    store: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(epilog="Example: luxmeter doctor --lab")
    def doctor(
        tries: bool = typer.Option(
            True,
            "--try/--no-try",
            help="Whether to try a trace of a training step, which takes some seconds.",
        ),
        lab: bool = typer.Option(
            False, "--lab", help="Look at all of the lab: what is damaged, and what mends it."
        ),
        as_json: bool = typer.Option(False, "--json", help="For machines."),
    ) -> None:
        """Show versions, the recorder core, extras and the store; exit code 1 if something needs mending."""
        if lab:
            raise typer.Exit(1 if _look_at_lab(as_json=as_json) else 0)
        findings = examine(tries=tries)
        if as_json:
            print_json(vars(findings))
        else:
            _show(findings)
        raise typer.Exit(1 if findings.problems else 0)


def _look_at_lab(*, as_json: bool) -> bool:
    """Whether anything in the lab is damaged."""
    from luxmeter.store import damage_of_lab

    place = find_lab()
    if not place.exists:
        raise UsageError(
            "no-lab-to-look-at",
            f"There is no lab in {place.folder} ({place.said_by}).",
            "Stand in its folder, or set LUXMETER_HOME.",
        )
    found = damage_of_lab(place.folder)
    if as_json:
        print_json({"lab": str(place.folder), "damaged": [vars(one) for one in found]})
    elif found:
        columns = [Column("where"), Column("what is damaged"), Column("what mends it")]
        Table(columns, [[one.place, one.what, one.mend] for one in found]).print()
    else:
        sys.stdout.write(f"Nothing in the lab {place.folder} is damaged.\n")
    return bool(found)


def examine(*, tries: bool = True) -> Findings:
    """Look at everything; change nothing."""
    findings = Findings()
    machine = environment.machine()
    findings.versions = {"python": machine["python"], **environment.versions(), "system": machine["system"]}
    _look_at_core(findings)
    _look_at_torch(findings, tries=tries)
    for extra, packages in environment.extras().items():
        if extra not in _DEVELOPERS_ONLY:
            missing = [name for name, there in packages.items() if not there]
            without = f" ({_WITHOUT[extra]})" if extra in _WITHOUT else ""
            findings.extras[extra] = "present" if not missing else f"pip install 'luxmeter[{extra}]'{without}"
    _look_at_store(findings)
    return findings


def _look_at_torch(findings: Findings, *, tries: bool = True) -> None:
    version = findings.versions["torch"]
    if version is None or not has_torch():
        return  # an extra: runs, and traces of MindSpore, need none
    old = supported.too_old(version)
    findings.torch = {"works with": supported.range_of_torch()}
    if old is not None:
        findings.problems.append((old.what, old.next_step))
    elif findings.core.get("in use") != "none":
        if tries:
            _try_a_trace(findings, version)
        else:
            findings.torch["a trace"] = "not tried"


def _try_a_trace(findings: Findings, version: str) -> None:
    """In a process of its own: what is installed may not even be possible to import."""
    from luxmeter.isolate import Pool

    with Pool(env={"LUXMETER_TRACE": "0"}) as pool:
        outcome = pool.run("luxmeter.view.cli.doctor:trial", timeout_s=300)
    if outcome.status != "ok":
        said = outcome.reason.removesuffix(".")
        findings.torch["a trace"] = f"does not start: {said}"
        findings.problems.append(
            (
                f"A trace does not start with torch {version}: {said}.",
                "Use a torch that was tested: docs/versions.md.",
            )
        )
        return
    missed, notes, lacks = (outcome.value[key] for key in ("missed", "notes", "lacks"))
    findings.torch["a trace"] = "works" if not missed else f"does not see {', '.join(missed)}"
    newer = supported.newer_than_tested(version)
    findings.notes = [*filter(None, [newer]), *(note for note in notes if note != newer)]
    findings.notes += [f"{name}: {without}" for name, without in lacks]
    if missed:
        findings.problems.append(
            (
                f"A trace with torch {version} does not see {', '.join(missed)}.",
                "See `luxmeter trace --coverage`.",
            )
        )


def trial() -> dict[str, Any]:
    """A training step under a trace: which of its calls were missed, what was noted, what this torch lacks."""
    import torch

    import luxmeter as lux
    from luxmeter import scratch

    warnings.simplefilter("ignore")  # what they say is in the notes
    with lux.trace(framework="torch") as trace:
        model = torch.nn.Linear(2, 2)
        torch.add(model(torch.ones(1, 2)), 1).sum().backward()  # type: ignore[no-untyped-call]
        torch.optim.SGD(model.parameters(), lr=0.1).step()
    calls = {"torch.nn.Linear", "torch.add", "Tensor.sum", "Tensor.backward", "torch.optim.SGD.step"}
    missed = sorted(calls - {row.name for row in trace.table()})
    found = {"missed": missed, "notes": trace.result.notes(), "lacks": supported.lacking()}
    scratch.remove_made()  # a worker of a pool is killed in the end
    return found


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
    found = find_lab()
    findings.store = {"lab": str(found.folder), "chosen by": found.said_by, "exists": found.exists}
    if not found.exists:
        findings.store["next"] = "made on first use, or now with: luxmeter init"
        return
    from luxmeter.store import Lab

    try:
        lab = Lab.open(found.folder, create=False)
        try:
            if server := globs.of_lab("store.url", found.folder):
                findings.store |= {"index": without_password(str(server)), "index answers": "no"}
                findings.store["index answers"] = f"yes: {lab.catalog.answering()}"
            findings.store["runs"] = len(lab.runs(archived=None))
            findings.store.setdefault("index", "SQLite file in the lab")
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
        ("torch", findings.torch),
        ("recorder core", findings.core),
        ("extras", findings.extras),
        ("store", findings.store),
    ):
        if part:
            Table([Column(title), Column("")], list(part.items())).print()
            sys.stdout.write("\n")
    for note in findings.notes:
        sys.stdout.write(f"NOTE {note}\n")
    for what, next_step in findings.problems:
        sys.stdout.write(f"PROBLEM {what}\n        {next_step}\n")
    if not findings.problems:
        sys.stdout.write("No problems found.\n")
