"""Workers that crash, hang, raise, shout and are interrupted: all real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from luxmeter.errors import UsageError
from luxmeter.isolate import Pool

WORK = "isolated_work"
HERE = str(Path(__file__).parent)


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(workers=1, paths=[HERE]) as shared:
        yield shared


def test_work_is_done_by_a_warm_worker(pool: Pool) -> None:
    outcome = pool.run(f"{WORK}:add", {"a": 2, "b": 3})
    assert outcome.status == "ok" and outcome.value == 5
    first, second = (pool.run(f"{WORK}:whoami").value for _ in range(2))
    assert first == second == pool.pids[0] != os.getpid()


def test_an_exception_is_an_error_and_the_worker_lives_on(pool: Pool) -> None:
    before = pool.run(f"{WORK}:whoami").value
    outcome = pool.run(f"{WORK}:fail", {"message": "no such thing"})
    assert outcome.status == "error"
    assert outcome.reason == "ValueError: no such thing"
    assert "in fail" in outcome.detail
    assert pool.run(f"{WORK}:leave", {"code": 3}).reason == "SystemExit: 3"
    assert pool.run(f"{WORK}:whoami").value == before


@pytest.mark.parametrize(
    ("work", "args", "reason"),
    [
        ("segfault", {}, "ended by SIGSEGV"),
        ("divide_by_zero_in_c", {}, "ended by SIGFPE"),
        ("leave", {"code": 7, "hard": True}, "exited with code 7"),
    ],
)
def test_a_death_is_an_outcome_and_a_new_worker_follows(
    pool: Pool, work: str, args: dict, reason: str
) -> None:
    before = pool.run(f"{WORK}:whoami").value
    outcome = pool.run(f"{WORK}:{work}", args)
    assert (outcome.status, outcome.reason) == ("crashed", reason)
    if "SIG" in reason:
        assert "Fatal Python error" in outcome.output and work in outcome.output
    after = pool.run(f"{WORK}:whoami")
    assert after.status == "ok" and after.value != before


@pytest.mark.parametrize("hold_gil", [False, True])
def test_a_hang_is_ended_and_says_where(pool: Pool, hold_gil: bool) -> None:
    outcome = pool.run(f"{WORK}:hang", {"hold_gil": hold_gil}, timeout_s=0.5)
    assert (outcome.status, outcome.reason) == ("timeout", "no result within 0.5 s")
    assert "in hang" in outcome.output
    assert pool.run(f"{WORK}:add", {"a": 1, "b": 1}).value == 2


def test_work_that_says_that_it_goes_on_has_its_time_anew(pool: Pool) -> None:
    """A long piece of work on a busy machine is none that hangs."""

    def beat(alive: str) -> list[str]:
        found = pool.map(f"{WORK}:beat", [{"for_s": 2.5}], timeout_s=1.2, alive=alive)
        return [outcome.reason or str(outcome.value) for _, outcome in found]

    assert beat("still here") == ["done"]
    assert beat("something else") == ["no result within 1.2 s"]


def test_a_worker_that_starts_slowly_takes_no_time_of_another_one(tmp_path: Path) -> None:
    (tmp_path / "slow_start.py").write_text("import time\ntime.sleep(1.5)\n")
    with Pool(workers=2, preload=["slow_start"], paths=[str(tmp_path)]) as two:
        found = dict(two.map(f"{WORK}:echo", [{"value": 1}, {"value": 2}], timeout_s=1.4))
    assert [found[i].value for i in range(2)] == [1, 2], found


def test_all_that_a_worker_started_ends_with_it(pool: Pool, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    outcome = pool.run(f"{WORK}:start_child", {"pid_file": str(pid_file)}, timeout_s=1)
    assert outcome.status == "timeout"
    _gone(int(pid_file.read_text()))


def test_huge_output_keeps_its_end(pool: Pool) -> None:
    outcome = pool.run(f"{WORK}:chatter", {"size_bytes": 30_000_000})
    assert outcome.status == "ok" and outcome.value == "said"
    assert outcome.output.endswith("the end\n")
    assert len(outcome.output) <= 64 * 1024


def test_huge_arguments_and_results() -> None:
    with Pool(paths=[HERE], most_bytes=1_000_000) as small:
        assert small.run(f"{WORK}:big", {"size_bytes": 900_000}).status == "ok"
        outcome = small.run(f"{WORK}:big", {"size_bytes": 1_100_000})
        assert outcome.status == "error" and "more than the 1000000" in outcome.reason
        sent = small.run(f"{WORK}:echo", {"value": "z" * 500_000})
        assert sent.value == "z" * 500_000


def test_what_cannot_be_sent_is_an_error(pool: Pool) -> None:
    assert pool.run(f"{WORK}:unsendable").reason.startswith("NotJSON: the result cannot be sent")
    assert pool.run(f"{WORK}:add", {"a": object(), "b": 1}).reason.startswith("NotJSON: the arguments")
    assert "No module named 'nowhere'" in pool.run("nowhere:f").reason
    assert pool.run(f"{WORK}:absent").reason.startswith("AttributeError")


def test_memory_can_be_limited() -> None:
    with Pool(paths=[HERE], memory_bytes=2 << 30) as limited:
        assert limited.run(f"{WORK}:take_memory", {"size_bytes": 1 << 20}).status == "ok"
        outcome = limited.run(f"{WORK}:take_memory", {"size_bytes": 3 << 30})
        assert outcome.status == "error" and outcome.reason.startswith("MemoryError")


def test_many_items_on_two_workers_each_with_its_own_end() -> None:
    with Pool(workers=2, paths=[HERE]) as two:
        two.start()
        assert len(two.pids) == 2
        outcomes = dict(two.map(f"{WORK}:add", [{"a": i, "b": i} for i in range(20)]))
        assert [outcomes[i].value for i in range(20)] == [2 * i for i in range(20)]
        assert len(two.pids) == 2
        # A hang beside quick work: the quick one is not held up by it.
        items = [{"value": 1}, {"value": 2}]
        assert sorted(o.value for _, o in two.map(f"{WORK}:echo", items)) == [1, 2]


def test_leaving_early_ends_the_busy_and_keeps_the_idle() -> None:
    with Pool(workers=2, paths=[HERE]) as two:
        for number, outcome in two.map(f"{WORK}:echo", [{"value": 0}] * 6):
            assert outcome.status == "ok"
            break
        assert len(two.pids) >= 1
        assert two.run(f"{WORK}:echo", {"value": 9}).value == 9


def test_workers_end_with_the_pool() -> None:
    closed = Pool(workers=2, paths=[HERE])
    closed.start()
    pids = closed.pids
    closed.close()
    closed.close()
    for pid in pids:
        _gone(pid)
    with pytest.raises(UsageError, match="pool-closed"):
        closed.run(f"{WORK}:whoami")


def test_a_script_without_a_main_guard_and_ctrl_c(tmp_path: Path) -> None:
    """The script's own top level runs once; on Ctrl-C it keeps what is done and leaves no process behind."""
    script = tmp_path / "unguarded.py"
    script.write_text(
        textwrap.dedent(f"""
        import sys
        from luxmeter.isolate import Pool
        print("top level", flush=True)
        pool = Pool(workers=1, paths=[{HERE!r}])
        done = []
        try:
            for number, outcome in pool.map("isolated_work:hang", [{{}}]):
                done.append(number)
        except KeyboardInterrupt:
            print("interrupted, after", pool.run("isolated_work:add", {{"a": 1, "b": 2}}).value, flush=True)
            pool.close()
        """)
    )
    process = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        parent = psutil.Process(process.pid)
        deadline = time.monotonic() + 60
        while not parent.children() and time.monotonic() < deadline:
            time.sleep(0.02)
        [worker] = parent.children()
        # Wait until the work itself has begun: the worker has read its request.
        while worker.cpu_times().user + worker.cpu_times().system < 0.02 and time.monotonic() < deadline:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert said.splitlines() == ["top level", "interrupted, after 3"]
    _gone(worker.pid)


def test_a_killed_parent_takes_its_workers_along(tmp_path: Path) -> None:
    code = f"""
from luxmeter.isolate import Pool
pool = Pool(paths=[{HERE!r}])
pool.start()
print(pool.pids[0], flush=True)
pool.run("isolated_work:hang")
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        pid = int(process.stdout.readline())
    process.kill()
    process.wait()
    _gone(pid)


def test_another_environments_interpreter(tmp_path: Path) -> None:
    """It has neither luxmeter nor numpy: luxmeter is found, and nothing else of this environment is."""
    venv.create(tmp_path / "other", with_pip=False, symlinks=True)
    python = tmp_path / "other" / "bin" / "python"
    with Pool(python=python, paths=[HERE]) as other:
        assert other.run(f"{WORK}:version").value == list(sys.version_info[:2])
        assert other.run("luxmeter.literal:parse", {"text": "[1, 2]"}).value == [1, 2]
        assert "No module named 'numpy'" in other.run("numpy:zeros").reason


def test_workers_that_cannot_start() -> None:
    with Pool(python="/nowhere/python") as nowhere, pytest.raises(UsageError, match="no-interpreter"):
        nowhere.run(f"{WORK}:whoami")
    with Pool(preload=["no_such_module"]) as unloadable:
        with pytest.raises(UsageError, match="No module named 'no_such_module'"):
            unloadable.run(f"{WORK}:whoami")
    with Pool(python="/bin/false") as foreign, pytest.raises(UsageError, match="exited with code 1"):
        foreign.run(f"{WORK}:whoami")


def test_work_by_function_or_name() -> None:
    from luxmeter import literal

    with Pool() as any_pool:
        assert any_pool.run(literal.parse, {"text": "1"}).value == 1
        with pytest.raises(UsageError, match="work-not-importable"):
            any_pool.run(lambda: 1)
        with pytest.raises(UsageError, match="bad-work"):
            any_pool.run("just_a_name")
    with pytest.raises(UsageError, match="no-workers"):
        Pool(workers=0)


def test_preloaded_modules_are_there_and_no_others() -> None:
    with Pool(preload=["decimal"], paths=[HERE]) as warm:
        loaded = warm.run(f"{WORK}:modules").value
        assert "decimal" in loaded
        assert "luxmeter" not in loaded and "torch" not in loaded


def _gone(pid: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return
        except psutil.NoSuchProcess:
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} lives on")
