"""Declared options (luxmeter.options) on a command line."""

from __future__ import annotations

import argparse
import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from typing import Any

import typer

from luxmeter.options import Option, declared
from luxmeter.view.completion import complete_run


def run_argument(default: Any = ..., *, help: str, metavar: str | None = None) -> Any:
    """A command's argument that names a run, or what a run holds: its help, and what Tab offers."""
    return typer.Argument(default, help=help, metavar=metavar, autocompletion=complete_run)


def run_option(*names: str, help: str, metavar: str = "RUN") -> Any:
    """As `run_argument`, of an option that may be left out."""
    return typer.Option("", *names, metavar=metavar, help=help, autocompletion=complete_run)


def takes(
    options: type | tuple[type, ...], *names: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these options, or all, in place of its parameter `given`, which then holds those that were given."""
    known: dict[str, Option] = {}
    for one in options if isinstance(options, tuple) else (options,):
        known |= declared(one)
    chosen = [known[name] for name in names or known]

    def with_options(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(luxmeter_context: typer.Context, **values: Any) -> None:
            given = {}
            for each in chosen:
                value, source = values.pop(each.name), luxmeter_context.get_parameter_source(each.name)
                if source is not None and source.name == "COMMANDLINE":
                    given[each.name] = not value if each.default is True else value
            command(**values, given=given)

        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            parameters += map(_parameter, chosen) if parameter.name == "given" else [parameter]
        context = inspect.Parameter("luxmeter_context", _KEYWORD, annotation=typer.Context)
        run.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[p.replace(kind=_KEYWORD) for p in (context, *parameters)]
        )
        run.__annotations__ = {p.name: p.annotation for p in (context, *parameters)}
        return run

    return with_options


_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def _parameter(option: Option) -> inspect.Parameter:
    """As typer takes it."""
    least = option.check.least if option.check else None
    default = option.default
    if option.many:
        default = None
    elif isinstance(default, tuple):
        default = ",".join(default)
    flags, said = option.flags, option.help
    if default is True:
        default, flags, said = False, (f"--no-{flags[0][2:]}",), f"Do not {said[0].lower()}{said[1:]}"
    offered = complete_run if option.metavar == "RUN" else None
    shown: Any = typer.Option(
        default,
        *flags,
        min=least,
        metavar=option.metavar,
        help=said,
        autocompletion=offered,
        show_default=default != sys.executable,  # a path of this machine
    )
    kind: Any = list[option.kind] if option.many else option.kind  # type: ignore[name-defined]
    return inspect.Parameter(
        option.name, _KEYWORD, default=shown, annotation=kind | None if default is None else kind
    )


def add_arguments(parser: argparse.ArgumentParser, options: type, names: Iterable[str]) -> None:
    """Give a parser these options; what is not given is not set."""
    for option in (declared(options)[name] for name in names):
        how: Any = {"action": "append"} if option.many else {"type": option.kind}
        if option.kind is bool:
            how = {"action": "store_true"}
        parser.add_argument(*option.flags, dest=option.name, default=argparse.SUPPRESS, **how)
