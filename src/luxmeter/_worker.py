"""The far side of `isolate`: runs named functions, one after another, for the process that started it.

Started as a script by whatever interpreter is to do the work, so nothing but the standard library is imported here
until work asks for it, and the syntax stays what older interpreters read.

Protocol, version 1: frames of a 4-byte big-endian length and that many bytes of JSON, requests on standard input,
answers on what was standard output. Whatever the work itself prints goes to standard error.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import importlib.machinery
import importlib.util
import json
import os
import queue
import signal
import struct
import sys
import threading
import traceback
from typing import Any, BinaryIO

VERSION = 1


def main() -> None:
    """Answer the first request with a hello, every further one with its result, until the input ends."""
    requests, answers = _private_streams()
    # The script's own folder is no place to import from: its names are not top-level modules.
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != here]  # noqa: PTH100
    faulthandler.enable()
    if hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGUSR1, all_threads=True)
    inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests, inbox), daemon=True).start()
    start = json.loads(inbox.get())
    sys.path.extend(p for p in start["paths"] if p not in sys.path)
    _offer_luxmeter(here)
    _limit_memory(start["memory_bytes"])
    _answer(answers, _attempt(_preload, start["preload"]), start["most_bytes"])
    while True:
        request = json.loads(inbox.get())
        _answer(answers, _attempt(_work, request["work"], request["args"]), start["most_bytes"])


def _private_streams() -> tuple[BinaryIO, BinaryIO]:
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return requests, answers


def _listen(requests: BinaryIO, inbox: queue.SimpleQueue[bytes]) -> None:
    """Hand requests over; when the parent is gone, go too, whatever is running."""
    with contextlib.suppress(OSError):
        while True:
            head = requests.read(4)
            if len(head) < 4:
                break
            inbox.put(requests.read(struct.unpack(">I", head)[0]))
    os._exit(0)


def _preload(modules: list[str]) -> dict[str, Any]:
    for name in modules:
        importlib.import_module(name)
    return {"version": VERSION, "python": sys.version.split()[0], "pid": os.getpid()}


def _work(name: str, args: dict[str, Any]) -> Any:
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found(**args)


def _attempt(call: Any, *args: Any) -> dict[str, Any]:
    try:
        return {"ok": True, "value": call(*args)}
    except BaseException as error:  # noqa: BLE001  (SystemExit and Ctrl-C of the work are its outcome too)
        return {
            "ok": False,
            "type": type(error).__name__,
            "message": str(error)[:10_000],
            "traceback": traceback.format_exc()[-20_000:],
        }


def _answer(answers: BinaryIO, answer: dict[str, Any], most_bytes: int) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    try:
        data = json.dumps(answer).encode()
    except (TypeError, ValueError) as error:
        data = json.dumps(_refusal("NotJSON", "the result cannot be sent as JSON: " + str(error))).encode()
    if len(data) > most_bytes:
        said = f"the result has {len(data)} bytes, more than the {most_bytes} that are taken"
        data = json.dumps(_refusal("TooLarge", said)).encode()
    answers.write(struct.pack(">I", len(data)) + data)
    answers.flush()


def _refusal(kind: str, message: str) -> dict[str, Any]:
    return {"ok": False, "type": kind, "message": message, "traceback": ""}


def _limit_memory(memory_bytes: int | None) -> None:
    if memory_bytes is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))


def _offer_luxmeter(here: str) -> None:
    """Another environment has no luxmeter: let it find this one, and nothing else of this environment."""
    if importlib.util.find_spec("luxmeter") is None:
        sys.meta_path.append(_Finder(os.path.dirname(here)))  # noqa: PTH120


class _Finder:
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "luxmeter":
            return None
        return importlib.machinery.PathFinder.find_spec(name, [self._folder])


if __name__ == "__main__":
    main()
