"""Events packed and unpacked without the C core: what a piece is stands in `_core.c` at "packed events".

Whole columns at a time; numpy is imported where it is needed, as in the rest of this room.
"""

from __future__ import annotations

from typing import Any

MAGIC = b"LXP1"
HEAD = "<4s5I"  # magic, events, of them the recorder's own, shapes, bytes of kinds, bytes of times
HEAD_BYTES, SHAPE_BYTES = 24, 32
HAS_CHILD, HAS_WAIT = 1, 2
_NUMBER_BYTES, _EVENT_BYTES = 10, 64
_MOST_BYTES = _EVENT_BYTES << 11
_OWN = 32

# The C core's Event and Shape; what a shape says comes in the same order in both, but for `carries`.
_EVENT = [("start_ns", "<i8"), ("duration_ns", "<i8"), ("child_ns", "<i8"), ("wait_ns", "<i8"), ("callable", "<u4"),
          ("signature", "<u4"), ("thread", "<u4"), ("section", "<u4"), ("module", "<u4"), ("depth", "<u2"),
          ("flags", "<u2"), ("site", "<u4"), ("unused", "<u4")]  # fmt: skip
SHAPE = [("callable", "<u4"), ("signature", "<u4"), ("thread", "<u4"), ("section", "<u4"), ("module", "<u4"),
         ("site", "<u4"), ("depth", "<u2"), ("flags", "<u2"), ("carries", "<u4")]  # fmt: skip


def pack(events: bytes) -> list[bytes]:
    """Events as the core's records -> pieces."""
    return [_piece(events[at : at + _MOST_BYTES]) for at in range(0, len(events), _MOST_BYTES)]


def _piece(events: bytes) -> bytes:
    import struct

    import numpy as np

    if len(events) % _EVENT_BYTES:
        raise ValueError(f"{len(events)} bytes are no whole number of events")
    rows = np.frombuffer(events, _EVENT)
    shapes = np.zeros(len(rows), SHAPE)
    for name, _ in SHAPE[:-1]:
        shapes[name] = rows[name]
    shapes["carries"] = (rows["child_ns"] != 0) * HAS_CHILD + (rows["wait_ns"] != 0) * HAS_WAIT
    distinct, kinds = np.unique(shapes.view(f"V{SHAPE_BYTES}"), return_inverse=True)
    ends = (rows["start_ns"] + rows["duration_ns"]).view(np.uint64)
    since = np.diff(ends, prepend=np.uint64(0))
    times = np.stack(
        [since, *(rows[name].view(np.uint64) for name in ("duration_ns", "child_ns", "wait_ns"))]
    )
    there = np.ones(times.shape, dtype=bool)
    there[2:] = times[2:] != 0
    packed_kinds = _put_numbers(kinds.astype(np.uint64).reshape(-1))
    packed_times = _put_numbers(times.T[there.T])
    own = int(np.count_nonzero(rows["flags"] & _OWN))
    head = struct.pack(HEAD, MAGIC, len(rows), own, len(distinct), len(packed_kinds), len(packed_times))
    return b"".join((head, distinct.tobytes(), packed_kinds, packed_times))


def unpack(piece: bytes) -> bytes:
    """A piece, from anywhere -> its events as the core's records."""
    import struct

    import numpy as np

    wrong = ValueError("packed events that do not fit their description")
    if len(piece) < HEAD_BYTES:
        raise wrong
    magic, count, _, many, kind_bytes, time_bytes = struct.unpack_from(HEAD, piece)
    until = HEAD_BYTES + SHAPE_BYTES * many
    if magic != MAGIC or until + kind_bytes + time_bytes != len(piece) or count > kind_bytes:
        raise wrong
    shapes = np.frombuffer(piece, SHAPE, many, HEAD_BYTES)
    kinds = _get_numbers(np.frombuffer(piece, np.uint8, kind_bytes, until))
    times = _get_numbers(np.frombuffer(piece, np.uint8, time_bytes, until + kind_bytes))
    if kinds is None or times is None or len(kinds) != count or (count and int(kinds.max()) >= many):
        raise wrong
    shape = shapes[kinds.astype(np.int64)]
    child, wait = ((shape["carries"] & bit != 0).astype(np.int64) for bit in (HAS_CHILD, HAS_WAIT))
    first = np.cumsum(2 + child + wait) - (2 + child + wait)
    if len(times) != 2 * count + int(child.sum() + wait.sum()):
        raise wrong
    rows = np.zeros(count, _EVENT)
    for name, _ in SHAPE[:-1]:
        rows[name] = shape[name]
    rows["duration_ns"] = times[first + 1].view(np.int64)
    rows["child_ns"][child != 0] = times[(first + 2)[child != 0]].view(np.int64)
    rows["wait_ns"][wait != 0] = times[(first + 2 + child)[wait != 0]].view(np.int64)
    rows["start_ns"] = np.cumsum(times[first], dtype=np.uint64).view(np.int64) - rows["duration_ns"]
    return rows.tobytes()


def _put_numbers(values: Any) -> bytes:
    """Seven bits a byte, the lowest first; all bytes of a number but the last have the eighth bit set."""
    import numpy as np

    lengths = np.ones(len(values), dtype=np.int64)
    for n in range(1, _NUMBER_BYTES):
        lengths += values >> np.uint64(7 * n) != 0
    first = np.cumsum(lengths) - lengths
    packed = np.empty(int(lengths.sum()), dtype=np.uint8)
    for n in range(int(lengths.max(initial=0))):
        longer = lengths > n
        byte = (values[longer] >> np.uint64(7 * n)).astype(np.uint8) & 127
        packed[first[longer] + n] = byte | np.where(lengths[longer] > n + 1, 128, 0).astype(np.uint8)
    return packed.tobytes()


def _get_numbers(packed: Any) -> Any:
    """The numbers again; None if the last one does not end, or one is longer than numbers are."""
    import numpy as np

    last = np.flatnonzero(packed < 128)
    if len(packed) and (not len(last) or last[-1] != len(packed) - 1):
        return None
    lengths = np.diff(last, prepend=-1)
    if int(lengths.max(initial=0)) > _NUMBER_BYTES:
        return None
    values = np.zeros(len(last), dtype=np.uint64)
    for n in range(int(lengths.max(initial=0))):
        longer = lengths > n
        byte = packed[(last - lengths + 1 + n)[longer]].astype(np.uint64) & np.uint64(127)
        values[longer] |= byte << np.uint64(7 * n)
    return values
