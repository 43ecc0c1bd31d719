"""Who waited for whom, from calls that are made up. Real ranks: tests/train/test_stragglers_of_ranks.py."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from luxmeter.calls.reader import Recording
from luxmeter.calls.records import EVENT_DTYPE, CallableNames, ProcessRecord, SignatureNames
from luxmeter.calls.stragglers import Stragglers, find_stragglers
from luxmeter.errors import TraceError
from luxmeter.signature import Signature, Word

ONE_CORE = "calls are made up: no core records them"
MS = 1_000_000
Call = (
    tuple[str, float, float] | tuple[str, float, float, str | Signature]
)  # what, from, until (ms), the group that it names, or all that it was given


def recording(
    ranks: Mapping[int, Sequence[Call]], *, began: Mapping[int, float] | None = None, clocks: str = ""
) -> Recording:
    """A trace in which each rank made these calls; `clocks`: a letter for each rank, whose machine it is on."""
    names = ["own", *dict.fromkeys(call[0] for calls in ranks.values() for call in calls)]
    given: list[str | Signature] = [
        "",
        *dict.fromkeys(call[3] for calls in ranks.values() for call in calls if len(call) == 4),
    ]
    rows = [
        (process, names.index(call[0]), given.index(call[3]) if len(call) == 4 else 0, call[1], call[2])
        for process, calls in enumerate(ranks.values())
        for call in calls
    ]
    events: dict[str, Any] = {
        name: np.zeros(len(rows), EVENT_DTYPE[name]) for name in EVENT_DTYPE.names or ()
    }
    events["own_ns"] = np.zeros(len(rows), np.int64)
    events["process"] = np.array([row[0] for row in rows], np.uint32)
    events["callable"] = np.array([row[1] for row in rows], np.uint32)
    events["signature"] = np.array([row[2] for row in rows], np.uint32)
    events["start_ns"] = np.array([row[3] * MS for row in rows], np.int64)
    events["duration_ns"] = np.array([(row[4] - row[3]) * MS for row in rows], np.int64)
    callables = tuple(CallableNames(_whole(name)) for name in names)
    known = dict(enumerate(callables))
    processes = [
        ProcessRecord(
            rank, 100 + rank, known, {}, {},
            {"started_ns": int((began or {}).get(rank, -1e9) * MS), "clock": clocks[i] if clocks else "a"},
        )
        for i, rank in enumerate(ranks)
    ]  # fmt: skip
    signatures = [
        SignatureNames(1, Signature((), (("group", Word("group", one)),)) if isinstance(one, str) else one)
        for one in given[1:]
    ]
    return Recording(events, (), callables, (None, *signatures), tuple(processes))


def _whole(name: str) -> str:
    return name if name.startswith(("torch.", "Tensor.")) else f"torch.distributed.{name}"


def waits(found: Stragglers) -> list[tuple[str, int, float]]:
    """Where, for whom, milliseconds in all."""
    return [
        (one.collective.removeprefix("torch.distributed."), one.rank, one.caused_ns / MS)
        for one in found.collectives
    ]


def steps(late: Mapping[int, float], n: int = 6, name: str = "all_reduce") -> dict[int, list[Call]]:
    """So many steps of 100 ms: each rank comes as much later as it says, all leave together."""
    last = max(late.values())
    return {rank: [(name, 100 * k + by, 100 * k + last + 1) for k in range(n)] for rank, by in late.items()}


def test_the_last_to_come_made_the_others_wait() -> None:
    found = find_stragglers(recording(steps({0: 0, 1: 40, 2: 10})))
    assert waits(found) == [("all_reduce", 1, 6 * (40 + 30))]
    assert found.worst is not None and (found.worst.rank, found.worst.last) == (1, 6)
    assert {one.rank: one.waited_ns / MS for one in found.ranks} == {0: 240, 1: 0, 2: 180}
    assert found.calls == 6 and not found.unmatched and not found.notes
    assert found.worst.share == pytest.approx(420 / (2 * 541))
    assert found.line == "rank 1 made the others wait 210 ms of 541 ms, most in torch.distributed.all_reduce"
    assert found.of(1)[0].longest_ns == 40 * MS and not found.of(0)


def test_as_text_and_for_machines() -> None:
    found = find_stragglers(recording(steps({0: 0, 1: 40})))
    lines = str(found).splitlines()
    assert lines[0].startswith("6 collectives of 2 ranks in 541 ms: rank 1 made rank 0 wait 240 ms of 541 ms")
    assert any(line.split()[:5] == ["1", "6", "240", "ms", "44.4%"] for line in lines)
    said = json.loads(json.dumps(found.to_dict()))
    assert said["line"] == found.line and said["collectives"][0]["group"] == [0, 1]
    assert said["ranks"][0]["rank"] == said["worst"]["rank"] == 1


def test_nobody_is_blamed_where_each_comes_last_at_times() -> None:
    calls: dict[int, list[Call]] = {0: [], 1: []}
    for k in range(10):
        calls[k % 2].append(("all_reduce", 100 * k, 100 * k + 31))
        calls[1 - k % 2].append(("all_reduce", 100 * k + 30, 100 * k + 31))
    found = find_stragglers(recording(calls))
    assert {one.rank: one.caused_ns / MS for one in found.ranks} == {0: 150, 1: 150}
    assert found.worst is None and found.line == "" and "no rank clearly" in str(found)


def test_nobody_is_blamed_for_one_hiccup() -> None:
    calls = steps({0: 0, 1: 1}, n=8)
    calls[1][3] = ("all_reduce", 350, 351)
    calls[0][3] = ("all_reduce", 300, 351)
    found = find_stragglers(recording(calls))
    assert found.ranks[0].rank == 1 and found.ranks[0].caused_ns == 57 * MS
    assert found.worst is None


def test_who_left_before_the_last_came_did_not_wait_for_it() -> None:
    sent: dict[int, list[Call]] = {
        0: [("broadcast", 100 * k + 20, 100 * k + 21) for k in range(5)],  # sends, and goes on
        1: [("broadcast", 100 * k, 100 * k + 21) for k in range(5)],  # waits for rank 0
        2: [("broadcast", 100 * k + 70, 100 * k + 71) for k in range(5)],  # comes when all is there
    }
    assert waits(find_stragglers(recording(sent))) == [("broadcast", 0, 100)]


def test_who_waits_for_a_rank_that_waits_waits_for_the_cause() -> None:
    calls: dict[int, list[Call]] = {0: [], 1: [], 2: []}
    for k in range(5):
        at = 100 * k
        calls[0] += [("all_reduce", at, at + 50, "0,1"), ("all_reduce", at + 55, at + 56)]
        calls[1] += [("all_reduce", at + 50, at + 51, "0,1"), ("all_reduce", at + 52, at + 56)]
        calls[2] += [("all_reduce", at + 5, at + 56)]  # for rank 0, which waited for rank 1 until 50
    found = find_stragglers(recording(calls))
    assert {one.rank: one.caused_ns / MS for one in found.ranks} == {1: 5 * (50 + 45), 0: 5 * (5 + 3), 2: 0}
    assert {(one.rank, one.group) for one in found.collectives} == {
        (1, (0, 1)), (1, (0, 1, 2)), (0, (0, 1, 2)),
    }  # fmt: skip
    assert found.worst is not None and found.worst.rank == 1


def test_a_backward_that_ends_together_waited() -> None:
    calls: dict[int, list[Call]] = {
        0: [("Tensor.backward", 100 * k, 100 * k + 35) for k in range(5)],
        1: [("Tensor.backward", 100 * k + 30, 100 * k + 35) for k in range(5)],
    }
    found = find_stragglers(recording(calls))
    assert waits(found) == [("Tensor.backward", 1, 150)] and "DDP" in found.notes[0]
    assert found.worst is not None and found.worst.most_in == "Tensor.backward"


@pytest.mark.parametrize("until", [5, 40])  # ms of a backward, before and after the other begins its own
def test_a_backward_that_each_ends_by_itself_did_not(until: int) -> None:
    calls: dict[int, list[Call]] = {
        0: [("Tensor.backward", 100 * k, 100 * k + until) for k in range(5)],
        1: [("Tensor.backward", 100 * k + 30, 100 * k + 30 + until) for k in range(5)],
    }
    found = find_stragglers(recording(calls))
    assert waits(found) == [] and found.worst is None and found.calls == 0


def test_calls_without_a_part_on_the_others_are_left_out() -> None:
    calls = steps({0: 0, 1: 40})
    calls[0].insert(0, ("all_reduce", -50, -45))  # the trace of rank 1 had not begun
    calls[1].append(("all_reduce", 700, 705))  # that of rank 0 was over
    found = find_stragglers(recording(calls))
    assert waits(found) == [("all_reduce", 1, 240)] and found.unmatched == 2
    assert "2 calls had no part on another rank" in str(found)


def test_what_began_before_the_trace_of_another_rank_does_not_count() -> None:
    calls = steps({0: 0, 1: 40})
    found = find_stragglers(recording(calls, began={0: -1000, 1: 20}))  # rank 0's first began at 0
    assert waits(found) == [("all_reduce", 1, 200)] and found.unmatched == 1


def test_the_clock_of_another_machine_is_set_by_collectives() -> None:
    here, there = steps({0: 0, 1: 40}).values()
    far = [
        (name, start + 5e6, end + 5e6) for name, start, end, *_ in there
    ]  # its clock began 5,000 s earlier
    found = find_stragglers(recording({0: here, 1: far}, began={1: 4e6}, clocks="ab"))
    assert waits(found) == [("all_reduce", 1, 240)]
    assert "the clock of rank 1, on another machine, was set by collectives" in found.notes[0]


def test_a_clock_that_nothing_sets_leaves_its_ranks_out() -> None:
    calls = steps({0: 0, 1: 40})
    calls[2] = [("broadcast", 5e6, 5e6 + 1)]
    found = find_stragglers(recording(calls, clocks="aab"))
    assert [one.rank for one in found.ranks] == [1, 0] and waits(found) == [("all_reduce", 1, 240)]
    assert any(note.startswith("rank 2 left out") for note in found.notes)


def test_one_rank_waits_for_nobody() -> None:
    with pytest.raises(TraceError, match="one-rank-only"):
        find_stragglers(recording({3: [("all_reduce", 0, 1)]}))


def test_ranks_without_collectives() -> None:
    found = find_stragglers(recording({0: [("torch.add", 0, 1)], 1: [("torch.add", 0, 1)]}))
    assert found.calls == 0 and found.worst is None and "0 collectives of 2 ranks" in str(found)


def test_a_recording_of_one_rank() -> None:
    both = recording(steps({0: 0, 1: 40}))
    one = both.of_rank(1)
    assert (one.n, one.ranks, both.ranks) == (6, [1], [0, 1])
    assert set(one.events["process"].tolist()) == {0} and one.processes[0].pid == 101
    assert both.process_names() == ["rank 0", "rank 1"] and one.process_names() == ["process 101"]


ASYNC = Signature((), (("async_op", True),))
NOT_WAITING = Signature(("a tensor", "sum", None, True))  # the same, by its place


@pytest.mark.parametrize("how", [ASYNC, NOT_WAITING], ids=["by name", "by place"])
def test_an_asynchronous_call_is_waited_for_in_wait(how: Signature) -> None:
    calls: dict[int, list[Call]] = {0: [], 1: []}
    for k in range(5):
        at = 100 * k
        # Rank 0 computes for 10 ms between its call and wait(): that time it has not lost.
        calls[0] += [("all_reduce", at, at + 1, how), ("Work.wait", at + 11, at + 41)]
        calls[1] += [("all_reduce", at + 40, at + 41, how), ("Work.wait", at + 41, at + 42)]
    found = find_stragglers(recording(calls))
    assert waits(found) == [("all_reduce", 1, 5 * 29)] and not found.notes
    assert found.worst is not None and found.worst.rank == 1 and found.calls == 5


def test_waits_belong_to_calls_in_their_order() -> None:
    calls: dict[int, list[Call]] = {0: [], 1: []}
    for k in range(5):
        at = 100 * k
        both: list[Call] = [("all_reduce", at, at + 1, ASYNC), ("broadcast", at + 1, at + 2, ASYNC)]
        calls[0] += [*both, ("Work.wait", at + 2, at + 41), ("Work.wait", at + 41, at + 61)]
        calls[1] += [("all_reduce", at + 40, at + 41, ASYNC), ("broadcast", at + 60, at + 61, ASYNC)]
    assert waits(find_stragglers(recording(calls))) == [("all_reduce", 1, 5 * 38), ("broadcast", 1, 5 * 19)]


def test_a_wait_that_returned_at_once_blames_nobody() -> None:
    """Whatever call it is taken to belong to: no more is counted than it took."""
    calls: dict[int, list[Call]] = {
        0: [("all_reduce", 0, 1, ASYNC), ("Work.wait", 2, 3), ("Work.wait", 3, 4), ("Work.wait", 4, 5)],
        1: [("all_reduce", 1, 2, ASYNC)],
    }
    calls[0] += [("all_reduce", 100 * k, 100 * k + 1, ASYNC) for k in range(1, 5)]  # nobody waits for these
    calls[1] += [("all_reduce", 100 * k + 50, 100 * k + 51, ASYNC) for k in range(1, 5)]
    assert waits(find_stragglers(recording(calls))) == []


def message(other: int | None, **more: Any) -> Signature:
    return Signature(("a tensor", other) if other is not None else ("a tensor",), tuple(more.items()))


def test_who_receives_waits_for_who_sends_and_the_other_way_round() -> None:
    calls: dict[int, list[Call]] = {0: [], 1: [], 2: []}
    for k in range(5):
        at = 100 * k
        calls[0] += [("recv", at, at + 41, message(1)), ("send", at + 41, at + 42, message(2))]
        calls[1] += [("send", at + 40, at + 41, message(0))]
        calls[2] += [("recv", at + 61, at + 62, message(0))]  # 19 ms behind: what was sent had gone already
    calls[0] += [("send", 500 + 100 * k, 530 + 100 * k, message(1, tag=3)) for k in range(5)]  # not buffered
    calls[1] += [("recv", 529 + 100 * k, 530 + 100 * k, message(None, src=0, tag=3)) for k in range(5)]
    found = find_stragglers(recording(calls))
    assert waits(found) == [("send/recv", 1, 5 * 40 + 5 * 29)], "both ways of a pair are one row"
    assert found.collectives[0].group == (0, 1) and found.collectives[0].calls == 10


def test_messages_of_a_batch_are_waited_for_in_wait() -> None:
    calls: dict[int, list[Call]] = {0: [], 1: []}
    for k in range(5):
        for rank, late in ((0, 0), (1, 50)):
            at, other = 100 * k + late, 1 - rank
            all_of_them = {"group": Word("group", "0,1"), "tag": 0}
            calls[rank] += [
                ("isend", at, at + 1, message(None, group_dst=other, **all_of_them)),
                ("irecv", at + 1, at + 2, message(None, group_src=other, **all_of_them)),
                ("Work.wait", at + 2, 100 * k + 54),
                ("Work.wait", 100 * k + 54, 100 * k + 55),
            ]
    found = find_stragglers(recording(calls))
    assert waits(found) == [("send/recv", 1, 5 * 49)]  # its irecv, of what rank 0 sends, came at 51
    assert found.worst is not None and found.worst.rank == 1


def test_a_message_from_whoever_sends_first_is_left_out() -> None:
    calls: dict[int, list[Call]] = {
        0: [("recv", 100 * k, 100 * k + 41, message(None)) for k in range(5)],
        1: [("send", 100 * k + 40, 100 * k + 41, message(0)) for k in range(5)],
    }
    found = find_stragglers(recording(calls))
    assert waits(found) == [] and "5 messages left out: from or to whom" in found.notes[0]


def nested(calls: Mapping[int, Sequence[tuple[str, float, float, int]]]) -> Recording:
    """Calls with their depth, as they end."""
    made = recording({rank: [one[:3] for one in its] for rank, its in calls.items()})
    made.events["depth"][:] = [one[3] for its in calls.values() for one in its]
    return made


def test_what_a_collective_calls_is_no_collective_of_its_own() -> None:
    def of(late: float) -> list[tuple[str, float, float, int]]:
        calls: list[tuple[str, float, float, int]] = []
        for k in range(5):
            at = 100 * k + late
            calls += [
                ("torch.add", at + 1, at + 2, 2),
                ("broadcast", at + 1, 100 * k + 48, 1),
                ("all_gather", at, 100 * k + 50, 0),
            ]
        return calls

    found = find_stragglers(nested({0: of(0), 1: of(40)}))
    assert waits(found) == [("all_gather", 1, 5 * 40)] and found.calls == 5


def test_a_backward_in_which_a_collective_is_seen_is_not_waited_for_itself() -> None:
    def of(late: float) -> list[tuple[str, float, float, int]]:
        calls: list[tuple[str, float, float, int]] = []
        for k in range(5):
            at = 100 * k
            calls += [
                ("all_reduce", at + 5 + late, at + 46, 2),
                ("torch.autograd.backward", at + 1, at + 47, 1),
                ("Tensor.backward", at, at + 48, 0),
            ]
        return calls

    assert waits(find_stragglers(nested({0: of(0), 1: of(40)}))) == [("all_reduce", 1, 5 * 40)]


def test_calls_that_never_went_on_at_one_time_belong_to_nobody() -> None:
    found = find_stragglers(
        recording({0: [("all_reduce", 0, 1), ("all_reduce", 100, 101)], 1: [("all_reduce", 1000, 1001)]})
    )
    assert (found.calls, found.unmatched) == (0, 3)


def test_a_process_that_made_no_call_is_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, some = steps({0: 0, 1: 40}), steps({0: 0, 1: 40})
    assert waits(find_stragglers(recording({**whole, 2: []}))) == waits(find_stragglers(recording(some)))


def test_in_a_notebook() -> None:
    found = find_stragglers(recording(steps({0: 0, 1: 40})))
    shown = found._repr_html_()
    assert shown.count("<table") == 2 and "all_reduce" in shown
