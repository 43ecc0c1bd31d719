"""The screen of `luxmeter top`: the runs that go on, one of them chosen, or a look into it. What is pressed comes as words.

`Top` knows no terminal: it looks, takes keys and says which lines to show. `show` puts it on one.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from luxmeter.errors import LuxmeterError
from luxmeter.plain_text import one_line, plain
from luxmeter.render import BYTES, NUMBER, Column, Table, counted, long_span, sparkline
from luxmeter.store import GoingRuns
from luxmeter.train import control_run
from luxmeter.view.live import LiveCurve, LiveRun
from luxmeter.view.text.run import METRIC_COLUMNS
from luxmeter.view.text.runs import short_ids, value_text

if TYPE_CHECKING:
    from rich.text import Text

_STYLES = {
    "paused": "yellow", "stopping": "yellow", "finished": "green", "failed": "red", "lost": "red", "interrupted": "magenta",
    "removed": "dim",
}  # fmt: skip
_KEYS = "up/down choose   Enter look into   s stop   q quit"
_KEYS_INSIDE = "Esc back   s stop   q back"
_SPARK, _METRICS, _CURVE = (
    16,
    3,
    30,
)  # letters of a curve in the list, metrics in it, letters of a curve of one run


@dataclass(frozen=True)
class ScreenLine:
    """One line, harmless for a terminal, and how rich is to colour it."""

    text: str
    style: str = ""


class Top:
    """What goes on in a lab. Runs that end stay for `ended_s` seconds."""

    def __init__(
        self, lab_folder: Path, *, metric: str = "", ended_s: float = 60.0, clock: Callable[[], float] = time.time
    ) -> None:  # fmt: skip
        self.folder = lab_folder
        self.runs: dict[str, LiveRun] = {}
        self.metric = metric
        self.message = ""
        self._going = GoingRuns(lab_folder)
        self._ended_s = ended_s
        self._clock = clock
        self._chosen = ""  # an id
        self._inside = False
        self._asking = False  # whether to stop the chosen one

    def look(self) -> None:
        """Read what came since the last look."""
        now_ns = int(self._clock() * 1e9)
        for run in self._going.new():
            known = self.runs.get(run.id)
            if known is None or known.ended_ns is not None:  # new, or begun again after its process was lost
                self.runs[run.id] = LiveRun(run)
        for run_id, live in list(self.runs.items()):
            live.look(now_ns)
            ended = live.ended_ns
            shown_inside = self._inside and run_id == self._chosen
            if ended is not None and now_ns - ended > self._ended_s * 1e9 and not shown_inside:
                del self.runs[run_id]
        self._choose(0)

    # -- keys ---------------------------------------------------------------------------------------------------------

    def press(self, key: str) -> bool:
        """Do what a key says: up, down, enter, esc, or a letter; False: leave."""
        if self._asking:
            self._asking = False
            self.message = self._stop() if key in ("y", "Y") else "not stopped"
            return True
        self.message = ""
        if key in ("up", "k", "down", "j") and not self._inside:
            self._choose(-1 if key in ("up", "k") else 1)
        elif key == "enter" and self._chosen:
            self._inside = True
        elif key in ("esc", "q") and self._inside:
            self._inside = False
        elif key == "q":
            return False
        elif key == "s" and self._chosen:
            self._asking = True
        return True

    def _choose(self, by: int) -> None:
        ids = list(self.runs)
        at = ids.index(self._chosen) if self._chosen in ids else 0
        self._chosen = ids[min(len(ids) - 1, max(0, at + by))] if ids else ""
        self._inside = self._inside and bool(ids)
        self._asking = self._asking and bool(ids)

    def _stop(self) -> str:
        """Ask the training of the chosen run to end, and say what became of it. Nothing here waits."""
        run = self.runs[self._chosen].run
        try:
            return f"{run.id}: {control_run(run, 'stop', wait_s=0).text}"
        except (LuxmeterError, OSError) as error:
            return str(error)

    # -- what is shown ------------------------------------------------------------------------------------------------

    def lines(self, width: int, height: int) -> list[ScreenLine]:
        """The screen, at most `height` lines of at most `width` letters."""
        body = self._one(width, height - 1) if self._inside else self._list(width, height - 1)
        said = self.message or (_KEYS_INSIDE if self._inside else _KEYS)
        if self._asking:
            live = self.runs[self._chosen]
            said = f"Stop {live.run.id} {one_line(live.run.name)} after the current step? y/n"
        foot = ScreenLine(one_line(said)[:width], "bold" if self._asking or self.message else "dim")
        return [*body[: max(0, height - 1)], foot]

    def table(self, chosen: str | None = None) -> Table:
        """A row for each run; `chosen` is marked."""
        heads = short_ids(list(self.runs))
        columns = [
            *([] if chosen is None else [Column("")]),
            Column("id"),
            Column("name", one_line=True, most=32, folds=8),
            Column("state", is_state=True),
            Column("step", NUMBER),
            Column("eta", NUMBER, goes=5),
            Column("for", NUMBER, goes=2),
            Column("last", one_line=True, folds=16, goes=4),
            Column("curve", one_line=True, folds=_SPARK, goes=3),
            Column("cpu", NUMBER, form=".0f", goes=1),
            Column("memory", BYTES, goes=0),
        ]
        rows = []
        for run_id, live in self.runs.items():
            mark = [] if chosen is None else [">" if run_id == chosen else ""]
            rows.append([
                *mark, heads[run_id], live.run.name, live.shown_state, _step(live), _eta(live), _rough(live.seconds),
                self._last(live), self._curve(live), live.cpu_percent, live.memory_bytes,
            ])  # fmt: skip
        return Table(columns, rows)

    def records(self) -> list[dict[str, Any]]:
        """The same as plain values."""
        return [
            {
                "id": run_id, "name": live.run.name, "state": live.shown_state, "host": live.run.identity["process"]["host"],
                "step": live.step, "steps": live.steps, "eta_s": live.eta_s, "seconds": live.seconds,
                "metrics": {key: curve.last for key, curve in live.metrics.items()}, "metric": live.main_metric(self.metric),
                "cpu_percent": live.cpu_percent, "memory_bytes": live.memory_bytes, "trouble": live.trouble,
            }
            for run_id, live in self.runs.items()
        ]  # fmt: skip

    @property
    def title(self) -> str:
        """How many go on, and where."""
        going = sum(live.state == "running" for live in self.runs.values())
        ended = len(self.runs) - going
        said = f"{counted(going, 'run')} going on"
        return f"{said}{f', {ended} ended' if ended else ''} in {self.folder}"

    def _list(self, width: int, room: int) -> list[ScreenLine]:
        made = [ScreenLine(one_line(self.title)[:width], "bold")]
        if not self.runs:
            return [*made, ScreenLine("New ones appear here.", "dim")]
        head, *rows = self.table(self._chosen).text(width).splitlines()
        ids = list(self.runs)
        fits = max(1, room - 2)
        at = ids.index(self._chosen)
        first = min(max(0, at - fits // 2), max(0, len(rows) - fits))
        made.append(ScreenLine(head, "bold"))
        for run_id, row in list(zip(ids, rows, strict=True))[first : first + fits]:
            colour = _STYLES.get(self.runs[run_id].shown_state, "")
            made.append(ScreenLine(row, f"reverse {colour}".strip() if run_id == self._chosen else colour))
        return made

    def _one(self, width: int, room: int) -> list[ScreenLine]:
        live = self.runs[self._chosen]
        facts = [live.run.id, one_line(live.run.name), live.shown_state, f"step {_step(live) or '-'}"]
        facts += [f"eta {_eta(live)}"] if _eta(live) else []
        facts += [f"for {long_span(live.seconds)}"]
        made = [ScreenLine("  ".join(facts)[:width], f"bold {_STYLES.get(live.shown_state, '')}".strip())]
        if live.trouble:
            made.append(ScreenLine(one_line(live.trouble)[:width], "red"))
        rows = [_metric_row(key, curve) for key, curve in live.metrics.items()]
        if rows:
            table = Table([*METRIC_COLUMNS[:-1], Column("curve", goes=0)], rows).text(width).splitlines()
            shown = table[: max(3, room * 2 // 3)]
            made += [ScreenLine(""), ScreenLine(shown[0], "bold"), *map(ScreenLine, shown[1:])]
            if len(shown) < len(table):
                made.append(ScreenLine(f"... and {len(table) - len(shown)} more metrics", "dim"))
        lines = plain(live.run.log_end).expandtabs(4).splitlines()
        left = room - len(made) - 2
        if lines and left > 0:
            made += [ScreenLine(""), ScreenLine("output", "bold")]
            made += [ScreenLine(line[:width]) for line in lines[-left:]]
        return made

    def _last(self, live: LiveRun) -> str:
        main = live.main_metric(self.metric)
        keys = [main, *(key for key in live.metrics if key != main)] if main else []
        said = [f"{key} {value_text(live.metrics[key].last)}" for key in keys[:_METRICS]]
        return live.trouble or "  ".join(said)

    def _curve(self, live: LiveRun) -> str:
        main = live.main_metric(self.metric)
        return sparkline(live.metrics[main].values, _SPARK) if main else ""


def _metric_row(key: str, curve: LiveCurve) -> Sequence[object]:
    values = [value_text(value) for value in (curve.last, curve.low, curve.high)]
    return [key, curve.n, curve.last_step, *values, sparkline(curve.values, _CURVE)]


def _step(live: LiveRun) -> str | None:
    if live.step is None:
        return None
    return f"{live.step}/{live.steps}" if live.steps is not None else str(live.step)


def _eta(live: LiveRun) -> str | None:
    return None if live.eta_s is None else _rough(live.eta_s)


def _rough(seconds: float) -> str:
    """From ten minutes on without seconds: there is room for what they would push out."""
    return f"{round(seconds / 60)} min" if 600 <= seconds < 3570 else long_span(seconds)


# -- on a terminal --------------------------------------------------------------------------------------------------------


def show(top: Top, *, every_s: float, keyboard: IO[str], out: IO[str]) -> None:
    """Show it until somebody leaves. The terminal is as before then, however that comes."""
    from rich.console import Console
    from rich.live import Live

    console = Console(file=out, force_jupyter=False, highlight=False, markup=False)

    def drawn() -> Text:
        return shown_text(top.lines(console.width, console.height))

    with _ended_by_signals(), _keys_of(keyboard) as read_keys:
        top.look()
        live = Live(
            drawn(), console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )  # fmt: skip
        try:
            live.start(
                refresh=True
            )  # not `with live`: a Ctrl-C within its beginning would leave its screen there
            while True:
                due = time.monotonic() + every_s
                while (left := due - time.monotonic()) > 0:
                    keys = read_keys(left)
                    if not all(top.press(key) for key in keys):
                        return
                    if keys:
                        live.update(drawn(), refresh=True)
                top.look()
                live.update(drawn(), refresh=True)
        finally:
            live.stop()


def can_show(keyboard: IO[str], out: IO[str]) -> bool:
    """Whether both are a terminal whose keys can be read one by one."""
    try:
        import termios  # noqa: F401 - not on Windows
    except ImportError:
        return False
    return keyboard.isatty() and out.isatty()


def keys_in(data: bytes) -> list[str]:
    """What was pressed: up, down, enter, esc, or letters; other keys are passed over."""
    named = {b"\x1b[A": "up", b"\x1bOA": "up", b"\x1b[B": "down", b"\x1bOB": "down"}
    found, at = [], 0
    while at < len(data):
        three, one = data[at : at + 3], data[at : at + 1]
        if three in named:
            found.append(named[three])
            at += 3
        elif one == b"\x1b" and data[at + 1 : at + 2] in (b"[", b"O"):
            at += 2  # another key: passed over up to its last letter
            while at < len(data) and not 0x40 <= data[at] <= 0x7E:
                at += 1
            at += 1
        else:
            said = {b"\r": "enter", b"\n": "enter", b"\x1b": "esc"}.get(one, one.decode("ascii", "ignore"))
            found += [said] if said else []
            at += 1
    return found


@contextlib.contextmanager
def _keys_of(keyboard: IO[str]) -> Iterator[Callable[[float], list[str]]]:
    """Keys as they are pressed, without Enter and without echo: a function that waits so many seconds for some."""
    import termios
    import tty

    number = keyboard.fileno()
    before = termios.tcgetattr(number)

    def read(wait_s: float) -> list[str]:
        ready, _, _ = select.select([number], [], [], wait_s)
        if not ready:
            return []
        data = os.read(number, 256)
        if not data:  # the terminal is gone
            raise SystemExit(0)
        return keys_in(data)

    try:
        tty.setcbreak(number, termios.TCSANOW)
        with_keys = termios.tcgetattr(number)
        with_keys[6][termios.VSUSP] = b"\x00"  # Ctrl-Z would leave the shell with our screen
        termios.tcsetattr(number, termios.TCSANOW, with_keys)
        yield read
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Inside, a signal that ends a process ends it in order, so that the terminal is put right."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def shown_text(lines: Sequence[ScreenLine]) -> Text:
    """Lines as rich shows them."""
    from rich.text import Text

    made = Text(no_wrap=True, overflow="crop", end="")
    for i, line in enumerate(lines):
        made.append(("\n" if i else "") + line.text, line.style or None)
    return made


def print_once(top: Top, out: IO[str] | None = None) -> None:
    """The table, once."""
    stream = out if out is not None else sys.stdout
    stream.write(f"{one_line(top.title)}\n")
    if top.runs:
        top.table().print(stream)
