"""`luxmeter show`: everything about one run, or about what it holds: a trace, a benchmark, a model's cost."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from luxmeter.errors import UsageError
from luxmeter.plain_text import one_line, plain
from luxmeter.render import print_json, terminal_width
from luxmeter.view.options import run_argument

if TYPE_CHECKING:
    from luxmeter.view.named import Named


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(
        epilog="Example: luxmeter show latest; luxmeter show latest/trace; luxmeter show k3x7p/bench~1; luxmeter show latest/trace --source"
    )
    def show(
        what: str = run_argument(
            "latest",
            help="A run (id, name, tag, latest~1, path), what it holds (RUN/trace, RUN/bench~1, RUN/model), a trace or a file.",
        ),
        log: bool = typer.Option(False, "--log", help="What the program printed, and nothing else."),
        error: bool = typer.Option(
            False, "--error", help="The whole traceback of one that failed, and nothing else."
        ),
        system: bool = typer.Option(False, "--system", help="The machine's metrics too."),
        ranks: bool = typer.Option(False, "--ranks", help="What other ranks than 0 logged too."),
        stragglers: bool = typer.Option(
            False,
            "--stragglers",
            help="Of a trace: which rank made the others wait, and in which collective.",
        ),
        rank: int | None = typer.Option(
            None, "--rank", min=0, help="Of a trace: the calls of this rank alone."
        ),
        by: str = typer.Option(
            "",
            "--by",
            help="Of a trace: the table by signature, line, function, module, section, thread or rank.",
        ),
        source: bool = typer.Option(
            False, "--source", help="Of a trace: your files, with what the calls of each line cost."
        ),
        steps: bool = typer.Option(
            False,
            "--steps",
            help="Of a trace: its training steps, how they split, the slowest, and their drift.",
        ),
        as_json: bool = typer.Option(False, "--json", help="For machines."),
    ) -> None:
        """Show a run: how it was made, parameters, metrics with their curves, results, code, files, output; or one of its results."""
        from luxmeter.view.named import named
        from luxmeter.view.text.run import write_page

        found = named(what)
        if stragglers or rank is not None or by or source or steps:
            how = {
                "--stragglers": stragglers,
                "--steps": steps,
                "--source": source,
                "--by": bool(by),
                "--rank": rank is not None,
            }
            path = _trace_for(what, found, [name for name, said in how.items() if said])
            if stragglers:
                _show_stragglers(path, as_json)
            else:
                _show_trace(path, as_json, rank, by, source=source, steps="" if steps else None)
        elif found.run is None:
            if log or error or system or ranks:
                asked = "--log" if log else "--error" if error else "--system" if system else "--ranks"
                raise UsageError(
                    "show-run-only",
                    f"{what} is no run, and {asked} shows something of a run.",
                    "Leave it out, or name the run.",
                )
            _SHOW[found.kind](found.path, as_json)
        elif log or error:
            text = found.run.log_text if log else found.run.error
            sys.stdout.write(plain(text) if sys.stdout.isatty() else text)
        elif as_json:
            print_json(found.run.record())
        else:
            width = shutil.get_terminal_size((100, 24)).columns
            write_page(found.run, sys.stdout, width=width, system=system, ranks=ranks)


def _trace_of(found: Named) -> Path | None:
    if found.run is None:
        return found.path if found.kind == "trace" else None
    made = found.run.results("trace")
    return made[-1].folder if made else None


def _trace_for(what: str, found: Named, asked: list[str]) -> Path:
    """The trace that is meant; refused where there is none, or where two are asked for that exclude each other."""
    path = _trace_of(found)
    if path is None:
        raise UsageError(
            "show-trace-only",
            f"{what} is no trace and has none, and {asked[0]} shows something of a trace.",
            "Leave it out, or name a trace: RUN/trace.",
        )
    others = [name for name in asked[1:] if name != "--rank" or asked[0] == "--stragglers"]
    if others:
        raise UsageError(
            "show-trace-only",
            f"{asked[0]} shows one thing of a trace, and {others[0]} another.",
            "Leave out the one or the other.",
        )
    return path


def _show_stragglers(path: Path, as_json: bool) -> None:
    from luxmeter.calls import load_trace

    found = load_trace(path).stragglers()
    if as_json:
        print_json(found.to_dict())
    else:
        sys.stdout.write(f"{found.text(terminal_width(sys.stdout))}\n")


def _show_trace(
    path: Path,
    as_json: bool,
    rank: int | None = None,
    by: str = "",
    *,
    source: bool = False,
    steps: str | None = None,
) -> None:
    from luxmeter.view.saved_trace import show_saved
    from luxmeter.view.startup import make_request

    asked = make_request(
        {"by": by, "source": source, "steps": steps is not None, "section": steps or ""}, who="luxmeter show"
    )
    show_saved(str(path), asked, window="", depth=None, as_json=as_json, rank=rank)


def _show_benchmark(path: Path, as_json: bool) -> None:
    from luxmeter.operators import load_benchmark

    found = load_benchmark(path)
    if as_json:
        print_json(found.records())
    else:
        found.show()


def _show_check(path: Path, as_json: bool) -> None:
    from luxmeter.operators import load_check

    found = load_check(path)
    if as_json:
        print_json(found.to_dict())
    else:
        found.show()


def _show_operators(path: Path, as_json: bool) -> None:
    from luxmeter.operators import load_operators
    from luxmeter.view.cli.ops import print_operators

    print_operators(load_operators(path), as_json=as_json)


def _show_model(path: Path, as_json: bool) -> None:
    from luxmeter.model import load_cost

    found = load_cost(path)
    if as_json:
        print_json(found.to_dict())
    else:
        found.show()


def _show_score(path: Path, as_json: bool) -> None:
    from luxmeter.model import TITLES, load_score, read_score

    found, said = load_score(path), read_score(path)
    if as_json:
        print_json(said)
        return
    title = TITLES.get(said["score"]) or one_line(said["score"])
    sizes = "x".join(map(str, said["input_size"]))
    mode = f"{one_line(found.mode)}, " if found.mode else ""
    sys.stdout.write(
        f"{title:10}  {found.value:.2f} ± {found.precision:.2f} ({mode}{len(found.scores)} x {sizes}, seed {said['seed']})\n"
        f"model       {one_line(said['model'])}\n"
    )


def _show_search(path: Path, as_json: bool) -> None:
    from luxmeter.model import load_search
    from luxmeter.view.cli.search import show_search

    show_search(load_search(path), top=5, as_json=as_json)


def _show_evaluation(path: Path, as_json: bool) -> None:
    from luxmeter.train import load_evaluation

    found = load_evaluation(path)
    if as_json:
        print_json(found.to_dict())
    else:
        found.show()


_SHOW = {
    "trace": _show_trace,
    "ops": _show_operators,
    "bench": _show_benchmark,
    "check": _show_check,
    "model": _show_model,
    "zen": _show_score,
    "search": _show_search,
    "eval": _show_evaluation,
    "file": _show_benchmark,
}
