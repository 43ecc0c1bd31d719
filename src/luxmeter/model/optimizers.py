"""What an optimizer keeps for each parameter: found by letting it make one step on tensors without data."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from luxmeter.errors import UsageError, suggestion
from luxmeter.model.counter import Counter
from luxmeter.model.lifetimes import Lifetimes
from luxmeter.model.watch import Watch
from luxmeter.nested import tensors_of

_OWN_NAMES: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    "sgd-momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    "sgd": partial(torch.optim.SGD, lr=0.1),
}


class Weight(NamedTuple):
    """A parameter by its identity (shared ones have one), shape and type."""

    key: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    trains: bool

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class OptimizerCost:
    """State kept between steps, and the work and the largest extra memory of one step."""

    name: str
    state_bytes: int
    flops: int
    step_peak_bytes: int


def optimizer_names() -> list[str]:
    """Names that `optimizer=` understands."""
    classes = (
        c for c in vars(torch.optim).values() if inspect.isclass(c) and issubclass(c, torch.optim.Optimizer)
    )
    return sorted({*_OWN_NAMES, *(c.__name__.lower() for c in classes if c is not torch.optim.Optimizer)})


def factory_of(optimizer: Any) -> tuple[str, Callable[..., torch.optim.Optimizer]]:
    """The name and the maker for what a user may give: a name, a class, a function of parameters, an instance."""
    if isinstance(optimizer, torch.optim.Optimizer):
        kind = type(optimizer)
        accepted = inspect.signature(kind).parameters
        return kind.__name__.lower(), partial(
            kind, **{k: v for k, v in optimizer.defaults.items() if k in accepted}
        )
    if callable(optimizer):
        named = getattr(optimizer, "__name__", None) or getattr(
            getattr(optimizer, "func", None), "__name__", "optimizer"
        )
        return str(named).lower(), optimizer
    name = str(optimizer).lower()
    if name in _OWN_NAMES:
        return name, _OWN_NAMES[name]
    for kind_name, kind in vars(torch.optim).items():
        if kind_name.lower() == name and inspect.isclass(kind) and kind is not torch.optim.Optimizer:
            return name, kind
    raise UsageError(
        "no-such-optimizer",
        f"There is no optimizer called {optimizer!r}.",
        suggestion(name, optimizer_names()) or f"Known: {', '.join(optimizer_names())}; or give the class.",
    )


def step_on(weights: Iterable[Weight], optimizer: Any) -> OptimizerCost:
    """One step of `optimizer` on parameters of these sizes, without data."""
    name, make = factory_of(optimizer)
    twins = [nn.Parameter(torch.empty(w.shape, dtype=w.dtype, device="meta")) for w in weights]
    if not twins:
        return OptimizerCost(name, 0, 0, 0)
    watch, lifetimes = Watch(), Lifetimes()
    watch.begin()
    with warnings.catch_warnings(), torch.enable_grad():
        warnings.simplefilter("ignore")
        made = _made(name, make, twins)
        for twin in twins:
            twin.grad = torch.empty_like(twin)
        lifetimes.leave_out([*twins, *(t.grad for t in twins if t.grad is not None)])
        closure = _closure_for(made)
        try:
            with _AnyValue():
                made.step(*closure)  # the first makes the state
            lifetimes.leave_out(_states(made))
            with Counter(watch, lifetimes), _AnyValue():
                made.step()
        except Exception as problem:
            raise _does_not_step(name, problem) from problem
    states = _states(made)
    state_bytes = sum(t.numel() * t.element_size() for t in {id(t): t for t in states}.values())
    flops = sum(totals[2] for totals in watch.root.costs.values())
    return OptimizerCost(name, state_bytes, flops, lifetimes.peak_bytes)


def _states(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [t for state in optimizer.state.values() for t in tensors_of(state, in_objects=True)]


def cost_of_optimizer(weights: Iterable[Weight], optimizer: Any) -> OptimizerCost:
    """What `optimizer` keeps for these parameters: off a table for the common ones, else by a step without data."""
    trained = list({w.key: w for w in weights if w.trains}.values())
    known = _TABLE.get(optimizer.lower()) if isinstance(optimizer, str) else None
    if known is None:
        return step_on(trained, optimizer)
    copies, per_tensor_bytes, flops = known
    state_bytes = copies * sum(w.size_bytes for w in trained) + per_tensor_bytes * len(trained)
    return OptimizerCost(optimizer.lower(), state_bytes, flops * sum(w.size for w in trained), 0)


# Name -> copies of every parameter kept, bytes kept for each tensor, FLOPs an element. Held to what a step really does
# by a test. The first step of an optimizer imports torch's compiler (seconds): the common ones go without.
_TABLE = {
    "sgd": (0, 0, 2),
    "sgd-momentum": (1, 0, 4),
    "momentum": (1, 0, 4),
    "adam": (2, 4, 13),
    "adamw": (2, 4, 14),
}


@dataclass(frozen=True)
class TrainingMemory:
    """What rests in memory while a model trains, for one optimizer and one type of its numbers."""

    optimizer: str
    dtype: str
    weight_bytes: int
    gradient_bytes: int
    optimizer_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.weight_bytes + self.gradient_bytes + self.optimizer_bytes


def training_memory(params: int, trainable: int, tensors: int) -> tuple[TrainingMemory, ...]:
    """The common optimizers in single and half precision, and half precision with single-precision master weights."""
    rows = []
    for name in ("sgd", "sgd-momentum", "adamw"):
        copies, per_tensor_bytes, _ = _TABLE[name]
        for dtype, size, state, master in (
            ("float32", 4, 4, 0),
            ("bfloat16", 2, 2, 0),
            ("bfloat16 + float32 master", 2, 4, 4),
        ):
            kept = trainable * (copies * state + master) + per_tensor_bytes * tensors
            rows.append(TrainingMemory(name, dtype, size * params, size * trainable, kept))
    return tuple(rows)


class _AnyValue(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Some optimizers look at a norm to set their pace: any will do, what they keep does not depend on it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # the guard would import the whole compiler at the first operator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and args[0].is_meta:
            return 1.0 if args[0].is_floating_point() else 1
        return func(*args, **(kwargs or {}))


def _does_not_step(name: str, problem: Exception) -> UsageError:
    return UsageError(
        "optimizer-does-not-step",
        f"{name} makes no step on the parameters of this model: {str(problem).splitlines()[0][:200].rstrip('. ')}.",
        "Give another optimizer, or None (on the command line: none) to leave its state out.",
    )


def _made(name: str, make: Callable[..., Any], twins: list[nn.Parameter]) -> torch.optim.Optimizer:
    if name == "muon":  # takes matrices only
        twins[:] = [t for t in twins if t.dim() == 2]
    try:
        try:
            return make(twins)  # type: ignore[no-any-return]
        except TypeError as problem:
            if "lr" not in str(problem):
                raise
            return make(twins, lr=0.01)  # type: ignore[no-any-return]
    except Exception as problem:
        raise _does_not_step(name, problem) from problem


def _closure_for(optimizer: torch.optim.Optimizer) -> tuple[Any, ...]:
    if type(optimizer).__name__ != "LBFGS":
        return ()
    raise UsageError(
        "optimizer-needs-data",
        "LBFGS searches along a line and needs real losses: its memory cannot be told from sizes.",
        "It keeps up to 2 * history_size copies of the parameters.",
    )
