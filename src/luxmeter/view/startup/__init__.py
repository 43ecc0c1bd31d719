"""Tracing a program that is not changed: the variable LUXMETER_TRACE, read when Python starts.

It is read by a line in luxmeter_startup.pth, which pip lays into site-packages; where it cannot be (luxmeter is on
PYTHONPATH only), by the sitecustomize in this folder, which `luxmeter trace` puts on PYTHONPATH.

`luxmeter trace` runs the program in a fresh interpreter with this variable set, so that everything about the program
(argv, `__main__`, sys.path, exit code, signals) is Python's own doing. The trace begins at the end of the first
import of a framework: a program may still set OMP_NUM_THREADS before it, and a process without one costs nothing.
Child processes inherit the variable and join the trace of their parent.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from luxmeter.errors import LuxmeterError, UsageError, suggestion

VARIABLE = "LUXMETER_TRACE"
PARENT = "LUXMETER_TRACE_PARENT"  # set by a traced process for its children: which trace to join
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Request:
    """What LUXMETER_TRACE asks for."""

    inside: bool = False
    sync: bool = False
    totals: bool = False
    every: int = 1
    filter: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    out: tuple[str, ...] = ()  # a folder to keep the trace in, files to write at its end
    top: int = 20
    coverage: bool = False
    quiet: bool = False
    strict: bool = False  # end the program when tracing cannot begin
    name: str = field(default="luxmeter")  # of the folder, when none is given

    def text(self) -> str:
        """The variable's value."""
        return json.dumps(asdict(self), separators=(",", ":"))


def read_request(text: str) -> Request | None:
    """`1`, a folder or file, or `inside=true every=10 out=calls.html`; None when it says no."""
    if text.strip().lower() in ("", "0", "no", "off", "false"):
        return None
    if text.strip().lower() in ("1", "yes", "on", "true"):
        return Request()
    if text.lstrip().startswith("{"):
        return _checked(json.loads(text))
    parts = shlex.split(text)
    if all("=" not in part for part in parts):
        return Request(out=tuple(parts))
    found: dict[str, Any] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if not equals:
            name, value = "out", part
        found[name] = [*found[name], value] if name in found and name in _LISTS else _value(name, value)
    return _checked(found)


_LISTS = ("filter", "skip", "out")


def _value(name: str, text: str) -> Any:
    from luxmeter.literal import parse

    return [text] if name in _LISTS else text if name == "name" else parse(text)


def _checked(found: Mapping[str, Any]) -> Request:
    known = {f.name: f.type for f in fields(Request)}
    for name, value in found.items():
        if name not in known:
            raise UsageError(
                "unknown-trace-variable",
                f"{VARIABLE} cannot set {name!r}.",
                suggestion(name, known) or f"It knows {', '.join(known)}.",
            )
        counted = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        good = {"bool": isinstance(value, bool), "int": counted, "str": isinstance(value, str)}
        if not good.get(str(known[name]), isinstance(value, list)):
            wanted = {"bool": "true or false", "int": "a number of 1 or more"}.get(str(known[name]), "a list")
            raise UsageError("bad-trace-variable", f"{VARIABLE} has {name}={value!r}.", f"It takes {wanted}.")
    made: dict[str, Any] = {name: tuple(value) if name in _LISTS else value for name, value in found.items()}
    return Request(**made)


def starts_by_itself() -> bool:
    """Whether the variable alone is enough: pip laid luxmeter_startup.pth beside the package."""
    import sysconfig

    places = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    return any(Path(place, "luxmeter_startup.pth").exists() for place in places)


def environment(request: Request, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of a program that is to be traced."""
    others = [p for p in environ.get("PYTHONPATH", "").split(os.pathsep) if p and p != str(HERE)]
    added = {VARIABLE: request.text(), "PYTHONPATH": os.pathsep.join([str(HERE), *others])}
    return {k: v for k, v in environ.items() if k != PARENT} | added


_begun = False
_FRAMEWORKS = ("torch", "mindspore")


def begin() -> None:
    """Called when Python starts, by luxmeter_startup.pth or sitecustomize: trace from the first import of a framework on."""
    global _begun
    if _begun:  # both are there
        return
    _begun = True
    try:
        request = read_request(os.environ.get(VARIABLE, ""))
    except (LuxmeterError, ValueError) as error:
        sys.stderr.write(f"luxmeter: not traced: {error}\n")
        return
    if request is None:
        return
    if request.strict:
        from luxmeter.view.startup import exit_code

        exit_code.prepare()
    if any(name in sys.modules for name in _FRAMEWORKS):
        start_now(request)
        return
    from luxmeter.view.startup.first_import import call_after_import

    started: list[Request] = []

    def start_once() -> None:
        if not started:
            started.append(request)
            start_now(request)

    for name in _FRAMEWORKS:
        call_after_import(name, start_once)


def start_now(request: Request) -> None:
    """Join the parent's trace, or begin one that ends with this process."""
    from luxmeter.view.startup import life

    try:
        joined = life.join(os.environ.get(PARENT, ""))
        if not joined:
            life.begin(request)
    except LuxmeterError as error:
        sys.stderr.write(f"luxmeter: {'' if request.strict else 'not traced: '}{error}\n")
        if request.strict:
            raise SystemExit(2) from None
