"""A command loads what its answer needs: each of the heavy packages costs more than all the rest of a short command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import luxmeter as lux

HEAVY = ("torch", "mindspore", "pandas", "scipy", "sqlalchemy", "duckdb", "pyarrow", "numpy", "matplotlib", "plotly", "IPython")  # fmt: skip
# What a command may load of these. `show` draws the curves of metrics, which lie in Arrow's files; nothing else reads any.
MAY_LOAD = {
    "--help": (),
    "runs": (),
    "runs param.lr>0 --json": (),
    "show latest": ("pyarrow", "numpy"),
    "diff latest latest~1": (),
    "code latest": (),
    "tag latest": (),
    "config -l": (),
    "queue list": (),
    "doctor --no-try": (),
}  # fmt: skip
_PROGRAM = """
import sys
sys.argv = ["luxmeter", *sys.argv[1:]]
from luxmeter.view.cli import main
try:
    main()
finally:
    sys.stderr.write("loaded: " + " ".join(name for name in {heavy!r} if name in sys.modules))
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lab with two runs that the index knows."""
    folder = tmp_path_factory.mktemp("start-up") / "lab"
    for lr in (0.1, 0.2):
        with lux.Experiment("small", params={"lr": lr}, lab=folder, quiet=True) as experiment:
            experiment.log({"loss": lr}, step=1)
    assert len(lux.runs(lab=folder)) == 2
    return folder


def loaded(command: str, lab: Path, planted: str = "") -> list[str]:
    """The heavy packages that a command loads, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", planted + _PROGRAM.format(heavy=HEAVY), *command.split()],
        env={**os.environ, "LUXMETER_HOME": str(lab)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    problems = (
        command.startswith("doctor") and done.returncode == 1
    )  # no compiler, say: it is told, and told by the code
    assert done.returncode == 0 or problems, done.stderr
    return done.stderr.rpartition("loaded:")[2].split()


@pytest.mark.parametrize("command", MAY_LOAD)
def test_a_command_loads_what_its_answer_needs(command: str, lab: Path) -> None:
    assert set(loaded(command, lab)) <= set(MAY_LOAD[command])


def test_a_planted_import_is_seen(lab: Path) -> None:
    assert loaded("runs", lab, planted="import luxmeter.settings, numpy\n") == ["numpy"]


def test_a_help_loads_the_module_of_its_command_alone(lab: Path) -> None:
    program = "import sys; sys.argv = ['luxmeter', 'runs', '--help']\nfrom luxmeter.view.cli import main\ntry: main()\nfinally: print([m for m in sys.modules if m.startswith('luxmeter.view.cli.')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "['luxmeter.view.cli.runs']"
