"""Time every call: `lux.trace`, `lux.start`, `lux.stop`, `lux.load_trace`."""

from luxmeter.calls.cost import CostReport
from luxmeter.calls.device import Device
from luxmeter.calls.options import TraceOptions
from luxmeter.calls.records import CallableNames, SignatureNames
from luxmeter.calls.result import TraceResult, load_trace
from luxmeter.calls.session import Trace, active, start, stop, trace
from luxmeter.calls.table import CallTable, Row
from luxmeter.calls.tree import CallTree

__all__ = [
    "CallTable", "CallTree", "CallableNames", "CostReport", "Device", "Row", "SignatureNames", "Trace",
    "TraceOptions", "TraceResult", "active", "load_trace", "start", "stop", "trace",
]  # fmt: skip
