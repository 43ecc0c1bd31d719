"""How to trace: everything that can be chosen, checked before anything is touched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TypedDict

from luxmeter.calls.device import Device
from luxmeter.errors import UsageError, suggestion


@dataclass(frozen=True)
class TraceOptions:
    """What a trace records and where it rests."""

    inside: bool = False  # also what recorded calls call themselves, with parent and self time
    sync: bool = False  # time to completion on an asynchronous device, and keep the time to dispatch too
    signatures: bool = True  # shapes, dtypes, devices, scalars of every call
    strides: bool = False  # strides of tensors are part of the signature
    facts: bool = True  # look at the values of tensors at first sight of a signature (range, density)
    totals: bool = False  # counts, sums and histograms only, no events
    sample: int = 1  # record every n-th step (a step ends with step(), or with an optimizer's step)
    budget: float | None = None  # pause whenever the recorder's own cost passes this share of the time
    only: Sequence[str] | str = ()  # names to keep: patterns, or paths of YAML lists
    skip: Sequence[str] | str = ()  # names to leave out
    also: Sequence[str] | str = ()  # packages to trace besides the framework
    keep: str | Path | None = None  # a folder to leave the trace in
    name: str = "trace"
    framework: str | None = (
        "auto"  # torch, and MindSpore where it is imported; or one of them; None: only Trace.wrap
    )
    max_signatures: int = 4096  # of one callable
    max_pending: int = 262144  # events in memory that are not written yet
    lossless: bool = (
        False  # when the writer falls behind, the program waits for it; otherwise calls are lost and counted
    )
    exchange: bool = True  # read tensors through DLPack's exchange table where there is one
    core: str | None = None  # "c" or "python"
    device: Device | None = None  # in place of the framework's accelerator


class TraceSettings(TypedDict, total=False):
    """The keyword arguments of `lux.trace` and `lux.start`: the fields of TraceOptions."""

    inside: bool
    sync: bool
    signatures: bool
    strides: bool
    facts: bool
    totals: bool
    sample: int
    budget: float | None
    only: Sequence[str] | str
    skip: Sequence[str] | str
    also: Sequence[str] | str
    keep: str | Path | None
    name: str
    framework: str | None
    max_signatures: int
    max_pending: int
    lossless: bool
    exchange: bool
    core: str | None
    device: Device | None


def make_options(settings: TraceSettings) -> TraceOptions:
    """Checked options. Patterns of YAML files are read here."""
    known = [field.name for field in fields(TraceOptions)]
    for name in settings:
        if name not in known:
            raise UsageError(
                "unknown-trace-option",
                f"trace() has no option {name!r}.",
                suggestion(name, known) or f"It knows {', '.join(known)}.",
            )
    options = TraceOptions(**settings)
    _check(options.sample >= 1, "sample", options.sample, "Give the n of every n-th step: 1 or more.")
    _check(
        options.budget is None or 0 < options.budget <= 1,
        "budget",
        options.budget,
        "Give a share of the time, such as 0.01.",
    )
    _check(options.max_signatures >= 1, "max_signatures", options.max_signatures, "Give 1 or more.")
    _check(options.max_pending >= 1, "max_pending", options.max_pending, "Give 1 or more.")
    _check(
        bool(options.name) and "/" not in options.name and options.name not in (".", ".."),
        "name",
        options.name,
        "Give a plain name: it becomes a folder's.",
    )
    return replace(
        options,
        only=read_patterns(options.only),
        skip=read_patterns(options.skip),
        also=_listed(options.also),
    )


def read_patterns(given: Sequence[str] | str) -> tuple[str, ...]:
    """Patterns as they are; what ends in .yaml or .yml is a file with a list of them, or lists under common prefixes."""
    found: list[str] = []
    for item in _listed(given):
        found.extend(_from_yaml(Path(item)) if item.endswith((".yaml", ".yml")) else [item])
    return tuple(found)


def _from_yaml(path: Path) -> list[str]:
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise UsageError(
            "filter-unreadable",
            f"The list of names {path} cannot be read: {error}.",
            "Give a YAML list of names.",
        ) from error
    if isinstance(content, dict):
        names = [f"{prefix}.{name}" for prefix, group in content.items() for name in group or ()]
    else:
        names = content if isinstance(content, list) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise UsageError(
            "filter-unreadable",
            f"The file {path} holds no list of names but {type(content).__name__}.",
            "Write one name or pattern a line, each after a dash.",
        )
    return names


def _listed(given: Sequence[str] | str) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _check(good: bool, name: str, value: object, next_step: str) -> None:
    if not good:
        raise UsageError("bad-trace-option", f"trace() cannot use {name}={value!r}.", next_step)
