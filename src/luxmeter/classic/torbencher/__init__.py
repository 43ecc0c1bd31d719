"""Torbencher's front door: what its test cases import, and the three that run them. Only import lines change:

from luxmeter.classic.torbencher import TorBencherTestCaseBase, test_api, test_api_version

The cases draw their inputs with `random`, `torch.randn` and the like; a check gives them the same numbers on every
device. `num_epoches` of old is `rounds` of `luxmeter check`.
"""

from __future__ import annotations

import unittest
from collections.abc import Callable
from typing import Any, TypeVar

from luxmeter.classic.torbencher import test_api_version
from luxmeter.classic.torbencher.runners import SingleTester, bencherDebugger, torbencher

__all__ = [
    "SingleTester",
    "TorBencherTestCaseBase",
    "bencherDebugger",
    "test_api",
    "test_api_version",
    "torbencher",
]

C = TypeVar("C", bound=type)


class TorBencherTestCaseBase(unittest.TestCase):
    """A class of test cases: each `test_...` method draws inputs, calls one API and returns what it gave."""

    api = ""  # what it is about, set by `test_api`


def test_api(api: Any) -> Callable[[C], C]:
    """Say which API a class of test cases is about."""
    from luxmeter.classic.api_names import getAPIName
    from luxmeter.errors import UsageError

    try:
        name = api if isinstance(api, str) else getAPIName(api)
    except UsageError:  # none of torch's public names
        name = (
            f"{getattr(api, '__module__', '') or 'torch'}.{getattr(api, '__qualname__', type(api).__name__)}"
        )

    def mark(cls: C) -> C:
        cls.api = name  # type: ignore[attr-defined]
        return cls

    return mark


test_api.__test__ = False  # type: ignore[attr-defined]  # pytest: a decorator, no test
