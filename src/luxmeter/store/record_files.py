"""Records of a run as JSON files, whatever text is in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from luxmeter.files import to_json, write_file, write_json


def write_record(path: Path, value: Any, *, durable: bool = False) -> None:
    """As `write_json`; half characters (the odd bytes of a file's name on the command line) are kept too."""
    try:
        write_json(path, value, durable=durable)
    except UnicodeEncodeError:
        write_file(path, record_text(value).encode(), durable=durable)


def record_text(value: Any, *, indent: int | None = 1) -> str:
    """The text of a record that has half characters in it, or none: they are escaped."""
    text = json.dumps(to_json(value), indent=indent, ensure_ascii=False, allow_nan=False)
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        text = json.dumps(to_json(value), indent=indent, ensure_ascii=True, allow_nan=False)
    return text + "\n"
