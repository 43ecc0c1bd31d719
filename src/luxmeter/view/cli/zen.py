"""`luxmeter zen`: score an architecture without training it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from luxmeter.errors import UsageError
from luxmeter.view.cli.model import _built

if TYPE_CHECKING:
    from torch import nn


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(epilog="Example: luxmeter zen 'SuperConvK3BNRELU(3,8,1,1)SuperResK3K3(8,16,2,8,1)'")
    def zen(
        structure: str = typer.Argument(
            help="A structure string, a file that holds one, or package.module:factory of any model."
        ),
        input_size: str = typer.Option("16,3,32,32", "--input", "-i", help="Batch, channels, height, width."),
        repeat: int = typer.Option(4, help="Repetitions; more narrow the interval."),
        mode: str = typer.Option(
            "stationary", help="stationary, or published: what the authors' code gives."
        ),
        seed: int = typer.Option(0, help="For weights and inputs."),
        gamma: float = typer.Option(0.01, help="How strongly the input is changed."),
        classes: int | None = typer.Option(None, help="Count a classifier for this many classes."),
        se: bool = typer.Option(False, "--se", help="Build all residual blocks with squeeze and excitation."),
        as_json: bool = typer.Option(False, "--json", help="For machines."),
    ) -> None:
        """The Zen score of a network without training, with its size and multiply-adds."""
        from luxmeter.model.plainnet import PlainNet
        from luxmeter.model.zen import zen_score
        from luxmeter.render.tables import print_json

        size = numbers(input_size)
        if ":" in structure and "(" not in structure:
            net = _built(structure, meta=False)
        else:
            net = PlainNet(structure_text(structure), num_classes=classes, use_se=se)
        score = zen_score(net, input_size=size, repeat=repeat, gamma=gamma, seed=seed, mode=mode)
        facts = facts_of(net, size)
        if as_json:
            print_json(
                {
                    "zen": score.value,
                    "precision": score.precision,
                    "mode": mode,
                    "scores": list(score.scores),
                    **facts,
                }
            )
            return
        width = f" ± {score.precision:.2f}" if repeat > 1 else ""
        sys.stdout.write(
            f"Zen score   {score.value:.2f}{width} ({mode}, {repeat} x {size[0]} images of "
            f"{size[2]}x{size[3]}, seed {seed})\n"
            f"parameters  {facts['params']:,}\n"
            f"FLOPs       {facts['flops']:,} (multiply-adds of one image)\n"
        )


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
    if "(" not in given and Path(given).is_file():
        return Path(given).read_text(encoding="utf-8")
    return given


def facts_of(net: nn.Module, size: tuple[int, ...]) -> dict[str, int | str]:
    """Parameters and multiply-adds of one image, and the structure of a PlainNet."""
    from luxmeter.model.analyze import analyze
    from luxmeter.model.plainnet import PlainNet

    cost = analyze(net, input_size=(1, *size[1:]), backward=False)
    structure = {"structure": str(net)} if isinstance(net, PlainNet) else {}
    return {"params": cost.params, "flops": cost.macs, **structure}
