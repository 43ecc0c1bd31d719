"""The records of the Python core: callables, threads, open calls, and the buffers events go to."""

from __future__ import annotations

import gc
import struct
import threading
import weakref
from array import array
from collections.abc import Callable
from typing import Any

CALL, SPAN, SECTION, OPENS = 0, 1, 2, 3
RAISED, INSIDE, SPANNED, FIRST, COMPLETED, OWN = 1, 2, 4, 8, 16, 32
# start, duration, child, wait, callable, signature, thread, section, module, depth, flags, site; four bytes unused
_EVENT = struct.Struct("<qqqqIIIIIHHI4x")
EVENT_SIZE = _EVENT.size
HISTOGRAM_BUCKETS = 192
_CHUNK_EVENTS = 2048
_MAX_TOTALS = 100_000


class Callable_:
    __slots__ = (
        "api",
        "boundary",
        "child_ns",
        "floats",
        "kind",
        "max_ns",
        "min_ns",
        "module",
        "n",
        "raised",
        "record",
        "signatures",
        "total_ns",
    )

    def __init__(
        self,
        kind: int,
        api: list[bool],
        module: bool = False,
        record: bool = True,
        boundary: bool = False,
        floats: bool = False,
    ) -> None:
        self.kind, self.api, self.module, self.record = kind, api, module, record
        self.boundary, self.floats = boundary, floats
        self.n = self.total_ns = self.child_ns = self.min_ns = self.max_ns = self.raised = 0
        self.signatures: dict[object, int] = {}

    def count(self, duration: int, child: int, raised: int) -> None:
        """Add one call to the running totals."""
        self.min_ns = duration if not self.n else min(self.min_ns, duration)
        self.max_ns = max(self.max_ns, duration)
        self.n += 1
        self.total_ns += duration
        self.child_ns += child
        self.raised += raised

    def reset(self) -> None:
        """Forget the running totals."""
        self.n = self.total_ns = self.child_ns = self.min_ns = self.max_ns = self.raised = 0


class Thread_:
    __slots__ = (
        "busy",
        "chunk",
        "depth",
        "module",
        "no",
        "open",
        "own_ns",
        "passed",
        "section",
        "taken",
        "top",
        "used",
    )

    def __init__(self, no: int) -> None:
        self.no = no
        self.top: Span | None = None
        self.depth = self.open = self.section = self.module = self.used = self.taken = 0
        self.own_ns = 0  # the recorder's own work on this thread until now
        self.passed = 0  # calls inside of others that were let through
        self.busy = False
        self.chunk: bytearray | None = None

    def run(self, hook: Callable[..., None], *args: Any) -> BaseException | None:
        """Call a hook with recording off on this thread; what it raised."""
        was, self.busy = self.busy, True
        try:
            hook(*args)
        except BaseException as failure:  # noqa: BLE001 - the caller knows whose it is
            return failure
        finally:
            self.busy = was
        return None

    def unlink(self, span: Span) -> bool:
        """Take the span out of the nesting, wherever it is; whether it was there."""
        above: list[Span] = []
        below = self.top
        while below is not None and below is not span:
            above.append(below)
            below = below.prev
        if below is None:
            return False
        # Those up to the next section that is still open were in this one; they are in its outer one now.
        within = list(reversed(above))
        inner = next((i for i, other in enumerate(within) if other.section_kind), len(within) - 1)
        for i, other in enumerate(within):
            other.depth -= 1
            if i <= inner:
                other.section = span.section
        if not any(other.section_kind for other in within):
            self.section = span.section
        if above:
            above[-1].prev = span.prev
        else:
            self.top = span.prev
        self.depth -= 1
        return True


class Span:
    """One open call, span or section: what to restore when it closes, and what its children took."""

    __slots__ = (
        "callable_id",
        "child_ns",
        "depth",
        "epoch",
        "inside",
        "module",
        "open",
        "own_ns",
        "prev",
        "section",
        "section_kind",
        "site",
        "start_ns",
        "thread",
    )

    def __init__(self, thread: Thread_, callable_id: int, epoch: int) -> None:
        self.thread, self.callable_id, self.epoch = thread, callable_id, epoch
        self.prev, self.depth, self.open = thread.top, thread.depth, thread.open
        self.section, self.module = thread.section, thread.module
        self.inside = thread.open > 0
        self.child_ns = self.start_ns = self.site = 0
        self.own_ns = thread.own_ns
        self.section_kind = False  # opened by enter()


def bucket(duration_ns: int) -> int:
    """Four buckets a doubling."""
    if duration_ns < 4:
        return max(duration_ns, 0)
    exponent = duration_ns.bit_length() - 1
    return min(4 * (exponent - 1) + ((duration_ns >> (exponent - 2)) & 3), HISTOGRAM_BUCKETS - 1)


class Instances:
    """What resolvers said about instances, weakly: a new object at an old address is not taken for the old one."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[weakref.ref[Any], int]] = {}
        self.clear = self._known.clear

    def get(self, wrapper: object, instance: object) -> int | None:
        """The callable id, or None."""
        known = self._known.get((id(wrapper), id(instance)))
        return known[1] if known is not None and known[0]() is instance else None

    def put(self, wrapper: object, instance: object, callable_id: int) -> None:
        """Remember, if the instance can be weakly referenced."""
        try:
            self._known[(id(wrapper), id(instance))] = (weakref.ref(instance), callable_id)
        except TypeError:
            return
        if len(self._known) & 1023 == 0:
            # A copy: other threads put theirs meanwhile.
            for place in [place for place, pair in self._known.copy().items() if pair[0]() is None]:
                self._known.pop(place, None)


class Ranges:
    """Smallest and largest value of each float argument, by signature."""

    def __init__(self) -> None:
        self._known: dict[int, list[list[float]]] = {}

    def widen(self, signature: int, floats: list[float]) -> None:
        """One more call of this signature."""
        for pair, value in zip(
            self._known.setdefault(signature, [[value, value] for value in floats]), floats, strict=False
        ):
            pair[0], pair[1] = min(pair[0], value), max(pair[1], value)

    def all(self) -> dict[int, list[tuple[float, float]]]:
        """Signature id -> pairs."""
        return {i: [(low, high) for low, high in pairs] for i, pairs in self._known.copy().items()}


class Buffers:
    """Events in bounded chunks, or totals. Chunks are handed over whole; what does not fit is counted as lost."""

    def __init__(self, max_pending: int, by_totals: bool) -> None:
        self._max_chunks = max(1, max_pending // _CHUNK_EVENTS)
        self._by_totals = by_totals
        self.clear()

    def clear(self) -> None:
        """Empty, as after a fork."""
        self._lock = threading.RLock()  # a signal handler may record while its thread hands a chunk over
        self.threads: list[Thread_] = []
        self._full: list[bytes] = []
        self._totals: dict[tuple[int, int, int, int, int, int], list[Any]] = {}
        names = (
            "events",
            "lost",
            "unfinished",
            "generalised",
            "described",
            "described_ns",
            "hook_errors",
            "steps",
            "unplaced",
        )
        self.counts = dict.fromkeys(names, 0)
        self.hook_error = ""

    def put(self, thread: Thread_, span: Span, spec: Callable_, numbers: tuple[int, int, int, int]) -> bool:
        """Keep one event; `numbers` are duration, wait, signature, flags. True when that filled a chunk."""
        duration, wait, signature, flags = numbers
        # An event has its time by the clock; in sums the recorder's own work is taken off.
        own = thread.own_ns - span.own_ns
        net, child = duration - own, span.child_ns - own
        if not spec.api[0]:
            spec.api[0] = True
            flags |= FIRST
        if not flags & OWN:
            spec.count(net, child, flags & RAISED)
        if self._by_totals:
            self._add(
                (span.callable_id, signature, span.section, thread.no, flags, span.site), net, child, wait
            )
            return False
        chunk = thread.chunk
        if chunk is None:
            if len(self._full) >= self._max_chunks:  # of these is the limit; each thread may fill one besides
                self.counts["lost"] += not flags & OWN
                return False
            chunk = thread.chunk = bytearray(_CHUNK_EVENTS * EVENT_SIZE)
            thread.used = thread.taken = 0
        if thread.used >= len(chunk):  # in a signal handler, while this chunk is being handed over
            self.counts["lost"] += not flags & OWN
            return False
        _EVENT.pack_into(
            chunk, thread.used, span.start_ns, duration, span.child_ns, wait, span.callable_id, signature, thread.no,
            span.section, span.module, min(span.depth, 65535), flags, span.site,
        )  # fmt: skip
        thread.used += EVENT_SIZE  # only now: whoever takes events out looks no further than this
        self.counts["events"] += not flags & OWN
        if thread.used < len(chunk):
            return False
        with self._lock:
            self._full.append(bytes(chunk[thread.taken :]))
            thread.chunk = None
        return True

    def _add(self, key: tuple[int, int, int, int, int, int], duration: int, child: int, wait: int) -> None:
        row = self._totals.get(key)
        if row is None:
            alone = (key[0], 0, 0, 0, key[4], 0)
            if len(self._totals) >= _MAX_TOTALS and key != alone:
                key = alone
                self.counts["generalised"] += 1
            empty = array("I", bytes(4 * HISTOGRAM_BUCKETS))
            row = self._totals.setdefault(key, [0, 0, 0, 0, duration, duration, empty])
        row[0] += 1
        row[1] += duration
        row[2] += child
        row[3] += wait
        row[4] = min(row[4], duration)
        row[5] = max(row[5], duration)
        row[6][bucket(duration)] += 1
        self.counts["events"] += not key[4] & OWN

    def take(self, partial: bool) -> list[bytes]:
        """Everything kept, or the full chunks only."""
        with self._lock:
            taken, self._full = self._full, []
            for thread in self.threads if partial else ():
                chunk, used = thread.chunk, thread.used
                if chunk is not None and used > thread.taken:
                    taken.append(bytes(chunk[thread.taken : used]))
                    thread.taken = used
        return [piece for piece in taken if piece]

    def totals(self) -> list[Any]:
        """Rows of totals mode."""
        return [(*key[:5], *row[:6], key[5], row[6].tobytes()) for key, row in self._totals.copy().items()]

    def count(self, name: str, by: int = 1) -> None:
        """Add to one of the counts that are seldom touched."""
        with self._lock:
            self.counts[name] += by

    def count_error(self, failure: Exception) -> None:
        """Count an exception of a hook, and keep what the first one says."""
        self.count("hook_errors")
        self.hook_error = self.hook_error or f"{type(failure).__name__}: {failure}"

    def stats(self) -> dict[str, int]:
        """All counts."""
        return {
            **self.counts,
            "passed": sum(thread.passed for thread in self.threads),
            "pending": self.pending(),
        }

    def filled(self) -> float:
        """Which share of the room for chunks that wait is taken."""
        return len(self._full) / self._max_chunks

    def pending(self) -> int:
        """Events not taken yet."""
        held = sum(map(len, self._full)) + sum(t.used - t.taken for t in self.threads if t.chunk is not None)
        return held // EVENT_SIZE


class RangesByOne(Ranges):
    """For a Python that runs without its global lock: one thread at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()

    def widen(self, signature: int, floats: list[float]) -> None:
        with self._lock:
            super().widen(signature, floats)


class BuffersByOne(Buffers):
    """For a Python that runs without its global lock: one event at a time."""

    def put(self, thread: Thread_, span: Span, spec: Callable_, numbers: tuple[int, int, int, int]) -> bool:
        with self._lock:
            return super().put(thread, span, spec, numbers)

    def totals(self) -> list[Any]:
        with self._lock:
            return super().totals()


def holders(wanted: dict[int, Any]) -> list[Any]:
    """The containers of this process that hold an object whose id is a key of `wanted`."""
    return gc.get_referrers(*wanted.values()) if wanted else []


def holding(namespaces: list[dict[str, Any]], wanted: dict[int, Any]) -> list[dict[str, Any]]:
    """Those namespaces that hold a value whose id is a key of `wanted`."""
    ids = wanted.keys()
    return [namespace for namespace in namespaces if not ids.isdisjoint(map(id, namespace.values()))]
