"""What a script tells TensorBoard, W&B or MLflow becomes metrics of its run, too: none of them is asked to do anything else.

Their methods are wrapped when the script imports them, so a script that imports none pays nothing. What they refuse, they
refuse as before, and nothing is kept of it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from luxmeter.errors import warn_once
from luxmeter.experiment import running
from luxmeter.import_hook import call_after_import
from luxmeter.store import number_of

Told = Iterator[tuple[dict[str, Any], int | None]]


def hear_other_trackers() -> None:
    """Listen from their import on."""
    for module, (source, methods) in _HEARD.items():
        work = functools.partial(_wrap, module, source, methods)
        if module in sys.modules:
            work()
        else:
            call_after_import(work, module)


def _wrap(module: str, source: str, methods: Mapping[tuple[str, str], Callable[..., Told]]) -> None:
    for (owner, name), told in methods.items():
        made = getattr(sys.modules[module], owner, None)
        real = getattr(made, name, None)
        if real is not None:
            setattr(made, name, _heard(real, source, told))


def _heard(real: Callable[..., Any], source: str, told: Callable[..., Told]) -> Callable[..., Any]:
    @functools.wraps(real)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            values = list(told(self, *args, **kwargs))  # before the call: W&B counts its step on
        except Exception:  # noqa: BLE001  (a form of the call that we do not know: theirs says what is wrong)
            values = []
        result = real(self, *args, **kwargs)
        for each, step in values:
            _keep(source, each, step)
        return result

    return method


def _keep(source: str, values: dict[str, Any], step: int | None) -> None:
    numbers = {name: number for name, value in values.items() if (number := number_of(value)) is not None}
    experiment = running.newest_here()
    if not numbers or experiment is None:
        return
    try:
        experiment.log_from(source, numbers, step)
    except Exception as problem:  # noqa: BLE001  (the script told them, not us: it must not fail by us)
        warn_once(
            "told-not-kept",
            f"What was told to {source} could not be kept with the run: {problem}",
            f"{source} has it; the run goes on without.",
        )


# -- what each of their calls tells ---------------------------------------------------------------------------------


def _add_scalar(
    _: Any, tag: str, scalar_value: Any, global_step: int | None = None, *__: Any, **___: Any
) -> Told:
    yield {tag: scalar_value}, _step(global_step)


def _add_scalars(
    _: Any,
    main_tag: str,
    tag_scalar_dict: Mapping[str, Any],
    global_step: int | None = None,
    *__: Any,
    **___: Any,
) -> Told:
    yield {f"{main_tag}/{tag}": value for tag, value in tag_scalar_dict.items()}, _step(global_step)


def _wandb_log(run: Any, data: Mapping[str, Any], step: int | None = None, *_: Any, **__: Any) -> Told:
    yield dict(_flat(data)), _step(run.step if step is None else step)


def _mlflow_metric(
    _: Any,
    run_id: str,
    key: str,
    value: Any,
    timestamp: Any = None,
    step: int | None = None,
    *__: Any,
    **___: Any,
) -> Told:
    yield {key: value}, step or None


def _mlflow_batch(_: Any, run_id: str, metrics: Any = (), *__: Any, **___: Any) -> Told:
    for metric in metrics or ():
        yield {metric.key: metric.value}, metric.step or None  # 0 is what it takes for no step: counted then


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _step(step: Any) -> int | None:
    return None if step is None else int(step)


_SUMMARY_WRITER = {
    ("SummaryWriter", "add_scalar"): _add_scalar,
    ("SummaryWriter", "add_scalars"): _add_scalars,
}
# The module that has their class -> whom they tell, and which methods.
_HEARD: dict[str, tuple[str, Mapping[tuple[str, str], Callable[..., Told]]]] = {
    "torch.utils.tensorboard.writer": ("tensorboard", _SUMMARY_WRITER),
    "tensorboardX.writer": ("tensorboard", _SUMMARY_WRITER),
    "wandb.sdk.wandb_run": ("wandb", {("Run", "log"): _wandb_log}),
    "mlflow.tracking.client": (
        "mlflow",
        {("MlflowClient", "log_metric"): _mlflow_metric, ("MlflowClient", "log_batch"): _mlflow_batch},
    ),
}
