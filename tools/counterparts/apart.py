"""Verification where a death costs little: forked from a worker that has everything imported and nothing started.

Importing both frameworks and torch's samples takes long; a fork of a process that did takes milliseconds. MindSpore
starts its threads with the first operator, so the process that forks must never run one.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import time
from collections.abc import Sequence
from typing import Any

from cell_samples import verify_module
from verify import verify


def verify_apart(items: Sequence[dict[str, Any]], *, timeout_s: float = 60.0) -> dict[str, Any]:
    """Verify one after another in one child -> {"results": of those that were done, "died": how, "at": where}.

    Each item holds the arguments of `verify`; `timeout_s` is for one.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _verify_all(items, writing)
    os.close(writing)
    results: list[Any] = []
    at: Any = None
    died = ""
    rest, deadline = b"", time.monotonic() + timeout_s
    with selectors.DefaultSelector() as selector:
        selector.register(reading, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                os.kill(child, signal.SIGKILL)
                died = "timeout"
                break
            data = os.read(reading, 1 << 16)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for kind, said in map(json.loads, lines):
                if kind == "done":
                    results.append(said)
                    at, deadline = None, time.monotonic() + timeout_s
                else:
                    at = said
    os.close(reading)
    _, status = os.waitpid(child, 0)
    if not died and os.WIFSIGNALED(status):
        died = signal.Signals(os.WTERMSIG(status)).name
    elif not died and len(results) < len(items):
        died = f"exit code {os.WEXITSTATUS(status)}"
    return {"results": results, "died": died, "at": at}


def _is_module(op: str) -> bool:
    space, _, name = op.rpartition(".")
    return space == "torch.nn" and name[:1].isupper()


def _verify_all(items: Sequence[dict[str, Any]], writing: int) -> None:
    """The child: never returns."""

    def tell(kind: str, said: Any) -> None:
        os.write(writing, json.dumps([kind, said]).encode() + b"\n")

    try:
        for item in items:
            work = verify_module if _is_module(item["what"][0]) else verify
            try:
                found = work(**item, note=lambda target, sample: tell("at", [target, sample]))
            except Exception as error:  # noqa: BLE001  (of the comparison itself: told, not hidden)
                found = {"failed": f"{type(error).__name__}: {error}"[:300], "targets": []}
            tell("done", found)
    finally:
        os._exit(0)
