"""How to benchmark: what `bench` can be told, in Python and as text."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

from luxmeter.errors import UsageError
from luxmeter.options import at_least, checked_options, declared, option

if TYPE_CHECKING:
    from luxmeter.isolate import Pool


def _items(given: Any) -> Any:
    """`fp32,bf16` -> ["fp32", "bf16"]."""
    return [word.strip() for word in given.split(",") if word.strip()] if isinstance(given, str) else given


def _numbers(given: Any) -> Any:
    """`1,2` -> [1, 2]."""
    return [_whole(word, given) for word in _items(given)] if isinstance(given, str) else given


def _whole(text: str, whole: str) -> int:
    if not text.isdigit():
        raise UsageError("bad-scale", f"{whole!r} has {text!r}, no whole number.", "Write it as 1,2,4.")
    return int(text)


def _sizes(given: Any) -> Any:
    """`["batch=1,2,4"]` -> {"batch": [1, 2, 4]}."""
    if given is None or isinstance(given, Mapping):
        return given or None
    found = {}
    for text in [given] if isinstance(given, str) else given:
        name, _, sizes = text.partition("=")
        if not name.strip() or not _items(sizes):
            raise UsageError("bad-scale", f"{text!r} names no sizes.", "Write it as batch=1,2,4.")
        found[name.strip()] = _numbers(sizes)
    return found or None


def _one_size(given: Any) -> Any:
    """`["hidden=256"]` -> {"hidden": 256}."""
    found = _sizes(given)
    return found and {name: n[0] if isinstance(n, list) else n for name, n in found.items()}


def _interpreters(given: Any) -> Any:
    """`["compile=/env/bin/python"]` -> one for each backend; a plain one is for all."""
    if isinstance(given, str | Mapping):
        return given
    named = {k: v for k, equals, v in (text.partition("=") for text in given) if equals}
    plain = [text for text in given if "=" not in text]
    if (named and plain) or len(plain) > 1:
        raise UsageError(
            "bad-interpreters",
            f"python was given as {', '.join(given)}.",
            "Give one interpreter for all, or BACKEND=INTERPRETER for each.",
        )
    return named or (plain[0] if plain else sys.executable)


def _variables(given: Any) -> Any:
    """`["OMP_WAIT_POLICY=active"]` -> {"OMP_WAIT_POLICY": "active"}."""
    if isinstance(given, Mapping):
        return {str(name): str(value) for name, value in given.items()}
    found = {}
    for text in [given] if isinstance(given, str) else given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(
                "bad-variable", f"env was given {text!r}.", "Write it as NAME=VALUE, once for each variable."
            )
        found[name] = value
    return found


@dataclass(frozen=True)
class BenchOptions:
    """How to benchmark."""

    dtypes: Sequence[str] = option(("fp32",), "fp32,bf16,fp16,fp64 or recorded.", read=_items)
    backends: Sequence[str] = option(
        ("eager",), "any of eager,compile,onnxruntime,mindspore and registered ones.", read=_items
    )
    scales: Mapping[str, Sequence[int]] | None = option(
        None,
        "Sizes of a dimension: batch=1,2,4. Repeat for several.",
        read=_sizes,
        many=True,
        flags="--scale",
    )
    dims: Mapping[str, int] | None = option(
        None,
        "Name every dimension of a recorded size: hidden=256. Then --scale hidden=128,512.",
        read=_one_size,
        many=True,
        flags="--dim",
    )
    device: str | Sequence[str] = option("cpu", "cpu,cuda.", read=_items)
    threads: int | Sequence[int] = option(1, "Numbers of threads: 1,2.", read=_numbers)
    backward: bool = option(False, "Forward and backward.")
    kernels: bool = option(False, "Also a row for each kernel: of aten, and of ONNX Runtime.")
    budget_s: float = option(60.0, "Seconds for the whole benchmark.", check=at_least(0.0))
    target_ci: float = option(0.02, "How exactly each median is to be known: 0.02 is within 2 %.")
    seed: int = option(0, "All made-up inputs come from it.")
    python: str | Mapping[str, str] = option(
        sys.executable,
        "The interpreter whose torch is measured, or BACKEND=INTERPRETER. Repeat.",
        read=_interpreters,
        many=True,
    )
    env: Mapping[str, str] | None = option(
        None,
        "An environment variable of the workers: NAME=VALUE. Repeat.",
        read=_variables,
        many=True,
    )
    setup: str = option("", "A module that workers import before they measure.")
    timeout_s: float | None = option(  # without it: the budget, but at least a minute
        None, "Seconds after which a case counts as hung."
    )
    resume: Path | str | None = option(
        None, "A JSON file that keeps rows as they come; what it holds is not measured again."
    )
    quiet: bool = option(False, "Without a line of progress.")
    pool: Pool | None = option(None, "One of your own, whose workers stay warm for the next call.")

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices to run on."""
        return (self.device,) if isinstance(self.device, str) else tuple(self.device)

    @property
    def thread_counts(self) -> tuple[int, ...]:
        """The numbers of threads to run with."""
        return (self.threads,) if isinstance(self.threads, int) else tuple(self.threads)

    @property
    def patience_s(self) -> float:
        """How long one case may take."""
        return max(60.0, self.budget_s) if self.timeout_s is None else self.timeout_s

    def python_for(self, backend: str) -> str:
        """The interpreter a backend runs in: the caller's choice for it, its own, or the one that is measured."""
        from luxmeter.operators.backends import (
            interpreter_of,  # brings torch, which the command line starts without
        )

        if isinstance(self.python, str):
            return interpreter_of(backend) or self.python
        return self.python.get(backend) or interpreter_of(backend) or sys.executable


class BenchSettings(TypedDict, total=False):
    """The keyword arguments of `lux.bench`: the fields of BenchOptions."""

    dtypes: Sequence[str]
    backends: Sequence[str]
    scales: Mapping[str, Sequence[int]] | None
    dims: Mapping[str, int] | None
    device: str | Sequence[str]
    threads: int | Sequence[int]
    backward: bool
    kernels: bool
    budget_s: float
    target_ci: float
    seed: int
    python: str | Mapping[str, str]
    env: Mapping[str, str] | None
    setup: str
    timeout_s: float | None
    resume: Path | str | None
    quiet: bool
    pool: Pool | None


def make_options(settings: BenchSettings) -> BenchOptions:
    """Checked options."""
    return checked_options(
        BenchOptions, settings, who="bench()", unknown="unknown-bench-option", bad="bad-bench-option"
    )


# What may be another one on the side that is measured against; the rest says what is measured, and how.
SIDES_DIFFER_IN = ("python", "env", "setup", "dtypes", "backends", "device", "threads")
_NOT_IN_TURNS = ("kernels", "resume", "pool")


def other_side(options: BenchOptions, against: BenchSettings) -> BenchOptions:
    """The options of the side that is measured against: these with what differs there."""
    strange = [name for name in against if name not in SIDES_DIFFER_IN]
    if strange or not against:
        said = f"cannot differ in {', '.join(strange)}" if strange else "were given nothing to differ in"
        raise UsageError("bad-against", f"Two sides {said}.", f"Use {', '.join(SIDES_DIFFER_IN)}.")
    refused = [name for name in _NOT_IN_TURNS if getattr(options, name)]
    if refused:
        raise UsageError(
            "bad-against", f"{', '.join(refused)} does not go with measuring in turns.", "Leave it out."
        )
    other = make_options(against)
    return replace(options, **{name: getattr(other, name) for name in against})


def read_against(words: Sequence[str]) -> BenchSettings:
    """`["new/bin/python", "env=A=1", "threads=2"]` -> {"python": ["new/bin/python"], "env": ["A=1"], "threads": "2"}."""
    known, found = declared(BenchOptions), dict[str, Any]()
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in known:
            name, value = "python", word  # an interpreter's path, or BACKEND=INTERPRETER
        if known[name].many:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise UsageError("bad-against", f"{name} was given twice.", "Give it once.")
        else:
            found[name] = value
    return cast(BenchSettings, found)
