"""`luxmeter model`: what a model costs, alone or beside others."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from luxmeter.errors import UsageError, suggestion
from luxmeter.render import print_json

if TYPE_CHECKING:
    from luxmeter.model import ModelComparison, ModelCost
from luxmeter.view.options import run_option


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(
        epilog="Example: luxmeter model mypackage.nets:small --input 1,3,224,224 --against mypackage.nets:large"
    )
    def model(
        factory: str = typer.Argument(
            help="Where the model comes from: package.module:factory or file.py:factory."
        ),
        inputs: list[str] = typer.Option(
            ...,
            "--input",
            "-i",
            help="Size of an input, batch first: 1,3,224,224, 1,128:int64 or name=1,128:int64. Repeat for several.",
        ),
        against: list[str] = typer.Option(
            [],
            "--against",
            "-a",
            metavar="FACTORY",
            help="Another factory to put beside it. Repeat for several.",
        ),
        depth: int = typer.Option(2, "--depth", "-d", min=0, help="How deep the tree is shown."),
        dtype: str = typer.Option("", "--dtype", help="As if the weights had this type: bfloat16, float16."),
        optimizer: str = typer.Option(
            "adamw", "--optimizer", help="Whose state is counted: sgd, adam, adafactor, none."
        ),
        device: str = typer.Option(
            "auto", "--device", help="auto, meta (never compute) or cpu (run for real)."
        ),
        forward_only: bool = typer.Option(
            False, "--forward-only", help="Leave the training step and the optimizer out."
        ),
        latency: bool = typer.Option(False, "--latency", help="Measure forward passes too."),
        batch: list[int] = typer.Option(
            [], "--batch", "-b", help="Measure latency for this batch size too. Repeat."
        ),
        memory: bool = typer.Option(False, "--memory", help="Show what training needs, by optimizer."),
        into: str = run_option("--into", help="Put the result into this run: RUN/model."),
        as_json: bool = typer.Option(False, "--json", help="For machines."),
        csv: Path | None = typer.Option(
            None, "--csv", help="Write one line a module to this file (models put beside it: FILE-name.csv)."
        ),
        html: Path | None = typer.Option(
            None, "--html", help="Write a page to this file; several models stand side by side on it."
        ),
    ) -> None:
        """What a model costs: parameters, MACs, FLOPs, memory, and with --latency its time."""
        from luxmeter.view.named import into_run, run_for

        given = _inputs(inputs)
        options: dict[str, Any] = {
            "dtype": dtype or None, "optimizer": None if optimizer == "none" else optimizer, "device": device,
            "backward": not forward_only, "latency": batch or latency,
        }  # fmt: skip
        meta = not (latency or batch or device == "cpu")
        with into_run(run_for(into)):
            costs = [_cost(one, given, meta=meta, options=options) for one in (factory, *against)]
        for number, cost in enumerate(costs):
            if csv is not None:
                target = _beside(csv, number, [c.name for c in costs])
                cost.to_csv(target)
                sys.stderr.write(f"wrote {target}\n")
        if html is not None:
            from luxmeter.view import models_page

            if len(costs) > 1:
                models_page(costs, html)
            else:
                costs[0].to_html(html)
            sys.stderr.write(f"wrote {html}\n")
        _shown(costs, depth=depth, as_json=as_json, memory=memory)


def _cost(factory: str, given: Any, *, meta: bool, options: dict[str, Any]) -> ModelCost:
    from luxmeter.model import analyze

    name = factory.rpartition(":")[2] or factory
    try:
        return analyze(_built(factory, meta=meta), given, name=name, **options)
    except UsageError as error:
        if options["device"] != "auto" or not isinstance(error.__cause__, NotImplementedError):
            raise
        return analyze(_built(factory, meta=False), given, name=name, **options)  # it looks at values


def _beside(path: Path, number: int, names: list[str]) -> Path:
    """The file of one of several models: the first has the path as it was given, the others their name in it."""
    if number == 0:
        return path
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in names[number])
    twice = names[number] in names[:number]
    return path.with_name(f"{path.stem}-{name}{f'-{number}' if twice else ''}{path.suffix}")


def _shown(costs: list[ModelCost], *, depth: int, as_json: bool, memory: bool) -> None:
    from luxmeter.model import compare_models

    together = compare_models(costs) if len(costs) > 1 else None
    if as_json:
        whole = [cost.to_dict() for cost in costs]
        print_json(whole[0] if together is None else {"models": whole, "comparison": together.to_dict()})
        return
    for cost in costs:
        cost.show(depth=depth, memory=memory)
        sys.stdout.write("\n")
    if together is not None:
        side_by_side(together)


def side_by_side(together: ModelComparison) -> None:
    """Print several models' costs, each with its ratio to the first one's."""
    from luxmeter.view.text.model import comparison_table

    comparison_table(together).print()


def _inputs(texts: list[str]) -> Any:
    """Sizes from the command line -> positional inputs, or keyword inputs if they are named."""
    from luxmeter.model import parse_size

    named = {}
    positional = []
    for text in texts:
        name, equals, rest = text.partition("=")
        if equals:
            named[name.strip()] = parse_size(rest)
        else:
            positional.append(parse_size(text))
    if named and positional:
        raise UsageError(
            "inputs-twice",
            f"Some of the inputs {', '.join(texts)} have a name and some have none.",
            "Name all of them (--input ids=1,128:int64) or none.",
        )
    return named or tuple(positional)


def _built(reference: str, *, meta: bool) -> Any:
    """The model that `package.module:factory` gives; without memory if it allows that."""
    module, colon, attribute = reference.rpartition(":")
    if not colon or not module or not attribute:
        raise UsageError(
            "bad-factory",
            f"{reference!r} names no factory.",
            "Write it as package.module:factory or file.py:factory.",
        )
    found: Any = _module(module)
    for part in attribute.split("."):
        if not hasattr(found, part):
            near = suggestion(part, [n for n in dir(found) if not n.startswith("_")])
            raise UsageError(
                "bad-factory", f"{module} has no {attribute!r}.", near or "Check the name behind the colon."
            )
        found = getattr(found, part)
    import torch

    if isinstance(found, torch.nn.Module):
        return found
    if not callable(found):
        raise UsageError(
            "bad-factory",
            f"{reference} is a {type(found).__name__}.",
            "Name a function or class that makes the model.",
        )
    if meta:
        try:
            with torch.device("meta"):
                return found()
        except Exception:  # noqa: BLE001 - some models compute while they are built: then with memory
            return found()
    return found()


def _module(module: str) -> Any:
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
    try:
        if module.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(module).stem, module)
            if spec is None or spec.loader is None or not Path(module).is_file():
                raise UsageError(
                    "bad-factory", f"There is no file {module}.", "Check the path before the colon."
                )
            loaded = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(loaded)
            return loaded
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(
            "bad-factory",
            f"{module} cannot be imported: {error}.",
            "Run from the folder that has it, or install it.",
        ) from error
    finally:
        sys.path.remove(str(Path.cwd()))
