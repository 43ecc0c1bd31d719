"""What a test may not leave behind: threads, patches, files. `before = state(); ...; faults(before)`."""

from __future__ import annotations

import fnmatch
import operator
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parent.parent

# Threads of others that cannot be ended -> why.
THREADS = {
    "Dummy-*": "a thread that Python did not start: it is noted at its first step in Python and never struck off",
    "Mlflow*Repository_*": "MLflow's pool for the files of runs, which lives as long as its process",
    "tqdm_monitor": "tqdm starts it once in a process, for all bars to come",
    "pymp-*": "multiprocessing's own",
    "QueueFeederThread": "ends with its queue",
    "Thread-* (_read_thread)": "of torch 2.8: listens to the processes that Inductor compiles in, which stay",
}
# What others put in the place of something for good: name -> whose it may be, why.
PATCHES = {
    "sys.excepthook": ("typer.", "typer sets it when a command is called"),
}
# Temporary files of others that come once in a process -> why.
TEMPORARY = {
    "pymp-*": "multiprocessing's sockets, removed at the end of the process that made them",
    "torchinductor_*": "what Inductor compiled, kept for the next time",
    "*wandb-media": "W&B's, of each run",
    "*wandb-artifacts": "W&B's, of each run",
    ".ses": "ONNX Runtime's, of each session",
    "pytest-of-*": "of a pytest that a test starts: its last folders stay to be looked at",
}
_NAMESPACES = (
    "builtins", "os", "subprocess", "multiprocessing.spawn", "multiprocessing.process:BaseProcess",
    "torch", "torch:Tensor", "torch.nn.functional", "torch.nn:Module", "torch.linalg", "torch.optim:Optimizer",
    "torch.optim:Adam", "torch.optim:SGD",
)  # fmt: skip
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True)
class State:
    """What there is of all that a test could leave."""

    threads: frozenset[threading.Thread]
    bindings: dict[str, dict[str, Any]]
    files: frozenset[str]


def state(repository: Path = REPOSITORY) -> State:
    """Now."""
    return State(frozenset(threading.enumerate()), _bindings(), frozenset(_files(repository)))


def faults(before: State, *, repository: Path = REPOSITORY, patience_s: float = 5.0) -> list[str]:
    """What is there now and was not there before, a line each."""
    new = sorted(set(_files(repository)) - before.files)
    return [
        *(f"a thread lives on: {name}" for name in _threads_left(before.threads, patience_s)),
        *(f"not as it was: {name}" for name in _changed(before.bindings, _bindings())),
        *(f"left in the repository: {name}" for name in new),
    ]


def temporary_faults(folder: Path) -> list[str]:
    """What lies in a temporary folder."""
    return [f"left among the temporary files: {path.name}" for path in _left(folder)]


def empty(folder: Path) -> None:
    """Remove all that lies there, but for what belongs to the process."""
    for path in _left(folder):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _left(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.iterdir()
        if not any(fnmatch.fnmatch(path.name, known) for known in TEMPORARY)
        and not _is_of_remote_modules(path)
    )


def _is_of_remote_modules(path: Path) -> bool:
    """What torch.distributed of 2.8 makes when it is imported: a process that is killed leaves it."""
    return path.is_dir() and {inner.name for inner in path.iterdir()} - {"__pycache__"} == {
        "_remote_module_non_scriptable.py"
    }


def _of_inductor() -> set[threading.Thread]:
    """The threads that Inductor compiles in: they come at the first compilation that no cache has, and stay."""
    loaded = sys.modules.get("torch._inductor.async_compile")
    return set() if loaded is None else set(loaded.AsyncCompile.pool()._threads)


def _threads_left(before: frozenset[threading.Thread], patience_s: float) -> list[str]:
    deadline = time.monotonic() + patience_s
    while True:
        left = [
            thread.name
            for thread in threading.enumerate()
            if thread not in before
            and thread not in _of_inductor()
            and not any(fnmatch.fnmatch(thread.name, known) for known in THREADS)
        ]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.01)


def _bindings() -> dict[str, dict[str, Any]]:
    """Where tracing, experiments and commands put something in the place of something -> name -> value there."""
    found: dict[str, dict[str, Any]] = {
        "sys": {"excepthook": sys.excepthook, "displayhook": sys.displayhook},
        "sys.meta_path": {  # other packages put finders there when they are imported, and leave them (absl, six)
            f"{type(finder).__qualname__} at {id(finder)}": finder
            for finder in sys.meta_path
            if type(finder).__module__.startswith("luxmeter")
        },
        "sys.modules": {"__main__": sys.modules["__main__"]},
        "signal": {number.name: signal.getsignal(number) for number in _SIGNALS},
    }
    for place in _NAMESPACES:
        module, _, attribute = place.partition(":")
        namespace = sys.modules.get(module)
        if namespace is not None and attribute:
            namespace = getattr(namespace, attribute, None)  # of a module that is just being imported
        if namespace is not None:
            found[place] = dict(vars(namespace))
    return found


def _changed(before: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> Iterator[str]:
    for place in before.keys() & now.keys():  # what was imported meanwhile has no before
        old, new = before[place], now[place]
        if len(old) == len(new) and all(map(operator.is_, old.values(), new.values())):
            continue
        for name in sorted(old.keys() | new.keys()):
            was, value = old.get(name), new.get(name)
            # Submodules, caches and settings come by themselves: only what can be called is compared.
            counts = callable(was) or callable(value) or place in ("signal", "sys.meta_path", "sys.modules")
            if was is not value and counts and name != "__getattr__":
                others, _ = PATCHES.get(f"{place}.{name}", ("nobody's", ""))
                if not f"{getattr(value, '__module__', '')}.".startswith(others):
                    yield f"{place}.{name}"


def _files(repository: Path) -> Iterator[str]:
    """The repository's entries, two levels deep."""
    for entry in os.scandir(repository):
        if not entry.name.startswith("."):
            yield entry.name
            if entry.is_dir():
                yield from (f"{entry.name}/{e.name}" for e in os.scandir(entry) if e.name != "__pycache__")
