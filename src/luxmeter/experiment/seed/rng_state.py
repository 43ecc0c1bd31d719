"""The state of every random number generator, as plain values: ints, lists, strings and byte tensors.

Nothing here is a pickle: a state can be printed, compared, put into JSON or into a checkpoint.
"""

from __future__ import annotations

import hashlib
import random as python_random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from luxmeter import torch_extra  # its torch is imported when it is asked for: a program may have none loaded
from luxmeter.errors import CheckpointError, UsageError, warn_once

# History: 1 = python, numpy, torch (None where it is not installed), accelerators.
STATE_VERSION = 1


def stable_seed(*parts: object) -> int:
    """A seed in [0, 2**63) that depends on all parts and on nothing else: the same in every process.

    Names do not collide in practice: among a million names the chance is below one in ten million.
    """
    text = "\x1f".join(f"{type(part).__name__}:{part!r}" for part in parts)
    digest = hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def seed_everything(seed: int, *, accelerators: bool = True) -> None:
    """Seed python, numpy and torch; without accelerators only the generators of the CPU."""
    python_random.seed(seed)
    if seed < 2**32:
        np.random.seed(seed)
    else:
        np.random.seed([seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF])
    if torch_extra.HAS_TORCH:
        (torch_extra.torch.manual_seed if accelerators else torch_extra.torch.default_generator.manual_seed)(
            seed
        )


def device_modules() -> dict[str, Any]:
    """Name of each accelerator present -> its torch module (torch.cuda, torch.mps, torch.xpu, ...)."""
    found: dict[str, Any] = {}
    if not torch_extra.HAS_TORCH:
        return found
    accelerator = getattr(torch_extra.torch, "accelerator", None)
    if accelerator is not None and accelerator.is_available():
        device = accelerator.current_accelerator()
        if device is not None and device.type != "cpu":
            found[device.type] = torch_extra.torch.get_device_module(device.type)
    if torch_extra.torch.cuda.is_available():
        found.setdefault("cuda", torch_extra.torch.cuda)
    # After a fork CUDA and XPU cannot be touched: a worker process has no generator of theirs to keep.
    return {name: module for name, module in found.items() if not _in_bad_fork(module)}


def numpy_plain(value: Any) -> Any:
    """numpy's state without numpy types: a checkpoint, JSON and weights_only=True all take it."""
    if isinstance(value, Mapping):
        return {key: numpy_plain(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray):
        return {"array": value.tolist(), "dtype": value.dtype.str}
    if isinstance(value, np.generic):
        return value.item()
    return value


def numpy_state(value: Any) -> Any:
    """What numpy_plain() was given."""
    if isinstance(value, Mapping):
        if value.keys() == {"array", "dtype"}:
            return np.array(value["array"], dtype=value["dtype"])
        return {key: numpy_state(inner) for key, inner in value.items()}
    return value


def get_rng_state(*, modules: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The state of python, numpy, torch and every accelerator; `modules` stands in for device_modules()."""
    modules = device_modules() if modules is None else modules
    version, internal, gauss_next = python_random.getstate()
    return {
        "version": STATE_VERSION,
        "python": {"version": version, "internal": list(internal), "gauss_next": gauss_next},
        "numpy": numpy_plain(np.random.get_state(legacy=False)),
        "torch": torch_extra.torch.get_rng_state() if torch_extra.HAS_TORCH else None,
        "accelerators": {name: _device_states(module) for name, module in modules.items()},
    }


def set_rng_state(state: Mapping[str, Any], *, modules: Mapping[str, Any] | None = None) -> None:
    """Put back what get_rng_state() gave. What this machine does not have is named in a warning."""
    if not isinstance(state, Mapping) or not {"python", "numpy", "torch"} <= state.keys():
        raise UsageError(
            "random-state-unknown",
            f"This is not a random state: {_short(state)}.",
            "Pass what lux.random.get_state() returned.",
        )
    if state.get("version") != STATE_VERSION:
        raise CheckpointError(
            "random-state-version",
            f"The random state has version {state.get('version')!r}; this Luxmeter reads version {STATE_VERSION}.",
            "Load it with the Luxmeter that saved it, or start from a seed with fix_seed().",
        )
    modules = device_modules() if modules is None else modules
    python = state["python"]
    try:
        if not isinstance(python["gauss_next"], float | None):
            raise TypeError(
                f"the next number is {python['gauss_next']!r:.80}"
            )  # Python takes it, and fails when it is drawn
        python_random.setstate((python["version"], tuple(python["internal"]), python["gauss_next"]))
        np.random.set_state(numpy_state(state["numpy"]))
        _set_torch(state["torch"])
        for name, states in state.get("accelerators", {}).items():
            _set_device_states(name, states, modules)
    except (LookupError, TypeError, ValueError, RuntimeError, ArithmeticError, AttributeError) as error:
        raise CheckpointError(
            "random-state-unfit",
            f"The random state cannot be set here: {error}",
            "It was saved by another version of python, numpy or torch, or is damaged; use fix_seed() instead.",
        ) from error


@contextmanager
def preserved_cpu_rng() -> Iterator[None]:
    """Whatever is drawn or seeded inside leaves the CPU generators as they were outside."""
    python, array = python_random.getstate(), np.random.get_state()
    tensor = torch_extra.torch.get_rng_state() if torch_extra.HAS_TORCH else None
    try:
        yield
    finally:
        python_random.setstate(python)
        np.random.set_state(array)
        if tensor is not None:
            torch_extra.torch.set_rng_state(tensor)


def is_generator(value: object) -> bool:
    """True for the generator objects whose state generator_state() can take."""
    known = np.random.Generator | np.random.RandomState | python_random.Random
    return isinstance(value, known) or _is_torch(value)


def _is_torch(generator: object) -> bool:
    return torch_extra.HAS_TORCH and isinstance(generator, torch_extra.torch.Generator)


def generator_state(generator: Any) -> dict[str, Any]:
    """The state of one generator object of torch, numpy or python."""
    if _is_torch(generator):
        return {"kind": "torch", "state": generator.get_state()}
    if isinstance(generator, np.random.Generator):
        return {"kind": "numpy", "state": numpy_plain(generator.bit_generator.state)}
    if isinstance(generator, np.random.RandomState):
        return {"kind": "numpy-legacy", "state": numpy_plain(generator.get_state(legacy=False))}
    version, internal, gauss_next = generator.getstate()
    return {
        "kind": "python",
        "state": {"version": version, "internal": list(internal), "gauss_next": gauss_next},
    }


def set_generator_state(generator: Any, saved: Mapping[str, Any]) -> None:
    """Put back what generator_state() gave for a generator of the same kind."""
    state = saved["state"]
    if _is_torch(generator):
        generator.set_state(_bytes_tensor(state))
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = numpy_state(state)
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(numpy_state(state))
    else:
        generator.setstate((state["version"], tuple(state["internal"]), state["gauss_next"]))


def _set_torch(state: Any) -> None:
    if torch_extra.HAS_TORCH and state is not None:
        torch_extra.torch.set_rng_state(_bytes_tensor(state))
    elif torch_extra.HAS_TORCH or state is not None:
        warn_once(
            "random-state-torch",
            f"The random state was taken {'with' if state is not None else 'without'} torch, and torch is "
            f"{'here' if torch_extra.HAS_TORCH else 'not installed here'}.",
            "Only the generators of python and numpy are set.",
        )


def _device_states(module: Any) -> list[torch_extra.Tensor]:
    if hasattr(module, "get_rng_state_all"):
        return [state.cpu() for state in module.get_rng_state_all()]
    return [module.get_rng_state().cpu()]  # torch.mps: one device, no index


def _set_device_states(name: str, states: list[Any], modules: Mapping[str, Any]) -> None:
    module = modules.get(name)
    present = 0 if module is None else len(_device_states(module))
    if present < len(states):
        warn_once(
            "random-state-devices",
            f"The random state holds {len(states)} {name} device(s), here are {present}.",
            "What runs on the missing ones will draw other numbers than the saved run.",
            key=name,
        )
    if module is None:
        return
    usable = [_bytes_tensor(state) for state in states[:present]]
    if hasattr(module, "set_rng_state_all"):
        for index, state in enumerate(usable):
            module.set_rng_state(state, index)
    elif usable:
        module.set_rng_state(usable[0])


def _in_bad_fork(module: Any) -> bool:
    check = getattr(module, "_is_in_bad_fork", None)
    return bool(check()) if check is not None else False


def _bytes_tensor(value: Any) -> torch_extra.Tensor:
    return torch_extra.torch.as_tensor(value, dtype=torch_extra.torch.uint8).cpu().contiguous()


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
