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


if os.environ.get("LUXMETER_TRACE"):
    try:
        from luxmeter.view.startup import begin
    except ImportError:  # another interpreter, without luxmeter: it runs as it is
        pass
    else:
        begin()
_another()
