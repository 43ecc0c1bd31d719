"""`luxmeter repeats`: runs that differ only in their seed, as one row with mean and interval."""

from __future__ import annotations

import sys

import typer

from luxmeter.errors import UsageError
from luxmeter.render import counted, print_json


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(epilog="Example: luxmeter repeats 'name = mnist' --metric acc --baseline 'mnist lr=0.1'")
    def repeats(
        where: str = typer.Argument(
            "", help="Which runs: a filter such as 'name = mnist and param.lr > 0.1'."
        ),
        metric: list[str] = typer.Option(
            [], "--metric", "-m", help="One: variants are tested. Several: a column each."
        ),
        of: str = typer.Option("last", help="last, min or max of each run."),
        baseline: str = typer.Option("", help="Test against this variant (its label, or a run of it)."),
        best: str = typer.Option("", help="high or low; else the metric's name tells."),
        correction: str = typer.Option("holm", help="holm, fdr or none."),
        paired: bool = typer.Option(False, "--paired", help="Compare seed by seed."),
        alpha: float = typer.Option(0.05, help="The share of false alarms that is accepted."),
        power: float = typer.Option(0.8, help="How often a difference that is there is to be seen."),
        matters: float | None = typer.Option(None, help="The smallest difference worth showing."),
        any_code: bool = typer.Option(False, "--any-code", help="Compare runs even if their code differs."),
        archived: bool = typer.Option(False, "--archived", help="Also archived runs."),
        as_json: bool = typer.Option(False, "--json", help="For machines."),
    ) -> None:
        """Mean and confidence interval over seeds; with one metric, which variants differ beyond chance."""
        from luxmeter.experiment import find_repeats, repeat_table, variant_table
        from luxmeter.store import Lab

        if (baseline or paired or best or matters is not None) and len(metric) != 1:
            raise UsageError(
                "repeats-one-metric",
                f"Variants are tested in one metric; {len(metric)} are named.",
                "Name it with --metric.",
            )
        lab = Lab.open(create=False)
        try:
            groups = find_repeats(lab, where, code=not any_code, archived=None if archived else False)
        finally:
            lab.close()
        groups = [group for group in groups if group.members]
        if not groups:
            raise UsageError(
                "no-repeats", f"No finished run fulfils {where!r}.", "luxmeter runs lists what there is."
            )
        if len(metric) == 1:
            table = variant_table(
                groups, metric[0], of=of, baseline=baseline or None, best=best or None,
                correction=correction, paired=paired, alpha=alpha, power=power, matters=matters,  # type: ignore[arg-type]
            )  # fmt: skip
            if as_json:
                facts = {"metric": table.metric, "reference": table.reference.label, "note": table.note}
                print_json(
                    {**facts, "correction": table.correction, "tests": table.tests, "rows": table.records()}
                )
            else:
                table.print()
        else:
            wide = repeat_table(groups, metric, of=of)
            if as_json:
                print_json(wide.records())
            else:
                wide.print()
        left = sum(len(group.left_out) for group in groups)
        if left and not as_json:
            sys.stdout.write(
                f"{counted(left, 'run')} left out: not finished, or of a seed that was run again\n"
            )
