"""`luxmeter diff`: what differs between two runs, traces, benchmarks, checks or models."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from luxmeter.errors import LuxmeterError, UsageError
from luxmeter.plain_text import one_line, plain
from luxmeter.render import SHARE, Column, Table, counted, print_json
from luxmeter.view.options import run_argument

if TYPE_CHECKING:
    from luxmeter.calls import TraceDiff
    from luxmeter.store import Result, Run
    from luxmeter.view.named import Named


_EXAMPLE = (
    "Example: luxmeter diff latest~1 latest --metric acc; luxmeter diff old.json new.json newer.json; "
    "in CI: luxmeter diff base/bench latest/bench --fail-on-regression=2%"
)
_DEFAULT_SMALLEST = 0.05
_DEFAULT_FAIL = "2%"
_MOST_LISTED = 20
_A_KIND = {
    "run": "a run", "trace": "a trace", "bench": "a benchmark", "check": "a check", "model": "a model's cost", "ops": "a file of operators",
    "zen": "a file of scores", "search": "a search", "eval": "an evaluation",
}  # fmt: skip


class _WithOptionalValue(TyperCommand):
    """`--fail-on-regression` alone has its default: a word behind it is never taken for its value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        name = "--fail-on-regression"
        said = [f"{name}={_DEFAULT_FAIL}" if arg == name else arg for arg in args[:end]]
        return list(super().parse_args(ctx, [*said, *args[end:]]))


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(cls=_WithOptionalValue, epilog=_EXAMPLE)
    def diff(
        a: str = run_argument(
            help="A run (id, name, tag, latest~1, path), what it holds (RUN/trace, RUN/bench, RUN/model), a trace or a file."
        ),
        b: str = run_argument(help="What to compare it with."),
        more: list[str] = run_argument(
            None, metavar="C", help="More benchmarks: each is compared with the first."
        ),
        what: str = typer.Option("", "--what", help="runs or traces, of runs that were traced too."),
        metric: str = typer.Option("", "--metric", "-m", help="Runs: the metric to explain."),
        full: bool = typer.Option(
            False, "--full", help="Runs: all of the code's and environment's differences."
        ),
        system: bool = typer.Option(False, "--system", help="Runs: the machine's metrics too."),
        by: str = typer.Option("api", help="Traces: api, signature, line, function or module."),
        smallest: float | None = typer.Option(
            None,
            help="Traces, benchmarks: the smallest relative change that counts.",
            show_default=f"{_DEFAULT_SMALLEST}, or what --fail-on-regression says",
        ),
        top: int = typer.Option(20, min=1, help="Traces, benchmarks: rows shown."),
        show_all: bool = typer.Option(
            False, "--all", help="Traces, benchmarks: also what is the same or unclear."
        ),
        fail_on_regression: str = typer.Option(
            "",
            "--fail-on-regression",
            metavar="[=2%]",
            help="End with exit code 1 if something got worse by more than that, beyond chance and noise, and list it.",
            show_default=False,
        ),
        as_json: bool = typer.Option(False, "--json", help="For machines."),
    ) -> None:
        """What differs between two runs: parameters, code, environment, metrics and what plausibly explains them, then the
        traces, benchmarks and models that both hold; or between two traces, benchmarks, checks or models. Noise is not called
        a difference.

        Exit codes: 0, 1 (with --fail-on-regression: something got worse), 2 (bad input, or not to be compared)."""
        from luxmeter.view.named import named

        fail_on = _share(fail_on_regression) if fail_on_regression else None
        least = smallest if smallest is not None else _DEFAULT_SMALLEST if fail_on is None else fail_on
        how = _How(by=by, smallest=least, top=top, show_all=show_all, fail_on=fail_on)
        if what not in ("", "runs", "traces"):
            raise UsageError("diff-what", f"--what {what} is unknown.", "Use --what runs or --what traces.")
        is_trace = [(Path(reference) / "trace.json").is_file() for reference in (a, b)]
        if more:
            _diff_several([a, b, *more], how, as_json=as_json)
            return
        a_file = any(Path(reference).is_file() for reference in (a, b))  # which is no trace: refused below
        if what == "traces" or (not what and any(is_trace) and not a_file):
            _diff_one("trace", _trace_of(a), _trace_of(b), how, as_json=as_json)
            return
        one, two = named(a), named(b)
        kinds = {"bench" if kind == "file" else kind for kind in (one.kind, two.kind)}
        if one.run is not None and two.run is not None:
            _diff_runs(one.run, two.run, how, metric=metric, full=full, system=system, as_json=as_json)
        elif what or (len(kinds) > 1 and kinds != {"trace", "run"}):
            raise UsageError(
                "diff-kinds",
                f"{a} is {_a_kind(one)}, {b} is {_a_kind(two)}.",
                "Give two runs, or two results of one kind: RUN1/bench RUN2/bench.",
            )
        elif "trace" in kinds:
            _diff_one("trace", _trace_of(a), _trace_of(b), how, as_json=as_json)
        else:
            _diff_one(kinds.pop(), one.path, two.path, how, as_json=as_json)


def _a_kind(thing: Named) -> str:
    """What it is, in a sentence. A benchmark in Parquet does not say so at its beginning."""
    if thing.kind == "file":
        return "a benchmark" if thing.path.suffix == ".parquet" else "no file that is compared"
    return _A_KIND[thing.kind]


@dataclass(frozen=True)
class _How:
    """What is shown of two results."""

    by: str = "api"
    smallest: float = 0.05
    top: int = 20
    show_all: bool = False
    fail_on: float | None = None  # what got worse by more is a failure


def _share(said: str) -> float:
    """`2%` -> 0.02; `0.02` is the same."""
    text = said.strip()
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not 0 < value < 1:
        raise UsageError(
            "bad-regression-threshold",
            f"--fail-on-regression={said} is no share.",
            "Write it as --fail-on-regression=2%: above 0 and below 100%.",
        )
    return value


def _diff_runs(
    one: Run, two: Run, how: _How, *, metric: str, full: bool, system: bool, as_json: bool
) -> None:
    from luxmeter.experiment import diff_runs
    from luxmeter.view.text.run_diff import as_record, write_diff

    both = _in_both(one, two)
    told = one.metrics or two.metrics or one.params or two.params or {"bench", "check", "model"} & set(both)
    if "trace" in both and not told:
        _diff_one("trace", both["trace"][0].path, both["trace"][1].path, how, as_json=as_json)
        return
    if how.fail_on is not None and not {"trace", "bench", "check", "model"} & set(both):
        raise UsageError(
            "nothing-to-judge",
            f"{one.id} and {two.id} hold no trace, benchmark, check or model's cost both, so nothing can be called a regression.",
            "Trace or benchmark in both runs: luxmeter run --trace, luxmeter bench --into RUN.",
        )
    found, why = diff_runs(one, two, metric=metric)
    compared = {kind: _compared(a, b, how) for kind, (a, b) in both.items()}
    records = {kind: record for kind, (record, _) in compared.items()}
    if as_json:
        print_json({**as_record(found, why), "results": records})
    else:
        write_diff(found, why, sys.stdout, full=full, system=system)
        for kind, (a, b) in both.items():
            sys.stdout.write(f"\n{kind}\n  A  {one_line(a.title)}\n  B  {one_line(b.title)}\n")
            compared[kind][1]()
    _fail_on_regression(records, how, as_json=as_json)


def _in_both(one: Run, two: Run) -> dict[str, tuple[Result, Result]]:
    """Kind -> the last result of that kind of each, where both have one."""
    last_a, last_b = ({result.kind: result for result in run.results()} for run in (one, two))
    return {kind: (result, last_b[kind]) for kind, result in last_a.items() if kind in last_b}


def _diff_one(kind: str, a: Path, b: Path, how: _How, *, as_json: bool) -> None:
    """Two results of one kind."""
    if kind not in _COMPARE:
        raise UsageError(
            "diff-kinds",
            f"Two results of {kind} are not compared.",
            "luxmeter show shows each; diff compares runs, traces, benchmarks, checks and models.",
        )
    record, show = _COMPARE[kind](a, b, how)
    if as_json:
        print_json(record)
    else:
        show()
    _fail_on_regression({kind: record}, how, as_json=as_json)


def _diff_several(references: list[str], how: _How, *, as_json: bool) -> None:
    """Three or more benchmarks, each against the first."""
    from luxmeter.operators import diff_many_files
    from luxmeter.view.named import named

    things = [named(reference) for reference in references]
    for reference, thing in zip(references, things, strict=True):
        if thing.kind not in ("bench", "file"):
            raise UsageError(
                "diff-kinds",
                f"{reference} is {_a_kind(thing)}; more than two are compared of benchmarks only.",
                "Give benchmarks (RUN/bench, files), or two things.",
            )
    found = diff_many_files([thing.path for thing in things], smallest=how.smallest)
    record = found.to_json()
    if how.fail_on is not None:
        record["regressions"] = [asdict(r) for r in found.regressions(how.fail_on)]
    if as_json:
        print_json(record)
    else:
        found.table(top=how.top, everything=how.show_all).print()
    _fail_on_regression({"bench": record}, how, as_json=as_json)


def _fail_on_regression(records: Mapping[str, Any], how: _How, *, as_json: bool) -> None:
    """Exit code 1 and a short list if asked for and something got worse; what could not be judged is an error, not a pass."""
    if how.fail_on is None:
        return
    judged = {kind: r["regressions"] for kind, r in records.items() if "regressions" in r}
    failed = any("error" in r for r in records.values()) and not any(judged.values())
    if failed or not judged:
        told = "; ".join(
            f"{kind}: {r.get('error', 'not judged')}" for kind, r in records.items() if kind not in judged
        )
        raise UsageError(
            "nothing-to-judge",
            f"It cannot be told whether something got worse. {told}.",
            "Compare traces, benchmarks, checks or models' costs.",
        )
    found = [(kind, r) for kind, regressions in judged.items() for r in regressions]
    if not as_json:
        above = (
            f" above {how.fail_on:.1%}" if judged.keys() - {"check"} else ""
        )  # a check knows no more and less
        sys.stdout.write(f"\n{counted(len(found), 'regression')}{above}\n")
        columns = [
            Column("  "),
            Column("what", folds=24, most=90),
            Column("change", SHARE, form="+.1%", missing=""),
            Column("why", folds=16),
        ]
        rows = [[f"  {r['kind']}", r["name"], r["change"], r["why"]] for _, r in found[:_MOST_LISTED]]
        if rows:
            Table(columns, rows).print()
        if len(found) > _MOST_LISTED:
            sys.stdout.write(f"  ... and {len(found) - _MOST_LISTED} more\n")
    if found:
        raise typer.Exit(1)


_Compared = tuple[Any, Callable[[], None]]  # for machines; what prints it


def _compared(a: Result, b: Result, how: _How) -> _Compared:
    """As `_COMPARE` does it, or the lines on both; what cannot be read, or needs what is not here, says so and stops nothing."""
    if a.kind not in _COMPARE:
        return {"a": a.title, "b": b.title}, lambda: None
    try:
        return _COMPARE[a.kind](a.path, b.path, how)
    except LuxmeterError as error:
        said = one_line(f"not compared: {error}")

        def show() -> None:
            sys.stdout.write(f"{said}\n")

        return {"error": said}, show


def _compare_benchmarks(a: Path, b: Path, how: _How) -> _Compared:
    from luxmeter.operators import diff_benchmark_files

    found = diff_benchmark_files(a, b, smallest=how.smallest)

    def show() -> None:
        table = found.table(top=how.top, everything=how.show_all)
        hidden = len(found.table(top=None, everything=how.show_all).rows) - len(table.rows)
        more = [f"... and {hidden} more"] if hidden else []
        if table.rows:
            replace(table, notes=more).print()
        sys.stdout.write("".join(f"{plain(line)}\n" for line in found.summary()))

    return {**found.to_json(), **_regressions(found, how)}, show


def _regressions(found: Any, how: _How) -> dict[str, Any]:
    if how.fail_on is None:
        return {}
    return {"regressions": [asdict(r) for r in found.regressions(how.fail_on)]}


def _compare_checks(a: Path, b: Path, how: _How) -> _Compared:
    from luxmeter.operators import diff_checks, load_check

    found = diff_checks(load_check(a), load_check(b))
    record = {**found.to_dict(), **_regressions(found, how)}
    return record, lambda: found.show(top=None if how.show_all else how.top)


def _compare_traces(a: Path, b: Path, how: _How) -> _Compared:
    from luxmeter.calls import diff_traces, load_trace

    found = diff_traces(load_trace(a), load_trace(b), by=how.by, smallest=how.smallest)

    def show() -> None:
        _say_options(found)
        _show(found, by=how.by, top=how.top, show_all=how.show_all)

    return {**asdict(found), **_regressions(found, how)}, show


def _compare_models(a: Path, b: Path, how: _How) -> _Compared:
    from luxmeter.model import compare_models, load_cost
    from luxmeter.view.cli.model import side_by_side

    found = compare_models([load_cost(a), load_cost(b)])
    names = tuple(f"{letter} {name}" for letter, name in zip("AB", found.names, strict=True))
    record = {**found.to_dict(), **_regressions(found, how)}
    return record, lambda: side_by_side(replace(found, names=names))


_COMPARE: dict[str, Callable[[Path, Path, _How], _Compared]] = {
    "trace": _compare_traces,
    "bench": _compare_benchmarks,
    "check": _compare_checks,
    "model": _compare_models,
}


def _say_options(found: TraceDiff) -> None:
    for line in found.warnings():
        sys.stdout.write(f"{plain(line)}\n")
        if line.startswith("not the same environment"):
            sys.stdout.write("\n")
    if found.options:
        found.option_table().print()
        sys.stdout.write("\n")


def _show(found: TraceDiff, *, by: str, top: int, show_all: bool) -> None:
    table = found.table(by, top=top, everything=show_all)
    if table.rows:
        table.print()
    for line in found.summary():
        sys.stdout.write(f"{plain(line)}\n")


def _trace_of(reference: str) -> Path:
    from luxmeter.view.named import named_trace

    found = named_trace(reference)
    if found is None:
        raise UsageError(
            "no-trace-to-compare",
            f"{reference} is no trace and has none.",
            "Give a trace (RUN/trace, latest, its folder) or a run that was traced.",
        )
    return found
