"""`luxmeter bench`: operators, or a mini-model, measured over scales, dtypes and backends."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from luxmeter.errors import UsageError

if TYPE_CHECKING:
    from luxmeter.operators import BenchResult
    from luxmeter.store import Run

_SPECS = (".yaml", ".yml", ".toml")
_EXAMPLE = (
    "Example: luxmeter bench ops.jsonl --top 20 --dtypes fp32,bf16 --backends eager,compile --scale batch=1,8,64 "
    "--budget 120 --resume bench.json -o bench.csv -o scaling.png; a mini-model: luxmeter bench linear.yaml -o out.csv"
)


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(epilog=_EXAMPLE)
    def bench(
        sources: list[str] = typer.Argument(
            metavar="OPS...",
            help="An operators file, a trace (RUN/trace, latest), RUN/ops, or what luxmeter ops reads; or a mini-model's .yaml or .toml.",
        ),
        dtypes: str = typer.Option("", "--dtypes", help="fp32,bf16,fp16,fp64 or recorded.  [default: fp32]"),
        backends: str = typer.Option(
            "",
            "--backends",
            help="any of eager,compile,onnxruntime,mindspore and registered ones.  [default: eager]",
        ),
        scale: list[str] = typer.Option(
            [], "--scale", help="Sizes of a dimension: batch=1,2,4. Repeat for several."
        ),
        names: list[str] = typer.Option(
            [],
            "--dim",
            help="Name every dimension of a recorded size: hidden=256. Then --scale hidden=128,512.",
        ),
        device: str = typer.Option("cpu", "--device", help="cpu,cuda."),
        threads: str = typer.Option("1", "--threads", help="Numbers of threads: 1,2."),
        backward: bool = typer.Option(False, "--backward", help="Forward and backward."),
        kernels: bool = typer.Option(
            False, "--kernels", help="Also a row for each kernel: of aten, and of ONNX Runtime."
        ),
        budget: float = typer.Option(60.0, "--budget", min=0.0, help="Seconds for all of it."),
        target: float = typer.Option(
            0.02, "--target-ci", help="How well a median is to be known, as a share of it."
        ),
        timeout: float | None = typer.Option(None, "--timeout", help="Seconds after which a case has hung."),
        python: list[str] = typer.Option(
            [], "--python", help="The interpreter whose torch is measured, or BACKEND=INTERPRETER. Repeat."
        ),
        seed: int = typer.Option(0, "--seed", help="All made-up inputs come from it."),
        resume: Path | None = typer.Option(
            None,
            "--resume",
            help="A JSON file that keeps rows as they come; what it holds is not measured again.",
        ),
        top: int | None = typer.Option(None, "--top", min=1, help="Only the n with most time."),
        name: str | None = typer.Option(None, "--name", help="Only these, by name: '*conv*'."),
        module: str | None = typer.Option(None, "--module", help="Only those called from these modules."),
        out: list[Path] = typer.Option(
            [],
            "-o",
            "--out",
            help="Write .csv, .json, .parquet, or a picture: .png, .svg. Repeat for several.",
        ),
        into: str = typer.Option(
            "", "--into", metavar="RUN", help="Put the result into this run: RUN/bench."
        ),
        plot: str = typer.Option("", "--plot", help="Which picture: scaling or speedup."),
        as_json: bool = typer.Option(False, "--json", help="For machines."),
    ) -> None:
        """Measure operators, or a mini-model, at other sizes, in other dtypes, on other backends. Ctrl-C keeps what is done."""
        from luxmeter.view.named import run_for

        _check_outputs(out, plot)
        run = run_for(into)
        if any(Path(s).suffix.lower() in _SPECS for s in sources):
            chosen_here = {"--scale": scale, "--dim": names, "--dtypes": dtypes, "--backends": backends, "--name": name,
                           "--module": module, "--top": top, "--backward": backward,
                           "--python": python}  # fmt: skip
            more = {"kernels": True} if kernels else {}
            result = _mini(
                sources, {k for k, v in chosen_here.items() if v}, budget_s=budget, resume=resume, **more
            )
        else:
            from luxmeter import bench as bench_operators
            from luxmeter.view.cli.ops import chosen

            result = bench_operators(
                chosen(sources, top=top, name=name, module=module),
                dtypes=_items(dtypes) or ["fp32"],
                backends=_items(backends) or ["eager"],
                scales=dict(_sizes("--scale", s) for s in scale) or None,
                names={k: v[0] for k, v in (_sizes("--dim", n) for n in names)} or None,
                device=_items(device),
                threads=[_whole("--threads", t) for t in _items(threads)],
                backward=backward, kernels=kernels, budget_s=budget, target_ci=target, timeout_s=timeout, seed=seed,
                python=_interpreters(python), resume=resume,
            )  # fmt: skip
        _finish(result, out, run, plot=plot, as_json=as_json, resume=resume)


def _finish(
    result: BenchResult, out: list[Path], run: Run | None, *, plot: str, as_json: bool, resume: Path | None
) -> None:
    from luxmeter.operators import put_benchmark
    from luxmeter.render import print_json
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
        sys.stderr.write(f"stopped early, {len(result)} rows done; {kept}\n")
        raise typer.Exit(130)


def _mini(sources: list[str], chosen_here: set[str], **settings: Any) -> BenchResult:
    from luxmeter.operators import bench_model_file

    if len(sources) > 1 or chosen_here:
        other = sorted(chosen_here)[0] if chosen_here else sources[1]
        raise UsageError(
            "bench-mixed",
            f"A mini-model's file says all that is to be measured; {other} does not go with it.",
            "Write it into the file (input_scales, job_configs), and give that file alone.",
        )
    return bench_model_file(sources[0], **settings)


def _check_outputs(out: list[Path], plot: str) -> None:
    """Refuse what cannot be written before measuring for an hour."""
    from luxmeter.operators import FORMATS

    for path in out:
        if path.suffix.lower() not in FORMATS:
            raise UsageError(
                "unknown-benchmark-format",
                f"{path} ends in none of {', '.join(FORMATS)}.",
                "Choose the form by the name's ending.",
            )
        if not path.absolute().parent.is_dir():
            raise UsageError(
                "bench-out-unwritable",
                f"There is no folder {path.absolute().parent} to write {path.name} to.",
                "Make it first.",
            )
    if plot not in ("", "scaling", "speedup"):
        raise UsageError(
            "unknown-picture", f"There is no picture {plot!r}.", "Ask for 'scaling' or 'speedup'."
        )


def _items(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _sizes(option: str, text: str) -> tuple[str, list[int]]:
    """`batch=1,2,4` -> ("batch", [1, 2, 4])."""
    name, equals, rest = text.partition("=")
    if not equals or not name.strip() or not _items(rest):
        raise UsageError("bad-scale", f"{option} {text!r} names no sizes.", "Write it as batch=1,2,4.")
    return name.strip(), [_whole(option, n) for n in _items(rest)]


def _whole(option: str, text: str) -> int:
    if not text.isdigit():
        raise UsageError("bad-scale", f"{option} has {text!r}, no whole number.", "Write it as 1,2,4.")
    return int(text)


def _interpreters(given: list[str]) -> Any:
    named = {k: v for k, equals, v in (text.partition("=") for text in given) if equals}
    plain = [text for text in given if "=" not in text]
    if (named and plain) or len(plain) > 1:
        raise UsageError(
            "bad-interpreters",
            f"--python was given as {', '.join(given)}.",
            "Give one interpreter for all, or BACKEND=INTERPRETER for each.",
        )
    return named or (plain[0] if plain else sys.executable)
