"""A program that draws its own inputs, run twice on the same numbers: on the device and in the dtype that is checked, and
as reference in double precision. Every random tensor is drawn on the CPU in double precision, rounded to the dtype that
is checked, and moved.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from luxmeter.nested import tensors_of

# By name: the same operator is called as a function, a method and from C++ bindings of torch.nn.functional.
_MADE = frozenset(
    {"rand", "randn", "randint", "randperm", "normal", "rand_like", "randn_like", "randint_like", "bernoulli", "multinomial",
     "poisson", "binomial", "_standard_gamma", "_sample_dirichlet"}
)  # fmt: skip
_FILLED = frozenset(
    {
        "normal_",
        "uniform_",
        "random_",
        "bernoulli_",
        "exponential_",
        "cauchy_",
        "log_normal_",
        "geometric_",
        "trunc_normal_",
        "kaiming_uniform_",
        "kaiming_normal_",
        "xavier_uniform_",
        "xavier_normal_",
        "orthogonal_",
        "sparse_",
    }
)
_DROPPED = frozenset(
    {"dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", "rrelu", "gumbel_softmax"}
)
_OF_A_DTYPE = frozenset({"rand", "randn", "normal", "rand_like", "randn_like"})
_WHOLE = frozenset({"randint", "randperm", "multinomial", "randint_like"})


class SameDraws(TorchFunctionMode):
    """Inside, every random tensor has the same numbers, as `dtype` holds them, whatever the default device and dtype are."""

    def __init__(
        self, dtype: torch.dtype, device: str, wide: bool, given: list[torch.Tensor] | None = None
    ) -> None:
        """`given` takes the tensors that are made of no others: a program's inputs."""
        super().__init__()
        self._dtype, self._device, self._wide, self._given = dtype, device, wide, given

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        made_of = self._given is not None and name not in _MADE and tensors_of((args, kwargs))
        result = self._called(func, name, args, kwargs)
        if self._given is not None and not made_of and isinstance(result, torch.Tensor):
            self._given.append(result)
        return result

    def _called(self, func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        if name in _MADE:
            return self._drawn(func, name, args, kwargs)
        if name in _FILLED:
            return self._filled(func, args, kwargs)
        if name in _DROPPED:
            return self._dropped(func, args, kwargs)
        return func(*args, **kwargs)

    def _drawn(self, func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        wanted, place = kwargs.pop("dtype", None), kwargs.pop("device", None) or self._device
        grad = kwargs.pop("requires_grad", False)
        given = [v.dtype for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor)]
        args, kwargs = [self._exact(a) for a in args], {k: self._exact(v) for k, v in kwargs.items()}
        if name in _WHOLE:
            kwargs = kwargs if wanted is None else {**kwargs, "dtype": wanted}
        elif name in _OF_A_DTYPE and not (name == "normal" and given):
            asked = wanted or (given[0] if given else torch.float64)
            kwargs["dtype"] = torch.complex128 if asked.is_complex else torch.float64
        with torch.device("cpu"):
            made = func(*args, **kwargs)
        made = self._rounded(made, wanted or (given[0] if given else torch.get_default_dtype())).to(place)
        return made.requires_grad_() if grad else made

    def _filled(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        rest = list(args)
        target = kwargs.pop("tensor") if "tensor" in kwargs else rest.pop(0)  # as torch.nn.init calls it
        dtype = torch.float64 if target.is_floating_point() else target.dtype
        drawn = func(torch.zeros(target.shape, dtype=dtype, device="cpu"), *rest, **kwargs)
        with torch.no_grad():
            target.copy_(self._rounded(drawn, target.dtype).to(target.device))
        return target

    def _dropped(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """A layer that draws: computed on the CPU in the dtype that is checked, with its gradient."""
        first = next((a for a in args if isinstance(a, torch.Tensor)), None)
        if first is None or not first.is_floating_point():
            return func(*args, **kwargs)
        given = [a.cpu().to(self._dtype) if a is first else a for a in args]
        with torch.device("cpu"):
            made = func(*given, **kwargs)
        return made.to(first.dtype).to(first.device) if isinstance(made, torch.Tensor) else made

    def _exact(self, value: Any) -> Any:
        """What numbers are drawn from: on the CPU, the same on both sides, in double precision."""
        if not isinstance(value, torch.Tensor):
            return value
        value = value.detach().cpu()
        return self._rounded(value, value.dtype).double() if value.is_floating_point() else value

    def _rounded(self, drawn: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """In the dtype it is to have; on the wide side rounded to what the other one holds."""
        if not drawn.is_floating_point() and not drawn.is_complex():
            return drawn
        if not self._wide:
            return drawn.to(dtype)
        if drawn.is_complex():
            return drawn.to(torch.complex64 if dtype is torch.complex128 else dtype).to(torch.complex128)
        return drawn.to(self._dtype if dtype is torch.float64 else dtype).double()


@contextlib.contextmanager
def same_draws(
    seed: int, *, dtype: torch.dtype, device: str, wide: bool, given: list[torch.Tensor] | None = None
) -> Iterator[None]:
    """Random numbers from the seed, default device and dtype as asked for; all of it put back."""
    import numpy as np

    states = random.getstate(), np.random.get_state(), torch.get_rng_state(), torch.get_default_dtype()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    default = torch.float64 if wide else dtype
    try:
        torch.set_default_dtype(default if default.is_floating_point else torch.float32)
        place = torch.device(device) if device != "cpu" else contextlib.nullcontext()
        with torch.enable_grad(), place, SameDraws(dtype, device, wide, given):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        torch.set_default_dtype(states[3])


def drawn(
    program: Callable[[], Any], seed: int, *, dtype: torch.dtype, device: str, wide: bool, given: list[torch.Tensor] | None = None
) -> Any:  # fmt: skip
    """What a program gives on a side. `given` is filled with the tensors that it made for itself."""
    if given is not None:
        given.clear()
    with same_draws(seed, dtype=dtype, device=device, wide=wide, given=given):
        found = program()
        return asyncio.run(found) if inspect.iscoroutine(found) else found
