"""Who called what: parents of events, and totals for each path of calls. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from luxmeter.calls.groups import distinct
from luxmeter.calls.records import OWN

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


def parents(events: dict[str, Numbers]) -> Numbers:
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


def descendants(events: dict[str, Numbers], parent: Numbers) -> Numbers:
    """For each event how many events of the program lie below it."""
    count = np.zeros(len(parent), dtype=np.int64)
    depth, each = events["depth"], (events["flags"] & OWN) == 0
    for level in range(int(depth.max(initial=0)), 0, -1):
        here = np.flatnonzero((depth == level) & (parent >= 0))
        np.add.at(count, parent[here], count[here] + each[here])
    return count


def make_tree(recording: Recording) -> CallTree:
    """Totals for each path of calls, over all threads and processes."""
    kept = recording.of_program()
    events = {name: column[kept] for name, column in recording.events.items()}
    parent = parents(events)
    depth, callables = events["depth"], len(recording.callables)
    node = np.zeros(len(parent), dtype=np.int64)
    keys: list[tuple[int, int]] = [(0, 0)]  # (parent node, callable); 0 is the root
    for level in range(int(depth.max(initial=0)) + 1):
        here = np.flatnonzero(depth == level)
        if not len(here):
            continue
        up = np.where(parent[here] >= 0, node[parent[here]], 0)
        pairs, inverse = distinct(up * callables + events["callable"][here])
        node[here] = len(keys) + inverse
        keys.extend(divmod(pair, callables) for pair in pairs.tolist())
    size = len(keys)
    n = np.bincount(node, minlength=size)
    total, child = np.zeros(size, np.int64), np.zeros(size, np.int64)
    np.add.at(total, node, events["duration_ns"])
    np.add.at(child, node, events["child_ns"])
    below: dict[int, list[int]] = {}
    for number, (up_node, _) in enumerate(keys[1:], start=1):
        below.setdefault(up_node, []).append(number)
    words = recording.callables

    def build(number: int) -> CallTree:
        inner = sorted((build(i) for i in below.get(number, ())), key=lambda t: -t.total_ns)
        if number == 0:
            return CallTree("", recording.calls, sum(t.total_ns for t in inner), 0, "", tuple(inner))
        said = words[keys[number][1]]
        self_ns = int(total[number] - child[number])
        return CallTree(said.shown, int(n[number]), int(total[number]), self_ns, said.path, tuple(inner))

    return build(0)
