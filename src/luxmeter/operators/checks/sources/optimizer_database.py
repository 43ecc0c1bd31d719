"""torch's optimizer database: every optimizer with the settings that torch's own tests give it, for a few steps."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch

from luxmeter.operators.checks.sources.opinfo import no_database, seed_all
from luxmeter.operators.checks.trial import Trial

_SHAPES = ((4, 3), (3, 2))  # of the parameters: matrices, which all optimizers take


def cases() -> list[dict[str, Any]]:
    """All cases of the database."""
    return [
        {"source": "optimizer", "api": f"torch.optim.{info.optim_cls.__name__}", "name": f"torch.optim.{info.optim_cls.__name__}",
         "entry": info.optim_cls.__name__}
        for info in database()
    ]  # fmt: skip


def dtype_of(case: dict[str, Any], dtype: str, device: str) -> str:
    """Optimizers take what parameters can be."""
    return dtype if getattr(torch, dtype).is_floating_point else ""


def trials_of(case: dict[str, Any], *, dtype: str, seed: int, device: str) -> Iterator[Trial]:
    """Each of its settings, one parameter at a time and all together (`foreach`), on a small problem."""
    info = next(i for i in database() if i.optim_cls.__name__ == case["entry"])
    kind = getattr(torch, dtype)
    for one in info.optim_inputs_func(device="cpu"):
        settings = {k: v for k, v in one.kwargs.items() if k not in ("differentiable", "capturable", "fused")}
        if info.optim_cls is torch.optim.LBFGS:
            settings.setdefault(
                "max_iter", 4
            )  # of twenty, each with a search along a line, most are the same again
        ways: list[dict[str, Any]] = [{}]
        if "foreach" in info.supported_impls:
            ways = [{"foreach": False}, {"foreach": True}]
        for way in ways:
            seed_all(seed)
            weights = [torch.randn(shape).to(kind) for shape in _SHAPES]
            inputs, targets = torch.randn(8, 4).to(kind), torch.randn(8, 2).to(kind)
            function = functools.partial(
                train,
                info.optim_cls,
                sparse=bool(info.only_supports_sparse_grads),
                names=tuple({**settings, **way}),
            )
            yield Trial(
                case["api"],
                function,
                (weights, inputs, targets, *{**settings, **way}.values()),
                backward=False,
                written=f"functools.partial(train, {case['api']}, {', '.join(f'{k}={v!r}' for k, v in function.keywords.items())})",
                defined=f"import functools\n\n\n{_plain_source(train)}\n\n\n",
            )


def train(
    kind: type[torch.optim.Optimizer],
    weights: list[torch.Tensor],
    inputs: torch.Tensor,
    targets: torch.Tensor,
    *values: Any,
    sparse: bool,
    names: tuple[str, ...],
    steps: int = 3,
) -> list[torch.Tensor]:
    """The weights after some steps."""
    settings = dict(zip(names, values, strict=True))
    parameters = [torch.nn.Parameter(w.detach().clone()) for w in weights]
    optimizer = kind(parameters, **settings)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        with torch.enable_grad():
            loss = ((torch.tanh(inputs @ parameters[0]) @ parameters[1] - targets) ** 2).mean()
            loss.backward()  # type: ignore[no-untyped-call]
        if sparse:
            for p in parameters:
                p.grad = p.grad.to_sparse() if p.grad is not None else None
        return loss

    for _ in range(steps):
        optimizer.step(closure)  # type: ignore[arg-type]  # as torch's own closures: a tensor
    return [p.detach() for p in parameters]


def _plain_source(function: Callable[..., Any]) -> str:
    """A function without types and comments, as a script has it."""
    tree = ast.parse(inspect.getsource(function))
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef):
            node.returns = None
    return ast.unparse(tree)


@functools.cache
def database() -> tuple[Any, ...]:
    """torch's own optimizers."""
    try:
        from torch.testing._internal.common_optimizers import optim_db
    except ModuleNotFoundError as error:
        raise no_database(error) from error
    return tuple(info for info in optim_db if inspect.isclass(info.optim_cls))
