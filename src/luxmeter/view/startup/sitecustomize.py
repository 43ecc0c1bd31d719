"""Runs when Python starts, if this folder is on PYTHONPATH: `luxmeter trace` puts it there.

It takes its folder off sys.path again (child processes find it through PYTHONPATH), lets a sitecustomize of the
user's own run, and asks for a trace. A program that is not to be traced pays a look at one variable.
"""

import os
import sys


def _another() -> None:
    """The sitecustomize that this one stands before, as if it stood alone."""
    here = __file__.rpartition(os.sep)[0]
    sys.path[:] = [folder for folder in sys.path if folder != here]
    mine = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        if mine is not None:
            sys.modules["sitecustomize"] = mine


def _trace() -> None:
    """What luxmeter_startup.pth does where pip has laid it; here the package itself may be absent."""
    wanted = os.environ.get("LUXMETER_TRACE", "")
    if wanted.strip().lower() in ("", "0", "no", "off", "false"):
        return
    try:
        from luxmeter.view.startup import begin
    except Exception as error:  # noqa: BLE001 - whatever is broken there, the program is not
        if (
            getattr(error, "name", "") == "luxmeter"
        ):  # another interpreter, without luxmeter: it runs as it is
            return
        if sys.stderr is not None:
            sys.stderr.write(f"luxmeter: not traced: it cannot be imported: {error}\n")
        if 'strict":true' in wanted:
            os._exit(2)
    else:
        begin()


_trace()
_another()
