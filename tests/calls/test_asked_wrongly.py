"""What a trace is asked for and cannot give: one error each, with what there is instead."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import luxmeter as lux
from luxmeter.calls import kinds
from luxmeter.calls.formats import check_trace_output, trace_format_of
from luxmeter.errors import TraceError, UsageError

ONE_CORE = "what is asked of a trace that is there; nothing hangs on how it was recorded"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    with lux.trace(keep=tmp_path / "t") as running:
        torch.ones(2) + 1
        with pytest.raises(TraceError, match="trace-running"):
            running.save(tmp_path / "x.csv")
    return tmp_path / "t"


def test_ranks_files_and_parts_that_are_not_there(kept: Path) -> None:
    trace = lux.load_trace(kept)
    with pytest.raises(UsageError, match=r"no rank 3\. It has: 0"):
        trace.of_rank(3)
    assert trace.of_rank(0).ranks == [0]
    with pytest.raises(UsageError, match="no-such-source"):
        trace.source()["other.py"]
    assert [file.name for file in trace.source()] and trace.source()[next(iter(trace.source())).path]


def test_formats_and_places_that_are_none(tmp_path: Path) -> None:
    assert trace_format_of("anything", "csv") == trace_format_of("a.csv") == "csv"
    for name, format in (("a.csv", "cvs"), ("a.doc", None)):
        with pytest.raises(UsageError, match="unknown-trace-format"):
            trace_format_of(name, format)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    (tmp_path / "folder.csv").mkdir()
    for out, slug in (
        ("full", "trace-out-taken"),
        ("folder.csv", "trace-out-unwritable"),
        ("full/x/below", "trace-out-unwritable"),
    ):
        with pytest.raises(UsageError, match=slug):
            check_trace_output(str(tmp_path / out))
    with pytest.raises(UsageError, match="totals-in-file"):
        check_trace_output(str(tmp_path / "a.csv"), totals=True)
    check_trace_output(str(tmp_path / "new" / "deep"))
    assert not (tmp_path / "new").exists(), "nothing is made before there is something to write"


@pytest.mark.parametrize(
    "text", ["7", "[]", "[1]", "torch: 7", "torch: {a: b}", "[" * 3000, "a: [", "\udcff"]
)
def test_a_list_of_names_that_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "names.yaml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match="filter-unreadable"), lux.trace(only=str(path)):
        pass


def test_lists_of_names(tmp_path: Path) -> None:
    path = tmp_path / "names.yaml"
    for text in ("- torch.add\n- torch.ones\n", "torch:\n- add\n- ones\nother:\n"):
        path.write_text(text)
        with lux.trace(only=str(path)) as t:
            torch.add(torch.ones(2), torch.zeros(2))
        assert {row.name for row in t.table().rows} == {"torch.add", "torch.ones"}


@pytest.mark.parametrize(
    ("name", "path", "kind"),
    [
        ("anything", "a.b", kinds.MODULES), ("torch.nn.Linear", "", kinds.MODULES), ("torch.nn.functional.relu", "", kinds.OPERATORS),
        ("torch.optim.Adam.step", "", kinds.OPTIMIZER), ("Tensor.backward", "", kinds.BACKWARD),
        ("torch.distributed.all_reduce", "", kinds.COMMUNICATION), ("torch.utils.data.default_collate", "", kinds.DATA), ("[]", "", kinds.OPERATORS),
    ],
)  # fmt: skip
def test_kinds_by_names(name: str, path: str, kind: int) -> None:
    assert kinds.kind_of(name, path) == kind
