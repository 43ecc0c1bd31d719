"""Time every call: `lux.trace`, `lux.start`, `lux.stop`, `lux.load_trace`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luxmeter.doors import door

if TYPE_CHECKING:
    from luxmeter.calls import core as core
    from luxmeter.calls import export as export
    from luxmeter.calls.cost import CostReport as CostReport
    from luxmeter.calls.damage import damage_of_trace as damage_of_trace
    from luxmeter.calls.device import Device as Device
    from luxmeter.calls.device import current_device as current_device
    from luxmeter.calls.device import raise_failure as raise_failure
    from luxmeter.calls.device import wait_for_mindspore as wait_for_mindspore
    from luxmeter.calls.diff import ChangeKind as ChangeKind
    from luxmeter.calls.diff import TraceDiff as TraceDiff
    from luxmeter.calls.diff import diff_traces as diff_traces
    from luxmeter.calls.formats import check_trace_output as check_trace_output
    from luxmeter.calls.formats import is_trace_file_name as is_trace_file_name
    from luxmeter.calls.formats import trace_format_of as trace_format_of
    from luxmeter.calls.frameworks import has_mindspore as has_mindspore
    from luxmeter.calls.frameworks import import_mindspore as import_mindspore
    from luxmeter.calls.kinds import KINDS as KINDS
    from luxmeter.calls.kinds import OUTSIDE as OUTSIDE
    from luxmeter.calls.kinds import RECORDING as RECORDING
    from luxmeter.calls.kinds import kind_of as kind_of
    from luxmeter.calls.lanes import Lane as Lane
    from luxmeter.calls.lanes import Lanes as Lanes
    from luxmeter.calls.layout import free_name as free_name
    from luxmeter.calls.layout import make_trace_folder as make_trace_folder
    from luxmeter.calls.layout import mark_stopped as mark_stopped
    from luxmeter.calls.listen import Heard as Heard
    from luxmeter.calls.listen import Listener as Listener
    from luxmeter.calls.options import TraceOptions as TraceOptions
    from luxmeter.calls.options import TraceSettings as TraceSettings
    from luxmeter.calls.outside import Gap as Gap
    from luxmeter.calls.outside import Outside as Outside
    from luxmeter.calls.outside import ThreadTime as ThreadTime
    from luxmeter.calls.patching.patcher import coverage as coverage
    from luxmeter.calls.processes import Token as Token
    from luxmeter.calls.reader import trace_title as trace_title
    from luxmeter.calls.records import SECTION as SECTION
    from luxmeter.calls.records import CallableNames as CallableNames
    from luxmeter.calls.records import SignatureNames as SignatureNames
    from luxmeter.calls.result import TraceResult as TraceResult
    from luxmeter.calls.result import load_trace as load_trace
    from luxmeter.calls.session import Trace as Trace
    from luxmeter.calls.session import active as active
    from luxmeter.calls.session import start as start
    from luxmeter.calls.session import start_in_child as start_in_child
    from luxmeter.calls.session import stop as stop
    from luxmeter.calls.session import trace as trace
    from luxmeter.calls.source import AnnotatedSource as AnnotatedSource
    from luxmeter.calls.source import SourceFile as SourceFile
    from luxmeter.calls.source import SourceLine as SourceLine
    from luxmeter.calls.steps import PARTS as PARTS
    from luxmeter.calls.steps import Split as Split
    from luxmeter.calls.steps import Step as Step
    from luxmeter.calls.steps import Steps as Steps
    from luxmeter.calls.stragglers import CollectiveWaits as CollectiveWaits
    from luxmeter.calls.stragglers import RankWaits as RankWaits
    from luxmeter.calls.stragglers import Stragglers as Stragglers
    from luxmeter.calls.syncs import Sync as Sync
    from luxmeter.calls.syncs import device_syncs as device_syncs
    from luxmeter.calls.table import CallTable as CallTable
    from luxmeter.calls.table import Row as Row
    from luxmeter.calls.table import check_grouping as check_grouping
    from luxmeter.calls.table import on_device as on_device
    from luxmeter.calls.tree import CallTree as CallTree
    from luxmeter.calls.window import Window as Window
    from luxmeter.calls.window import first_calls as first_calls
    from luxmeter.calls.window import in_window as in_window

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "core": "core",
        "CostReport": "cost",
        "damage_of_trace": "damage",
        "Device": "device",
        "current_device": "device",
        "raise_failure": "device",
        "wait_for_mindspore": "device",
        "ChangeKind": "diff",
        "TraceDiff": "diff",
        "diff_traces": "diff",
        "export": "export",
        "check_trace_output": "formats",
        "is_trace_file_name": "formats",
        "trace_format_of": "formats",
        "has_mindspore": "frameworks",
        "import_mindspore": "frameworks",
        "Lane": "lanes",
        "Lanes": "lanes",
        "free_name": "layout",
        "make_trace_folder": "layout",
        "mark_stopped": "layout",
        "Heard": "listen",
        "Listener": "listen",
        "TraceOptions": "options",
        "TraceSettings": "options",
        "coverage": "patching.patcher",
        "KINDS": "kinds",
        "OUTSIDE": "kinds",
        "RECORDING": "kinds",
        "kind_of": "kinds",
        "Gap": "outside",
        "Outside": "outside",
        "ThreadTime": "outside",
        "SECTION": "records",
        "Token": "processes",
        "trace_title": "reader",
        "CallableNames": "records",
        "SignatureNames": "records",
        "TraceResult": "result",
        "load_trace": "result",
        "Trace": "session",
        "active": "session",
        "start": "session",
        "start_in_child": "session",
        "stop": "session",
        "trace": "session",
        "AnnotatedSource": "source",
        "SourceFile": "source",
        "SourceLine": "source",
        "PARTS": "steps",
        "Split": "steps",
        "Step": "steps",
        "Steps": "steps",
        "CollectiveWaits": "stragglers",
        "RankWaits": "stragglers",
        "Stragglers": "stragglers",
        "Sync": "syncs",
        "device_syncs": "syncs",
        "CallTable": "table",
        "Row": "table",
        "check_grouping": "table",
        "on_device": "table",
        "CallTree": "tree",
        "Window": "window",
        "first_calls": "window",
        "in_window": "window",
    },
)
