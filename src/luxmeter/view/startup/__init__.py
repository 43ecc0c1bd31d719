"""Tracing a program that is not changed: the variable LUXMETER_TRACE, read when Python starts.

It is read by a line in luxmeter_startup.pth, which pip lays into site-packages; where it cannot be (luxmeter is on
PYTHONPATH only), by the sitecustomize in this folder, which `luxmeter trace` puts on PYTHONPATH.

`luxmeter trace` runs the program in a fresh interpreter with this variable set, so that everything about the program
(argv, `__main__`, sys.path, exit code, signals) is Python's own doing. The trace begins at the end of the first
import of a framework: a program may still set OMP_NUM_THREADS before it, and a process without one costs nothing.
Child processes inherit the variable and join the trace of their parent.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from luxmeter.calls import TraceOptions
from luxmeter.errors import LuxmeterError, UsageError
from luxmeter.import_hook import call_after_import
from luxmeter.literal import parse
from luxmeter.options import at_least, checked_options, declared, option
from luxmeter.view.startup import exit_code

VARIABLE = "LUXMETER_TRACE"
PARENT = "LUXMETER_TRACE_PARENT"  # set by a traced process for its children: which trace to join
HERE = Path(__file__).parent
OFF = (
    "",
    "0",
    "no",
    "off",
    "false",
)  # luxmeter_startup.pth and sitecustomize, which import nothing, have them too


@dataclass(frozen=True)
class Request(TraceOptions):
    """What LUXMETER_TRACE asks for: the options of a trace, and what is said at its end."""

    name: str = option("", "What the trace is called; else as the program.")
    into: str = option("", "Put the trace into this run: RUN/trace.", metavar="RUN")
    top: int = option(20, "Rows of the table at the end.", check=at_least(1))
    by: str = option("", "The table by api, signature, line, function, module, section, thread or rank.")
    source: bool = option(False, "Your files, with what the calls of each line cost, in place of the table.")
    steps: bool = option(
        False, "The training steps, how they split, the slowest, and their drift, in place of the table."
    )
    section: str = option("", "With --steps: the sections of this name are the steps.")
    coverage: bool = option(False, "Which callables are seen, which not, and why.")
    quiet: bool = option(False, "Say nothing at the end.")
    strict: bool = option(False, "End the program when tracing cannot begin.")

    def text(self) -> str:
        """The variable's value: what is not as it is by itself."""
        chosen = {f.name: getattr(self, f.name) for f in fields(self)}
        said = {f.name: chosen[f.name] for f in fields(self) if chosen[f.name] != f.default}
        return json.dumps(said, separators=(",", ":")) if said else "1"


def read_request(text: str, *, who: str = VARIABLE) -> Request | None:
    """`1`, a folder or file, or `inside=true sample=10 keep=calls.html`; None when `who` says no."""
    if text.strip().lower() in OFF:
        return None
    if text.strip().lower() in ("1", "yes", "on", "true"):
        return Request()
    if text.lstrip().startswith("{"):
        return make_request(_settings_in(text), who=who)
    known, found = declared(Request), dict[str, Any]()
    for part in shlex.split(text):
        name, equals, value = part.partition("=")
        if not equals:
            name, value = "keep", part
        if name in known and known[name].many:
            found.setdefault(name, []).append(value)
        else:
            found[name] = value if name in known and known[name].kind is str else parse(value)
    return make_request(found, who=who)


def make_request(settings: Mapping[str, Any], *, who: str) -> Request:
    """Checked, for what `who` says."""
    return checked_options(
        Request, settings, who=who, unknown="unknown-trace-variable", bad="bad-trace-variable"
    )


def _settings_in(text: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise UsageError(
            "bad-trace-variable",
            f"{VARIABLE} is no JSON: {error}.",
            "Take what `luxmeter trace --env` prints.",
        ) from None
    return found


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
    """Called when Python starts, by luxmeter_startup.pth or sitecustomize: trace from the first import of a framework on.

    Whatever fails, the program goes on without a trace, unless it is to be strict.
    """
    global _begun
    if _begun:  # both are there
        return
    _begun = True
    text = os.environ.get(VARIABLE, "")
    try:
        try:
            request = read_request(text)
            if request is not None:
                # A variable stays set, and meets programs that nobody thought of: what lies there is left alone.
                _begin(request if text.lstrip().startswith("{") else _beside_what_is_there(request))
        except Exception as error:  # noqa: BLE001
            not_traced(
                error, strict="strict=true" in text.lower() or '"strict":true' in text.replace(" ", "")
            )
    except SystemExit:  # while Python starts that would be called a fatal error of Python
        os._exit(exit_code.REFUSED)


def _beside_what_is_there(request: Request) -> Request:
    """The same with the first free name for each file that is there already: `calls-2.csv`."""
    keep = request.keep
    names = [keep] if isinstance(keep, str | os.PathLike) else list(keep or ())
    return replace(request, keep=tuple(_free_name(Path(name)) for name in names)) if names else request


def _free_name(path: Path) -> str:
    stem, dot, ending = path.name.partition(".")
    place, number = path, 2
    while place.is_file():
        place, number = path.with_name(f"{stem}-{number}{dot}{ending}"), number + 1
    return str(place)


def _begin(request: Request) -> None:
    if request.strict:
        exit_code.prepare()
    atexit.register(
        _speak
    )  # this early, to be called late: what is said of the trace is no output of the program's run
    if any(name in sys.modules for name in _FRAMEWORKS):
        start_now(request)
        return
    # A trace that has begun sees the other framework come by itself.
    call_after_import(lambda: start_now(request), *_FRAMEWORKS)


def _speak() -> None:
    life = sys.modules.get("luxmeter.view.startup.life")
    if life is not None:
        life.speak()


def start_now(request: Request) -> None:
    """Join the parent's trace, or begin one that ends with this process; if neither can be, say why and leave nothing."""
    try:
        from luxmeter.view.startup import life

        if not life.join(os.environ.get(PARENT, "")):
            life.begin(request)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - this runs inside the program's `import torch`
        not_traced(error, strict=request.strict)


def not_traced(error: BaseException, *, strict: bool) -> None:
    """Say in one line why there is no trace; where that is to end the program, end it."""
    why = str(error) if isinstance(error, LuxmeterError) else f"{type(error).__name__}: {error}"
    with contextlib.suppress(Exception):  # a program without stderr, or with one that is closed
        sys.stderr.write(f"luxmeter: not traced: {' '.join(why.split())}\n")
        sys.stderr.flush()
    if strict:
        exit_code.fail(exit_code.REFUSED)  # also where a thread or the program itself stops the SystemExit
        raise SystemExit(exit_code.REFUSED) from None
