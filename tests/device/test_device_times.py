"""lux.trace(device=True): what each call took on the accelerator, and how much memory was in use before and after it."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import luxmeter as lux
from luxmeter.calls import Window, device_time
from luxmeter.view.app.trace_view import TraceView
from luxmeter.view.pages.trace import timeline_of

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("core_name", "card")]
MS = 1_000_000
NOBODY = [None]


@pytest.fixture
def a(card: Any) -> torch.Tensor:
    """On the card, where nothing is queued."""
    made = torch.ones(4, 4, device="card")
    torch.accelerator.synchronize()
    return made


def traced(**how: Any) -> Any:
    """A trace that times the device."""
    return lux.trace(device=True, **how)


def column(t: Any, name: str, of: str) -> list[Any]:
    """A column of the calls of one name, in order."""
    return t.sql(f"select {name} from calls where name = '{of}' order by start_ns")[name].to_pylist()


def test_the_time_on_the_device_is_that_of_its_work(card: Any, a: torch.Tensor):
    card.cost(3 * MS)
    with traced() as t:
        for _ in range(5):
            torch.mm(a, a)
            torch.relu(torch.relu(a))
        a.shape, a.dim()
    table = t.table()
    assert (table["torch.mm"].n, table["torch.mm"].device_ns) == (5, 15 * MS)
    assert (table["torch.relu"].n, table["torch.relu"].device_ns) == (10, 30 * MS)
    assert table["Tensor.dim"].device_ns == 0
    assert column(t, "device_ns", "torch.mm") == [3 * MS] * 5
    assert "  device  " in str(t) and "15.0 ms" in str(t)


def test_each_grouping_counts_no_moment_twice(a: torch.Tensor):
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).to("card")
    torch.accelerator.synchronize()
    with torch.no_grad(), traced() as t:
        for _ in range(3):
            with t.section("forward"):
                net(a)
    by_api = {row.name: row.device_ns for row in t.table()}
    assert by_api == {"torch.nn.Sequential": 6 * MS, "torch.nn.Linear": 3 * MS, "torch.nn.ReLU": 3 * MS}
    assert {row.name: row.device_ns for row in t.table("module")} == {
        "Sequential": 6 * MS, "Sequential.0": 3 * MS, "Sequential.1": 3 * MS,
    }  # fmt: skip
    assert [row.device_ns for row in t.table("thread")] == [6 * MS]
    assert [row.device_ns for row in t.table("rank")] == [6 * MS]
    assert sum(row.device_ns or 0 for row in t.table("function")) == 6 * MS
    assert [row.device_ns for row in t.table("section")] == NOBODY


def test_a_backward_is_timed_as_one_call(a: torch.Tensor):
    w = torch.ones(4, 4, device="card", requires_grad=True)
    loss = torch.mm(a, w).sum()
    torch.accelerator.synchronize()
    with traced() as t:
        loss.backward()
    [took] = column(t, "device_ns", "Tensor.backward")
    assert took > 0 and took % MS == 0


def test_marks_are_read_later_and_nothing_is_waited_for(card: Any, a: torch.Tensor):
    before = card.waits()
    card.hold()
    with traced() as t:
        for _ in range(100):
            torch.relu(a)
        assert card.pending() == 100
        assert t.table()["torch.relu"].device_ns is None  # not one is done
        card.hold(False)
        while card.pending():
            continue
        torch.relu(a)
        assert t.table()["torch.relu"].device_ns in (100 * MS, 101 * MS)  # the last one may be under way
    assert card.waits() == before
    assert t.table()["torch.relu"].device_ns == 101 * MS


def test_marks_are_used_again(card: Any, a: torch.Tensor, monkeypatch: pytest.MonkeyPatch):
    made: list[None] = []
    event = torch.Event
    monkeypatch.setattr(torch, "Event", lambda *given, **how: made.append(None) or event(*given, **how))
    with traced() as t:
        for _ in range(2000):
            torch.relu(a)
            while card.pending():
                continue
    assert 2 <= len(made) <= 4 * (device_time.READ_EVERY + 2)  # one a second is kept, to count from
    assert t.table()["torch.relu"].device_ns == 2000 * MS


def test_times_of_an_hour_are_as_exact_as_those_of_a_second(card: Any, a: torch.Tensor):
    """A device tells times as 32-bit floats: 3.6 million ms are right to a quarter of one."""
    card.cost(900_123_456)
    with traced() as t:
        for _ in range(4000):
            torch.relu(a)
    begun = column(t, "device_start_ns", "torch.relu")
    assert max(abs(later - earlier - 900_123_456) for earlier, later in itertools.pairwise(begun)) < 200


def test_memory_before_and_after_a_call(a: torch.Tensor):
    kept = []
    with traced() as t:
        for _ in range(3):
            kept.append(torch.ones(1024, device="card"))
        torch.relu(a)  # given back at once, but after the call
        kept.clear()
        torch.mm(a, a)
    table = t.table()
    assert table["torch.ones"].memory_bytes == 3 * 4096 and table["torch.relu"].memory_bytes == 64
    rows = t.sql(
        "select name, memory_before b, memory_after a from calls where name like 'torch.%' order by start_ns"
    )
    first = rows["b"][0].as_py()
    assert [(r["b"] - first, r["a"] - first) for r in rows.to_pylist()] == [
        (0, 4096), (4096, 8192), (8192, 12288), (12288, 12352), (0, 64),
    ]  # fmt: skip
    assert "  memory  " in str(t)


def test_each_of_two_devices_has_its_times(card: Any, a: torch.Tensor):
    b = torch.ones(4, 4, device="card:1")
    card.cost(5 * MS, 1)
    with traced() as t:
        torch.mm(a, a)
        with torch.accelerator.device_index(1):
            torch.mm(b, b)
    assert column(t, "device", "torch.mm") == [0, 1]
    assert column(t, "device_ns", "torch.mm") == [MS, 5 * MS]
    assert list(timeline_of(t.result, Window()).lanes) == ["MainThread", "card:0", "card:1"]


def test_a_call_that_changes_the_current_device_is_not_timed(a: torch.Tensor):
    with traced(framework=None) as t:
        t.wrap(torch.accelerator.set_device_index, name="move")(1)
        t.wrap(lambda: torch.ones(2, device="card:1"), name="stay")()
    assert column(t, "device_ns", "move") == NOBODY and column(t, "device_ns", "stay") == [MS]
    assert "calls that changed the current device were not timed on it" in t.result.notes()


def test_a_call_that_raises_is_timed_and_raises(a: torch.Tensor):
    def work() -> None:
        torch.relu(a)
        raise KeyError("mine")

    with traced(framework=None) as t:
        with pytest.raises(KeyError, match="mine"):
            t.wrap(work, name="work")()
    assert column(t, "device_ns", "work") == [MS] and t.table()["work"].raised == 1


def test_with_sync_the_time_on_the_device_is_the_same(card: Any, a: torch.Tensor):
    with traced(sync=True, only="torch.mm") as t:
        for _ in range(3):
            torch.mm(a, a)
            assert card.pending() == 0
    assert column(t, "device_ns", "torch.mm") == [MS] * 3


def test_threads_have_times_of_their_own(card: Any, a: torch.Tensor):
    work = {"torch.mm": lambda: torch.mm(a, a), "torch.relu": lambda: torch.relu(a)}
    turn = threading.Lock()  # one card: a call is between the marks of another if threads mix

    def run(one: Any) -> None:
        for _ in range(200):
            with turn:
                one()

    with traced() as t:
        threads = [threading.Thread(target=run, args=(one,)) for one in work.values()]
        [thread.start() for thread in threads], [thread.join() for thread in threads]
    assert {row.name: (row.n, row.device_ns) for row in t.table()} == dict.fromkeys(work, (200, 200 * MS))
    assert sorted(row.device_ns for row in t.table("thread")) == [200 * MS, 200 * MS]


def test_a_device_without_a_clock_is_told_in_a_line(card: Any, a: torch.Tensor):
    card.keep_time(False)
    with traced() as t:
        for _ in range(100):
            torch.relu(a)
    row = t.table()["torch.relu"]
    assert (row.n, row.device_ns) == (100, None) and "device" not in t.events().column_names
    [line] = t.result.notes()
    assert (
        line
        == "from some call on, none was timed on the device: RuntimeError: the card's events keep no time"
    )


def test_a_device_that_does_not_tell_its_memory(card: Any, a: torch.Tensor):
    card.tell_memory(False)
    with traced() as t:
        torch.relu(a)
    row = t.table()["torch.relu"]
    assert (row.device_ns, row.memory_bytes) == (MS, None)
    [line] = t.result.notes()
    assert "does not tell its memory" in line and column(t, "memory_before", "torch.relu") == NOBODY


def test_what_is_captured_into_a_graph_is_left_alone(card: Any, a: torch.Tensor):
    """The card refuses marks meanwhile, and to be asked for those it passed."""
    with traced() as t:
        torch.relu(a)
        card.capture(True)
        for _ in range(100):
            torch.relu(a)
        t._on_device.read()
        card.capture(False)
        torch.relu(a)
    assert [took for took in column(t, "device_ns", "torch.relu") if took is not None] == [MS, MS]
    assert t.result.notes() == ["calls that were captured into a graph were not timed on the device"]


def test_a_device_far_behind_costs_bounded_memory(
    card: Any, a: torch.Tensor, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(device_time, "MOST_WAITING", 10)
    card.hold()
    with traced() as t:
        for _ in range(30):
            torch.relu(a)
        card.hold(False)
    took = column(t, "device_ns", "torch.relu")
    assert took == [MS] * 10 + [None] * 20
    assert t.result.notes() == ["calls were not timed on the device while it was 10 behind"]


def test_tracing_is_not_what_begins_the_work_of_a_device(a: torch.Tensor, monkeypatch: pytest.MonkeyPatch):
    with traced(framework=None) as t:
        work = t.wrap(lambda: torch.relu(a), name="work")
        monkeypatch.setattr(
            torch.card, "started", False
        )  # as torch.cuda.is_initialized() before the first tensor there
        work()
        monkeypatch.setattr(torch.card, "started", True)
        work()
    assert column(t, "device_ns", "work") == [None, MS] and t.result.notes() == []


def test_a_lane_in_the_page_the_app_and_perfetto(a: torch.Tensor, tmp_path: Path):
    with traced(keep=[tmp_path / "t.html", tmp_path / "t.perfetto.json", tmp_path / "t.csv"]) as t:
        torch.mm(a, a)
        torch.relu(a)
    for lanes in (timeline_of(t.result, Window()).lanes, TraceView(t.result).timeline().lanes):
        assert list(lanes) == ["MainThread", "card:0"]
        assert [(bar.name, bar.duration_ns) for bar in lanes["card:0"]] == [
            ("torch.mm", MS),
            ("torch.relu", MS),
        ]
        first, second = lanes["card:0"]
        assert second.start_ns - first.start_ns == MS and first.start_ns >= 0
    assert '"card:0"' in (tmp_path / "t.html").read_text()
    told = json.loads((tmp_path / "t.perfetto.json").read_text())["traceEvents"]
    assert [(e["name"], e["dur"]) for e in told if e.get("cat") == "device"] == [
        ("torch.mm", 1e3),
        ("torch.relu", 1e3),
    ]
    assert [e["args"]["name"] for e in told if e["name"] == "thread_name"] == ["MainThread", "card:0"]
    assert (tmp_path / "t.csv").read_text().splitlines()[0].count("device_ns") == 1


def test_no_call_begins_on_the_device_before_it_was_made(card: Any, a: torch.Tensor):
    card.tick(False), card.cost(0)
    with traced() as t:
        for _ in range(50):
            torch.relu(a)
    rows = t.sql("select device_start_ns - start_ns as later from calls where not own")["later"].to_pylist()
    assert min(rows) == 0


def test_times_rest_with_the_trace(a: torch.Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(device_time, "PART_ROWS", 64)
    with traced(keep=tmp_path / "kept") as t:
        for i in range(200):
            torch.relu(a)
            if i % 50 == 0:
                torch.accelerator.synchronize()
                t.table()  # what was read is laid down
    loaded = lux.load_trace(tmp_path / "kept")
    assert loaded.table()["torch.relu"].device_ns == t.table()["torch.relu"].device_ns == 200 * MS
    parts = list((tmp_path / "kept").glob("rank0-*/device/*/*"))
    assert len(parts) > 1 and {path.name for path in parts} == {"table.parquet"}
    assert loaded.of_rank(0).table("line").rows[0].device_ns == 200 * MS
    loaded.save(tmp_path / "copied")
    assert (
        lux.load_trace(tmp_path / "copied").table()["torch.relu"].memory_bytes
        == t.table()["torch.relu"].memory_bytes
    )


def test_damaged_times_are_left_out_and_the_calls_stay(a: torch.Tensor, tmp_path: Path):
    with traced(keep=tmp_path / "kept"):
        torch.relu(a)
    [part] = (tmp_path / "kept").glob("rank0-*/device/*/table.parquet")
    part.write_bytes(part.read_bytes()[:40])
    with pytest.warns(UserWarning, match="is damaged"):
        table = lux.load_trace(tmp_path / "kept").table()
    assert (table["torch.relu"].n, table["torch.relu"].device_ns) == (1, None)


def test_a_full_disk_is_told_and_made_up_for(a: torch.Tensor, monkeypatch: pytest.MonkeyPatch):
    whole = device_time.SegmentWriter.append
    left = [1]

    def full_once(self: Any, rows: Any) -> int:
        if rows.schema.names == device_time.SCHEMA.names and left:
            left.pop()
            raise OSError(28, "No space left on device")
        return whole(self, rows)

    monkeypatch.setattr(device_time.SegmentWriter, "append", full_once)
    with pytest.warns(UserWarning, match="No space left"):
        with traced() as t:
            torch.relu(a)
            torch.accelerator.synchronize()
            t.table()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert t.table()["torch.relu"].device_ns == MS and not left


def test_a_forked_child_uses_no_device_and_spoils_nothing(a: torch.Tensor):
    with traced() as t:
        torch.relu(a)
        pid = os.fork()
        if pid == 0:
            torch.ones(2).add(1)
            t.finish_child()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        torch.relu(a)
    assert t.table()["torch.relu"].device_ns == 2 * MS
    assert t.table()["Tensor.add"].n == 1 and column(t, "device_ns", "Tensor.add") == NOBODY
    assert t.result.notes() == []


def test_what_it_costs_is_told(a: torch.Tensor):
    with lux.trace() as plain:
        torch.relu(a)
    with traced() as t:
        for _ in range(100):
            torch.relu(a)
        assert t._on_device.spent_ns > 0 and t._on_device.calls == 100
    more = t.cost().per_call_ns - plain.cost().per_call_ns
    assert more == pytest.approx(t._on_device.added_ns)


SCRIPT = """
import os, signal, sys
import card
native = card.load()
native.tick(True), native.cost(1_000_000)
import torch
a = torch.ones(4, 4, device="card")
for _ in range(10):
    torch.relu(a)
torch.accelerator.synchronize()
if "killed" in sys.argv:
    import luxmeter as lux
    with lux.trace(device=True, keep="killed") as t:
        for _ in range(10):
            torch.relu(a)
        torch.accelerator.synchronize()
        t.table()
        os.kill(os.getpid(), signal.SIGKILL)
"""


def _run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    (folder / "s.py").write_text(SCRIPT)
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )


def test_the_command_times_the_device(tmp_path: Path):
    done = _run(tmp_path, "-m", "luxmeter", "trace", "--device", "-o", "kept", "s.py")
    assert done.returncode == 0, done.stderr
    assert "  device  " in done.stdout + done.stderr
    assert lux.load_trace(tmp_path / "kept").table()["torch.relu"].device_ns == 10 * MS


def test_of_a_killed_process_what_was_laid_down_is_there(tmp_path: Path):
    assert _run(tmp_path, "s.py", "killed").returncode == -signal.SIGKILL
    assert lux.load_trace(tmp_path / "killed").table()["torch.relu"].device_ns == 10 * MS
