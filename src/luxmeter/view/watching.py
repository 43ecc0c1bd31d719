"""A run's curves in a cell of a notebook while it goes on, and buttons for its training.

lux.runs()[0].watch()          # until it ends; of this kernel's own run in the background, while the training goes on
exp.run.watch(["loss"])
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from typing import Any

from luxmeter.errors import LuxmeterError, UsageError
from luxmeter.plain_text import one_line
from luxmeter.process import Process
from luxmeter.render import Chart, charts_repr, long_span, repr_html, sparkline
from luxmeter.store import Run
from luxmeter.train import control_run
from luxmeter.view.live import LiveRun
from luxmeter.view.notebook import Shown

_MOST_CHARTS = 6
_MOST_POINTS = 800
_ASKED = ("pause", "resume", "checkpoint", "stop")


class Watch:
    """A cell that shows a run as it goes on, until it ends or `stop()`."""

    def __init__(self, run: Run, metrics: Sequence[str], every_s: float, display: Any) -> None:
        self.live = LiveRun(run, most=_MOST_POINTS)
        self._metrics = (metrics,) if isinstance(metrics, str) else tuple(metrics)
        self._every_s = every_s
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.live.look(time.time_ns())
        self._handle = display(self.shown(), display_id=True)

    def shown(self) -> Shown:
        """As it stood at the last look."""
        live = self.live
        facts = [live.run.id, one_line(live.run.name), live.shown_state]
        if live.step is not None:
            facts.append(f"step {live.step}" + (f" of {live.steps}" if live.steps is not None else ""))
        if live.eta_s is not None:
            facts.append(f"eta {long_span(live.eta_s)}")
        title = "  ".join([*facts, f"for {long_span(live.seconds)}"])
        keys = [key for key in self._metrics if key in live.curves] or list(live.metrics)[:_MOST_CHARTS]
        charts = [Chart(key, "step", [live.curves[key].line(live.run.id)]) for key in keys]
        last = [f"{key}  {live.curves[key].last:.4g}" for key in keys]
        waits = [] if keys else ["nothing is logged yet"]
        text = "\n".join([title, *waits, *(f"{said}  {sparkline(live.curves[key].values)}" for key, said in zip(keys, last, strict=True))])  # fmt: skip
        return Shown(
            text, repr_html("   ".join(last), charts_repr(*charts), *waits, live.trouble, title=title)
        )

    def stop(self) -> None:
        """Show no more of it; the run goes on."""
        self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def follow(self) -> None:
        """Look again and again, until the run ends or `stop()`."""
        while self.live.ended_ns is None and not self._ended.wait(self._every_s):
            self.live.look(time.time_ns())
            self._handle.update(self.shown())

    def follow_in_background(self) -> None:
        """The same, beside what the program does."""
        self._thread = threading.Thread(target=self._follow_quietly, name="luxmeter-watch", daemon=True)
        self._thread.start()

    def _follow_quietly(self) -> None:
        with contextlib.suppress(Exception):  # the notebook went away: the program goes on
            self.follow()

    def __repr__(self) -> str:
        return f"<watching {self.live.run.id}>"


def watch(
    run: Run, metrics: Sequence[str] | str = (), *, every_s: float = 1.0, block: bool | None = None
) -> Watch:
    """Curves of a run in a cell, drawn anew every `every_s` seconds until it ends; see `Run.watch`."""
    if isinstance(every_s, bool) or not isinstance(every_s, int | float) or not every_s > 0:
        raise UsageError("watch-every", f"every_s={every_s!r} is no time.", "Give seconds above zero.")
    display = _display("watch()")
    waits = not _is_own(run) if block is None else block
    made = Watch(run, metrics, every_s, display)
    if made.live.ended_ns is not None:
        return made
    if waits:
        with contextlib.suppress(KeyboardInterrupt):  # the run goes on, and the notebook, too
            made.follow()
        return made
    made.follow_in_background()
    return made


def control_buttons(run: Run) -> None:
    """Buttons that pause, resume, save and stop the training of a run; without ipywidgets a line that says how to call."""
    display = _display("control_buttons()")
    try:
        import ipywidgets
    except ImportError:
        said = ", ".join(f"run.control({what!r})" for what in _ASKED)
        display(Shown(f"{said} (for buttons: pip install ipywidgets)", repr_html(f"{said} (for buttons: pip install ipywidgets)")))  # fmt: skip
        return
    said = ipywidgets.Label(value=f"{run.id} {one_line(run.name)}")

    def asks(what: str) -> Any:
        def press(_: object) -> None:
            try:
                said.value = f"{run.id}: {control_run(run, what, wait_s=5.0).text}"
            except (LuxmeterError, OSError) as error:
                said.value = str(error)

        button = ipywidgets.Button(description=what, layout={"width": "auto"})
        button.on_click(press)
        return button

    display(ipywidgets.HBox([*map(asks, _ASKED), said]))


def _is_own(run: Run) -> bool:
    """Whether this process writes it."""
    said, here = Process.of(run.identity["process"]), Process.here()
    return (said.machine, said.pid) == (here.machine, here.pid)


def _display(what: str) -> Any:
    """What shows something in a cell, where there is one."""
    try:
        from IPython import get_ipython
        from IPython.display import display
    except ImportError:
        shell = None
    else:
        shell = get_ipython()
    if shell is None or getattr(shell, "kernel", None) is None:
        raise UsageError(
            "no-notebook",
            f"{what} shows something in a cell of a notebook, and this is none.",
            "In a terminal there is: luxmeter top.",
        )
    return display
