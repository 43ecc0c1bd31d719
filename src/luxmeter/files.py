"""Small files: written whole or not at all, and JSON that gives back the types it was given."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import secrets
import stat
import zlib
from pathlib import Path
from typing import Any

from luxmeter.described import TYPE, Described, DescribedMapping, leaf, type_of, with_type
from luxmeter.errors import StoreError, UsageError

_SUM = "$sum"  # CRC-32 of all the rest
MOST_JSON_BYTES = 256 << 20  # of one file: what is larger was not written by us, and would fill the memory
DEEPEST = 200  # nesting of JSON: what is deeper overflows the stack of whoever walks through it


def write_file(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Make `path` hold `data`, by rename: a reader sees the old content or the new, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(3)}")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def refuse_unwritable(path: Path) -> None:
    """A file that a user named and that cannot be written: told before the work that fills it."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UsageError(
            "no-such-folder",
            f"{path} cannot be written: there is no folder {path.parent}.",
            "Make the folder first.",
        )
    why = "it is a folder" if path.is_dir() else ""
    if not why and not os.access(path if path.exists() else folder, os.W_OK):
        why = "permission denied"
    if why:
        raise UsageError("file-unwritable", f"{path} cannot be written: {why}.", "Give another place for it.")


def write_named(path: Path, data: bytes) -> None:
    """As `write_file`, a file that a user named: what hinders it is told."""
    refuse_unwritable(path)
    try:
        write_file(path, data)
    except OSError as error:
        raise UsageError(
            "file-unwritable", f"{path} cannot be written: {error.strerror}.", "Give another place for it."
        ) from error


def open_file(path: Path) -> io.BufferedReader:
    """A file that lies in a lab, to be read. A pipe in its place, on which one would wait for ever, or a device, which has no
    end, is an OSError: a folder may come from elsewhere."""
    return open(path, "rb", opener=_no_pipe)


def _no_pipe(path: str, flags: int) -> int:
    number = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    kind = os.fstat(number).st_mode
    if stat.S_ISREG(kind) or stat.S_ISDIR(kind):  # of a folder `open` says so itself
        return number
    os.close(number)
    raise OSError(f"{path} is a pipe or a device, no file")


def bytes_of(path: Path) -> bytes:
    """All of a file that lies in a lab."""
    with open_file(path) as file:
        return file.read()


def sha256_of(path: Path) -> str:
    """What a file's content is called, as sha256sum prints it."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable, where the system can."""
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def make_below(root: Path, folder: Path) -> None:
    """Make `folder`, which lies below `root`; FileNotFoundError if `root` itself is not there: removed, it stays so."""
    place = root
    for part in folder.relative_to(root).parts:
        place = place / part
        place.mkdir(exist_ok=True)


def write_json(path: Path, value: Any, *, durable: bool = False, summed: bool = False) -> None:
    """Write `value` as readable JSON that `read_json` gives back with its types.

    `summed`, for a mapping: with a checksum that `read_json` looks at. Not for what people change by hand.
    """
    if summed:
        plain = to_json(value)
        text = json.dumps({**plain, _SUM: _sum_of(plain)}, indent=1, allow_nan=False) + "\n"
    else:
        text = json_text(value)
    write_file(path, text.encode(), durable=durable)


def json_text(value: Any, *, indent: int | None = 1) -> str:
    """`value` as a file of JSON holds it. Half characters (odd bytes on a command line) are escaped, all else is readable."""
    text = json.dumps(to_json(value), indent=indent, ensure_ascii=False, allow_nan=False)
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        text = json.dumps(to_json(value), indent=indent, ensure_ascii=True, allow_nan=False)
    return text + "\n"


def parsed_json(text: str | bytes) -> Any:
    """What JSON says; ValueError if it is none, or nested deeper than Python follows."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json(path: Path, default: Any = None) -> Any:
    """What `write_json` wrote; `default` if there is no such file. Whatever else lies there is `file-damaged`."""
    try:
        with open_file(path) as file:
            data = file.read(MOST_JSON_BYTES + 1)
        if len(data) > MOST_JSON_BYTES:
            raise ValueError(f"it has more than {MOST_JSON_BYTES >> 20} MiB")
        plain = parsed_json(data.decode("utf-8"))
        if isinstance(plain, dict) and _SUM in plain and plain.pop(_SUM) != _sum_of(plain):
            raise ValueError("it does not hold what was written")
        return from_json(plain)
    except (FileNotFoundError, NotADirectoryError):
        return default
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(
            "file-damaged",
            f"{path} is not readable: {error}.",
            "Restore it from a copy, or move its run's folder away: the other runs are not touched.",
        ) from error


def _sum_of(plain: Any) -> str:
    return f"{zlib.crc32(json.dumps(plain, sort_keys=True).encode()):08x}"


def to_json(value: Any, depth: int = 0) -> Any:
    """Plain JSON for `value`. What JSON has no word for is marked: {"$tuple": [...]}, {"$float": "nan"}, {"$value": ...}, {"$type": ...}."""
    if isinstance(value, Described):
        return {"$value": {"type": value.type, "text": str(value), "digest": value.digest}}
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        value = float(value)
        return value if math.isfinite(value) else {"$float": repr(value)}
    if depth >= DEEPEST and isinstance(value, dict | list | tuple):
        return to_json(leaf(value))
    if isinstance(value, dict):
        plain = {
            key if isinstance(key, str) else repr(key): to_json(item, depth + 1)
            for key, item in value.items()
        }
        plain = {"$dict": plain} if any(key.startswith("$") for key in plain) else plain
        return {TYPE: name, **plain} if (name := type_of(value)) else plain
    if isinstance(value, list):
        return [to_json(item, depth + 1) for item in value]
    if isinstance(value, tuple):
        return {"$tuple": [to_json(item, depth + 1) for item in value]}
    if isinstance(value, Path):
        return str(value)
    item = getattr(value, "item", None)  # NumPy and framework scalars
    if (
        callable(item)
        and getattr(value, "size", getattr(value, "numel", None)) in (1, None)
        and not hasattr(value, "numel")
    ):
        return to_json(item())
    return to_json(leaf(value))


def from_json(value: Any, depth: int = 0) -> Any:
    """The value behind `to_json`; what is only described (`$value`; `$repr` in older runs) comes back as a text."""
    if depth > DEEPEST and isinstance(value, dict | list):
        raise ValueError(f"it is nested deeper than {DEEPEST}")
    if isinstance(value, list):
        return [from_json(item, depth + 1) for item in value]
    if isinstance(value, dict):
        if len(value) == 1:
            (key, inner), *_ = value.items()
            if key == "$tuple":
                return tuple(from_json(item, depth + 1) for item in inner)
            if key == "$float":
                return float(inner)
            if key == "$repr":
                return inner
            if key == "$value" and isinstance(inner, dict):
                return Described(*(str(inner.get(part, "")) for part in ("text", "type", "digest")))
            if key == "$dict":
                return {name: from_json(item, depth + 1) for name, item in inner.items()}
        if isinstance(name := value.get(TYPE), str):
            fields = from_json({key: item for key, item in value.items() if key != TYPE}, depth)
            return with_type(DescribedMapping(fields), name)
        return {name: from_json(item, depth + 1) for name, item in value.items()}
    return value
