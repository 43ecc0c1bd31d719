"""Functions called by the names of their arguments: parts of a model, losses and evaluators take what they need by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import nn

from luxmeter.errors import UsageError, near_names
from luxmeter.train.registries import about

Inputs = str | Sequence[str] | Mapping[str, str] | None  # which entries go into which arguments

IN_TASK = "task."  # before the keys of what a task is made of: whoever builds a task adds it where that fails
_OF_TORCH = ("input", "target")  # what torch's losses call theirs: the model's inputs are not meant


class Argument(NamedTuple):
    """An argument of a function, and the entry that goes into it."""

    name: str  # empty: by position
    entry: str
    required: bool


@dataclass(frozen=True)
class Arguments:
    """What a function takes of the entries there are. It does not hold the function: a copied model has its own."""

    who: str
    wanted: tuple[Argument, ...]
    chosen: bool  # by whoever wrote `inputs`, not by the function's own names
    key: str = ""  # of the config that says it

    def call(self, function: Callable[..., Any], entries: Mapping[str, Any]) -> Any:
        """Call the function with them."""
        ordered, named = [], {}
        for name, entry, required in self.wanted:
            if entry in entries:
                if name:
                    named[name] = entries[entry]
                else:
                    ordered.append(entries[entry])
            elif required:
                raise self._absent(name, entry, entries)
        return function(*ordered, **named)

    @property
    def only(self) -> Argument | None:
        """The one that is required, if there is just one and nobody chose an entry for it."""
        required = [one for one in self.wanted if one.required]
        return required[0] if len(required) == 1 and not self.chosen else None

    def _absent(self, name: str, entry: str, entries: Mapping[str, Any]) -> UsageError:
        there = [one for one in entries if one not in ("model_outputs", "model_inputs")]
        say = "" if self.chosen else f', and inputs={{"{name}": "..."}} says which it is'
        near = "" if entry in _OF_TORCH and not self.chosen else near_names(entry, there)
        error = UsageError(
            "no-such-entry",
            f"{self.who} takes {entry!r}, which is not there.",
            f"There are {', '.join(map(str, there)) or 'none'}{say}. {near}".strip(),
        )
        return about(error, f"{self.key}.inputs.{name}" if self.chosen and self.key else self.key)


def arguments_of(
    function: Callable[..., Any], inputs: Inputs = None, *, who: str, key: str = ""
) -> Arguments:
    """What a function takes: entries of the names of its arguments, or those that `inputs` says.

    `inputs`: argument -> entry, or entries in order. Without it optional arguments are filled if their entry is there.
    `key` is where a config says it, for messages.
    """
    called = function.forward if isinstance(function, nn.Module) else function
    try:
        parameters = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):  # written in C
        parameters = None
    if isinstance(inputs, str):
        inputs = [inputs]
    if inputs is not None and not isinstance(inputs, Mapping):
        return Arguments(who, tuple(Argument("", entry, True) for entry in inputs), chosen=True, key=key)
    if parameters is None:
        raise UsageError(
            "no-signature", f"{who} does not say what it takes.", 'Say it: inputs=["logits", "labels"].'
        )
    named = [one for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    if inputs is None:
        return Arguments(
            who,
            tuple(
                Argument("" if one.kind is one.POSITIONAL_ONLY else one.name, one.name, _is_required(one))
                for one in named
            ),
            chosen=False,
            key=key,
        )
    known = [one.name for one in named]
    for name in inputs:
        if name not in known and not any(one.kind is one.VAR_KEYWORD for one in parameters):
            error = UsageError(
                "no-such-argument",
                f"{who} has no argument {name!r}, which its inputs name.",
                near_names(name, known) or f"It takes {', '.join(known) or 'none'}.",
            )
            raise about(error, f"{key.removeprefix(IN_TASK)}.inputs.{name}" if key else "")
    wanted = [
        Argument(one.name, one.name, True) for one in named if _is_required(one) and one.name not in inputs
    ]
    wanted += [Argument(name, entry, True) for name, entry in inputs.items()]
    return Arguments(who, tuple(wanted), chosen=True, key=key)


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty
