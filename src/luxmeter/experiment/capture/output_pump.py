"""The process that carries a program's output to where it was going, and keeps a copy with the run.

A process of its own, not a thread: native code may fill the pipe while it holds Python's lock, and what the program
started may go on printing after the program's end. Started as a script, with the standard library alone.

Arguments: the run's folder, the most bytes to keep, the control socket's number, then a pair `from:to` of file numbers
for each stream. On one byte at the control socket everything that has come is carried on; then `DONE` is answered. A
stream that nobody reads any more is given up: its place among the pairs is told, so that the program lets go of it, too.
"""

from __future__ import annotations

import codecs
import importlib.util
import os
import select
import selectors
import signal
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

DONE = b"d"
GIVEN_UP = b"0123456789"  # told of the stream at this place

_FLUSH_EVERY_S = 0.5

HERE = Path(__file__).parent


def main() -> None:
    """Carry until no process can write any more."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    folder, most_bytes, control, *pairs = sys.argv[1:]
    file = _load(HERE.parents[1] / "store" / "output_file.py").OutputFile(
        Path(folder), most_bytes=int(most_bytes)
    )
    plain_text = _load(HERE / "output_text.py").PlainText
    streams = {}
    for pair in pairs:
        source, target = map(int, pair.split(":"))
        streams[source] = (target, codecs.getincrementaldecoder("utf-8")("replace"), plain_text())
    _carry(streams, int(control), file)
    for _, _, text in streams.values():
        rest = text.rest()
        file.append(f"{rest}\n" if rest else "")
    file.close()


def _carry(streams: dict[int, Any], control: int, file: Any) -> None:
    places = {source: GIVEN_UP[i : i + 1] for i, source in enumerate(streams)}
    open_ones = set(streams)
    with selectors.DefaultSelector() as waiting:  # select() itself takes no file number beyond 1,023
        for number in (*streams, control):
            waiting.register(number, selectors.EVENT_READ)
        while open_ones:
            ready = [key.fd for key, _ in waiting.select(_FLUSH_EVERY_S)]
            for source in [number for number in ready if number in open_ones]:
                if not _carry_some(source, streams[source], file):
                    open_ones.discard(source)
                    waiting.unregister(source)
                    os.close(source)
                    _tell(control, places[source])
            if not ready:
                for _, _, text in streams.values():
                    _keep(file, text.open_line())
            elif ready == [control]:  # asked, and nothing else is waiting
                if _asked(control):
                    for _, _, text in streams.values():
                        _keep(file, text.open_line())
                    _tell(control, DONE)
                else:
                    waiting.unregister(control)  # the program is gone; what it started may still print


def _asked(control: int) -> bool:
    try:
        return bool(os.read(control, 1))
    except OSError:
        return False


def _tell(control: int, what: bytes) -> None:
    try:
        os.write(control, what)
    except OSError:
        return  # the program is gone


def _carry_some(source: int, stream: Any, file: Any) -> bool:
    """One piece; False when there will be no more, or nobody reads it: then the writer shall notice."""
    target, decoder, text = stream
    data = os.read(source, 1 << 16)
    if not data:
        return False
    _keep(file, text.feed(decoder.decode(data)))
    try:
        write_all(target, data)
    except OSError:
        return False
    return True


def write_all(target: int, data: bytes) -> None:
    """All of it, also where whoever made the target had it refuse to wait."""
    while data:
        try:
            data = data[os.write(target, data) :]
        except BlockingIOError:
            free = select.poll()
            free.register(target, select.POLLOUT)
            free.poll()


def _keep(file: Any, text: str) -> None:
    try:
        if text:
            file.append(text)
    except OSError:
        return  # a full disk: the program's output goes on


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
