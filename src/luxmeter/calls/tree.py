"""Who called what: parents of events, and totals for each path of calls. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from luxmeter.calls.groups import distinct, firsts, sums_of
from luxmeter.calls.records import OWN, SECTION

if TYPE_CHECKING:
    from luxmeter.calls.reader import Recording

Numbers = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class CallTree:
    """One path of calls and what was called below it, the most costly first. The root has no name, and counts all calls."""

    name: str
    n: int
    total_ns: int
    self_ns: int
    path: str = ""  # of a module
    children: tuple[CallTree, ...] = ()
    outside_ns: int = 0  # of a section that is in no call: its time in none

    def walk(self, depth: int = 0) -> Iterator[tuple[int, CallTree]]:
        """Every node with its depth, parents first."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)

    def __getitem__(self, name: str) -> CallTree:
        for child in self.children:
            if name in (child.name, child.path):
                return child
        raise KeyError(name)

    def __str__(self) -> str:
        lines = []
        for depth, node in self.walk():
            label = f"{node.name} ({node.path})" if node.path else node.name or "(all)"
            lines.append(
                f"{'  ' * depth + label:<60} {node.n:>9} x {node.total_ns / 1e6:>11.3f} ms {node.self_ns / 1e6:>11.3f} ms self"
            )
        return "\n".join(lines)


def parents(events: Mapping[str, Numbers]) -> Numbers:
    """For each event the index of its parent, -1 for none (top level, or the parent was not recorded)."""
    n = len(events["depth"])
    found = np.full(n, -1, dtype=np.int64)
    lane = events["process"].astype(np.int64) << 32 | events["thread"].astype(np.int64)
    # Of one thread they are in order already.
    order = np.argsort(lane, kind="stable") if n and (lane != lane[0]).any() else np.arange(n)
    lanes, depth = lane[order], events["depth"][order].astype(np.int64)
    start = events["start_ns"][order]
    end = start + events["duration_ns"][order] + events["own_ns"][order]
    above: Numbers = np.flatnonzero(depth == 0)
    for level in range(1, int(depth.max(initial=0)) + 1):
        here = np.flatnonzero(depth == level)
        if len(above) and len(here):
            # Events are in order of their ends: the parent is the next one of the level above, if it contains this one.
            place = np.searchsorted(above, here)
            candidate = above[np.minimum(place, len(above) - 1)]
            good = (place < len(above)) & (lanes[candidate] == lanes[here])
            good &= (start[candidate] <= start[here]) & (end[candidate] >= end[here])
            found[order[here[good]]] = order[candidate[good]]
        above = here
    return found


def with_callers(
    recording: Recording, *, own_work: bool = True, process: int | None = None, **carried: Any
) -> Iterator[tuple[int, dict[str, Numbers], Numbers, int]]:
    """The chunks of a recording from the last to the first, each with its callers from later ones behind its own events.

    Gives the number of the first event, the columns, each event's parent in them, and how many events are the chunk's own.
    With `process` it is of the chunks with that one alone. `carried` are further columns and what they begin with: what is put there goes on with the callers.
    """
    callers: dict[str, Numbers] = {}
    before: tuple[dict[str, Numbers], Numbers] | None = None
    for row, chunk in recording.chunks(backwards=True, process=process):
        if not own_work:
            kept = (chunk["flags"] & OWN) == 0
            chunk = chunk if kept.all() else {name: column[kept] for name, column in chunk.items()}
        fresh = len(chunk["flags"])
        if before is not None:
            at = callers_to_come(*before)
            callers = {name: column[at] for name, column in before[0].items()}
            before = None
        chunk |= {name: np.full(fresh, value) for name, value in carried.items()}
        events = (
            {name: np.concatenate([column, callers[name]]) for name, column in chunk.items()}
            if callers
            else chunk
        )
        parent = parents(events)
        yield row, events, parent, fresh
        before = events, parent


def callers_to_come(events: dict[str, Numbers], parent: Numbers) -> Numbers:
    """Those that earlier events may have been called by: of each thread the first of each level, and what they were called by."""
    process = events["process"]
    of_first = np.flatnonzero(process == process.min(initial=0xFFFFFFFF))  # of others nothing is to come
    levels, which = np.unique(
        events["thread"][of_first].astype(np.int64) << 16 | events["depth"][of_first], return_inverse=True
    )
    needed = np.zeros(len(parent), dtype=bool)
    left = of_first[firsts(which.ravel(), len(levels))]
    while len(left):
        needed[left] = True
        left = parent[left]
        left = left[left >= 0]
        left = left[~needed[left]]
    found: Numbers = np.flatnonzero(needed)
    return found


def descendants(events: Mapping[str, Numbers], parent: Numbers, counts: Numbers) -> Numbers:
    """For each event how many that count lie below it."""
    count = np.zeros(len(parent), dtype=np.int64)
    depth = events["depth"]
    for level in range(int(depth.max(initial=0)), 0, -1):
        here = np.flatnonzero((depth == level) & (parent >= 0))
        np.add.at(count, parent[here], count[here] + counts[here])
    return count


def make_tree(recording: Recording) -> CallTree:
    """Totals for each path of calls, over all threads and processes."""
    callables = len(recording.callables)
    paths: dict[tuple[int, int], int] = {
        (0, 0): 0
    }  # (number of the path above, callable) -> its number; 0 is the root
    sums = np.zeros((3, 1024), np.int64)
    for _, events, parent, fresh in with_callers(recording, own_work=False, path=0):
        depth, path = events["depth"][:fresh], events["path"]
        for level in range(int(depth.max(initial=0)) + 1):
            here = np.flatnonzero(depth == level)
            if not len(here):
                continue
            up = np.where(parent[here] >= 0, path[parent[here]], 0)
            pairs, inverse = distinct(up * callables + events["callable"][here])
            known = [paths.setdefault(divmod(pair, callables), len(paths)) for pair in pairs.tolist()]
            path[here] = np.array(known)[inverse]
        mine, size = path[:fresh], len(paths)
        if size > sums.shape[1]:
            sums = np.pad(sums, ((0, 0), (0, 2 * size - sums.shape[1])))
        for row, values in enumerate((None, events["duration_ns"], events["child_ns"])):
            sums[row, :size] += sums_of(mine, None if values is None else values[:fresh], size)
    n, total, child = sums
    below: dict[int, list[int]] = {}
    keys = list(paths)
    for number, (up_path, _) in enumerate(keys[1:], start=1):
        below.setdefault(up_path, []).append(number)
    words = recording.callables

    def build(number: int, in_call: bool) -> CallTree:
        said = words[keys[number][1]]
        in_call = in_call or bool(number and said.kind != SECTION)
        inner = tuple(sorted((build(i, in_call) for i in below.get(number, ())), key=lambda t: -t.total_ns))
        if number == 0:
            return CallTree("", recording.calls, sum(t.total_ns for t in inner), 0, "", inner)
        self_ns = int(total[number] - child[number])
        outside_ns = 0 if in_call else self_ns
        return CallTree(said.shown, int(n[number]), int(total[number]), self_ns, said.path, inner, outside_ns)

    return build(0, False)
