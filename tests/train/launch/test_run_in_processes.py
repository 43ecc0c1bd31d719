"""`luxmeter run --processes N script.py`: a script that knows nothing of us, in several processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from forked_ranks import as_torchrun, free_port

import luxmeter as lux
from luxmeter.ranks import Rank
from luxmeter.view.startup.life import folder_of_ranks

SCRIPT = """\
import os, sys
rank = int(os.environ["RANK"])
print("rank", rank, "of", os.environ["WORLD_SIZE"], sys.argv[1:])
if rank == 1:
    raise ValueError("it fails here")
"""

WAITING = """\
import time, torch, torch.distributed as dist
import luxmeter as lux
from luxmeter.ranks import Rank
from luxmeter.view.startup.life import folder_of_ranks
dist.init_process_group("gloo")
rank = dist.get_rank()
with lux.Experiment("waiting") as exp:
    for step in range(6):
        time.sleep(0.05 * rank)
        dist.all_reduce(torch.ones(3))
        exp.log({"step": float(rank)}, step=step)
dist.destroy_process_group()
"""


def luxmeter(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "luxmeter", *words],
        capture_output=True, text=True, check=False, timeout=200, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def test_one_trace_of_all_ranks_in_the_run_of_rank_0(tmp_path: Path) -> None:
    Path("script.py").write_text(WAITING)
    done = luxmeter("run", "--processes", "2", "--trace", "script.py")
    assert done.returncode == 0, done.stderr
    (run,) = lux.runs()
    said = "rank 1 made rank 0 wait "
    assert done.stderr.count(said) == 1 and f"the trace is in run {run.id}" in done.stderr, done.stderr
    assert run.name == "waiting" and run.ranks == [1] and run.metric("step", rank=1)[5].value == 1.0
    (result,) = run.results("trace")
    assert result.title.endswith(" of 2 ranks")
    assert run.trace is not None and run.trace.ranks == [0, 1] and not run.trace.notes()
    assert run.trace.table(rank=1)["torch.distributed.all_reduce"].n == 6
    assert not list((Path(os.environ["LUXMETER_HOME"]) / "traces").glob("*"))

    told = json.loads(luxmeter("show", "latest", "--stragglers", "--json").stdout)
    assert told["worst"]["rank"] == 1 and told["worst"]["most_in"] == "torch.distributed.all_reduce"
    assert told["line"].startswith(said)
    refused = luxmeter("show", f"{run.id}/trace", "--stragglers", "--rank", "1")
    assert refused.returncode == 2 and "show-trace-only" in refused.stderr


def test_a_script(tmp_path: Path) -> None:
    Path("script.py").write_text(SCRIPT)
    done = luxmeter("run", "--processes", "2", "script.py", "--lr", "0.1")
    assert done.returncode == 1, done.stderr
    assert (
        "rank 0 of 2 ['--lr', '0.1']\n" in done.stdout
        and "[rank 1] rank 1 of 2 ['--lr', '0.1']\n" in done.stdout
    )
    head, _, told = done.stderr.partition("luxmeter: rank 1 of 2 failed first:\n")
    assert "Traceback" not in head and told.startswith("Traceback (most recent call last):\n"), done.stderr
    assert told.splitlines()[-2:] == ["ValueError: it fails here", "  rank 0 had come to its end"]
    assert "view/program.py" not in told
    (run,) = lux.runs()
    assert run.name == "script" and run.params["lr"] == 0.1 and run.state == "finished"


def test_ranks_of_another_launcher_make_one_trace_in_the_run_of_rank_0(tmp_path: Path) -> None:
    """As under `torchrun -m luxmeter run --trace`: each rank runs the command itself. Rank 0 is the slower one to begin."""
    Path("script.py").write_text("import torch\ntorch.ones(3)\n")
    words = [sys.executable, "-m", "luxmeter", "run", "--trace", "script.py"]
    ranks = [
        subprocess.Popen(words, env={**os.environ, **one, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True)
        for one in as_torchrun(2, free_port(), ranks=[1, 0])
    ]  # fmt: skip
    said = [one.communicate(timeout=200)[1] for one in ranks]
    assert [one.returncode for one in ranks] == [0, 0], said
    (run,) = lux.runs()
    assert run.trace is not None and run.trace.ranks == [0, 1] and not run.trace.notes(), said
    assert run.trace.table()["torch.ones"].n == 2
    assert f"the trace is in run {run.id}" in said[1] and "the trace is in" not in said[0], said
    assert not list((Path(os.environ["LUXMETER_HOME"]) / "traces").glob("*"))


def test_ranks_that_are_given_a_folder_share_it(tmp_path: Path) -> None:
    first, second = (Rank(number, 2, number, "torchrun") for number in (0, 1))
    asked = tmp_path / "calls"
    assert folder_of_ranks(asked, first) == folder_of_ranks(asked, second) == asked
    (asked / "rank0-12").mkdir(parents=True)
    assert folder_of_ranks(asked, second) == asked, "which rank 0 has begun to write into"
    assert folder_of_ranks(asked, first) == tmp_path / "calls-2", "of a job before"
    (tmp_path / "calls-2").mkdir()
    (tmp_path / "calls-2" / "notes.txt").touch()
    assert folder_of_ranks(asked, first) == tmp_path / "calls-3", "where somebody else has something"
