"""What a call was given, as a table shows it: shapes first, settings second; what is too long loses the
names of settings, then the middle of them, never a shape.
"""

from __future__ import annotations

import re

_SHAPE = re.compile(r"\w+\[[-\d,]*\]")
_MODULE = re.compile(r"[A-Za-z_][\w.]*\(")
_THING = re.compile(r"(<[\w.<>]+>), ")  # a module or an object whose settings are not known
_SETTING = re.compile(r"(?<=[(\s])[a-z_]\w*=")
_LEFT_OUT = "..."


def signature_text(text: str, most: int | None) -> str:
    """`Linear(in_features=64, out_features=256, bias=True), f32[32,64]` -> `f32[32,64], Linear(64, 256, True)`."""
    front, module = _parted(text)
    found = front + module
    if most is None or len(found) <= most:
        return found
    found = front + _SETTING.sub("", module)
    if len(found) <= most:
        return found
    # The middle goes, from behind the last shape that is not part of it.
    end = max((match.end() for match in _SHAPE.finditer(found)), default=0)
    room = most - len(_LEFT_OUT)
    kept = max(end, room - (room - end) // 3) if end < room else min(end, len(found))
    tail = max(0, room - kept)
    if kept + tail + len(_LEFT_OUT) >= len(found):
        return found
    return found[:kept] + _LEFT_OUT + (found[len(found) - tail :] if tail else "")


def _parted(text: str) -> tuple[str, str]:
    """What stands before, and the module that a call began with: it goes behind the tensors."""
    begin = _MODULE.match(text)
    thing = _THING.match(text)
    if thing and _SHAPE.search(text):
        return f"{text[thing.end() :]}, ", thing[1]
    depth = 0
    for place in range(begin.end() - 1 if begin else len(text), len(text)):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(text[place], 0)
        if not depth:
            module, rest = text[: place + 1], text[place + 1 :]
            return (f"{rest[2:]}, ", module) if rest.startswith(", ") and _SHAPE.search(rest) else (text, "")
    return text, ""
