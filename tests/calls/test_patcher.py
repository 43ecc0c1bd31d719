"""The patcher where a program does in the middle what it usually does before or after: each name ends bound as it was."""

from __future__ import annotations

import gc
import sys
import types
from typing import Any

import pytest
import torch
import torch.fx
from seen import Seen, unchanged

from luxmeter.calls import frameworks
from luxmeter.calls.patching import survivors
from luxmeter.calls.patching.bindings import ABSENT, Binding
from luxmeter.calls.patching.suspended import Suspended
from luxmeter.errors import LuxmeterError, LuxmeterWarning, UsageError, forget_warnings


@pytest.fixture(params=["c", "python"])
def core(request: pytest.FixtureRequest) -> str:
    return str(request.param)


BEFORE, AFTER = object(), object()


class Owner:
    x = BEFORE


def test_a_stretch_aside_that_outlives_the_trace_puts_nothing_back(core: str) -> None:
    with unchanged():
        with Seen(core) as seen:
            stretch = seen.patcher.suspended()
            stretch.__enter__()
        stretch.__exit__()


def test_what_is_bound_in_a_stretch_aside_is_put_behind_it(core: str) -> None:
    with Seen(core) as seen:
        with seen.patcher.suspended():
            seen.patcher.bind(Binding(Owner, "x", BEFORE, AFTER))
            assert Owner.x is BEFORE
        assert Owner.x is AFTER
    assert Owner.x is BEFORE


def test_what_cannot_be_bound_is_not_taken_away_either(core: str) -> None:
    before = int.__dict__["bit_count"]
    with Seen(core) as seen:
        n = len(seen.patcher._bindings)
        with pytest.raises(TypeError):
            seen.patcher.bind(Binding(int, "bit_count", before, AFTER))
        assert len(seen.patcher._bindings) == n and seen.patcher.stand_in_for(before) is None
    assert int.__dict__["bit_count"] is before


def test_what_the_user_binds_in_a_stretch_aside_stays(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def mine(x: Any) -> Any:
        return x

    monkeypatch.setattr(torch, "sin", torch.sin)  # bound as it was in the end
    with Seen(core) as seen:
        with seen.patcher.suspended():
            torch.sin = mine
        assert torch.sin is mine and torch.sin(3) == 3
    assert torch.sin is mine


def test_a_module_of_torch_that_takes_a_stand_in_as_it_is_imported_gets_the_original(
    core: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, mine = torch.sin, sys.modules[__name__]
    monkeypatch.setattr(torch.fx, "stray_of_a_test", None, raising=False)
    monkeypatch.setattr(mine, "stray_of_a_test", None, raising=False)
    with Seen(core) as seen:
        torch.fx.stray_of_a_test = mine.stray_of_a_test = torch.sin  # type: ignore[attr-defined]
        aside = seen.patcher._suspended
        aside.end(aside.begin(), imported=True)
        assert torch.fx.stray_of_a_test is original  # type: ignore[attr-defined]
        assert mine.stray_of_a_test is torch.sin is not original  # type: ignore[attr-defined]
    assert mine.stray_of_a_test is original  # type: ignore[attr-defined]


def test_a_stand_in_that_stands_for_no_original_stays_where_the_user_took_it(
    core: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = sys.modules[__name__]
    monkeypatch.setattr(mine, "stray_of_a_test", None, raising=False)

    def made() -> int:
        return 7

    with Seen(core) as seen:
        seen.patcher.bind(Binding(Owner, "made", ABSENT, made))
        mine.stray_of_a_test = made  # type: ignore[attr-defined]
    assert not hasattr(Owner, "made") and mine.stray_of_a_test() == 7  # type: ignore[attr-defined]


def test_after_a_fork_in_a_stretch_aside_they_are_put_behind_it(core: str) -> None:
    with unchanged(), Seen(core) as seen:
        with seen.patcher.suspended():
            before = torch.sin
            seen.patcher.after_fork()  # in the child, where this thread is the only one
            assert torch.sin is before
        assert torch.sin is not before
        torch.sin(torch.ones(1))
        assert seen.counts()["torch.sin"] == 1


@pytest.mark.one_core("no call is recorded")
def test_the_stretch_of_a_thread_that_is_not_in_the_forked_child_ends_nothing() -> None:
    done: list[str] = []
    aside = Suspended(lambda: done.append("taken"), lambda imported: done.append("put"))
    elsewhere = aside.begin() + 1
    aside.end(elsewhere, imported=False)
    assert done == ["taken"] and aside
    aside.end(elsewhere - 1, imported=False)
    assert done == ["taken", "put"] and not aside


@pytest.mark.one_core("no call is recorded")
def test_an_instance_that_is_gone_is_nothing_to_bind() -> None:
    class Plain:
        pass

    one = Plain()
    one.act = len  # type: ignore[attr-defined]
    binding = Binding(one, "act", len, abs, instance=True)
    assert binding.put() and vars(one)["act"] is abs
    del one
    gc.collect()
    assert binding.owner is None and binding.take() and binding.put()


def test_a_framework_that_arrives_and_cannot_be_traced_is_told_and_the_program_goes_on(
    core: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Half:
        """Nothing of it fits."""

        def removed(self) -> None:
            asked.append("removed")

    def make(name: str, also: Any) -> Any:
        asked.append(name)
        if len(asked) == 1:
            raise ImportError("half of it is missing")
        return Half()

    with unchanged():
        with Seen(core) as seen:
            monkeypatch.setattr(frameworks, "make", make)
            for said in ("half of it is missing", "has no attribute"):
                forget_warnings()
                with pytest.warns(LuxmeterWarning, match=f"mindspore was imported.*{said}"):
                    seen.patcher.arrived("mindspore")
            seen.patcher.arrived("mindspore")  # known by now
            torch.sin(torch.ones(1))
            assert seen.counts()["torch.sin"] == 1
        seen.patcher.arrived("torch")  # while another trace runs
    assert asked == ["mindspore", "mindspore", "removed"]


def test_an_error_of_ours_is_no_part_that_is_left_out(core: str) -> None:
    patcher = Seen(core).patcher
    for error in (UsageError("s", "It is wrong.", "Mend it."), MemoryError()):
        with pytest.raises((LuxmeterError, MemoryError)), patcher._leaving_out("a part"):
            raise error
    with patcher._leaving_out("a part"):
        raise AttributeError("not in this torch")
    assert [entry.name for entry in patcher.left_out] == ["a part"]
    patcher.remove()  # of one that was never put in place


@pytest.mark.one_core("no call is recorded")
def test_cells_and_classes_that_hold_nothing_to_put_back() -> None:
    def restore(value: Any) -> Any:
        return abs if value is len else value

    empty, full, other = types.CellType(), types.CellType(len), types.CellType(3)
    for cell in (empty, full, other):
        survivors._in_place(cell, restore)
    assert full.cell_contents is abs and other.cell_contents == 3
    with pytest.raises(ValueError):
        _ = empty.cell_contents
    before = int.__dict__["bit_count"]
    survivors._in_class(int, lambda value: len if value is before else value)  # cannot be changed
    assert int.__dict__["bit_count"] is before
