"""Forks while other threads make traced calls: no lock is left locked in the child, no call is lost or counted twice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import luxmeter as lux
from luxmeter.calls import layout, processes, session
from luxmeter.calls.writer import Spill

pytestmark = pytest.mark.usefixtures("core_name")

PROGRAM = """
import os, signal, sys, threading
import torch, luxmeter as lux
from luxmeter.calls import session

FORKS, CALLS, THREADS = int(sys.argv[1]), 5, 3
torch.set_num_threads(1)
sys.setswitchinterval(1e-4)
stop, made, x = threading.Event(), [0] * THREADS, torch.ones(2)

def busy(no):
    while not stop.is_set():
        torch.sin(x), torch.nn.Identity()(x), torch.neg(torch.ones(made[no] % 50 + 1, no + 1))
        made[no] += 1

def in_child():
    signal.alarm(60)  # a deadlock ends the process, and the test
    for _ in range(CALLS):
        torch.sin(x), torch.nn.Identity()(x)
    session.finish_child()
    os._exit(0)

with lux.trace(lossless=True, keep=sys.argv[2]) as t:
    threads = [threading.Thread(target=busy, args=(no,)) for no in range(THREADS)]
    for thread in threads:
        thread.start()
    ended = []
    for _ in range(FORKS // 2):
        pids = []
        for _ in range(2):
            pids.append(os.fork())
            if pids[-1] == 0:
                in_child()
        ended += [os.waitpid(pid, 0)[1] for pid in pids]
    stop.set()
    for thread in threads:
        thread.join()
assert ended == [0] * FORKS, ended
rows, total, more = {row.name: row.n for row in t.table()}, sum(made), FORKS * CALLS
found = [rows[name] for name in ("torch.sin", "torch.nn.Identity", "torch.neg", "torch.ones")]
assert found == [total + more, total + more, total, total], (found, total, more)
assert t.result.notes() == [], t.result.notes()
processes = t.result.recording.processes
assert len(processes) == FORKS + 1 and all(process.complete for process in processes)
print(total)
"""


@pytest.fixture(autouse=True, scope="module")
def compiled_before() -> None:
    """What torch changes in itself at its first compilation is done before a test looks."""
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))


def run_program(tmp_path: Path, forks: int) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    command = [sys.executable, str(script), str(forks), str(tmp_path / "t")]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ}, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


def test_forks_while_other_threads_are_busy(tmp_path: Path) -> None:
    run_program(tmp_path, 4)


@pytest.mark.soak
def test_many_forks_while_other_threads_are_busy(tmp_path: Path) -> None:
    run_program(tmp_path, 100)


def count_in_child(work: Callable[[], object]) -> None:
    """Fork; the child works, completes its files and ends. Fails when it does not come back."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        code = 1
        try:
            work()
            session.finish_child()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


class Elsewhere:
    """Another thread that stays inside a with statement."""

    def __init__(self, inside: Callable[[Callable[[], object]], object]) -> None:
        """`inside(stay)` has to call `stay()`, which returns when this is left."""
        self._there, self._leave = threading.Event(), threading.Event()

        def stay() -> None:
            self._there.set()
            self._leave.wait()

        self._thread = threading.Thread(target=inside, args=(stay,))

    def __enter__(self) -> None:
        self._thread.start()
        self._there.wait()

    def __exit__(self, *_: object) -> None:
        self._leave.set()
        self._thread.join()


def test_a_lock_of_another_thread_does_not_hold_the_child(tmp_path: Path) -> None:
    x = torch.ones(2)

    with lux.trace(keep=tmp_path / "t") as t:

        def locked(stay: Callable[[], object]) -> None:
            with t._patcher._ids_lock:  # as while a module that was not seen before gets its id
                stay()

        with Elsewhere(locked):
            count_in_child(lambda: torch.nn.Tanh()(x))
    assert t.table()["torch.nn.Tanh"].n == 1


def test_a_capture_on_another_thread_does_not_hide_the_child_s_calls(tmp_path: Path) -> None:
    x = torch.ones(2)
    with lux.trace(keep=tmp_path / "t") as t:

        def capture(stay: Callable[[], object]) -> None:
            torch.fx.symbolic_trace(lambda y: stay() or y + 1)

        with Elsewhere(capture):
            count_in_child(lambda: torch.sin(x))
        torch.sin(x)
    assert t.table()["torch.sin"].n == 2


def test_a_compiled_function_on_another_thread_does_not_either(tmp_path: Path) -> None:
    x = torch.ones(2)
    leave: list[Callable[[], object]] = []

    @torch._dynamo.disable
    def wait() -> None:
        if leave:
            leave[0]()

    def program(y: torch.Tensor) -> torch.Tensor:
        y = torch.sin(y)
        wait()
        return y + 1

    with lux.trace(keep=tmp_path / "t") as t:
        compiled = torch.compile(program, backend="eager")
        compiled(x)

        def run(stay: Callable[[], object]) -> None:
            leave.append(stay)
            compiled(x)

        with Elsewhere(run):
            count_in_child(lambda: torch.sin(x))
        leave.clear()
        torch.sin(x)
    torch._dynamo.reset()
    assert t.table()["torch.sin"].n == 2


def test_a_signature_that_another_thread_describes_is_known_as_general(tmp_path: Path) -> None:
    with lux.trace(framework=None, keep=tmp_path / "t") as t:
        work = t.wrap(lambda *_: None, name="work")
        describe = t._names._arguments.quiet
        stays: list[Callable[[], object]] = []

        def slow() -> object:
            if stays and threading.current_thread() is not threading.main_thread():
                stays.pop()()
            return describe()

        t._names._arguments.quiet = slow  # type: ignore[method-assign]

        def first(stay: Callable[[], object]) -> None:
            stays.append(stay)
            work(1, 2)

        with Elsewhere(first):
            count_in_child(lambda: work(1, 2))
    rows = [(row.name, row.n) for row in t.table("signature")]
    assert rows == [("work", 1), ("work", 1)]  # in full in one process, general in the other
    assert sorted(s.general for s in t.result.recording.signatures[1:] if s is not None) == [False, True]


def test_a_fork_while_another_thread_stops_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sin, x = torch.sin, torch.ones(2)
    t = lux.trace(keep=tmp_path / "t").start()
    removed = type(t._patcher)._take_strays
    stays: list[Callable[[], object]] = []

    def slow(self: object) -> None:
        if stays:
            stays.pop()()
        removed(self)  # type: ignore[arg-type]

    monkeypatch.setattr(type(t._patcher), "_take_strays", slow)

    def stop(stay: Callable[[], object]) -> None:
        stays.append(stay)
        t.stop()

    def work() -> None:
        assert session.active() is None and torch.sin is sin
        with lux.trace(keep=tmp_path / "child") as own:
            torch.sin(x)
        assert own.table()["torch.sin"].n == 1

    with Elsewhere(stop):
        count_in_child(work)
    assert lux.load_trace(tmp_path / "child").table()["torch.sin"].n == 1


def test_a_fork_does_not_let_go_of_the_writer_for_another(tmp_path: Path) -> None:
    """Two threads fork: the one that is done must not release what the other holds."""

    class Writer(Spill):
        def __init__(self) -> None:
            self._writing = threading.Lock()

    writer = Writer()
    with Elsewhere(lambda stay: (processes.hold(writer), stay(), processes.release_held())):
        processes.release_held()
        assert writer._writing.locked()
    assert not writer._writing.locked()


def test_a_number_of_a_process_that_is_used_again_overwrites_nothing(tmp_path: Path) -> None:
    with lux.trace(framework=None, keep=tmp_path / "t") as t:
        t.wrap(len, name="work")([])
    own = next((tmp_path / "t").glob("rank0-*"))
    again = layout.make_process(tmp_path / "t", 0)
    assert again.name == f"{own.name}.2"
    shutil.copytree(own, again, dirs_exist_ok=True)
    assert lux.load_trace(tmp_path / "t").table()["work"].n == 2
