"""The timeline of the app, of traces that are held and of those that are read chunk by chunk; and the steps that lead into it."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

import luxmeter as lux
from luxmeter.calls import lanes, load_trace
from luxmeter.calls.chunks import Events
from luxmeter.render import Timeline
from luxmeter.view.app.trace_pages import Looked, _explorer
from luxmeter.view.app.trace_view import TraceView

ONE_CORE = "how a trace is drawn; any core records it"


def traced(folder: Path, steps: int, calls: int) -> Path:
    """Steps of some short calls in a longer one each."""
    with lux.trace(framework=None, keep=folder, lossless=True) as t:
        work = t.wrap(len, name="work")
        outer = t.wrap(lambda: [work("") for _ in range(calls)], name="outer", span=True)
        for _ in range(steps):
            outer()
            t.step()
    return folder


def drawn(timeline: Timeline) -> list[tuple[str, int]]:
    return [(bar.name, bar.n) for bar in timeline.lanes["MainThread"]]


def test_steps_lead_to_themselves_in_the_timeline(tmp_path: Path) -> None:
    view = TraceView(load_trace(traced(tmp_path / "trace", steps=5, calls=3)))
    page = str(_explorer(view, Looked("/trace/x", by="steps")))
    found = [tuple(map(int, re.findall(r"(?:start|end)=(\d+)", html.unescape(address))))
             for address in re.findall(r'href="([^"]*#timeline)"', page)]  # fmt: skip
    zero, steps = view.result.recording.first_ns, view.result.steps()
    assert found == [(step.start_ns - zero, step.end_ns - zero) for step in steps] and len(found) == 4
    assert 'id="timeline"' in page and "by=steps" in page
    for window in found:
        within = [bar for bar in view.timeline(*window).lanes["MainThread"] if bar.start_ns >= window[0]]
        assert sorted((bar.name, bar.n) for bar in within) == [("outer", 1)] + [("work", 1)] * 3


def test_a_large_trace_is_drawn_as_one_that_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("luxmeter.calls.writer.PART_ROWS", 2000)
    folder = traced(tmp_path / "trace", steps=5, calls=3000)
    held = TraceView(load_trace(folder))
    monkeypatch.setattr("luxmeter.calls.reader.AT_ONCE", 100)
    monkeypatch.setattr("luxmeter.calls.chunks.ROWS", 3000)
    monkeypatch.setattr(lanes, "_SLOTS", 4096)
    large = TraceView(load_trace(folder))
    events = large.result.recording.events
    assert isinstance(events, Events)
    one, other = held.timeline(), large.timeline()
    assert (one.title, one.end_ns) == (other.title, other.end_ns)
    for timeline in (one, other):
        assert sum(bar.n for bar in timeline.lanes["MainThread"]) == 5 * 3001
        assert len(timeline.lanes["MainThread"]) < 4000
    long = [[bar for bar in t.lanes["MainThread"] if bar.name == "outer"] for t in (one, other)]
    assert long[0] == long[1] and len(long[0]) == 5
    step = held.result.steps()[2]
    a = step.start_ns - held.result.recording.first_ns
    for window in ((a, a + 20_000), (a, a + 200), (0, 50)):
        assert held.timeline(*window) == large.timeline(*window)
    assert "_all" not in vars(events)
