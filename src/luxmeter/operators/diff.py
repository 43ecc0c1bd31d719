"""One benchmark against another: what got slower, faster, broke or works now, beyond chance and beyond noise; and what that means
for the program that the operators come from."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from luxmeter import environment, verdict
from luxmeter.environment import Difference
from luxmeter.errors import UsageError
from luxmeter.operators.results import MEASURED, BenchResult, Row, load_benchmark
from luxmeter.operators.weighing import RunVerdict, rounds_of, run_verdicts, turns_of, weight_ns
from luxmeter.render import DURATION, NUMBER, SHARE, Column, Table, counted
from luxmeter.verdict import Regression, Wander

_IDENTITY = ("op", "kernel", "signature", "scale", "dtype", "backend", "mode", "device", "threads")
_SETTINGS = (
    "dtype",
    "backend",
    "device",
    "threads",
)  # one in all of A, another in all of B: that is what is compared
_ORDER = ("broken", "slower", "fixed", "faster", "gone", "new", "unclear", "same", "neither")
_LARGE = 0.05  # what is found only from there on makes a comparison weak
_HUGE = 10.0  # and what is found only from there on is as good as not found
STATED_RATE = 0.05  # of what is called a change, the share that is none (false discovery rate)


@dataclass(frozen=True)
class BenchChange:
    """One row of A and the same row of B. `call` is one of broken, slower, fixed, faster, gone, new, unclear, same
    (within the noise), neither (measured in neither). `relative` is B's time above A's, as a share of A's; `effect` how far the two
    sets of times are apart (Cliff's delta: 0 mixed, 1 every time of B above every one of A, -1 below); `share` the operator's part of
    the traced run, `moves` how much of that run the change is; `finds` the change that would be called 95 times of 100, were this row
    the only one to change (None: of no size, or not known).
    """

    op: str
    signature: str
    scale: str
    dtype: str
    backend: str
    mode: str
    device: str
    threads: int
    kernel: str
    call: str
    why: str
    median_a_us: float | None = None
    median_b_us: float | None = None
    relative: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    effect: float | None = None
    share: float | None = None
    moves: float | None = None
    finds: float | None = None

    @property
    def name(self) -> str:
        """The operator (or its kernel) with what it was given and where."""
        where = ", ".join(filter(None, (self.scale, self.dtype, self.backend)))
        return f"{self.kernel or self.op}({self.signature}) [{where}]"


@dataclass(frozen=True)
class BenchDiff:
    """All changes from A to B, what matters first, with what a reader must know about the two.

    `verdicts` are what they mean for the traced run, the first that of most of it; `differences` what else is not the same.
    """

    changes: tuple[BenchChange, ...]
    threshold: float
    notes: tuple[str, ...] = ()
    name_a: str = "A"
    name_b: str = "B"
    verdicts: tuple[RunVerdict, ...] = ()
    differences: tuple[Difference, ...] = ()
    wander: Wander = field(default_factory=Wander)
    rounds: int = 0  # that the two were measured in, in turns; 0 if one after the other

    @property
    def verdict(self) -> RunVerdict | None:
        """What it means for the traced run; None if nothing was measured in both, or how often was not kept."""
        return self.verdicts[0] if self.verdicts else None

    def regressions(self, threshold: float) -> list[Regression]:
        """What got worse by more than `threshold` beyond chance and noise, and what broke: the run itself first."""
        found = [
            Regression(v.setting or "the traced run", "slower", v.change, f"{v.low:+.1%} to {v.high:+.1%}")
            for v in self.verdicts
            if v.call == "slower" and v.low > threshold
        ]
        found += [Regression(c.name, "broken", None, c.why) for c in self.of("broken")]
        slower = [c for c in self.of("slower") if c.relative is not None and c.relative > threshold]
        return found + [Regression(c.name, "slower", c.relative, c.why) for c in slower]

    def of(self, call: str) -> tuple[BenchChange, ...]:
        """The changes of one kind."""
        return tuple(change for change in self.changes if change.call == call)

    @property
    def finds(self) -> tuple[float, float] | None:
        """The change that would be found 95 times of 100 in half of the rows, and in nine of ten; None if that is not known."""
        known = [c.finds for c in self.changes if c.effect is not None]
        if not known or not (self.rounds or self.wander.looks):
            return None
        x = sorted(math.inf if found is None else found for found in known)
        return x[math.ceil(0.5 * len(x)) - 1], x[math.ceil(0.9 * len(x)) - 1]

    @property
    def geometric_mean(self) -> float | None:
        """B's time as a multiple of A's over all rows measured in both."""
        both = [
            math.log1p(c.relative) if self.rounds and c.relative is not None else math.log(c.median_b_us / c.median_a_us)
            for c in self.changes
            if c.median_a_us and c.median_b_us
        ]  # fmt: skip
        return math.exp(sum(both) / len(both)) if both else None

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values for `json.dumps`."""
        counts = {call: len(self.of(call)) for call in _ORDER if self.of(call)}
        return {
            "a": self.name_a, "b": self.name_b, "threshold": self.threshold, "geometric_mean": self.geometric_mean,
            "verdicts": [found.to_json() for found in self.verdicts], "wander": asdict(self.wander), "rounds": self.rounds,
            "finds": None if self.finds is None else [_known(found) for found in self.finds],
            "differences": [asdict(found) for found in self.differences],
            "counts": counts, "notes": list(self.notes), "changes": [asdict(change) for change in self.changes],
        }  # fmt: skip

    def table(self, *, top: int | None = 40, everything: bool = False) -> Table:
        """What changed; with `everything`, what did not, too."""
        shown = [c for c in self.changes if everything or c.call not in ("same", "unclear", "neither")]
        columns = [
            Column(""),
            Column("op", folds=20),
            Column("signature", is_signature=True, most=48, folds=16),
            Column("scale", goes=4),
            Column("dtype", goes=3),
            Column("backend", goes=2),
            Column("A", DURATION),
            Column("B", DURATION),
            Column("change", SHARE, form="+.1%", missing=""),
            Column("95 %", goes=1),
            Column("effect", NUMBER, form="+.2f", missing="", goes=0),
            Column("of the run", SHARE, missing="", hidden="empty", goes=5),
            Column("why", folds=16),
        ]
        rows = [
            [c.call, c.kernel or c.op, c.signature, c.scale, c.dtype, c.backend, _ns(c.median_a_us), _ns(c.median_b_us), c.relative,
             "" if c.low is None or c.high is None else f"{c.low:+.1%} .. {c.high:+.1%}", c.effect, c.share, c.why]
            for c in shown[:top]
        ]  # fmt: skip
        return Table(columns, rows)

    def summary(self) -> list[str]:
        """The lines below the table: what was counted, the verdict, what else is different, what a reader must know."""
        calls = ", ".join(f"{len(self.of(call))} {call}" for call in _ORDER if self.of(call))
        lines = [
            f"{calls or 'nothing to compare'}; below {self.threshold:.1%} nothing is called a difference"
        ]
        lines += [found.sentence for found in self.verdicts]
        mean = self.geometric_mean
        if mean is not None:
            lines.append(f"all rows alike: {self.name_b} takes {mean:.3f} x the time of {self.name_a}")
        if self.differences:
            said = "; ".join(map(str, self.differences))
            lines.append(f"not the same environment: {said}")
        if self.rounds:
            lines.append(
                f"measured in turns, {counted(self.rounds, 'round')}: what the machine did met both alike"
            )
        return [*lines, *self.weakness(), *self.notes]

    def weakness(self) -> Iterator[str]:
        """How small a change would be seen, and what hinders."""
        if self.finds is None:
            return
        half, most = self.finds
        rows = sum(c.effect is not None for c in self.changes)
        said = "a change of one row would be found, 95 times of 100,"
        if half >= _HUGE:
            yield f"{said} in less than half of the rows, however large it is"
        elif most >= _HUGE:
            yield f"{said} from {half:.1%} on in half of the rows, and at no size in one of ten"
        elif half == most:
            yield f"{said} from {half:.1%} on"
        else:
            yield f"{said} from {half:.1%} on in half of the rows, from {most:.1%} on in nine of ten"
        fewest = verdict.rounds_to_tell(rows, share_of_errors=STATED_RATE)
        one_machine = not {"processor", "cores", "memory_bytes", "system"} & {
            d.name for d in self.differences
        }
        if 0 < self.rounds < fewest:
            yield (
                f"of {counted(rows, 'row')} small changes show from {fewest} rounds on, and here are {self.rounds}: "
                "give more --budget-s, or fewer rows"
            )
        elif not self.rounds and half > _LARGE and one_machine:
            yield "two benchmarks one after the other met two different minutes: measured in turns (luxmeter bench --against) smaller changes show"

    def __str__(self) -> str:
        table = self.table()
        more = len(self.table(top=None).rows) - len(table.rows)
        lines = [table.text()] if table.rows else []
        lines += [f"... and {more} more"] if more else []
        return "\n".join([*lines, *self.summary()])

    def _repr_html_(self) -> str:
        """In a notebook."""
        from luxmeter.render import repr_html

        return repr_html(self.table(), *self.summary(), title=f"{self.name_b} against {self.name_a}")


def diff_benchmarks(
    a: BenchResult,
    b: BenchResult,
    *,
    smallest: float = 0.02,
    share_of_errors: float = STATED_RATE,
    names: tuple[str, str] = ("A", "B"),
) -> BenchDiff:
    """B against A, row by row, and what that means for the traced run.

    A change is called only if it is beyond chance and beyond what looking again showed (corrected for the number of rows: of what
    is called, `share_of_errors` is none on average), beyond what the rows' own times wander, and at least `smallest`. Two that were
    measured in turns (`bench_against`) are compared turn by turn instead, and chance is how far rounds differ.
    A dtype, backend, device or number of threads that is one in all of A and another in all of B is what is compared.
    """
    if not smallest > 0:
        raise UsageError(
            "bad-smallest", f"The smallest difference is {smallest!r}.", "Give a share above 0, such as 0.05."
        )
    compared = _compared_settings(a, b)
    pairs = list(_pairs(a, b, [name for name in _IDENTITY if name not in {d.name for d in compared}]))
    differences = (*compared, *environment.differences(a.environment, b.environment))
    if a.rows and b.rows and not any(x is not None and y is not None for x, y in pairs):
        raise _nothing_in_common(a, b)
    both = [(x, y) for x, y in pairs if x is not None and y is not None]
    in_turns = bool(a.together) and a.together == b.together
    wander = verdict.wander([[(row.times_s, row.again_s) for row in r if row.again_s] for r in (a, b)])
    floor = smallest
    if (
        wander is None and not in_turns
    ):  # too few second looks to know how they spread: then the largest of them counts
        floor = max([smallest, *(r.noise_floor for r in (a, b) if r.noise_floor is not None)])
    turns = {
        str(i): found for i, (x, y) in enumerate(pairs) if in_turns and x and y and (found := turns_of(x, y))
    }
    times = {
        str(i): (x.times_s, y.times_s)
        for i, (x, y) in enumerate(pairs)
        if not in_turns and x is not None and y is not None and x.times_s and y.times_s
    }
    judged = {
        **verdict.compare_many(times, smallest=floor, share_of_errors=share_of_errors, wander=wander),
        **verdict.compare_in_turns(
            turns, smallest=floor, share_of_errors=share_of_errors, find=a.find or 0.0
        ),
    }
    whole_ns = a.whole[0] if a.whole is not None and a.whole[0] else None
    finds = _finds(turns, times, wander, a.find, floor, share_of_errors)
    changes = [
        _change(x, y, judged.get(str(i)), whole_ns, finds.get(str(i))) for i, (x, y) in enumerate(pairs)
    ]
    changes.sort(key=lambda c: (_ORDER.index(c.call), -abs(c.moves or 0.0), -abs(c.relative or 0.0)))
    known = wander or Wander()
    settings = ("scale", "mode", *_SETTINGS)
    verdicts = run_verdicts(both, whole_ns, None if in_turns else known, settings=settings)
    return BenchDiff(
        tuple(changes), floor, tuple(_notes(a, b, names)), *names, verdicts=verdicts, differences=differences, wander=known,
        rounds=rounds_of(both) if in_turns else 0,
    )  # fmt: skip


def diff_benchmark_files(a: str | Path, b: str | Path, *, smallest: float = 0.02) -> BenchDiff:
    """`diff_benchmarks` for two files that `BenchResult.to_json` or `to_parquet` wrote."""
    return diff_benchmarks(
        load_benchmark(a), load_benchmark(b), smallest=smallest, names=names_of([Path(a), Path(b)])
    )


def names_of(paths: Sequence[Path]) -> tuple[Any, ...]:
    """A name for each file that tells it from the others: its own, that of the run it lies in, or a letter."""
    for said in ([p.stem for p in paths], [_run_of(p) for p in paths]):
        if len(set(said)) == len(said) and all(said):
            return tuple(said)
    return tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: len(paths)])


def _run_of(path: Path) -> str:
    """The run's id of .../<run>/results/bench/0001/bench.json."""
    parts = path.parts
    return parts[-5] if len(parts) >= 5 and parts[-4] == "results" else ""


def _compared_settings(a: BenchResult, b: BenchResult) -> tuple[Difference, ...]:
    found = []
    for name in _SETTINGS:
        one, two = ({getattr(row, name) for row in result} for result in (a, b))
        if len(one) == len(two) == 1 and one != two:
            found.append(Difference(name, one.pop(), two.pop()))
    return tuple(found)


def _nothing_in_common(a: BenchResult, b: BenchResult) -> UsageError:
    words = []
    for name, said in (("op", "operators"), ("signature", "inputs"), ("scale", "sizes"), ("mode", "modes"), *((s, s) for s in _SETTINGS)):  # fmt: skip
        one, two = ({str(getattr(row, name)) for row in result} for result in (a, b))
        if not one & two and not (name in _SETTINGS and len(one) == len(two) == 1):
            words.append(f"{said} ({_short(one)} and {_short(two)})")
    what = (
        f"their {words[0]} have none in common" if words else "no row of one has the same name in the other"
    )
    return UsageError(
        "nothing-in-common",
        f"The two benchmarks have no row in common: {what}.",
        "Measure the same operators file in both places.",
    )


def _short(values: set[str]) -> str:
    first = min(values)
    first = f"{first[:40]}..." if len(first) > 40 else first or "as recorded"
    return first if len(values) == 1 else f"{first} and {len(values) - 1} more"


def _pairs(
    a: BenchResult, b: BenchResult, identity: Sequence[str]
) -> Iterator[tuple[Row | None, Row | None]]:
    """Rows of the same name; two cases whose text is the same (other strides) are paired in their order."""
    sides: list[dict[tuple[Any, ...], list[Row]]] = [defaultdict(list), defaultdict(list)]
    for side, result in zip(sides, (a, b), strict=True):
        for row in result:
            side[tuple(getattr(row, name) for name in identity)].append(row)
    for place in {**sides[0], **sides[1]}:
        x, y = sides[0].get(place, []), sides[1].get(place, [])
        for i in range(max(len(x), len(y))):
            yield (x[i] if i < len(x) else None), (y[i] if i < len(y) else None)


def _change(
    a: Row | None,
    b: Row | None,
    found: verdict.Comparison | None,
    whole_ns: int | None,
    finds: float | None,
) -> BenchChange:
    row = b if b is not None else a
    assert row is not None
    identity = {name: getattr(row, name) for name in _IDENTITY}
    share = weight_ns(a)[0] / whole_ns if a is not None and a.traced_calls and whole_ns else None
    medians: dict[str, Any] = {
        "median_a_us": a.median_us if a is not None else None,
        "median_b_us": b.median_us if b is not None else None,
        "share": share,
    }
    if found is not None:
        call = {"higher": "slower", "lower": "faster"}.get(found.call, found.call)
        return BenchChange(
            **identity, **medians, call=call, why=found.why, relative=found.relative.estimate,
            low=_known(found.relative.low), high=_known(found.relative.high), p_value=found.p_value, effect=found.cliffs_delta,
            moves=None if share is None else share * found.relative.estimate, finds=finds,
        )  # fmt: skip
    if a is None or b is None:
        return BenchChange(**identity, **medians, call="new" if a is None else "gone", why=row.status)
    call = "broken" if a.status in MEASURED else "fixed" if b.status in MEASURED else "neither"
    worse = a if call == "fixed" else b
    return BenchChange(**identity, **medians, call=call, why=f"{worse.status}: {worse.reason}".rstrip(": "))


def _finds(
    turns: Mapping[str, Any],
    times: Mapping[str, Any],
    wander: Wander | None,
    find: float | None,
    smallest: float,
    share_of_errors: float,
) -> dict[str, float | None]:
    """Of each row: the change that would be found in it; of those that were not measured in turns, if second looks tell."""
    said = {"smallest": smallest, "share_of_errors": share_of_errors}
    found = verdict.found_in_turns([verdict.log_ratios(r) for r in turns.values()], find or 0.0, **said)
    if wander is not None:
        found += verdict.found_by_looks(list(times.values()), wander, **said)
    names = [*turns, *(times if wander is not None else ())]
    return {name: _known(value) for name, value in zip(names, found, strict=True)}


def _known(bound: float) -> float | None:
    return bound if math.isfinite(bound) else None


def _notes(a: BenchResult, b: BenchResult, names: tuple[str, str]) -> Iterator[str]:
    """What makes the two hard to compare."""
    for name, result in zip(names, (a, b), strict=True):
        if result.noise_floor is None and result.rows and not (a.together and a.together == b.together):
            yield f"{name} has no noise floor: only the wandering of its own times is known"
        if not result.complete:
            yield f"{name} was stopped early: rows are missing"
    if a.rows and not any(row.traced_calls for row in a):
        yield f"{names[0]} does not say how often a program runs its operators: no verdict on a run"


def _ns(time_us: float | None) -> float | None:
    return None if time_us is None else time_us * 1e3
