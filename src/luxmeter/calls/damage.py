"""What of a trace is damaged: every byte that has a checksum is looked at, part by part."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from luxmeter.calls.checked import check_end
from luxmeter.calls.describe import read_lines
from luxmeter.calls.device_time import FOLDER as DEVICE
from luxmeter.calls.reader import identity_of, lines_of, nameless_in, parts_of, read_process, reading
from luxmeter.calls.sites import SOURCES
from luxmeter.errors import LuxmeterError
from luxmeter.files import bytes_of, read_json
from luxmeter.render import counted
from luxmeter.store import damage_in, damage_of


def damage_of_trace(folder: Path) -> list[tuple[Path, str]]:
    """Where, and what."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(_of_trace(folder))


def _of_trace(folder: Path) -> Iterator[tuple[Path, str]]:
    yield from _tried(folder, folder / "trace.json", lambda: identity_of(folder))
    for process in sorted(folder.glob("rank*-*")):
        yield from _of_process(folder, process)
    for text in sorted((folder / SOURCES).glob("*.txt")):
        try:
            right = hashlib.sha256(bytes_of(text)).hexdigest().startswith(text.stem)
        except OSError as error:
            yield text, str(error)
            continue
        if not right:
            yield text, "it does not hold what its name says"


def _of_process(folder: Path, process: Path) -> Iterator[tuple[Path, str]]:
    words, damaged = process / "words.jsonl", list[str]()
    yield from _tried(folder, words, lambda: read_lines(lines_of(process), damaged))
    if damaged:
        yield words, f"{len(damaged)} of its lines"
    broken = list(
        _tried(folder, process / "end.json", lambda: check_end(read_json(process / "end.json", {})))
    )
    yield from broken
    record = None if broken else read_process(process)
    nameless = 0
    for part in parts_of(process):
        folded = part.with_suffix(".parquet")
        if folded.exists():
            found = [why] if (why := damage_of(folded)) else []
        else:
            found = damage_in(part)
        yield from ((folded if folded.exists() else part, why) for why in found)
        if not found:  # what has no checksum, of formats 1 and 2, shows at reading alone
            try:
                with reading(folder):
                    nameless += nameless_in(part, record) if record is not None and record.has_ended else 0
            except LuxmeterError as error:
                yield part, error.what
    if nameless and not damaged:
        yield words, f"the names of {counted(nameless, 'call')} are lost"
    for part in sorted((process / DEVICE).glob("[0-9]*")):
        yield from ((part, why) for why in damage_in(part))


def _tried(folder: Path, place: Path, look: Callable[[], object]) -> Iterator[tuple[Path, str]]:
    try:
        with reading(folder):
            look()
    except LuxmeterError as error:
        yield place, error.what
    except OSError as error:
        yield place, str(error)
