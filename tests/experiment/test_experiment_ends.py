"""Whatever way a program ends, its run says so, and the program ends as without us."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import luxmeter as lux
from luxmeter.errors import LuxmeterWarning
from luxmeter.store import Lab, Run

BEGIN = "import os, signal, sys, threading, time\nimport luxmeter as lux\n"


def start(text: str, **more: str) -> subprocess.Popen[str]:
    Path("s.py").write_text(BEGIN + text)
    return subprocess.Popen(
        [sys.executable, "s.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **more},
    )


def run(text: str, **more: str) -> subprocess.CompletedProcess[str]:
    process = start(text, **more)
    out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess([], process.returncode, out, err)


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


def test_an_exception_is_kept_and_goes_on() -> None:
    with pytest.raises(KeyError, match="lost"), lux.Experiment("e", quiet=True) as exp:
        raise KeyError("lost")
    assert exp.state == "failed" and "KeyError: 'lost'" in exp.run.error
    assert exp.run.ending.exit_code == 1  # type: ignore[union-attr]
    for code, state in ((0, "finished"), (None, "finished"), (3, "failed"), ("words", "failed")):
        with pytest.raises(SystemExit), lux.Experiment("e", quiet=True) as exp:
            sys.exit(code)
        assert exp.state == state
    with pytest.raises(KeyboardInterrupt), lux.Experiment("e", quiet=True) as exp:
        raise KeyboardInterrupt
    assert exp.state == "interrupted"


@pytest.mark.parametrize(
    "form", ["with lux.Experiment('s') as exp:\n ", "exp = lux.Experiment('s').start_exp()\n"]
)
@pytest.mark.parametrize(
    ("what", "code", "state", "exit_code", "by"),
    [
        ("print('fine')", 0, "finished", None, None),
        ("raise ValueError('bad')", 1, "failed", 1, None),
        ("sys.exit(7)", 7, "failed", 7, None),
        (
            "os.kill(os.getpid(), signal.SIGINT); time.sleep(60)",
            -signal.SIGINT,
            "interrupted",
            None,
            "SIGINT",
        ),
        (
            "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)",
            -signal.SIGTERM,
            "interrupted",
            None,
            "SIGTERM",
        ),
        ("os.kill(os.getpid(), signal.SIGKILL); time.sleep(60)", -signal.SIGKILL, "lost", None, None),
    ],
)
def test_ends(form: str, what: str, code: int, state: str, exit_code: int | None, by: str | None) -> None:
    interruptible = "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    done = run(interruptible + form + f"exp.log({{'loss': 0.5}}, step=1); exp.flush(); {what}\n")
    assert done.returncode == code, done.stderr
    kept = Lab.open().find("s")
    assert kept.state == state
    assert kept.metric("loss").to_arrow()["value"].to_pylist() == [0.5]
    ending = kept.ending
    if state == "lost":
        assert ending is None
    else:
        assert ending is not None and (ending.exit_code, ending.signal) == (exit_code, by)
        assert f"luxmeter: s {kept.id[:5]} {state} in" in done.stderr


def test_sigterm_while_the_main_thread_waits_and_with_a_handler_of_the_program() -> None:
    waits = "with lux.Experiment('s'):\n print('ready', flush=True)\n threading.Event().wait()\n"
    process = start(waits)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM and Lab.open().find("s").state == "interrupted"
    own = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\nwith lux.Experiment('own'):\n"
    done = run(own + " os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)\n")
    kept = Lab.open().find("own")
    assert done.returncode == 9 and kept.state == "failed"
    assert kept.ending.exit_code == 9  # type: ignore[union-attr]


def test_a_signal_that_comes_while_the_program_holds_a_lock_that_the_end_needs() -> None:
    done = run(
        "from luxmeter.store.output_file import OutputFile\n"
        "keep = OutputFile.append\n"
        "def append(self, text):\n"
        " if 'now' in text: os.kill(os.getpid(), signal.SIGTERM)\n"
        " keep(self, text)\n"
        "OutputFile.append = append\n"
        "with lux.Experiment('held'):\n print('now')\n time.sleep(60)\n"
    )
    kept = Lab.open().find("held")
    assert (done.returncode, kept.state) == (-signal.SIGTERM, "interrupted")
    assert "now" in kept.folder.joinpath("logs", "output.log").read_text()


def test_signals_are_given_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)]
    real_exit = sys.exit
    with lux.Experiment("a", quiet=True, code=False), lux.Experiment("b", quiet=True, code=False):
        assert signal.getsignal(signal.SIGTERM) is not before[0]
    exp = lux.Experiment("c", quiet=True, code=False).start_exp()
    assert sys.exit is not real_exit
    exp.end_exp()
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)] == before
    assert sys.exit is real_exit


def test_a_killed_run_is_seen_as_lost_within_seconds() -> None:
    process = start("with lux.Experiment('s') as exp:\n print(exp.id, flush=True)\n time.sleep(600)\n")
    assert process.stdout is not None
    run_id = process.stdout.readline().strip()
    lab = Lab.open()
    assert lab.find(run_id).state == "running"
    os.kill(process.pid, signal.SIGKILL)
    killed = time.monotonic()
    process.communicate()
    wait_for(lambda: lab.find(run_id).state == "lost", seconds=10)
    assert time.monotonic() - killed < 10
    assert [row.state for row in lab.runs("state = lost")] == ["lost"]


def test_sigkill_at_random_loses_nothing_that_was_flushed() -> None:
    text = """
with lux.Experiment('s', watch=['made']) as exp:
    os.makedirs('made', exist_ok=True)
    for step in range(10**9):
        exp.log({'loss': float(step), 'acc': 0.5}, step=step)
        if step % 50 == 0:
            exp.flush()
            print('step', step, flush=True)
            open(f'made/{step}.txt', 'w').write('x')
"""
    chance = random.Random(7)
    for _ in range(6):
        process = start(text)
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(chance.randrange(1, 40))]
        time.sleep(chance.random() * 0.05)
        os.kill(process.pid, signal.SIGKILL)
        rest, errors = process.communicate()
        # Where output is not buffered, the kill may tear the last line.
        whole = [line for line in [*said, *rest.splitlines(keepends=True)] if line.endswith("\n")]
        assert whole, errors
        last = int(whole[-1].split()[1])
        kept = Lab.open().find("s")
        assert kept.state == "lost"
        steps = kept.metric("loss").to_arrow()["step"].to_pylist()
        assert steps == list(range(len(steps))) and len(steps) > last
        # A line goes to the program's own output first: the kill may fall between that and the log.
        assert kept.log_text.splitlines()[: last // 50] == [f"step {n}" for n in range(0, last, 50)]
        assert kept.command is not None
        Lab.open().gc()
        assert Run(kept.folder).metric("loss").to_arrow().num_rows == len(steps)


def test_forked_children_leave_the_run_to_their_parent() -> None:
    text = """
exp = lux.Experiment('s').start_exp()
exp.log({'loss': 1.0}, step=0)
pid = os.fork()
if pid == 0:
    exp.log({'loss': 2.0}, step=1)
    print('in the child')
    sys.exit(4)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4
import multiprocessing
def work():
    exp.log({'loss': 3.0}, step=2)
    os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)
child = multiprocessing.get_context('fork').Process(target=work); child.start(); child.join()
assert child.exitcode == -signal.SIGTERM, child.exitcode
time.sleep(0.1)
"""
    done = run(text)
    assert done.returncode == 0, done.stderr
    kept = Lab.open().find("s")
    assert kept.state == "finished" and done.stderr.count("luxmeter:") == 1
    assert {1.0, 2.0} <= set(kept.metric("loss").to_arrow()["value"].to_pylist())
    assert "in the child" in kept.log_text


def test_a_process_started_inside_is_a_child() -> None:
    inner = "import luxmeter as lux\nwith lux.Experiment('inner', quiet=True): pass\n"
    Path("inner.py").write_text(inner)
    done = run(
        "import subprocess\nwith lux.Experiment('outer'):\n"
        " subprocess.run([sys.executable, 'inner.py'], check=True)\n"
    )
    assert done.returncode == 0, done.stderr
    lab = Lab.open()
    outer, child = lab.find("outer"), lab.find("inner")
    assert child.identity["parent"] == outer.id and outer.children == [child.id]


def remove(folder: Path) -> None:
    """At once: file by file, a thread could put another one in meanwhile, and the folder would stay."""
    aside = Path("removed").absolute()
    folder.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def test_the_folder_of_the_run_vanishes_at_once() -> None:
    with pytest.warns(LuxmeterWarning, match="run-folder-gone"):
        with lux.Experiment("gone", quiet=True) as exp:
            remove(exp.folder)  # while its code and circumstances are still written down
            exp.log({"loss": 1.0})
    assert not exp.folder.exists()


def test_the_folder_of_the_run_vanishes() -> None:
    with pytest.warns(LuxmeterWarning, match="run-folder-gone"):
        with lux.Experiment("gone", quiet=True) as exp:
            exp.log({"loss": 0.0})
            exp.flush()
            wait_for(lambda: (exp.folder / "files" / "code.json").exists())
            remove(exp.folder)
            exp.log({"loss": 1.0})
    assert not exp.folder.exists()
