"""Further scores of untrained networks, cheap beside training: NASWOT, synflow and the gradient norm.

Like the Zen score each works on a copy with gaussian weights under its own seed and leaves the model as it was.
NASWOT and the gradient norm give what the ZenNAS repository's versions give for the same seed. Inside a run each is put
into it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from luxmeter.errors import UsageError, suggestion
from luxmeter.model.zen import ZenScore, check_size, gaussian_init, put_score, scratch, zen_score

_RELUS = {
    *(F.relu, F.relu_, F.relu6, F.hardtanh, F.hardtanh_),
    *(torch.relu, torch.relu_, Tensor.relu, Tensor.relu_),
}
"""ReLU however it is called; nn.ReLU calls one of these, nn.ReLU6 is a hardtanh."""


def naswot_score(model: nn.Module, *, input_size: Sequence[int] = (16, 3, 32, 32), seed: int = 0) -> float:
    """How differently ReLUs switch for different inputs: log-determinant of the matrix of agreements.

    Mellor et al., "Neural Architecture Search without Training", ICML 2021. It grows with the number of ReLUs.
    """
    size = check_size(input_size)
    with scratch(model, seed) as (net, like), torch.no_grad():
        net.train()
        gaussian_init(net)
        x = torch.randn(size, device=like.device, dtype=like.dtype)
        with _Switches(size[0], like.device) as switches:
            net(x)
    if not switches.seen:
        raise UsageError(
            "score-without-relu",
            f"{type(model).__name__} called no ReLU; NASWOT counts how they switch.",
            "Use zen_score, which works with any activation.",
        )
    found = float(torch.linalg.slogdet(switches.agreement.double()).logabsdet)
    return put_score("naswot", ZenScore((found,), ""), model, size, seed).value


def grad_norm_score(model: nn.Module, *, input_size: Sequence[int] = (16, 3, 32, 32), seed: int = 0) -> float:
    """The euclidean norm of the gradient of a cross entropy with random labels. The model gives class scores."""
    size = check_size(input_size)
    with scratch(model, seed) as (net, like), torch.enable_grad():
        net.train()
        net.requires_grad_(True)
        net.zero_grad()
        gaussian_init(net)
        scores = net(torch.randn(size, device=like.device, dtype=like.dtype))
        _check_classes(model, scores)
        labels = torch.randint(0, scores.shape[1], (size[0],)).to(like.device)
        torch.autograd.backward(F.cross_entropy(scores, labels))
        squares = torch.stack([p.grad.norm() ** 2 for p in net.parameters() if p.grad is not None])
    found = float(squares.sum().sqrt())
    return put_score("grad_norm", ZenScore((found,), ""), model, size, seed).value


def synflow_score(model: nn.Module, *, input_size: Sequence[int] = (1, 3, 32, 32), seed: int = 0) -> float:
    """log10 of synaptic flow: the sum over weights of |w * dR/dw|, R the output for ones through |weights|.

    Tanaka et al., "Pruning neural networks without any data by iteratively conserving synaptic flow", NeurIPS
    2020; batch norms are passed through, as they would undo the flow. Computed in double precision.
    """
    size = check_size(input_size)
    with scratch(model, seed) as (net, like), torch.enable_grad():
        gaussian_init(net)
        net.double().eval().requires_grad_(True)
        net.zero_grad()
        for module in net.modules():
            if isinstance(module, _BatchNorm):
                module.forward = _unchanged  # type: ignore[assignment, method-assign]
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.abs_()
        torch.autograd.backward(
            net(torch.ones((1, *size[1:]), device=like.device, dtype=torch.float64)).sum()
        )
        layers = [m for m in net.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
        flow = [(m.weight.detach() * m.weight.grad).abs().sum() for m in layers if m.weight.grad is not None]
    found = float(torch.stack(flow).sum().log10()) if flow else float("-inf")
    return put_score("synflow", ZenScore((found,), ""), model, size, seed).value


def _zen(model: nn.Module, **options: Any) -> float:
    return zen_score(model, repeat=1, **options).value


SCORES: Mapping[str, Callable[..., float]] = {
    "zen": _zen,
    "naswot": naswot_score,
    "synflow": synflow_score,
    "grad_norm": grad_norm_score,
}
"""Name -> score(model, *, input_size, seed) -> float, for the architecture search. Higher is taken as better."""


def score_named(name: str) -> Callable[..., float]:
    """The score of that name."""
    if name not in SCORES:
        raise UsageError(
            "no-such-score",
            f"There is no score called {name!r}.",
            suggestion(name, SCORES) or f"Choose one of {', '.join(SCORES)}; a search also takes a function.",
        )
    return SCORES[name]


class _Switches(TorchFunctionMode):
    """Sums up, over all ReLUs, for each pair of inputs how many units are in the same state."""

    def __init__(self, batch: int, device: torch.device) -> None:
        super().__init__()
        self.agreement = torch.zeros(batch, batch, device=device, dtype=torch.float64)
        self.seen = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _RELUS:
            on = (args[0] > 0).flatten(1).to(torch.float32)
            off = 1.0 - on
            self.agreement += (on @ on.t()).double() + (off @ off.t()).double()
            self.seen += 1
        return func(*args, **(kwargs or {}))


def _unchanged(x: Tensor) -> Tensor:
    return x


def _check_classes(model: nn.Module, scores: Any) -> None:
    if not isinstance(scores, Tensor) or scores.ndim != 2:
        seen = (
            f"a tensor of shape {tuple(scores.shape)}"
            if isinstance(scores, Tensor)
            else type(scores).__name__
        )
        raise UsageError(
            "score-needs-classes",
            f"{type(model).__name__} gives {seen}; the gradient norm needs one score a class.",
            "Build it with a classifier: PlainNet(structure, num_classes=10).",
        )
