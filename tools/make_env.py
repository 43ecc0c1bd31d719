"""Make a virtual environment and install into it, or do nothing if it is as it should be.

    python tools/make_env.py .venv --constraints constraints.txt --extras dev

Only the standard library is used: this runs before anything is installed. What it was made from is hashed into
`<env>/.made-from`; the next call compares and returns at once.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
# What decides what is installed. The C core is among them: a change of it means a new build.
INPUTS = ("pyproject.toml", "setup.py", "luxmeter_startup.pth", "src/luxmeter/calls/core/_core.c")


def main() -> None:
    """Entry."""
    parser = argparse.ArgumentParser()
    parser.add_argument("env", type=Path)
    parser.add_argument("--constraints", type=Path, required=True)
    parser.add_argument("--extras", default="")
    parser.add_argument("--packages", nargs="*", default=[], help="installed before the package itself")
    parser.add_argument("--needs", default="", help="a package without which the environment is not made")
    options = parser.parse_args()
    if sys.version_info < OLDEST:
        stop(
            f"this is Python {sys.version.split()[0]}; Luxmeter needs 3.11 or later",
            "run make with PYTHON=python3.12",
        )
    env = ROOT / options.env
    wanted = fingerprint(options)
    stamp = env / ".made-from"
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    say(f"setting up {options.env} with Python {sys.version.split()[0]}")
    if env.exists() and not (env / "bin" / "python").exists():
        shutil.rmtree(env)
    if not (env / "bin" / "python").exists():
        step("creating it", [sys.executable, "-m", "venv", str(env)], env)
    python = str(env / "bin" / "python")
    if options.needs and not offered(python, options.needs):
        shutil.rmtree(env)
        say(
            f"  no {options.needs} for Python {sys.version.split()[0]} was found here: {options.env} is not made"
        )
        return
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    limits = ["-c", str(ROOT / options.constraints)]
    step("updating pip", [*pip, "--upgrade", "pip"], env)
    if options.packages:
        step(f"installing {' '.join(options.packages)}", [*pip, *limits, *options.packages], env)
    extras = f"[{options.extras}]" if options.extras else ""
    step(f"installing luxmeter{extras} and what it needs", [*pip, *limits, "-e", f".{extras}"], env)
    report_core(python)
    stamp.write_text(wanted)


def fingerprint(options: argparse.Namespace) -> str:
    """A hash of everything that decides what the environment holds, whether a compiler is at hand included."""
    digest = hashlib.sha256()
    for name in (*INPUTS, str(options.constraints)):
        path = ROOT / name
        digest.update(path.read_bytes() if path.is_file() else b"")
    digest.update(f"{sys.version} {options.extras} {options.packages} {ROOT} {compiler_works()}".encode())
    return digest.hexdigest()


def offered(python: str, package: str) -> bool:
    """Whether some index that pip knows has a file of the package for this Python and machine."""
    command = [python, "-m", "pip", "index", "versions", package, "--retries", "1", "--only-binary", ":all:"]
    return subprocess.run(command, capture_output=True, check=False, cwd=ROOT).returncode == 0


def compiler_works() -> bool:
    """Whether a C compiler answers."""
    for name in (os.environ.get("CC", ""), "cc", "gcc"):
        if name and shutil.which(name.split()[0]):
            return (
                subprocess.run([*name.split(), "--version"], capture_output=True, check=False).returncode == 0
            )
    return False


def step(what: str, command: list[str], env: Path) -> None:
    """Run one step, showing what is being installed; on failure say which and show the end of its output."""
    start = time.monotonic()
    say(f"  {what} ...")
    tail: list[str] = []
    child_env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, env=child_env
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            tail = [*tail[-40:], line.rstrip()]
            if (
                line.startswith(("Collecting", "Downloading", "Building", "Installing"))
                and sys.stdout.isatty()
            ):
                sys.stdout.write(f"\r\033[K    {line.strip()[:100]}")
                sys.stdout.flush()
    if sys.stdout.isatty():
        sys.stdout.write("\r\033[K")
    if process.returncode != 0:
        sys.stdout.write("\n".join(tail) + "\n")
        stop(
            f"{what} failed (exit code {process.returncode}); its last lines are above",
            f"mend it, or rm -r {env.name}, and try again",
        )
    say(f"  {what}: {time.monotonic() - start:.0f} s")


def report_core(python: str) -> None:
    """Say which recorder core the environment has."""
    code = "from luxmeter.calls import core; print(*core.describe(), sep=': ')"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False, cwd="/")
    say(f"  recorder core: {found.stdout.strip() or found.stderr.strip().splitlines()[-1]}")


def say(text: str) -> None:
    """Print at once."""
    print(text, flush=True)


def stop(what: str, next_step: str) -> None:
    """End with an error."""
    sys.exit(f"make: {what}\n      {next_step}")


if __name__ == "__main__":
    main()
