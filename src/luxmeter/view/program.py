"""The program of `luxmeter run`: a fresh interpreter starts here, begins a run, and then runs the user's program.

The user's program finds everything as Python would have left it: argv, `__main__`, sys.path, tracebacks without a
frame of ours, its exit code, and death by the signal that killed it. It runs inside this process, not beside it,
because only from inside can be seen with which code, or by which exception, it ended.
"""

from __future__ import annotations

import json
import os
import sys
import types
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.machinery import SourceFileLoader
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from luxmeter.view.watched_program import Watched

VARIABLE = "LUXMETER_RUN"


@dataclass(frozen=True)
class RunRequest:
    """What `luxmeter run` was asked for."""

    name: str
    is_named: bool = False  # by the user, not after the script
    module: str = ""
    params: Mapping[str, Any] | None = None  # of --param
    options: Mapping[str, Any] | None = None  # of the experiment

    def text(self) -> str:
        """As it is handed over."""
        return json.dumps(asdict(self))


def main() -> None:
    """Begin the run, run the program, end as it ends."""
    import atexit

    from luxmeter.errors import LuxmeterError
    from luxmeter.view.script import end_as_interrupted

    atexit.register(end_as_interrupted)  # the first: called last
    request = RunRequest(**json.loads(os.environ.pop(VARIABLE)))
    _as_python_would(request)
    from luxmeter.view.watched_program import Watched

    try:
        watched = Watched.begin(request)
    except LuxmeterError as error:
        sys.stderr.write(f"luxmeter: {error}\n")
        sys.exit(2)
    _run(request, watched)


def _as_python_would(request: RunRequest) -> None:
    """argv, path and an empty `__main__`, as at the start of the user's program."""
    flags = sys.orig_argv[: sys.orig_argv.index(__file__)] if __file__ in sys.orig_argv else [sys.executable]
    sys.orig_argv = [*flags, *(["-m", request.module] if request.module else []), *sys.argv[1:]]
    sys.argv = ["-m", *sys.argv[1:]] if request.module else sys.argv[1:]
    if not sys.flags.safe_path:
        # Python put the folder of this file there.
        script = os.path.realpath(sys.argv[0])
        sys.path[0] = os.getcwd() if request.module else os.path.dirname(script)  # noqa: PTH109, PTH120
    made = types.ModuleType("__main__")
    made.__dict__.update(__builtins__=sys.modules["builtins"], __annotations__={}, __package__=None)
    if not request.module and not os.path.isdir(sys.argv[0]):  # noqa: PTH112
        file = os.path.abspath(sys.argv[0])  # noqa: PTH100  (links stay, as Python leaves them)
        made.__dict__.update(__file__=file, __cached__=None, __loader__=SourceFileLoader("__main__", file))
    sys.modules["__main__"] = made


def _run(request: RunRequest, watched: Watched) -> None:
    try:
        _execute(request)
    except SystemExit as error:
        watched.ended(error.with_traceback(_own_part(error)))
        raise
    except BaseException as error:  # noqa: BLE001
        error.__traceback__ = _own_part(error)
        watched.ended(error)
        if not _is_told_by_launcher(error):
            _tell(error, watched.id)
        if not isinstance(error, KeyboardInterrupt):  # of which Python dies by the signal, when all is done
            sys.exit(1)
    else:
        watched.ended(None)


def _execute(request: RunRequest) -> None:
    main_module = sys.modules["__main__"]
    if request.module or os.path.isdir(sys.argv[0]):  # noqa: PTH112
        import runpy

        if not request.module:
            sys.path[0] = os.path.abspath(sys.argv[0])  # noqa: PTH100
        name, alter = (request.module, True) if request.module else ("__main__", False)
        runpy._run_module_as_main(name, alter)  # type: ignore[attr-defined]
        return
    file = main_module.__dict__["__file__"]
    with open(file, "rb") as source:
        code = compile(source.read(), file, "exec", dont_inherit=True)
    exec(code, main_module.__dict__)  # noqa: S102


def _own_part(error: BaseException) -> types.TracebackType | None:
    """The traceback from the program's own first frame on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


def _is_told_by_launcher(error: BaseException) -> bool:
    """Whether this is one of several processes (--processes), whose launcher shows the first failure once."""
    if "LUXMETER_LAUNCHED" not in os.environ or isinstance(error, KeyboardInterrupt):
        return False
    from luxmeter.train import dist

    return dist.tell_failure(error)


def _tell(error: BaseException, run_id: str) -> None:
    """What Python prints of it, the frames of installed packages left out: the run has all."""
    trace = error.__traceback__
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    if sys.excepthook is sys.__excepthook__ and _tell_users_part(error, run_id):
        return
    try:
        sys.excepthook(type(error), error, trace)
    except BaseException as second:  # noqa: BLE001
        sys.stderr.write("Error in sys.excepthook:\n")
        sys.__excepthook__(type(second), second, second.__traceback__)
        sys.stderr.write("\nOriginal exception was:\n")
        sys.__excepthook__(type(error), error, trace)


def _tell_users_part(error: BaseException, run_id: str) -> bool:
    """Where something is left out, or the terminal has colours for it; a script of its own lines alone is told as ever."""
    from luxmeter.frames import frames, users_frames, with_causes

    left_out = 0
    for one in with_causes(error):
        own = users_frames(one.__traceback__, "")
        if own is not None:
            left_out += len(list(frames(one.__traceback__))) - len(list(frames(own)))
            one.__traceback__ = own
    on_terminal = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    if not (left_out or on_terminal) or isinstance(error, KeyboardInterrupt):
        return False
    if on_terminal:
        from rich.console import Console
        from rich.traceback import Traceback

        shown = Traceback.from_exception(type(error), error, error.__traceback__, extra_lines=2)
        Console(stderr=True).print(shown)
    else:
        sys.__excepthook__(type(error), error, error.__traceback__)
    if left_out:
        lines = "1 frame" if left_out == 1 else f"{left_out} frames"
        sys.stderr.write(f"({lines} in installed packages left out: luxmeter show {run_id[:5]} --error)\n")
    return True


if __name__ == "__main__":
    main()
