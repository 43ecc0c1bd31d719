"""What holds for every test: its own home and lab, and nothing left behind."""

from __future__ import annotations

import atexit
import builtins
import getpass
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import postgres_server
import residue
from luxmeter import scratch
from luxmeter.calls import core as cores
from luxmeter.errors import UsageError, forget_warnings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a shell, where Ctrl-C is ignored; the processes that tests start would ignore it too.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What decides how pytest, rich and typer print: the same output on a developer's terminal as under CI.
SHAPES_OUTPUT = (
    "CI", "BUILD_NUMBER", "GITHUB_ACTIONS", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "PY_COLORS", "PYTEST_ADDOPTS",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where there was no compiler the tests of the C core are skipped, saying so."""
    try:
        cores.load("c")
    except UsageError as error:
        skip = pytest.mark.skip(reason=f"the C core is not built here: {error.what}")
        for item in items:
            params = getattr(getattr(item, "callspec", None), "params", {})
            if any(params.get(name) == "c" for name in ("core", "core_name", "saved", "unpacking")):
                item.add_marker(skip)


@pytest.fixture(autouse=True, scope="session")
def warm_torch() -> None:
    """What torch changes in itself on first use is done now, so that no test seems to have changed it.

    One thread: two workers of pytest share two cores, and the models here are small.
    """
    import torch
    import torch._dynamo
    import torch._inductor.config

    torch.set_num_threads(1)
    if sys.version_info >= (
        3,
        14,
    ):  # where workers of a DataLoader come from a fork server, and each would import torch anew
        multiprocessing.set_forkserver_preload(["__main__", "torch"])
    for optimizer in (torch.optim.Adam, torch.optim.SGD, torch.optim.AdamW):
        optimizer([torch.nn.Parameter(torch.ones(1))], lr=0.1)  # the first one of a class wraps its step


@pytest.fixture(autouse=True, scope="session")
def temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for the temporary files of each test. Its path is short: sockets are made below it."""
    import multiprocessing.util

    tmp_path_factory.getbasetemp()
    # What is compiled once serves all tests.
    os.environ.setdefault(
        "TORCHINDUCTOR_CACHE_DIR", f"{tempfile.gettempdir()}/torchinductor_{getpass.getuser()}"
    )
    multiprocessing.util.get_temp_dir()  # one for all of a process, too
    folder = Path(tempfile.mkdtemp(prefix="lt-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[postgres_server.PostgresServer]:
    """A PostgreSQL server for all tests of this process; started when the first one asks."""
    server = postgres_server.start()
    yield server
    server.end()


@pytest.fixture
def ipython(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """A shell such as notebooks have, and nothing left of it."""
    interactiveshell = pytest.importorskip("IPython.core.interactiveshell")
    from traitlets.config import Config

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setattr(builtins, "display", None, raising=False)  # which a shell leaves there
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # in whose place it puts its own
    interactiveshell.InteractiveShell.clear_instance()
    config = Config()
    config.HistoryManager.enabled = False  # its thread would stay
    shell = interactiveshell.InteractiveShell.instance(history_length=0, config=config)
    yield shell
    interactiveshell.InteractiveShell.clear_instance()
    atexit.unregister(shell.atexit_operations)  # which keeps the shell and its names
    shell.user_ns.clear()


@pytest.fixture(autouse=True)
def nothing_left_behind(temporary_files: Path) -> Iterator[None]:
    """No thread lives on, nothing stays patched, and no file lies outside the test's folder (tests/residue.py).

    Comes before every other fixture of a test: what those put in place is gone again when this one looks.
    """
    before = residue.state()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(temporary_files))
        patch.setattr(tempfile, "tempdir", str(temporary_files))
        yield
        store = sys.modules.get("luxmeter.store")
        assert store is None or store.active_run() is None, "a run is still active"
        scratch.remove_made()  # as at the end of the process
    left = residue.temporary_faults(temporary_files)
    residue.empty(temporary_files)
    left += residue.faults(before)
    assert not left, "\n".join(left)


@pytest.fixture(autouse=True)
def own_home(nothing_left_behind: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty home, no settings from outside, and the test's own folder as the current one."""
    home = tmp_path / "home"
    home.mkdir()
    work = tmp_path / "work"
    work.mkdir()
    for name in list(os.environ):
        if (name.startswith("LUXMETER_") and name != "LUXMETER_CORE") or name in SHAPES_OUTPUT:
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    monkeypatch.chdir(work)
    forget_warnings()
    yield home


@pytest.fixture(autouse=True)
def no_trace_left(nothing_left_behind: None) -> Iterator[None]:
    """No test leaves a trace running."""
    yield
    session = sys.modules.get("luxmeter.calls.session")
    left = session.active() if session is not None else None
    if left is not None:
        left.stop()
    assert left is None, "a trace was left running"


@pytest.fixture(params=["c", "python"])
def core_name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The core under test; every trace of the test uses it."""
    monkeypatch.setenv("LUXMETER_CORE", request.param)
    name: str = request.param
    return name
