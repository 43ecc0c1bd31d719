"""Processes of one command: started, shown, ended together."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from luxmeter import scratch
from luxmeter.errors import LuxmeterError
from luxmeter.train.launch import launch, launching
from luxmeter.train.launch.ending import Ending, exit_code, first_of, read_ending, told

LIMIT_S = 300
SHARED = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "OMP_NUM_THREADS", "TORCHELASTIC_USE_AGENT_STORE",
)  # fmt: skip
# What ranks do that have no torch to import, which would take most of the time.
REPORTS = """
def reports(text, echo=False):
    extra = {"py_callstack": f"Traceback\\n{text}\\n", "timestamp": "1", "time_ns": time.time_ns(), "is_echo": echo}
    Path(os.environ["TORCHELASTIC_ERROR_FILE"]).write_text(json.dumps({"message": {"message": text, "extraInfo": extra}}))
"""


@pytest.fixture
def job(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Runs a script in so many processes: its exit code, and what was shown."""
    monkeypatch.setattr(launching, "_GRACE_S", 0.5)
    monkeypatch.setattr(launching, "_TERMINATING_S", 0.3)

    def run(script: str, processes: int = 2, **options: Any) -> tuple[int, str, str]:
        code = launch(written(tmp_path, script), processes=processes, **options)
        return code, *capfd.readouterr()

    return run


def written(folder: Path, script: str) -> list[str]:
    path = folder / "script.py"
    head = "import json, os, signal, sys, time\nfrom pathlib import Path\nrank = int(os.environ['RANK'])\n"
    path.write_text(head + REPORTS + textwrap.dedent(script))
    return [sys.executable, str(path)]


def test_each_process_is_told_which_it_is(job: Any) -> None:
    code, out, err = job(
        f"print(json.dumps({{name: os.environ[name] for name in {SHARED}}}), flush=True)", processes=3
    )
    assert code == 0
    lines = {line.partition("{")[0]: line.partition("{")[1:] for line in out.splitlines()}
    assert sorted(lines) == ["", "[rank 1] ", "[rank 2] "]
    assert json.loads("".join(lines["[rank 2] "]))["LOCAL_RANK"] == "2"
    first = json.loads(next(line for line in out.splitlines() if line.startswith("{")))
    assert first == {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "3",
        "LOCAL_WORLD_SIZE": "3",
        "MASTER_ADDR": "127.0.0.1",
        "OMP_NUM_THREADS": "1",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    assert (
        err
        == "luxmeter: Each of the 3 processes computes in one thread; OMP_NUM_THREADS sets another number.\n"
    )


def test_the_output_of_the_others_is_marked(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    code, out, err = job(
        r"""
        print("one\ntwo")
        sys.stderr.write("1%\r50%\r100%\nno end")
        assert sys.stdin.read() == ""
        breakpoint()
        """
    )
    assert code == 0
    assert sorted(out.splitlines()) == ["[rank 1] one", "[rank 1] two", "one", "two"]
    assert (
        "[rank 1] 100%\n" in err and "\n[rank 1] no end" in err.replace("no end\n", "no end")
    ) or "no end" in err
    assert "breakpoint() is passed over in rank 1: it has no terminal. Start with --debug-rank 1" in err
    assert "OMP_NUM_THREADS" not in err


def test_the_first_failure_stands_on_top_and_once(job: Any) -> None:
    code, _, err = job(
        """
        if rank == 1:
            reports("ValueError: bad batch")
            sys.exit(1)
        if rank == 2:
            time.sleep(0.2)
            reports("RuntimeError: Connection closed by peer", echo=True)
            sys.exit(1)
        time.sleep(60)
        """,
        processes=3,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert code == 1
    assert err == (
        "luxmeter: rank 1 of 3 failed first:\nTraceback\nValueError: bad batch\n"
        "  rank 0 was ended\n  rank 2 ended with it\n"
    )


def test_a_rank_that_is_killed_is_named_with_its_signal(job: Any) -> None:
    code, _, err = job(
        """
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)
        """
    )
    assert code == 128 + signal.SIGKILL
    assert "luxmeter: rank 1 of 2 was ended by SIGKILL." in err and err.endswith("  rank 0 was ended\n")


def test_an_exit_code_is_handed_on(job: Any) -> None:
    code, _, err = job("sys.exit(3 if rank else 0)")
    assert code == 3 and "luxmeter: rank 1 of 2 ended with exit code 3. What it printed is above.\n" in err
    assert err.endswith("  rank 0 had come to its end\n")


@pytest.mark.parametrize(("processes", "rank", "slug"), [(0, None, "processes"), (2, 2, "debug-rank")])
def test_what_cannot_be_launched(processes: int, rank: int | None, slug: str) -> None:
    with pytest.raises(LuxmeterError) as caught:
        launch(["true"], processes=processes, debug_rank=rank)
    assert caught.value.slug == slug
    with pytest.raises(LuxmeterError) as caught:
        launch(["./there-is-no-such-program"], processes=2)
    assert caught.value.slug == "launch-failed"


ASKED = """
asked = []
signal.signal(signal.SIGINT, lambda *_: asked.append(1))
Path(f"ready-{rank}").write_text("x")
def wait_for(what):
    while not what():
        time.sleep(0.01)
wait_for(lambda: len(list(Path().glob("ready-*"))) == 2)
if rank == 0:
    os.kill(os.getppid(), signal.SIGINT)
wait_for(lambda: asked)
Path(f"asked-{rank}").write_text("x")
wait_for(lambda: len(list(Path().glob("asked-*"))) == 2)
"""


def test_ctrl_c_is_handed_on(job: Any) -> None:
    code, out, err = job(f"{ASKED}\nprint(len(asked))\nsys.exit(130)")
    assert code == 130 and sorted(out.split("\n")) == ["", "1", "[rank 1] 1"]
    assert "rank" not in err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_second_ctrl_c_kills(job: Any) -> None:
    code, out, err = job(
        f"{ASKED}\nif rank == 0: os.kill(os.getppid(), signal.SIGINT)\nwait_for(lambda: len(asked) > 1)\nprint('twice')"
    )
    assert (code, out) == (130, "") and "rank" not in err


def test_sigterm_is_handed_on(job: Any) -> None:
    code, _, err = job(
        "if rank == 0: os.kill(os.getppid(), signal.SIGTERM)\ntime.sleep(60)",
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert code == 128 + signal.SIGTERM and err == ""


def test_no_rank_outlives_a_launcher_that_is_killed(tmp_path: Path) -> None:
    command = written(tmp_path, "Path(f'.{rank}').write_text(str(os.getpid()))\nos.rename(f'.{rank}', f'pid-{rank}')\ntime.sleep(60)")  # fmt: skip
    launcher = multiprocessing.get_context("fork").Process(target=launch, args=(command,), kwargs={"processes": 2})  # fmt: skip
    launcher.start()
    try:
        end = time.monotonic() + LIMIT_S
        while len(found := list(tmp_path.glob("pid-*"))) < 2:
            assert time.monotonic() < end and launcher.is_alive()
            time.sleep(0.01)
        ranks = [psutil.Process(int(path.read_text())) for path in found]
    finally:
        launcher.kill()
        launcher.join()
        launcher.close()
    assert not psutil.wait_procs(ranks, timeout=LIMIT_S)[1]
    scratch.remove_left()


def ending(rank: int, code: int = 1, at: int = 0, **more: Any) -> Ending:
    return Ending(rank, code, at, **more)


def test_which_failure_was_the_first() -> None:
    own, late = ending(1, at=5, text="own"), ending(2, at=9, text="late", line="ValueError: late")
    echo, dead = ending(0, at=1, text="closed", is_echo=True), ending(3, -9, at=2, was_ended=True)
    assert first_of([echo, own, late, dead]) is own
    assert told([echo, own, late, dead]) == (
        "luxmeter: rank 1 of 4 failed first:\nown\n  rank 0 ended with it\n  rank 2 failed, too: ValueError: late\n"
        "  rank 3 was ended\n"
    )
    assert exit_code([echo, ending(1, -15, text="own", was_ended=True)]) == 1  # slow to end, not ended by it
    gone = ending(1, 0, at=3)
    assert first_of([echo, gone]) is gone and exit_code([echo, gone]) == 1
    assert told([echo, gone]).startswith("luxmeter: rank 1 of 2 had come to its end. The others were still")
    assert first_of([ending(0, 0), ending(1, 0)]) is None and told([gone]) == ""
    same = [ending(rank, 2, text="luxmeter: No such key.\n", is_ours=True) for rank in range(3)]
    assert told(same) == "luxmeter: No such key.\n" and exit_code(same) == 2


@pytest.mark.parametrize(
    "text", ["", "{", '{"message": 1}', '{"message": {"message": "x", "extraInfo": {}}}']
)
def test_a_report_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.json").write_text(text)
    assert read_ending(1, 7, 3, tmp_path / "r.json") == Ending(1, 7, 3)


def test_all_are_started_again_when_one_fails(job: Any) -> None:
    script = """
        attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
        print(attempt, flush=True)
        if rank == 1 and attempt == "0":
            os.kill(os.getpid(), signal.SIGKILL)
    """
    code, out, err = job(script, restarts=2)
    assert code == 0
    assert sorted(out.split()) == sorted(["0", "1", "[rank", "1]", "0", "[rank", "1]", "1"])
    assert (
        "rank 1 of 2 was ended by SIGKILL" in err
        and err.count("All ranks are started again (1 of 2 restarts).") == 1
    )


def test_it_is_given_up_after_so_many_restarts(job: Any) -> None:
    code, _, err = job("sys.exit(3)", restarts=1)
    assert code == 3 and err.count("All ranks are started again") == 1
    assert "ended with exit code 3" in err.rpartition("started again")[2]


def test_what_luxmeter_refuses_is_not_tried_again(job: Any) -> None:
    script = """
        extra = {"py_callstack": "luxmeter: no.", "timestamp": "1", "is_ours": True}
        Path(os.environ["TORCHELASTIC_ERROR_FILE"]).write_text(json.dumps({"message": {"message": "no", "extraInfo": extra}}))
        sys.exit(2)
    """
    code, _, err = job(script, restarts=3)
    assert code == 2 and "started again" not in err and err.endswith("luxmeter: no.")


def test_restarts_below_zero(job: Any) -> None:
    with pytest.raises(LuxmeterError, match="-1 restarts cannot be"):
        job("", restarts=-1)
