"""Names read from files: they never decide what is deleted, moved or written outside of the run they stand in."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from luxmeter.errors import StoreError
from luxmeter.store import Lab, Run, layout
from luxmeter.store.journal import announce, read_tail
from luxmeter.store.writer import compact_run

OLD = -1.0  # nothing is too young for gc


def made(lab: Lab, name: str = "a", *, points: int = 3) -> Path:
    with lab.create_run(name) as run:
        for step in range(points):
            run.metric("loss", float(step), step)
    return run.folder


def forge_segments(run_folder: Path, segments: object, *, leftover: bool = True) -> Path:
    """The metrics of a run as a sender may have made them: its Parquet metadata names what he likes."""
    table = run_folder / "tables" / "metrics"
    parquet = table / "table.parquet"
    rows = pq.read_table(parquet)
    text = segments if isinstance(segments, str) else json.dumps(segments)
    pq.write_table(rows.replace_schema_metadata({"luxmeter.segments": text}), parquet)
    if leftover:  # gc looks at runs with segments only
        (table / "x-0000.arrows").write_bytes(b"")
    return table


def bait(folder: Path) -> dict[str, Path]:
    """A file of the user's, and the names by which a run may try to reach it."""
    thesis = folder / "thesis.tex"
    thesis.write_text("years of work")
    return {"thesis": thesis}


@pytest.mark.parametrize("kind", ["absolute", "above", "below", "dots", "nul", "number", "list", "long"])
def test_gc_removes_no_file_that_a_run_names(lab: Lab, tmp_path: Path, kind: str) -> None:
    thesis = bait(tmp_path)["thesis"]
    run, other = made(lab), made(lab, "other")
    table = run / "tables" / "metrics"
    (table / "sub").mkdir()
    (table / "sub" / "x-0000.arrows").write_text("not a segment of this table")
    name: object = {
        "absolute": str(thesis),
        "above": os.path.relpath(thesis, table),
        "below": "sub/x-0000.arrows",
        "dots": "..",
        "nul": "x-0000.arrows\0",
        "number": 7,
        "list": ["x-0000.arrows"],
        "long": "x" * 300 + "-0000.arrows",
    }[kind]
    forge_segments(run, [[name, 0], ["x-0000.arrows", 0]])
    (other / "tables" / "metrics" / "999999999-aaaaaa-0000.arrows").write_bytes(
        b""
    )  # what gc has to do there
    done = lab.gc(older_than_s=OLD)
    assert thesis.read_text() == "years of work"
    assert (table / "sub" / "x-0000.arrows").exists()
    assert done["damaged"] == 1 and done["compacted"] == 1
    assert not (other / "tables" / "metrics" / "999999999-aaaaaa-0000.arrows").exists()
    with pytest.raises(StoreError, match="segments"):
        compact_run(run)
    with pytest.raises(StoreError, match="segments"):
        Run(run).metric("loss")
    with pytest.raises(StoreError, match="segments"):
        Run(run).follow().new()


@pytest.mark.parametrize("segments", ["{", '{"a": 1}', "[1]", "[[]]", '[["1-aaaaaa-0000.arrows", -1]]',
                                      '[["1-aaaaaa-0000.arrows", true]]', "[" * 5000])  # fmt: skip
def test_metadata_that_is_no_list_of_segments(lab: Lab, segments: str) -> None:
    run = made(lab)
    forge_segments(run, segments)
    assert lab.gc(older_than_s=OLD)["damaged"] == 1
    with pytest.raises(StoreError, match="segments"):
        Run(run).metric("loss")


def test_gc_still_removes_what_was_folded_in(lab: Lab) -> None:
    run = made(lab)
    table = run / "tables" / "metrics"
    (folded,) = [
        name for name, _ in json.loads(pq.read_schema(table / "table.parquet").metadata[b"luxmeter.segments"])
    ]
    (table / folded).write_bytes(b"left over from a crash")
    assert lab.gc(older_than_s=OLD)["compacted"] == 1
    assert sorted(p.name for p in table.iterdir()) == ["table.parquet"]
    assert Run(run).metric("loss").to_arrow().num_rows == 3


def test_gc_leaves_what_links_lead_to(lab: Lab, tmp_path: Path) -> None:
    """A lab that was unpacked from elsewhere may hold links: into them nothing is folded, out of them nothing removed."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "thesis.tex").write_text("years of work")
    (outside / "1-aaaaaa-0000.arrows").write_bytes(b"")
    (outside / "table.parquet").write_bytes(b"mine")
    before = {p.name: p.read_bytes() for p in outside.iterdir()}
    run = made(lab)
    shutil.rmtree(run / "tables" / "metrics")
    (run / "tables" / "metrics").symlink_to(outside)
    (lab.folder / "blobs").mkdir(exist_ok=True)
    (lab.folder / "blobs" / "th").symlink_to(outside)
    blob = "ab" + "0" * 62
    (outside / blob).write_text("a file with a blob's name")
    (lab.folder / "blobs" / "ab").symlink_to(outside)
    (lab.folder / "trash").mkdir()
    (lab.folder / "trash" / "away").symlink_to(outside)
    (lab.folder / "runs" / "half").symlink_to(outside)
    lab.gc(older_than_s=OLD)
    assert {p.name: p.read_bytes() for p in outside.iterdir()} == {
        **before,
        blob: b"a file with a blob's name",
    }


def test_gc_removes_blobs_alone_from_the_pool(lab: Lab) -> None:
    place = lab.folder / "blobs" / "ab"
    place.mkdir(parents=True)
    (place / "notes.txt").write_text("somebody's")
    (place / ("cd" + "0" * 62)).write_text("not where a blob of this name lies")
    (place / ("ab" + "0" * 62)).write_text("a blob that no run has")
    assert lab.gc(older_than_s=OLD)["blobs"] == 1
    assert sorted(p.name for p in place.iterdir()) == ["cd" + "0" * 62, "notes.txt"]


@pytest.mark.parametrize("run_id", ["../../elsewhere", "/tmp/elsewhere", "..", "other", 7, None, ["a"]])
def test_an_id_in_a_run_moves_nothing_elsewhere(lab: Lab, tmp_path: Path, run_id: object) -> None:
    """`rm` and `rm --undo` go by the run's folder; a run that calls itself something else is damaged."""
    run, other = made(lab), made(lab, "other")
    identity = json.loads((run / "run.json").read_text())
    named = other.name if run_id == "other" else run_id
    (run / "run.json").write_text(json.dumps({**identity, "id": named}))
    lab.reindex()
    assert {row.id: row.state for row in lab.runs()} == {run.name: "damaged", other.name: "finished"}
    assert lab.delete(run.name) == run.name
    assert (lab.folder / "trash" / run.name / "run.json").is_file() and other.is_dir()
    assert not list(tmp_path.rglob("elsewhere*"))
    lab.restore(run.name)
    assert run.is_dir()


@pytest.mark.parametrize("reference", ["../runs/x", "..", ".", "", "/etc", "a/b"])
def test_what_is_restored_is_named_by_an_id(lab: Lab, reference: str) -> None:
    made(lab)
    (lab.folder / "trash").mkdir()
    with pytest.raises(StoreError, match="not-in-trash"):
        lab.restore(reference)


def test_a_journal_names_runs_and_nothing_else(lab: Lab, tmp_path: Path) -> None:
    run = made(lab)
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(run, elsewhere)
    announce(lab.folder, os.path.relpath(elsewhere, lab.folder / "runs"))
    announce(lab.folder, str(elsewhere))
    changed, _ = read_tail(lab.folder, {})
    assert changed == {run.name}
    assert [row.id for row in lab.runs()] == [run.name]


@pytest.mark.parametrize("name", ["../x", "a" * 63, "A" * 64, "0" * 64 + "\n", "", "..", "/" * 64])
def test_blobs_are_named_by_a_hash(lab: Lab, name: str) -> None:
    with pytest.raises(StoreError, match="name-unsafe"):
        Run(made(lab)).blob(name)


def test_the_one_check_knows_its_kinds() -> None:
    assert layout.named("run", "k3x7p-20260101-120000") == "k3x7p-20260101-120000"
    assert layout.named("segment", "12-ab34ef-0003.arrows") == "12-ab34ef-0003.arrows"
    for kind in ("run", "segment", "blob"):
        for name in (
            "",
            ".",
            "..",
            "a/b",
            "/a",
            "a\\b",
            "a\0",
            ".git",
            "é" * 3,
            None,
            5,
            b"a",
            "con:",
            "x\n",
        ):
            with pytest.raises(StoreError, match="name-unsafe"):
                layout.named(kind, name)


def test_a_segment_with_a_process_number_past_all_bounds(lab: Lab) -> None:
    run = made(lab)
    segment = run / "tables" / "metrics" / f"{10**30}-aaaaaa-0000.arrows"
    rows = pa.table({"key": ["loss"], "step": [9], "value": [1.0], "time_ns": [1]})
    with open(segment, "wb") as file, pa.ipc.new_stream(file, rows.schema) as stream:
        stream.write_table(rows)
    lab.gc(older_than_s=OLD)
    assert Run(run).metric("loss").to_arrow()["step"].to_pylist() in ([0, 1, 2, 9], [0, 1, 2])
