"""What a terminal would show in the end of a stream of text: no colours, no lines that were written over."""

from __future__ import annotations

import re

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links
    r"|\x1b[()][0-9A-B]|\x1b[=>78DEHMNOVWXZc^_\\]"
)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]{0,4096}\x1b?|[()])?\Z")
_LONGEST_LINE = 1 << 16


class PlainText:
    """Takes pieces as a program writes them; gives the lines that are complete."""

    def __init__(self) -> None:
        self._escape = ""  # the beginning of an escape sequence whose end is still to come
        self._line = (
            ""  # what stands in the last line; with a "\r" in it a progress bar, which will be written over
        )

    def feed(self, piece: str) -> str:
        """Take a piece; returns the text that is final."""
        text = self._escape + piece
        self._escape = ""
        if "\x1b" in text:
            unfinished = _UNFINISHED.search(text)
            if unfinished:
                text, self._escape = text[: unfinished.start()], text[unfinished.start() :]
            text = _ESCAPES.sub("", text)
        head, newline, tail = (self._line + text).rpartition("\n")
        self._line = _shortened(tail)
        final = "".join(_visible(line) + "\n" for line in head.split("\n")) if newline else ""
        if len(self._line) > _LONGEST_LINE:
            final += self.open_line()
        return final

    def open_line(self) -> str:
        """The line that has no end yet, unless it is a progress bar; it counts as given."""
        if "\r" in self._line:
            return ""
        line, self._line = self._line, ""
        return line

    def rest(self) -> str:
        """What is left at the end."""
        line, self._line, self._escape = _visible(self._line), "", ""
        return line


def _visible(line: str) -> str:
    """A line as it stands after all that was written over it."""
    if "\r" not in line:
        return line
    written = [part for part in line.split("\r") if part]
    return written[-1] if written else ""


def _shortened(line: str) -> str:
    """An unfinished line without what can no longer be seen."""
    if "\r" not in line:
        return line
    seen = _visible(line)
    return f"\r{seen}\r" if line.endswith("\r") else f"\r{seen}"
