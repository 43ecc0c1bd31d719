"""Hugging Face's Trainer, logged into a run: `Trainer(..., callbacks=[LuxmeterCallback("bert")])`.

The trainer tells its callbacks no exception. Inside `with lux.Experiment(...)` one ends the run as it should; a run
of the callback's own is ended by the next training or with the program, as failed.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Unpack

from luxmeter.errors import MissingExtraError
from luxmeter.experiment.integrations.target import Given, RunTarget
from luxmeter.experiment.options import ExperimentSettings
from luxmeter.files import to_json

try:
    from transformers import TrainerCallback  # type: ignore[import-not-found,unused-ignore]
except ImportError as error:
    raise MissingExtraError(
        "no-transformers",
        f"This callback needs transformers: {error}.",
        "Install it with: pip install transformers accelerate",
    ) from error

# Where things are written and how often is said: no parameters of the training, and different in every repeat.
_NOT_PARAMS = {"output_dir", "logging_dir", "run_name", "report_to", "logging_steps", "logging_strategy", "disable_tqdm"}  # fmt: skip


class LuxmeterCallback(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Logs a training into the given experiment, the active run, or one of its own (by name)."""

    def __init__(self, experiment: Given = None, **settings: Unpack[ExperimentSettings]) -> None:
        self.target = RunTarget(experiment, settings=settings)

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Begin the run: arguments that are not the default, and the model's configuration, are its parameters."""
        if not state.is_world_process_zero:
            return
        self.target.begin(
            name=type(model).__name__ if model is not None else "transformers", params=_params(args, model)
        )
        self.target.put_file("training_args.json", json.dumps(to_json(args.to_dict()), indent=1))
        self.target.watch(args.output_dir)

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any
    ) -> None:
        """Log under train/, eval/ and test/, as the other loggers of the trainer do."""
        if state.is_world_process_zero and logs:
            self.target.log({_key(name): value for name, value in logs.items()}, state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Note the best checkpoint and end the run."""
        if not state.is_world_process_zero:
            return
        if state.best_model_checkpoint:
            self.target.text("checkpoint/best", str(state.best_model_checkpoint), state.global_step)
            self.target.log({"checkpoint/best_score": state.best_metric}, state.global_step)
        self.target.end()


def _params(args: Any, model: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"seed": args.seed}
    for field in dataclasses.fields(args):
        value = getattr(args, field.name)
        if not field.init or field.name in _NOT_PARAMS or field.name.startswith(("hub_", "push_to_hub")):
            continue
        if field.default is not dataclasses.MISSING and value != field.default and _is_plain(value):
            found[field.name] = getattr(value, "value", value)
    config = getattr(model, "config", None)
    if config is not None and hasattr(config, "to_diff_dict"):
        found["model"] = {key: value for key, value in config.to_diff_dict().items() if _is_plain(value)}
    return found


def _is_plain(value: Any) -> bool:
    return isinstance(getattr(value, "value", value), bool | int | float | str | list | tuple | dict)


def _key(name: str) -> str:
    for start in ("eval_", "test_"):
        if name.startswith(start):
            return f"{start[:-1]}/{name[len(start) :]}"
    return f"train/{name}"
