"""Whether a run was made here by this user: by a mark in run.json that only the user's own key can make.

The mark is of the run's id, its moment and its folder's number on the file system. So a run that was imported, unpacked
or copied in has none that holds, whatever its files say; one that was moved on the same file system keeps its mark.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
from pathlib import Path
from typing import Any

from luxmeter.settings import globs

_KEY_BYTES = 32


def mark_of(identity: dict[str, Any], folder: Path) -> str:
    """The mark of a run that is made now; empty where no key can be kept."""
    key = _key(make=True)
    return _mark(key, identity, folder) if key else ""


def is_own(identity: dict[str, Any], folder: Path) -> bool:
    """Whether this user made the run in this folder."""
    key, said = _key(), identity.get("mark")
    if not key or not isinstance(said, str) or not said.isascii():
        return False
    with contextlib.suppress(OSError):
        return hmac.compare_digest(said, _mark(key, identity, folder))
    return False


def _mark(key: bytes, identity: dict[str, Any], folder: Path) -> str:
    told = f"{identity['id']} {identity['created_ns']} {folder.stat().st_ino}"
    return hmac.new(key, told.encode(), hashlib.sha256).hexdigest()


def _key(*, make: bool = False) -> bytes:
    """The user's key, beside the user's settings; empty if there is none."""
    file = globs.glob_fn.with_name("key")
    try:
        if make and not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            made = file.with_name(f".key.{secrets.token_hex(4)}")
            with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as new:
                new.write(secrets.token_bytes(_KEY_BYTES))
            with contextlib.suppress(FileExistsError):  # of two that begin at once, the first one's
                os.link(made, file)
            made.unlink()
        found = file.read_bytes()
    except OSError:
        return b""
    return found if len(found) == _KEY_BYTES else b""
