"""Which core is chosen, and what is said where the one in C cannot be used."""

from __future__ import annotations

import importlib
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from luxmeter.calls import core as cores
from luxmeter.errors import UsageError

ONE_CORE = "which of them is chosen"


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the import of the C core end with this; no core is asked for."""

    def make(error: BaseException) -> None:
        real = importlib.import_module

        def load(name: str) -> ModuleType:
            if name.endswith("._core"):
                raise error
            return real(name)

        monkeypatch.delenv("LUXMETER_CORE", raising=False)
        monkeypatch.setattr(importlib, "import_module", load)

    return make


@pytest.mark.parametrize(
    ("built", "said"),
    [
        ((), "the C core was not built when luxmeter was installed"),
        (
            ("_core.cpython-27-vax.so", "_core.cp27-win.pyd"),
            "the C core was built for another Python: _core.cp27-win.pyd, _core.cpython-27-vax.so",
        ),
    ],
    ids=["never", "for others"],
)
def test_no_file_of_it_fits(
    built: tuple[str, ...], said: str, refused: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*built, "_core.c", "_core.pyi"):
        (tmp_path / name).touch()
    monkeypatch.setattr(cores, "__file__", str(tmp_path / "__init__.py"))
    refused(ModuleNotFoundError("No module", name="luxmeter.calls.core._core"))
    assert cores.describe() == ("python", said)
    with pytest.raises(UsageError, match=said):
        cores.load("c")


def test_a_warning_that_is_an_error_refuses_it(refused: Any) -> None:
    """python -W error, where the lock had to be turned on for it."""
    refused(RuntimeWarning("The global interpreter lock (GIL) has been enabled"))
    name, reason = cores.describe()
    assert name == "python" and "interpreter lock" in reason


def test_the_python_core_reads_frames_as_objects() -> None:
    assert cores.load("python")[0].frames() == "objects"


def test_a_python_that_was_built_without_the_lock_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    built_without = {"Py_GIL_DISABLED": 1}
    monkeypatch.setattr(sysconfig, "get_config_var", built_without.get)
    assert cores.free_threaded()
    built_without.clear()
    assert not cores.free_threaded()
