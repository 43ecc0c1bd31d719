"""The line that refreshes itself: on a real terminal (a pty), in pipes and files, in IPython."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest

from luxmeter import Logger
from luxmeter.experiment.log.inline import InlineLine, Pace, cells, clip, single_line


class Terminal:
    """A real pty of a given width, and what somebody in front of it would see."""

    def __init__(self, width: int) -> None:
        self.master, slave = pty.openpty()
        tty.setraw(slave)  # no translation of newlines: the test sees what was written
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        self.width = width
        self.stream = open(slave, "w", encoding="utf-8")  # noqa: SIM115  closed in seen()
        self._bytes = bytearray()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return
            if not data:
                return
            self._bytes += data

    def seen(self) -> str:
        """All that was written."""
        self.stream.close()
        self._reader.join()
        os.close(self.master)
        return self._bytes.decode()

    def screen(self, written: str) -> list[str]:
        """The lines that stand there in the end; a text wider than the terminal goes on in the next line."""
        lines: list[list[str]] = [[]]
        column = 0
        for character in re.sub(r"\x1b\[[0-9;]*m", "", written):
            if character == "\r":
                column = 0
            elif character == "\n":
                lines.append([])
                column = 0
            else:
                if column + cells(character) > self.width:
                    lines.append([])
                    column = 0
                row = lines[-1]
                row.extend([" "] * (column + 1 - len(row)))
                row[column] = character
                for extra in range(1, cells(character)):
                    row.extend([""] * (column + extra + 1 - len(row)))
                    row[column + extra] = ""
                column += cells(character)
        return ["".join(row).rstrip() for row in lines]


@pytest.fixture(autouse=True)
def plain_colours(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    yield


def test_a_terminal_shows_one_line_and_keeps_the_last_state() -> None:
    terminal = Terminal(40)
    logger = Logger("test.inline.a", stream=terminal.stream, refresh_s=0)
    for i in range(20):
        logger.inline("a long first text" if i == 0 else f"step {i}", prefix="train")
    logger.info(1, 2, 3, {4: 4})
    logger.inline("next")
    logger.end_inline()
    written = terminal.seen()
    screen = terminal.screen(written)
    assert screen[0] == "train: step 19"
    assert "".join(screen[1:-2]).endswith("1 2 3 {4: 4}")
    assert screen[-2:] == ["next", ""]
    assert written.count("\n") == 3
    assert "train: step 7" in written


@pytest.mark.parametrize("width", [1, 2, 3, 10, 20, 79])
def test_a_narrow_terminal_is_never_overrun(width: int) -> None:
    terminal = Terminal(width)
    logger = Logger(f"test.inline.narrow.{width}", stream=terminal.stream, refresh_s=0)
    for text in ("参数 0.123 " * 20, "x" * 500, "a\nb\tc\x1b[31mred\x1b[0m" * 10, "short"):
        for _ in range(5):
            logger.inline(text)
    logger.end_inline()
    written = terminal.seen()
    screen = terminal.screen(written)
    assert len(screen) == 2, screen
    assert "\x1b" not in written
    longest = max((cells(part) for part in written.replace("\n", "\r").split("\r")), default=0)
    assert longest <= max(1, width - 1)


def test_a_long_text_scrolls() -> None:
    terminal = Terminal(11)
    logger = Logger("test.inline.scroll", stream=terminal.stream, refresh_s=0)
    for _ in range(12):
        logger.inline("0123456789abcdefghij")
    logger.end_inline()
    frames = [frame for frame in terminal.seen().split("\r") if frame.strip()]
    assert frames[:3] == ["0123456789", "23456789ab", "456789abcd"]
    assert frames[11].strip().startswith("0123456") or "0123" in frames[11]
    assert all(len(frame.rstrip("\n")) == 10 for frame in frames)


def test_lines_of_their_own_are_whole_however_narrow_the_terminal() -> None:
    terminal = Terminal(20)
    logger = Logger("test.inline.whole", stream=terminal.stream)
    logger.info("word " * 30 + "end")
    assert "word " * 30 + "end" in terminal.seen()


def test_rich_colours_on_a_terminal_and_none_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal(80)
    Logger("test.inline.rich", stream=terminal.stream).error("[bold]no markup[/bold]", 3.5)
    written = terminal.seen()
    assert "\x1b[" in written
    assert "[bold]" in written.replace("\x1b[1m", "").replace("\x1b[0m", "")
    with open("out.txt", "w") as file:
        Logger("test.inline.file", stream=file).error("x", 3.5)
    assert "\x1b" not in Path("out.txt").read_text()


def test_the_pace_on_a_terminal() -> None:
    terminal = Terminal(40)
    now = 0.0
    logger = Logger("test.inline.pace", stream=terminal.stream, refresh_s=1.0, clock=lambda: now)
    for i in range(50):
        now = i * 0.1
        logger.inline("step", i)
    logger.end_inline()
    frames = [frame for frame in terminal.seen().split("\r") if "step" in frame]
    assert len(dict.fromkeys(frames)) == 6
    assert frames[-1] == "step 49\n"


def test_a_pipe_gets_a_line_now_and_then_and_the_last_one(tmp_path: Path) -> None:
    now = 0.0
    path = tmp_path / "out.txt"
    with open(path, "w") as file:
        logger = Logger("test.inline.pipe", stream=file, clock=lambda: now)
        for i in range(300):
            now = i * 0.1
            logger.inline("step", i)
        logger.set_interval(redirected_s=1000)
        logger.info("done")
        for i in range(3):
            logger.inline("more", i)
        logger.end_inline()
    lines = path.read_text().splitlines()
    assert lines[:4] == ["step 0", "step 100", "step 200", "step 299"]
    assert lines[4].endswith("done")
    assert lines[5:] == ["more 2"]
    assert "\r" not in path.read_text()


def test_every_call_shows_if_asked(tmp_path: Path) -> None:
    with open(tmp_path / "out.txt", "w") as file:
        logger = Logger("test.inline.all", stream=file, redirected_s=0)
        for i in range(5):
            logger.inline(i)
    assert (tmp_path / "out.txt").read_text() == "0\n1\n2\n3\n4\n"


def test_a_closed_stream_does_not_stop_the_program(tmp_path: Path) -> None:
    file = open(tmp_path / "out.txt", "w")  # noqa: SIM115
    logger = Logger("test.inline.closed", stream=file)
    file.close()
    logger.inline("x")
    logger.end_inline()


def test_a_program_without_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)  # as under pythonw
    logger = Logger("test.inline.none")
    logger.inline("x")
    logger.end_inline()


def test_a_stream_that_knows_only_ascii(tmp_path: Path) -> None:
    with open(tmp_path / "out.txt", "w", encoding="ascii") as file:
        logger = Logger("test.inline.ascii", stream=file)
        logger.inline("参数 1")
        logger.info("参数 2")
    text = (tmp_path / "out.txt").read_text()
    assert "?? 1" in text
    assert "?? 2" in text


PROGRAM = """
from luxmeter import Logger
logger = Logger()
for i in range(3):
    logger.inline("step", i)
"""


def test_when_the_program_ends_the_last_state_stands_there() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.stdout == "step 0\nstep 2\n"
    terminal = Terminal(40)
    subprocess.run([sys.executable, "-c", PROGRAM], stdout=terminal.stream, check=True)
    assert terminal.screen(terminal.seen()) == ["step 2", ""]


NOTEBOOK = """
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.display_pub = CapturingDisplayPublisher()
shell.run_cell('''
from luxmeter import Logger
logger = Logger("nb", refresh_s=0)
for i in range(3):
    logger.inline("step", i)
logger.info("done")
logger.inline("again")
logger.end_inline()
''')
import json, sys
json.dump(shell.display_pub.outputs, sys.stderr, default=str)
"""


def test_a_notebook_has_one_output_that_changes() -> None:
    import json

    done = subprocess.run([sys.executable, "-c", NOTEBOOK], capture_output=True, text=True, check=True)
    outputs = json.loads(done.stderr)
    assert [o["data"]["text/plain"] for o in outputs] == ["step 0", "step 1", "step 2", "again"]
    assert [bool(o.get("update")) for o in outputs] == [False, True, True, False]
    ids = [o["transient"]["display_id"] for o in outputs]
    assert ids[0] == ids[1] == ids[2] != ids[3]
    assert "done" in done.stdout
    assert "step" not in done.stdout


def test_texts_for_one_line() -> None:
    assert single_line("a\nb\r\x1b[31mc\x1b[0m\td\x9b") == "a b  c  d"
    assert clip("short", 10) == "short"
    assert clip("参数参数", 5) == "参数"
    assert clip("abcdef", 3, 4) == "ef "
    assert InlineLine(Pace()).is_open is False
