"""While another thread imports numpy or torch, sys.modules holds them with some of their names only: whoever describes a value meanwhile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import importlib.abc, sys, threading
from luxmeter import environment, ranks
from luxmeter.described import described
from luxmeter.identity import digest_of

package, inner = sys.argv[1:]
reached, go_on = threading.Event(), threading.Event()

class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == inner and threading.current_thread() is not threading.main_thread():
            reached.set()
            go_on.wait(60)

assert package not in sys.modules, "the test would test nothing"
sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=__import__, args=(package,))
thread.start()
assert reached.wait(60) and package in sys.modules
try:
    for value in (1.5, "text", [1, {"a": None}], object, len, {1, 2}):
        described(value), digest_of(value)
    environment.brief(), ranks.own_rank()
    print("all of it")
finally:
    go_on.set()
    thread.join()
"""


@pytest.mark.parametrize(("package", "inner"), [("numpy", "numpy.exceptions"), ("torch", "torch._utils")])
def test_a_package_that_another_thread_imports(tmp_path: Path, package: str, inner: str) -> None:
    command = [sys.executable, "-c", PROGRAM, package, inner]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.stdout, done.returncode) == ("all of it\n", 0), done.stderr
