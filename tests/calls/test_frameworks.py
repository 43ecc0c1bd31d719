"""Which frameworks a trace looks at; without MindSpore here, what is said about it."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

import luxmeter as lux
from luxmeter.calls import device, frameworks
from luxmeter.classic import apitimewrapper
from luxmeter.errors import LuxmeterWarning, MissingExtraError, TraceError, UsageError

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


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What version each package is said to have; nothing of MindSpore is known as imported."""
    said = {"numpy": "1.26", "mindspore": "2.9"}
    monkeypatch.setattr(frameworks, "version_of", lambda name: said[name])
    monkeypatch.setattr("luxmeter.loaded._whole", {})
    return said


@pytest.fixture
def package(tmp_path, monkeypatch, versions):
    """Makes a MindSpore whose import does this."""

    def make(text: str) -> None:
        (tmp_path / "mindspore").mkdir()
        (tmp_path / "mindspore" / "__init__.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(sys, "path", [entry for entry in sys.path if not entry.endswith("tests")])

    yield make
    sys.modules.pop("mindspore", None)


def test_a_mindspore_that_cannot_be_imported_is_one_line(package):
    package("raise RuntimeError('no kernel\\nfor this processor')")
    assert frameworks.has_mindspore() and frameworks.chosen("auto") == ("torch",)
    with pytest.raises(MissingExtraError, match="RuntimeError: no kernel for this processor") as told:
        frameworks.import_mindspore()
    assert told.value.slug == "mindspore-broken"


def test_a_mindspore_that_says_itself_what_is_missing(package):
    package(
        "from luxmeter.errors import MissingExtraError\nraise MissingExtraError('its-own', 'It lacks a.', 'Get a.')"
    )
    with pytest.raises(MissingExtraError, match="its-own"):
        frameworks.import_mindspore()


def test_a_mindspore_of_another_numpy_is_refused_before_it_is_imported(package, versions):
    package("raise SystemExit('imported')")
    versions["numpy"] = "2.1"
    with pytest.raises(
        MissingExtraError, match=r"MindSpore 2\.9 needs numpy 1, and this environment has numpy 2\.1"
    ):
        frameworks.import_mindspore()


def test_a_mindspore_that_the_program_has_imported_is_traced_if_it_can_be(package, versions):
    package("")
    import mindspore

    assert frameworks.has_mindspore() and frameworks.import_mindspore() is mindspore
    assert frameworks.chosen("auto") == ("torch", "mindspore") and frameworks.awaited("auto") == ()
    versions["numpy"] = "2.1"
    with pytest.warns(LuxmeterWarning, match=r"The calls of MindSpore are not timed\..*numpy"):
        assert frameworks.chosen("auto") == ("torch",)
    with pytest.raises(MissingExtraError, match="mindspore-numpy"):
        frameworks.import_mindspore()


@pytest.mark.parametrize("error", [ImportError, ValueError])
def test_a_mindspore_that_somebody_forbids_is_not_there(error, monkeypatch):
    def forbids(name: str) -> None:
        raise error(name)

    monkeypatch.setattr(frameworks.importlib.util, "find_spec", forbids)
    assert not frameworks.has_mindspore()
    monkeypatch.setitem(sys.modules, "mindspore", None)
    assert not frameworks.has_mindspore()


def test_with_no_framework_at_all_the_next_step_is_told(monkeypatch):
    monkeypatch.setattr(frameworks, "has_torch", lambda: False)
    with pytest.raises(MissingExtraError, match="A trace of anything but MindSpore"):
        frameworks.chosen("auto")


def test_of_two_one_that_does_not_fit_is_left_out_and_both_are_an_error(monkeypatch):
    broken = ["mindspore"]

    def make(name: str, also: object) -> str:
        if name in broken:
            raise TraceError("framework-unknown", f"{name} cannot be traced.", "Use another.")
        return f"the targets of {name}"

    monkeypatch.setattr(frameworks, "make", make)
    made, left_out = frameworks.make_all("torch+mindspore")
    assert made == {"torch": "the targets of torch"}
    assert [(one.name, one.reason) for one in left_out] == [("mindspore", "mindspore cannot be traced.")]
    broken.append("torch")
    with pytest.raises(TraceError, match="mindspore cannot be traced"):
        frameworks.make_all("torch+mindspore")


def test_waiting_for_mindspore_and_what_it_met_is_the_programs(monkeypatch):
    waited: list[str] = []

    def sync() -> None:
        waited.append("mindspore")
        if len(waited) == 1:
            raise RuntimeError("a kernel failed")

    assert device.current_device("mindspore") == device.Device("mindspore", device.wait_for_mindspore)
    device.wait_for_mindspore()  # not imported: nothing to wait for
    device.raise_failure()
    api = types.SimpleNamespace(_pynative_executor=types.SimpleNamespace(sync=sync))
    monkeypatch.setitem(sys.modules, "mindspore", types.ModuleType("mindspore"))
    monkeypatch.setitem(sys.modules, "mindspore.common.api", api)
    device.wait_for_mindspore()  # raises nothing in the recorder
    with pytest.raises(RuntimeError, match="a kernel failed"):
        device.raise_failure()
    device.raise_failure()  # once
    both = device.current_device("auto")
    assert both.synchronize is not None and both.completes
    both.synchronize()
    assert waited == ["mindspore", "mindspore"]


def test_which_device_torch_works_on(monkeypatch):
    torch = sys.modules["torch"]
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    found, waited = device.current_device("torch"), []
    assert found.name == "cuda" and not found.completes
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: waited.append("torch"))
    both = device.current_device("auto")
    assert both.synchronize is not None and not both.completes
    both.synchronize()
    assert waited == ["torch"]
    monkeypatch.setitem(sys.modules, "torch", None)
    assert device.current_device("torch") is device.CPU
