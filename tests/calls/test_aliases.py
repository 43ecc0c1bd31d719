"""Where else a callable is bound: found the same way by both cores."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from luxmeter.calls.patching import aliases


def test_namespaces_that_hold_something(core: ModuleType) -> None:
    wanted = [object() for _ in range(5000)]
    keys = {id(value): value for value in wanted}
    here = {"a": 1, "b": wanted[4999]}
    also = {str(n): n for n in range(1000)} | {"last": wanted[0]}
    spaces = [{}, {"a": 1}, here, {"x": object()}, also]
    assert [id(space) for space in core.holding(spaces, keys)] == [id(here), id(also)]
    assert core.holding(spaces, {}) == [] and core.holding([], keys) == []
    with pytest.raises((TypeError, AttributeError)):
        core.holding(spaces, None)


def test_names_are_found_where_they_are_bound(core_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def mine() -> None: ...

    module = ModuleType("somebodys")
    module.one = module.two = mine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "somebodys", module)
    found = [(space["__name__"], name) for space, name, value in aliases.bound({id(mine): mine})]
    assert found == [("somebodys", "one"), ("somebodys", "two")]
