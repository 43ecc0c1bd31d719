"""One operator with one set of inputs, run on a side: the side that is checked, or the reference.

Inputs are made once, on the CPU in the dtype that is checked, and copied for every run: to the device, or widened to the
reference's precision. So both sides see the same numbers, whatever an operator does to its inputs.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from luxmeter.nested import tensors_of
from luxmeter.operators.inputs import Call

WIDE = {
    torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64,
    torch.complex32: torch.complex128, torch.complex64: torch.complex128,
}  # fmt: skip


def _same(result: Any) -> Any:
    return result


@dataclass(frozen=True)
class Trial:
    """What to call, with which inputs. `process` takes what is unique out of a result (no signs of singular vectors).

    `written` is how a script writes the function, `defined` the lines it needs before; `drawn` are lines that draw `args`, `kwargs`
    and `function` again, for inputs that cannot be written. Empty: there are none. `reference` is called instead of the
    function for what is right; `tolerance` takes the place of the dtype's.
    """

    api: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    process: Callable[[Any], Any] = _same
    backward: bool = True
    written: str = ""
    defined: str = ""
    drawn: str = ""
    reference: Callable[..., Any] | None = None
    tolerance: float | None = None
    dtype: torch.dtype | None = None  # that it is run in, where no input tells
    is_program: bool = False  # a test that draws its own inputs: whatever it raises is a failure
    given: list[Any] = field(
        default_factory=list
    )  # the tensors that a program made for itself when it last ran


@dataclass(frozen=True)
class Side:
    """Where and in which precision: `wide` doubles every floating-point number; `noise` then moves each input, and what
    each kernel on the way gives, by so much of itself, up or down, as rounding would. `draw` is another random state.
    """

    device: str = "cpu"
    wide: bool = False
    noise: float = 0.0
    noise_seed: int = 0
    noise_in_numbers: bool = False  # in plain numbers, too: one may decide a size
    draw: int = 0


REFERENCE = Side(wide=True)


@dataclass(frozen=True)
class Ran:
    """What a run gave: values of the result, gradients, or why there are none; and how long the forward took."""

    values: tuple[Any, ...] = ()
    gradients: tuple[Any, ...] | None = None
    error: BaseException | None = None
    backward_error: BaseException | None = None
    forward_ns: int = 0


class Copier:
    """Copies nested inputs to a side; the same tensor twice stays one."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._made: dict[int, Any] = {}
        self._noise = torch.Generator().manual_seed(side.noise_seed) if side.noise else None

    def copy(self, value: Any) -> Any:
        """The value with all tensors on this side."""
        if isinstance(value, torch.Tensor):
            if id(value) not in self._made:
                self._made[id(value)] = self._tensor(value)
            return self._made[id(value)]
        if isinstance(value, torch.nn.Module):
            return self._module(value)
        if isinstance(value, dict):
            return type(value)((k, self.copy(v)) for k, v in value.items()) if type(value) is dict else value
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self.copy(v) for v in value))
        if isinstance(value, list | tuple) and type(value) in (list, tuple, torch.Size):
            return type(value)(self.copy(v) for v in value)
        if isinstance(value, torch.dtype):
            return WIDE.get(value, value) if self._side.wide else value
        if isinstance(value, torch.device):
            return torch.device(self._side.device) if value.type == "cpu" else value
        if isinstance(value, torch.Generator):
            fresh = torch.Generator(device=value.device)
            fresh.set_state(value.get_state())
            return fresh.manual_seed(self._side.draw) if self._side.draw else fresh
        if isinstance(value, float) and self._side.noise_in_numbers and value % 1:
            return value * (1 + self._side.noise * (1 if self._up() else -1))
        return value

    def _up(self) -> bool:
        return bool(torch.randint(0, 2, (), generator=self._noise))

    def _module(self, module: torch.nn.Module) -> torch.nn.Module:
        made = copy.deepcopy(module)
        with torch.no_grad():
            made._apply(self._values)  # type: ignore[no-untyped-call]
        return made

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        made = self._values(tensor.detach())
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
        return made.requires_grad_() if tensor.requires_grad else made

    def _values(self, tensor: torch.Tensor) -> torch.Tensor:
        wide = WIDE.get(tensor.dtype, tensor.dtype) if self._side.wide else tensor.dtype
        if tensor.layout is torch.strided and type(tensor) in (torch.Tensor, torch.nn.Parameter):
            made = _exact_copy(tensor, wide)
        else:
            made = tensor.detach().clone().to(wide)
        if self._noise is not None and (made.is_floating_point() or made.is_complex()):
            made = _moved(made, self._side.noise, self._noise)
        return made if self._side.device == "cpu" else made.to(self._side.device)


def _exact_copy(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """With its strides and its place in memory: kernels differ by them, and some look at what lies beside it."""
    storage = tensor.untyped_storage()
    if tensor.is_quantized or storage.nbytes() > 4 * tensor.nbytes + 4096:
        return tensor.detach().clone().to(dtype)
    whole = torch.empty(0, dtype=tensor.dtype).set_(storage.clone())  # type: ignore[no-untyped-call]
    made = whole.to(dtype).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    if tensor.is_conj():
        made = made.conj()
    return torch._neg_view(made) if tensor.is_neg() else made


def _moved(tensor: torch.Tensor, noise: float, generator: torch.Generator) -> torch.Tensor:
    """Every number moved by the share `noise` of itself, up or down."""
    dense = tensor if tensor.layout is torch.strided else None
    if dense is None:
        if tensor.layout is torch.sparse_coo:
            whole = tensor.coalesce()
            values = _moved(whole.values(), noise, generator)
            return torch.sparse_coo_tensor(whole.indices(), values, whole.shape, is_coalesced=True)
        return tensor
    signs = torch.randint(0, 2, tuple(dense.shape), generator=generator) * 2 - 1
    return dense * (1 + noise * signs.to(dense.real.dtype if dense.is_complex() else dense.dtype))


@functools.cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    """Kernels that compute in several steps -> the steps."""
    from torch._decomp import get_decompositions

    aten = torch.ops.aten
    return dict(get_decompositions([getattr(aten, name) for name in _STEPS if hasattr(aten, name)]))


# Kernels inside of which numbers cancel: what is subtracted there is of the size of the inputs.
_STEPS = (
    "_softmax", "_log_softmax", "logsumexp", "_softmax_backward_data", "_log_softmax_backward_data", "native_layer_norm",
    "native_layer_norm_backward", "native_group_norm", "native_group_norm_backward", "native_batch_norm",
    "native_batch_norm_backward", "binary_cross_entropy_with_logits", "log_sigmoid_forward", "log_sigmoid_backward",
    "gelu", "gelu_backward", "mish", "mish_backward", "silu_backward", "softplus_backward",
)  # fmt: skip


_MOST_KERNELS = 20_000  # of one run with noise


class Noise(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside, what each kernel gives is moved by a share of itself, up or down: the reference as coarser numbers see it."""

    def __init__(self, noise: float, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._share = noise
        self._left = _MOST_KERNELS
        self._generator = torch.Generator().manual_seed(seed)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled under this mode; to be kept out of it would import all of dynamo."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self._left -= 1
        if self._left < 0:
            raise RuntimeError("what ends when it is precise enough may never end with noise")
        inside = _decompositions().get(func)
        if inside is not None:
            with self:  # rounding happens inside of a kernel, too
                found = inside(*args, **kwargs)
            if found is not NotImplemented:
                return found
        result = func(*args, **kwargs)
        if any(r.alias_info is not None for r in func._schema.returns):
            return result  # a view, or a tensor that was changed in place: no number of its own
        if func is torch.ops.aten.clone.default or func is torch.ops.aten._to_copy.default:
            return result  # copied, not computed
        return torch.utils._pytree.tree_map_only(torch.Tensor, self._moved, result)

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        rounds = tensor.is_floating_point() or tensor.is_complex()
        if not rounds or tensor.layout is not torch.strided or not tensor.numel():
            return tensor
        return _moved(tensor, self._share, self._generator)


def call_on(trial: Trial, side: Side) -> Call:
    """The trial's call with inputs of its own on a side."""
    copier = Copier(side)
    function = trial.reference if side.wide and trial.reference is not None else trial.function
    return Call(function, copier.copy(tuple(trial.args)), copier.copy(dict(trial.kwargs)), trial.api)


def ran(
    run: Callable[[], Any],
    call: Call,
    trial: Trial,
    *,
    backward: bool,
    seed: int,
    narrow: torch.dtype | None,
) -> Ran:
    """Run it once, from this random state; gradients are of all outputs, weighed by numbers from the same seed.

    `narrow` is the dtype the weights are rounded to, so that both sides have the same.
    """
    torch.default_generator.manual_seed(seed)
    backward = backward and trial.backward
    try:
        with torch.set_grad_enabled(backward):
            start = time.perf_counter_ns()
            result = run()
            taken = time.perf_counter_ns() - start
            result = trial.process(result)
    except Exception as error:  # noqa: BLE001  (whatever an operator raises is what it gave)
        return Ran(error=error)
    values = leaves_of(result)
    if not backward:
        return Ran(tuple(_detached(v) for v in values), None, forward_ns=taken)
    try:
        gradients = _gradients(values, call, seed, narrow)
    except Exception as error:  # noqa: BLE001
        return Ran(tuple(_detached(v) for v in values), None, backward_error=error, forward_ns=taken)
    return Ran(tuple(_detached(v) for v in values), gradients, forward_ns=taken)


def leaves_of(value: Any) -> list[Any]:
    """Tensors, numbers and words of a nested result, in order."""
    if isinstance(value, dict):
        return [leaf for v in value.values() for leaf in leaves_of(v)]
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        return [leaf for v in value for leaf in leaves_of(v)]
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufc":
        return [torch.as_tensor(value)]
    return [] if value is None else [value]


def _detached(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    if type(value) is not torch.Tensor and isinstance(value, torch.Tensor):
        with contextlib.suppress(RuntimeError):  # a class of the user's own may compare in a way of its own
            return value.as_subclass(torch.Tensor)
    return value


def _gradients(
    values: list[Any], call: Call, seed: int, narrow: torch.dtype | None
) -> tuple[Any, ...] | None:
    wanted = [t for t in tensors_of((call.args, call.kwargs)) if t.requires_grad and t.is_leaf]
    for module in [a for a in call.args if isinstance(a, torch.nn.Module)]:
        wanted += [p for p in module.parameters() if p.requires_grad]
    wanted = list({id(t): t for t in wanted}.values())
    outputs = [
        t for t in values if isinstance(t, torch.Tensor) and t.requires_grad and t.layout is torch.strided
    ]
    if not wanted or not outputs:
        return None
    generator = torch.Generator().manual_seed(seed)
    weights = []
    for output in outputs:
        made = torch.randn(output.shape, generator=generator)
        if narrow is not None and narrow.is_floating_point:
            made = made.to(narrow)
        weights.append(made.to(output.dtype).to(output.device))
    found = torch.autograd.grad(outputs, wanted, weights, allow_unused=True)
    return tuple(None if g is None else g.detach() for g in found)
