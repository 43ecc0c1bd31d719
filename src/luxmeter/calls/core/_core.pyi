"""The contract of the recorder core. `_core.c` and `_pycore.py` both keep it; tests run on both.

Everything recorded is plain numbers. Words (names, descriptions) live with the caller, by id.
"""

from collections.abc import Callable
from types import CodeType
from typing import Any

# Kinds of callable.
CALL: int  # opaque: while one is open on a thread, what is called below it is "inside"
SPAN: int  # transparent: recorded with its time, hides nothing below it
OPENS: int  # leaves no event; what is called below it is the program's own again, although a CALL is open around it: a closure
SECTION: int  # a span the user named; events below carry its id in `section`

# Bits of an event's `flags`.
RAISED: int  # left by an exception (StopIteration, the normal end of an iterator, does not count)
INSIDE: int  # another CALL was open on its thread
SPANNED: int  # the event is a SPAN or SECTION
FIRST: int  # the first call of this API name in this process: warm-up
COMPLETED: int  # timed to completion; without it, to dispatch
OWN: int  # the recorder's own work at first sight: describing a signature, within a call asking a resolver; callable 0.
# The events around it have it in `duration` and `child`; `live` and `totals` do not.

# Answers of `classify`: how an argument of a type takes part in the signature.
OPAQUE: int  # by its type alone
EXCHANGE: int  # a tensor that the exchange table can read; KEY when the table refuses
KEY: int  # by what `key(argument)` returns
IDENTITY: int  # by its address: for objects that live for ever (torch.dtype)
HASH: int  # by hash(argument)
ATTRIBUTES: (
    int  # `classify` may answer a tuple of names instead: by these attributes, each as if it were an argument
)

EVENT_SIZE: int  # bytes of one event; records.EVENT_DTYPE is its layout
HISTOGRAM_BUCKETS: int  # buckets in a totals row's histogram: four a doubling, see table.bucket_edges

def now_ns() -> int:
    """The clock of all events."""

def frames() -> str:
    """How the core finds the line that calls: "direct", in the interpreter's own frames, or by frame "objects" (slower)."""

def holders(wanted: dict[int, Any]) -> list[Any]:
    """The containers of this process that hold an object whose id is a key of `wanted` (id -> object). Runs no code of others."""

def holding(namespaces: list[dict[str, Any]], wanted: dict[int, Any]) -> list[dict[str, Any]]:
    """Those namespaces that hold a value whose id is a key of `wanted`."""

def pack(events: bytes) -> list[bytes]:
    """Events -> pieces, as `take` gives them, as few as there may be. Of one thread in order they take least."""

def unpack(piece: bytes) -> bytes:
    """A piece that `take` of either core gave, or a file holds -> its events. ValueError if it is none."""

class Wrapper:
    """Stands in for a callable, records while its recorder records, otherwise passes the call straight on.

    Hash, equality and attributes it does not have itself are those of what it wraps. Binds as a method if and
    only if what it wraps does.
    """

    __wrapped__: Any
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any: ...

class PropertyWrapper:
    """Stands in for a property or getset descriptor: reading it is the call; setting and deleting are passed on.

    Read from the class it gives what it wraps.
    """

    __wrapped__: Any
    def __get__(self, instance: Any, owner: Any = None) -> Any: ...
    def __set__(self, instance: Any, value: Any) -> None: ...
    def __delete__(self, instance: Any) -> None: ...

class Span:
    """An open section, from `Recorder.enter`. Knows the thread it was opened on."""

class Recorder:
    """Owns callables, signatures, buffers and modes. All hooks are optional and called with recording off on their thread.

    What a hook raises is counted and dropped; only what `sync` raises after a call that succeeded is the caller's.
    """

    def __init__(
        self,
        *,
        inside: bool = False,
        signatures: bool = True,
        strides: bool = False,
        totals: bool = False,
        completed: bool = True,
        max_signatures: int = 4096,
        max_pending: int = 262144,
        tensor_type: type | None = None,
        exchange: object | None = None,
        classify: Callable[[type], int | tuple[str, ...]] | None = None,
        key: Callable[[Any], object] | None = None,
        on_signature: Callable[[int, int, tuple[Any, ...], dict[str, Any], bool], None] | None = None,
        on_result: Callable[[int, Any], None] | None = None,
        on_thread: Callable[[int], None] | None = None,
        on_chunk: Callable[[], None] | None = None,
        sync: Callable[[], None] | None = None,
        samples: list[tuple[Any, int | None]] | None = None,
        is_mine: Callable[[CodeType], bool] | None = None,
        on_begin: Callable[[], object] | None = None,
        on_end: Callable[[object, int, int], None] | None = None,
    ) -> None:
        """`samples`, tensors of `tensor_type` with a number for each data type (None: the table refuses it; those last), let the core
        learn where a tensor keeps its sizes, so that it need not ask the table each time; see `direct`.

        `is_mine`, asked once a place, says of a code object whether it is the user's; an event's `site` is then the innermost such
        place that led to the call (0: none). Without it no event has one. At most 131,072 places are told apart.

        `on_begin` is asked right before each recorded call (no section), outside of its time; if its answer is not None, `on_end` is
        given it when the call has returned or raised, before `sync`, with the thread and the start of the event. Both or none.

        `on_result` is given what the first CALL of a signature returned, after its event; what raised gives nothing.

        `exchange` is the capsule `dlpack_exchange_api` of `tensor_type`; `completed` says that without `sync` a call's end is completion (CPU)."""

    recording: bool  # read only
    filled: float  # the share of max_pending that full chunks take which wait to be taken; read only
    hook_error: str  # what the first of the hook_errors says; read only
    direct: bool  # read only: usual tensors are read where the table was seen to point to, without asking it

    def add_callable(
        self,
        name: str,
        *,
        kind: int = 0,
        module: bool = False,
        record: bool = True,
        boundary: bool = False,
        floats: bool = False,
    ) -> int:
        """A new id (from 1 on; 0 is the recorder itself). `floats`: the values of floats are part of its signatures' keys.

        `module`: events below it carry its id in `module`. `record=False`: counts as open but leaves no event
        (filtered out). `boundary`: its return ends a step for sampling. Callables of one name share their FIRST.
        """

    def wrap(self, function: Any, callable_id: int, through: Any = None) -> Wrapper:
        """A stand-in for `function` that records as `callable_id` (-1: never recorded).

        A stand-in of another recorder is looked through. `through` is what is called in its place; everything else the stand-in says about itself is `function`'s.
        """

    def wrap_resolved(self, function: Any, resolve: Callable[[Any], int], through: Any = None) -> Wrapper:
        """A stand-in for a method whose callable depends on the instance (first positional argument).

        `resolve(instance)` is asked once an instance (weakly remembered; every time if it cannot be weakly
        referenced) and returns a callable id, or -1: pass straight on.
        """

    def wrap_property(self, descriptor: Any, callable_id: int) -> PropertyWrapper:
        """A data descriptor in place of `descriptor`."""

    def forget_instances(self) -> None:
        """Ask the resolvers again about every instance."""

    def start(self) -> None: ...
    def pause(self) -> None: ...
    def stop(self) -> None:
        """Wrappers pass straight on from here. Calls that are still open are counted as unfinished."""

    def sample(self, every: int) -> None:
        """Record one step of `every`; 1 is all of them."""

    def step(self, callable_id: int = -1) -> bool:
        """A step ended (called by the user: boundaries no longer count). Whether the next one is recorded.

        With a callable, an event of it that is the recorder's own (OWN) and took no time tells when.
        """

    def enter(self, callable_id: int) -> Span:
        """Open a section on this thread."""

    def leave(self, span: Span) -> None:
        """Close it, wherever it now lies in the nesting; on another thread than it was opened on it is dropped."""

    def section(self) -> int:
        """The id of the innermost open section of this thread, 0 for none."""

    def thread(self) -> int:
        """This thread's number in this recorder."""

    def take(self, partial: bool = True) -> list[bytes]:
        """Take the events out, packed: pieces, each complete in itself, in order of completion for each thread. `partial`: also those in
        buffers that are not full."""

    def drain(self, partial: bool = True) -> list[bytes]:
        """The same unpacked: bytes, a multiple of EVENT_SIZE each."""

    def totals(self) -> list[tuple[int, int, int, int, int, int, int, int, int, int, int, int, bytes]]:
        """Totals mode: (callable, signature, section, thread, flags, n, total_ns, child_ns, wait_ns, min_ns, max_ns, site, histogram of u32)."""

    def live(self) -> list[tuple[int, int, int, int, int, int, int]]:
        """For each callable called so far: (callable, n, total_ns, child_ns, min_ns, max_ns, raised)."""

    def float_ranges(self) -> dict[int, list[tuple[float, float]]]:
        """Signature id -> smallest and largest value of each float argument, in order of appearance (first 16)."""

    def site(self, number: int) -> tuple[CodeType, int]:
        """The code object and the instruction in it (as `f_lasti`) of a site."""

    def stats(self) -> dict[str, int]:
        """events, lost, passed, unfinished, signatures, generalised, described, described_ns, hook_errors, steps, pending,
        unplaced (calls after the limit of places).

        Events and lost are the program's: without the recorder's own work.
        """

    def after_fork(self) -> None:
        """In the child: drop what belongs to the parent, start with empty buffers and no open calls."""
