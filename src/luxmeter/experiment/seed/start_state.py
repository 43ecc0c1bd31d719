"""The random state at a run's start as JSON, and the way back to it. Loads no framework that the program has not."""

from __future__ import annotations

import random as python_random
import sys
from collections.abc import Mapping
from typing import Any

from luxmeter.experiment.seed.rng_state import get_rng_state, numpy_plain, numpy_state, set_rng_state
from luxmeter.loaded import loaded

FORMAT = 1  # 1: python, numpy, torch and accelerators, each only if the program had loaded it; tensors as hex

_UNSEEDED = 67280421310721  # c10's default_rng_seed_val: what every fresh torch generator begins with


def take() -> dict[str, Any]:
    """The state of every generator that is loaded now."""
    if loaded("torch") is not None:
        state = get_rng_state()
        return {
            "format": FORMAT,
            "version": state["version"],
            "python": state["python"],
            "numpy": state["numpy"],
            "torch": _hex(state["torch"]),
            "accelerators": {
                name: [_hex(each) for each in states] for name, states in state["accelerators"].items()
            },
        }
    version, internal, gauss_next = python_random.getstate()
    record: dict[str, Any] = {
        "format": FORMAT,
        "python": {"version": version, "internal": list(internal), "gauss_next": gauss_next},
    }
    if (numpy := loaded("numpy")) is not None:
        record["numpy"] = numpy_plain(numpy.random.get_state(legacy=False))
    return record


def restore(record: Mapping[str, Any]) -> None:
    """Go back to a state that `take` gave. Generators that it does not hold stay as they are."""
    if "torch" not in record:
        python = record["python"]
        python_random.setstate((python["version"], tuple(python["internal"]), python["gauss_next"]))
        if "numpy" in record:
            sys.modules["numpy"].random.set_state(numpy_state(record["numpy"]))
        return
    set_rng_state(
        {
            "version": record["version"],
            "python": record["python"],
            "numpy": record["numpy"],
            "torch": list(bytes.fromhex(record["torch"])),
            "accelerators": {
                name: [list(bytes.fromhex(each)) for each in states]
                for name, states in record["accelerators"].items()
            },
        }
    )


def torch_seed() -> int | None:
    """The number that torch was seeded with; None if it is not loaded, or nobody seeded it."""
    torch = loaded("torch")
    seed = None if torch is None else getattr(torch, "initial_seed", lambda: _UNSEEDED)()
    return None if seed in (None, _UNSEEDED) else int(seed)


def _hex(state: Any) -> str:
    return bytes(state.cpu().numpy()).hex()
