"""Replay, measure and check operators: `lux.bench`, `lux.load_operators`, `luxmeter.operators.check`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luxmeter.doors import door

if TYPE_CHECKING:
    from luxmeter.operators.case import Operators as Operators
    from luxmeter.operators.case import case_to_json as case_to_json
    from luxmeter.operators.case import is_operators_file as is_operators_file
    from luxmeter.operators.case import load_operators as load_operators
    from luxmeter.operators.case import put_operators as put_operators
    from luxmeter.operators.checks.diff import CheckDiff as CheckDiff
    from luxmeter.operators.checks.diff import diff_checks as diff_checks
    from luxmeter.operators.checks.options import CheckOptions as CheckOptions
    from luxmeter.operators.checks.records import CHECK_FORMATS as CHECK_FORMATS
    from luxmeter.operators.checks.records import CheckResult as CheckResult
    from luxmeter.operators.checks.records import load_check as load_check
    from luxmeter.operators.checks.records import put_check as put_check
    from luxmeter.operators.checks.runner import DATABASES as DATABASES
    from luxmeter.operators.checks.runner import check as check
    from luxmeter.operators.counterparts import counterpart_of as counterpart_of
    from luxmeter.operators.diff import diff_benchmark_files as diff_benchmark_files
    from luxmeter.operators.diff import diff_benchmarks as diff_benchmarks
    from luxmeter.operators.diff import names_of as names_of
    from luxmeter.operators.extract import operators_of as operators_of
    from luxmeter.operators.foreign.load import load_foreign as load_foreign
    from luxmeter.operators.inputs import outputs_of as outputs_of
    from luxmeter.operators.inputs import replay as replay
    from luxmeter.operators.matrix import BenchMatrix as BenchMatrix
    from luxmeter.operators.matrix import diff_many as diff_many
    from luxmeter.operators.matrix import diff_many_files as diff_many_files
    from luxmeter.operators.mini import bench_model as bench_model
    from luxmeter.operators.mini import bench_model_file as bench_model_file
    from luxmeter.operators.options import BenchOptions as BenchOptions
    from luxmeter.operators.options import read_against as read_against
    from luxmeter.operators.results import FORMATS as FORMATS
    from luxmeter.operators.results import BenchResult as BenchResult
    from luxmeter.operators.results import load_benchmark as load_benchmark
    from luxmeter.operators.results import pair_table as pair_table
    from luxmeter.operators.results import put_benchmark as put_benchmark
    from luxmeter.operators.results import side_by_side as side_by_side
    from luxmeter.operators.runner import bench as bench
    from luxmeter.operators.runner import bench_against as bench_against
    from luxmeter.operators.series import Series as Series
    from luxmeter.operators.series import series_of as series_of
    from luxmeter.operators.series import speedups_of as speedups_of
    from luxmeter.operators.timer import measure as measure
    from luxmeter.operators.timer import measure_interleaved as measure_interleaved
    from luxmeter.operators.timer import without_collecting as without_collecting

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "Operators": "case",
        "case_to_json": "case",
        "is_operators_file": "case",
        "load_operators": "case",
        "put_operators": "case",
        "CheckDiff": "checks.diff",
        "diff_checks": "checks.diff",
        "CheckOptions": "checks.options",
        "CHECK_FORMATS": "checks.records",
        "CheckResult": "checks.records",
        "load_check": "checks.records",
        "put_check": "checks.records",
        "DATABASES": "checks.runner",
        "check": "checks.runner",
        "counterpart_of": "counterparts",
        "diff_benchmark_files": "diff",
        "diff_benchmarks": "diff",
        "names_of": "diff",
        "pair_table": "results",
        "side_by_side": "results",
        "operators_of": "extract",
        "load_foreign": "foreign.load",
        "outputs_of": "inputs",
        "replay": "inputs",
        "BenchMatrix": "matrix",
        "diff_many": "matrix",
        "diff_many_files": "matrix",
        "bench_model": "mini",
        "bench_model_file": "mini",
        "BenchOptions": "options",
        "read_against": "options",
        "BenchResult": "results",
        "FORMATS": "results",
        "load_benchmark": "results",
        "put_benchmark": "results",
        "bench": "runner",
        "bench_against": "runner",
        "Series": "series",
        "series_of": "series",
        "speedups_of": "series",
        "measure": "timer",
        "measure_interleaved": "timer",
        "without_collecting": "timer",
    },
)
