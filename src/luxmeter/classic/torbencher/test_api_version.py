"""Test cases for some versions of torch: `@test_api_version.larger_than("1.1.3")`. In others they are missed.

Versions are compared as versions: "2.13.0" is larger than "2.9.1". `between` includes both ends (in Torbencher it left
out what lies between).
"""

from __future__ import annotations

import re
import unittest
from collections.abc import Callable
from typing import Any

from luxmeter.supported import version_of

__test__ = False  # pytest: a name of old, no tests


def larger_than(version_str: str) -> Callable[[Any], Any]:
    """For torch above this version."""
    return _only(_here() > _numbers(version_str), f"larger than {version_str}")


def less_than(version_str: str) -> Callable[[Any], Any]:
    """For torch below this version."""
    return _only(_here() < _numbers(version_str), f"less than {version_str}")


def between(lowest_version_str: str, highest_version_str: str) -> Callable[[Any], Any]:
    """For torch from the one version to the other."""
    inside = _numbers(lowest_version_str) <= _here() <= _numbers(highest_version_str)
    return _only(inside, f"between {lowest_version_str} and {highest_version_str}")


def equal(version_str: str) -> Callable[[Any], Any]:
    """For this version of torch."""
    return _only(_here() == _numbers(version_str), f"equal to {version_str}")


def _only(holds: bool, said: str) -> Callable[[Any], Any]:
    return unittest.skipIf(not holds, f"torch {version_of('torch')} is not {said}")


def _here() -> tuple[int, ...]:
    return _numbers(version_of("torch"))


def _numbers(version: str) -> tuple[int, ...]:
    """`2.13.0+cpu` -> (2, 13, 0); missing parts are zero."""
    found = [int(n) for n in re.findall(r"\d+", version.partition("+")[0])][:3]
    return tuple(found + [0] * (3 - len(found)))
