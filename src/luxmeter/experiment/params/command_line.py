"""The command line and the environment as a source of parameters, and the `--help` that goes with them; and the
parameters of a program whose parser is not known."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from luxmeter.errors import UsageError
from luxmeter.experiment.params.declared import Declared
from luxmeter.experiment.params.level import Level, Text, level_of
from luxmeter.literal import parse, show

_OPTION = re.compile(r"--?[A-Za-z_][\w.-]*")
_ASSIGNED = re.compile(r"\+{0,2}(?P<name>[A-Za-z_][\w.-]*)=(?P<value>.*)", re.DOTALL)
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


def read(level: Level, argv: Sequence[str]) -> CommandLine:
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
                line.texts[_known_name(level, name)] = Text(text)
            else:
                _read_bare(level, name, rest, line)
        elif "=" in token and not token.startswith(("-", "=")):
            name, _, text = token.partition("=")
            line.texts[_known_name(level, name)] = Text(text)
        else:
            raise UsageError(
                "stray-argument",
                f"{token!r} on the command line belongs to no parameter.",
                "Write --name=value, or @file for a file of parameters; --help lists the names.",
            )
    return line


def _read_bare(level: Level, name: str, rest: list[str], line: CommandLine) -> None:
    """An option without `=`: a flag, or the next argument is its value."""
    known = _known_name(level, name)
    is_flag = _is_flag(level, known)
    follows = bool(rest) and (rest[0] in _FLAG_WORDS if is_flag else _is_value(rest[0]))
    negated = _known_name(level, name[3:]) if name.startswith("no-") else ""
    if follows:
        line.texts[known] = Text(rest.pop(0))
    elif negated and _is_flag(level, negated):
        line.texts[negated] = False
    elif _can_be_flag(level, known):
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


def _known_name(level: Level, name: str) -> str:
    """The name as the parameters spell it: `--batch-size` is `batch_size` unless the dash is theirs."""
    return name if name in level or "-" not in name else name.replace("-", "_")


def _known(level: Level, name: str) -> tuple[Declared | None, Any]:
    """What is declared of a dotted name, and its value; None where there is none."""
    parts = tuple(name.split("."))
    found = level.find(parts)
    return (None, None) if found is None else (found.fields.get(parts[-1]), found.values.get(parts[-1]))


def _is_flag(level: Level, name: str) -> bool:
    declared, value = _known(level, name)
    return declared.is_flag if declared else isinstance(value, bool)


def _can_be_flag(level: Level, name: str) -> bool:
    """Whether True fits: a new name, a declared type that takes a bool as it is, or no other value so far."""
    declared, value = _known(level, name)
    return declared.takes_bool() if declared else isinstance(value, bool | None)


def from_environment(level: Level, prefix: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """The variables that begin with `prefix`, as dotted names: `__` divides the levels, case does not count."""
    known = {_variable(name): name for name in _all_names(level)}
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


def _all_names(level: Level, owner: str = "") -> list[str]:
    """Every dotted name that has a value or is declared."""
    names: list[str] = []
    for name in {**level.fields, **level.values}:
        inner = level_of(level.values.get(name))
        if inner and inner.values:
            names += _all_names(inner, f"{owner}{name}.")
        else:
            names.append(owner + name)
    return names


def help_text(level: Level, about: str, *, program: str, width: int) -> str:
    """Every parameter with its type, default, bound and description, and how to write values."""
    rows = [(f"--{name}={kind}", text) for name, kind, text in _rows(level)]
    column = max((len(option) for option, _ in rows if len(option) <= 28), default=0) + 4
    lines = [f"usage: {program} [--NAME=VALUE ...] [@FILE ...]", ""]
    if about:
        lines += [*textwrap.wrap(" ".join(about.strip().split("\n\n")[0].split()), width), ""]
    lines.append(f"parameters ({level.kind.__name__}):")
    for option, text in rows:
        wrapped = textwrap.wrap(text, max(20, width - column)) or [""]
        if len(option) + 4 > column:
            lines.append(f"  {option}")
            lines += [" " * column + part for part in wrapped]
        else:
            lines.append(f"  {option}".ljust(column) + wrapped[0])
            lines += [" " * column + part for part in wrapped[1:]]
    closing = (
        "Other names are new parameters." if level.declaration.takes_new_names else "Other names are refused."
    )
    lines += ["", *textwrap.wrap(f"{closing} @FILE reads a YAML, TOML or JSON file.", width)]
    return "\n".join(lines) + "\n"


def _rows(level: Level, owner: str = "") -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    for name in {**level.fields, **level.values}:
        declared, value = level.fields.get(name), level.values.get(name)
        if inner := level_of(value):
            rows += _rows(inner, f"{owner}{name}.")
            continue
        kind = declared.type_text if declared else type(value).__name__
        facts = [f"default: {show(value)}" if name in level.values else "required"]
        if name in level.bounds:
            facts.append(f"allowed: {level.bounds[name]}")
        about = f"{declared.help} " if declared and declared.help else ""
        rows.append((owner + name, kind, f"{about}({'; '.join(facts)})"))
    return rows


def show_help(level: Level, about: str) -> None:
    """Print the help for this program; `about` says what the parameters are for."""
    program = Path(sys.argv[0] or "program").name
    width = max(40, min(shutil.get_terminal_size().columns, 110))
    sys.stdout.write(help_text(level, about, program=program, width=width))


# A foreign command line


def params_of(argv: Sequence[str]) -> dict[str, Any]:
    """`--lr 0.1`, `--lr=0.1`, `--flag`, `--layers 64 32` and `lr=0.1` by name; the other words under `args`.

    Without the program's own parser `--flag word` cannot be told from `--name value`: it is read as the latter.
    """
    found: dict[str, Any] = {}
    others: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if word == "--":
            others += words
            break
        if _OPTION.fullmatch(name):
            if equals:
                _put(found, name, parse(value))
                continue
            values = []
            while words and not _OPTION.fullmatch(words[0].partition("=")[0]) and words[0] != "--":
                if _ASSIGNED.fullmatch(words[0]):
                    break
                values.append(parse(words.pop(0)))
            _put(found, name, True if not values else values[0] if len(values) == 1 else values)
        elif matched := _ASSIGNED.fullmatch(word):
            _put(found, matched["name"], parse(matched["value"]))
        else:
            others.append(word)
    if others:
        found.setdefault("args", others)
    return found


def _put(found: dict[str, Any], option: str, value: Any) -> None:
    """Nested by dots; an option that comes again makes a list."""
    *above, name = option.lstrip("-").replace("-", "_").split(".")
    place = found
    for part in above:
        inner = place.setdefault(part, {})
        if not isinstance(inner, dict):
            place, name = found, option.lstrip("-").replace("-", "_")
            break
        place = inner
    if name in place:
        before = place[name]
        value = [*before, value] if isinstance(before, list) else [before, value]
    place[name] = value
