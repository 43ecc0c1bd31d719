"""Trace: start, stop, sections, sampling, results, and what happens when it is used wrongly."""

from __future__ import annotations

import json
import multiprocessing
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import nn

import luxmeter as lux
from luxmeter.calls import Device, layout, session
from luxmeter.calls import describe as names
from luxmeter.calls.arguments import Arguments
from luxmeter.calls.session import active
from luxmeter.errors import TraceError, UsageError
from luxmeter.render import span

pytestmark = pytest.mark.usefixtures("core_name")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


def own(**settings: Any) -> Any:
    """A trace of nothing but what is given to wrap()."""
    return lux.trace(framework=None, **settings)


def test_a_training_step_shows_layers_functions_backward_and_optimizer():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x, y = torch.ones(3, 4), torch.tensor([0, 1, 0])
    with lux.trace() as t:
        for _ in range(5):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
    counts = {row.name: row.n for row in t.table()}
    assert counts == {
        "test_session.Net": 5, "torch.nn.Linear": 10, "torch.relu": 5, "torch.nn.functional.cross_entropy": 5,
        "Tensor.backward": 5, "torch.optim.SGD.step": 5, "torch.optim.SGD.zero_grad": 5,
    }  # fmt: skip
    assert {row.name: row.n for row in t.table("module")} == {"Net": 5, "Net.first": 5, "Net.second": 5}
    tree = t.tree()
    assert {child.name for child in tree["test_session.Net"].children} == {"torch.nn.Linear", "torch.relu"}
    assert tree["test_session.Net"]["Net.first"].n == 5
    assert "torch.relu" in str(t) and "Net" in str(tree)


def test_a_signature_that_another_thread_is_describing(monkeypatch: pytest.MonkeyPatch):
    """The first call of a signature on one thread ends while another, which was first, still describes it."""
    begun, described, ended = threading.Event(), threading.Event(), threading.Event()
    key, describe = Arguments._key, names.describe

    def late_key(self: Arguments, value: Any) -> object:
        if threading.current_thread() is threading.main_thread():
            begun.set()
            assert described.wait(20)
        return key(self, value)

    def late_describe(*args: Any, **how: Any) -> Any:
        if threading.current_thread() is not threading.main_thread() and not described.is_set():
            described.set()
            assert ended.wait(20)
        return describe(*args, **how)

    with own() as t:
        monkeypatch.setattr(Arguments, "_key", late_key)
        monkeypatch.setattr(names, "describe", late_describe)
        double = t.wrap(lambda x: torch.as_tensor(x) * 2, name="double")

        def first() -> None:
            assert begun.wait(20)
            double(np.ones(3))

        thread = threading.Thread(target=first)
        thread.start()
        double(np.ones(3))
        ended.set()
        thread.join()
    assert t.result.notes() == []
    ((_, found),) = t.result.signatures
    assert found.outputs == ((3,),) and t.table()["double"].n == 2


def test_inside_shows_what_calls_call():
    layer, x = nn.Linear(4, 8), torch.ones(3, 4)
    with lux.trace(inside=True) as t:
        layer(x)
    table = t.table()
    assert table["torch.nn.functional.linear"].n == 1
    assert table["torch.nn.Linear"].self_ns < table["torch.nn.Linear"].total_ns
    assert [row.name for row in t.table(inside=False)] == ["torch.nn.Linear"]


def test_the_rows_add_up():
    with own() as t:
        quick = t.wrap(len, name="quick")
        for _ in range(100):
            quick([])
    (row,) = t.table()
    assert (row.name, row.n, row.share) == ("quick", 100, 1.0)
    assert row.min_ns <= row.p50_ns <= row.p95_ns <= row.p99_ns <= row.max_ns
    assert row.mean_ns * row.n == pytest.approx(row.total_ns) and row.self_ns == row.total_ns
    assert t.table(warmup=False)["quick"].n == 99
    assert (
        t.table()["quick"].first_ns == t.events().filter(pa.compute.field("first"))["duration_ns"][0].as_py()
    )


def test_sections_nest_and_are_rows():
    with own() as t:
        work = t.wrap(len, name="work")
        for _ in range(2):
            with t.section("epoch"):
                work([])
                with t.section("step"):
                    work([])
        work([])
    table = t.table("section")
    assert {row.name: row.n for row in table} == {"epoch": 2, "epoch/step": 2}
    assert table["epoch"].total_ns >= table["epoch/step"].total_ns
    events = t.events().to_pylist()
    assert [e["section"] for e in events if e["name"] == "work"] == ["epoch", "epoch/step"] * 2 + [""]


def test_a_section_of_a_trace_that_does_not_run_is_nothing():
    t = own()
    with t.section("before"):
        pass
    with t:
        t.wrap(len, name="f")([])
    with t.section("after"):
        pass
    assert len(t.table("section")) == 0


def test_signatures_are_rows_and_read_back():
    with lux.trace() as t:
        for n in (2, 3, 2):
            torch.add(torch.ones(n), 1.0 * n, alpha=2)
    rows = {row.detail: row.n for row in t.table("signature") if row.name == "torch.add"}
    assert sorted(rows.values()) == [1, 2] and any("f32[2]" in detail for detail in rows)
    words = [s for name, s in t.result.signatures if name == "torch.add"]
    assert {s.signature.args[0].shape for s in words} == {(2,), (3,)}
    assert ((2.0, 2.0),) in [s.float_ranges for s in words]


def test_events_and_sql_and_threads():
    with own() as t:
        work = t.wrap(len, name="work")
        thread = threading.Thread(target=lambda: work([]), name="helper")
        thread.start()
        thread.join()
        work([])
    assert {row.name for row in t.table("thread")} == {"helper", "MainThread"}
    assert t.sql("select count(*) as n from calls where name = 'work'")["n"].to_pylist() == [2]
    with pytest.raises(UsageError, match="bad-query"):
        t.sql("select nothing from nowhere")


def test_results_can_be_read_while_it_runs():
    with own() as t:
        work = t.wrap(len, name="work")
        work([])
        assert t.live()["work"].n == 1
        assert t.table()["work"].n == 1
        work([])
        assert t.table()["work"].n == 2
    assert t.table()["work"].n == 2


def test_totals_only_agrees_with_events():
    with own(totals=True) as t:
        work = t.wrap(len, name="work")
        with t.section("part"):
            for _ in range(200):
                work([1])
    (row,) = t.table()
    assert (row.name, row.n) == ("work", 200)
    assert row.min_ns <= row.p50_ns <= row.p99_ns <= row.max_ns and row.first_ns is not None
    assert t.table(warmup=False)["work"].n == 199
    assert [r.name for r in t.table("section")] == ["part"]
    assert [r.name for r in t.table("thread")] == ["MainThread"]
    assert len(t.table("signature")) == 1
    with pytest.raises(TraceError, match="totals-only"):
        t.events()


def test_every_nth_step_by_the_optimizer_or_by_hand():
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def step() -> None:
        torch.sum(weight * 2).backward()
        optimizer.step()

    with lux.trace(sample=3) as t:
        for _ in range(7):
            step()
    assert t.table()["torch.sum"].n == 3
    with lux.trace(sample=2) as t:
        for _ in range(5):
            torch.sum(weight)
            t.step()
    assert t.table()["torch.sum"].n == 3


def test_a_budget_pauses_recording():
    with own(budget=1e-9) as t:
        work = t.wrap(len, name="work")
        work([])
        t._on_tick()  # as the writer does
        work([])
        assert not t._recorder.recording
        t._started_ns -= 10**15  # much time goes by
        t._on_tick()
        work([])
    assert t.table()["work"].n == 2


def test_completion_and_dispatch_in_one_run_on_an_asynchronous_device():
    pending: list[int] = []
    waits: list[int] = []

    def wait() -> None:
        waits.append(len(pending))
        pending.clear()

    fake = Device("fake", wait)
    with own(sync=True, waits_for=fake) as t:
        launch = t.wrap(lambda: pending.append(1), name="launch")
        launch(), launch()
    assert waits == [1, 1]
    row = t.table()["launch"]
    assert row.dispatch_ns is not None and 0 < row.dispatch_ns < row.total_ns
    assert t.events()["completed"].to_pylist().count(True) == len(t.events())
    with own(sync=False, waits_for=fake) as t:
        t.wrap(len, name="f")([])
    assert len(waits) == 2
    assert t.events().filter(pa.compute.equal(t.events()["name"], "f"))["completed"].to_pylist() == [False]


def test_on_a_cpu_sync_waits_for_nothing():
    with own(sync=True) as t:
        t.wrap(len, name="f")([])
    row = t.table()["f"]
    assert row.dispatch_ns == row.total_ns and all(t.events()["completed"].to_pylist())


def test_filters_by_name_and_by_a_yaml_list(tmp_path: Path):
    listed = tmp_path / "names.yaml"
    listed.write_text("- torch.relu\n- 'torch.si*'\n")
    grouped = tmp_path / "groups.yml"
    grouped.write_text("torch:\n- relu\n")
    x = torch.ones(2)

    def run() -> None:
        torch.relu(x), torch.sin(x), torch.cos(x)

    for only, expected in (("torch.cos", {"torch.cos"}), (str(listed), {"torch.relu", "torch.sin"}),
                           ([str(grouped)], {"torch.relu"})):  # fmt: skip
        with lux.trace(only=only) as t:
            run()
        assert {row.name for row in t.table()} == expected
    with lux.trace(skip=["torch.s*", "torch.cos"]) as t:
        run()
    assert {row.name for row in t.table()} == {"torch.relu"}


def test_its_own_cost_is_measured_told_and_taken_off():
    with own() as t:
        inner = t.wrap(len, name="inner")

        def outer() -> None:
            for _ in range(50):
                inner([])

        t.wrap(outer, name="outer", span=True)()
    cost = t.cost()
    assert cost.per_call_ns > 0 and cost.calls >= 51 and cost.share > 0
    assert f"{span(cost.per_call_ns)} a call" in str(t)
    raw, net = t.table(), t.table(subtract_cost=True)
    assert net["outer"].total_ns < raw["outer"].total_ns
    assert net["outer"].self_ns <= raw["outer"].self_ns
    assert net["inner"].total_ns <= raw["inner"].total_ns


def test_saved_and_loaded_it_says_the_same(tmp_path: Path):
    with lux.trace() as t:
        torch.add(torch.ones(2), 1)
    path = t.save(tmp_path / "kept")
    loaded = lux.load_trace(path)
    assert list(loaded.table()) == list(t.table())
    assert str(loaded) == str(t)
    with pytest.raises(UsageError, match="trace-folder-taken"):
        t.save(path)


def test_keep_leaves_it_where_it_was_said(tmp_path: Path):
    with own(keep=tmp_path / "here") as t:
        t.wrap(len, name="f")([])
    assert t.folder == tmp_path / "here"
    assert lux.load_trace(tmp_path / "here").table()["f"].n == 1
    with pytest.raises(TraceError, match="trace-folder-taken"):
        own(keep=tmp_path / "here").start()
    assert active() is None


def test_inside_a_run_it_rests_in_the_run(tmp_path: Path):
    from luxmeter.store import Lab, activate

    lab = Lab.open(tmp_path / "lab")
    with lab.create_run("mine") as run, activate(run):
        for _ in range(2):
            with own(name="warm") as t:
                t.wrap(len, name="f")([])
    assert t.folder is not None and t.folder.parent == Path(run.folder) / "calls"
    assert sorted(p.name for p in t.folder.parent.iterdir()) == ["warm", "warm-2"]


def test_nested_and_repeated_starts_and_stops():
    with pytest.raises(TraceError, match="not-tracing"):
        lux.stop()
    with own() as t:
        with pytest.raises(TraceError, match="already-tracing"):
            lux.start(framework=None)

        def again() -> None:
            with pytest.raises(TraceError, match="already-tracing"):
                lux.start(framework=None)

        t.wrap(again, name="again")()
        assert active() is t
    with pytest.raises(TraceError, match="trace-used-up"):
        t.start()
    assert t.stop() is t
    started = lux.start(framework=None)
    assert lux.stop() is started and not started.running


def test_stop_inside_a_traced_call():
    t = own().start()
    t.wrap(t.stop, name="stop")()
    assert active() is None and "open when recording paused or stopped" in str(t)


def test_as_a_decorator_each_call_is_traced():
    @lux.trace()
    def work(n: int) -> torch.Tensor:
        """Adds."""
        return torch.add(torch.ones(n), 1)

    assert work.__name__ == "work" and work.__doc__ == "Adds."
    assert work(2).tolist() == [2.0, 2.0]
    first = work.trace
    work(3)
    assert first.table()["torch.add"].n == work.trace.table()["torch.add"].n == 1 and first is not work.trace
    with lux.trace() as outer:
        work(2)
    assert work.trace is outer and [row.name for row in outer.table("section")] == [
        "test_as_a_decorator_each_call_is_traced.<locals>.work"
    ]


def test_an_error_in_the_block_stops_the_trace():
    with pytest.raises(ZeroDivisionError), own() as t:
        1 / 0
    assert active() is None and not t.running


def test_a_trace_that_was_not_started_says_so():
    t = own()
    assert "not started" in str(t)
    for use in (t.table, lambda: t.wrap(len)):
        with pytest.raises(TraceError, match="trace-not-started"):
            use()


@pytest.mark.parametrize(
    ("settings", "slug"),
    [
        ({"insid": True}, "unknown-trace-option"),
        ({"sample": 0}, "bad-trace-option"),
        ({"budget": 2.0}, "bad-trace-option"),
        ({"name": "a/b"}, "bad-trace-option"),
        ({"inside": "no"}, "bad-trace-option"),
        ({"only": [3]}, "bad-trace-option"),
        ({"max_pending": 1.5}, "bad-trace-option"),
        ({"keep": ["a", "b"]}, "two-trace-folders"),
        ({"keep": "calls.csv", "totals": True}, "totals-in-file"),
        ({"core": "fortran"}, "unknown-core"),
        ({"core": {"a": 1}}, "bad-trace-option"),
        ({"only": "no_such.yaml"}, "filter-unreadable"),
        ({"framework": "torch", "only": "torch.no_such_function"}, "filter-matches-nothing"),
        ({"framework": "torch", "also": ["no_such_package"]}, "unknown-target"),
    ],
)
def test_bad_options_are_refused_before_anything_is_patched(settings: dict[str, Any], slug: str):
    before = torch.add
    with pytest.raises(UsageError, match=slug):
        lux.trace(**{"framework": None, **settings}).start()
    assert torch.add is before and active() is None


def test_files_to_keep_are_written_when_it_stops(tmp_path: Path):
    wanted = [
        tmp_path / "calls.html",
        tmp_path / "calls.json",
        tmp_path / "v1.0",
    ]  # a folder: its ending is no format's
    with own(keep=wanted) as t:
        t.wrap(abs, name="f")(-1)
        assert not wanted[0].exists()
    assert wanted[0].read_text().startswith("<!doctype html") and '"f"' in wanted[1].read_text()
    assert lux.load_trace(wanted[2]).table()["f"].n == 1
    with own(keep=str(tmp_path / "alone.csv")) as t:
        t.wrap(abs, name="f")(-1)
    assert (tmp_path / "alone.csv").is_file()
    with pytest.raises(UsageError, match="cannot be written"):
        own(keep="/proc/x/calls.html").start()
    assert active() is None


def test_an_unwritable_folder_is_refused_before_anything_is_patched(tmp_path: Path):
    (tmp_path / "file").write_text("")
    before = torch.add
    with pytest.raises(TraceError, match="trace-folder-unwritable"):
        lux.trace(keep=tmp_path / "file" / "trace").start()
    assert torch.add is before and active() is None


def test_the_core_can_be_chosen_and_says_why(core_name: str, monkeypatch: pytest.MonkeyPatch):
    from luxmeter.calls import core

    assert core.describe() == (core_name, "the setting core (LUXMETER_CORE) asks for it")
    monkeypatch.delenv("LUXMETER_CORE")
    is_built = core.describe()[0] == "c"
    monkeypatch.setitem(__import__("sys").modules, "luxmeter.calls.core._core", None)
    name, reason = core.describe()
    assert name == "python" and ("cannot be imported" if is_built else "was not built") in reason
    with pytest.raises(UsageError, match="core-not-built"):
        core.load("c")


def test_a_budget_stays_paused_until_there_is_room_again():
    said: list[str] = []

    class Recorder:
        events = 10

        def stats(self) -> dict[str, int]:
            return {"events": self.events, "described_ns": 0}

        def pause(self) -> None:
            said.append("pause")

        def start(self) -> None:
            said.append("start")

    budget = session.Budget(0.1)
    for elapsed_ns in (
        50,
        110,
        120,
        126,
        130,
    ):  # 10 events of one nanosecond: allowed from 100 on, room from 125 on
        budget.keep(Recorder(), added_ns=1.0, elapsed_ns=elapsed_ns)  # type: ignore[arg-type]
    assert said == ["pause", "start"]


def test_a_child_stops_recording_with_the_trace(tmp_path: Path):
    with lux.trace(framework=None, keep=tmp_path / "t") as t:
        work = t.wrap(len, name="work")
        work("")
        t._child = True  # as in a forked process
        try:
            t._on_tick()
            work("")
            layout.mark_stopped(tmp_path / "t")
            t._on_tick()
            work("")
        finally:
            t._child = False
    assert t.table()["work"].n == 2


def loop_of_a_worker() -> int:
    return int(torch.ones(3).sum())


def test_a_worker_that_nothing_has_joined_yet_joins_by_itself(tmp_path: Path):
    with lux.trace(keep=tmp_path / "t") as t:
        torch.ones(1)
    assert session.run_worker(t._token, __name__, "loop_of_a_worker") == 3
    assert session.active() is None
    both = lux.load_trace(tmp_path / "t")
    assert len(both.recording.processes) == 2 and both.table()["torch.ones"].n == 2
    assert session.run_worker(None, __name__, "loop_of_a_worker") == 3


def test_a_child_that_recorded_nothing_has_nothing_to_finish(tmp_path: Path):
    with lux.trace(framework=None, keep=tmp_path / "t") as t:
        child = multiprocessing.get_context("fork").Process(target=len, args=("",))
        child.start()
        child.join()
    assert child.exitcode == 0 and len(list((tmp_path / "t").glob("rank*"))) == 1
    assert not t.result.notes()


def test_before_it_starts_and_of_one_rank():
    t = lux.trace(framework=None)
    t.step()  # nothing to end
    t._on_chunk()  # as of another thread, whose buffer fills as a trace ends
    with t:
        t.step()
    with pytest.raises(TraceError, match="one-rank-only"):
        t.stragglers()
    assert t.result.recording.process_names()


def test_signatures_past_their_limit_are_told():
    with lux.trace(framework=None, max_signatures=2) as t:
        work = t.wrap(len, name="work")
        for n in range(5):
            work("a" * n)
    assert "3 calls came after the limit of signatures: not told apart" in t.result.notes()


def test_places_past_their_room_are_told(tmp_path: Path):
    with lux.trace(framework=None, keep=tmp_path / "t") as t:
        t.wrap(len, name="work")("")
    (file,) = (tmp_path / "t").glob("rank*/end.json")
    said = json.loads(file.read_text())
    said.pop("$sum", None)
    said["stats"]["unplaced"] = 7
    file.write_text(json.dumps(said))
    assert "7 calls have no line: too many places in code called" in lux.load_trace(tmp_path / "t").notes()
