"""Forked and spawned processes, the end of the interpreter, killed processes, full disks."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

import luxmeter as lux
from luxmeter.calls import session
from luxmeter.errors import LuxmeterWarning

pytestmark = pytest.mark.usefixtures("core_name")


def run_script(text: str, tmp_path: Path, *, expect: int = 0) -> str:
    """Run a program in a process of its own, which sees the core under test."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(text))
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ},
        check=False,
    )
    assert done.returncode == expect, done.stderr
    return done.stdout


def test_a_fork_while_recording_duplicates_nothing_and_is_merged(tmp_path: Path):
    with lux.trace(framework=None, keep=tmp_path / "t") as t:
        work = t.wrap(len, name="work")
        for _ in range(10):
            work([])

        def fork() -> None:
            pid = os.fork()
            if pid == 0:
                work([]), work([]), work([])  # top level here: the open call is the parent's
                session.finish_child()
                os._exit(0)
            os.waitpid(pid, 0)

        t.wrap(fork, name="fork")()
    result = lux.load_trace(tmp_path / "t")
    assert result.table()["work"].n == 13
    assert result.table()["fork"].n == 1
    assert len(result.recording.processes) == 2 and not result.notes()
    assert result.events()["inside"].to_pylist().count(True) == 0


def test_a_fork_that_records_nothing_leaves_no_folder(tmp_path: Path):
    with lux.trace(framework=None, keep=tmp_path / "t"):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    assert len(list((tmp_path / "t").glob("rank*"))) == 1


def _work_in_child(wrapped: Any) -> None:
    for _ in range(7):
        wrapped([])


def test_multiprocessing_children_complete_their_files(tmp_path: Path):
    context = multiprocessing.get_context("fork")
    with lux.trace(framework=None, keep=tmp_path / "t") as t:
        work = t.wrap(len, name="work")
        children = [context.Process(target=_work_in_child, args=(work,)) for _ in range(2)]
        for child in children:
            child.start()
        for child in children:
            child.join()
    result = lux.load_trace(tmp_path / "t")
    assert result.table()["work"].n == 14
    assert all(process.complete for process in result.recording.processes)


def test_a_spawned_process_joins(tmp_path: Path):
    out = run_script(
        """
        import multiprocessing, sys
        import luxmeter as lux
        from luxmeter.calls import session

        def child(token):
            joined = session.start_in_child(token)
            joined.wrap(len, name="work")([])
            joined.stop()

        if __name__ == "__main__":
            with lux.trace(framework=None) as t:
                t.wrap(len, name="work")([])
                process = multiprocessing.get_context("spawn").Process(target=child, args=(t._names.child_token(),))
                process.start()
                process.join()
                assert process.exitcode == 0
            print(t.table()["work"].n, len(t.result.recording.processes))
        """,
        tmp_path,
    )
    assert out.split() == ["2", "2"]


def test_children_that_multiprocessing_starts_are_recorded(tmp_path: Path):
    out = run_script(
        """
        import multiprocessing, multiprocessing.spawn
        from concurrent.futures import ProcessPoolExecutor
        import torch, luxmeter as lux

        def child(*_):
            for _ in range(5):
                torch.relu(torch.ones(3))

        if __name__ == "__main__":
            before = multiprocessing.spawn.get_preparation_data
            spawn = multiprocessing.get_context("spawn")
            with lux.trace() as t:
                processes = [multiprocessing.get_context(how).Process(target=child) for how in ("spawn", "forkserver")]
                for process in processes:
                    process.start()
                with ProcessPoolExecutor(1, mp_context=spawn) as pool:
                    pool.submit(child).result()
                torch.multiprocessing.spawn(child, nprocs=1)
                for process in processes:
                    process.join()
                    assert process.exitcode == 0
            assert multiprocessing.spawn.get_preparation_data is before
            print(t.table()["torch.relu"].n, len(t.result.recording.processes), t.result.notes())
        """,
        tmp_path,
    )
    assert out.split(maxsplit=2) == ["20", "5", "[]\n"]


def test_children_that_cannot_be_recorded_are_counted_and_run_as_they_are(tmp_path: Path):
    out = run_script(
        """
        import multiprocessing, os, sys

        def child():
            sys.exit(3 if "torch" in sys.modules else 0)  # what records nothing loads nothing

        def failing():
            import torch
            torch.ones(2)

        def run(function):
            process = multiprocessing.get_context("spawn").Process(target=function)
            process.start()
            process.join()
            print(process.exitcode)

        if __name__ == "__main__":
            import torch, luxmeter as lux
            with lux.trace() as t:
                run(child)
                core = os.environ["LUXMETER_CORE"]
                os.environ["LUXMETER_CORE"] = "nonsense"
                run(failing)
                os.environ["LUXMETER_CORE"] = core
            print(t.result.notes())
        """,
        tmp_path,
    )
    first, second, said = out.splitlines()
    assert (first, second) == ("0", "0")
    assert "1 of 2 spawned processes could not be recorded: UsageError" in said and "nonsense" in said


def test_a_token_without_a_trace_starts_nothing():
    assert session.start_in_child(None) is None


def test_the_interpreter_may_end_while_tracing(tmp_path: Path):
    run_script(
        f"""
        import luxmeter as lux
        t = lux.start(framework=None, keep={str(tmp_path / "t")!r})
        t.wrap(len, name="work")([])
        """,
        tmp_path,
    )
    result = lux.load_trace(tmp_path / "t")
    assert result.table()["work"].n == 1 and not result.notes()


def test_a_temporary_trace_is_removed_at_exit_unless_saved(tmp_path: Path):
    out = run_script(
        f"""
        import luxmeter as lux
        with lux.trace(framework=None) as t:
            t.wrap(len, name="work")([])
        print(t.folder)
        t.save({str(tmp_path / "kept")!r})
        """,
        tmp_path,
    )
    assert not Path(out.strip()).exists()
    assert lux.load_trace(tmp_path / "kept").table()["work"].n == 1


def test_a_killed_process_leaves_what_was_written(tmp_path: Path):
    out = run_script(
        f"""
        import os, signal, luxmeter as lux
        t = lux.start(framework=None, keep={str(tmp_path / "t")!r})
        work = t.wrap(len, name="work")
        for _ in range(5000):
            work([])
        t.table()  # written until here
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        tmp_path,
        expect=-signal.SIGKILL,
    )
    assert out == ""
    result = lux.load_trace(tmp_path / "t")
    assert result.table()["work"].n == 5000
    assert "did not end in order" in result.notes()[0]


def test_an_interrupt_leaves_a_whole_trace(tmp_path: Path):
    run_script(
        f"""
        import os, signal, luxmeter as lux
        t = lux.trace(framework=None, keep={str(tmp_path / "t")!r})
        try:
            with t:
                work = t.wrap(lambda: os.kill(os.getpid(), signal.SIGINT), name="work")
                while True:
                    work()
        except KeyboardInterrupt:
            pass
        assert not t.running
        """,
        tmp_path,
    )
    assert lux.load_trace(tmp_path / "t").table()["work"].n >= 1


@pytest.mark.parametrize("again", [True, False])
def test_a_full_disk_loses_what_it_must_and_says_so(tmp_path: Path, again: bool):
    out = run_script(
        f"""
        import resource, luxmeter as lux
        with lux.trace(framework=None, keep={str(tmp_path / "t")!r}) as t:
            work = t.wrap(len, name="work")
            work([])
            t.table()  # written until here
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))  # no file grows past this
            for _ in range(3000):
                assert work([1]) == 1
            t._spill.flush()
            if {again}:
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            work([])
        print(t.table()["work"].n)
        print(t.result.notes())
        """,
        tmp_path,
    )
    kept, notes = out.splitlines()
    if again:  # there is room again: what waited is written
        assert kept == "3002"
        assert "writing failed and was made up for: OSError: File too large" in notes
    else:
        assert f"{3002 - int(kept)} calls lost: OSError: File too large" in notes


def test_a_folder_that_vanishes_does_not_hurt_the_program(tmp_path: Path):
    import shutil

    with (
        pytest.warns(LuxmeterWarning, match="No such file"),
        lux.trace(framework=None, keep=tmp_path / "t") as t,
    ):
        work = t.wrap(len, name="work")
        work([])
        t._spill.flush()
        shutil.rmtree(tmp_path / "t")
        assert work([1]) == 1


def test_a_torn_tail_is_read_up_to_the_tear(tmp_path: Path):
    with lux.trace(framework=None, keep=tmp_path / "t") as t:
        work = t.wrap(len, name="work")
        work([])
        t._spill.flush()
        words = next((tmp_path / "t").glob("rank*/words.jsonl"))
        segment = next((tmp_path / "t").glob("rank*/events/0000/*.arrows"))
        saved = words.read_bytes(), segment.read_bytes()
    next((tmp_path / "t").glob("rank*/events/0000.parquet")).unlink()
    segment.parent.mkdir()
    segment.write_bytes(saved[1] + saved[1][:100])
    words.write_bytes(saved[0] + b'{"callable": 99, "na')
    assert lux.load_trace(tmp_path / "t").table()["work"].n == 1


def test_two_ranks_in_one_folder_are_one_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for rank in (0, 1):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        with lux.trace(framework=None, keep=tmp_path / "t") as t:
            work = t.wrap(len, name="work")
            for _ in range(rank + 1):
                work([])
    result = lux.load_trace(tmp_path / "t")
    assert {row.name: row.n for row in result.table("rank")} == {"rank 0": 1, "rank 1": 2}
    assert sorted(set(result.events()["rank"].to_pylist())) == [0, 1]


def test_traces_of_several_folders_are_merged(tmp_path: Path):
    for name in ("a", "b"):
        with lux.trace(framework=None, keep=tmp_path / name) as t:
            t.wrap(len, name="work")([])
            t.wrap(abs, name=name)(-1)
    result = lux.load_trace(tmp_path / "a", tmp_path / "b")
    assert {row.name: row.n for row in result.table()} == {"work": 2, "a": 1, "b": 1}


def test_what_is_no_trace_is_refused(tmp_path: Path):
    with pytest.raises(lux.errors.TraceError, match="no-trace-here"):
        lux.load_trace(tmp_path)
    (tmp_path / "trace.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(lux.errors.TraceError, match="trace-too-new"):
        lux.load_trace(tmp_path).table()


def test_an_event_takes_ten_bytes_at_most(tmp_path: Path):
    x = torch.ones(4)
    with lux.trace(keep=tmp_path / "t") as t:
        for _ in range(3000):
            y = x + x
            torch.relu(y).sum()
            torch.add(x, y, alpha=2)
    calls = sum(row.n for row in t.table())
    assert calls == 12000
    size = sum(p.stat().st_size for p in (tmp_path / "t").glob("rank*/events/*.parquet"))
    assert 0 < size / calls <= 10
