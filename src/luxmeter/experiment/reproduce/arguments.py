"""A command line with other values, written as the script takes them.

The style is read off: an option that is there is replaced as it stands (`--lr=0.1`, `--lr 0.1`, `lr=0.1`); one that is
not is spelled as the script's source spells it, else as its other arguments are. Nothing is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from luxmeter.errors import UsageError, suggestion
from luxmeter.literal import parse

_ASSIGNED = re.compile(r"[A-Za-z_][\w.]*=")


def changed_arguments(
    arguments: Sequence[str],
    changes: Mapping[str, str],
    *,
    params: Mapping[str, Any],
    sources: Iterable[str] = (),
) -> list[str]:
    """`arguments` with each of `changes` (name -> text). `params` are the run's own, flat; `sources` its code."""
    words = list(arguments)
    texts = list(sources)
    for name, text in changes.items():
        if not _replace(words, name, text, texts):
            _check_known(name, params, texts)
            words += _added(words, name, text, texts)
    return words


def was_taken(value: Any, text: str) -> bool:
    """Whether a parameter has the value that was typed."""
    wanted = parse(text)
    if isinstance(value, bool) or isinstance(wanted, bool):
        return bool(value is wanted) or str(value) == text
    if isinstance(value, tuple) and isinstance(wanted, list):
        value = list(value)
    return bool(value == wanted) or str(value) == text


def split_changes(pairs: Iterable[str]) -> dict[str, str]:
    """`lr=0.1` -> {"lr": "0.1"}; leading dashes are forgiven."""
    found = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip("-"):
            raise UsageError(
                "change-without-value", f"{pair!r} changes nothing.", "Write name=value, such as lr=0.1."
            )
        found[name.lstrip("-")] = text
    return found


def _replace(words: list[str], name: str, text: str, sources: list[str]) -> bool:
    """Change what is there already; the last one, since that is the one that counts."""
    for i in range(len(words) - 1, -1, -1):
        option, equals, _ = words[i].partition("=")
        if not _names(option, name):
            continue
        if equals:
            words[i] = f"{option}={text}"
            return True
        if not option.startswith("--"):
            continue
        if i + 1 < len(words) and not words[i + 1].startswith("--"):
            words[i + 1] = text
            return True
        if parse(text) is True:
            return True
        if parse(text) is False:
            negated = f"--no-{option[2:]}"
            words[i : i + 1] = [negated] if any(negated in source for source in sources) else []
            return True
        words[i] = f"{option}={text}"
        return True
    return False


def _added(words: Sequence[str], name: str, text: str, sources: list[str]) -> list[str]:
    for spelled in dict.fromkeys((name, name.replace("_", "-"))):
        declared = re.compile(rf"""["']--{re.escape(spelled)}["']""")
        if any(declared.search(source) for source in sources):
            flag = re.compile(rf"""["']--{re.escape(spelled)}["'][^)]*store_(true|false)""")
            if any(flag.search(source) for source in sources):
                return [f"--{spelled}"] if parse(text) is True else []
            return [f"--{spelled}={text}"]
    plain = any(_ASSIGNED.match(word) for word in words) and not any(word.startswith("--") for word in words)
    return [f"{name}={text}" if plain else f"--{name}={text}"]


def _check_known(name: str, params: Mapping[str, Any], sources: list[str]) -> None:
    known = name in params or any(key.startswith(f"{name}.") for key in params)
    if known or not params:
        return
    spelled = re.compile(rf"(?<!\w)({re.escape(name)}|{re.escape(name.replace('_', '-'))})(?![\w-])")
    if any(spelled.search(source) for source in sources):
        return  # an option that was not given, or that the script's framework makes of an argument's name
    raise UsageError(
        "rerun-parameter",
        f"The run has no parameter {name!r}.",
        suggestion(name, params) or f"It has: {', '.join(params)}.",
    )


def _names(option: str, name: str) -> bool:
    bare = option.removeprefix("--")
    return bare == name or bare.replace("-", "_") == name.replace("-", "_")
