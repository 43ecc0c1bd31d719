"""Random state: seeds, states, named marks (lux.random, lux.RndManager)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from luxmeter.errors import MissingNameError, UsageError, suggestion
from luxmeter.experiment.seed.determinism import Determinism, DeterministicSwitch
from luxmeter.experiment.seed.rng_state import (
    get_rng_state,
    seed_everything,
    set_rng_state,
    stable_seed,
)
from luxmeter.files import read_json, write_json
from luxmeter.torch_extra import HAS_TORCH, require_torch, torch

_SUFFIX = ".rnd"


class RndManager:
    """The random state of python, numpy, torch and every accelerator.

    A mark's numbers are the same in every process: without a folder they follow from its name, in a folder its state is kept as a file.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self._folder = None if folder is None else Path(folder)
        self._marks: dict[str, dict[str, Any]] = {}
        self._switch = DeterministicSwitch()

    def fix_seed(self, seed: int | str = 10) -> int:
        """Seed every generator with a number or a name; returns the number used."""
        number = self.seed_of(seed) if isinstance(seed, str) else _checked(seed)
        seed_everything(number)
        return number

    def seed_of(self, name: str, *more: object) -> int:
        """The seed that belongs to a name: always the same, and different for different names."""
        return stable_seed(name, *more)

    def get_state(self) -> dict[str, Any]:
        """The state of all generators, as plain values that any checkpoint can hold."""
        return get_rng_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go back to a state of get_state()."""
        set_rng_state(state)

    def mark(self, name: str) -> bool:
        """Go to the state of a name, so that what is drawn next is the same after each call; whether it was marked before.

        In a folder the first call ever keeps the present state. Without one the name is the seed.
        """
        known = self._read(name)
        if known is not None:
            set_rng_state(known)
            return True
        if self._folder is None:
            self.fix_seed(self.seed_of("mark", name))
        state = get_rng_state()
        self._marks[name] = state
        if self._folder is not None:
            _write(self._mark_file(name), {"name": name, "state": state})
        return False

    def marks(self) -> list[str]:
        """The names marked so far."""
        names = set(self._marks)
        if self._folder is not None and self._folder.is_dir():
            read = map(_read_file, sorted(self._folder.glob(f"*{_SUFFIX}")))
            names |= {found["name"] for found in read if found["name"] is not None}
        return sorted(names)

    def forget(self, name: str) -> None:
        """Drop a mark: in a folder the next mark(name) keeps a new state."""
        if self._read(name) is None:
            hint = suggestion(name, self.marks()) or "marks() lists the names there are."
            raise MissingNameError("mark-unknown", f"There is no mark {name!r}.", hint)
        self._marks.pop(name, None)
        if self._folder is not None:
            self._mark_file(name).unlink(missing_ok=True)

    @contextmanager
    def isolated(self, seed: int | str | None = None) -> Iterator[None]:
        """Inside, draw freely (from a seed, if one is given); afterwards the state is as before."""
        state = get_rng_state()
        try:
            if seed is not None:
                self.fix_seed(seed)
            yield
        finally:
            set_rng_state(state)

    def worker_init(self, worker_id: int) -> None:
        """worker_init_fn for torch's own DataLoader: python and numpy get seeds of this worker too.

        lux.DataLoader needs none: it seeds by epoch and sample.
        """
        require_torch("worker_init()")
        seed_everything(stable_seed("worker", torch.initial_seed(), worker_id), accelerators=False)

    def deterministic(self, on: bool = True, *, warn_only: bool = False) -> Determinism:
        """Switch torch to deterministic algorithms; the answer says what still may differ."""
        return self._switch.set(on, warn_only=warn_only)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the present state to a file (safetensors with JSON; JSON alone without torch; no pickle)."""
        _write(Path(path), {"name": None, "state": get_rng_state()})

    def load(self, path: str | os.PathLike[str]) -> None:
        """Go back to the state of a file that save() wrote."""
        set_rng_state(_read_file(Path(path))["state"])

    def state_dict(self) -> dict[str, Any]:
        """The present state and all marks."""
        return {"state": get_rng_state(), "marks": {name: self._read(name) for name in self.marks()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the marks and go to the state of state_dict()."""
        self._marks.update(state["marks"])
        if self._folder is not None:
            for name, marked in state["marks"].items():
                _write(self._mark_file(name), {"name": name, "state": marked})
        set_rng_state(state["state"])

    def __repr__(self) -> str:
        return f"RndManager({'' if self._folder is None else repr(str(self._folder))})"

    def _read(self, name: str) -> dict[str, Any] | None:
        if name in self._marks:
            return self._marks[name]
        if self._folder is not None and self._mark_file(name).exists():
            state: dict[str, Any] = _read_file(self._mark_file(name))["state"]
            self._marks[name] = state
            return state
        return None

    def _mark_file(self, name: str) -> Path:
        if self._folder is None:
            raise AssertionError("a mark without a folder has no file")
        # The name itself may hold anything, a slash too: the file is named by its hash.
        return self._folder / f"{stable_seed('mark', name):016x}{_SUFFIX}"


def _write(path: Path, value: dict[str, Any]) -> None:
    if HAS_TORCH:
        from luxmeter.experiment.checkpoint.format import write_file

        write_file(path, value)
    else:  # then no tensor is in it
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, value)


def _read_file(path: Path) -> dict[str, Any]:
    if _begins(path) == b"{":
        found = read_json(path)
    else:
        require_torch(f"{path.name}, a random state written with torch,")
        from luxmeter.experiment.checkpoint.format import read_file

        found = read_file(path)
    fits = isinstance(found, dict) and isinstance(found.get("name", 0), str | None)
    if not fits or not isinstance(found.get("state"), dict):
        raise UsageError(
            "random-state-unknown",
            f"{path} holds no random state.",
            "Give a file that save() or mark() wrote.",
        )
    return dict(found)


def _begins(path: Path) -> bytes:
    if not path.is_file():
        return b""
    with open(path, "rb") as file:
        return file.read(1)


def _checked(seed: int) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise UsageError(
            "seed-range",
            f"A seed is a whole number from 0 to 2**63 - 1, or a name; got {seed!r}.",
            "Pass such a number, or a string: fix_seed('my experiment').",
        )
    return seed


random = RndManager()
"""The one manager of the process: `lux.random.fix_seed(1)`."""
