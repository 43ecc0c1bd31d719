"""What a sweep tries: values of a grid, or a space to draw from, given or told by the script's own Params."""

from __future__ import annotations

import itertools
import json
import math
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from luxmeter import scratch
from luxmeter.errors import UsageError
from luxmeter.experiment import Order, program_variables, write_order
from luxmeter.literal import items, parse, show
from luxmeter.store import Lab

_WIDE = 100  # a range whose ends differ by more, both above zero, is drawn from by its logarithm
_DIGITS = 6  # of a number that was drawn: its text is what the program is given


@dataclass(frozen=True)
class Axis:
    """One parameter: its choices, or a range."""

    name: str
    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False

    def draw(self, draws: random.Random) -> Any:
        """A value at random."""
        if self.choices:
            return draws.choice(self.choices)
        if self.log:
            drawn = math.exp(draws.uniform(math.log(self.low), math.log(self.high)))
        else:
            drawn = draws.uniform(self.low, self.high)
        return self.rounded(drawn)

    def rounded(self, value: float) -> int | float:
        """A number as it is given to the program, within the range."""
        value = round(value) if self.whole else float(f"{value:.{_DIGITS}g}")
        return min(max(value, self.low), self.high)


def read_grid(texts: Iterable[str]) -> dict[str, list[Any]]:
    """`lr=0.1,0.01` -> {"lr": [0.1, 0.01]}."""
    found: dict[str, list[Any]] = {}
    for text in texts:
        name, values = _divided(text, "--grid lr=0.1,0.01")
        found.setdefault(name, []).extend(values)
    return found


def read_space(texts: Iterable[str]) -> dict[str, Axis]:
    """`lr=1e-4:0.1`, `lr=1e-4:0.1:log`, `width=8:64`, `optimizer=SGD,AdamW`."""
    found: dict[str, Axis] = {}
    for text in texts:
        name, values = _divided(text, "--space lr=0.001:0.1")
        parts = text.partition("=")[2].split(":")
        if len(parts) == 1:
            found[name] = Axis(name, choices=tuple(values))
            continue
        low, high = parse(parts[0]), parse(parts[1])
        is_log = parts[2:] == ["log"]
        is_range = _is_number(low) and _is_number(high) and low < high and (low > 0 or not is_log)
        if not is_range or parts[2:] not in ([], ["log"]):
            raise UsageError(
                "sweep-space",
                f"--space {text!r} is no range.",
                "Write LOW:HIGH, LOW:HIGH:log with both above zero, or values with commas between.",
            )
        whole = isinstance(low, int) and isinstance(high, int)
        found[name] = axis_of(name, low, high, whole=whole, log=is_log)
    return found


def axis_of(name: str, low: float, high: float, *, whole: bool, log: bool = False) -> Axis:
    """A range; a wide one of numbers above zero is searched by its logarithm."""
    return Axis(name, low=low, high=high, whole=whole, log=log or (low > 0 and high / low >= _WIDE))


def grid_points(grid: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination, the last name changing fastest."""
    for chosen in itertools.product(*grid.values()):
        yield dict(zip(grid, chosen, strict=True))


def told_by(program: Path, arguments: Sequence[str], lab: Lab) -> dict[str, Axis]:
    """The space of a script's own Params: it is started, and ends when it reads its command line (`from_args()`)."""
    with scratch.folder("space") as folder:
        answer, order = folder / "space.json", folder / "order"
        write_order(order, Order(None, "", False, job={"tell space": str(answer)}))
        done = subprocess.run(
            [sys.executable, str(program.absolute()), *arguments], env=program_variables(lab, (), order),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip
        if not answer.is_file():
            last = done.stderr.strip().splitlines()[-1:] or [f"it ended with {done.returncode}"]
            raise UsageError(
                "sweep-script-silent",
                f"{program} did not tell what can be searched: {last[0]}.",
                "Have it call from_args() of its Params, or say it here: --space lr=0.001:0.1.",
            )
        said = json.loads(answer.read_text(encoding="utf-8"))
    found = {}
    for name, axis in said.items():
        if "choices" in axis:
            found[name] = Axis(name, choices=tuple(axis["choices"]))
        else:
            found[name] = axis_of(name, axis["low"], axis["high"], whole=axis["whole"])
    return found


def texts_of(point: Mapping[str, Any]) -> dict[str, str]:
    """Values as they are typed."""
    return {name: show(value) for name, value in point.items()}


def _divided(text: str, example: str) -> tuple[str, list[Any]]:
    name, equals, rest = text.partition("=")
    texts = items(rest) if rest else None
    if not equals or not name.strip() or not texts:
        raise UsageError("sweep-form", f"{text!r} names no parameter with values.", f"Write {example}.")
    return name.strip().lstrip("-"), [parse(one) for one in texts]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
