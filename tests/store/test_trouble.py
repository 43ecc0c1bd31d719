"""What goes wrong outside: killed processes, full disks, folders that vanish, other machines. Training goes on."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from luxmeter.errors import LuxmeterWarning, StoreError
from luxmeter.store import Image, Lab, Run, SegmentWriter, read_segments
from luxmeter.store.liveness import Process, is_alive
from luxmeter.store.troubles import Troubles

WRITER = """
import sys, time
from luxmeter.store import Lab
lab = Lab.open(sys.argv[1])
run = lab.create_run("victim")
print(run.id, flush=True)
step = 0
while True:
    run.metric("x", float(step), step)
    step += 1
    if step % 50 == 0:
        print(step, time.time(), flush=True)
        time.sleep(0.0005)
"""


def python(code: str, *args: object, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)], stdout=subprocess.PIPE, text=True, **options
    )


@pytest.mark.alone
def test_kill_at_random_moments(lab: Lab) -> None:
    """What was logged more than a second before the kill is there; every other run is intact; the run is lost."""
    chance = random.Random(1)
    with lab.create_run("bystander") as bystander:
        bystander.metric("y", 1.0)
    killed: list[str] = []
    for _ in range(8):
        with python(WRITER, lab.folder) as process:
            assert process.stdout is not None
            run_id = process.stdout.readline().strip()
            end = time.time() + chance.uniform(0.0, 1.8)
            logged: list[tuple[int, float]] = []
            while time.time() < end:
                step, when = process.stdout.readline().split()
                logged.append((int(step), float(when)))
            process.kill()
            died = time.time()
        killed.append(run_id)
        assert lab.find(run_id).state == "lost"
        safe = max((step for step, when in logged if when < died - 1.0), default=0)
        rows = lab.find(run_id).table("metrics")
        steps = rows["step"].to_pylist()
        assert steps == list(range(len(steps))), "a hole, or a row twice"
        assert len(steps) >= safe
    rows = {row.id: row.state for row in lab.runs()}
    assert rows == {bystander.id: "finished", **dict.fromkeys(killed, "lost")}
    assert lab.find(bystander.id).metric("y").to_arrow()["value"].to_pylist() == [1.0]
    assert lab.gc()["compacted"] >= 1
    assert not [p for p in lab.folder.rglob("*.arrows") if killed[-1] in str(p)]


def _write_run(folder: str, number: int) -> None:
    lab = Lab.open(folder)
    for part in range(3):
        with lab.create_run(f"p{number}", params={"part": part}) as run:
            for step in range(200):
                run.log({"a": float(step), "b": float(number)}, step=step)
    assert len(lab.runs(f"name = p{number}")) == 3
    lab.close()


@pytest.mark.slow
def test_sixteen_processes_in_one_lab(lab: Lab) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_write_run, args=(str(lab.folder), n)) for n in range(16)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 16
    rows = lab.runs()
    assert len(rows) == 48
    assert all(row.state == "finished" and row.metrics["a"]["n"] == 200 for row in rows)
    assert lab.find("p7").metric("b").to_arrow()["value"].to_pylist() == [7.0] * 200


def test_forked_children_write_rows_of_their_own(lab: Lab) -> None:
    run = lab.create_run("parent")
    run.metric("before", 1.0, 0)  # buffered at the fork: must not be written twice

    def child(number: int) -> None:
        for step in range(100):
            run.metric(f"child{number}", float(step), step)

    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=child, args=(n,)) for n in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert run.state == "running"
    run.metric("after", 2.0, 0)
    run.finish()
    found = lab.find("parent")
    assert found.state == "finished"
    assert {key: part["n"] for key, part in found.metrics.items()} == {
        "before": 1, "after": 1, "child0": 100, "child1": 100, "child2": 100,
    }  # fmt: skip


def test_full_disk_then_room_again(lab: Lab) -> None:
    """A limit on the size of files is a full disk to the writer: the system itself refuses the write."""
    signal_before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limit_before = resource.getrlimit(resource.RLIMIT_FSIZE)
    run = lab.create_run("a")
    try:
        run.metric("x", 0.0, 0)
        run.flush()
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limit_before[1]))
        for step in range(1, 5000):
            run.metric("x", float(step), step)
        run.drain()
        with pytest.warns(LuxmeterWarning, match="store-cannot-write"):
            run.metric("x", 5000.0, 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit_before)
        signal.signal(signal.SIGXFSZ, signal_before)
    run.finish()
    assert lab.find("latest").metric("x").to_arrow()["step"].to_pylist() == list(range(5001))
    assert lab.find("latest").lost_rows == 0


def test_disk_full_for_ever_gives_up_the_oldest_and_says_so(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("luxmeter.store.writer._MAX_PENDING_BYTES", 1000)
    run = lab.create_run("a")
    run.metric("x", 0.0, 0)
    run.flush()
    table = run.folder / "tables" / "metrics"
    run._tables["metrics"].close()
    table.rename(table.with_name("gone"))
    table.write_text("a file where a folder must be")  # every write fails
    with pytest.warns(LuxmeterWarning, match="store-cannot-write"):
        for part in range(10):
            for step in range(20):
                run.metric("x", float(step), part * 20 + step)
            run.flush()
    assert run.lost_rows > 0
    table.unlink()
    table.with_name("gone").rename(table)
    run.finish()
    kept = lab.find("latest")
    assert kept.lost_rows == run.lost_rows
    assert kept.table("metrics").num_rows + run.lost_rows == 201


def test_objects_and_files_on_a_full_disk(lab: Lab) -> None:
    run = lab.create_run("a")
    (lab.folder / "blobs").write_text("a file where a folder must be")  # nothing can be pooled
    with pytest.warns(LuxmeterWarning, match="store-cannot-write"):
        run.metric("picture", Image(np.zeros((4, 4))), 1)  # training goes on
    with pytest.raises(StoreError, match="file-not-put"):
        run.put_blob(b"asked for")
    (run.folder / "files").write_text("")
    with pytest.raises(StoreError, match=r"'x\.txt' cannot be put"):
        run.put_file("x.txt", b"asked for")
    run.metric("x", 1.0)
    run.finish()
    assert lab.find("latest").metrics["x"]["n"] == 1
    assert lab.find("latest").lost_rows == 1


def test_run_folder_removed_while_running(lab: Lab) -> None:
    import shutil

    run = lab.create_run("a")
    run.metric("x", 1.0)
    run.flush()
    shutil.rmtree(run.folder)
    run._touched = 0.0  # the next sign of life is due
    run.drain()
    with pytest.warns(LuxmeterWarning, match="run-folder-gone"):
        run.metric("x", 2.0)
    run.metric("x", 3.0)
    run.finish()
    assert lab.runs() == []
    assert not run.folder.exists()


@pytest.mark.parametrize("logged", [0, 1])
def test_run_removed_before_its_first_flush_stays_removed(lab: Lab, logged: int) -> None:
    import shutil

    run = lab.create_run("a")
    shutil.rmtree(run.folder)
    for _ in range(logged):
        run.metric("x", 1.0)
    for put in (lambda: run.put_file("deep/notes.txt", "late"), lambda: run.put_blob(b"late")):
        with pytest.raises(StoreError, match="its folder is gone"):
            put()
    with pytest.warns(LuxmeterWarning, match="run-folder-gone"):
        run.flush()
        run.finish()
    assert not run.folder.exists() and lab.runs() == []


def test_torn_last_piece(tmp_path: Path) -> None:
    import pyarrow as pa

    writer = SegmentWriter(tmp_path / "t")
    for part in range(3):
        writer.append(pa.record_batch({"x": [part] * 10}))
    writer.close()
    (file,) = (tmp_path / "t").glob("*.arrows")
    whole = file.read_bytes()
    piece = len(whole) // 3
    for cut in (1, 7, 100, piece - 1, piece, piece + 1, 2 * piece + 50, len(whole) - 1):
        file.write_bytes(whole[:-cut])
        read = read_segments(tmp_path / "t")
        expected = 10 * ((len(whole) - cut) // piece)
        assert (0 if read is None else read.num_rows) >= expected and (
            read is None or read.num_rows % 10 == 0
        )


def test_killed_between_compaction_and_removal_reads_no_row_twice(tmp_path: Path) -> None:
    import shutil

    import pyarrow as pa

    from luxmeter.store import compact

    folder = tmp_path / "t"
    writer = SegmentWriter(folder)
    writer.append(pa.record_batch({"x": [1, 2, 3]}))
    writer.close()
    (segment,) = folder.glob("*.arrows")
    shutil.copy(segment, tmp_path / "kept")
    compact(folder)
    shutil.copy(tmp_path / "kept", segment)  # as if the process had died before removing it
    table = read_segments(folder)
    assert table is not None and table["x"].to_pylist() == [1, 2, 3]
    compact(folder)
    assert not segment.exists()


def _read_only(code: str, lab: Lab) -> subprocess.CompletedProcess[str]:
    """Run code as a user who may read the lab and not write it."""
    for path in [lab.folder, *lab.folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    for parent in lab.folder.parents:
        if parent.stat().st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o005)
    # root may write anywhere: give that right up, not the user (who could not read the interpreter's folder)
    drop = "import ctypes; ctypes.CDLL(None).prctl(24, 1, 0, 0, 0); " if os.getuid() == 0 else ""
    caps = (
        ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--inh-caps=-all"]
        if os.getuid() == 0
        else []
    )
    done = subprocess.run(
        [*caps, sys.executable, "-c", drop + code, str(lab.folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    for path in [lab.folder, *lab.folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return done


def test_read_only_lab_can_be_listed_and_refuses_runs_clearly(lab: Lab) -> None:
    with lab.create_run("a") as run:
        run.metric("x", 1.0)
    lab.close()
    code = """
import sys, warnings; warnings.simplefilter("always")
from luxmeter.store import Lab
from luxmeter.errors import StoreError
lab = Lab.open(sys.argv[1])
print([row.name for row in lab.runs("metric.x = 1")], lab.find("latest").metric("x").to_arrow()["value"].to_pylist())
try:
    lab.create_run("b")
except StoreError as error:
    print(error.slug)
"""
    done = _read_only(code, lab)
    assert done.stdout.split("\n")[:2] == ["['a'] [1.0]", "lab-not-writable"], done.stdout + done.stderr
    assert "index-not-writable" in done.stderr


def test_lab_in_an_impossible_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="lab-not-writable"):
        Lab.open(tmp_path / "file" / "lab")


def test_two_hosts_on_a_shared_folder(lab: Lab) -> None:
    """Another machine's run is alive while it gives signs of life, whatever its clock and process numbers are."""
    run = lab.create_run("a")
    here = Process.here()
    elsewhere = replace(here, machine="another boot", pid=here.pid)
    assert is_alive(elsewhere, run.folder, lost_after_s=10.0)
    past = time.time() - 60
    os.utime(run.folder / "alive", (past, past))
    assert not is_alive(elsewhere, run.folder, lost_after_s=10.0)
    assert is_alive(here, run.folder, lost_after_s=10.0)  # here the process itself is seen
    # Another process of this number, by the system's count or, where that is not known, by its time of start.
    assert not is_alive(replace(here, ticks=here.ticks - 100), run.folder, lost_after_s=10.0)
    assert not is_alive(replace(here, started=here.started - 100, ticks=0), run.folder, lost_after_s=10.0)
    run.finish()


def test_index_is_a_file_a_machine(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    with lab.create_run("a"):
        pass
    lab.runs()
    lab.close()
    monkeypatch.setattr("socket.gethostname", lambda: "other host")
    with lab.create_run("b"):
        pass
    assert {row.name for row in lab.runs()} == {"a", "b"}
    assert len(list((lab.folder / "index").glob("*.sqlite"))) == 2
    assert len(list((lab.folder / "journal").glob("*.log"))) == 2


def test_program_that_never_finishes_its_run(lab: Lab) -> None:
    code = 'import sys; from luxmeter.store import Lab; r = Lab.open(sys.argv[1]).create_run(sys.argv[2]); r.metric("x", 1.0); '
    for name, rest, state in (
        ("plain", "", "finished"),
        ("raises", "1/0", "failed"),
        ("stops", "raise KeyboardInterrupt", "interrupted"),
    ):
        subprocess.run(
            [sys.executable, "-c", code + rest, str(lab.folder), name], capture_output=True, check=False
        )
        assert Run(lab.find(name).folder).state == state
        assert lab.find(name).metrics["x"]["n"] == 1


def test_a_trouble_is_kept_once_and_told_once() -> None:
    troubles = Troubles("r1")
    for _ in range(3):
        troubles.complain("disk-full", "the disk is full", "Make room")
    assert len(troubles) == 1
    with pytest.warns(LuxmeterWarning, match="the disk is full"):
        troubles.tell()
    assert not troubles
