"""Every command and a dozen public calls give what they gave when tests/golden/outputs was recorded.

A change that is meant (CHANGELOG lists it) is accepted with `LUXMETER_ACCEPT=1 pytest tests/golden` and read in git diff.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from commands import CASES
from harness import HERE, Bench
from measured import MEASURED
from public_calls import CALLS

_ACCEPT = bool(os.environ.get("LUXMETER_ACCEPT"))  # read now: tests see no variable of ours
_OUTPUTS = HERE / "outputs"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with monkeypatch.context() as patch:
        yield Bench(tmp_path / "golden", patch)
    time.tzset()


def hold(name: str, text: str) -> None:
    """Compare with what was recorded, or record it."""
    file = _OUTPUTS / f"{name}.txt"
    if _ACCEPT:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return
    expected = file.read_text(encoding="utf-8") if file.exists() else ""
    if text != expected:
        diff = difflib.unified_diff(
            expected.splitlines(), text.splitlines(), f"outputs/{name}.txt", "now", lineterm="", n=2
        )
        pytest.fail(
            "\n".join(diff) + "\nIf this is meant: LUXMETER_ACCEPT=1 pytest tests/golden, and read git diff.",
            pytrace=False,
        )


@pytest.mark.parametrize("name", CASES)
def test_command(name: str, bench: Bench) -> None:
    hold(name, bench.transcript(CASES[name]))


@pytest.mark.parametrize("name", MEASURED)
def test_measuring_command(name: str, bench: Bench) -> None:
    hold(name, bench.plain(MEASURED[name](bench)))


@pytest.mark.parametrize("name", CALLS)
def test_public_call(name: str, bench: Bench) -> None:
    hold(f"python-{name}", bench.plain(CALLS[name](bench)))


def verbs() -> list[str]:
    import typer

    from luxmeter.view.cli import build_app

    return sorted(typer.main.get_command(build_app()).commands)  # type: ignore[attr-defined]


def test_help(bench: Bench) -> None:
    """Laid out by typer, so it is compared with the version that constraints.txt names."""
    import typer

    constraints = (HERE.parent.parent / "constraints.txt").read_text()
    if f"typer=={typer.__version__}\n" not in constraints:
        pytest.skip("another version of typer lays help out in another way")
    hold("help", bench.transcript(["--help", *(f"{verb} --help" for verb in verbs())]))


def test_no_command_is_forgotten() -> None:
    lines = [line for case in CASES.values() for line in case if not line.startswith("cat ")]
    asked = {line.split()[0] for line in lines} | {
        verb for name in MEASURED for verb in re.findall(r"[a-z]+", name)
    }
    assert set(verbs()) <= asked


def test_no_output_is_left_over() -> None:
    made = {*CASES, *MEASURED, *(f"python-{name}" for name in CALLS), "help"}
    assert {path.stem for path in _OUTPUTS.iterdir()} == made
