"""MindSpore needs an environment of its own (make mindspore): elsewhere these tests are not even looked at."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).parent
_spec = importlib.util.find_spec("mindspore")
# This folder is called mindspore too: without the real one, it is what Python finds.
collect_ignore_glob = [] if _spec is not None and _spec.origin is not None else ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of them carry the mark."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.mindspore)


def mindspore_names() -> dict[tuple[str, str], Any]:
    """Everything callable that is bound in a module or a class of MindSpore, as it is bound."""
    import mindspore

    found: dict[tuple[str, str], Any] = {}
    classes: set[type] = {mindspore.Tensor, mindspore.Parameter, mindspore._c_expression.TensorPy}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "mindspore" or not isinstance(module, ModuleType):
            continue
        for attribute, value in list(vars(module).items()):
            if callable(value):
                found[name, attribute] = value
            if isinstance(value, type) and str(getattr(value, "__module__", "")).startswith("mindspore."):
                classes.add(value)
    for cls in classes:
        for attribute, value in list(vars(cls).items()):
            if attribute not in (
                "__abstractmethods__",
                "_abc_impl",
                "__doc__",
                "__dict__",
                "__weakref__",
                "__slotnames__",
            ):
                found[f"{cls.__module__}.{cls.__qualname__}#{id(cls)}", attribute] = value
    return found


@pytest.fixture(autouse=True)
def mindspore_as_it_was() -> Iterator[None]:
    """After a test every name of MindSpore is bound to the object it was bound to, and classes have no new ones."""
    before = mindspore_names()
    yield
    after = mindspore_names()
    owners = {owner for owner, _ in before}
    changed = [k for k in before if k not in after or after[k] is not before[k]]
    new = [
        k for k in after.keys() - before.keys() if "#" in k[0] and k[0] in owners and "Iterator" not in k[0]
    ]
    assert not changed, f"MindSpore is not as it was: {sorted(changed)[:10]}"
    assert not new, f"left behind: {sorted(new)[:10]}"
