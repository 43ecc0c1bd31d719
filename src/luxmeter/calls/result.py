"""TraceResult: what a finished (or running) trace can say, read from its folder."""

from __future__ import annotations

import contextlib
import copy
import itertools
import shutil
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from luxmeter import environment, scratch
from luxmeter.by_name import by_name
from luxmeter.calls.callers import callers_of
from luxmeter.calls.cost import CostReport
from luxmeter.calls.device_time import COLUMNS as DEVICE_COLUMNS
from luxmeter.calls.outside import Outside, ThreadTime, find_outside
from luxmeter.calls.processes import not_joined
from luxmeter.calls.reader import Numbers, Recording, identity_of, read_recording
from luxmeter.calls.records import COMPLETED, FIRST, INSIDE, OWN, RAISED, SPANNED, SignatureNames
from luxmeter.calls.sites import read_source
from luxmeter.calls.source import AnnotatedSource, annotate
from luxmeter.calls.steps import Split, Steps, find_steps, split_of
from luxmeter.calls.stragglers import Stragglers, find_stragglers
from luxmeter.calls.table import CallTable, make_table, on_device
from luxmeter.calls.tree import CallTree, make_tree
from luxmeter.errors import TraceError, UsageError, suggestion
from luxmeter.render import span

if TYPE_CHECKING:
    from luxmeter.operators import Operators


Made = TypeVar("Made")
_WITH_OUTSIDE = ("api", "signature", "line", "function")  # tables of all calls by what was called, or where


class TraceResult:
    """A trace read from one folder, or several (one a rank) as one."""

    def __init__(self, folder: Path, *more: Path, running: dict[str, Any] | None = None) -> None:
        self.folder = folder
        self._folders = (folder, *more)
        self._running = running
        self._check_present()

    def _check_present(self) -> None:
        for folder in self._folders:
            if not (folder / "trace.json").is_file():
                raise TraceError(
                    "no-trace-here",
                    f"{folder} is not the folder of a trace.",
                    "Give the folder that save() or keep= named.",
                )

    @cached_property
    def recording(self) -> Recording:
        """Columns of numbers and what they stand for."""
        return read_recording(self._folders, running=self._running)

    @cached_property
    def recorded_with(self) -> dict[str, Any]:
        """Its options, by their names in `TraceOptions`; of an older trace, those it knew."""
        return dict(identity_of(self.folder).get("options", {}))

    @cached_property
    def environment(self) -> dict[str, Any]:
        """The machine and the packages it was recorded on, as far as it says."""
        try:
            return environment.checked(identity_of(self.folder).get("environment"))
        except ValueError:
            return {}

    @property
    def _waited(self) -> bool:
        """Whether the trace waited for the device after each call."""
        return bool(self.recorded_with.get("sync"))

    @property
    def signatures(self) -> list[tuple[str, SignatureNames]]:
        """Every distinct signature with the name of the API that was called so."""
        callables = self.recording.callables
        return [(callables[s.callable].name, s) for s in self.recording.signatures if s is not None]

    @property
    def elapsed_ns(self) -> int:
        """How long was traced, by the clock: processes run beside each other."""
        return max((process.end.get("elapsed_ns", 0) for process in self.recording.processes), default=0)

    @property
    def ranks(self) -> list[int]:
        """The ranks whose calls it has."""
        return self.recording.ranks

    def of_rank(self, rank: int) -> TraceResult:
        """The trace as if only the processes of this rank had been recorded."""
        if rank not in self.ranks:
            has = ", ".join(map(str, self.ranks)) or "none"
            raise UsageError(
                "trace-without-rank",
                f"The trace in {self.folder} has no rank {rank}.",
                f"It has: {has}.",
            )
        return self.with_recording(self.recording.of_rank(rank))

    def with_recording(self, recording: Recording) -> TraceResult:
        """The same trace, of which no more than that is known."""
        made = copy.copy(self)
        made.__dict__.pop("_made", None)
        made.__dict__["recording"] = recording
        return made

    @cached_property
    def _made(self) -> dict[Any, Any]:
        return {}

    def _once(self, key: Any, make: Callable[[], Made]) -> Made:
        """What is made of many calls, made once: each time they would be read anew."""
        if self.recording.is_held:
            return make()
        if key not in self._made:
            self._made[key] = make()
        found: Made = self._made[key]
        return found

    def table(
        self,
        by: str = "api",
        *,
        warmup: bool = True,
        inside: bool = True,
        subtract_cost: bool = False,
        rank: int | None = None,
    ) -> CallTable:
        """Statistics by "api", "signature", "line", "function", "module", "section", "thread" or "rank"; of all ranks, or of
        one (`rank=1`).

        `warmup=False` leaves out the first call of each API, `inside=False` what other calls called,
        `subtract_cost` takes off what the recorder itself cost.
        """
        if rank is not None:
            return self.of_rank(rank).table(by, warmup=warmup, inside=inside, subtract_cost=subtract_cost)
        subtract_cost = subtract_cost and not self.recording.totals
        return self._once(
            ("table", by, warmup, inside, subtract_cost),
            lambda: make_table(
                self.recording,
                by,
                warmup=warmup,
                inside=inside,
                subtract=self._own_cost() if subtract_cost else None,
                notes=[] if by != "api" else self.notes(),
                outside=None if self.recording.totals or by not in _WITH_OUTSIDE else self.main_outside,
            ),
        )

    def outside(self) -> Outside:
        """How long no call was open, on each thread, and where that time went."""
        self.need_events("outside()")
        return self._once("outside", lambda: find_outside(self.recording))

    def steps(self, by: str | None = None) -> Steps:
        """The training steps and how their time splits: by `t.step()` if it was called, or else by the optimizer's step; or the sections of a name."""
        self.need_events("steps()")
        sampled = self.recorded_with.get("sample", 1) > 1
        return self._once(("steps", by), lambda: find_steps(self.recording, by=by, sampled=sampled))

    def split(self, *, step: bool = True) -> Split | None:
        """How the training step of median length splits into kinds of work, or the main thread's whole time if there is none, or
        `step` is false. None without calls, and of totals.
        """
        if self.recording.totals:
            return None
        chosen = self.steps().median if step else None
        main = self.main_outside() if chosen is None else None
        return self._once(("split", step), lambda: split_of(self.recording, chosen, main))

    def main_outside(self) -> ThreadTime | None:
        """The time outside of the program's own thread alone: `outside().main`, without looking at the other threads."""
        self.need_events("main_outside()")
        if "main outside" not in self._made:
            self._made["main outside"] = find_outside(self.recording, most=1).main
        found: ThreadTime | None = self._made["main outside"]
        return found

    def source(self, *, rank: int | None = None) -> AnnotatedSource:
        """Your files as they were, with what the calls of each line cost; of all ranks, or of one."""
        result = self if rank is None else self.of_rank(rank)
        return annotate(result.recording, result.table("line"), result.text_of)

    def text_of(self, called: str) -> str | None:
        """The text of a file of yours, by what a site calls it; None if it was not kept."""
        return read_source(self._folders, called)

    def tree(self, *, rank: int | None = None) -> CallTree:
        """Who called what: totals for each path of calls; of all ranks, or of one."""
        self.need_events("tree()")
        return (
            self._once("tree", lambda: make_tree(self.recording))
            if rank is None
            else self.of_rank(rank).tree()
        )

    def stragglers(self) -> Stragglers:
        """Which rank made the others wait, and in which collective: for traces of several ranks."""
        self.need_events("stragglers()")
        return find_stragglers(self.recording)

    def events(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Every call, one row each, in order of completion for each thread; `parent` is the row of the caller. Of all columns, or of some.

        All of them are held at once, in some hundred bytes a call: of more than memory has room for, ask for few columns, or for `batches`.
        """
        return pa.concat_tables(self.batches(columns))

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The rows of `events`, some hundred thousand at a time."""
        self.need_events("events()")
        some = {name: column[:0] for name, column in next(self.recording.chunks())[1].items()}
        known = self.table_of(some, np.empty(0, np.int64)).column_names
        for name in columns or ():
            if name not in known:
                raise UsageError(
                    "no-such-column",
                    f"Calls have no column {name!r}.",
                    suggestion(name, known) or f"They have {', '.join(known)}.",
                )
        return self._batches(known if columns is None else list(columns))

    def _batches(self, chosen: list[str]) -> Iterator[pa.Table]:
        with callers_of(self.recording) if "parent" in chosen else contextlib.nullcontext() as parent:
            for row, events in self.recording.chunks():
                n = len(events["flags"])
                above = np.full(n, -1, np.int64) if parent is None else np.array(parent[row : row + n])
                yield self.table_of(events, above).select(chosen)

    def table_of(self, events: Mapping[str, Numbers], parent: Numbers) -> pa.Table:
        """Some of its events, as `events` has all."""
        rec, e = self.recording, events
        words, processes, flags = rec.callables, rec.processes, e["flags"]
        pick = _texts
        pids = np.array([p.pid for p in processes], dtype=np.int64)
        rank = np.array([p.rank for p in processes], dtype=np.int32)
        columns = {
            "name": pick([w.name for w in words], e["callable"]),
            "label": pick([w.shown for w in words], e["callable"]),
            "framework": pick([w.framework for w in words], e["callable"]),
            "path": pick([w.path for w in words], e["callable"]),
            "module": pick([w.path for w in words], e["module"]),
            "section": pick(["", *(w.name for w in words[1:])], e["section"]),
            "file": pick([w.file if w else "" for w in rec.sites], e["site"]),
            "line": np.array([w.line if w else 0 for w in rec.sites], dtype=np.int32)[e["site"]],
            "function": pick([w.function if w else "" for w in rec.sites], e["site"]),
            "signature": e["signature"],
            "start_ns": e["start_ns"],
            "duration_ns": e["duration_ns"],
            "self_ns": e["duration_ns"] - e["child_ns"],
            "dispatch_ns": e["duration_ns"] - e["wait_ns"],
            "own_ns": e["own_ns"],
            "depth": e["depth"],
            "parent": parent,
            "thread": e["thread"],
            "pid": pids[e["process"]] if len(pids) else np.empty(0, np.int64),
            "rank": rank[e["process"]] if len(rank) else np.empty(0, np.int32),
        }
        for name in DEVICE_COLUMNS if on_device(rec) else ():
            columns[name] = pa.array(e[name], mask=e[name] < 0)
        for name, bit in (("raised", RAISED), ("inside", INSIDE), ("span", SPANNED), ("first", FIRST),
                          ("completed", COMPLETED), ("own", OWN)):  # fmt: skip
            columns[name] = (flags & bit) != 0
        if not self._waited:  # MindSpore's calls return early on every device
            late = np.array([w.framework == "mindspore" for w in words], dtype=bool)
            columns["completed"] &= ~late[e["callable"]]
        return pa.table(columns)

    def sql(self, query: str) -> pa.Table:
        """A query through duckdb on the tables `calls` (see `events`) and `signatures` (id, name, signature)."""
        import duckdb

        signatures = pa.table(
            {
                "id": pa.array(
                    [i for i, s in enumerate(self.recording.signatures) if s is not None], pa.uint32()
                ),
                "name": pa.array([name for name, _ in self.signatures], pa.string()),
                "signature": pa.array([str(s) for _, s in self.signatures], pa.string()),
            }
        )
        with duckdb.connect() as connection:
            if self.recording.is_held:
                connection.register("calls", self.events())
            else:
                file = self._once("calls for sql", self._as_parquet)
                connection.execute("set temp_directory = $1", [str(file.parent)])
                connection.from_parquet(str(file)).create_view("calls")
            connection.register("signatures", signatures)
            try:
                found = connection.sql(query)
                answer = found.to_arrow_table() if found is not None else pa.table({})
            except duckdb.Error as error:
                raise UsageError(
                    "bad-query", f"duckdb refuses the query: {error}.", "The tables are calls and signatures."
                ) from error
        return answer

    def _as_parquet(self) -> Path:
        """The rows of `events` in a temporary file, which goes with this result."""
        folder = scratch.make("sql")
        weakref.finalize(self, scratch.remove, folder)
        file = folder / "calls.parquet"
        write_parquet(self.batches(), file)
        return file

    def operators(self, *, backward: bool = False) -> Operators:
        """The distinct operators with what they were given, the longest first; with `backward`, those of backward too."""
        found: Operators = by_name("operators").of(self, backward=backward)
        return found

    def cost(self) -> CostReport:
        """What the trace itself cost, from what a call costs on this machine."""
        ends = [process.end for process in self.recording.processes]
        stats, measured = ([end.get(part, {}) for end in ends] for part in ("stats", "cost"))
        return CostReport(
            calls=self.recording.calls,
            passed=sum(s.get("passed", 0) for s in stats),
            per_call_ns=max((m.get("added_ns", 0.0) for m in measured), default=0.0),
            per_passed_ns=max((m.get("passed_ns", 0.0) for m in measured), default=0.0),
            described=sum(s.get("described", s.get("signatures", 0)) for s in stats),
            described_ns=sum(s.get("described_ns", 0) for s in stats),
            setup_ns=sum(end.get("setup_ns", 0) for end in ends),
            elapsed_ns=sum(end.get("elapsed_ns", 0) for end in ends),
        )

    def text(self, by: str = "api", *, top: int = 30, width: int | None = None) -> str:
        """A table under how many calls in how long; what recording cost for each call, and below what it cost once."""
        table, cost = self.table(by), self.cost()
        lines = [table.text(top=top, title=self._title(table, cost), width=width), cost.of_once]
        return "\n".join([*lines, *filter(None, [self._straggler()])])

    def html(self, by: str = "api", *, top: int = 30) -> str:
        """The same as a notebook shows it."""
        from luxmeter.render import repr_html

        table, cost = self.table(by), self.cost()
        shown = table.as_table(top=top) if table.rows else table.text()
        return repr_html(shown, cost.of_once, self._straggler(), title=self._title(table, cost))

    def _repr_html_(self) -> str:
        return self.html()

    def _title(self, table: CallTable, cost: CostReport) -> str:
        apis = len(table if table.by == "api" else self.table())
        main = None if self.recording.totals else self.main_outside()
        outside = f", {span(main.outside_ns)} of it outside them" if main is not None else ""
        return f"{cost.calls:,} calls of {apis:,} APIs in {span(self.elapsed_ns)}{outside} ({cost.of_calls})"

    def _straggler(self) -> str:
        """The rank that clearly made the others wait, in a line."""
        if self.recording.totals or len(self.ranks) < 2:
            return ""
        return self.stragglers().line

    def notes(self) -> list[str]:
        """What a reader of the numbers must know: what was lost, merged or never finished."""
        spawned = sum(process.end.get("spawned", 0) for process in self.recording.processes)
        said = [*filter(None, [not_joined(self.folder, spawned)])]
        remarks = (
            remark for process in self.recording.processes for remark in process.end.get("remarks", ())
        )
        said += dict.fromkeys(remarks)
        for process, called in zip(self.recording.processes, self.recording.process_names(), strict=True):
            where = f" in {called}" if len(self.recording.processes) > 1 else ""
            if not process.complete:
                said.append(f"{called} did not end in order: its last calls may be missing")
                continue
            said += [f"{remark}{where}" for remark in process.end.get("device", {}).get("remarks", ())]
            stats = process.end["stats"]
            if stats["lost"]:
                said.append(f"{stats['lost']} calls lost{where}: the writer could not keep up")
            if process.end.get("lost_on_disk"):
                said.append(f"{process.end['lost_on_disk']} calls lost{where}: {process.end['trouble']}")
            elif process.end.get("trouble"):
                said.append(f"writing failed{where} and was made up for: {process.end['trouble']}")
            if stats["generalised"]:
                said.append(
                    f"{stats['generalised']} calls{where} came after the limit of signatures: not told apart"
                )
            if stats.get("unplaced"):  # not in traces of format 1
                said.append(f"{stats['unplaced']} calls{where} have no line: too many places in code called")
            if stats["unfinished"]:
                said.append(f"{stats['unfinished']} calls{where} were open when recording paused or stopped")
            if process.end.get("unlooked"):
                said.append(
                    f"the values of {process.end['unlooked']} tensors{where} were not looked at: it would take too long"
                )
            if stats["hook_errors"]:
                why = f" ({process.end['hook_error']})" if process.end.get("hook_error") else ""
                said.append(f"{stats['hook_errors']} times{where} a call could not be described{why}")
        return said

    def save(self, path: str | Path) -> Path:
        """Copy the trace to a new folder."""
        target = Path(path)
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise UsageError(
                "trace-folder-taken",
                f"There is something at {target} already.",
                "Give a path that is not there yet.",
            )
        for folder in self._folders:
            shutil.copytree(folder, target, dirs_exist_ok=True)
        return target

    def __str__(self) -> str:
        return self.text()

    def _own_cost(self) -> Numbers:
        """What recording a call cost in each process, and how much of that lies within the call's time: nanoseconds, two rows."""
        costs = [process.end.get("cost", {}) for process in self.recording.processes]
        return np.array([[cost.get(part, 0.0) for cost in costs] for part in ("added_ns", "inside_ns")])

    def need_events(self, what: str) -> None:
        """Refuse what a trace of totals cannot tell."""
        if self.recording.totals:
            raise TraceError(
                "totals-only",
                f"{what} needs events, and this trace kept totals only.",
                "Trace again without totals=True.",
            )


def _texts(words: list[str], codes: Numbers) -> pa.DictionaryArray:
    """Ids -> text, each distinct text once."""
    distinct = {word: i for i, word in enumerate(dict.fromkeys(words))}
    lookup = np.array([distinct[word] for word in words], dtype=np.int32)
    return pa.DictionaryArray.from_arrays(lookup[codes], pa.array(list(distinct), pa.string()))


def write_parquet(tables: Iterator[pa.Table], path: Path) -> None:
    """Tables of the same columns, one at least, as one file."""
    import pyarrow.parquet as pq

    first = next(tables)
    with pq.ParquetWriter(path, first.schema, compression="zstd") as writer:
        for table in itertools.chain([first], tables):
            writer.write_table(table)


def load_trace(path: str | Path, *more: str | Path) -> TraceResult:
    """A trace that was saved; several folders (one a rank) give one merged result."""
    return TraceResult(Path(path), *(Path(other) for other in more))
