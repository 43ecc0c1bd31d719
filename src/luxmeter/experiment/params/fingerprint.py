"""The hash of parameters, and whether two values are the same ones (luxmeter.identity says what counts)."""

from __future__ import annotations

from typing import Any

from luxmeter.errors import UsageError
from luxmeter.identity import Unknown, digest_of, encode


def fingerprint(value: Any) -> str:
    """32 hex digits of `value`; an object that offers nothing stable to read is refused."""
    try:
        return digest_of(value)
    except Unknown as problem:
        raise UsageError(
            "no-stable-hash",
            f"A value of type {problem.type_name!r} has no hash that another process would find again: {problem.why}.",
            "Keep a name, a number or a file path in the parameters instead, and build the object from it.",
        ) from None


def same(a: Any, b: Any) -> bool:
    """Whether the two values are equal, arrays and tensors by content; never raises."""
    if a is b:
        return True
    try:
        return encode(a, by_code=True) == encode(b, by_code=True)
    except Unknown:
        try:
            return bool(a == b)
        except Exception:  # noqa: BLE001  a foreign __eq__ may raise or answer with an array
            return False
