"""Work for the tests of isolate: good, bad, and deadly."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from typing import Any


def add(a: int, b: int) -> int:
    return a + b


def whoami() -> int:
    return os.getpid()


def modules(*names: str) -> list[str]:
    return sorted(sys.modules)


def fail(message: str) -> None:
    raise ValueError(message)


def leave(code: int, *, hard: bool = False) -> None:
    print("leaving")
    if hard:
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


def segfault() -> None:
    ctypes.string_at(0)


def divide_by_zero_in_c() -> None:
    os.kill(os.getpid(), signal.SIGFPE)


def hang(*, hold_gil: bool = False) -> None:
    if hold_gil:
        ctypes.PyDLL(None).sleep(3600)  # PyDLL keeps the interpreter locked meanwhile
    while True:
        time.sleep(0.01)


def beat(for_s: float) -> str:
    """Says that it goes on, for so long."""
    end = time.monotonic() + for_s
    while time.monotonic() < end:
        os.write(2, b"still here\n")
        time.sleep(0.01)
    return "done"


def chatter(size_bytes: int) -> str:
    for _ in range(size_bytes // 1000):
        os.write(1, b"x" * 999 + b"\n")
    print("the end", flush=True)
    return "said"


def big(size_bytes: int) -> str:
    return "y" * size_bytes


def unsendable() -> Any:
    return object()


def take_memory(size_bytes: int) -> int:
    return len(bytearray(size_bytes))


def start_child(pid_file: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open(pid_file, "w") as file:
        file.write(str(child.pid))
    hang()


def version() -> list[int]:
    return list(sys.version_info[:2])


def echo(value: Any) -> Any:
    return value
