"""Sharded training (torch's FSDP2): each rank holds some rows of every weight, its gradient and its optimizer's state.

`fully_shard` makes DTensors of a model's parameters, in the model itself: what it is called and what is in it stay. Each block of
the model (`units`) is gathered when its forward or backward comes to it, and let go of behind that.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.optim import Optimizer

from luxmeter import supported
from luxmeter.errors import UsageError, suggestion
from luxmeter.experiment import Sharded, is_in_rows, rows_of
from luxmeter.train import parts
from luxmeter.train.callbacks.ema import EMAUpdate
from luxmeter.train.callbacks.optimization import Optimization
from luxmeter.train.dist import all_reduce
from luxmeter.train.parallel import average_gradients

if TYPE_CHECKING:
    from luxmeter.train.trainer import Trainer

_LISTS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
_BUCKET_BYTES = 250 << 20  # of buffers sent at once: as DDP does
_AGAIN = 'Train with parallel="ddp", or change that.'


class Shards:
    """The sharded models of a trainer; what belongs to none, or cannot be sharded, is averaged over the ranks before a step."""

    def __init__(self, trainer: Trainer, ranks: int) -> None:
        self._trainer = trainer
        self.mesh = init_device_mesh(trainer.device.type, (ranks,))
        self._check()
        before = _named(trainer)
        self.roots: list[Any] = []
        self.units: list[Any] = []  # inner ones; they are let go of behind their forward, roots are not
        for name, model in trainer.models.items():
            for root in _roots(model):
                self._shard(name, root)
        for root in self.roots:
            if name := lacks(root):
                raise supported.torch_changed('parallel="fsdp"', name, 'Train with parallel="ddp"')
        after = _named(trainer)
        new = {id(old): after[name] for name, old in before.items()}
        held = [
            name
            for name, one in parts.find(trainer, nn.Parameter).items()
            if id(one) in new and new[id(one)] is not one
        ]
        if held:
            raise _unfit(
                f"{type(trainer).__name__}.{held[0]} is a parameter of a model, in whose place there is a sharded one now.",
                "Do not hold it besides the model.",
            )
        for optimizer in trainer.optimizers:
            self._repoint(optimizer, new)
        for root in self.roots:
            root._get_fsdp_state()._lazy_init()  # else whichever part is called first is taken for a root
        self._numbered: list[Any] = [*self.roots, *self.units]
        self._is_evaluating = False
        self._is_first = True  # forward since a step: the buffers become those of rank 0
        self._hooks: list[Any] = []
        self._settled: set[int] = set()
        for number, module in enumerate(self._numbered, 1):
            # Before the hook of FSDP, in which the ranks gather.
            module.register_forward_pre_hook(self._telling(number), prepend=True)

    def _check(self) -> None:
        options = self._trainer.options
        if getattr(self._trainer.callbacks.find(Optimization), "amp", None) == "float16":
            raise _unfit(
                "torch does not scale gradients of which some are sharded.", 'Compute with amp="bfloat16".'
            )
        for name, model in self._trainer.models.items():
            for key, one in model.named_parameters():
                where = f"{name}.{key}"
                if isinstance(one, nn.UninitializedParameter):
                    raise _unfit(
                        f"{where} has no shape before the first batch.", "Make the model with all its shapes."
                    )
                if one._backward_hooks or one._post_accumulate_grad_hooks:
                    raise _unfit(f"{where} has a hook, which its shards would not call.")
                if not one.is_contiguous():
                    raise _unfit(f"{where} is not contiguous in memory.")
        owners = Counter(
            one
            for model in self._trainer.models.values()
            for one in {id(each) for each in model.parameters()}
        )
        if owners and max(owners.values()) > 1:
            raise _unfit("Two models share weights.", "Put both into one module, whose parts they are.")
        if options.unused_parameters and not hasattr(FSDPModule, "set_reduce_scatter_unused_params"):
            raise _unfit("This torch's FSDP waits for gradients of all parameters (unused_parameters).")

    def _shard(self, name: str, root: nn.Module) -> None:
        scalars = {one for one in root.parameters() if not one.ndim}  # have no rows
        if all(one in scalars for one in root.parameters()):
            return
        inner = units(root, self._trainer.options.shard_units, name)
        try:
            for unit in reversed(inner):  # inner ones first
                fully_shard(unit, mesh=self.mesh, reshard_after_forward=True, ignored_params=scalars)
            fully_shard(root, mesh=self.mesh, reshard_after_forward=False, ignored_params=scalars)
        except (ValueError, NotImplementedError, AssertionError) as error:
            raise _unfit(f"torch cannot shard {name}: {' '.join(str(error).split())[:300]}") from error
        self.units += inner
        self.roots.append(root)
        if self._trainer.options.unused_parameters:
            root.set_reduce_scatter_unused_params(True)  # type: ignore[operator]

    def _repoint(self, optimizer: Optimizer, new: Mapping[int, nn.Parameter]) -> None:
        """Have it train the sharded parameters: it was made with those before."""
        for group in optimizer.param_groups:
            group["params"] = [new.get(id(one), one) for one in group["params"]]
        for old in list(optimizer.state):
            made = new.get(id(old), old)
            if made is not old:
                state = optimizer.state.pop(old)
                optimizer.state[made] = {
                    key: self.sharded(value) if _is_like(value, made) else value
                    for key, value in state.items()
                }

    # -- as Replicas does ------------------------------------------------------------------------------------------

    def begin(self) -> Shards:
        """A training begins."""
        self._hooks = [
            hook
            for optimizer in self._trainer.optimizers
            for hook in (
                optimizer.register_step_pre_hook(self._before_step),
                optimizer.register_step_post_hook(self._after_step),
            )
        ]
        self._is_first = True
        return self

    def renew_if_changed(self) -> None:
        """Which parameters are trained FSDP sees by itself."""

    def sync(self, on: bool) -> None:
        """Whether the gradients of the next batch are averaged in its backward; else they wait, whole, for a later one's."""
        for root in self.roots:
            root.set_requires_gradient_sync(on)

    def settle(self, optimizers: Sequence[Optimizer]) -> None:
        """Before a step: average what no backward has."""
        for optimizer in optimizers:
            self._average(optimizer)
            self._settled.add(id(optimizer))

    def end(self) -> None:
        """A training ends. The models stay sharded."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._settled = [], set()
        self.let_go()

    def average_waiting(self) -> None:
        """Before a step that comes earlier than the backward which would have averaged: that of what an epoch's end leaves over."""
        for module in self._numbered:
            self._reduce([one for one in _params(module) if one.sharded_param.requires_grad])

    @torch.no_grad()
    def _reduce(self, params: Sequence[Any]) -> None:
        """Average the gradients that wait, and take this rank's rows of them; one that some ranks lack counts as zero there."""
        groups: dict[torch.dtype, list[Any]] = {}
        for one in params:
            groups.setdefault(one.sharded_param.dtype, []).append(one)
        for dtype, group in groups.items():
            waiting = [_take_waiting(one) for one in group]
            device = self._trainer.device
            there = torch.tensor([float(one is not None) for one in waiting], dtype=dtype, device=device)
            every = [
                torch.zeros(one.sharded_param.shape, dtype=dtype, device=device)
                if gradient is None
                else gradient
                for one, gradient in zip(group, waiting, strict=True)
            ]
            flat = all_reduce(torch.cat([there, *(one.reshape(-1) for one in every)]), "mean")
            start = len(group)
            for one, gradient, is_there in zip(group, every, flat[:start].tolist(), strict=True):
                mean = flat[start : start + gradient.numel()].view(gradient.shape)
                start += gradient.numel()
                if is_there:
                    parameter, mine = one.sharded_param, self.sharded(mean)
                    parameter.grad = mine if parameter.grad is None else parameter.grad + mine

    def _before_step(self, optimizer: Optimizer, *_: Any) -> None:
        if id(optimizer) in self._settled:
            self._settled.remove(id(optimizer))
        else:
            self._average(optimizer)

    def _after_step(self, *_: Any) -> None:
        self._is_first = True

    def _average(self, optimizer: Optimizer) -> None:
        whole = [
            one
            for group in optimizer.param_groups
            for one in group["params"]
            if not isinstance(one, DTensor) and one.requires_grad
        ]
        if whole:
            average_gradients(whole)

    @torch.no_grad()
    def clip_norm(self, parameters: Iterable[Tensor], most: float) -> Tensor:
        """Clip the norm of all gradients together, sharded ones and others; what it was before, whole on every rank."""
        every = [one.grad for one in parameters if one.grad is not None]
        norms: list[Tensor] = []
        for group in (
            [one for one in every if isinstance(one, DTensor)],
            [one for one in every if not isinstance(one, DTensor)],
        ):
            if group:
                norm = torch.nn.utils.get_total_norm(group)
                norms.append(norm.full_tensor() if isinstance(norm, DTensor) else norm)
        total = (
            norms[0]
            if len(norms) == 1
            else torch.linalg.vector_norm(torch.stack(norms))
            if norms
            else torch.zeros(())
        )
        shrunk = torch.clamp(most / (total + 1e-6), max=1.0)  # as torch does
        for one in every:
            local(one).mul_(shrunk)
        return total

    @torch.no_grad()
    def clip_values(self, parameters: Iterable[Tensor], most: float) -> None:
        """Clip each value of the gradients."""
        for one in parameters:
            if one.grad is not None:
                local(one.grad).clamp_(-most, most)

    # -- forward -----------------------------------------------------------------------------------------------------

    def told(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """The method of a user; what torch says of weights that nobody has gathered is told in other words."""

        @functools.wraps(method)
        def batch_method(*given: Any) -> Any:
            try:
                return method(*given)
            except RuntimeError as error:
                if "mixed torch.Tensor and DTensor" not in str(error):
                    raise
                raise UsageError(
                    "fsdp-by-parts",
                    f"{type(self._trainer).__name__} uses weights of a sharded model outside of a call of it: only while the model, or one "
                    "of its blocks, is called are they whole.",
                    "Call the model itself (self.model(xs)), or name the classes of the parts that are called: shard_units=(...).",
                ) from error

        return batch_method

    def let_go(self) -> None:
        """Hold shards alone: after an evaluation the whole weights of a root would still be there, and stay what they were."""
        for module in self._numbered:
            module.reshard()

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Inside, ranks may go through different numbers of batches: see `help_others`."""
        self.let_go()
        self._is_evaluating = True
        try:
            yield
        finally:
            self._is_evaluating = False
            self.let_go()

    def help_others(self) -> None:
        """A rank that has no more batches: gather with those that have, until none has."""
        while number := self._next(0):
            module = self._numbered[number - 1]
            module.unshard()
            if number > len(self.roots):
                module.reshard()

    def _telling(self, number: int) -> Any:
        def before(module: nn.Module, args: Any) -> None:
            if self._is_evaluating:
                self._next(number)
            elif number <= len(self.roots) and self._is_first and torch.is_grad_enabled():
                self._is_first = False
                self._same_buffers()

        return before

    def _next(self, number: int) -> int:
        """Which module the ranks gather now, in an evaluation; 0 if none of them has anything left to do."""
        said = torch.tensor([number], device=self._trainer.device)
        dist.all_reduce(said, dist.ReduceOp.MAX, group=self.mesh.get_group())
        return int(said.item())

    def _same_buffers(self) -> None:
        """Once a step, as DDP does: a second forward before backward must find the buffers that the first one has kept for it."""
        buffers = [one for root in self.roots for one in root.buffers() if one.numel()]
        if buffers:
            with torch.no_grad():
                dist._broadcast_coalesced(self.mesh.get_group(), buffers, _BUCKET_BYTES, 0)  # type: ignore[attr-defined]

    # -- state -------------------------------------------------------------------------------------------------------

    def sharded(self, value: Tensor | Sharded) -> Tensor:
        """A DTensor of this rank's rows of a whole tensor, or of one in a checkpoint's files."""
        if isinstance(value, DTensor):
            return value
        start, stop = rows_of(value.shape[0], self.mesh.get_local_rank(), self.mesh.size())
        local = value.rows(start, stop) if isinstance(value, Sharded) else value.detach()[start:stop].clone()
        shape = torch.Size(value.shape)
        stride = torch.empty(shape, device="meta").stride()
        device = self._trainer.device
        return DTensor.from_local(
            local.contiguous().to(device), self.mesh, [Shard(0)], run_check=False, shape=shape, stride=stride
        )

    def averaged(self, model: nn.Module, average: Callable[[Any, Any, Any], None]) -> ShardedAverage:
        """A moving average of a model's weights, of which each rank has its rows."""
        return ShardedAverage(model, average)

    def waiting_gradients(self, model: nn.Module) -> dict[str, Tensor | None]:
        """Of this rank: the gradients of batches before, whole, that wait for a later one's to be averaged."""
        found: dict[str, Tensor | None] = {}
        waiting = {id(one.sharded_param): one for one in self._params()}
        for key, parameter in model.named_parameters():
            held = waiting.get(id(parameter))
            found[key] = parameter.grad if held is None else _waiting(held)
        return found

    def wait_for_step(self, parameter: Tensor, gradient: Tensor) -> bool:
        """Put such a gradient back: the next backward adds to it as it would have. False if the parameter is not sharded."""
        for held in self._params():
            if held.sharded_param is parameter:
                _take_waiting(held)
                held.unsharded_accumulated_grad = gradient.clone().to(parameter.device)
                return True
        return False

    def fitted(self, saved: Any, part: Any) -> Any:
        """The state of a part as it takes it: DTensors where it has such; all else whole."""
        if isinstance(part, nn.Module):
            own = part.state_dict()
            return _mapped(saved, lambda path, one: self._fit(one, own.get(path[-1])))
        if isinstance(part, Optimizer):
            every = [one for group in part.param_groups for one in group["params"]]
            numbers = [
                number for group in saved["state"]["param_groups"] for number in group["params"]
            ]  # torch counts them, whatever they are called
            by_number = dict(zip(map(str, numbers), every, strict=False))
            return _mapped(
                saved, lambda path, one: self._fit(one, by_number.get(path[-2]) if len(path) > 1 else None)
            )
        if isinstance(part, EMAUpdate):
            averages = part.state_dict()
            return _mapped(saved, lambda path, one: self._fit(one, averages.get(path[-2], {}).get(path[-1])))
        return _mapped(saved, lambda _, one: self._fit(one, None))

    def _fit(self, value: Any, like: Any) -> Any:
        if is_in_rows(like) and tuple(value.shape) == tuple(like.shape):
            return self.sharded(value)
        return value.full() if isinstance(value, Sharded) else value

    def _params(self) -> Iterator[Any]:
        for module in self._numbered:
            yield from _params(module)


def units(root: nn.Module, named: Sequence[str] | str | None = None, model: str = "model") -> list[nn.Module]:
    """The modules inside `root` that are gathered each for itself, outer ones first.

    Those of the classes `named`; else its blocks: of a ModuleList, ModuleDict or Sequential the members that have parts of their own and
    are at least two of one class, and no blocks inside blocks. One that shares weights with the rest of the model is none.
    """
    if named is not None:
        wanted = {named} if isinstance(named, str) else set(named)
        there = {type(one).__name__ for one in root.modules() if one is not root and trainable_rows(one)}
        unknown = sorted(wanted - there)
        if unknown:
            raise UsageError(
                "shard-units",
                f"shard_units names {unknown[0]!r}, and {model} has no such module inside it.",
                suggestion(unknown[0], there) or f"It has {', '.join(sorted(there)) or 'none'}.",
            )
        found = [one for one in root.modules() if one is not root and type(one).__name__ in wanted]
    else:
        found = _blocks(root)
    used = Counter(id(one) for _, one in root.named_parameters(remove_duplicate=False))
    return [
        one
        for one in dict.fromkeys(found)
        if not isinstance(one, nn.ModuleList | nn.ModuleDict)
        and trainable_rows(one)
        and Counter(id(each) for _, each in one.named_parameters(remove_duplicate=False)).items()
        <= used.items()
    ]


def _blocks(module: nn.Module) -> list[nn.Module]:
    found: list[nn.Module] = []
    members = list(module.children())
    kinds = (
        Counter(type(one) for one in members if _has_parts(one)) if isinstance(module, _LISTS) else Counter()
    )
    for one in members:
        if kinds[type(one)] > 1 and not isinstance(one, nn.ModuleList | nn.ModuleDict):
            found.append(one)
        else:
            found += _blocks(one)
    return found


def _has_parts(module: nn.Module) -> bool:
    return any(trainable_rows(one) for one in module.children())


def trainable_rows(module: nn.Module) -> bool:
    """Whether it has parameters that can be sharded."""
    return any(one.ndim for one in module.parameters())


class ShardedAverage:
    """What torch's AveragedModel is, of this rank's shards of a model, which cannot be copied. Names and arithmetic are the same."""

    def __init__(self, model: nn.Module, average: Callable[[Any, Any, Any], None]) -> None:
        self._model = model
        self._average = average
        self.n_averaged = torch.tensor(0)
        self._own = [*model.parameters(), *model.buffers()]
        self._averaged = {id(one): one.detach().clone() for one in self._own}

    @torch.no_grad()
    def update_parameters(self, model: nn.Module) -> None:
        """One more."""
        weights = [one for one in self._own if isinstance(one, nn.Parameter)]
        own, averaged = [local(one) for one in weights], [local(self._averaged[id(one)]) for one in weights]
        if self.n_averaged == 0:
            for one, average in zip(own, averaged, strict=True):
                average.copy_(one)
        else:
            groups: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}
            for one, average in zip(own, averaged, strict=True):
                pair = groups.setdefault((one.dtype, one.device), ([], []))
                pair[0].append(average)
                pair[1].append(one)
            for averages, ones in groups.values():
                self._average(averages, ones, self.n_averaged)
        for buffer in self._own[len(weights) :]:
            self._averaged[id(buffer)].copy_(buffer)
        self.n_averaged += 1

    @torch.no_grad()
    def swap(self) -> None:
        """Have the averages in the model, and the model's weights here; and back. FSDP knows the memory: the values change places."""
        for one in self._own:
            own, average = local(one), local(self._averaged[id(one)])
            before = own.clone()
            own.copy_(average)
            average.copy_(before)

    def state_dict(self) -> dict[str, Any]:
        """As that of an AveragedModel."""
        named = self._model.state_dict(keep_vars=True)
        averages = {
            f"module.{key}": self._averaged[id(one)]
            for key, one in named.items()
            if id(one) in self._averaged
        }
        return {"n_averaged": self.n_averaged, **averages}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        own = self.state_dict()
        if own.keys() != state.keys():
            raise ValueError(f"it has other names: {', '.join(sorted(own.keys() ^ state.keys())[:5])}")
        for key, value in own.items():
            local(value).copy_(local(state[key]))


def local(tensor: Tensor) -> Tensor:
    """The rows of it that lie here; a tensor that is not sharded lies here whole."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def lacks(root: Any) -> str:
    """Of torch's own names that are used here, which it may change, the first that a sharded module has not; empty if it has all."""
    if not hasattr(dist, "_broadcast_coalesced"):
        return "torch.distributed._broadcast_coalesced"
    if not hasattr(root, "_get_fsdp_state"):
        return "FSDPModule._get_fsdp_state"
    state = root._get_fsdp_state()
    if not hasattr(state, "_lazy_init"):
        return "FSDPState._lazy_init"
    if not (hasattr(state, "_fsdp_param_groups") or hasattr(state, "_fsdp_param_group")):
        return "FSDPState._fsdp_param_groups"
    for group in _groups(state):
        if not hasattr(group, "fsdp_params"):
            return "FSDPParamGroup.fsdp_params"
        for one in group.fsdp_params:
            # The whole parameter is there from the first time on that it was gathered.
            told = {*vars(one), *getattr(type(one), "__annotations__", {})}
            for name in ("sharded_param", "unsharded_accumulated_grad", "_unsharded_param"):
                if name not in told:
                    return f"FSDPParam.{name}"
    return ""


def _groups(state: Any) -> list[Any]:
    """Older torches have one at most, under another name."""
    groups = state._fsdp_param_groups if hasattr(state, "_fsdp_param_groups") else [state._fsdp_param_group]
    return [group for group in groups if group is not None]


def _params(module: Any) -> Iterator[Any]:
    """What FSDP holds of each parameter of a unit."""
    for group in _groups(module._get_fsdp_state()):
        yield from group.fsdp_params


def _waiting(held: Any) -> Tensor | None:
    """The gradient, whole, of batches before, that waits for a later one's to be averaged with it."""
    if held.unsharded_accumulated_grad is not None:
        return held.unsharded_accumulated_grad  # type: ignore[no-any-return]
    return held._unsharded_param.grad if hasattr(held, "_unsharded_param") else None


def _take_waiting(held: Any) -> Tensor | None:
    found = _waiting(held)
    held.unsharded_accumulated_grad = None
    if hasattr(held, "_unsharded_param"):
        held._unsharded_param.grad = None
    return found


def _roots(model: nn.Module) -> list[nn.Module]:
    """The modules that are called: of a ModuleList or ModuleDict its members."""
    if isinstance(model, nn.ModuleList | nn.ModuleDict):
        return [root for one in model.children() for root in _roots(one)]
    return [model]


def _named(trainer: Trainer) -> dict[tuple[str, str], nn.Parameter]:
    return {
        (name, key): one
        for name, model in trainer.models.items()
        for key, one in model.named_parameters(remove_duplicate=False)
    }


def _mapped(value: Any, change: Callable[[tuple[str, ...], Any], Any], path: tuple[str, ...] = ()) -> Any:
    """A nested state with its tensors changed, by the path of each."""
    if isinstance(value, dict):
        made = copy.copy(value)  # of its own kind, with what hangs on it
        for key, inner in value.items():
            made[key] = _mapped(inner, change, (*path, str(key)))
        return made
    if type(value) in (list, tuple):
        return type(value)(_mapped(inner, change, (*path, str(n))) for n, inner in enumerate(value))
    return change(path, value) if isinstance(value, Tensor | Sharded) else value


def _is_like(value: Any, parameter: Tensor) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0 and value.shape == parameter.shape


def _unfit(what: str, next_step: str = _AGAIN) -> UsageError:
    return UsageError("fsdp-unfit", f'parallel="fsdp" cannot be: {what}', next_step)
