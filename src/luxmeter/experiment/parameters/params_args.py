"""The command line and the environment as a source of parameters, and the `--help` that goes with them."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from luxmeter.errors import UsageError
from luxmeter.experiment.parameters.params_tree import Text, is_node, walk
from luxmeter.literal import show

if TYPE_CHECKING:
    from luxmeter.experiment.parameters.params import BaseParams

_FLAG_WORDS = ("true", "false", "True", "False", "1", "0", "yes", "no", "on", "off")


@dataclass
class CommandLine:
    """What a command line says: values by dotted name, files to read first, and whether help is wanted."""

    texts: dict[str, Any] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    wants_help: bool = False


def arguments_of_process() -> list[str]:
    """The arguments of this program; none in a notebook, whose command line is the kernel's own."""
    if "ipykernel" in sys.modules and Path(sys.argv[0]).name == "ipykernel_launcher.py":
        return []
    return sys.argv[1:]


def read(params: BaseParams, argv: Sequence[str]) -> CommandLine:
    """Divide a command line into names and texts; what is neither is refused."""
    line = CommandLine()
    rest = list(argv)
    while rest:
        token = rest.pop(0)
        if token in ("-h", "--help"):
            line.wants_help = True
        elif token.startswith("@") and len(token) > 1:
            line.files.append(token[1:])
        elif token.startswith("--") and len(token) > 2:
            name, has_value, text = token[2:].partition("=")
            if has_value:
                line.texts[_known_name(params, name)] = Text(text)
            else:
                _read_bare(params, name, rest, line)
        elif "=" in token and not token.startswith(("-", "=")):
            name, _, text = token.partition("=")
            line.texts[_known_name(params, name)] = Text(text)
        else:
            raise UsageError(
                "stray-argument",
                f"{token!r} on the command line belongs to no parameter.",
                "Write --name=value, or @file for a file of parameters; --help lists the names.",
            )
    return line


def _read_bare(params: BaseParams, name: str, rest: list[str], line: CommandLine) -> None:
    """An option without `=`: a flag, or the next argument is its value."""
    known = _known_name(params, name)
    is_flag = _is_flag(params, known)
    follows = bool(rest) and (rest[0] in _FLAG_WORDS if is_flag else _is_value(rest[0]))
    negated = _known_name(params, name[3:]) if name.startswith("no-") else ""
    if follows:
        line.texts[known] = Text(rest.pop(0))
    elif negated and _is_flag(params, negated):
        line.texts[negated] = False
    elif _can_be_flag(params, known):
        line.texts[known] = True
    else:
        raise UsageError(
            "option-without-value",
            f"--{name} on the command line has no value.",
            f"Write --{name}=VALUE.",
        )


def _is_value(token: str) -> bool:
    """Anything that is not an option; `-1` and `-.5` are numbers, not options."""
    return not token.startswith("-") or token == "-" or token[1:2].isdigit() or token[1:2] == "."


def _known_name(params: BaseParams, name: str) -> str:
    """The name as the parameters spell it: `--batch-size` is `batch_size` unless the dash is theirs."""
    return name if name in params or "-" not in name else name.replace("-", "_")


def _is_flag(params: BaseParams, name: str) -> bool:
    parts = tuple(name.split("."))
    node = walk(params, parts)
    if node is None:
        return False
    declared = node._fields().get(parts[-1])
    return declared.is_flag if declared else isinstance(node._values.get(parts[-1]), bool)


def _can_be_flag(params: BaseParams, name: str) -> bool:
    """Whether True fits: a new name, a declared type that takes a bool as it is, or no other value so far."""
    parts = tuple(name.split("."))
    node = walk(params, parts)
    if node is None:
        return True
    declared = node._fields().get(parts[-1])
    if declared is not None:
        return declared.takes_bool()
    return isinstance(node._values.get(parts[-1]), bool | None)


def from_environment(params: BaseParams, prefix: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """The variables that begin with `prefix`, as dotted names: `__` divides the levels, case does not count."""
    known = {_variable(name): name for name in _all_names(params)}
    found: dict[str, Any] = {}
    for variable, text in environ.items():
        if not variable.upper().startswith(prefix.upper()):
            continue
        rest = variable[len(prefix) :].upper()
        if rest in known:
            found[known[rest]] = Text(text)
        elif prefix and rest.strip("_"):
            found[rest.lower().replace("__", ".")] = Text(text)
    return found


def _variable(name: str) -> str:
    return name.replace(".", "__").replace("-", "_").upper()


def _all_names(params: BaseParams, owner: str = "") -> list[str]:
    """Every dotted name that has a value or is declared."""
    names: list[str] = []
    for name in {**params._fields(), **params._values}:
        value = params._values.get(name)
        if is_node(value) and value._values:
            names += _all_names(value, f"{owner}{name}.")
        else:
            names.append(owner + name)
    return names


def help_text(params: BaseParams, *, program: str, width: int) -> str:
    """Every parameter with its type, default, bound and description, and how to write values."""
    rows = [(f"--{name}={kind}", text) for name, kind, text in _rows(params)]
    column = max((len(option) for option, _ in rows if len(option) <= 28), default=0) + 4
    lines = [f"usage: {program} [--NAME=VALUE ...] [@FILE ...]", ""]
    about = (type(params).__doc__ or "").strip().split("\n\n")[0] if type(params)._has_own_doc() else ""
    if about:
        lines += [*textwrap.wrap(" ".join(about.split()), width), ""]
    lines.append(f"parameters ({type(params).__name__}):")
    for option, text in rows:
        wrapped = textwrap.wrap(text, max(20, width - column)) or [""]
        if len(option) + 4 > column:
            lines.append(f"  {option}")
            lines += [" " * column + part for part in wrapped]
        else:
            lines.append(f"  {option}".ljust(column) + wrapped[0])
            lines += [" " * column + part for part in wrapped[1:]]
    closing = "Other names are new parameters." if params._takes_new_names else "Other names are refused."
    lines += ["", *textwrap.wrap(f"{closing} @FILE reads a YAML, TOML or JSON file.", width)]
    return "\n".join(lines) + "\n"


def _rows(params: BaseParams, owner: str = "") -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    for name in {**params._fields(), **params._values}:
        declared, value = params._fields().get(name), params._values.get(name)
        if is_node(value):
            rows += _rows(value, f"{owner}{name}.")
            continue
        kind = declared.type_text if declared else type(value).__name__
        facts = [f"default: {show(value)}" if name in params._values else "required"]
        if name in params._bounds:
            facts.append(f"allowed: {params._bounds[name]}")
        about = f"{declared.help} " if declared and declared.help else ""
        rows.append((owner + name, kind, f"{about}({'; '.join(facts)})"))
    return rows


def show_help(params: BaseParams) -> None:
    """Print the help for this program."""
    program = Path(sys.argv[0] or "program").name
    width = max(40, min(shutil.get_terminal_size().columns, 110))
    sys.stdout.write(help_text(params, program=program, width=width))
