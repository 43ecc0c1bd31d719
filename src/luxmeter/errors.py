"""Every error and warning of Luxmeter: what happened with which value, and what to do next.

Each carries a slug, the heading under which docs/messages.md explains it. A test reads the slugs out of the
source, so the slug is always a literal at the place that raises.
"""

from __future__ import annotations

import difflib
import threading
import warnings
from collections.abc import Iterable

from luxmeter.plain_text import plain


def _between(what: str) -> str:
    """A traceback ends with a line break of its own."""
    return "" if what.endswith("\n") else " "


class LuxmeterError(Exception):
    """The base of all errors that Luxmeter raises on purpose."""

    def __init__(self, slug: str, what: str, next_step: str) -> None:
        # A name or a value in it may come from elsewhere, and Python shows the text of an exception as it is.
        super().__init__(plain(f"{what}{_between(what)}{next_step} [{slug}]"))
        self.slug = slug
        self.what = what
        self.next_step = next_step

    def __reduce__(self) -> tuple[type[LuxmeterError], tuple[str, str, str]]:
        return type(self), (self.slug, self.what, self.next_step)


class UsageError(LuxmeterError, ValueError):
    """An argument, option, file or name from the user that cannot be used as it is."""


class MissingNameError(LuxmeterError, AttributeError, KeyError):
    """A name was read that nobody set."""

    __str__ = Exception.__str__  # KeyError's would show the repr


class StoreError(LuxmeterError):
    """The lab, a run in it, or its index cannot do what was asked."""


class ServerError(StoreError):
    """A database server is not there, or refuses."""


class TraceError(LuxmeterError):
    """Tracing cannot start, go on, or be read."""


class CheckpointError(LuxmeterError):
    """A checkpoint or another saved state is damaged, unsafe or absent."""


class MissingExtraError(LuxmeterError, ImportError):
    """An optional package is needed and not installed."""


class LuxmeterWarning(UserWarning):
    """Something went wrong that does not stop the program."""


_warned: set[tuple[str, str]] = set()
_warned_lock = threading.Lock()


def warn_once(slug: str, what: str, next_step: str, *, key: str = "", stacklevel: int = 3) -> None:
    """Warn, once a process for each slug and key."""
    with _warned_lock:
        if (slug, key) in _warned:
            return
        _warned.add((slug, key))
    warnings.warn(
        LuxmeterWarning(plain(f"{what}{_between(what)}{next_step} [{slug}]")), stacklevel=stacklevel
    )


def forget_warnings() -> None:
    """Let every warning be given again (for tests and for a new session in a notebook)."""
    with _warned_lock:
        _warned.clear()


def suggestion(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """`Did you mean 'epoch'?` when one of the known names is near, otherwise an empty string."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"Did you mean {near[0]!r}?" if near else ""


def near_names(name: str, known: Iterable[str], *, most: int = 3) -> str:
    """`Did you mean 'SGD' or 'ASGD'?`: as `suggestion`, of up to `most` names, whatever their case."""
    by_lower = {one.lower(): one for one in known}
    near = [repr(by_lower[low]) for low in difflib.get_close_matches(name.lower(), by_lower, n=most)]
    return f"Did you mean {' or '.join(near)}?" if near else ""
