"""The loop: `lux.Trainer` and its callbacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luxmeter.doors import door

if TYPE_CHECKING:
    from luxmeter.train.callbacks.callback import Callback as Callback
    from luxmeter.train.callbacks.checkpoint import KeyErrorSave as KeyErrorSave
    from luxmeter.train.callbacks.checkpoint import ModelCheckpoint as ModelCheckpoint
    from luxmeter.train.callbacks.checkpoint import TimingCheckpoint as TimingCheckpoint
    from luxmeter.train.callbacks.control import Control as Control
    from luxmeter.train.callbacks.ema import EMAUpdate as EMAUpdate
    from luxmeter.train.callbacks.evaluation import EvalCallback as EvalCallback
    from luxmeter.train.callbacks.logger import LoggerCallback as LoggerCallback
    from luxmeter.train.callbacks.metrics import Metrics as Metrics
    from luxmeter.train.callbacks.optimization import Optimization as Optimization
    from luxmeter.train.callbacks.profiling import ProfilerCallback as ProfilerCallback
    from luxmeter.train.callbacks.profiling import TraceSteps as TraceSteps
    from luxmeter.train.callbacks.schedule import LRSchedule as LRSchedule
    from luxmeter.train.trainer import Trainer as Trainer

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "Callback": "callbacks.callback",
        "KeyErrorSave": "callbacks.checkpoint",
        "ModelCheckpoint": "callbacks.checkpoint",
        "TimingCheckpoint": "callbacks.checkpoint",
        "Control": "callbacks.control",
        "EMAUpdate": "callbacks.ema",
        "EvalCallback": "callbacks.evaluation",
        "LoggerCallback": "callbacks.logger",
        "Metrics": "callbacks.metrics",
        "Optimization": "callbacks.optimization",
        "ProfilerCallback": "callbacks.profiling",
        "TraceSteps": "callbacks.profiling",
        "LRSchedule": "callbacks.schedule",
        "Trainer": "trainer",
    },
)
