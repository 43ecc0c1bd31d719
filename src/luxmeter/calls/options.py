"""How to trace: everything that can be chosen, checked before anything is touched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from luxmeter.calls.device import Device
from luxmeter.calls.formats import ENDINGS
from luxmeter.errors import UsageError
from luxmeter.nested import check_written_out
from luxmeter.options import Check, at_least, checked_options, option


def _listed(given: Sequence[str | Path] | str | Path | None) -> tuple[Any, ...]:
    return () if given is None else (given,) if isinstance(given, str | Path) else tuple(given)


def read_patterns(given: Sequence[str] | str) -> tuple[str, ...]:
    """Patterns as they are; what ends in .yaml or .yml is a file with a list of them, or lists under common prefixes."""
    found: list[str] = []
    for item in _listed(given):
        found.extend(_from_yaml(Path(item)) if item.endswith((".yaml", ".yml")) else [item])
    return tuple(found)


def _read_outputs(given: Sequence[str | Path] | str | Path | None) -> tuple[str, ...]:
    """Names of files and, at most one, of a folder."""
    found = tuple(str(each) for each in _listed(given))
    folders = [name for name in found if not _is_file(name)]
    if len(folders) > 1:
        raise UsageError(
            "two-trace-folders",
            f"The trace cannot be kept in {len(folders)} folders.",
            "Give one folder, and files as you like.",
        )
    return found


def _is_file(name: str) -> bool:
    return name.endswith(tuple(ENDINGS))


_FORMATS = ".html .csv .json .parquet .perfetto.json .folded"
_SHARE = Check(
    lambda share: share is None or (isinstance(share, int | float) and 0 < share <= 1),
    "Give a share of the time, such as 0.01.",
)
_NAME = Check(
    lambda name: isinstance(name, str) and bool(name) and "/" not in name and name not in (".", ".."),
    "Give a plain name: it becomes a folder's.",
)


@dataclass(frozen=True)
class TraceOptions:
    """What a trace records and where it rests."""

    inside: bool = option(
        False, "Also the calls that torch's functions make inside."
    )  # with parent and self time
    sync: bool = option(False, "Wait for the device: time to completion.")  # to dispatch is kept, too
    device: bool = option(False, "Time and memory on the accelerator, of each call.")
    signatures: bool = option(True, "Shapes, dtypes, devices, scalars of every call.")
    strides: bool = option(False, "Strides of tensors are part of the signature.")
    facts: bool = option(True, "Look at a tensor's values (range, density) at first sight of a signature.")
    lines: bool = option(True, "Note the line of your code that makes each call.")
    lines_in: Sequence[str] | str = option(
        (), "Packages whose lines count as your code.", read=_listed, many=True
    )
    totals: bool = option(False, "Keep sums and histograms only: small, however long the run.")
    sample: int = option(  # a step ends with step(), or with an optimizer's step
        1,
        "Record every n-th training step.",
        check=at_least(1, "Give the n of every n-th step: 1 or more."),
    )
    budget: float | None = option(
        None, "Pause whenever recording costs more than this share of the time.", check=_SHARE
    )
    only: Sequence[str] | str = option(
        (), "Record these only: a pattern (torch.*) or a YAML list.", read=read_patterns, many=True
    )
    skip: Sequence[str] | str = option(
        (), "Leave these out: a pattern or a YAML list, too.", read=read_patterns, many=True
    )
    also: Sequence[str] | str = option((), "Packages to trace besides torch.", read=_listed, many=True)
    keep: Sequence[str | Path] | str | Path | None = option(
        None,
        f"A folder for the trace, or a file: {_FORMATS}",
        read=_read_outputs,
        many=True,
        flags="-o --keep",
    )
    name: str = option("trace", "What it is called.", check=_NAME)
    framework: str | None = option("auto", "torch, mindspore or both (auto); None: what is wrapped alone.")
    max_signatures: int = option(4096, "Signatures of one callable.", check=at_least(1))
    max_pending: int = option(1 << 20, "Calls in memory that are not written yet.", check=at_least(1))
    lossless: bool = option(
        False, "The program waits for a writer that falls behind; else calls are lost and counted."
    )
    exchange: bool = option(True, "Read tensors through DLPack's exchange table where there is one.")
    core: str | None = option(None, "c or python.")
    waits_for: Device | None = option(None, "In place of the framework's accelerator.")

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names that `keep` gives."""
        return _read_outputs(self.keep)

    @property
    def folder(self) -> Path | None:
        """Where the trace is kept; None: in the active run, or for as long as the program runs."""
        return next((Path(name) for name in self.outputs if not _is_file(name)), None)

    @property
    def files(self) -> list[Path]:
        """What is written when it has stopped."""
        return [Path(name) for name in self.outputs if _is_file(name)]


class TraceSettings(TypedDict, total=False):
    """The keyword arguments of `lux.trace` and `lux.start`: the fields of TraceOptions."""

    inside: bool
    sync: bool
    device: bool
    signatures: bool
    strides: bool
    facts: bool
    lines: bool
    lines_in: Sequence[str] | str
    totals: bool
    sample: int
    budget: float | None
    only: Sequence[str] | str
    skip: Sequence[str] | str
    also: Sequence[str] | str
    keep: Sequence[str | Path] | str | Path | None
    name: str
    framework: str | None
    max_signatures: int
    max_pending: int
    lossless: bool
    exchange: bool
    core: str | None
    waits_for: Device | None


def make_options(settings: TraceSettings) -> TraceOptions:
    """Checked options. Patterns of YAML files are read here."""
    return checked_options(
        TraceOptions, settings, who="trace()", unknown="unknown-trace-option", bad="bad-trace-option"
    )


def _from_yaml(path: Path) -> list[str]:
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        check_written_out(content)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise UsageError(
            "filter-unreadable",
            f"The list of names {path} cannot be read: {error}.",
            "Give a YAML list of names.",
        ) from error
    if isinstance(content, dict) and all(isinstance(group, list | None) for group in content.values()):
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
