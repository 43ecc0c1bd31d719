"""Small files of a run that hold something else: each is named, with what it holds; whatever can be read is read."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from luxmeter.errors import StoreError
from luxmeter.store import Lab, Run, SegmentWriter, damage_of_lab, layout
from luxmeter.store.records import CODE, COMMAND, ENDING, FILES_FOLDER, FILES_TABLE, files_schema


@pytest.fixture
def run(lab: Lab) -> Run:
    with lab.create_run("a", params={"seed": True, "deep": {"seed": 3}}) as made:
        made.log({"x": 1.0}, step=0)
    return Run(made.folder, lab.folder)


def put(run: Run, name: str, value: Any) -> None:
    place = run.folder / name
    place.parent.mkdir(exist_ok=True)
    place.write_text(json.dumps(value))


CASES: list[tuple[str, Any, Callable[[Run], Any], str]] = [
    (f"{FILES_FOLDER}/{CODE}", [1], lambda r: r.snapshot, "holds no names"),
    (f"{FILES_FOLDER}/{CODE}", {"files": 7}, lambda r: r.snapshot, "'files' is no"),
    (f"{FILES_FOLDER}/{CODE}", {"files": {"a.py": 7}}, lambda r: r.snapshot, "not names of content"),
    (f"{FILES_FOLDER}/{CODE}", {"files": {}, "keycode": ["x"]}, lambda r: r.snapshot, "not names of content"),
    (f"{FILES_FOLDER}/{CODE}", {"git": {"commit": 7}}, lambda r: r.snapshot, "'commit' is no str"),
    (f"{FILES_FOLDER}/{COMMAND}", {"argv": "x"}, lambda r: r.command, "'argv' is no"),
    (f"{FILES_FOLDER}/{ENDING}", {"exit_code": "x"}, lambda r: r.ending, "'exit_code' is no int"),
    (layout.SOURCES, {"loss": 7}, lambda r: r.sources, "a source is no text"),
    (layout.SUMMARY, {"x": 7}, lambda r: r.metrics, "it holds 7"),
    (layout.SUMMARY, {"x": {"n": "x" * 99}}, lambda r: r.metrics, r"its 'n' is 'x+\.\.\."),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "read", "words"), CASES)
def test_each_is_named_with_what_it_holds(
    run: Run, name: str, value: Any, read: Callable[[Run], Any], words: str
) -> None:
    put(run, name, value)
    with pytest.raises(StoreError, match=words) as refused:
        read(Run(run.folder))
    assert refused.value.slug == "run-damaged" and Path(name).name in refused.value.what


def test_a_parent_that_is_none(run: Run) -> None:
    put(run, layout.IDENTITY, {**run.identity, "parent": 7})
    with pytest.raises(StoreError, match="its parent is 7"):
        _ = Run(run.folder).id


def test_a_seed_that_cannot_be_told(run: Run) -> None:
    assert run.seed == 3  # of two parameters called so the one that is a number
    put(run, layout.PARAMS, {"lr": 0.1})
    put(run, f"{FILES_FOLDER}/{COMMAND}", [1])
    assert Run(run.folder).seed is None


def test_a_metric_without_a_name(run: Run) -> None:
    """A table that Arrow takes and no program of ours wrote."""
    table = run.folder / layout.TABLES / layout.METRICS
    for path in (*table.iterdir(), run.folder / layout.SUMMARY):
        path.unlink()
    writer = SegmentWriter(table)
    writer.append(pa.record_batch({"key": [7, 8], "step": [0, 1], "value": [1.0, 2.0], "time_ns": [1, 2]}))
    writer.close()
    with pytest.raises(StoreError, match="a metric has no name"):
        _ = Run(run.folder).metrics


def test_points_that_lack_a_value(run: Run) -> None:
    table = run.folder / layout.TABLES / layout.METRICS
    for path in table.iterdir():
        path.unlink()
    writer = SegmentWriter(table)
    rows = {"key": ["x", "x"], "step": [0, 1], "value": [1.0, None], "time_ns": [1, 2]}
    assert writer.append(pa.table(rows)) > 0
    writer.close()
    values = Run(run.folder).metric("x").values
    assert values[0] == 1.0 and values[1] != values[1]


def test_a_change_of_a_file_that_lacks_a_part(run: Run) -> None:
    writer = SegmentWriter(run.folder / layout.TABLES / FILES_TABLE)
    schema = files_schema().remove_metadata()
    writer.append(pa.table({field.name: pa.array([None], field.type) for field in schema}))
    writer.close()
    with pytest.raises(StoreError, match="a change of a file lacks a part"):
        _ = run.changed_files


def test_doctor_names_a_table_that_cannot_be_read_and_goes_on(lab: Lab, run: Run) -> None:
    table = run.folder / layout.TABLES / layout.METRICS
    (table / "table.parquet").write_bytes(b"PAR1" + b"\0" * 100 + b"PAR1")
    (lab.folder / layout.RUNS / ".left-1.7").mkdir()
    (lab.folder / layout.RUNS / "a file").write_text("")
    (run.folder / "blobs" / "ab").mkdir(parents=True)
    (run.folder / "blobs" / "ab" / "no blob").write_text("")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {one.place: one.mend for one in damage_of_lab(lab.folder)}
    where = f"runs/{run.folder.name}"
    assert found == {
        f"{where}/tables/metrics": "restore it from a copy; all else in it is read",
        where: f"restore it from a copy, or remove the run: luxmeter rm {run.folder.name}",
        "runs/.left-1.7": "luxmeter gc removes it",
    }


def test_a_folder_where_a_segment_should_be(lab: Lab, run: Run) -> None:
    table = run.folder / layout.TABLES / "of others"
    (table / "1-abcdef-0000.arrows").mkdir(parents=True)
    [found] = damage_of_lab(lab.folder)
    assert (
        found.place == f"runs/{run.folder.name}/tables/of others" and found.mend == "restore it from a copy"
    )


def test_a_value_of_a_run(run: Run) -> None:
    assert repr(run) == f"<run {run.id} 'a' finished>" and {run: 1}[Run(run.folder)] == 1
    assert run.row.id in repr(run.row)
    points = run.metric("x")
    assert repr(points) == "<Points 'x': 1, from 1 to 1>" and repr(points[1:]) == "<Points 'x': none>"
    assert run.trace is run.ops is run.bench is run.check is None
    with pytest.raises(StoreError, match="table-missing"):
        run.table("metrik")
    with pytest.raises(StoreError, match="file-missing"):
        run.file("none.txt")
    with pytest.raises(StoreError, match="run-file-missing"):
        run.read_file("none.txt")
    (run.folder / layout.FILES).mkdir(exist_ok=True)
    (run.folder / layout.FILES / "a.txt").write_text("body")
    assert run.read_file("a.txt") == b"body"
    with pytest.raises(AttributeError):
        run.params.__wrapped__
