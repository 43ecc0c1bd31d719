"""Where runs rest: a lab is a folder, a run is a directory complete in itself, the index is derived.

lab = Lab.open()
with lab.create_run("mnist", params={"lr": 0.1}) as run, activate(run):
    run.log({"loss": 0.3, "acc": 0.9}, step=7)
lab.runs("param.lr >= 0.1 and metric.acc > 0.8", sort="-metric.acc")
lab.find("latest").metric("loss")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from luxmeter.doors import door

if TYPE_CHECKING:
    from luxmeter.store import layout as layout
    from luxmeter.store import records as records
    from luxmeter.store.active import activate as activate
    from luxmeter.store.active import active_folder as active_folder
    from luxmeter.store.active import active_run as active_run
    from luxmeter.store.active import beside as beside
    from luxmeter.store.active import run_around as run_around
    from luxmeter.store.active import runs_begun_here as runs_begun_here
    from luxmeter.store.blobs import blob_path as blob_path
    from luxmeter.store.blobs import read_blob as read_blob
    from luxmeter.store.catalog import row_of as row_of
    from luxmeter.store.checked import STATES as STATES
    from luxmeter.store.finished import FinishedRun as FinishedRun
    from luxmeter.store.finished import id_of_origin as id_of_origin
    from luxmeter.store.going import GoingRuns as GoingRuns
    from luxmeter.store.inspect import Damage as Damage
    from luxmeter.store.inspect import damage_of_lab as damage_of_lab
    from luxmeter.store.jobs import ENDED as ENDED
    from luxmeter.store.jobs import JOB_STATES as JOB_STATES
    from luxmeter.store.jobs import Job as Job
    from luxmeter.store.jobs import JobChange as JobChange
    from luxmeter.store.jobs import JobTable as JobTable
    from luxmeter.store.jobs import Needs as Needs
    from luxmeter.store.journal import host_name as host_name
    from luxmeter.store.known_traces import KnownTrace as KnownTrace
    from luxmeter.store.known_traces import KnownTraces as KnownTraces
    from luxmeter.store.lab import Lab as Lab
    from luxmeter.store.origin import is_own as is_own
    from luxmeter.store.output_file import OutputFile as OutputFile
    from luxmeter.store.points import checked_key as checked_key
    from luxmeter.store.points import checked_step as checked_step
    from luxmeter.store.query import Both as Both
    from luxmeter.store.query import Condition as Condition
    from luxmeter.store.query import Expression as Expression
    from luxmeter.store.query import Field as Field
    from luxmeter.store.query import Not as Not
    from luxmeter.store.query import parse_field as parse_field
    from luxmeter.store.query import parse_filter as parse_filter
    from luxmeter.store.rank_writer import RankWriter as RankWriter
    from luxmeter.store.rank_writer import run_of_job as run_of_job
    from luxmeter.store.rank_writer import tell_ranks as tell_ranks
    from luxmeter.store.records import Command as Command
    from luxmeter.store.records import Ending as Ending
    from luxmeter.store.records import FileChange as FileChange
    from luxmeter.store.results import KINDS as KINDS
    from luxmeter.store.results import Result as Result
    from luxmeter.store.results import find_result as find_result
    from luxmeter.store.results import put_result as put_result
    from luxmeter.store.results import results_folder as results_folder
    from luxmeter.store.results import results_into as results_into
    from luxmeter.store.results import results_of as results_of
    from luxmeter.store.results import split_name as split_name
    from luxmeter.store.results import without_results as without_results
    from luxmeter.store.results import write_head as write_head
    from luxmeter.store.rows import RunHead as RunHead
    from luxmeter.store.rows import RunRow as RunRow
    from luxmeter.store.rows import flatten as flatten
    from luxmeter.store.run import Run as Run
    from luxmeter.store.sealed import damage_of as damage_of
    from luxmeter.store.sealed import read_sealed as read_sealed
    from luxmeter.store.sealed import tell_loss as tell_loss
    from luxmeter.store.sealed import write_sealed as write_sealed
    from luxmeter.store.segments import SegmentWriter as SegmentWriter
    from luxmeter.store.segments import compact as compact
    from luxmeter.store.segments import damage_in as damage_in
    from luxmeter.store.segments import read_segments as read_segments
    from luxmeter.store.values import File as File
    from luxmeter.store.values import Histogram as Histogram
    from luxmeter.store.values import Image as Image
    from luxmeter.store.values import Stored as Stored
    from luxmeter.store.values import Text as Text
    from luxmeter.store.values import number_of as number_of
    from luxmeter.store.values import object_of as object_of
    from luxmeter.store.writer import RunWriter as RunWriter
    from luxmeter.store.writer import inside as inside

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "activate": "active",
        "active_folder": "active",
        "active_run": "active",
        "beside": "active",
        "run_around": "active",
        "runs_begun_here": "active",
        "blob_path": "blobs",
        "read_blob": "blobs",
        "row_of": "catalog",
        "STATES": "checked",
        "FinishedRun": "finished",
        "id_of_origin": "finished",
        "GoingRuns": "going",
        "ENDED": "jobs",
        "JOB_STATES": "jobs",
        "Job": "jobs",
        "JobChange": "jobs",
        "JobTable": "jobs",
        "Needs": "jobs",
        "host_name": "journal",
        "KnownTrace": "known_traces",
        "KnownTraces": "known_traces",
        "Lab": "lab",
        "layout": "layout",
        "Damage": "inspect",
        "damage_of_lab": "inspect",
        "is_own": "origin",
        "OutputFile": "output_file",
        "checked_key": "points",
        "checked_step": "points",
        "Both": "query",
        "Condition": "query",
        "Expression": "query",
        "Field": "query",
        "Not": "query",
        "parse_field": "query",
        "parse_filter": "query",
        "Command": "records",
        "Ending": "records",
        "FileChange": "records",
        "records": "records",
        "KINDS": "results",
        "Result": "results",
        "find_result": "results",
        "put_result": "results",
        "results_folder": "results",
        "results_into": "results",
        "results_of": "results",
        "split_name": "results",
        "without_results": "results",
        "write_head": "results",
        "RunHead": "rows",
        "RunRow": "rows",
        "flatten": "rows",
        "Run": "run",
        "damage_of": "sealed",
        "read_sealed": "sealed",
        "tell_loss": "sealed",
        "write_sealed": "sealed",
        "SegmentWriter": "segments",
        "damage_in": "segments",
        "compact": "segments",
        "RankWriter": "rank_writer",
        "run_of_job": "rank_writer",
        "tell_ranks": "rank_writer",
        "read_segments": "segments",
        "File": "values",
        "Histogram": "values",
        "Image": "values",
        "Stored": "values",
        "Text": "values",
        "number_of": "values",
        "object_of": "values",
        "RunWriter": "writer",
        "inside": "writer",
    },
)
