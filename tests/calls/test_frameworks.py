"""Which frameworks a trace looks at; without MindSpore here, what is said about it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import luxmeter as lux
from luxmeter.calls import frameworks
from luxmeter.classic import apitimewrapper
from luxmeter.errors import MissingExtraError, UsageError

ONE_CORE = "which frameworks are looked at is settled before a core is chosen"


def test_torch_alone_never_imports_mindspore():
    code = "import luxmeter as lux, sys, torch\nwith lux.trace(): torch.ones(2)\nprint('mindspore' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_auto_is_torch_until_mindspore_is_imported():
    assert frameworks.chosen("auto") == ("torch",) and frameworks.awaited("auto") == ("mindspore",)
    assert (
        frameworks.chosen("torch+mindspore") == ("torch", "mindspore") and frameworks.awaited("torch") == ()
    )
    with pytest.raises(UsageError, match="unknown-framework"):
        frameworks.chosen("torch+jax")


@pytest.mark.parametrize("start", [lambda: lux.trace(framework="mindspore"), apitimewrapper.start_hook_net])
def test_missing_mindspore_is_one_line(start):
    with pytest.raises(MissingExtraError) as told:
        start()
    assert (
        told.value.slug == "mindspore-missing"
        and "pip install" in str(told.value)
        and "\n" not in str(told.value)
    )
    assert "mindspore" not in sys.modules


def test_several_may_wait_for_one_package(tmp_path, monkeypatch):
    """As in a spawned child of `luxmeter trace`: the variable and the parent both wait for torch."""
    import contextlib
    import sys

    from luxmeter.calls.patching.suspended import suspended_imports
    from luxmeter.import_hook import call_after_import

    (tmp_path / "awaited_package.py").write_text("x = 1")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    arrived: list[str] = []
    for number in range(2):
        suspended_imports(
            (),
            contextlib.nullcontext,
            ("awaited_package",),
            lambda _, n=number: arrived.append(f"calls {n}"),  # type: ignore[misc]
            lambda _: contextlib.nullcontext(),
        ).put()
        call_after_import(lambda n=number: arrived.append(f"view {n}"), "awaited_package", "os")  # type: ignore[misc]
    import awaited_package  # type: ignore[import-not-found]

    monkeypatch.delitem(sys.modules, "awaited_package")
    assert awaited_package.x == 1 and sorted(arrived) == ["calls 0", "calls 1", "view 0", "view 1"]
    assert awaited_package.__spec__.loader is awaited_package.__loader__  # its own, and nothing of ours stays
    assert not type(awaited_package.__loader__).__module__.startswith("luxmeter")


def test_waiting_for_several_packages_is_over_with_the_first(tmp_path, monkeypatch):
    import sys

    from luxmeter.import_hook import call_after_import

    for name in ("first_awaited", "second_awaited", "broken_awaited"):
        (tmp_path / f"{name}.py").write_text("1 / 0" if name == "broken_awaited" else "x = 1")
    monkeypatch.syspath_prepend(tmp_path)
    before = list(sys.meta_path)
    seen: list[str] = []
    call_after_import(
        lambda: seen.append(sys.modules["first_awaited"].x),
        "broken_awaited",
        "first_awaited",
        "second_awaited",
    )
    call_off = call_after_import(lambda: seen.append("never"), "second_awaited")
    with pytest.raises(ZeroDivisionError):  # it did not arrive
        __import__("broken_awaited")
    for name in ("first_awaited", "second_awaited"):
        if name == "second_awaited":
            assert call_off() is True and call_off() is False
        __import__(name)
        monkeypatch.delitem(sys.modules, name)
    assert seen == [1] and sys.meta_path == before
