"""Parameters in files: YAML, TOML and JSON, by suffix. Nothing in a file is ever evaluated.

Our own values, a schedule or an optimizer's options, are mappings that name their type:

    lr: {$type: CosSchedule, start: 0.1, end: 0.0, left: 0, right: 100}

The names are looked up in a fixed table (`OWN_TYPES`); a type that is not in it stays a mapping. A key that only looks
like the mark is written with one more `$`.

YAML reads plain words by the rules of the command line (luxmeter.literal): `1e-3` is a number, and dates,
`on`, `007` and hashes stay the text they are, which YAML 1.1 would turn into something else.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import json
import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import yaml

from luxmeter.described import TYPE
from luxmeter.errors import UsageError
from luxmeter.experiment.params.schedules import SCHEDULES
from luxmeter.files import write_file
from luxmeter.literal import parse, show
from luxmeter.loaded import loaded
from luxmeter.nested import MOST_VALUES, check_written_out

_SIZE_LIMIT_BYTES = 16 * 1024 * 1024
OWN_TYPES: dict[str, type] = {
    kind.__name__: kind for kind in vars(SCHEDULES).values()
}  # params adds OptimParams
_MARKS = re.compile(r"\$+type")


class FromFile:
    """`Params().from_json(path)`: a file of this kind, whatever its name; of the class itself, into new parameters."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __get__(self, params: Any, owner: Any) -> Callable[..., Any]:
        return functools.partial((owner() if params is None else params).from_file, kind=self._kind)


def read(path: Path, kind: str | None = None) -> dict[str, Any]:
    """The values of a file, as nested dicts with our own values in them. `kind` is a suffix that counts before its own."""
    suffix = path.suffix.lower()
    readers = [_READERS[one] for one in (kind, suffix) if one in _READERS]
    if not readers:
        raise UsageError(
            "params-file-kind",
            f"{path} is neither YAML, TOML nor JSON by its suffix {path.suffix!r}.",
            f"Use one of {', '.join(_READERS)}.",
        )
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(
            "params-file-unreadable",
            f"{path} cannot be read: {error.strerror or error}.",
            "Check the path; it is taken from the current folder.",
        ) from error
    if len(raw) > _SIZE_LIMIT_BYTES:
        raise UsageError(
            "params-file-large",
            f"{path} has {len(raw)} bytes.",
            f"A file of parameters may have {_SIZE_LIMIT_BYTES}; keep data in a file of its own.",
        )
    try:
        values = _first_read(readers, raw.decode("utf-8-sig"))
        check_written_out(values)
        values = _rebuilt(values)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())
        raise UsageError(
            "params-file-damaged",
            f"{path} cannot be understood: {what}.",
            "Correct the place that the message names.",
        ) from error
    if not isinstance(values, dict):
        raise UsageError(
            "params-file-shape",
            f"{path} holds {type(values).__name__}, not names with values.",
            "At its top a file of parameters has lines such as `lr: 0.01`.",
        )
    return values


def _first_read(readers: Sequence[Callable[[str], Any]], text: str) -> Any:
    """By the first of them that understands the text; the first one's error if none does."""
    for reader in readers[1:]:
        try:
            return readers[0](text)
        except (ValueError, yaml.YAMLError):
            with contextlib.suppress(ValueError, yaml.YAMLError):
                return reader(text)
    return readers[0](text)


def write(values: Mapping[str, Any], path: Path, *, suffix: str | None = None) -> Path:
    """Write nested dicts; a value that could not be read back is refused and nothing is written."""
    kind = (suffix or path.suffix).lower()
    writer = _WRITERS.get(kind)
    if writer is None:
        raise UsageError(
            "params-file-kind",
            f"{path} is neither YAML, TOML nor JSON by its suffix {path.suffix!r}.",
            f"Use one of {', '.join(_WRITERS)}.",
        )
    text = writer(values)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, text.encode())
    return path


def as_json(values: Mapping[str, Any]) -> str:
    """The values as JSON; what JSON cannot hold is refused with its name."""
    return json.dumps(plain(values, fallback=None), indent=2, ensure_ascii=False) + "\n"


def plain(
    value: Any, *, fallback: Callable[[Any], Any] | None, name: str = "", keep_tuples: bool = False
) -> Any:
    """The value in terms of dict, list, str, int, float, bool and None; anything else by `fallback`, or refused."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    own = _fields_of_own(value) if fallback is None and name else None
    if own is not None or isinstance(value, Mapping):
        mark = TYPE if own is not None else None
        return {
            str(key) if key == mark else _escaped(str(key)): plain(
                v, fallback=fallback, name=f"{name}.{key}".lstrip("."), keep_tuples=keep_tuples
            )
            for key, v in (value if own is None else own).items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        ordered = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
        items = [plain(v, fallback=fallback, name=name, keep_tuples=keep_tuples) for v in ordered]
        return tuple(items) if keep_tuples and isinstance(value, tuple) else items
    if isinstance(value, enum.Enum):
        return plain(value.value, fallback=fallback, name=name)
    if isinstance(value, int | float | str):  # subclasses
        return next(kind(value) for kind in (int, float, str) if isinstance(value, kind))
    if isinstance(value, PurePath):
        return str(value)
    numpy, torch = loaded("numpy"), loaded("torch")
    if numpy is not None and isinstance(value, numpy.generic):
        return value.item()
    if torch is not None and isinstance(value, torch.device | torch.dtype):
        return str(value)
    if fallback is not None:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
            return plain({"kind": type(value).__name__, **fields}, fallback=fallback, name=name)
        return fallback(value)
    raise UsageError(
        "param-not-writable",
        f"{name or 'The value'} is of type {type(value).__name__!r}, which a file of parameters cannot hold.",
        "Keep a name or numbers in the parameters and build the object from them.",
    )


# Our own values


def _fields_of_own(value: Any) -> dict[str, Any] | None:
    """Our own value as a mapping with its mark; None for everything else."""
    kind = type(value)
    if OWN_TYPES.get(kind.__name__) is not kind:
        return None
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    else:
        fields = dict(value.items())
    return {TYPE: kind.__name__, **{key: list(v) if key == "schedules" else v for key, v in fields.items()}}


def _escaped(key: str) -> str:
    """A key that is not the mark, as it is written."""
    return f"${key}" if _MARKS.fullmatch(key) else key


def _rebuilt(value: Any, name: str = "") -> Any:
    """What was read, with our own values in the place of the mappings that stand for them."""
    if isinstance(value, list | tuple):
        items = [_rebuilt(item, name) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    if not isinstance(value, Mapping):
        return value
    kind = OWN_TYPES.get(value[TYPE]) if isinstance(value.get(TYPE), str) else None
    fields = {
        _unescaped(key): _rebuilt(held, f"{name}.{key}".lstrip("."))
        for key, held in value.items()
        if kind is None or key != TYPE
    }
    if kind is None:
        return fields
    try:
        return kind(**fields)
    except (TypeError, UsageError) as error:
        raise ValueError(f"{name} is no {kind.__name__}: {error}") from None


def _unescaped(key: Any) -> Any:
    return key[1:] if isinstance(key, str) and key != TYPE and _MARKS.fullmatch(key) else key


# YAML


class _Loader(yaml.SafeLoader):
    """Plain words are read by luxmeter.literal, and a name that comes twice is an error."""

    yaml_implicit_resolvers: dict[str, Any] = {"<": [("tag:yaml.org,2002:merge", yaml.SafeLoader.yaml_implicit_resolvers["<"][0][1])]}  # noqa: RUF012  # fmt: skip

    def construct_word(self, node: yaml.ScalarNode) -> Any:
        if node.style is not None:
            return node.value
        return None if node.value in ("", "~") else parse(node.value)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """As in YAML; what is merged is counted first, since ten lines that each merge the one before ten times are billions of names."""
        count = len(node.value)
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                for inner in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    if isinstance(inner, yaml.MappingNode):
                        self.flatten_mapping(inner)
                        count += len(inner.value)
                        if count > MOST_VALUES:
                            raise yaml.constructor.ConstructorError(
                                None, None, f"it merges more than {MOST_VALUES} names", key.start_mark
                            )
        super().flatten_mapping(node)

    def construct_names(self, node: yaml.MappingNode) -> Any:
        seen: set[Any] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the name {key.value!r} comes twice", key.start_mark
                    )
                seen.add(key.value)
        values: dict[Any, Any] = {}
        yield values
        self.flatten_mapping(node)
        for key, value in node.value:
            name = self.construct_object(key, deep=True)
            if not isinstance(name, str | int) or isinstance(name, bool):
                name = key.value if isinstance(key, yaml.ScalarNode) else str(name)
            values[name] = self.construct_object(value, deep=True)


_Loader.add_constructor("tag:yaml.org,2002:str", _Loader.construct_word)
_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.construct_names)


class _Dumper(yaml.SafeDumper):
    """Writes what `_Loader` reads back: text in quotes wherever a plain word would become something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _yaml_text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    read_back = parse(value)
    safe = (
        type(read_back) is str
        and read_back == value
        and value == value.strip()
        and value not in ("", "~", "<<")
    )
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if safe else '"')


def _yaml_word(dumper: yaml.SafeDumper, value: Any) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", show(value), style="")


_Dumper.yaml_implicit_resolvers = {}
_Dumper.add_representer(str, _yaml_text)
for _kind in (int, float, bool, type(None), tuple):
    _Dumper.add_representer(_kind, _yaml_word)


def _read_yaml(text: str) -> Any:
    return yaml.load(text, Loader=_Loader) or {}


def _write_yaml(values: Mapping[str, Any]) -> str:
    held = plain(values, fallback=None, keep_tuples=True)
    return yaml.dump(held, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False)


# JSON and TOML


def _read_json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_no_duplicates)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice!r} comes twice")
    return values


def _write_toml(values: Mapping[str, Any]) -> str:
    held = plain(values, fallback=None)
    lines: list[str] = []
    _toml_table(held, (), lines)
    return "\n".join(lines).lstrip("\n") + "\n"


def _toml_table(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    for name, value in table.items():
        if not isinstance(value, dict):
            lines.append(f"{_toml_key(name)} = {_toml_value(value, '.'.join((*path, name)))}")
    for name, value in table.items():
        if isinstance(value, dict):
            lines += ["", f"[{'.'.join(_toml_key(part) for part in (*path, name))}]"]
            _toml_table(value, (*path, name), lines)


def _toml_key(name: str) -> str:
    bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if bare else json.dumps(name)


def _toml_value(value: Any, name: str) -> str:
    if value is None:
        raise UsageError(
            "param-not-writable",
            f"{name} is None, which TOML cannot hold.",
            "Write YAML or JSON, or leave it out.",
        )
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(v, name) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml_key(k)} = {_toml_value(v, name)}" for k, v in value.items()) + "}"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(value).replace("\x7f", "\\u007f")


_READERS: dict[str, Callable[[str], Any]] = {
    ".yaml": _read_yaml,
    ".yml": _read_yaml,
    ".toml": tomllib.loads,
    ".json": _read_json,
}
_WRITERS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    ".yaml": _write_yaml,
    ".yml": _write_yaml,
    ".toml": _write_toml,
    ".json": as_json,
}
