"""What `make dist` makes installs into an empty environment, and doctor runs there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent.parent


def run(*command: object, cwd: Path, **env: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, **env},
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.mark.slow
def test_wheel_installs_into_an_empty_environment(tmp_path: Path) -> None:
    source = tmp_path / "source"
    run("git", "clone", "-q", REPOSITORY, source, cwd=tmp_path) if (REPOSITORY / ".git").exists() else None
    run(sys.executable, "-m", "build", "--outdir", tmp_path / "dist", source, cwd=tmp_path)
    (sdist,) = (tmp_path / "dist").glob("*.tar.gz")
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    assert any(name.endswith("_core.c") for name in names), "the C core is not in the source archive"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "luxmeter/py.typed" in names
    assert any(name.endswith("LICENSE") for name in names)
    run(sys.executable, "-m", "venv", tmp_path / "env", cwd=tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    limits = ["-c", REPOSITORY / "constraints.txt"]
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *limits, wheel, cwd=tmp_path)
    seen = json.loads(
        subprocess.run(
            [tmp_path / "env" / "bin" / "luxmeter", "doctor", "--json"],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        ).stdout
    )
    assert seen["versions"]["torch"] is None  # an extra
    assert seen["extras"]["torch"].startswith("pip install 'luxmeter[torch]'")
    assert seen["extras"]["postgres"] == "pip install 'luxmeter[postgres]'"
    built = any(
        name.startswith("luxmeter/calls/core/_core.") and name.endswith((".so", ".pyd")) for name in names
    )
    assert seen["core"]["in use"] == ("c" if built else "python")
    assert seen["problems"] == [] if built else len(seen["problems"]) == 1
