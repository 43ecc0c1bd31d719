"""Text from files and records, made harmless for a terminal: what would steer it is shown instead of done."""

from __future__ import annotations

import re

# C0 and C1 controls but for newline and tab, DEL, and the marks that turn the direction of writing around; and half
# characters, which no terminal takes.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str) -> str:
    r"""The text with escape sequences and other control characters spelled out: `\x1b[31m`."""
    return _STEERING.sub(_spelled, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    r"""As `plain`, with newlines and tabs spelled out too."""
    return plain(text).replace("\n", "\\n").replace("\t", "\\t")


def _spelled(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
