"""Which names of a trace are kept: patterns as of the shell, on the full name or on the label."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import translate

from luxmeter.errors import UsageError, suggestion


class Filter:
    """Keeps what matches `only` (everything when it is empty) and nothing of `skip`."""

    def __init__(self, *, only: Sequence[str] = (), skip: Sequence[str] = ()) -> None:
        self.only, self.skip = tuple(only), tuple(skip)
        self._only, self._skip = _compiled(self.only), _compiled(self.skip)

    def keeps(self, name: str, label: str = "") -> bool:
        """Whether a call of this name is recorded."""
        names = (name, label) if label else (name,)
        if self._only is not None and not any(self._only.fullmatch(each) for each in names):
            return False
        return self._skip is None or not any(self._skip.fullmatch(each) for each in names)

    def check(self, known: Iterable[tuple[str, str]], *, unless: Sequence[str] = ()) -> None:
        """Raise for a pattern that no known (name, label) matches, before anything is patched.

        Names that begin with one of `unless` are those of a framework that is not imported yet: taken as they are.
        """
        pairs = list(known)
        for pattern in (*self.only, *self.skip):
            if unless and pattern.startswith(tuple(unless)):
                continue
            matches = _compiled((pattern,))
            assert matches is not None
            if not any(
                matches.fullmatch(name) or (label and matches.fullmatch(label)) for name, label in pairs
            ):
                near = suggestion(pattern, [name for name, _ in pairs])
                raise UsageError(
                    "filter-matches-nothing",
                    f"The filter {pattern!r} matches no callable that can be traced.",
                    near or "See coverage() for all names; patterns may hold *, ? and [].",
                )


def _compiled(patterns: Sequence[str]) -> re.Pattern[str] | None:
    # "[]" is how indexing is shown, and no set of characters: taken literally.
    return (
        re.compile("|".join(re.escape(p) if p in ("[]", "[] =") else translate(p) for p in patterns))
        if patterns
        else None
    )
