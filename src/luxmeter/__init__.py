"""Luxmeter measures what your torch gives: every API call timed, every operator replayable, every run kept.

Public names are loaded when they are first used: `import luxmeter as lux` imports no framework.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from luxmeter.doors import door
from luxmeter.views import VIEWS

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
        "Params": "experiment.params.params",
        "BaseParams": "experiment.params.params",
        "Meter": "experiment.meter.meter",
        "AvgMeter": "experiment.meter.meter",
        "Logger": "experiment.log.logger",
        "Saver": "experiment.checkpoint.saver",
        "FolderState": "experiment.checkpoint.folder_state",
        "RndManager": "experiment.seed.seed",
        "random": "experiment.seed.seed",
        "DataLoader": "experiment.data.loader",
        "Experiment": "experiment.experiment",
        "runs": "experiment.query.runs",
        "ExperimentViewer": "experiment.query.viewer",
        "analyze": "model.analysis",
        "analyze_model": "model.analysis",
        "flops_of": "flops",
        "bench": "operators.runner",
        "bench_model": "operators.mini",
        "load_operators": "operators.case",
        "Operators": "operators.case",
    },
)
__all__ = ["__version__", *_names]

# What a result is shown by -> where that lives. Results stand to the left of views and reach them by these names.
VIEWS.update(
    {
        "trace page": "luxmeter.view.pages.trace:trace_page",
        "model page": "luxmeter.view.pages.model:as_html",
        "model text": "luxmeter.view.text.model:as_text",
        "model report": "luxmeter.view.text.model:show",
        "benchmark picture": "luxmeter.view.pages.bench:draw",
    }
)

if TYPE_CHECKING:
    from luxmeter.calls import load_trace as load_trace
    from luxmeter.calls import start as start
    from luxmeter.calls import stop as stop
    from luxmeter.calls import trace as trace
    from luxmeter.experiment.checkpoint.folder_state import FolderState as FolderState
    from luxmeter.experiment.checkpoint.saver import Saver as Saver
    from luxmeter.experiment.data.loader import DataLoader as DataLoader
    from luxmeter.experiment.experiment import Experiment as Experiment
    from luxmeter.experiment.log.logger import Logger as Logger
    from luxmeter.experiment.meter.meter import AvgMeter as AvgMeter
    from luxmeter.experiment.meter.meter import Meter as Meter
    from luxmeter.experiment.params.params import BaseParams as BaseParams
    from luxmeter.experiment.params.params import Params as Params
    from luxmeter.experiment.query.runs import runs as runs
    from luxmeter.experiment.query.viewer import ExperimentViewer as ExperimentViewer
    from luxmeter.experiment.seed.seed import RndManager as RndManager
    from luxmeter.experiment.seed.seed import random as random
    from luxmeter.flops import flops_of as flops_of
    from luxmeter.model.analysis import analyze as analyze
    from luxmeter.model.analysis import analyze_model as analyze_model
    from luxmeter.operators.case import Operators as Operators
    from luxmeter.operators.case import load_operators as load_operators
    from luxmeter.operators.mini import bench_model as bench_model
    from luxmeter.operators.runner import bench as bench
    from luxmeter.settings import globs as globs


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
    importlib.import_module("luxmeter.view.notebook").load_ipython_extension(shell)


def __dir__() -> list[str]:
    return sorted(__all__)
