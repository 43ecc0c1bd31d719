"""The Zen score: how much a network with random weights answers to a small change of its input.

Lin et al., "Zen-NAS: A Zero-Shot NAS for High-Performance Deep Image Recognition", ICCV 2021. One repetition:
gaussian weights; x ~ N(0, 1) and x' = x + gamma * N(0, 1); log of the mean over the batch of the summed absolute
difference of the features before global pooling, plus log sqrt(mean variance) of the input of every batch norm,
which has divided its input by just that.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from luxmeter.errors import UsageError, suggestion, warn_once
from luxmeter.files import read_json, write_json
from luxmeter.store import put_result

FORMAT = 1  # of a score's JSON form; 1: score, model, scores, mode, value, precision, input_size, seed
_WHAT = "luxmeter.score"
TITLES = {"zen": "Zen score", "naswot": "NASWOT", "synflow": "synflow", "grad_norm": "grad norm"}
MODES = ("stationary", "published")


@dataclass(frozen=True)
class ZenScore:
    """The score of every repetition; `value` is their mean."""

    scores: tuple[float, ...]
    mode: str

    @property
    def value(self) -> float:
        """The mean of the repetitions: the Zen score."""
        return float(np.mean(self.scores))

    @property
    def std(self) -> float:
        """The standard deviation between repetitions."""
        return float(np.std(self.scores))

    @property
    def precision(self) -> float:
        """Half the width of the 95 % interval of the mean."""
        return 1.96 * self.std / float(np.sqrt(len(self.scores)))

    def __float__(self) -> float:
        return self.value


def zen_score(
    model: nn.Module,
    *,
    input_size: Sequence[int] = (16, 3, 32, 32),
    repeat: int = 4,
    gamma: float = 1e-2,
    seed: int = 0,
    mode: str = "stationary",
    features: str | None = None,
) -> ZenScore:
    """The Zen score of an architecture; its weights do not matter and the model is left as it was.

    `stationary` takes the variances of each repetition by itself, so more repetitions only narrow the interval.
    `published` gives what the authors' code gives for this seed and `repeat`: there the variances are running
    averages that start at 1 and are never reset, so the score rises with `repeat`. Inside a run it is put into it.
    `features` names the module whose output the features are; without it they are found (see docs/zen-score.md).
    """
    if mode not in MODES:
        raise UsageError(
            "zen-mode",
            f"There is no mode {mode!r} of the Zen score.",
            suggestion(mode, MODES) or f"Choose one of {', '.join(MODES)}.",
        )
    size = check_size(input_size)
    if repeat < 1:
        raise UsageError("zen-repeat", f"repeat is {repeat}.", "Ask for at least 1 repetition.")
    with scratch(model, seed) as (net, like), torch.no_grad():
        extract = feature_function(net, features)
        norms = [m for m in net.modules() if isinstance(m, _BatchNorm)]
        if mode == "stationary":
            _measure_variances_only(net, norms)
        else:
            norms = [
                norm for norm in norms if isinstance(norm, nn.BatchNorm2d)
            ]  # as the published code has it
        scores = []
        for _ in range(repeat):
            if mode == "stationary":
                for norm in norms:
                    norm.reset_running_stats()
            scores.append(_one(net, extract, norms, size, gamma, like))
    if not np.all(np.isfinite(scores)):
        warn_once(
            "zen-not-finite",
            f"The Zen score is {float(np.mean(scores))}: the features overflow {like.dtype}, or do not change at all.",
            "Networks without batch norm need model.double(); a score of -inf means the output is dead.",
        )
    return put_score("zen", ZenScore(tuple(scores), mode), model, size, seed)


def put_score(
    score: str, found: ZenScore, model: nn.Module, input_size: Sequence[int], seed: int
) -> ZenScore:
    """The score (one of TITLES), put into the run that it was taken in."""
    name = type(model).__name__
    width = f" ± {found.precision:.2f}" if len(found.scores) > 1 else ""
    sizes = "x".join(map(str, input_size))
    said = {
        "format": _WHAT, "format_version": FORMAT, "score": score, "model": name, "scores": list(found.scores),
        "mode": found.mode, "value": found.value, "precision": found.precision,
        "input_size": list(input_size), "seed": seed,
    }  # fmt: skip
    title = f"{TITLES[score]} {found.value:.2f}{width} of {name} for {sizes}, seed {seed}"
    put_result("zen", title, "zen.json", lambda path: write_json(path, said))
    return found


def load_score(path: str | Path) -> ZenScore:
    """The score that was put into a run."""
    said = read_score(path)
    return ZenScore(tuple(said["scores"]), said["mode"])


def read_score(path: str | Path) -> dict[str, Any]:
    """All that was put into a run with a score: score, model, scores, mode, input_size, seed; of the types they have."""
    said = read_json(Path(path))
    fits = isinstance(said, dict) and said.get("format") == _WHAT and said.get("format_version") == FORMAT
    if fits:
        scores, sizes = said.get("scores"), said.get("input_size")
        fits = (
            all(isinstance(said.get(name), str) for name in ("score", "model", "mode"))
            and (isinstance(scores, list) and scores and all(isinstance(n, float) for n in scores))
            and (isinstance(sizes, list) and all(type(n) is int and 0 < n < 1 << 63 for n in sizes))
            and (type(said.get("seed")) is int and abs(said["seed"]) < 1 << 64)
        )
    if not fits:
        raise UsageError(
            "score-damaged", f"{path} is no score of this version.", "Give the zen.json of a run's results."
        )
    found: dict[str, Any] = said
    return found


def gaussian_init(model: nn.Module) -> None:
    """Weights of convolutions and linear layers ~ N(0, 1), norms to 1, biases to 0, as the published scores do."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.normal_(module.weight)
        elif isinstance(module, _BatchNorm | nn.GroupNorm):
            if module.weight is not None:
                nn.init.ones_(module.weight)
        else:
            continue
        if module.bias is not None:
            nn.init.zeros_(module.bias)


@contextmanager
def scratch(model: nn.Module, seed: int) -> Iterator[tuple[nn.Module, Tensor]]:
    """A copy of the model to spoil, under a seed of its own, and an empty tensor of its device and dtype."""
    net = copy.deepcopy(model)
    first = next((p for p in net.parameters() if p.is_floating_point()), torch.empty(0))
    if first.is_meta:
        raise UsageError(
            "score-needs-weights",
            "The model lies on the meta device; a score runs it.",
            "Build it on a real device, for example PlainNet(str(net)).",
        )
    with torch.random.fork_rng([first.device] if first.device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield net, torch.empty(0, dtype=first.dtype, device=first.device)


def check_size(input_size: Sequence[int]) -> tuple[int, ...]:
    """The size as a tuple, if it is one of a batch of images."""
    size = tuple(int(n) for n in input_size)
    if len(size) != 4 or min(size) < 1:
        raise UsageError(
            "score-input-size",
            f"input_size is {tuple(input_size)}.",
            "Give batch, channels, height, width: (16, 3, 32, 32).",
        )
    return size


def feature_function(model: nn.Module, features: str | None) -> Callable[[Tensor], Tensor]:
    """How to get the features before global pooling out of the model."""
    if features is not None:
        named = dict(model.named_modules())
        if features not in named:
            raise UsageError(
                "zen-features",
                f"The model has no module called {features!r}.",
                suggestion(features, named) or "Take a name from model.named_modules().",
            )
        return _tapped(model, [named[features]], of_output=True)
    for method in ("forward_pre_GAP", "forward_features"):
        if callable(getattr(model, method, None)):
            found: Callable[[Tensor], Tensor] = getattr(model, method)
            return found
    pools = [
        m for m in model.modules() if isinstance(m, nn.AdaptiveAvgPool2d) and m.output_size in (1, (1, 1))
    ]
    if not pools:
        raise UsageError(
            "zen-features",
            f"{type(model).__name__} does not show where its features before global pooling are.",
            "Name the module that gives them: features='layer4'.",
        )
    return _tapped(model, pools, of_output=False)


def _tapped(model: nn.Module, modules: Sequence[nn.Module], *, of_output: bool) -> Callable[[Tensor], Tensor]:
    seen: list[Tensor] = []

    def keep(_module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seen[:] = [output if of_output else inputs[0]]  # the last call wins: SE blocks pool too, but earlier

    for module in modules:
        module.register_forward_hook(keep)

    def extract(x: Tensor) -> Tensor:
        model(x)
        return seen[0]

    return extract


def _measure_variances_only(net: nn.Module, norms: list[_BatchNorm]) -> None:
    """Batch norms average the batches since their last reset; nothing else (dropout) behaves as in training."""
    net.eval()
    for norm in norms:
        norm.train()
        norm.momentum = None
        if norm.running_var is None:
            norm.track_running_stats = True
            norm.register_buffer("running_mean", torch.zeros(norm.num_features))
            norm.register_buffer("running_var", torch.ones(norm.num_features))
            norm.register_buffer("num_batches_tracked", torch.tensor(0))


def _one(
    net: nn.Module,
    extract: Callable[[Tensor], Tensor],
    norms: Sequence[Any],
    size: tuple[int, ...],
    gamma: float,
    like: Tensor,
) -> float:
    # The order of random draws and of additions is the published one: parity depends on both.
    gaussian_init(net)
    x = torch.randn(size, device=like.device, dtype=like.dtype)
    noise = torch.randn(size, device=like.device, dtype=like.dtype)
    mixed = x + gamma * noise
    difference = (extract(x) - extract(mixed)).abs()
    change = difference.sum(dim=tuple(range(1, difference.ndim))).mean()
    log_scale = torch.zeros((), device=like.device, dtype=like.dtype)
    for norm in norms:
        log_scale = log_scale + torch.log(torch.sqrt(torch.mean(norm.running_var)))
    return float(torch.log(change) + log_scale)
