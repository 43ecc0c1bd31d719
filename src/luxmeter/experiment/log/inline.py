"""One line that refreshes itself: on a terminal in place, in a notebook as one output, in a file now and then."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field
from typing import Any, TextIO

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b.?|[\x00-\x1a\x1c-\x1f\x7f-\x9f]+")
_GAP = "   "  # between the end of a scrolling text and its beginning
_SCROLL_STEP = 2


@dataclass
class Pace:
    """How often the line is shown, in seconds: on a terminal or in a notebook, and in a file or pipe."""

    refresh_s: float = 0.1
    redirected_s: float = 10.0


@dataclass
class InlineLine:
    """The line that is being refreshed, wherever it is shown."""

    pace: Pace = field(default_factory=Pace)
    _text: str = ""  # the newest text
    _shown: str | None = None  # what is on the screen; None when no line is open
    _last_s: float = -float("inf")
    _draws: int = 0
    _width_drawn: int = 0
    _handle: Any = None

    def show(self, text: str, stream: TextIO, *, now_s: float) -> None:
        """Make `text` the line; it may appear later, or not at all if a newer one comes first."""
        self._text = single_line(text)
        notebook = notebook_display()
        slow = notebook is None and not is_terminal(stream)
        pause_s = self.pace.redirected_s if slow else self.pace.refresh_s
        if now_s - self._last_s >= pause_s:
            self._last_s = now_s
            self._draw(stream, notebook)

    def finish(self, stream: TextIO) -> None:
        """Leave the newest text standing and close the line, so that something else can be written below."""
        if self._shown is None and not self._text:
            return
        notebook = notebook_display()
        if self._shown != self._text:
            self._draw(stream, notebook)
        if notebook is not None or is_terminal(stream):
            self._last_s = -float("inf")  # a new line appears at once; a file keeps its pace
        if notebook is None and is_terminal(stream):
            _write(stream, "\n")
        self._text, self._shown, self._handle = "", None, None
        self._draws, self._width_drawn = 0, 0

    @property
    def is_open(self) -> bool:
        return self._shown is not None or bool(self._text)

    def _draw(self, stream: TextIO, notebook: Any) -> None:
        if notebook is not None:
            self._draw_in_notebook(notebook)
        elif is_terminal(stream):
            line = clip(self._text, max(1, columns(stream) - 1), self._draws * _SCROLL_STEP)
            # Blanks rather than an escape code: they wipe what was there on any terminal.
            blanks = " " * max(0, min(self._width_drawn, columns(stream) - 1) - cells(line))
            _write(stream, f"\r{line}{blanks}\r{line}" if blanks else f"\r{line}")
            self._width_drawn = cells(line)
        else:
            _write(stream, self._text + "\n")
        self._shown = self._text
        self._draws += 1

    def _draw_in_notebook(self, display: Any) -> None:
        data = {"text/plain": self._text}
        if self._handle is None:
            self._handle = display.display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


def single_line(text: str) -> str:
    """The text without line breaks, escape codes and other control characters."""
    return _CONTROL.sub(" ", text).strip()


def clip(text: str, width: int, offset: int = 0) -> str:
    """As much of the text as fits into `width` cells; a longer one scrolls by `offset` characters."""
    if cells(text) <= width:
        return text
    ring = text + _GAP
    start = offset % len(ring)
    turned = ring[start:] + ring[:start]
    taken, used = [], 0
    for character in turned:
        wide = cells(character)
        if used + wide > width:
            break
        taken.append(character)
        used += wide
    return "".join(taken)


def cells(text: str) -> int:
    """How many columns the text takes: two for most Chinese, Japanese and Korean characters."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def columns(stream: TextIO) -> int:
    """The width of the terminal behind the stream; 80 where it does not know."""
    try:
        width = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError, AttributeError):
        width = 0
    return width or 80


def is_terminal(stream: TextIO) -> bool:
    """Whether a line on this stream can be written over."""
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # not a file, or closed
        return False


def notebook_display() -> Any:
    """IPython's display functions inside a notebook, otherwise None."""
    if "IPython" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    if shell is None or type(shell).__name__ == "TerminalInteractiveShell":
        return None
    import IPython.display

    return IPython.display


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except UnicodeEncodeError:
        stream.write(text.encode("ascii", "replace").decode())
        stream.flush()
    except (OSError, ValueError, AttributeError):  # the reader is gone, the stream closed, or there is none
        pass
