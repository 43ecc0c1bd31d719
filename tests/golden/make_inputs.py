"""Write tests/golden/inputs anew with the code of today: `python tests/golden/make_inputs.py`.

What lies there is a sample of the formats on disk as well, so make it anew only when a format is meant to change.
All is made by the real commands in /tmp/golden, under a neutral home; then what tells of the machine is replaced
(`_scrub`): host, boot and process in run.json, the host in the journal's name, processor, load and packages in environment.json and the
benchmarks, the interpreter in command.json and wherever else its path stands. The index and the lab's .gitignore are left out.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = Path("/tmp/golden")  # runs keep paths: this one is nobody's
PROJECT, LAB, INPUTS = ROOT / "project", ROOT / "project" / ".luxmeter", HERE / "inputs"

_MACHINE = {
    "system": "Linux 6.0", "machine": "x86_64", "processor": "abacus", "cores": 2, "threads": 2,
    "memory_bytes": 8 << 30, "python": "3.11.7", "python_implementation": "CPython", "gpus": [],
}  # fmt: skip
_LOAD = {"load_1min": 0.5, "memory_used": 0.25, "frequency_mhz": None, "governor": None}
_PROCESS = {
    "host": "golden",
    "machine": "00000000-0000-4000-8000-000000000000/pid:[1]",
    "pid": 4242,
    "started": 1.0,
}
_KEPT_PACKAGES = ("luxmeter", "torch", "numpy")
_FAULT = """import torch

right = torch.relu
torch.relu = lambda x: right(x) * 1.001 if x.dtype is torch.float32 else right(x)
"""


def _environment() -> dict[str, str]:
    """A neutral one, that git and luxmeter obey."""
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(ROOT / "home"), "TZ": "UTC", "COLUMNS": "100",
        "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "USER": "golden",
        **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in
           (("NAME", "Golden"), ("EMAIL", "golden@example.org"), ("DATE", "2024-05-01T12:00:00+0000"))},
    }  # fmt: skip


def _call(*words: str, code: int = 0) -> str:
    done = subprocess.run(words, cwd=PROJECT, env=_environment(), capture_output=True, text=True, check=False)
    if done.returncode != code:
        raise SystemExit(f"{words} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def _luxmeter(*words: str, code: int = 0) -> str:
    return _call(sys.executable, "-m", "luxmeter", *words, code=code)


def _script(*words: str, code: int = 0, tag: str = "") -> None:
    _call(sys.executable, *words, code=code)
    if tag:
        _luxmeter("tag", "latest", tag)


def _make_project() -> None:
    shutil.rmtree(ROOT, ignore_errors=True)
    (ROOT / "home").mkdir(parents=True)
    shutil.copytree(HERE / "project", PROJECT, ignore=shutil.ignore_patterns("__pycache__"))
    _call("git", "init", "-q", "-b", "main")
    _call("git", "add", ".")
    _call("git", "commit", "-q", "-m", "golden")
    _luxmeter("init")


def _make_runs() -> None:
    for seed in range(3):
        _script("train.py", "--seed", str(seed), tag=f"base{seed}")
    for seed in range(2):
        _script("train.py", "--lr", "0.3", "--seed", str(seed), tag=f"fast{seed}")
    _script("train.py", "--lr", "3.0", code=1, tag="broke")
    _luxmeter("note", "broke", "the step is too large")
    _script("net.py")
    _luxmeter("tag", "net", "trained")
    _luxmeter("run", "--tag", "plain", "--system-s", "0", "plain.py", "--lr", "0.2")
    _luxmeter("run", "--tag", "old", "--system-s", "0", "--quiet", "plain.py", "--lr", "0.4")
    _luxmeter("archive", "old")
    _script("killed.py", code=-9, tag="killed")
    _script("train.py", "--lr", "0.2", tag="torn")
    torn = Path(json.loads(_luxmeter("show", "torn", "--json"))["folder"])
    (torn / "status.json").write_text('{"state": "fini')
    _script("train.py", "--lr", "0.25", tag="binned")
    _luxmeter("rm", "binned")
    (PROJECT / "train.py").write_text((PROJECT / "train.py").read_text().replace("x = 10.0", "x = 11.0"))
    _script("train.py", tag="changed")


def _make_files() -> None:
    """Traces, operators, benchmarks, an archive, event files."""
    _luxmeter("trace", "-o", "trace-a", "infer.py", "3")
    _luxmeter("trace", "--inside", "-o", "trace-b", "infer.py", "5")
    _luxmeter("trace", "--totals", "-o", "trace-totals", "infer.py", "3")
    _luxmeter("ops", "trace-a", "-o", "ops.jsonl")
    for name in ("bench-a.json", "bench-b.json"):
        _luxmeter("bench", "ops.jsonl", "--top", "3", "--scale", "batch=1,2", "--budget-s", "6", "-o", name)
    _make_checks()
    _luxmeter("export", "base0", "-o", "base0.tar.gz")


def _make_checks() -> None:
    """The operators checked as they are, and with a fault in one of them."""
    (PROJECT / "fault.py").write_text(_FAULT)
    _luxmeter("check", "ops.jsonl", "--workers", "1", "-o", "check-a.json")
    how = ("--workers", "1", "--rounds", "2", "--shrink", "--setup", "fault.py", "--no-including-success")
    _luxmeter("check", "ops.jsonl", *how, "-o", "check-b.json", code=1)


def _scrub(folder: Path) -> None:
    """Take out what tells of the machine."""
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        if path.suffix in (".json", ".jsonl", ".log", ".txt"):
            text = path.read_text()
            text = text.replace(sys.executable, "/usr/bin/python3").replace(sys.prefix, "/usr")
            path.write_text(text)
        if path.name == "run.json":
            _change(path, {"process": _PROCESS})
        elif path.name == "environment.json":
            said = json.loads(path.read_text())
            packages = {name: said["packages"][name] for name in _KEPT_PACKAGES}
            variables = {"OMP_NUM_THREADS": said["variables"]["OMP_NUM_THREADS"]}
            _change(path, {"machine": _MACHINE, "load": _LOAD, "packages": packages, "variables": variables})
        elif path.name.startswith(("bench-", "check-")):
            said = json.loads(path.read_text())["environment"]
            packages = {name: said["packages"][name] for name in _KEPT_PACKAGES}
            _change(path, {"environment": {**said, "machine": _MACHINE, "load": _LOAD, "packages": packages}})
        elif path.parent.name == "journal":
            path.rename(path.with_name("golden.log"))


def _slow_down(path: Path, op: str) -> None:
    """As on a quiet machine, one operator taking four times as long: so that there is a difference to be found."""
    said = json.loads(path.read_text())
    said["noise_floor"] = 0.02
    for row in said["rows"]:
        if row["op"] == op:
            row.update({key: 4 * row[key] for key in row if key.endswith("_us") and row[key] is not None})
            row["times_s"] = [4 * value for value in row["times_s"]]
    _change(path, said)


def _change(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}, indent=2) + "\n")


def main() -> None:
    """Make all of it anew."""
    _make_project()
    _make_runs()
    _scrub(LAB)
    _make_files()
    shutil.rmtree(INPUTS, ignore_errors=True)
    INPUTS.mkdir()
    left_out = shutil.ignore_patterns("index", ".gitignore", "*.lock", "__pycache__")
    shutil.copytree(LAB, INPUTS / "lab", ignore=left_out)
    for path in PROJECT.iterdir():
        if path.name.startswith(("trace-", "ops", "bench-", "check-", "base0")):
            (shutil.copytree if path.is_dir() else shutil.copy2)(path, INPUTS / path.name)
    _scrub(INPUTS)
    _slow_down(INPUTS / "bench-a.json", "")
    _slow_down(INPUTS / "bench-b.json", "torch.nn.Linear")
    shutil.rmtree(ROOT)


if __name__ == "__main__":
    os.umask(0o022)
    main()
