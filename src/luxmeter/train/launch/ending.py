"""How the ranks of a job ended, told so that the cause stands on top."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Ending:
    """The end of a rank: its exit code (below zero: a signal), when it was seen, and what it wrote of its failure."""

    rank: int
    code: int
    time_ns: int
    line: str = ""
    text: str = ""
    is_echo: bool = False  # of another rank's failure
    is_ours: bool = False  # a message of Luxmeter
    was_ended: bool = False  # by the launcher

    @property
    def is_failure(self) -> bool:
        """Whether the rank failed, for a reason of its own or by another."""
        return self.code != 0 or bool(self.text)

    @property
    def is_interrupt(self) -> bool:
        """Whether Ctrl-C ended it."""
        return not self.text and self.code in (-signal.SIGINT, 128 + signal.SIGINT)


def read_ending(rank: int, code: int, time_ns: int, report: Path, *, was_ended: bool = False) -> Ending:
    """With what the rank wrote in torchrun's form, if it did."""
    try:
        said = json.loads(report.read_text(encoding="utf-8"))["message"]
        extra: dict[str, Any] = said["extraInfo"]
        seen = int(extra.get("time_ns", float(extra["timestamp"]) * 1e9))
        return Ending(
            rank,
            code,
            seen,
            line=str(said["message"]),
            text=str(extra["py_callstack"]),
            is_echo=bool(extra.get("is_echo", False)),
            is_ours=bool(extra.get("is_ours", False)),
            was_ended=was_ended,
        )
    except (OSError, ValueError, KeyError, TypeError):
        return Ending(rank, code, time_ns, was_ended=was_ended)


def first_of(endings: Sequence[Ending]) -> Ending | None:
    """The rank that failed for a reason of its own before all others; None if none failed."""
    failed = [one for one in endings if one.is_failure]
    own = [one for one in failed if not one.is_echo and (one.text or not one.was_ended)]
    if failed and not own:  # all lost somebody: who had left?
        own = [one for one in endings if not one.is_failure] or failed
    return min(own, key=lambda one: one.time_ns, default=None)


def told(endings: Sequence[Ending]) -> str:
    """The first failure whole, then a line for each other rank; what all ranks say alike stands there once."""
    first = first_of(endings)
    if first is None:
        return ""
    world = len(endings)
    if first.is_ours and all(one.text == first.text for one in endings):
        return first.text
    others = [one for one in sorted(endings, key=lambda one: one.rank) if one is not first]
    head = f"luxmeter: rank {first.rank} of {world}"
    if first.text:
        top = f"{head} failed first:\n{first.text.rstrip()}\n"
    else:
        top = f"{head} {_end_of(first)}.{_hint(first)}\n"
    return top + "".join(f"  rank {one.rank} {_beside(one)}\n" for one in others)


def exit_code(endings: Sequence[Ending]) -> int:
    """That of the first failure; of a signal as shells say it."""
    first = first_of(endings)
    if first is None:
        return 0
    if first.was_ended and first.text:  # it had failed, and was slow to end
        return 2 if first.is_ours else 1
    return 128 - first.code if first.code < 0 else first.code or 1


def _beside(one: Ending) -> str:
    """What became of a rank that was not the first to fail."""
    if one.is_echo:
        return "ended with it"
    if one.text:
        return f"failed, too: {one.line}"
    if one.was_ended:
        return "was ended"
    return _end_of(one)


def _end_of(one: Ending) -> str:
    if one.code < 0:
        try:
            name = signal.Signals(-one.code).name
        except ValueError:
            name = f"signal {-one.code}"
        return f"was ended by {name}"
    if one.code == 0:
        return "had come to its end"
    return f"ended with exit code {one.code}"


def _hint(one: Ending) -> str:
    if one.code == -signal.SIGKILL:
        return " The system does that when memory runs out, or somebody did."
    if one.code == 0:
        return " The others were still at work together."
    return " What it printed is above." if one.code > 0 else ""
