"""`luxmeter zen`: score an architecture without training it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from luxmeter.errors import UsageError
from luxmeter.render import print_json
from luxmeter.view.cli.model import _built

if TYPE_CHECKING:
    from torch import nn

    from luxmeter.model import ZenScore
from luxmeter.view.options import run_option


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(epilog="Example: luxmeter zen 'SuperConvK3BNRELU(3,8,1,1)SuperResK3K3(8,16,2,8,1)'")
    def zen(
        structure: str = typer.Argument(
            help="A structure string, a file that holds one, or package.module:factory of any model."
        ),
        input_size: str = typer.Option("16,3,32,32", "--input", "-i", help="Batch, channels, height, width."),
        score: str = typer.Option("zen", help="zen, naswot, synflow or grad_norm (which needs --classes)."),
        repeat: int | None = typer.Option(
            None,
            help="Repetitions: with more of them the interval is narrower.  [default: 4 for zen, else 1]",
        ),
        mode: str | None = typer.Option(
            None,
            help="Of zen: stationary, or published: what the authors' code gives.  [default: stationary]",
        ),
        seed: int = typer.Option(0, help="For weights and inputs."),
        gamma: float | None = typer.Option(
            None, help="Of zen: how strongly the input is changed.  [default: 0.01]"
        ),
        classes: int | None = typer.Option(None, help="Count a classifier for this many classes."),
        se: bool = typer.Option(False, "--se", help="Build all residual blocks with squeeze and excitation."),
        into: str = run_option("--into", help="Put the result into this run: RUN/zen."),
        as_json: bool = typer.Option(False, "--json", help="For machines."),
    ) -> None:
        """The Zen score of a network without training (or another cheap score), with its size and multiply-adds."""
        from luxmeter.model import TITLES, PlainNet
        from luxmeter.view.named import into_run, run_for

        size = numbers(input_size)
        if ":" in structure and "(" not in structure:
            if se or classes is not None:
                raise UsageError(
                    "score-options",
                    f"{'--se' if se else '--classes'} was given with {structure}, which makes its model itself.",
                    "It is for structure strings: leave it out.",
                )
            net = _built(structure, meta=False)
        else:
            net = PlainNet(structure_text(structure), num_classes=classes, use_se=se)
        given = {"mode": mode, "gamma": gamma}
        with into_run(run_for(into)):
            found = _scored(net, score, size, seed, repeat, {k: v for k, v in given.items() if v is not None})
        facts = facts_of(net, size)
        if as_json:
            print_json(
                {
                    "score": score,
                    score: found.value,
                    "precision": found.precision,
                    "mode": found.mode,
                    "scores": list(found.scores),
                    **facts,
                }
            )
            return
        times = len(found.scores)
        width = f" ± {found.precision:.2f}" if times > 1 else ""
        how = f"{found.mode}, " if found.mode else ""
        images = f"{times} x {size[0]} images" if score != "synflow" else f"{times} x 1 image"
        sys.stdout.write(
            f"{TITLES[score]:10}  {found.value:.2f}{width} ({how}{images} of {size[2]}x{size[3]}, seed {seed})\n"
            f"parameters  {facts['params']:,}\n"
            f"MACs        {facts['macs']:,} (multiply-adds of one image; FLOPs are twice as many, and the element-wise work)\n"
        )


def _scored(
    net: nn.Module, score: str, size: tuple[int, ...], seed: int, repeat: int | None, of_zen: dict[str, Any]
) -> ZenScore:
    """The score of every repetition. Zen repeats by itself; the others are taken again with the next seed."""
    from luxmeter.model import ZenScore, put_score, score_named, zen_score
    from luxmeter.store import without_results

    if score == "zen":
        return zen_score(net, input_size=size, repeat=4 if repeat is None else repeat, seed=seed, **of_zen)
    compute = score_named(score)
    if of_zen:
        raise UsageError(
            "score-options",
            f"{' and '.join(f'--{name}' for name in of_zen)} was given, and {score} has none.",
            "Leave it out, or ask for --score zen.",
        )
    times = 1 if repeat is None else repeat
    if times < 1:
        raise UsageError("zen-repeat", f"repeat is {times}.", "Ask for at least 1 repetition.")
    with without_results():
        found = ZenScore(tuple(compute(net, input_size=size, seed=seed + turn) for turn in range(times)), "")
    return put_score(score, found, net, size, seed)


def numbers(text: str) -> tuple[int, ...]:
    """`16,3,32,32` as a tuple."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(
            "score-input-size", f"--input is {text!r}.", "Give batch, channels, height, width: 16,3,32,32."
        ) from None


def structure_text(given: str) -> str:
    """The structure itself, or what the file of that name holds."""
    if "(" in given:
        return given
    if not Path(given).is_file():
        raise UsageError(
            "no-structure",
            f"{given!r} is no structure string, and there is no such file.",
            "Write blocks as Name(...) one after another, or name a file that holds them.",
        )
    return Path(given).read_text(encoding="utf-8")


def facts_of(net: nn.Module, size: tuple[int, ...]) -> dict[str, int | str]:
    """Parameters and multiply-adds of one image, and the structure of a PlainNet."""
    from luxmeter.model import PlainNet, analyze

    cost = analyze(net, input_size=(1, *size[1:]), backward=False)
    structure = {"structure": str(net)} if isinstance(net, PlainNet) else {}
    return {"params": cost.params, "macs": cost.macs, **structure}
