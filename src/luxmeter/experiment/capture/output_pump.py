"""The process that carries a program's output to where it was going, and keeps a copy with the run.

A process of its own, not a thread: native code may fill the pipe while it holds Python's lock, and what the program
started may go on printing after the program's end. Started as a script, with the standard library alone.

Arguments: the run's folder, the most bytes to keep, the control socket's number, then a pair `from:to` of file numbers
for each stream. On one byte at the control socket everything that has come is carried on; then it is answered.
"""

from __future__ import annotations

import codecs
import importlib.util
import os
import select
import signal
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

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
    open_ones = set(streams)
    listening = {control}
    while open_ones:
        ready, _, _ = select.select([*open_ones, *listening], [], [], _FLUSH_EVERY_S)
        for source in [number for number in ready if number in open_ones]:
            if not _carry_some(source, streams[source], file):
                open_ones.discard(source)
                os.close(source)
        if not ready:
            for _, _, text in streams.values():
                _keep(file, text.open_line())
        elif ready == [control]:  # asked, and nothing else is waiting
            if os.read(control, 1):
                for _, _, text in streams.values():
                    _keep(file, text.open_line())
                os.write(control, b"d")
            else:
                listening.clear()  # the program is gone; what it started may still print


def _carry_some(source: int, stream: Any, file: Any) -> bool:
    """One piece; False when there will be no more, or nobody reads it: then the writer shall notice."""
    target, decoder, text = stream
    data = os.read(source, 1 << 16)
    if not data:
        return False
    _keep(file, text.feed(decoder.decode(data)))
    try:
        while data:
            data = data[os.write(target, data) :]
    except OSError:
        return False
    return True


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
