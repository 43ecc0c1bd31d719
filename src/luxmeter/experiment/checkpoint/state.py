"""The whole state of a training in one value, and back: models, optimizers, loaders, random state, anything alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

import torch
from torch.utils.data import DataLoader, Sampler

from luxmeter.errors import CheckpointError, LuxmeterError, UsageError, suggestion, warn_once
from luxmeter.experiment.checkpoint.lazy_copy import storages_of
from luxmeter.experiment.data.loader_plan import sampler_chain, sampler_state, set_sampler_state
from luxmeter.experiment.seed.rng_state import (
    generator_state,
    get_rng_state,
    is_generator,
    set_generator_state,
    set_rng_state,
)

# History: 1 = step, random, parts, gradients.
STATE_VERSION = 1


@dataclass(frozen=True)
class Resumed:
    """Where the training was. False when there was nothing to resume."""

    step: int
    epoch: int  # of the first lux.DataLoader among the parts, otherwise 0
    batch: int  # how many batches of that epoch are done
    path: str | None
    info: dict[str, Any]
    values: dict[str, Any]  # the plain values among the parts of save_state()

    def __bool__(self) -> bool:
        return self.path is not None


_PLAIN = frozenset((int, float, str, bool, type(None)))


def collect(step: int, parts: Mapping[str, Any], *, random: Any, gradients: bool) -> dict[str, Any]:
    """One state of all parts. Nothing is copied: the Saver does that."""
    saved = {name: _state_of(part, name) for name, part in _with_manager(parts, random).items()}
    return {
        "luxmeter_state": STATE_VERSION,
        "step": step,
        "random": get_rng_state() if random is True else None,
        "parts": saved,
        "gradients": {name: _gradients(part) for name, part in parts.items() if _is_module(part)}
        if gradients
        else {},
    }


def restore_state(
    state: Any, parts: Mapping[str, Any], *, random: Any, path: str, info: dict[str, Any]
) -> Resumed:
    """Put a state of collect() back into its parts; the random state last, when nothing draws any more."""
    if not isinstance(state, Mapping) or "luxmeter_state" not in state:
        raise CheckpointError(
            "resume-no-state",
            f"{path} was not made by save_state(), so it cannot be resumed by one call.",
            "Load it with load_checkpoint() and give its parts to load_state_dict() yourself.",
        )
    if state["luxmeter_state"] != STATE_VERSION:
        raise CheckpointError(
            "checkpoint-version",
            f"{path} has state version {state['luxmeter_state']!r}; this Luxmeter reads {STATE_VERSION}.",
            "Load it with the Luxmeter that wrote it, or a newer one.",
        )
    parts = _with_manager(parts, random)
    with _fitting(f"What {path} holds is no state of a training", "Nothing was changed."):
        saved: Mapping[str, Any] = state["parts"]
        values = {name: one["value"] for name, one in saved.items() if one["kind"] == "value"}
        step, (epoch, batch), gradients = int(state["step"]), _position(saved), dict(state["gradients"])
        _check_names(saved, parts, path)
        for name, part in parts.items():  # before any of them is touched
            if _is_module(part) and saved[name]["kind"] == "state":
                _check_weights(part, saved[name]["state"], name, path)
    for name, part in parts.items():
        if not (name == "random" and random is not True):
            _put(part, saved[name], name, path)
    for name, by_parameter in gradients.items():
        if name in parts:
            with _fitting(
                f"The gradients of {name!r} in {path} do not fit", "The parts are restored already."
            ):
                _put_gradients(parts[name], by_parameter)
    with _fitting(
        f"The random state in {path} does not fit", "Pass random=False; the parts are restored already."
    ):
        if random is True and state["random"] is not None:
            set_rng_state(state["random"])
        elif random is not False and random is not True:
            _put(random, saved["random"], "random", path)
    return Resumed(step=step, epoch=epoch, batch=batch, path=path, info=info, values=values)


@contextmanager
def _fitting(what: str, next_step: str) -> Iterator[None]:
    """Whatever a state that does not fit raises inside, in our words."""
    try:
        yield
    except LuxmeterError:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise CheckpointError("resume-unfit", f"{what}: {why:.200}.", next_step) from error


def module_storages(part: Any) -> frozenset[int]:
    """The memory that the modules among the parts own."""
    if isinstance(part, Mapping):
        part = list(part.values())
    if isinstance(part, list | tuple):
        return frozenset() if _is_plain(part) else frozenset().union(*map(module_storages, part))
    return frozenset(storages_of(part)) if isinstance(part, torch.nn.Module) else frozenset()


def _with_manager(parts: Mapping[str, Any], random: Any) -> dict[str, Any]:
    """`random=` takes True, False, or a RndManager, whose marks are then saved as well."""
    if isinstance(random, bool):
        return dict(parts)
    if not has_state(random):
        raise UsageError(
            "resume-random",
            f"random is True, False or a RndManager; got {random!r}.",
            "Leave it out for True.",
        )
    return {**parts, "random": random}


class HasState(Protocol):
    """Whatever has state_dict and load_state_dict."""

    def state_dict(self) -> Any:
        """What a checkpoint holds."""

    def load_state_dict(self, state: Any, /) -> Any:
        """Go on from there."""


def has_state(part: Any) -> TypeGuard[HasState]:
    """Whether it has: asked of the object, since a wrapper may only forward to what has them."""
    return callable(getattr(part, "state_dict", None)) and callable(getattr(part, "load_state_dict", None))


def _is_module(part: Any) -> bool:
    return isinstance(part, torch.nn.Module)


def _is_plain(several: list[Any] | tuple[Any, ...]) -> bool:
    """Whether nothing in it has to be looked into: seen at once of a random state's hundreds of numbers."""
    return _PLAIN.issuperset(map(type, several))


def _holds_state(part: Any) -> bool:
    if isinstance(part, list | tuple):
        return not _is_plain(part) and any(_holds_state(inner) for inner in part)
    if isinstance(part, dict):
        return any(_holds_state(inner) for inner in part.values())
    return has_state(part) or is_generator(part) or isinstance(part, Sampler | DataLoader)


def _state_of(part: Any, name: str) -> dict[str, Any]:
    if has_state(part):
        return {"kind": "state", "state": part.state_dict()}
    if is_generator(part):
        return {"kind": "generator", "state": generator_state(part)}
    if isinstance(part, Sampler):
        return {"kind": "sampler", "state": sampler_state(sampler_chain(part))}
    if isinstance(part, DataLoader):
        raise UsageError(
            "resume-loader",
            f"{name!r} is torch's DataLoader, which does not know its position.",
            "Use lux.DataLoader, which takes the same arguments.",
        )
    if isinstance(part, list | tuple) and _holds_state(part):
        return {"kind": "list", "state": [_state_of(inner, f"{name}[{i}]") for i, inner in enumerate(part)]}
    if isinstance(part, dict) and _holds_state(part):
        return {
            "kind": "dict",
            "state": {key: _state_of(inner, f"{name}[{key!r}]") for key, inner in part.items()},
        }
    return {"kind": "value", "value": part}


def _put(part: Any, saved: Mapping[str, Any], name: str, path: str) -> None:
    kind = saved["kind"]
    if kind == "value":
        if part is None and saved["value"] is None:
            return
        raise UsageError(
            "resume-value",
            f"{name!r} was saved as a plain value, which cannot be put back into an object.",
            f"Leave it out, and read resume(...).values[{name!r}].",
        )
    try:
        if kind == "state" and has_state(part):
            part.load_state_dict(saved["state"])
            return
        if kind == "generator" and is_generator(part):
            set_generator_state(part, saved["state"])
            return
        if kind == "sampler" and len(sampler_chain(part)) == len(saved["state"]):
            set_sampler_state(sampler_chain(part), saved["state"])
            return
        if kind == "list" and isinstance(part, list | tuple) and len(part) == len(saved["state"]):
            for index, (inner, inner_saved) in enumerate(zip(part, saved["state"], strict=True)):
                _put(inner, inner_saved, f"{name}[{index}]", path)
            return
        if kind == "dict" and isinstance(part, dict) and part.keys() == saved["state"].keys():
            for key, inner in part.items():
                _put(inner, saved["state"][key], f"{name}[{key!r}]", path)
            return
    except LuxmeterError:
        raise
    except Exception as error:
        raise CheckpointError(
            "resume-unfit",
            f"The state of {name!r} in {path} does not fit: {type(error).__name__}: {error}",
            "Build the part as it was when it was saved. Parts named before it are already restored.",
        ) from error
    raise CheckpointError(
        "resume-unfit",
        f"{name!r} was saved as a {kind} and is now a {type(part).__name__} that does not match it.",
        "Pass the same parts to resume() as to save_state().",
    )


def _check_names(saved: Mapping[str, Any], parts: Mapping[str, Any], path: str) -> None:
    for name in parts:
        if name not in saved:
            hint = suggestion(name, saved) or f"It holds: {', '.join(map(repr, saved)) or 'nothing'}."
            raise UsageError("resume-unknown-part", f"{path} holds no part {name!r}.", hint)
    left = [name for name, one in saved.items() if name not in parts and one["kind"] != "value"]
    if left:
        warn_once(
            "resume-left-out",
            f"{path} also holds {', '.join(map(repr, left))}, which nobody asked to restore.",
            "Pass every part to resume(), or the training will not go on as it would have.",
            key=str(left),
            stacklevel=5,
        )


def _check_weights(module: torch.nn.Module, saved: Mapping[str, Any], name: str, path: str) -> None:
    """Whether these weights are of this model; a hook of the model's own may still make them so."""
    if any(inner._load_state_dict_pre_hooks for inner in module.modules()):
        return
    own = module.state_dict()
    missing = [key for key in own if key not in saved]
    unexpected = [key for key in saved if key not in own]
    reshaped = [
        f"{key} ({_size(saved[key])} there, {_size(value)} here)"
        for key, value in own.items()
        if key in saved and _size(saved[key]) != _size(value) and not _is_lazy(value)
    ]
    found = [
        f"{what}: {', '.join(keys[:5])}{f' and {len(keys) - 5} more' if len(keys) > 5 else ''}"
        for what, keys in (
            ("missing there", missing),
            ("unknown here", unexpected),
            ("of another shape", reshaped),
        )
        if keys
    ]
    if found:
        raise CheckpointError(
            "checkpoint-of-another-model",
            f"{path} holds another model than {name!r} ({type(module).__name__}): {'; '.join(found)}.",
            "Build the model as it was when it was saved. Nothing was changed.",
        )


def _size(value: Any) -> tuple[int, ...] | None:
    return tuple(value.shape) if isinstance(value, torch.Tensor) and not _is_lazy(value) else None


def _is_lazy(value: Any) -> bool:
    return isinstance(value, torch.nn.UninitializedParameter | torch.nn.UninitializedBuffer)


def _position(saved: Mapping[str, Any]) -> tuple[int, int]:
    for one in saved.values():
        state = one.get("state")
        if one["kind"] == "state" and isinstance(state, Mapping) and "luxmeter_loader" in state:
            return int(state["epoch"]), int(state["step"])
    return 0, 0


def _gradients(module: torch.nn.Module) -> dict[str, torch.Tensor | None]:
    return {name: parameter.grad for name, parameter in module.named_parameters()}


def _put_gradients(module: torch.nn.Module, gradients: Mapping[str, torch.Tensor | None]) -> None:
    for name, parameter in module.named_parameters():
        gradient = gradients.get(name)
        parameter.grad = None if gradient is None else gradient.to(parameter.device)
