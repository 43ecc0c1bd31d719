"""A program that Ctrl-C ended dies of that signal, as a shell expects, whatever is done at its end.

Python notes that nobody caught it, and forgets it with the next text that is executed: a class of dataclasses or namedtuple
in a module that is first needed at the end is one. So it is noted once more, after all work at the end.
"""

from __future__ import annotations

import atexit
import contextlib
import sys


def _note_it_anew() -> None:
    error = getattr(sys, "last_value", None)
    if type(error) is not KeyboardInterrupt or error.__traceback__ is None or hasattr(sys, "ps1"):
        return
    frame = error.__traceback__.tb_frame
    if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__":
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")  # noqa: S102 - a text of our own


atexit.register(_note_it_anew)  # what is registered first is called last
