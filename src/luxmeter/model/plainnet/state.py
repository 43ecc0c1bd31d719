"""The state of a search: all that its next step depends on, and its file.

Format history of the file
1: format, settings, step, rng, population, seen, evaluated, rejected, nearest, nearest_excess, history, run_id.
2: multiply-adds are called macs; before, flops.
"""

from __future__ import annotations

import contextlib
import random
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from luxmeter.errors import CheckpointError, LuxmeterError, UsageError
from luxmeter.files import read_json, write_json
from luxmeter.model.plainnet.candidates import Candidate
from luxmeter.store import layout
from luxmeter.typed_fields import checked_fields

FORMAT = 2


@dataclass
class SearchState:
    """Where a search stands. `population` is sorted, best first."""

    settings: dict[str, Any]
    rng: random.Random
    step: int = 0
    population: list[Candidate] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    evaluated: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    nearest: str | None = None
    nearest_excess: float = float("inf")
    history: list[dict[str, float]] = field(default_factory=list)
    run_id: str | None = None

    @classmethod
    def begin(cls, settings: dict[str, Any], seed: int) -> SearchState:
        """A search that has not made a step."""
        return cls(settings, random.Random(seed))

    def reject(self, structure: str, over: dict[str, float]) -> None:
        """Count a structure that is over budget, and remember the one that came nearest."""
        self.rejected.update(over.keys())
        excess = max(over.values())
        if excess < self.nearest_excess:
            self.nearest, self.nearest_excess = structure, excess

    def summarize(self) -> dict[str, float]:
        """The numbers of the generation that ends now; added to `history`."""
        best, scores = self.population[0], [c.score for c in self.population]
        row: dict[str, float] = {
            "best_score": best.score,
            "median_score": statistics.median(scores),
            "worst_score": scores[-1],
            "best_params": best.params,
            "best_macs": best.macs,
            "best_layers": best.layers,
            "evaluated": self.evaluated,
            "over_budget": sum(self.rejected.values()),
        }
        if best.latency_s is not None:
            row["best_latency_s"] = best.latency_s
        self.history.append(row)
        return row


def save_state(path: Path, state: SearchState) -> None:
    """Write the state, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    version, numbers, gauss = state.rng.getstate()
    write_json(
        path,
        {
            "format": FORMAT,
            "settings": state.settings,
            "step": state.step,
            "rng": [version, list(numbers), gauss],
            "population": [asdict(candidate) for candidate in state.population],
            "seen": sorted(state.seen),
            "evaluated": state.evaluated,
            "rejected": dict(state.rejected),
            "nearest": state.nearest,
            "nearest_excess": state.nearest_excess,
            "history": state.history,
            "run_id": state.run_id,
        },
    )


def saved_settings(path: Path) -> dict[str, Any]:
    """The settings of the search in a file."""
    settings: dict[str, Any] = _read(path)["settings"]
    return settings


def load_state(path: Path, settings: dict[str, Any]) -> SearchState:
    """The state in a file, if it is of a search with these settings; only `generations` may differ."""
    saved = _read(path)
    differing = [
        f"{name} was {then}, is {now}"
        for name, then, now in _flat_pairs(saved["settings"], settings)
        if then != now and name != "options.generations"
    ]
    if differing:
        raise UsageError(
            "search-differs",
            f"The search in {path} had other settings: {'; '.join(differing)}.",
            "Use the same, or another state file to begin anew.",
        )
    with reading(path):
        return _state_of(saved, settings)


def _state_of(saved: dict[str, Any], settings: dict[str, Any]) -> SearchState:
    version, numbers, gauss = saved["rng"]
    if not isinstance(gauss, float | None):  # Python takes it, and fails when it is drawn
        raise ValueError(f"its random state is {str(gauss)[:80]!r}")
    rng = random.Random()
    rng.setstate((version, tuple(numbers), gauss))
    rng.getrandbits(32)  # a forged place in the numbers is told when one is drawn
    rng.setstate((version, tuple(numbers), gauss))
    state = checked_fields(
        SearchState(
            settings=settings,
            rng=rng,
            step=saved["step"],
            population=[checked_fields(Candidate(**row)) for row in saved["population"]],
            seen=set(saved["seen"]),
            evaluated=saved["evaluated"],
            rejected=Counter(saved["rejected"]),
            nearest=saved["nearest"],
            nearest_excess=saved["nearest_excess"],
            history=saved["history"],
            run_id=saved["run_id"],
        )
    )
    if state.run_id is not None and not layout.is_named("run", state.run_id):
        raise ValueError(f"its run_id is {state.run_id[:80]!r}")
    counts = [state.step, state.evaluated, *state.rejected.values()]
    counts += [number for one in state.population for number in (one.params, one.macs, one.layers)]
    if not all(type(number) is int and 0 <= number < 1 << 63 for number in counts):
        raise ValueError("it counts what is no number of things")
    return state


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Inside, what does not fit says that the file is none of ours: it may come from elsewhere, and be changed by hand."""
    try:
        yield
    except LuxmeterError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise _unfit(path, f"it is damaged ({type(error).__name__}: {error})") from error


def _read(path: Path) -> dict[str, Any]:
    saved = _renamed(read_json(path))
    if not isinstance(saved, dict) or saved.get("format") != FORMAT:
        raise _unfit(
            path,
            "there is no such file"
            if saved is None
            else f"it is not the state of a search in format {FORMAT}",
        )
    if not isinstance(saved.get("settings"), dict):
        raise _unfit(path, "it has no settings")
    return saved


def _unfit(path: Path, why: str) -> CheckpointError:
    return CheckpointError(
        "search-state",
        f"Cannot go on from {path}: {why}.",
        "Give the file that a search wrote, or leave it out to begin anew.",
    )


def _renamed(saved: Any) -> Any:
    """A state of format 1 with the names of format 2."""
    if not isinstance(saved, dict) or saved.get("format") != 1:
        return saved
    names = {"flops": "macs", "best_flops": "best_macs"}

    def new(value: Any) -> Any:
        if isinstance(value, dict):
            return {names.get(key, key): new(item) for key, item in value.items()}
        return [new(item) for item in value] if isinstance(value, list) else value

    return {**new(saved), "format": FORMAT}


def _flat_pairs(then: Any, now: Any, name: str = "") -> list[tuple[str, Any, Any]]:
    if isinstance(then, dict) and isinstance(now, dict):
        pairs = []
        for key in sorted({*then, *now}):
            pairs += _flat_pairs(then.get(key), now.get(key), f"{name}.{key}" if name else key)
        return pairs
    return [(name, _plain(then), _plain(now))]


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
