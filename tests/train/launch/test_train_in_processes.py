"""`luxmeter train` in several processes: by --processes, by torchrun, and with a rank that is debugged."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from forked_ranks import as_torchrun, free_port, together
from in_process import Command

from luxmeter.view.cli import main
from shared_training import SHARED_CONFIG

LIMIT_S = 600  # for a machine that is busy


@pytest.fixture(autouse=True)
def config(own_names: None) -> Path:
    Path("shared.py").write_text(SHARED_CONFIG)
    return Path("shared.py")


def command_line(*words: str) -> list[str]:
    return [sys.executable, "-m", "luxmeter", "train", "shared.py", *words]


def test_the_first_failing_rank_is_shown_first_and_once() -> None:
    done = subprocess.run(
        command_line("fails=raises", "--processes", "2"), capture_output=True, text=True, check=False, timeout=LIMIT_S,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    said = done.stderr
    assert done.returncode == 1 and said.count("Traceback") == 1, said
    _, _, told = said.partition("luxmeter: rank 1 of 2 failed first:\n")
    lines = told.splitlines()
    assert lines[0].startswith("Traceback") and lines[-1] == "  rank 0 ended with it", said
    assert "ValueError: no such batch on rank 1, 3 in all" in lines
    assert not [line for line in lines if "/luxmeter/" in line], said


def test_under_torchrun() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--log-dir", "torchrun", "-m", *command_line("fails=raises")[2:]],
        capture_output=True, text=True, check=False, timeout=LIMIT_S,
    )  # fmt: skip
    said = done.stderr
    assert done.returncode == 1
    own, _, summary = said.partition("torch.distributed.elastic.multiprocessing.errors.ChildFailedError")
    assert own.count("ValueError: no such batch on rank 1, 3 in all\n") == 1, said
    assert "luxmeter: rank 0 ends: rank 1 failed (ValueError: no such batch on rank 1, 3 in all); see there." in own or "rank      : 0" not in summary  # fmt: skip
    root = summary.partition("Root Cause")[2]
    assert "rank      : 1" in root and "ValueError: no such batch on rank 1" in root, said


def trained(folder: str, *words: str) -> tuple[Any, str]:
    """`luxmeter train` in this process, which is a rank: its exit code, and what it said."""
    from luxmeter.ranks import rank

    said = Path(folder) / f"said-{rank()}"
    out = os.open(said, os.O_WRONLY | os.O_CREAT)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    sys.argv = ["luxmeter", "train", *words]
    code: Any = 0
    try:
        main()
    except SystemExit as error:
        code = error.code
    sys.stdout.flush()
    sys.stderr.flush()
    return code, said.read_text()


def test_a_rank_is_killed_in_mid_training(tmp_path: Path) -> None:
    first, second = together(trained, as_torchrun(2, free_port()), str(tmp_path), "shared.py", "fails=killed")
    assert second == -signal.SIGKILL
    code, said = first
    assert code == 1 and "Traceback" not in said, said
    assert "luxmeter: rank 0 ends: rank 1 has ended without a word; see there.\n" in said


def test_a_rank_with_another_config_or_other_code(tmp_path: Path, config: Path) -> None:
    other = tmp_path / "other" / "shared.py"
    other.parent.mkdir()
    other.write_text(SHARED_CONFIG.replace("epoch = 1", "epoch = 2"))
    for text, what in (
        ("epoch = 2", "the same config: rank 0 has 'epoch = 1' in line"),
        ("epoch = 1  # same", "the same code: rank 0 has 'shared.py "),
    ):
        other.write_text(SHARED_CONFIG.replace("epoch = 1", text))
        variables = as_torchrun(2, free_port())
        found = together(trained_own_file, variables, [str(config.absolute()), str(other)], str(tmp_path))
        for code, said in found:
            assert code == 2 and "Traceback" not in said, said
            assert what in said and "[ranks-differ]" in said, said
    assert not list(Path("lab").glob("runs/*")), "a run was made"


def trained_own_file(files: list[str], folder: str) -> tuple[Any, str]:
    from luxmeter.ranks import rank

    return trained(folder, files[rank()])


def test_all_ranks_wait_where_one_is_debugged() -> None:
    """On a terminal: the debugger's prompt comes in rank 1 and takes what is typed; then all go on to the end."""
    leader, terminal = pty.openpty()
    child = subprocess.Popen(
        command_line("fails=stops", "--processes", "2", "--debug-rank", "1"),
        stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True, env={**os.environ, "TERM": "dumb"},
        preexec_fn=own_terminal,
    )  # fmt: skip
    os.close(terminal)
    said = b""
    try:
        end = time.monotonic() + LIMIT_S
        answers = [b"p 'rank', rank, total.item()\n", b"c\n"]
        while time.monotonic() < end:
            if select.select([leader], [], [], 1)[0]:
                try:
                    said += os.read(leader, 65536)
                except OSError:  # the terminal is closed
                    break
            if answers and said.count(b"(Pdb) ") == 3 - len(answers):
                os.write(leader, answers.pop(0))
        assert time.monotonic() < end, said.decode()
        assert child.wait(LIMIT_S) == 0, said.decode()
    finally:
        child.kill()
        child.wait()
        os.close(leader)
    assert b"('rank', 1, 3.0)" in said, said.decode()


def own_terminal() -> None:
    """The child's session gets the terminal that it reads from, as a shell has it."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.mark.parametrize(
    ("words", "slug"),
    [
        (("--processes", "0"), "processes"),
        (("--processes", "2", "--debug-rank", "2"), "debug-rank"),
        (("--debug-rank", "1"), "debug-rank"),
        (("--restarts", "1"), "restarts"),
        (("--processes", "2", "--restarts", "-1"), "restarts"),
    ],
)
def test_what_cannot_be_started(command: Command, words: Any, slug: str) -> None:
    assert f"[{slug}]" in command.refused("train", "shared.py", *words)


def test_no_processes_inside_another_launchers(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in as_torchrun(2, 1)[0].items():
        monkeypatch.setenv(name, value)
    assert "rank 0 of 2 already (torchrun)" in command.refused("train", "shared.py", "--processes", "2")


def test_a_dry_run_starts_none(command: Command) -> None:
    said = command("train", "shared.py", "--processes", "2", "--dry-run")
    assert said.code == 0 and "epoch = 1" in said.out


def test_a_report_is_in_the_form_of_torchrun(tmp_path: Path) -> None:
    variables = [{**one, "TORCHELASTIC_ERROR_FILE": str(tmp_path / f"{n}.json")} for n, one in enumerate(as_torchrun(2, free_port()))]  # fmt: skip
    together(trained, variables, str(tmp_path), "shared.py", "fails=raises")
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

    own = ProcessFailure(local_rank=1, pid=1, exitcode=1, error_file=str(tmp_path / "1.json"))
    shown = own.message["extraInfo"]["py_callstack"]
    assert shown.startswith("Traceback") and "ValueError: no such batch on rank 1, 3 in all" in shown
    echo = json.loads((tmp_path / "0.json").read_text())["message"]["extraInfo"]
    assert echo["is_echo"] and int(echo["timestamp"]) > own.timestamp
    assert echo["py_callstack"] == (  # no traceback of what is only an echo
        "luxmeter: rank 0 ends: rank 1 failed (ValueError: no such batch on rank 1, 3 in all); see there.\n"
    )
