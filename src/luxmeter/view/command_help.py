"""How `--help` reads: commands in their groups, each with its whole first sentence, in the terminal's width; what an option takes is a word.

`Help` is the class of our groups of commands: typer makes a command's parameters, we say how they are shown.
"""

from __future__ import annotations

import re
import shutil
from functools import partial
from typing import Any, ClassVar, get_args

from typer.core import TyperGroup

_WIDEST = 110  # a line that is longer is hard to read
# Of options whose name does not say what they take: by how the parameter is called.
_WORDS = {
    "band": "KIND", "best": "WHICH", "by": "WHAT", "dim": "NAME=SIZE", "dims": "NAME=SIZE", "env": "NAME=VALUE", "ignore": "METRIC",
    "input_size": "SIZE", "inputs": "SIZE", "keep": "PATH", "lines_in": "PACKAGES", "links": "PATH", "modules": "MODULE", "of": "WHICH", "on": "WHICH",
    "only": "PATTERN", "param": "NAME=VALUE", "plot": "KIND", "remove": "TAG", "resume": "RUN", "scale": "NAME=SIZES",
    "scales": "NAME=SIZES", "setup": "MODULE", "skip": "PATTERN", "sort": "FIELDS", "tags": "TAG", "where": "FILTER",
}  # fmt: skip


def context_settings() -> dict[str, Any]:
    """For the application: its help is as wide as the terminal."""
    return {"max_content_width": min(shutil.get_terminal_size().columns, _WIDEST)}


class Help(TyperGroup):
    """A group of commands whose help names them by what they are for."""

    titles: ClassVar[dict[str, tuple[str, ...]]] = {}  # title -> the commands under it; empty: no groups

    def add_command(self, cmd: Any, name: str | None = None) -> None:
        """Take a command in."""
        super().add_command(cmd, name)
        _name_values(cmd)

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for command in self.commands.values():
            _name_values(command)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The commands, each with its first sentence."""
        titles = self.titles or {"Commands": tuple(self.commands)}
        width = max(map(len, self.commands), default=0)
        for title, names in titles.items():
            rows = [
                (name.ljust(width), _first_sentence(self.commands[name].help or ""))
                for name in names
                if name in self.commands
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _first_sentence(text: str) -> str:
    """Without its full stop, as a list of summaries is read."""
    paragraph = " ".join(text.strip().partition("\n\n")[0].split())
    return re.split(r"(?<=[a-z)\]`])\. (?=[A-Z`])", paragraph)[0].rstrip(".")


def _name_values(command: Any) -> None:
    """A word for what each option takes, where its declaration has none: its own name, or N for a number."""
    for parameter in command.params:
        if parameter.param_type_name == "option":
            if parameter.metavar is None and not getattr(parameter, "is_flag", False):
                parameter.metavar = _word(parameter)
        elif hasattr(
            parameter, "_usage_display_name"
        ):  # of a typer that writes {name} and <type> for an argument
            parameter.metavar = parameter.metavar or str(parameter.name).upper()
            parameter.display_type_rich = lambda ctx: None
            parameter._usage_display_name = partial(_usage, parameter)


def _usage(argument: Any) -> str:
    if argument.metavar.startswith("["):
        return str(argument.metavar)
    many = "..." if argument.nargs != 1 and not argument.metavar.endswith(("...", "]")) else ""
    return f"{argument.metavar}{many}" if argument.required else f"[{argument.metavar}{many}]"


def _word(parameter: Any) -> str:
    described = getattr(parameter, "type_descriptor", None)
    kind = getattr(described.annotation, "__name__", "") if described else parameter.type.name
    if described and get_args(described.annotation):
        kind = get_args(described.annotation)[0].__name__
    if kind.startswith("int"):
        return "N"
    if kind.startswith("float"):
        return "X"
    if kind.lower() in ("path", "file"):
        return "PATH"
    name = str(parameter.name)
    return _WORDS.get(name, name.upper().replace("_", "-"))
