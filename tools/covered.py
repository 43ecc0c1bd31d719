"""Which lines and branches the tests reach, in their subprocesses, too: a figure for each room, then each branch that none takes.

    python tools/covered.py                             # store, calls, checkpoint and reproduce
    python tools/covered.py store                       # one of them
    python tools/covered.py --room calls tests/calls/test_steps.py   # one, by other tests than its own
    .venv-mindspore/bin/python tools/covered.py mindspore   # the target that needs an environment of its own (make mindspore)
    python tools/covered.py core                        # the C core, by gcov: lines and branches that no test of the core takes

Ends with 1 if a test failed. Soaks and the tests that need another environment (peers, launch) are left out, and no other. A file counts
in the innermost room that holds it: the MindSpore target is none of `calls`, whose tests cannot reach it.
Both cores are measured in one run: tests of the recorder run on each of them, which
tests/house/test_cores.py holds. The C file itself is none of coverage.py's: `core` builds it with --coverage into build/coverage and
runs the tests of the core on that build (tools/sanitize.py puts it in the place of the installed one). What a forked child takes that
ends without Python's own end is not counted there.

A line or branch that only another machine reaches says so in the code: `# pragma: no cover - why`, `# pragma: no branch - why`;
without a reason the mark does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "build" / "coverage"
CORE = ROOT / "src" / "luxmeter" / "calls" / "core" / "_core.c"
NOT_HERE = "not soak and not peers and not launch"


@dataclass(frozen=True)
class Room:
    """A part of the package, and the tests that are about it, wherever they lie."""

    folder: str
    tests: tuple[str, ...]


ROOMS = {
    "store": Room("store", (
        "tests/store", "tests/train/queue/test_job_table.py", "tests/train/test_metrics_of_ranks.py", "tests/view/test_top.py",
        "tests/view/test_runs_commands.py", "tests/view/test_damaged_runs.py", "tests/experiment/test_experiment.py",
        "tests/experiment/test_experiment_ends.py", "tests/experiment/test_experiment_files.py", "tests/experiment/test_experiment_output.py",
        "tests/experiment/test_log.py", "tests/experiment/test_lineage_of_threads.py", "tests/experiment/test_tensorboard.py", "tests/train/test_control.py",
    )),
    "calls": Room("calls", (
        "tests/calls", "tests/classic", "tests/view/test_notebook.py", "tests/view/test_saved_trace.py", "tests/view/test_trace_command.py",
        "tests/view/test_diff_command.py", "tests/model/test_budget.py",
    )),
    "mindspore": Room("calls/targets/mindspore", ("tests/mindspore",)),
    "checkpoint": Room("experiment/checkpoint", (
        "tests/experiment/test_saver.py", "tests/experiment/test_saver_background.py", "tests/experiment/test_saver_format.py",
        "tests/experiment/test_document_saver.py", "tests/experiment/test_folder_state.py", "tests/experiment/test_bombs.py",
        "tests/experiment/test_resume.py", "tests/experiment/test_forged_states.py", "tests/experiment/test_forged_shards.py", "tests/experiment/test_seed.py", "tests/experiment/test_checkpoint_edges.py",
        "tests/train/test_sharded_training.py", "tests/train/test_resume_trainer.py",
    )),
    "reproduce": Room("experiment/reproduce", (
        "tests/experiment/test_reproduction.py", "tests/experiment/test_reproduce_edges.py", "tests/experiment/test_rollback.py", "tests/experiment/test_submodule.py",
        "tests/experiment/test_hostile_entries.py", "tests/experiment/test_hostile_repository.py",
        "tests/experiment/test_runs_from_elsewhere.py", "tests/experiment/test_run_target.py", "tests/flows/test_reproduce_flow.py",
        "tests/train/test_eval_command.py",
    )),
}  # fmt: skip

SETTINGS = """
[run]
branch = true
parallel = true
source = {source}
data_file = {data}
patch =
    subprocess
    _exit
    execv
    fork
[report]
exclude_lines =
    pragma: no cover - \\w
    if TYPE_CHECKING:
    ^\\s*\\.\\.\\.$
    : \\.\\.\\.$
partial_branches =
    pragma: no branch - \\w
[json]
output = {report}
"""


def main() -> int:
    """Entry."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", help="rooms, or core; or, with --room, tests")
    parser.add_argument("--room", choices=[*ROOMS, "core"], help="the room that is measured")
    parser.add_argument("-n", default="2", help="so many processes for the tests")
    given = parser.parse_args()
    if given.room == "core" or given.what == ["core"]:
        return measure_core(given.what if given.room else [])
    if unknown := [name for name in given.what if not given.room and name not in ROOMS]:
        parser.error(
            f"{unknown[0]!r} is none of {', '.join(ROOMS)}, and core is measured alone; to choose tests, say the room: --room store"
        )
    names = [given.room] if given.room else given.what or [name for name in ROOMS if name != "mindspore"]
    tests = (
        given.what if given.room and given.what else [test for name in names for test in ROOMS[name].tests]
    )
    code = measure(list(dict.fromkeys(tests)), given.n)
    tell(names, json.loads((PLACE / "report.json").read_text(encoding="utf-8"))["files"])
    return code


def measure(tests: list[str], processes: str) -> int:
    """Run the tests and put together what they reached; the exit code of pytest."""
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    settings = PLACE / "settings.ini"
    places = {
        "source": ROOT / "src" / "luxmeter",
        "data": PLACE / ".coverage",
        "report": PLACE / "report.json",
    }
    settings.write_text(SETTINGS.format(**places), encoding="utf-8")
    coverage = [sys.executable, "-m", "coverage"]
    ours = f"--rcfile={settings}"
    codes = []
    for chosen, many in ((f"{NOT_HERE} and not alone", ["-n", processes]), (f"{NOT_HERE} and alone", [])):
        command = [*coverage, "run", ours, "-m", "pytest", "-q", *many, "-m", chosen, *tests]
        codes.append(subprocess.run(command, check=False, cwd=ROOT, env={**os.environ}).returncode)
    subprocess.run([*coverage, "combine", "-q", ours], check=True, cwd=ROOT)
    subprocess.run([*coverage, "json", "-q", ours], check=True, cwd=ROOT)
    return int(any(code not in (0, 5) for code in codes))  # 5: none of them runs alone


def measure_core(tests: list[str]) -> int:
    """What the tests of the core take of its C; the exit code of pytest."""
    place = PLACE / "core"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    target = place / f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"
    include = sysconfig.get_paths()["include"]
    build = [
        "gcc",
        "-shared",
        "-fPIC",
        "-O0",
        "-g",
        "--coverage",
        f"-I{include}",
        str(CORE),
        "-o",
        target.name,
    ]
    subprocess.run(build, check=True, cwd=place)
    tools = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    chosen = tests or sorted(map(str, (ROOT / "tests" / "calls").glob("test_core_*.py")))
    code = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "sanitize", "-k", "not python", "-W", "ignore", *chosen],
        check=False, cwd=ROOT, env={**os.environ, "PYTHONPATH": tools, "LUXMETER_SANITIZED_CORE": str(target)},
    ).returncode  # fmt: skip
    [counts] = place.glob("*.gcda")
    found = subprocess.run(
        ["gcov", "-b", "-j", "-t", counts.name], check=True, cwd=place, capture_output=True, text=True
    )
    [lines] = [file["lines"] for file in json.loads(found.stdout)["files"] if file["file"] == str(CORE)]
    _tell_core(lines)
    return code


def _tell_core(lines: list[dict[str, Any]]) -> None:
    """The figure of the C file; below, each line that is not reached, and each branch that is not taken of one that is."""
    text = CORE.read_text(encoding="utf-8").splitlines()
    reached = [line for line in lines if line["count"]]
    branches = [branch for line in lines for branch in line["branches"]]
    taken = sum(branch["count"] > 0 for branch in branches)
    share = (len(reached) + taken) / max(1, len(lines) + len(branches))
    print(f"\n{'room':12} {'lines':>14} {'branches':>14} {'reached':>8}")
    print(
        f"{'core (C)':12} {f'{len(reached):,}/{len(lines):,}':>14} {f'{taken:,}/{len(branches):,}':>14} {share:>8.2%}\n"
    )
    for line in lines:
        missed = sum(not branch["count"] for branch in line["branches"])
        if not line["count"] or missed:
            what = f"{missed} of {len(line['branches'])} ways" if line["count"] else "never"
            print(f"  {line['line_number']:>6}  {what:14}  {text[line['line_number'] - 1].strip()[:100]}")


def tell(names: list[str], files: dict[str, Any]) -> None:
    """The figure of each room; below, what no test takes."""
    of_room: dict[str, dict[str, Any]] = {
        name: {path: said for path, said in files.items() if _room_of(path) == name} for name in names
    }
    print(f"\n{'room':12} {'lines':>14} {'branches':>14} {'reached':>8}")
    for name, found in of_room.items():
        print(f"{name:12} {_figures([said['summary'] for said in found.values()])}")
    for path, said in sorted(
        {path: said for found in of_room.values() for path, said in found.items()}.items()
    ):
        _tell_file(path, said)


def _room_of(path: str) -> str:
    """The innermost room that a file lies in; empty for none."""
    holding = [name for name, room in ROOMS.items() if f"/luxmeter/{room.folder}/" in f"/{path}"]
    return max(holding, key=lambda name: len(ROOMS[name].folder), default="")


def _figures(summaries: list[dict[str, Any]]) -> str:
    total = {key: sum(said[key] for said in summaries) for key in
             ("covered_lines", "num_statements", "covered_branches", "num_branches")}  # fmt: skip
    lines, branches = (
        (total["covered_lines"], total["num_statements"]),
        (total["covered_branches"], total["num_branches"]),
    )
    share = (lines[0] + branches[0]) / max(1, lines[1] + branches[1])
    return f"{f'{lines[0]:,}/{lines[1]:,}':>14} {f'{branches[0]:,}/{branches[1]:,}':>14} {share:>8.2%}"


def _tell_file(path: str, said: dict[str, Any]) -> None:
    lines, missing = (
        said["missing_lines"],
        [(a, b) for a, b in said["missing_branches"] if a not in said["missing_lines"]],
    )
    if not lines and not missing:
        return
    code = (ROOT / path).read_text(encoding="utf-8").splitlines()
    print(f"\n{path}")
    for one in lines:
        print(f"  {one:>12}  {code[one - 1].strip()[:100]}")
    for start, end in missing:
        print(
            f"  {f'{start} -> {end}' if end > 0 else f'{start} -> out':>12}  {code[start - 1].strip()[:100]}"
        )


if __name__ == "__main__":
    sys.exit(main())
