"""`luxmeter top`: what it shows of runs that other processes write, what keys do, and that the terminal is as before."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from luxmeter.store import Lab, RunWriter, SegmentWriter
from luxmeter.train.requests import Mailbox
from luxmeter.view.cli import build_app
from luxmeter.view.live import LiveRun
from luxmeter.view.top import Top, keys_in

WRITER = """
import sys
from luxmeter.store import Lab
lab, runs = Lab.open(sys.argv[1]), {}
for line in sys.stdin:
    what, name, *rest = line.split()
    if what == "begin":
        runs[name] = lab.create_run(name)
    elif what == "log":
        runs[name].log({"loss": float(rest[1]), "acc": 1 - float(rest[1])}, step=int(rest[0]))
        runs[name].flush()
    elif what == "end":
        runs[name].finish(rest[0])
    print("done", flush=True)
"""


@pytest.fixture
def lab() -> Lab:
    return Lab.open(Path.cwd() / ".luxmeter")


@pytest.fixture
def write(lab: Lab) -> Iterator[Callable[[str], None]]:
    """Another process that writes runs as it is told; returns when it has."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(lab.folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None

    def tell(line: str) -> None:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"

    yield tell
    process.kill()
    process.communicate()


class Clock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


def shown(top: Top, width: int = 120, height: int = 12) -> list[str]:
    lines = top.lines(width, height)
    assert len(lines) <= height and all(len(line.text) <= width for line in lines)
    return [line.text.rstrip() for line in lines]


def test_the_screen_follows_runs_of_another_process(lab: Lab, write: Callable[[str], None]) -> None:
    clock = Clock()
    top = Top(lab.folder, ended_s=60, clock=clock)
    top.look()
    assert shown(top)[0].startswith("no runs going on in ")
    for line in ("begin one", "begin two", "log one 0 0.5"):
        write(line)
    top.look()
    title, head, first, second, keys = shown(top)
    assert title.startswith("2 runs going on") and keys.startswith("up/down choose")
    assert head.split() == ["id", "name", "state", "step", "eta", "for", "last", "curve", "cpu", "memory"]
    assert (
        first.startswith(">")
        and first.split()[2:5] == ["one", "running", "0"]
        and "loss 0.5  acc 0.5" in first
    )
    assert second.split()[1:4] == ["two", "running", "-"] and "MiB" in second  # of its process: it logs none
    live = next(live for live in top.runs.values() if live.run.name == "one")
    for step in range(1, 9):
        write(f"log one {step} {0.5 - step / 20}")
    top.look()
    assert live.curves["loss"].n == 9 and "██▇▆▅▄▃▂▁" in shown(top)[2]
    assert live.look(time.time_ns()) is False  # nothing came: nothing is read
    write("begin three")
    write("end one failed")
    clock.now += 5
    top.look()
    assert [line.replace(">", " ").split()[2] for line in shown(top)[2:5]] == ["failed", "running", "running"]
    assert shown(top)[0].startswith("2 runs going on, 1 ended")
    clock.now += 61
    top.look()
    assert [live.run.name for live in top.runs.values()] == ["two", "three"]


def test_a_killed_process_and_a_removed_run_are_told(lab: Lab, write: Callable[[str], None]) -> None:
    write("begin one")
    write("begin two")
    top = Top(lab.folder)
    top.look()
    shutil.rmtree(next(live for live in top.runs.values() if live.run.name == "two").run.folder)
    top.look()
    assert {live.run.name: live.shown_state for live in top.runs.values()} == {
        "one": "running",
        "two": "removed",
    }
    assert "removed" in "\n".join(shown(top))


def logged(run: RunWriter, points: list[tuple[str, int, float, int]]) -> None:
    """Points with times of our own."""
    keys, steps, values, times = zip(*points, strict=True)
    segments = SegmentWriter(run.folder / "tables" / "metrics")
    segments.append(
        pa.record_batch({"key": pa.array(keys).dictionary_encode(), "step": pa.array(steps), "value": pa.array(values), "time_ns": pa.array(times)})
    )  # fmt: skip
    segments.close()


def test_time_left_is_known_of_a_training(lab: Lab) -> None:
    now = time.time_ns()
    with lab.create_run("net") as run:
        mailbox = Mailbox(run.folder)
        mailbox.open(step=0, steps=1000)
        logged(run, [("train/loss", step, 1.0, now - (99 - step) * 10**8) for step in range(100)])
        live = LiveRun(lab.find(run.id))
        live.look(now)
        assert live.step == 99 and live.steps == 1000
        assert live.eta_s == pytest.approx(90.0)  # 900 steps, a tenth of a second each
        live.look(now + 10**9)
        assert live.eta_s == pytest.approx(89.0)
        mailbox.tell("paused", 100, 1000)
        live.look(now)
        assert live.shown_state == "paused" and live.eta_s is None
        mailbox.close()
        live.look(now)
        assert live.shown_state == "running" and live.eta_s is None and live.main_metric() == "train/loss"


def test_long_times_push_nothing_out(lab: Lab) -> None:
    now, clock = time.time_ns(), Clock()
    with lab.create_run("digits-long") as run:
        mailbox = Mailbox(run.folder)
        mailbox.open(step=0, steps=4000)
        logged(run, [("train/loss", step, 1 / (step + 1), now - (99 - step) * 10**9) for step in range(100)])
        clock.now += 44 * 60 + 11
        top = Top(lab.folder, clock=clock)
        top.look()
        _, head, line, _ = shown(top, 110)
        mailbox.close()
    assert head.split()[-3:] == ["curve", "cpu", "memory"]
    assert "  44 min  " in line and "  21 min  " in line and "iB" in line
    assert re.search("█[▁-█]{15} ", line)  # the whole curve


def test_usage_is_the_runs_own_word_while_that_is_fresh(lab: Lab) -> None:
    now = time.time_ns()
    with lab.create_run("net") as run:
        logged(
            run, [("system/process_cpu_percent", 0, 123.0, now), ("system/process_memory_bytes", 0, 5e9, now)]
        )
        live = LiveRun(lab.find(run.id))
        live.look(now)
        assert (live.cpu_percent, live.memory_bytes, live.metrics) == (123.0, 5e9, {})
        live.look(now + 60 * 10**9)
        assert live.memory_bytes is not None and live.memory_bytes != 5e9  # asked of the process


def test_keys(lab: Lab) -> None:
    with lab.create_run("one") as one, lab.create_run("two\x1b[31m") as two:
        top = Top(lab.folder)
        top.look()
        one_first = [line.startswith(">") for line in shown(top)[2:4]]
        assert one_first == [True, False]
        assert all(top.press(key) for key in ("j", "down", "k", "down"))  # past the last one it stays there
        assert shown(top)[3].startswith(">") and "two\\x1b[31m" in shown(top)[3]
        two.log({"loss": 3.0, "acc": 0.5}, step=7)
        two.flush()
        (two.folder / "logs").mkdir(exist_ok=True)
        (two.folder / "logs" / "output.log").write_text("".join(f"line {i}\x1b[2J\n" for i in range(5000)))
        top.look()
        assert top.press("enter")
        inside = shown(top, height=14)
        assert inside[0].startswith(f"{two.id}  two\\x1b[31m  running  step 7")
        assert any(line.split()[:5] == ["loss", "1", "7", "3", "3"] for line in inside)
        assert inside[-2] == "line 4999\\x1b[2J" and inside[-1].startswith("Esc back")
        assert (
            top.press("s") and shown(top)[-1].startswith(f"Stop {two.id}") and shown(top)[-1].endswith("y/n")
        )
        assert top.press("n") and shown(top)[-1] == "not stopped"
        assert top.press("s") and top.press("y")
        assert "no training in it listens" in shown(top, width=200)[-1]
        mailbox = Mailbox(two.folder)
        mailbox.open()
        assert top.press("s") and top.press("y") and "asked to stop" in shown(top)[-1]
        assert [request.what for request in mailbox.take()] == ["stop"]  # type: ignore[union-attr]
        mailbox.close()
        assert top.press("q") and shown(top)[0].startswith("2 runs")  # back in the list
        assert not top.press("q")
        assert one.folder.exists()


def test_the_list_scrolls_with_the_chosen_one(lab: Lab) -> None:
    made = [lab.create_run(f"run{i}") for i in range(30)]
    top = Top(lab.folder)
    top.look()
    for _ in range(20):
        top.press("down")
    assert any(line.startswith(">") and "run20" in line for line in shown(top, height=8))
    assert len(shown(top, width=40, height=8)) == 8
    for run in made:
        run.finish()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x1b[A\x1bOBq", ["up", "down", "q"]),
        (b"\x1b", ["esc"]),
        (b"\r\n", ["enter", "enter"]),
        (b"\x1b[1;5Cj\x1b[3~k", ["j", "k"]),
        ("ä".encode(), []),
    ],
)
def test_what_is_pressed(data: bytes, words: list[str]) -> None:
    assert keys_in(data) == words


def test_once_and_json(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    app = build_app()
    app(["top"], standalone_mode=False)
    assert capsys.readouterr().out == f"no runs going on in {lab.folder}\n"
    with lab.create_run("one") as run:
        run.log({"loss": float("nan")}, step=1)
        run.flush()
        app(["top", "--once"], standalone_mode=False)  # as without it: no terminal is here
        assert run.id[:5] in capsys.readouterr().out
        app(["top", "--json"], standalone_mode=False)
        (found,) = json.loads(capsys.readouterr().out)
    assert found["id"] == run.id and found["state"] == "running" and found["step"] == 1


def test_without_a_lab(capsys: pytest.CaptureFixture[str]) -> None:
    app = build_app()
    app(["top"], standalone_mode=False)
    assert capsys.readouterr().out == "No run is kept here yet.\n"
    app(["top", "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out) == []
    assert not list(Path.cwd().iterdir())


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *command: str) -> None:
        self.main, inner = pty.openpty()
        termios.tcsetwinsize(inner, (20, 110))
        self.before = termios.tcgetattr(inner)
        self.seen = ""
        self._inner = inner
        self.process = subprocess.Popen(
            command, stdin=inner, stdout=inner, stderr=inner, env={**os.environ, "TERM": "xterm-256color"},
            start_new_session=True, preexec_fn=_own_terminal,
        )  # fmt: skip

    def press(self, keys: bytes, until: str) -> None:
        """Press, then read until this is shown."""
        os.write(self.main, keys)
        self.wait_for(until)

    def wait_for(self, text: str) -> None:
        seen, end = "", time.monotonic() + 30
        while text not in seen:
            assert time.monotonic() < end, f"{text!r} did not come: {seen[-2000:]!r}"
            if select.select([self.main], [], [], 0.2)[0]:
                seen += os.read(self.main, 1 << 16).decode(errors="replace")
        self.seen += seen

    def attributes(self) -> list[Any]:
        return termios.tcgetattr(self._inner)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.main)
        os.close(self._inner)


def _own_terminal() -> None:
    import fcntl

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C reaches it


@pytest.fixture
def terminal(lab: Lab) -> Iterator[Callable[[], Terminal]]:
    made: list[Terminal] = []

    def start() -> Terminal:
        made.append(Terminal(sys.executable, "-m", "luxmeter", "top", "--every-s", "0.2"))
        return made[-1]

    yield start
    for one in made:
        one.close()


def test_on_a_real_terminal(lab: Lab, terminal: Callable[[], Terminal]) -> None:
    with lab.create_run("first") as run, lab.create_run("second"):
        run.log({"loss": 0.25}, step=3)
        run.flush()
        screen = terminal()
        screen.wait_for("loss 0.25")
        assert screen.attributes() != screen.before and "\x1b[?1049h" in screen.seen
        with lab.create_run("newcomer"):
            screen.wait_for("newcomer")
        screen.press(b"s", "first after the current step? y/n")
        screen.press(b"n", "not stopped")
        screen.press(b"\r", "step 3")
        screen.press(b"\x1b", "up/down choose")
        screen.press(b"q", "\x1b[?1049l")
        assert screen.process.wait(20) == 0
        assert screen.attributes() == screen.before


def test_ctrl_c_leaves_the_terminal_clean(lab: Lab, terminal: Callable[[], Terminal]) -> None:
    screen = terminal()
    screen.wait_for("New ones appear here.")
    screen.press(b"\x03", "\x1b[?1049l")
    assert screen.process.wait(20) == 0
    assert screen.attributes() == screen.before and "Traceback" not in screen.seen
