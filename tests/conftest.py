"""What holds for every test: its own home and lab, and nothing left behind."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from luxmeter.errors import forget_warnings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a shell, where Ctrl-C is ignored; the processes that tests start would ignore it too.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def warm_torch() -> None:
    """What torch changes in itself on first use is done now, so that no test seems to have changed it.

    One thread: two workers of pytest share two cores, and the models here are small.
    """
    import torch
    import torch._dynamo
    import torch._inductor.config

    torch.set_num_threads(1)
    for optimizer in (torch.optim.Adam, torch.optim.SGD, torch.optim.AdamW):
        optimizer([torch.nn.Parameter(torch.ones(1))], lr=0.1)  # the first one of a class wraps its step


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty home, no settings from outside, and the test's own folder as the current one."""
    home = tmp_path / "home"
    home.mkdir()
    work = tmp_path / "work"
    work.mkdir()
    for name in list(os.environ):
        if name.startswith("LUXMETER_") and name != "LUXMETER_CORE":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    monkeypatch.chdir(work)
    forget_warnings()
    yield home


@pytest.fixture(autouse=True)
def nothing_left_behind(own_home: Path) -> Iterator[None]:
    """No thread of ours lives on, torch is as it was, and the repository has no new file."""
    threads = set(threading.enumerate())
    torch_before = _torch_bindings()
    files_before = _repository_files()
    yield
    left = _threads_left(threads)
    assert not left, f"threads left running: {left}"
    after = _torch_bindings()
    if torch_before is not None and after is not None:
        changed = sorted(k for k in torch_before.keys() | after.keys() if torch_before.get(k) != after.get(k))
        assert not changed, f"torch is not as it was: {changed[:10]}"
    store = sys.modules.get("luxmeter.store")
    assert store is None or store.active_run() is None, "a run is still active"
    new = _repository_files() - files_before
    assert not new, f"files left in the repository: {sorted(new)}"


def _threads_left(before: set[threading.Thread]) -> list[str]:
    deadline = time.monotonic() + 5
    while True:
        left = [
            t.name
            for t in threading.enumerate()
            if t not in before and t.is_alive() and t.name.startswith("luxmeter")
        ]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.01)


def _torch_bindings() -> dict[str, int] | None:
    """Name -> identity in the namespaces that tracing patches; None while torch is not imported."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "optim"):
        return None
    places = {
        "torch": torch,
        "torch.Tensor": torch.Tensor,
        "torch.nn.functional": torch.nn.functional,
        "torch.nn.Module": torch.nn.Module,
        "torch.linalg": torch.linalg,
        "torch.optim.Optimizer": torch.optim.Optimizer,
        "torch.optim.Adam": torch.optim.Adam,
        "torch.optim.SGD": torch.optim.SGD,
    }
    # Submodules appear by themselves when something imports them: only what can be called is compared.
    return {
        f"{place}.{name}": id(value)
        for place, namespace in places.items()
        for name, value in vars(namespace).items()
        if callable(value) and name not in ("__getattr__",)
    }


_REPOSITORY = Path(__file__).parent.parent


def _repository_files() -> set[str]:
    return {entry.name for entry in os.scandir(_REPOSITORY) if not entry.name.startswith(".")}
