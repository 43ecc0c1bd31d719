"""Keep every run: `lux.Experiment`, `lux.runs`, and its parts, each usable alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luxmeter.doors import door

if TYPE_CHECKING:
    from luxmeter.experiment.capture.project_code import ProjectCode as ProjectCode
    from luxmeter.experiment.capture.project_code import drop_project as drop_project
    from luxmeter.experiment.capture.project_code import keep_project as keep_project
    from luxmeter.experiment.capture.project_code import lay_out as lay_out
    from luxmeter.experiment.capture.project_code import stored_names as stored_names
    from luxmeter.experiment.capture.project_code import stored_project as stored_project
    from luxmeter.experiment.capture.redaction import hide_params as hide_params
    from luxmeter.experiment.capture.snapshot import forget_refs as forget_refs
    from luxmeter.experiment.capture.snapshot import snapshot_refs as snapshot_refs
    from luxmeter.experiment.capture.started import program_follows as program_follows
    from luxmeter.experiment.capture.system_metrics import gpu_memory as gpu_memory
    from luxmeter.experiment.checkpoint.folder import damage_of_checkpoints as damage_of_checkpoints
    from luxmeter.experiment.checkpoint.folder import file_name as file_name
    from luxmeter.experiment.checkpoint.folder import latest_order as latest_order
    from luxmeter.experiment.checkpoint.folder import saved_since as saved_since
    from luxmeter.experiment.checkpoint.folder_state import FolderState as FolderState
    from luxmeter.experiment.checkpoint.saver import Loaded as Loaded
    from luxmeter.experiment.checkpoint.saver import Saver as Saver
    from luxmeter.experiment.checkpoint.saver import read_together as read_together
    from luxmeter.experiment.checkpoint.shards import Own as Own
    from luxmeter.experiment.checkpoint.shards import Sharded as Sharded
    from luxmeter.experiment.checkpoint.shards import is_in_rows as is_in_rows
    from luxmeter.experiment.checkpoint.shards import new_save as new_save
    from luxmeter.experiment.checkpoint.shards import rows_of as rows_of
    from luxmeter.experiment.checkpoint.state import HasState as HasState
    from luxmeter.experiment.checkpoint.state import has_state as has_state
    from luxmeter.experiment.checkpoint.state import restore_state as restore_state
    from luxmeter.experiment.compare.curves import Band as Band
    from luxmeter.experiment.compare.curves import Sets as Sets
    from luxmeter.experiment.compare.curves import axes_of as axes_of
    from luxmeter.experiment.compare.curves import curves_of as curves_of
    from luxmeter.experiment.compare.curves import curves_of_tensorboard as curves_of_tensorboard
    from luxmeter.experiment.compare.curves import in_range as in_range
    from luxmeter.experiment.compare.curves import line_of as line_of
    from luxmeter.experiment.compare.curves import lines_of as lines_of
    from luxmeter.experiment.compare.curves import members_of as members_of
    from luxmeter.experiment.compare.curves import names_of as names_of
    from luxmeter.experiment.compare.diff import ABSENT as ABSENT
    from luxmeter.experiment.compare.diff import Change as Change
    from luxmeter.experiment.compare.diff import RunDiff as RunDiff
    from luxmeter.experiment.compare.explain import Explanation as Explanation
    from luxmeter.experiment.compare.explain import diff_runs as diff_runs
    from luxmeter.experiment.compare.plausible import CANNOT as CANNOT
    from luxmeter.experiment.compare.repeat_tables import repeat_table as repeat_table
    from luxmeter.experiment.compare.repeat_tables import variant_table as variant_table
    from luxmeter.experiment.compare.repeats import compare_groups as compare_groups
    from luxmeter.experiment.compare.repeats import find_repeats as find_repeats
    from luxmeter.experiment.compare.repeats import group_runs as group_runs
    from luxmeter.experiment.data.loader import DataLoader as DataLoader
    from luxmeter.experiment.data.shard import Shard as Shard
    from luxmeter.experiment.data.shard import ShardedBatches as ShardedBatches
    from luxmeter.experiment.experiment import Experiment as Experiment
    from luxmeter.experiment.experiment import plain_params as plain_params
    from luxmeter.experiment.folder import folder_of as folder_of
    from luxmeter.experiment.integrations.other_trackers import hear_other_trackers as hear_other_trackers
    from luxmeter.experiment.log.logger import Logger as Logger
    from luxmeter.experiment.meter.meter import AvgMeter as AvgMeter
    from luxmeter.experiment.meter.meter import Meter as Meter
    from luxmeter.experiment.options import ExperimentOptions as ExperimentOptions
    from luxmeter.experiment.options import RerunOptions as RerunOptions
    from luxmeter.experiment.params.command_line import params_of as params_of
    from luxmeter.experiment.params.declared import Declared as Declared
    from luxmeter.experiment.params.level import near_miss as near_miss
    from luxmeter.experiment.params.params import BaseParams as BaseParams
    from luxmeter.experiment.params.params import Params as Params
    from luxmeter.experiment.query.conditions import Question as Question
    from luxmeter.experiment.query.conditions import all_of as all_of
    from luxmeter.experiment.query.conditions import equals as equals
    from luxmeter.experiment.query.runs import C as C
    from luxmeter.experiment.query.runs import Runs as Runs
    from luxmeter.experiment.query.runs import find_run as find_run
    from luxmeter.experiment.query.runs import lab_of as lab_of
    from luxmeter.experiment.query.runs import open_lab as open_lab
    from luxmeter.experiment.query.runs import runs as runs
    from luxmeter.experiment.query.source_code import captured_tree as captured_tree
    from luxmeter.experiment.query.source_code import whole_tree as whole_tree
    from luxmeter.experiment.query.viewer import ExperimentViewer as ExperimentViewer
    from luxmeter.experiment.reproduce.arguments import changed_arguments as changed_arguments
    from luxmeter.experiment.reproduce.arguments import split_changes as split_changes
    from luxmeter.experiment.reproduce.arguments import was_taken as was_taken
    from luxmeter.experiment.reproduce.handover import LaidOut as LaidOut
    from luxmeter.experiment.reproduce.handover import Order as Order
    from luxmeter.experiment.reproduce.handover import job_given as job_given
    from luxmeter.experiment.reproduce.handover import write_order as write_order
    from luxmeter.experiment.reproduce.match import Reproduction as Reproduction
    from luxmeter.experiment.reproduce.match import code_differs as code_differs
    from luxmeter.experiment.reproduce.match import match_runs as match_runs
    from luxmeter.experiment.reproduce.rerun import Rerun as Rerun
    from luxmeter.experiment.reproduce.rerun import program_variables as program_variables
    from luxmeter.experiment.reproduce.rerun import start_for_job as start_for_job
    from luxmeter.experiment.reproduce.rerun import start_rerun as start_rerun
    from luxmeter.experiment.reproduce.rollback import roll_back as roll_back
    from luxmeter.experiment.running import offer_experiment as offer_experiment
    from luxmeter.experiment.running import program_ended as program_ended
    from luxmeter.experiment.seed.rng_state import get_rng_state as get_rng_state
    from luxmeter.experiment.seed.rng_state import seed_everything as seed_everything
    from luxmeter.experiment.seed.rng_state import set_rng_state as set_rng_state
    from luxmeter.experiment.seed.rng_state import stable_seed as stable_seed
    from luxmeter.experiment.seed.seed import RndManager as RndManager
    from luxmeter.experiment.seed.seed import random as random
    from luxmeter.experiment.transfer.archive import export_run as export_run
    from luxmeter.experiment.transfer.archive import import_run as import_run
    from luxmeter.experiment.transfer.mlflow import import_mlflow as import_mlflow
    from luxmeter.experiment.transfer.tensorboard import TensorBoardFiles as TensorBoardFiles
    from luxmeter.experiment.transfer.tensorboard import import_tensorboard as import_tensorboard
    from luxmeter.experiment.transfer.tensorboard import save_tensorboard_images as save_tensorboard_images
    from luxmeter.experiment.transfer.tensorboard import scalars as scalars

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "hear_other_trackers": "integrations.other_trackers",
        "ProjectCode": "capture.project_code",
        "drop_project": "capture.project_code",
        "keep_project": "capture.project_code",
        "stored_names": "capture.project_code",
        "stored_project": "capture.project_code",
        "lay_out": "capture.project_code",
        "hide_params": "capture.redaction",
        "forget_refs": "capture.snapshot",
        "snapshot_refs": "capture.snapshot",
        "program_follows": "capture.started",
        "gpu_memory": "capture.system_metrics",
        "damage_of_checkpoints": "checkpoint.folder",
        "file_name": "checkpoint.folder",
        "latest_order": "checkpoint.folder",
        "saved_since": "checkpoint.folder",
        "FolderState": "checkpoint.folder_state",
        "Loaded": "checkpoint.saver",
        "Saver": "checkpoint.saver",
        "HasState": "checkpoint.state",
        "has_state": "checkpoint.state",
        "read_together": "checkpoint.saver",
        "Own": "checkpoint.shards",
        "Sharded": "checkpoint.shards",
        "is_in_rows": "checkpoint.shards",
        "new_save": "checkpoint.shards",
        "rows_of": "checkpoint.shards",
        "restore_state": "checkpoint.state",
        "Band": "compare.curves",
        "Sets": "compare.curves",
        "axes_of": "compare.curves",
        "curves_of": "compare.curves",
        "curves_of_tensorboard": "compare.curves",
        "in_range": "compare.curves",
        "line_of": "compare.curves",
        "lines_of": "compare.curves",
        "members_of": "compare.curves",
        "names_of": "compare.curves",
        "ABSENT": "compare.diff",
        "Change": "compare.diff",
        "RunDiff": "compare.diff",
        "Explanation": "compare.explain",
        "diff_runs": "compare.explain",
        "CANNOT": "compare.plausible",
        "repeat_table": "compare.repeat_tables",
        "variant_table": "compare.repeat_tables",
        "compare_groups": "compare.repeats",
        "find_repeats": "compare.repeats",
        "group_runs": "compare.repeats",
        "DataLoader": "data.loader",
        "Shard": "data.shard",
        "ShardedBatches": "data.shard",
        "Experiment": "experiment",
        "plain_params": "experiment",
        "folder_of": "folder",
        "Logger": "log.logger",
        "AvgMeter": "meter.meter",
        "Meter": "meter.meter",
        "ExperimentOptions": "options",
        "RerunOptions": "options",
        "params_of": "params.command_line",
        "Declared": "params.declared",
        "near_miss": "params.level",
        "BaseParams": "params.params",
        "Params": "params.params",
        "Question": "query.conditions",
        "all_of": "query.conditions",
        "equals": "query.conditions",
        "C": "query.runs",
        "Runs": "query.runs",
        "find_run": "query.runs",
        "lab_of": "query.runs",
        "open_lab": "query.runs",
        "runs": "query.runs",
        "captured_tree": "query.source_code",
        "whole_tree": "query.source_code",
        "ExperimentViewer": "query.viewer",
        "changed_arguments": "reproduce.arguments",
        "split_changes": "reproduce.arguments",
        "was_taken": "reproduce.arguments",
        "LaidOut": "reproduce.handover",
        "Order": "reproduce.handover",
        "job_given": "reproduce.handover",
        "program_variables": "reproduce.rerun",
        "write_order": "reproduce.handover",
        "Reproduction": "reproduce.match",
        "code_differs": "reproduce.match",
        "match_runs": "reproduce.match",
        "Rerun": "reproduce.rerun",
        "start_for_job": "reproduce.rerun",
        "start_rerun": "reproduce.rerun",
        "roll_back": "reproduce.rollback",
        "offer_experiment": "running",
        "program_ended": "running",
        "get_rng_state": "seed.rng_state",
        "seed_everything": "seed.rng_state",
        "set_rng_state": "seed.rng_state",
        "stable_seed": "seed.rng_state",
        "RndManager": "seed.seed",
        "random": "seed.seed",
        "export_run": "transfer.archive",
        "import_run": "transfer.archive",
        "import_mlflow": "transfer.mlflow",
        "TensorBoardFiles": "transfer.tensorboard",
        "import_tensorboard": "transfer.tensorboard",
        "save_tensorboard_images": "transfer.tensorboard",
        "scalars": "transfer.tensorboard",
    },
)
