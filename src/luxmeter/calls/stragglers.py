"""Which rank made the others wait, and in which collective. Pure: the ranks' calls in, who waited for whom out.

The k-th call of a collective (of one group) is the same one on every rank of the group. Who waits in it waits for the rank that comes last:
from its own start to that rank's. A call that ended before some rank came (a broadcast that was only sent, an asynchronous
one) waited for the last one that had come by then. Who waits for a rank that was itself waiting meanwhile waits for the one that
made it wait.

DDP averages gradients inside backward, in C++: no call of Python shows when a rank comes there. But the ranks leave backward
together. So a rank that began it earlier waited as long as its backward took longer than that of the last one to begin, and
that counts only if both ended together. What a rank loses inside of its own backward cannot be told apart from waiting.

An asynchronous call comes when it is made, and is waited for in `Work.wait()`: that of its thread which finds it the oldest one not waited for
yet. So what is counted is never more than the time inside a wait, and only up to where another rank came. Messages are pairs: the
k-th that one rank sends another is the k-th that this one receives from it, and either may wait for the other.

Ranks of one machine have one clock. That of another one is set by the collectives that all join, none of which can end before the last
rank has come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from luxmeter.calls.chunks import joined
from luxmeter.calls.groups import distinct
from luxmeter.calls.records import OWN, SignatureNames
from luxmeter.calls.tree import with_callers
from luxmeter.errors import TraceError
from luxmeter.render import DURATION, NUMBER, SHARE, Column, Table, span
from luxmeter.signature import Word

if TYPE_CHECKING:
    from luxmeter.calls.reader import Recording

Numbers = npt.NDArray[Any]

_NAMESPACES = ("torch.distributed", "mindspore.mint.distributed")
# Which no rank leaves before the last one has come.
_JOINED = (
    "all_reduce", "all_reduce_coalesced", "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object",
    "all_gather_single", "all_to_all", "all_to_all_single", "barrier", "monitored_barrier", "reduce_scatter", "reduce_scatter_single",
    "reduce_scatter_tensor",
)  # fmt: skip
# Which a rank may leave as soon as it has given, or got, its part.
_ROOTED = (
    "broadcast", "broadcast_object_list", "_broadcast_coalesced", "gather", "gather_object", "reduce", "scatter",
    "scatter_object_list",
)  # fmt: skip
_BACKWARD = ("Tensor.backward", "torch.autograd.backward")
# A message -> whether it is sent, whether its call returns before it has gone over, and what it and its counterpart are shown as.
_MESSAGES = {
    "send": (True, False, "send/recv"), "isend": (True, True, "send/recv"),
    "recv": (False, False, "send/recv"), "irecv": (False, True, "send/recv"),
    "send_object_list": (True, False, "send_object_list/recv_object_list"),
    "recv_object_list": (False, False, "send_object_list/recv_object_list"),
}  # fmt: skip
_WAIT = "torch.distributed.Work.wait"

_CLEAR_SHARE = 0.1  # of the others' time
_CLEAR_TIMES = 2.0  # what the next one caused
_FEWEST = 3  # calls


@dataclass(frozen=True, slots=True)
class CollectiveWaits:
    """How long other ranks waited for one of them in a collective."""

    collective: str
    rank: int  # that was waited for
    group: tuple[int, ...]  # the ranks that made these calls
    calls: int
    last: int  # in how many of them it was waited for
    caused_ns: int  # the waiting for it, added up over the others
    longest_ns: int  # the longest wait of one of them
    share: float  # of the others' time


@dataclass(frozen=True, slots=True)
class RankWaits:
    """What a rank made others wait, and waited itself, in all collectives."""

    rank: int
    calls: int
    last: int
    caused_ns: int
    waited_ns: int
    share: float  # caused, of the others' time
    most_in: str  # the collective in which it caused most; empty if it caused none


@dataclass(frozen=True)
class Stragglers:
    """Who made the others wait: `ranks` in all, `collectives` each by itself, the most waiting first."""

    ranks: tuple[RankWaits, ...]
    collectives: tuple[CollectiveWaits, ...]
    spanned_ns: int  # from the first of the collectives to the end of the last
    calls: int  # collectives that were looked at, each once for all its ranks
    unmatched: int  # calls of which the other ranks' part was not recorded
    worst: RankWaits | None  # the one that clearly made the others wait, not once but again and again
    notes: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """Who it clearly was, in a line; empty if it was nobody."""
        found = self.worst
        if found is None:
            return ""
        waited = span(found.caused_ns / (len(self.ranks) - 1))
        others = "the others" if len(self.ranks) > 2 else f"rank {self._other(found.rank)}"
        return f"rank {found.rank} made {others} wait {waited} of {span(self.spanned_ns)}, most in {found.most_in}"

    def of(self, rank: int) -> list[CollectiveWaits]:
        """The collectives in which others waited for this rank."""
        return [one for one in self.collectives if one.rank == rank]

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {**asdict(self), "line": self.line}

    def text(self, width: int | None = None) -> str:
        """Both tables for a terminal."""
        return f"{self.as_table().text(width)}\n\n{self.by_collective().text(width)}"

    def as_table(self) -> Table:
        """A row for each rank."""
        title = (
            f"{self.calls:,} collectives of {len(self.ranks)} ranks in {span(self.spanned_ns)}: "
            f"{self.line or 'no rank clearly made the others wait'}"
        )
        columns = [
            Column("rank", NUMBER),
            Column("came last", NUMBER, form=","),
            Column("others waited", DURATION),
            Column("of their time", SHARE),
            Column("waited itself", DURATION, goes=1),
            Column("most in", goes=2, missing=""),
        ]
        rows = [
            [one.rank, one.last, one.caused_ns, one.share, one.waited_ns, one.most_in] for one in self.ranks
        ]
        return Table(columns, rows, title=title)

    def by_collective(self, top: int = 20) -> Table:
        """A row for each collective and rank that was waited for in it."""
        columns = [
            Column("collective", least=20),
            Column("ranks", hidden="same", goes=1),
            Column("n", NUMBER, form=","),
            Column("waited for", goes=None),
            Column("times", NUMBER, form=",", goes=3),
            Column("others waited", DURATION),
            Column("longest", DURATION, goes=2),
            Column("of their time", SHARE),
        ]
        rows = [
            [one.collective, _numbered(one.group), one.calls, f"rank {one.rank}", one.last, one.caused_ns, one.longest_ns,
             one.share]
            for one in self.collectives[:top]
        ]  # fmt: skip
        rest = len(self.collectives) - top
        return Table(columns, rows, notes=[*([f"... and {rest} more rows"] if rest > 0 else []), *self.notes])

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """In a notebook."""
        from luxmeter.render import repr_html

        return repr_html(self.as_table(), self.by_collective())

    def _other(self, rank: int) -> int:
        return next(one.rank for one in self.ranks if one.rank != rank)


@dataclass(frozen=True, slots=True)
class _Calls:
    """The calls of one collective on one rank, by their start; from `waits` on it can do nothing else until the end."""

    start: Numbers
    waits: Numbers
    end: Numbers

    @staticmethod
    def of(start: Numbers, waits: Numbers, end: Numbers) -> _Calls:
        order = np.argsort(start, kind="stable")
        return _Calls(start[order], waits[order], end[order])

    def since(self, moment_ns: int) -> _Calls:
        return self.at(self.start >= moment_ns)

    def at(self, places: Numbers) -> _Calls:
        return _Calls(self.start[places], self.waits[places], self.end[places])

    def moved(self, by_ns: int) -> _Calls:
        return _Calls(self.start + by_ns, self.waits + by_ns, self.end + by_ns)

    def __len__(self) -> int:
        return len(self.start)


class _Key(NamedTuple):
    """Which calls are counted together."""

    name: str
    group: str  # empty: that of all ranks; of a message: from whom to whom
    is_async: bool

    @property
    def joins(self) -> bool:
        """Whether no rank returns from it before the last one has come."""
        return not self.is_async and self.name.rpartition(".")[2] in _JOINED


_Found = dict[_Key, dict[int, _Calls]]  # rank -> its calls


def find_stragglers(recording: Recording) -> Stragglers:
    """Who waited for whom. For traces with the calls of several ranks."""
    began, clocks = _times(recording)
    ranks = sorted(began)
    if len(ranks) < 2:
        raise TraceError(
            "one-rank-only",
            f"Nobody waits for another rank here: the trace is of {f'rank {ranks[0]}' if ranks else 'no rank'} alone.",
            "Trace all ranks into one trace: train(trace=...), or luxmeter run --processes 2 --trace script.py.",
        )
    found, notes = _collectives(recording)
    offsets = _offsets(found, clocks, notes)
    left_out = [rank for rank in ranks if rank not in offsets]
    found = {
        key: {rank: calls.moved(offsets[rank]) for rank, calls in of.items() if rank in offsets}
        for key, of in found.items()
    }
    ranks = [rank for rank in ranks if rank in offsets]
    first = max(began[rank] + offsets[rank] for rank in ranks)
    if left_out:
        notes.append(
            f"{_numbered(left_out)} left out: the clock of another machine, and no collective that all join to set it by"
        )
    waits, unmatched = [], 0
    for key, whole in found.items():
        name = key.name
        of = {rank: later for rank, calls in whole.items() if len(later := calls.since(first))}
        if len(of) < 2:
            unmatched += 0 if name in _BACKWARD else sum(map(len, of.values()))
            continue
        picked = _matched([*of.values()], joins=key.joins)
        n = len(picked[0])
        if name not in _BACKWARD:
            unmatched += sum(len(calls) - n for calls in of.values())
        if n:
            same = [calls.at(at) for calls, at in zip(of.values(), picked, strict=True)]
            start, since, end = (
                np.stack(parts, axis=1)
                for parts in ([c.start for c in same], [c.waits for c in same], [c.end for c in same])
            )
            whom, wait = _in_backward(start, end) if name in _BACKWARD else _in_collective(start, since, end)
            if (
                wait.any() or name not in _BACKWARD
            ):  # a backward in which nobody waits need not average anything
                waits.append(_Waits(name, [*of], start, end, whom, wait))
    return _summed(waits, ranks, unmatched, notes)


@dataclass(frozen=True, slots=True)
class _Waits:
    """Calls of a collective: for whom each rank waited (a place in `ranks`) in each of them, and how long."""

    name: str
    ranks: list[int]
    start: Numbers
    end: Numbers
    whom: Numbers
    wait: Numbers


class _Blame(NamedTuple):
    """A part of a wait, and the rank that is the reason of it."""

    of: int  # which of the collectives
    call: int
    waiter: int
    rank: int
    ns: int


def _blamed(waits: Sequence[_Waits]) -> list[_Blame]:
    """Each wait, with its reason: while the rank that was waited for waited itself, that is the one which it waited for."""
    every: list[tuple[int, int, int, int, int, int]] = []
    for number, one in enumerate(waits):
        ranks = np.array(one.ranks)
        until = np.take_along_axis(one.start, one.whom, axis=1)
        at = np.nonzero(one.wait)
        columns = (
            until[at],
            one.wait[at],
            ranks[at[1]],
            ranks[one.whom[at]],
            np.full(len(at[0]), number),
            at[0],
        )
        every += zip(*(column.tolist() for column in columns), strict=True)
    every.sort()
    found: list[_Blame] = []
    waited: dict[int, list[tuple[int, int, int]]] = {}  # rank -> from, until, for whom
    for until_ns, ns, waiter, whom, number, call in every:
        since_ns = end_ns = until_ns - ns
        parts = []
        before = waited.get(whom, [])
        place = len(before)
        while place and before[place - 1][1] > since_ns:
            place -= 1
        for begin, stop, reason in before[place:]:
            begin, stop = max(begin, end_ns), min(stop, until_ns)
            if stop > begin and reason != waiter:
                parts += [(end_ns, begin, whom), (begin, stop, reason)]
                end_ns = stop
        parts.append((end_ns, until_ns, whom))
        parts = [part for part in parts if part[1] > part[0]]
        waited.setdefault(waiter, []).extend(parts)
        found += [_Blame(number, call, waiter, reason, stop - begin) for begin, stop, reason in parts]
    return found


def _collectives(recording: Recording) -> tuple[_Found, list[str]]:
    """The calls of each collective on each rank, those that another one makes inside left out; what is to be said of others."""
    words = recording.callables
    events, above = _of_ranks(recording, np.array([_kind(one.name) for one in words]))
    kind = events["kind"]
    keep = np.ones(len(kind), dtype=bool)
    up = above.copy()
    reduced_apart = np.zeros(len(up), dtype=bool)  # a backward in which a collective is seen
    while (up >= 0).any():
        over = np.where(up >= 0, kind[up], 0)
        keep &= over != 1
        within = np.flatnonzero((over == 2) & np.isin(kind, (1, 3)))
        reduced_apart[up[within]] = True
        keep &= ~((over == 2) & (kind == 2))  # torch.autograd.backward in Tensor.backward
        up = np.where(up >= 0, above[up], -1)
    every = np.flatnonzero(keep & ~reduced_apart)
    at = every[kind[every] != 4]
    rank = np.array([process.rank for process in recording.processes], dtype=np.int64)[events["process"]]
    forms, inverse = np.unique(
        np.stack(
            [events["callable"][at].astype(np.int64), events["signature"][at].astype(np.int64), rank[at]],
            axis=1,
        ),
        axis=0,
        return_inverse=True,
    )
    everyone = ",".join(map(str, sorted({process.rank for process in recording.processes})))
    given = [_given(words[c].name, recording.signatures[s], r, everyone) for c, s, r in forms.tolist()]
    returns = np.zeros(len(kind), dtype=bool)  # before it is done: its Work is waited for
    returns[at] = np.array([one.returns for one in given], dtype=bool)[inverse.ravel()]
    number = {key: i for i, key in enumerate(dict.fromkeys(one.key for one in given if one.key is not None))}
    code = np.array([-1 if one.key is None else number[one.key] for one in given], dtype=np.int64)[
        inverse.ravel()
    ]
    start = events["start_ns"]
    end = start + events["duration_ns"] + events["own_ns"]
    waits, ends = _waited(events, every, returns, kind == 4, end)
    found: _Found = {}
    for key, which in number.items():
        here = at[code == which]
        found[key] = {}
        for one in np.unique(rank[here]).tolist():
            its = here[rank[here] == one]
            found[key][one] = _Calls.of(start[its], waits[its], ends[its])
    unknown = int((code < 0).sum())
    return found, [
        f"{unknown} message{'s' * (unknown > 1)} left out: from or to whom is not told by the call"
    ] * bool(unknown)


def _of_ranks(recording: Recording, kinds: Numbers) -> tuple[dict[str, Numbers], Numbers]:
    """The events of some kind other than 0, with it, and the place of the next such event above each, -1 for none."""
    found: list[dict[str, Numbers]] = []
    for row, events, parent, fresh in with_callers(recording, row=-1, kind=0, above=-1):
        events["row"][:fresh] = row + np.arange(fresh)
        events["kind"][:fresh] = np.where((events["flags"] & OWN) == 0, kinds[events["callable"]], 0)[:fresh]
        depth = events["depth"][:fresh]
        for level in range(1, int(depth.max(initial=0)) + 1):
            at = np.flatnonzero((depth == level) & (parent[:fresh] >= 0))
            over = parent[at]
            events["above"][at] = np.where(
                events["kind"][over] > 0, events["row"][over], events["above"][over]
            )
        chosen = np.flatnonzero(events["kind"][:fresh] > 0)
        found.append({name: column[chosen] for name, column in events.items()})
    some = joined(found[::-1], found[0] if found else [*recording.events, "row", "kind", "above"])
    return some, np.where(some["above"] >= 0, np.searchsorted(some["row"], some["above"]), -1)


def _waited(
    events: Mapping[str, Numbers], every: Numbers, returns: Numbers, is_wait: Numbers, end: Numbers
) -> tuple[Numbers, Numbers]:
    """From when until when each call is waited for: itself, or of one that `returns` before it is done, its Work's wait().

    Which Work a wait is of is not recorded: in each thread the oldest call that was not waited for is taken.
    """
    waits, ends = events["start_ns"].copy(), end.copy()
    own = every[returns[every] | is_wait[every]]
    order = own[np.lexsort((events["start_ns"][own], events["thread"][own], events["process"][own]))]
    open_ones: dict[tuple[int, int], list[int]] = {}
    for i in order.tolist():
        mine = open_ones.setdefault((int(events["process"][i]), int(events["thread"][i])), [])
        if not is_wait[i]:
            mine.append(i)
        elif mine:
            call = mine.pop(0)
            waits[call], ends[call] = events["start_ns"][i], end[i]
    return waits, ends


def _kind(name: str) -> int:
    """1: a collective, 2: backward, 3: a message, 4: waiting for what an asynchronous call does, 0: none of them."""
    namespace, _, last = name.rpartition(".")
    if namespace in _NAMESPACES and last in (*_JOINED, *_ROOTED):
        return 1
    if namespace in _NAMESPACES and last in _MESSAGES:
        return 3
    return 2 if name in _BACKWARD else 4 if name == _WAIT else 0


class _Given(NamedTuple):
    """What the arguments of a call tell."""

    key: _Key | None  # None: it has no counterpart that can be told
    returns: bool  # before it is done


def _given(name: str, known: SignatureNames | None, rank: int, everyone: str) -> _Given:
    args = known.signature.args if known is not None else ()
    named = dict(known.signature.kwargs) if known is not None else {}
    group = next(
        (one.name for one in (*args, *named.values()) if isinstance(one, Word) and one.kind == "group"), ""
    )
    namespace, _, last = name.rpartition(".")
    if last not in _MESSAGES or namespace not in _NAMESPACES:
        is_async = named.get("async_op") is True or any(one is True for one in args)
        return _Given(_Key(name, group, is_async), is_async)
    sends, returns, shown = _MESSAGES[last]
    word = "dst" if sends else "src"
    other = args[1] if len(args) > 1 else named.get(word)
    in_group = named.get(f"group_{word}")
    if other is None and isinstance(in_group, int):
        ranks = [int(one) for one in group.split(",")] if group else None
        other = in_group if ranks is None else ranks[in_group] if in_group < len(ranks) else None
    if not isinstance(other, int):
        return _Given(None, returns)  # from whoever sends first
    tag = named.get("tag", args[3] if len(args) > 3 and not last.endswith("list") else 0)
    way = f"{rank} to {other}" if sends else f"{other} to {rank}"
    group = "" if group == everyone else group  # a batch of messages names it, one alone need not
    return _Given(_Key(f"{namespace}.{shown}", f"{way}, {group}, {tag}", False), returns)


def _times(recording: Recording) -> tuple[dict[int, int], dict[int, str]]:
    """When the trace of each rank began, by its own clock, and which clock that is."""
    began: dict[int, int] = {}
    clocks: dict[int, str] = {}
    first: dict[int, int] = {}
    for _, events in recording.chunks():
        numbers, which = distinct(events["process"].astype(np.int64))
        starts = np.full(len(numbers), np.iinfo(np.int64).max)
        np.minimum.at(starts, which, events["start_ns"])
        for number, start in zip(numbers.tolist(), starts.tolist(), strict=True):
            first[number] = min(start, first.get(number, start))
    usual = next((p.end["clock"] for p in recording.processes if p.end.get("clock")), "")
    for number, process in enumerate(recording.processes):
        if number not in first:
            continue
        since = int(process.end.get("started_ns", first[number]))
        # The first of a rank's processes to begin: its workers are started on the way.
        began[process.rank] = min(began.get(process.rank, since), since)
        clocks.setdefault(process.rank, process.end.get("clock") or usual)
    return began, clocks


def _offsets(found: _Found, clocks: dict[int, str], notes: list[str]) -> dict[int, int]:
    """Nanoseconds to add to the times of each rank, so that all have the clock of the first. Ranks that cannot be set are left out."""
    base = clocks[min(clocks)]
    offset = {base: 0}
    for clock in dict.fromkeys(clocks.values()):
        if clock not in offset:
            set_by = _offset(found, clocks, base, clock)
            if set_by is not None:
                offset[clock], doubt_ns = set_by
                there = _numbered([rank for rank, one in clocks.items() if one == clock])
                notes.append(
                    f"the clock of {there}, on another machine, was set by collectives, to {span(doubt_ns)} or better"
                )
    return {rank: offset[clock] for rank, clock in clocks.items() if clock in offset}


def _offset(found: _Found, clocks: dict[int, str], base: str, clock: str) -> tuple[int, int] | None:
    """What to add to the times by `clock`, and how far off that may be; None if nothing tells."""
    lowest: list[int] = []
    highest: list[int] = []
    apart: list[Numbers] = []
    for key, of in found.items():
        if not key.joins:
            continue
        for a in (rank for rank in of if clocks[rank] == base):
            for b in (rank for rank in of if clocks[rank] == clock):
                n = min(len(of[a]), len(of[b]))
                # Traces begin at different moments and end behind the same step.
                one, two = ((of[r].start[-n:], of[r].end[-n:]) for r in (a, b))
                lowest.append(int((one[0] - two[1]).max()))
                highest.append(int((one[1] - two[0]).min()))
                apart.append(one[1] - two[1])
    if not apart:
        return None
    low, high = max(lowest), min(highest)
    middle = int(np.median(np.concatenate(apart)))  # they leave at about the same time
    return (min(max(middle, low), high) if low <= high else middle), abs(high - low) // 2


def _matched(calls: Sequence[_Calls], *, joins: bool) -> list[Numbers]:
    """The places of the calls that belong together, for each rank: as many for each."""
    sizes = {len(one) for one in calls}
    if len(sizes) == 1:
        start, end = np.stack([one.start for one in calls]), np.stack([one.end for one in calls])
        # As many on each, but not the same ones: one rank's trace began a call later, and ended one later.
        if not joins or (end.min(axis=0) >= start.max(axis=0)).all():
            return [np.arange(sizes.pop())] * len(calls)
    return _overlapping(calls)


def _overlapping(calls: Sequence[_Calls]) -> list[Numbers]:
    """Of sequences with gaps: what was going on at the same time. The rest had no part on some rank."""
    heads = [0] * len(calls)
    starts, ends = [one.start.tolist() for one in calls], [one.end.tolist() for one in calls]
    found: list[list[int]] = []
    while all(head < len(one) for head, one in zip(heads, starts, strict=True)):
        first = min(range(len(calls)), key=lambda i: ends[i][heads[i]])
        if ends[first][heads[first]] < max(one[head] for one, head in zip(starts, heads, strict=True)):
            heads[first] += 1
        else:
            found.append(list(heads))
            heads = [head + 1 for head in heads]
    return [np.array([row[i] for row in found], dtype=np.int64) for i in range(len(calls))]


def _in_collective(start: Numbers, since: Numbers, end: Numbers) -> tuple[Numbers, Numbers]:
    """For whom each rank waited in each call (rows), and how long: it came at `start`, and could do nothing else from `since` on."""
    size = start.shape[1]
    whom = np.repeat(start.argmax(axis=1)[:, None], size, axis=1)
    for row in np.flatnonzero(end.min(axis=1) < start.max(axis=1)):  # somebody left before the last one came
        came = np.where(start[row][None, :] <= end[row][:, None], start[row][None, :], np.iinfo(np.int64).min)
        whom[row] = came.argmax(axis=1)
    wait = np.take_along_axis(start, whom, axis=1) - since
    return whom, np.maximum(wait, 0)


def _in_backward(start: Numbers, end: Numbers) -> tuple[Numbers, Numbers]:
    """The same of calls that hold more than waiting: what one took longer than that of the last to begin, if both end together."""
    size = start.shape[1]
    last = start.argmax(axis=1)[:, None]
    late = np.take_along_axis(start, last, axis=1) - start
    longer = (end - start) - np.take_along_axis(end - start, last, axis=1)
    together = 2 * np.abs(end - np.take_along_axis(end, last, axis=1)) <= late
    wait = np.where(together, np.minimum(late, longer), 0)
    return np.repeat(last, size, axis=1), np.maximum(wait, 0)


def _summed(
    waits: Sequence[_Waits], ranks: Sequence[int], unmatched: int, notes: Sequence[str]
) -> Stragglers:
    spanned_ns = max((int(w.end.max()) for w in waits), default=1) - min(
        (int(w.start.min()) for w in waits), default=0
    )
    others_ns = spanned_ns * (len(ranks) - 1)
    waited = dict.fromkeys(ranks, 0)
    by_call: dict[tuple[int, int], dict[int, int]] = {}  # (collective, rank) -> call -> waited for it
    longest: dict[tuple[int, int], int] = {}
    for part in _blamed(waits):
        waited[part.waiter] += part.ns
        key = part.of, part.rank
        calls = by_call.setdefault(key, {})
        calls[part.call] = calls.get(part.call, 0) + part.ns
        longest[key] = max(longest.get(key, 0), part.ns)
    together: dict[
        tuple[str, tuple[int, ...], int], list[int]
    ] = {}  # messages of a pair of ranks: of both ways, and with every tag
    for number, rank in by_call:
        together.setdefault((waits[number].name, tuple(sorted(waits[number].ranks)), rank), []).append(number)
    rows = []
    for (name, group, rank), numbers in together.items():
        caused = sum(sum(by_call[number, rank].values()) for number in numbers)
        rows.append(
            CollectiveWaits(
                name, rank, group, sum(len(waits[number].wait) for number in numbers),
                sum(len(by_call[number, rank]) for number in numbers), caused,
                max(longest[number, rank] for number in numbers), caused / (spanned_ns * (len(group) - 1)),
            )
        )  # fmt: skip
    rows.sort(key=lambda row: (-row.caused_ns, row.collective, row.rank))
    of_ranks, singly = [], dict[int, list[int]]()
    for rank in ranks:
        each = singly[rank] = [ns for (_, r), calls in by_call.items() if r == rank for ns in calls.values()]
        n = sum(len(one.wait) for one in waits if rank in one.ranks)
        most_in = next((row.collective for row in rows if row.rank == rank), "")
        of_ranks.append(
            RankWaits(rank, n, len(each), sum(each), waited[rank], sum(each) / others_ns, most_in)
        )
    of_ranks.sort(key=lambda one: (-one.caused_ns, one.rank))
    said = [*notes]
    if any(one.collective in _BACKWARD for one in rows):
        said.append(
            "in backward DDP averages gradients: waiting there is for the rank that began it last; what a rank loses inside of it "
            "is not seen"
        )
    if unmatched:
        said.append(
            f"{unmatched} call{'s' * (unmatched > 1)} had no part on another rank and {'were' if unmatched > 1 else 'was'} left out"
        )
    worst = _clearly(of_ranks, singly, others_ns)
    n_calls = sum(len(one.wait) for one in waits)
    return Stragglers(tuple(of_ranks), tuple(rows), spanned_ns, n_calls, unmatched, worst, tuple(said))


def _clearly(
    of_ranks: Sequence[RankWaits], by_call: Mapping[int, Sequence[int]], others_ns: int
) -> RankWaits | None:
    """The one that stands out, of each the one call left out in which it caused most: what happens once is no habit."""
    usual = {one.rank: one.caused_ns - max(by_call[one.rank], default=0) for one in of_ranks}
    first, second, *_ = sorted(of_ranks, key=lambda one: -usual[one.rank])
    if first.last < _FEWEST or usual[first.rank] < _CLEAR_SHARE * others_ns:
        return None
    return first if usual[first.rank] >= _CLEAR_TIMES * usual[second.rank] else None


def _numbered(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
