"""The loop: `lux.Trainer` and its callbacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luxmeter.doors import door

if TYPE_CHECKING:
    from luxmeter.train import calculate as calculate
    from luxmeter.train import dist as dist
    from luxmeter.train import launch as launch
    from luxmeter.train import transforms as transforms
    from luxmeter.train.callbacks.board import BoardCallback as BoardCallback
    from luxmeter.train.callbacks.callback import Callback as Callback
    from luxmeter.train.callbacks.checkpoint import KeyErrorSave as KeyErrorSave
    from luxmeter.train.callbacks.checkpoint import ModelCheckpoint as ModelCheckpoint
    from luxmeter.train.callbacks.checkpoint import TimingCheckpoint as TimingCheckpoint
    from luxmeter.train.callbacks.control import Control as Control
    from luxmeter.train.callbacks.early_stop import EarlyStop as EarlyStop
    from luxmeter.train.callbacks.ema import EMAUpdate as EMAUpdate
    from luxmeter.train.callbacks.evaluation import EvalCallback as EvalCallback
    from luxmeter.train.callbacks.logger import LoggerCallback as LoggerCallback
    from luxmeter.train.callbacks.metrics import Metrics as Metrics
    from luxmeter.train.callbacks.nan_guard import NaNGuard as NaNGuard
    from luxmeter.train.callbacks.optimization import Optimization as Optimization
    from luxmeter.train.callbacks.profiling import ProfilerCallback as ProfilerCallback
    from luxmeter.train.callbacks.profiling import TraceSteps as TraceSteps
    from luxmeter.train.callbacks.report import AutoReport as AutoReport
    from luxmeter.train.callbacks.schedule import LRSchedule as LRSchedule
    from luxmeter.train.callbacks.system import SystemMetrics as SystemMetrics
    from luxmeter.train.config.plugins import Plugin as Plugin
    from luxmeter.train.config.plugins import importable as importable
    from luxmeter.train.config.plugins import load_plugins as load_plugins
    from luxmeter.train.config.plugins import project_of as project_of
    from luxmeter.train.config.pyconfig import PyConfig as PyConfig
    from luxmeter.train.config.run import train_config as train_config
    from luxmeter.train.config.templates import new_config as new_config
    from luxmeter.train.config.templates import new_project as new_project
    from luxmeter.train.evaluation import Evaluation as Evaluation
    from luxmeter.train.evaluation import load_evaluation as load_evaluation
    from luxmeter.train.failed_step import FailedStep as FailedStep
    from luxmeter.train.queue.engines.engine import Engine as Engine
    from luxmeter.train.queue.engines.engine import engine_named as engine_named
    from luxmeter.train.queue.jobs import Queue as Queue
    from luxmeter.train.queue.jobs import Wanted as Wanted
    from luxmeter.train.queue.jobs import open_queue as open_queue
    from luxmeter.train.queue.options import JobOptions as JobOptions
    from luxmeter.train.queue.options import SweepOptions as SweepOptions
    from luxmeter.train.queue.options import WorkerOptions as WorkerOptions
    from luxmeter.train.queue.sweep import Sweep as Sweep
    from luxmeter.train.queue.sweep import Trial as Trial
    from luxmeter.train.queue.sweep import load_sweep as load_sweep
    from luxmeter.train.queue.worker import Worker as Worker
    from luxmeter.train.queue.worker import line_of_job as line_of_job
    from luxmeter.train.queue.worker import was_left as was_left
    from luxmeter.train.registries import CALLBACKS as CALLBACKS
    from luxmeter.train.registries import DATASETS as DATASETS
    from luxmeter.train.registries import EVALUATORS as EVALUATORS
    from luxmeter.train.registries import LOSSES as LOSSES
    from luxmeter.train.registries import MODULES as MODULES
    from luxmeter.train.registries import OPTIMIZERS as OPTIMIZERS
    from luxmeter.train.registries import SAMPLERS as SAMPLERS
    from luxmeter.train.registries import SCHEDULERS as SCHEDULERS
    from luxmeter.train.registries import TASKS as TASKS
    from luxmeter.train.registries import TRAINERS as TRAINERS
    from luxmeter.train.registries import TRANSFORMS as TRANSFORMS
    from luxmeter.train.registries import build as build
    from luxmeter.train.requests import Answer as Answer
    from luxmeter.train.requests import Listening as Listening
    from luxmeter.train.requests import control_run as control_run
    from luxmeter.train.requests import paused_at as paused_at
    from luxmeter.train.requests import read_listening as read_listening
    from luxmeter.train.run_evaluation import evaluate_run as evaluate_run
    from luxmeter.train.task.dataset import SampleDataset as SampleDataset
    from luxmeter.train.task.evaluator import Accuracy as Accuracy
    from luxmeter.train.task.evaluator import Confusion as Confusion
    from luxmeter.train.task.evaluator import Evaluator as Evaluator
    from luxmeter.train.task.evaluator import MeanLoss as MeanLoss
    from luxmeter.train.task.fake_data import FakeData as FakeData
    from luxmeter.train.task.losses import LossCalculator as LossCalculator
    from luxmeter.train.task.task_flow import Task as Task
    from luxmeter.train.task.task_flow import TaskFlow as TaskFlow
    from luxmeter.train.task.task_model import TaskModel as TaskModel
    from luxmeter.train.task.trainer import TaskTrainer as TaskTrainer
    from luxmeter.train.trainer import Trainer as Trainer

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "calculate": "calculate",
        "dist": "dist",
        "launch": "launch",
        "transforms": "transforms",
        "BoardCallback": "callbacks.board",
        "Callback": "callbacks.callback",
        "KeyErrorSave": "callbacks.checkpoint",
        "ModelCheckpoint": "callbacks.checkpoint",
        "TimingCheckpoint": "callbacks.checkpoint",
        "Control": "callbacks.control",
        "EarlyStop": "callbacks.early_stop",
        "EMAUpdate": "callbacks.ema",
        "EvalCallback": "callbacks.evaluation",
        "LoggerCallback": "callbacks.logger",
        "Metrics": "callbacks.metrics",
        "NaNGuard": "callbacks.nan_guard",
        "Optimization": "callbacks.optimization",
        "ProfilerCallback": "callbacks.profiling",
        "TraceSteps": "callbacks.profiling",
        "AutoReport": "callbacks.report",
        "LRSchedule": "callbacks.schedule",
        "SystemMetrics": "callbacks.system",
        "FailedStep": "failed_step",
        "Engine": "queue.engines.engine",
        "engine_named": "queue.engines.engine",
        "Queue": "queue.jobs",
        "Wanted": "queue.jobs",
        "open_queue": "queue.jobs",
        "JobOptions": "queue.options",
        "Sweep": "queue.sweep",
        "SweepOptions": "queue.options",
        "Trial": "queue.sweep",
        "load_sweep": "queue.sweep",
        "WorkerOptions": "queue.options",
        "Worker": "queue.worker",
        "line_of_job": "queue.worker",
        "was_left": "queue.worker",
        "CALLBACKS": "registries",
        "DATASETS": "registries",
        "EVALUATORS": "registries",
        "LOSSES": "registries",
        "MODULES": "registries",
        "OPTIMIZERS": "registries",
        "SAMPLERS": "registries",
        "SCHEDULERS": "registries",
        "TASKS": "registries",
        "TRAINERS": "registries",
        "TRANSFORMS": "registries",
        "build": "registries",
        "Plugin": "config.plugins",
        "importable": "config.plugins",
        "load_plugins": "config.plugins",
        "project_of": "config.plugins",
        "PyConfig": "config.pyconfig",
        "train_config": "config.run",
        "new_config": "config.templates",
        "new_project": "config.templates",
        "evaluate_run": "run_evaluation",
        "Evaluation": "evaluation",
        "load_evaluation": "evaluation",
        "Answer": "requests",
        "control_run": "requests",
        "paused_at": "requests",
        "Listening": "requests",
        "read_listening": "requests",
        "SampleDataset": "task.dataset",
        "Accuracy": "task.evaluator",
        "Confusion": "task.evaluator",
        "Evaluator": "task.evaluator",
        "MeanLoss": "task.evaluator",
        "FakeData": "task.fake_data",
        "LossCalculator": "task.losses",
        "Task": "task.task_flow",
        "TaskFlow": "task.task_flow",
        "TaskModel": "task.task_model",
        "TaskTrainer": "task.trainer",
        "Trainer": "trainer",
    },
)
