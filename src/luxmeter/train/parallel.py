"""Data-parallel training: the models stay what and where they are; their gradients are averaged over the ranks (torch's DDP).

DDP is put beside a model, not around it: what it does before and after forward are hooks of the model. So `self.model(xs)`,
checkpoints and what a module is called are the same in one process and in many.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from luxmeter import supported
from luxmeter.errors import UsageError
from luxmeter.train import parts
from luxmeter.train.dist import all_reduce, broadcast

if TYPE_CHECKING:
    from luxmeter.train.trainer import Trainer


# Names of DDP's own that are used here, and that torch may change.
_OF_DDP = ("_pre_forward", "_post_forward", "require_backward_grad_sync", "require_forward_param_sync")


class Replica:
    """A model whose gradients are averaged over the ranks in backward; `unused`: some of its parameters may get none."""

    def __init__(self, model: nn.Module, *, unused: bool, compiled: bool) -> None:
        self.model = model
        self.parameters = trainable(model)
        self.syncs = True  # the backward of the forwards to come
        self.is_synced = False  # that of the last forward
        self.forwards = 0
        self._is_first = True  # forward since a step: the buffers become those of rank 0
        self._ddp: Any = DistributedDataParallel(model, find_unused_parameters=unused)
        for name in _OF_DDP:
            if not hasattr(self._ddp, name):
                raise supported.torch_changed(
                    'parallel="ddp"', f"DistributedDataParallel.{name}", "Install another torch"
                )
        if not unused:
            self._arrange_buckets()
        before, after = self._before, self._after
        if compiled:
            disable: Any = torch.compiler.disable
            before, after = disable(before), disable(after)
        self._hooks = [
            model.register_forward_pre_hook(_Hook(before), prepend=True, with_kwargs=True),
            model.register_forward_hook(_Hook(after)),
        ]

    def remove(self) -> None:
        """Leave the model as it was."""
        for hook in self._hooks:
            hook.remove()

    def stepped(self) -> None:
        """An optimizer has stepped."""
        self._is_first = True

    def _before(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not torch.is_grad_enabled():
            return None  # an evaluation, in which ranks need not have the same number of batches
        ddp = self._ddp
        ddp.require_backward_grad_sync = self.is_synced = self.syncs
        # Once a step: a second forward before backward must find the buffers that the first one has kept for it.
        ddp.require_forward_param_sync, self._is_first = self._is_first, False
        self.forwards += 1
        try:
            return ddp._pre_forward(*args, **kwargs)
        except RuntimeError as error:
            raise self._without_gradient(str(error)) or error from None

    def _after(self, _: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        return self._ddp._post_forward(output) if torch.is_grad_enabled() else None

    def _without_gradient(self, said: str) -> UsageError | None:
        """What DDP says of parameters that a backward did not come to, with their names."""
        if "finished reduction" not in said:
            return None
        found = re.search(r"did not receive grad for rank \d+: ([\d ]+)", said)
        names = [name for name, one in self.model.named_parameters() if one.requires_grad]
        which = ", ".join(names[int(one)] for one in found[1].split()) if found else "some"
        return UsageError(
            "parameters-without-gradient",
            f"In the last batch these parameters of the {type(self.model).__name__} got no gradient, and the ranks wait for it: {which}.",
            "Freeze them (requires_grad_(False)), or give unused_parameters=True to the Trainer.",
        )

    def _arrange_buckets(self) -> None:
        """Have DDP arrange its buckets now, not after the first backward in the order in which gradients came there.

        Where a gradient lies in a bucket decides in which order the ranks' are added. A resumed training, whose first batch is
        another, has to add as the one that was not interrupted. So there is a backward of zeros first, the same one in both.
        """
        if any(one._backward_hooks or one._post_accumulate_grad_hooks for one in self.parameters):
            return  # they would be called by it
        before = [one.grad for one in self.parameters]
        for one in self.parameters:
            one.grad = None
        with torch.enable_grad():
            self._ddp._pre_forward()
            self._ddp._post_forward(torch.zeros(()))
            # One by one, the last layer's first: as a backward comes to them, so that they are sent while it goes on. Of one
            # call for all of them torch decides the order. Not one.backward(): a trace shows the user's.
            for one in self.parameters[::-1]:
                torch.autograd.backward(one, torch.zeros_like(one))
        for one, gradient in zip(self.parameters, before, strict=True):
            one.grad = gradient


class _Hook:
    """A hook that stays with its model: a copy of the model is nobody's replica."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def __call__(self, *given: Any) -> Any:
        return self._call(*given) if self._call is not None else None

    def __deepcopy__(self, memo: Any) -> _Hook:
        return _Hook(None)

    def __reduce__(self) -> Any:
        return _Hook, (None,)


class Replicas:
    """The models of a training in many processes, and the parameters that belong to none."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._replicas: list[Replica] = []
        self._watching: list[Any] = []
        self._loose: list[nn.Parameter] = []
        self._seen: dict[
            int, dict[int, int]
        ] = {}  # optimizer -> replica -> its forwards before the last step
        self._syncs = True
        self._settled: set[int] = set()  # optimizers of which all is averaged for the next step
        self._begin()

    def renew_if_changed(self) -> None:
        """At the start of an epoch: parameters may have been frozen, or set free."""
        known = [*(one.parameters for one in self._replicas), self._loose]
        now = [*(trainable(model) for model in _models(self._trainer)), self._free()]
        if [[*map(id, group)] for group in known] != [[*map(id, group)] for group in now]:
            self.end()
            self._begin()

    def sync(self, on: bool) -> None:
        """Whether the gradients of the next batch are averaged in its backward; else they wait for a later one's."""
        self._syncs = on
        for replica in self._replicas:
            replica.syncs = on

    def settle(self, optimizers: Sequence[Optimizer]) -> None:
        """Before a step: average what no backward has."""
        for optimizer in optimizers:
            self._average(optimizer)
            self._settled.add(id(optimizer))

    def end(self) -> None:
        """Leave models and optimizers as they were."""
        for replica in self._replicas:
            replica.remove()
        for hook in self._watching:
            hook.remove()
        self._replicas, self._watching, self._settled = [], [], set()

    def _begin(self) -> None:
        options = self._trainer.options
        self._replicas = [
            Replica(model, unused=options.unused_parameters, compiled=bool(options.compile))
            for model in _models(self._trainer)
        ]
        self.sync(self._syncs)
        self._loose = self._free()
        self._seen = {}
        for optimizer in self._trainer.optimizers:
            self._watching += [
                optimizer.register_step_pre_hook(self._before_step),
                optimizer.register_step_post_hook(self._after_step),
            ]

    def _free(self) -> list[nn.Parameter]:
        """What is trained and belongs to no model."""
        held = {id(one) for model in _models(self._trainer) for one in model.parameters()}
        return [
            one
            for one in parts.trained(self._trainer)
            if isinstance(one, nn.Parameter) and one.requires_grad and id(one) not in held
        ]

    def _before_step(self, optimizer: Optimizer, *_: Any) -> None:
        if id(optimizer) in self._settled:
            self._settled.remove(id(optimizer))
        else:
            self._average(optimizer)

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        seen = self._seen.setdefault(id(optimizer), {})
        for number, replica in enumerate(self._replicas):
            seen[number] = replica.forwards
            replica.stepped()

    def _average(self, optimizer: Optimizer) -> None:
        seen = self._seen.get(id(optimizer), {})
        called = [replica.forwards != seen.get(number, 0) for number, replica in enumerate(self._replicas)]
        waiting = [
            (replica, was_called)
            for replica, was_called in zip(self._replicas, called, strict=True)
            if not (was_called and replica.is_synced)
        ]
        if not (waiting or self._loose):
            return  # as in most steps: backward has averaged all
        own = {id(one) for group in optimizer.param_groups for one in group["params"]}
        loose = [one for one in self._loose if id(one) in own]
        if loose:
            average_gradients(loose)
        for replica, was_called in waiting:
            its = [one for one in replica.parameters if id(one) in own]
            if its:
                average_gradients(its)
                if not was_called:
                    self._trainer.notice(
                        f"A {type(replica.model).__name__} is trained by calls of its parts, not of itself: its gradients are "
                        "averaged over the ranks before each step, and not during backward."
                    )


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that are trained."""
    return [one for one in model.parameters() if one.requires_grad]


def _models(trainer: Trainer) -> list[nn.Module]:
    return [model for model in trainer.models.values() if trainable(model)]


def same_weights(trainer: Trainer) -> None:
    """Give every rank the weights and buffers of rank 0."""
    with torch.no_grad():
        for model in trainer.models.values():
            for tensor in (*model.parameters(), *model.buffers()):
                _from_main(tensor)
        for one in parts.loose(trainer).values():
            _from_main(one)


def same_buffers(trainer: Trainer) -> None:
    """Give every rank the buffers of rank 0: an evaluation goes by them on all ranks."""
    if trainer._training.in_step is None:
        return
    with torch.no_grad():
        for model in trainer.models.values():
            for buffer in model.buffers():
                _from_main(buffer)


def _from_main(tensor: Tensor) -> None:
    if isinstance(tensor, nn.UninitializedParameter | nn.UninitializedBuffer):
        return
    if tensor.is_contiguous():
        broadcast(tensor.data)
    else:
        tensor.data.copy_(broadcast(tensor.data.contiguous()))


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Put the mean of the ranks' gradients in the place of each rank's own; one that some of them lack counts as zero."""
    groups: dict[tuple[torch.dtype, torch.device], list[nn.Parameter]] = {}
    for one in parameters:
        groups.setdefault((one.dtype, one.device), []).append(one)
    for (dtype, device), group in groups.items():
        there = torch.tensor([float(one.grad is not None) for one in group], dtype=dtype, device=device)
        gradients = [torch.zeros_like(one) if one.grad is None else one.grad for one in group]
        flat = all_reduce(torch.cat([there, *(one.detach().reshape(-1) for one in gradients)]), "mean")
        start = len(group)
        for one, gradient, is_there in zip(group, gradients, flat[:start].tolist(), strict=True):
            if is_there:
                gradient.detach().copy_(flat[start : start + gradient.numel()].view(gradient.shape))
                one.grad = gradient
            start += gradient.numel()


def identity(trainer: Trainer) -> dict[str, str]:
    """What has to be the same on all ranks before anything is made: the Trainer, its code and its parameters."""
    kind = type(trainer)
    params = {key: one for key, one in trainer.params.to_dict().items() if key not in _OF_A_RANK}
    options = {key: one for key, one in vars(trainer.options).items() if key not in ("quiet", "tags")}
    return {
        "Trainer": f"{kind.__module__}.{kind.__qualname__}",
        "parameters": "\n".join(f"{key} = {_text(one)}" for key, one in sorted(params.items())),
        "options": "\n".join(f"{key} = {_text(one)}" for key, one in options.items()),
        "code of the Trainer": "\n".join(_code(one) for one in kind.__mro__),
    }


def shapes(trainer: Trainer) -> dict[str, str]:
    """What has to be the same on all ranks when it was made: models, optimizers, callbacks."""
    weights = [
        f"{name}.{key}: {one.dtype} {tuple(one.shape)}"
        for name, model in trainer.models.items()
        for key, one in model.named_parameters()
        if not isinstance(one, nn.UninitializedParameter)
    ]
    return {
        "weights": "\n".join(weights),
        "optimizers": ", ".join(type(one).__name__ for one in trainer.optimizers),
        "callbacks": ", ".join(type(one).__name__ for one in trainer.callbacks),
    }


_OF_A_RANK = ("device", "eidx", "idx", "global_step")


def _text(value: Any) -> str:
    """As text; what has no text of its own is the kind that it is, not the place in memory where it lies."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_text(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    is_plain = value is None or isinstance(value, str | int | float | bool)
    return repr(value) if is_plain else f"a {type(value).__qualname__}"


def _code(kind: type) -> str:
    """The source of a class; empty if it has none, or is ours or an installed one."""
    try:
        file = inspect.getsourcefile(kind)
        if file is None or "site-packages" in Path(file).parts or kind.__module__.startswith("luxmeter."):
            return ""
        return inspect.getsource(kind)
    except (OSError, TypeError):
        return ""
