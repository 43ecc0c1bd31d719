"""Temporary folders: gone with their process, however it ends; never taken from one that lives."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from luxmeter import scratch
from luxmeter.process import Process

ONE_CORE = "where a trace lies, not what it records"


@pytest.fixture
def temp(temporary_files: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = temporary_files / "t"  # short: the fork server's socket lies below it
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    yield folder
    shutil.rmtree(folder)


def script(code: str, tmp_path: Path, *, expect: int = 0) -> str:
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(code), encoding="utf-8")
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout


def left(temp: Path) -> list[str]:
    return sorted(path.name for path in temp.glob("luxmeter*"))


def made_by(temp: Path, maker: Process, name: str = "luxmeter-trace-left") -> Path:
    """A folder as another process left it: nobody holds its lock."""
    folder = temp / name
    folder.mkdir()
    (folder / ".luxmeter-held").write_text(json.dumps(vars(maker)))
    (folder / "events").mkdir()
    (folder / "events" / "0000").touch()
    return folder


def gone() -> Process:
    here = Process.here()
    return Process(here.host, here.machine, here.pid, here.started - 1000)


def test_removed_when_asked(temp: Path) -> None:
    with scratch.folder("index") as folder:
        (folder / "deep").mkdir()
        (folder / "deep" / "file").touch()
        assert folder.parent == temp and folder.name.startswith("luxmeter-index-")
    assert not left(temp)


TRACED = """
import multiprocessing, os, signal, sys
import luxmeter as lux

def traced(*, stop=True):
    trace = lux.start(framework=None)
    trace.wrap(len, name="work")([])
    if stop:
        trace.stop()

if __name__ == "__main__":
"""

ENDINGS = {
    "by its last line": ("traced()", 0),
    "while the trace runs": ("traced(stop=False)", 0),
    "by an exception": ("traced(); raise ValueError", 1),
    "by sys.exit": ("traced(stop=False); sys.exit(3)", 3),
    "by Ctrl-C": ("traced(stop=False); os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT),
    "in a forked child": (
        "traced(); child = os.fork(); traced(); child and os.waitpid(child, 0)",
        0,
    ),
    "in a forked child of a running trace": (
        "traced(stop=False); child = os.fork(); child and os.waitpid(child, 0)",
        0,
    ),
    **{
        f"in a worker by {method}, trace {'stopped' if stop else 'running'}": (
            f"worker = multiprocessing.get_context({method!r}).Process(target=traced, kwargs={{'stop': {stop}}}); "
            "worker.start(); worker.join(); sys.exit(worker.exitcode)",
            0,
        )
        for method in ("fork", "spawn", "forkserver")
        for stop in (True, False)
    },
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_trace_leaves_no_temporary_folder_when_its_process_ends(
    ending: str, temp: Path, tmp_path: Path
) -> None:
    line, code = ENDINGS[ending]
    script(TRACED + f"    {line}\n", tmp_path, expect=code)
    assert not left(temp)


@pytest.mark.parametrize("keep", [False, True])
def test_what_a_killed_process_left_goes_with_the_next_trace(temp: Path, tmp_path: Path, keep: bool) -> None:
    script(
        TRACED + "    traced(stop=False); os.kill(os.getpid(), signal.SIGKILL)\n",
        tmp_path,
        expect=-signal.SIGKILL,
    )
    assert len(left(temp)) == 1
    import luxmeter as lux

    with lux.trace(framework=None, keep=tmp_path / "kept" if keep else None):
        assert len(left(temp)) == (0 if keep else 1)
    scratch.remove_made()
    assert not left(temp)


def test_what_a_living_process_uses_stays(temp: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from luxmeter import scratch; print(scratch.make('trace'), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as living:
        assert living.stdout is not None
        folder = Path(living.stdout.readline().strip())
        scratch.remove_left()
        assert folder.is_dir()
        # From another container the process is not to be seen; its lock is.
        other = Process.here()
        held = Process(other.host, f"{other.boot}/pid:[1]", 1, 0.0)
        (folder / ".luxmeter-held").write_text(json.dumps(vars(held)))
        scratch.remove_left()
        assert folder.is_dir()
        living.kill()
        living.wait()
        scratch.remove_left()
        assert not folder.exists()


def test_a_process_that_closed_all_its_files_keeps_its_folder(temp: Path) -> None:
    folder = made_by(temp, Process.here())
    scratch.remove_left()
    assert folder.is_dir()


def test_a_spawned_child_keeps_the_folder_of_its_killed_parent(temp: Path) -> None:
    folder = made_by(temp, gone())
    code = "import sys; from pathlib import Path; from luxmeter import scratch; scratch.hold(Path(sys.argv[1])); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        scratch.remove_left()
        assert folder.is_dir()
    scratch.remove_left()
    assert not folder.exists()


def test_another_machine_s_folder_is_not_judged(temp: Path) -> None:
    here = Process.here()
    folder = made_by(temp, Process("other", "another-boot/pid:[4026531836]", here.pid, here.started - 1000))
    scratch.remove_left()
    assert folder.is_dir()


def test_what_is_not_ours_stays(temp: Path, tmp_path: Path) -> None:
    """A folder of the user's that is called like ours, a link to one of theirs, a file, a torn note."""
    theirs = temp / "luxmeter-data"
    theirs.mkdir()
    (theirs / "weights").touch()
    target = made_by(tmp_path, gone(), "target")
    (temp / "luxmeter-link").symlink_to(target)
    (temp / "luxmeter-file").touch()
    torn = made_by(temp, gone(), "luxmeter-torn")
    (torn / ".luxmeter-held").write_text("{")
    before = left(temp)
    scratch.remove_left()
    assert left(temp) == before and (target / "events").is_dir()


def test_one_made_while_another_cleans_up(temp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cleaner comes between each two steps of making: what is given out is whole and held."""
    for step in ("open", "write"):
        original, came = getattr(os, step), []

        def between(*args: object, original=original, came=came, **more: object) -> object:
            if not came:
                came.append(True)
                scratch.remove_left()
            return original(*args, **more)

        monkeypatch.setattr(os, step, between)
        folder = scratch.make("trace")
        monkeypatch.setattr(os, step, original)
        assert came
        scratch.remove_left()
        assert (folder / ".luxmeter-held").is_file()
        scratch.remove(folder)
    assert not left(temp)
