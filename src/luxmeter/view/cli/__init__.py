"""The `luxmeter` command: one file a verb.

Every module of this package has `register(app)`, which adds its commands; COMMANDS names them. Only the module of the
command that was asked for is loaded, and a module imports what is heavy only inside the command: a list of runs is
there at once.
"""

from __future__ import annotations

import errno
import importlib
import io
import sys
import traceback
from pathlib import Path
from typing import ClassVar

import typer

from luxmeter import __version__
from luxmeter.errors import LuxmeterError, StoreError
from luxmeter.plain_text import plain
from luxmeter.settings import without_password
from luxmeter.torch_extra import is_about_torch, needs_torch
from luxmeter.view.command_help import Help, context_settings

# What they are for -> each command, with the module that has it where that is called otherwise.
COMMANDS: dict[str, dict[str, str]] = {
    "Measure": {
        "trace": "", "ops": "", "bench": "", "check": "", "model": "", "zen": "", "search": "",
    },
    "Runs": {
        "run": "", "runs": "", "show": "", "diff": "", "code": "", "reproduce": "", "rollback": "", "rerun": "",
        "repeats": "", "plot": "", "note": "", "tag": "", "untag": "tag", "archive": "", "export": "",
        "import": "import_", "rm": "",
    },
    "Train": {"train": "", "eval": "", "control": "", "queue": "", "sweep": "", "new": ""},
    "Look": {"report": "", "ui": "", "top": ""},
    "Lab": {"doctor": "", "init": "", "config": "", "reindex": "", "gc": "reindex"},
}  # fmt: skip
_MODULES = {name: module or name for group in COMMANDS.values() for name, module in group.items()}


class _Commands(Help):
    titles: ClassVar = {title: tuple(group) for title, group in COMMANDS.items()}


def build_app(command: str = "") -> typer.Typer:
    """The application with all commands, or with this one alone."""
    app = typer.Typer(
        name="luxmeter",
        cls=_Commands,
        help="Measures what your torch gives: every API call timed, every operator replayable, every run kept.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=context_settings(),
    )

    @app.callback(invoke_without_command=True)
    def _options(
        version: bool = typer.Option(False, "--version", help="Show the version and exit.", is_eager=True),
    ) -> None:
        if version:
            sys.stdout.write(f"luxmeter {__version__}\n")
            raise typer.Exit

    for module in dict.fromkeys([_MODULES[command]] if command else _MODULES.values()):
        importlib.import_module(f"{__name__}.{module}").register(app)
    return app


def main() -> None:
    """Run the command line. What a user can mend is told in one line, without a traceback; exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(
            stream, io.TextIOWrapper
        ):  # what a terminal has no letters for is a question mark there
            stream.reconfigure(errors="replace")
    asked = sys.argv[1] if len(sys.argv) > 1 else ""
    try:
        build_app(asked if asked in _MODULES else "")()
    except LuxmeterError as error:
        sys.stderr.write(f"luxmeter: {error}\n")
        raise SystemExit(2) from None
    except ModuleNotFoundError as error:
        if not is_about_torch(error):
            raise
        sys.stderr.write(f"luxmeter: {needs_torch('This command')}\n")
        raise SystemExit(2) from None
    except BrokenPipeError:  # the reader of our output has gone: `luxmeter runs | head`
        sys.stderr.close()
        raise SystemExit(141) from None
    except OSError as error:
        if error.errno not in _REFUSALS or _is_users(error):
            raise
        where = f" ({error.filename})" if error.filename else ""
        refused = StoreError(
            "system-refused",
            f"The system refuses: {plain(f'{error.strerror}{where}')}.",
            "Give rights or make room there, then try again.",
        )
        sys.stderr.write(f"luxmeter: {refused}\n")
        raise SystemExit(2) from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("sqlite3", "psycopg") or _is_users(error):
            raise
        said = str(error).strip().partition("\n")[0]
        refused = StoreError(
            "database-refused",
            f"A database of the lab refuses: {plain(without_password(said)).rstrip('.')}.",
            "Give rights or make room there; luxmeter doctor --lab looks at all of it.",
        )
        sys.stderr.write(f"luxmeter: {refused}\n")
        raise SystemExit(2) from None


_REFUSALS = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENAMETOOLONG,
    errno.ELOOP, errno.ESTALE,
}  # fmt: skip


def _is_users(error: BaseException) -> bool:
    """Whether a program of the user's met it, which then has its traceback."""
    ours = (str(Path(__file__).parents[2]), sys.prefix, sys.base_prefix, sys.exec_prefix, "<")
    compiled = (".pyx", ".pxi", ".pxd")  # of a package, whose frames name no place: pyarrow/error.pxi
    names = [frame.filename for frame in traceback.extract_tb(error.__traceback__)[1:]]
    return any(not name.startswith(ours) and not name.endswith(compiled) for name in names)
