"""`luxmeter bench`: operators, or a mini-model, measured over scales, dtypes and backends."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from luxmeter.errors import UsageError
from luxmeter.files import refuse_unwritable
from luxmeter.operators import BenchOptions
from luxmeter.render import counted, print_json
from luxmeter.view.options import run_argument, run_option, takes

if TYPE_CHECKING:
    from luxmeter.operators import BenchResult, Operators
    from luxmeter.store import Run

_SMALLEST = 0.02  # change that counts, where none was looked for
_SPECS = (".yaml", ".yml", ".toml")
_EXAMPLE = (
    "Example: luxmeter bench ops.jsonl --top 20 --dtypes fp32,bf16 --backends eager,compile --scale batch=1,8,64 "
    "--budget-s 120 --resume bench.json -o bench.csv -o scaling.png; a mini-model: luxmeter bench linear.yaml -o out.csv"
)
_TAKEN = (
    "dtypes", "backends", "scales", "dims", "device", "threads", "backward", "kernels", "budget_s", "target_ci",
    "timeout_s", "python", "env", "setup", "seed", "resume",
)  # fmt: skip
_OF_MODELS = ("kernels", "budget_s", "resume")  # what is not in a mini-model's file


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(epilog=_EXAMPLE)
    @takes(BenchOptions, *_TAKEN)
    def bench(
        sources: list[str] = run_argument(
            metavar="OPS...",
            help="An operators file, a trace (RUN/trace, latest), RUN/ops, or what luxmeter ops reads; or a mini-model's .yaml or .toml.",
        ),
        given: Any = None,
        top: int | None = typer.Option(None, "--top", min=1, help="Only the n with most time."),
        name: str | None = typer.Option(None, "--name", help="Only these, by name: '*conv*'."),
        module: str | None = typer.Option(None, "--module", help="Only those called from these modules."),
        out: list[Path] = typer.Option(
            [],
            "-o",
            "--out",
            help="Write .csv, .json, .parquet, or a picture: .png, .svg. Repeat for several.",
        ),
        against: list[str] = typer.Option(
            [],
            "--against",
            metavar="WORD",
            help="Measure in turns with a second setup and compare: its interpreter, or what differs there: threads=2, dtypes=bf16, "
            "env=NAME=VALUE. Repeat. Then -o A -o B keeps both.",
        ),
        find: float | None = typer.Option(
            None,
            "--find",
            metavar="SHARE",
            help="With --against: rounds go on, within the budget, for rows that may still have changed by so much; 0 for all. "
            "[default: 0.05]",
        ),
        into: str = run_option("--into", help="Put the result into this run: RUN/bench."),
        plot: str = typer.Option("", "--plot", help="Which picture: scaling or speedup."),
        as_json: bool = typer.Option(False, "--json", help="For machines."),
    ) -> None:
        """Measure operators, or a mini-model, at other sizes, in other dtypes, on other backends. Ctrl-C keeps what is done."""
        from luxmeter.view.named import run_for

        _check_outputs(out, plot)
        run = run_for(into)
        if any(Path(s).suffix.lower() in _SPECS for s in sources):
            other = [name for name in given if name not in _OF_MODELS]
            chosen_by = {
                "name": name,
                "module": module,
                "top": top,
                "against": against,
                "find": find is not None,
            }
            other += [name for name, value in chosen_by.items() if value]
            result = _mini([*sources, *(f"--{name.replace('_', '-')}" for name in other)], given)
        else:
            from luxmeter import bench as bench_operators
            from luxmeter.view.cli.ops import chosen

            if against:
                _check_sides(out, plot)
            elif find is not None:
                raise UsageError(
                    "find-alone", "--find is for two sides, and there is one.", "Name the other: --against."
                )
            ops = chosen(sources, top=top, name=name, module=module)
            if against:
                _in_turns(ops, against, given, out, run, find=find, as_json=as_json)
                return
            result = bench_operators(ops, **given)
        _finish(result, out, run, plot=plot, as_json=as_json, resume=given.get("resume"))


def _finish(
    result: BenchResult, out: list[Path], run: Run | None, *, plot: str, as_json: bool, resume: Path | None
) -> None:
    from luxmeter.operators import put_benchmark
    from luxmeter.view.named import into_run

    with into_run(run):
        put_benchmark(result)
    for path in out:
        result.plot(path, kind=plot) if path.suffix.lower() in (".png", ".svg") else result.to_file(path)
        sys.stderr.write(f"wrote {path}\n")
    if as_json:
        print_json({"rows": result.records(), "noise_floor": result.noise_floor, "complete": result.complete,
                    "notes": result.notes(), "environment": result.environment})  # fmt: skip
    else:
        result.show()
    if not result.complete:
        kept = f"the same command goes on with --resume {resume}" if resume else "next time: --resume FILE"
        sys.stderr.write(f"stopped early, {counted(len(result), 'row')} done; {kept}\n")
        raise typer.Exit(130)


def _check_sides(out: list[Path], plot: str) -> None:
    """Both sides make two files, and no picture."""
    pictures = [str(path) for path in out if path.suffix.lower() in (".png", ".svg")]
    if plot or pictures or len(out) not in (0, 2):
        said = (pictures or [f"--plot {plot}"])[0] if plot or pictures else f"{len(out)} -o"
        raise UsageError(
            "against-outputs",
            f"Two sides measured in turns make two benchmarks and no picture; here is {said}.",
            "Write -o A.parquet -o B.parquet, or nothing.",
        )


def _in_turns(
    ops: Operators,
    words: list[str],
    given: dict[str, Any],
    out: list[Path],
    run: Run | None,
    *,
    find: float | None,
    as_json: bool,
) -> None:
    """Both sides measured in turns, kept and compared."""
    from luxmeter.operators import bench_against, diff_benchmarks, names_of, put_benchmark, read_against
    from luxmeter.view.named import into_run

    given |= {} if find is None else {"find": find}
    sides = bench_against(ops, read_against(words), **given)
    with into_run(run):
        for side in sides:
            put_benchmark(side)
    for path, side in zip(out, sides, strict=False):
        side.to_file(path)
        sys.stderr.write(f"wrote {path}\n")
    smallest = sides[0].find or _SMALLEST
    found = diff_benchmarks(*sides, names=names_of(out) if out else ("A", "B"), smallest=smallest)
    if as_json:
        print_json(found.to_json())
    else:
        sys.stdout.write(f"{found}\n")
    if not all(side.complete for side in sides):
        sys.stderr.write(f"stopped early, {counted(len(sides[0]), 'row')} done\n")
        raise typer.Exit(130)


def _mini(said: list[str], settings: dict[str, Any]) -> BenchResult:
    from luxmeter.operators import bench_model_file

    if len(said) > 1:
        raise UsageError(
            "bench-mixed",
            f"A mini-model's file says all that is to be measured; {said[1]} does not go with it.",
            "Write it into the file (input_scales, job_configs), and give that file alone.",
        )
    return bench_model_file(said[0], **settings)


def refuse_outputs(out: list[Path], formats: Collection[str], unknown: str) -> None:
    """What cannot be written, before measuring for an hour; `unknown` names the error of another ending."""
    for path in out:
        if path.suffix.lower() not in formats:
            raise UsageError(
                unknown,
                f"{path} ends in none of {', '.join(formats)}.",
                "Choose the form by the name's ending.",
            )
        if not path.absolute().parent.is_dir():
            raise UsageError(
                "bench-out-unwritable",
                f"There is no folder {path.absolute().parent} to write {path.name} to.",
                "Make it first.",
            )
        refuse_unwritable(path)


def _check_outputs(out: list[Path], plot: str) -> None:
    from luxmeter.operators import FORMATS

    refuse_outputs(out, FORMATS, "unknown-benchmark-format")
    if plot not in ("", "scaling", "speedup"):
        raise UsageError(
            "unknown-picture", f"There is no picture {plot!r}.", "Ask for 'scaling' or 'speedup'."
        )
