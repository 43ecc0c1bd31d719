"""Luxmeter measures what your torch gives: every API call timed, every operator replayable, every run kept.

Public names are loaded when they are first used: `import luxmeter as lux` imports no framework.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import luxmeter.interrupted  # noqa: F401  (before all else that has work at the end of the program)
from luxmeter.by_name import NAMES
from luxmeter.doors import door

__version__ = "0.1.0"

# Public name -> the module that holds it. One line a name; tests/house/ holds each to a docstring and an example.
_load, _, _names = door(
    __name__,
    {
        "trace": "calls",
        "start": "calls",
        "stop": "calls",
        "load_trace": "calls",
        "globs": "settings",
        "Params": "experiment",
        "BaseParams": "experiment",
        "Meter": "experiment",
        "AvgMeter": "experiment",
        "Logger": "experiment",
        "Saver": "experiment",
        "FolderState": "experiment",
        "RndManager": "experiment",
        "random": "experiment",
        "DataLoader": "experiment",
        "Experiment": "experiment",
        "runs": "experiment",
        "ExperimentViewer": "experiment",
        "analyze": "model",
        "analyze_model": "model",
        "flops_of": "flops",
        "bench": "operators",
        "bench_model": "operators",
        "load_operators": "operators",
        "Operators": "operators",
        "Trainer": "train",
        "Callback": "train",
        "TaskFlow": "train",
    },
)
__all__ = ["__version__", *_names]

# What a result is shown by or built on by -> where that lives: results stand to the left of it and reach it by these names.
NAMES.update(
    {
        "trace page": "luxmeter.view:trace_page",
        "model page": "luxmeter.view:model_page",
        "model text": "luxmeter.view:model_text",
        "model report": "luxmeter.view:model_report",
        "benchmark picture": "luxmeter.view:benchmark_picture",
        "check page": "luxmeter.view:check_page",
        "report page": "luxmeter.view:report_page",
        "operators": "luxmeter.operators:Operators",
        "trace title": "luxmeter.calls:trace_title",
        "load trace": "luxmeter.calls:load_trace",
        "damage of trace": "luxmeter.calls:damage_of_trace",
        "damage of checkpoints": "luxmeter.experiment:damage_of_checkpoints",
        "load ops": "luxmeter.operators:load_operators",
        "load bench": "luxmeter.operators:load_benchmark",
        "load check": "luxmeter.operators:load_check",
        "load model": "luxmeter.model:load_cost",
        "load zen": "luxmeter.model:load_score",
        "load search": "luxmeter.model:load_search",
        "load eval": "luxmeter.train:load_evaluation",
        "control run": "luxmeter.train:control_run",
        "watch run": "luxmeter.view:watch",
        "control buttons": "luxmeter.view:control_buttons",
        "run html": "luxmeter.view:run_html",
        "runs html": "luxmeter.view:runs_html",
        "run diff html": "luxmeter.view:run_diff_html",
        "explanation html": "luxmeter.view:explanation_html",
        "operators html": "luxmeter.view:operators_html",
        "model html": "luxmeter.view:model_html",
        "models html": "luxmeter.view:models_html",
    }
)

if TYPE_CHECKING:
    from luxmeter.calls import load_trace as load_trace
    from luxmeter.calls import start as start
    from luxmeter.calls import stop as stop
    from luxmeter.calls import trace as trace
    from luxmeter.experiment import AvgMeter as AvgMeter
    from luxmeter.experiment import BaseParams as BaseParams
    from luxmeter.experiment import DataLoader as DataLoader
    from luxmeter.experiment import Experiment as Experiment
    from luxmeter.experiment import ExperimentViewer as ExperimentViewer
    from luxmeter.experiment import FolderState as FolderState
    from luxmeter.experiment import Logger as Logger
    from luxmeter.experiment import Meter as Meter
    from luxmeter.experiment import Params as Params
    from luxmeter.experiment import RndManager as RndManager
    from luxmeter.experiment import Saver as Saver
    from luxmeter.experiment import random as random
    from luxmeter.experiment import runs as runs
    from luxmeter.flops import flops_of as flops_of
    from luxmeter.model import analyze as analyze
    from luxmeter.model import analyze_model as analyze_model
    from luxmeter.operators import Operators as Operators
    from luxmeter.operators import bench as bench
    from luxmeter.operators import bench_model as bench_model
    from luxmeter.operators import load_operators as load_operators
    from luxmeter.settings import globs as globs
    from luxmeter.train import Callback as Callback
    from luxmeter.train import TaskFlow as TaskFlow
    from luxmeter.train import Trainer as Trainer


def __getattr__(name: str) -> Any:
    try:
        return _load(name)
    except ImportError as error:
        from luxmeter.torch_extra import is_about_torch, refusing

        if not is_about_torch(error):
            raise
        return refusing(name)


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext luxmeter` in IPython: the cell magic `%%luxmeter`."""
    importlib.import_module("luxmeter.view").load_ipython_extension(shell)


def __dir__() -> list[str]:
    return sorted(__all__)
