"""Run the tests that depend on torch with other versions of it, of Python and of what we depend on: `make test-versions`.

    python tools/versions.py                      # every row
    python tools/versions.py torch-2.15 lowest    # these
    python tools/versions.py --write              # and lay the results down in docs/versions.md

Each row is an environment of its own in the temporary folder, one at a time, removed afterwards: an index may have torch
with several gigabytes of CUDA only. uv makes them (pip takes ten times as long), with pip's settings.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dist import ask, candidates

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "versions.md"
CHECKPOINTS = ("test_saver*.py", "test_resume.py", "test_loader*.py", "test_folder_state.py")
TESTS = (
    "tests/calls",
    "tests/model",
    "tests/operators",
    "tests/test_signature.py",
    *sorted(
        path.relative_to(ROOT).as_posix()
        for pattern in CHECKPOINTS
        for path in (ROOT / "tests/experiment").glob(pattern)
    ),
)
MARKS = "not soak and not peers and not launch and not device and not alone and not mindspore"
# What the tests import beside what we depend on.
NEEDED = ("pytest", "pytest-xdist", "expecttest", "hypothesis", "pandas", "scikit-learn", "onnx", "onnxscript", "onnxruntime", "matplotlib", "plotly", "tensorboard")  # fmt: skip
NOT_COPIED = (".git", ".venv*", "build", "dist", "demo", "*.so", "*.egg-info", "__pycache__", ".*_cache")
# uv reads none of pip's settings; each of them has a twin there.
TWINS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}


@dataclass(frozen=True)
class Row:
    """One environment: which Python, which torch, and whether all else is as old as we allow."""

    name: str
    python: str
    torch: str
    lowest: bool = False


ROWS = (
    *(
        Row(f"torch-{version}", "3.11", version)
        for version in ("2.8", "2.10", "2.12", "2.13", "2.14", "2.15")
    ),
    Row("lowest", "3.11", "2.13", lowest=True),
    *(Row(f"python-{version}", version, "2.13") for version in ("3.12", "3.13", "3.14")),
)


@dataclass(frozen=True)
class Result:
    """What came of a row, as the page shows it."""

    row: Row
    said: str
    good: bool
    ran: bool = True
    python: str = ""
    torch: str = ""
    core: str = ""


@dataclass(frozen=True)
class Environment:
    """Where a row's environment is made: its folder, its Python, and what leads into its chroot if it has one."""

    folder: Path
    python: str
    settings: Mapping[str, str]
    inside: tuple[str, ...] = field(default=())

    def call(self, *command: object, heard: Callable[[str], None] | None = None) -> str:
        """Run a command in the copy of the sources and give what it says; `Failed` if it ends otherwise than well."""
        return call(
            [*self.inside, *map(str, command)], self.settings, cwd=self.folder / "source", heard=heard
        )


class Failed(Exception):
    """A command ended otherwise than well; what it said."""


def main() -> None:
    """Entry."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    names = ", ".join(row.name for row in ROWS)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {names}; all of them if none is named")
    parser.add_argument("--write", action="store_true", help="lay the results down in docs/versions.md")
    parser.add_argument("--workers", default="2", help="of pytest")
    parser.add_argument(
        "--tests",
        nargs="+",
        default=TESTS,
        help="other tests than those of calls, model, operators, signature, checkpoints",
    )
    options = parser.parse_args()
    if unknown := set(options.rows) - {row.name for row in ROWS}:
        parser.error(f"there is no row {', '.join(sorted(unknown))}; there are {names}")
    if options.write and options.tests != TESTS:
        parser.error("--write is for the tests that the page tells of: leave out --tests")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # cleans up as Ctrl-C does
    results: list[Result] = []
    stopped = False
    try:
        with tempfile.TemporaryDirectory(prefix="luxmeter-uv-") as folder:
            uv, settings = make_uv(Path(folder))
            for row in ROWS:
                if not options.rows or row.name in options.rows:
                    results.append(run(row, uv, settings, options.tests, options.workers))
                    if options.write:
                        write(results[-1])
    except KeyboardInterrupt:
        stopped = True
    print("\n=== versions" + (" (stopped before the end)" if stopped else ""))
    for result in results:
        print(f"{result.row.name:12} Python {result.python:8} torch {result.torch:14} {result.said}")
    sys.exit(130 if stopped else int(not all(result.good for result in results)))


def run(row: Row, uv: Path, settings: Mapping[str, str], tests: Iterable[str], workers: str) -> Result:
    """Make the row's environment, run the tests in it, remove it."""
    print(f"\n=== {row.name}", flush=True)
    with tempfile.TemporaryDirectory(prefix=f"luxmeter-{row.name}-", ignore_cleanup_errors=True) as folder:
        try:
            environment = environment_for(row, Path(folder), settings)
            if isinstance(environment, str):
                result = Result(
                    row, f"skipped: {environment}", good=True, ran=False, python=row.python, torch=row.torch
                )
            else:
                result = tried(row, environment, uv, tests, workers)
        except Failed as failure:
            print(str(failure)[-3000:])
            said = f"no environment could be made: {last_line(str(failure))}"
            result = Result(row, said, good=False, python=row.python, torch=row.torch)
    print(f"=== {row.name}: {result.said}", flush=True)
    return result


def tried(row: Row, environment: Environment, uv: Path, tests: Iterable[str], workers: str) -> Result:
    """Install and test in a place."""
    start = time.monotonic()
    # A copy: an editable install leaves its core in the source tree, and the next row would find it.
    shutil.copytree(
        ROOT, environment.folder / "source", ignore=shutil.ignore_patterns(*NOT_COPIED), dirs_exist_ok=True
    )
    own_uv = shutil.copy(uv, environment.folder / "uv")
    env = environment.folder / "env"
    environment.call(own_uv, "venv", "-q", "--python", environment.python, env)
    python = env / "bin" / "python"
    install = (own_uv, "pip", "install", "-q", "--python", python)
    # Wheels only, but for our own: what would have to be compiled is not what people get.
    binary = ("--only-binary", ":all:", "--no-binary", "luxmeter")
    oldest = ("--resolution", "lowest-direct") if row.lowest else ()
    environment.call(*install, *binary, *oldest, f"torch=={row.torch}.*", "-e", ".")
    limits = environment.folder / "limits.txt"
    installed = environment.call(own_uv, "pip", "freeze", "-q", "--python", python).splitlines()
    limits.write_text("\n".join(line for line in installed if not line.startswith("-e ")))
    environment.call(*install, *binary, "-c", limits, *NEEDED)
    asks = "import platform, torch; from luxmeter.calls import core; print(platform.python_version(), torch.__version__, core.describe()[0])"
    version, torch, core = last_line(environment.call(python, "-c", asks)).split(maxsplit=2)
    print(
        f"Python {version}, torch {torch}, {core} core: made in {time.monotonic() - start:.0f} s", flush=True
    )
    start = time.monotonic()
    try:
        output = environment.call(
            python, "-m", "pytest", "-q", "-n", workers, "-m", MARKS, "-p", "no:cacheprovider", *tests,
            heard=tenths(),
        )  # fmt: skip
        good = True
    except Failed as failure:
        output, good = str(failure), False
        failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
        print("\n".join(failed[:60]))
    print(f"tested in {time.monotonic() - start:.0f} s", flush=True)
    return Result(row, counted(output), good, python=version, torch=torch, core=core)


def environment_for(row: Row, folder: Path, settings: Mapping[str, str]) -> Environment | str:
    """A place with the row's Python, or why there is none."""
    (folder / "source").mkdir()
    (folder / "tmp").mkdir()
    settings = {"UV_CACHE_DIR": str(folder / "cache"), **settings, "TMPDIR": str(folder / "tmp")}
    if python := interpreter(row.python):
        return Environment(folder, python, settings)
    return debian(row.python, folder, settings)


def interpreter(version: str) -> str | None:
    """A Python of this version: this one, on the path, or one of pyenv's."""
    if ".".join(map(str, sys.version_info[:2])) == version:
        return sys.executable
    found = (python for python in candidates() if Path(python).name == f"python{version}")
    return next((python for python in found if ask(python) is not None), None)


def debian(version: str, folder: Path, settings: Mapping[str, str]) -> Environment | str:
    """A chroot of Debian's newest with this Python, or why there is none."""
    without = f"there is no Python {version} on the path"
    if os.geteuid() != 0:
        return f"{without}, and only root can make a Debian that has it"
    if not all(map(shutil.which, ("unshare", "chroot", "mount"))):
        return f"{without}, and a Debian that has it needs unshare, chroot and mount"
    print(f"making a Debian with Python {version}", flush=True)
    system = folder / "debian"
    packages = f"python{version},python{version}-venv,python{version}-dev,gcc,g++,git,ca-certificates"
    try:
        command, env = debootstrap(folder)
        call([command, "--variant=minbase", f"--include={packages}", "sid", str(system)], env, cwd=folder)
    except Failed as failure:
        return f"{without}, and Debian's could not be had: {last_line(str(failure))}"
    # The mounts are seen by the commands inside alone and end with them: what removes the folder meets none of them.
    shared = [str(folder), "/dev", "/proc", "/sys", "/etc/resolv.conf", "/etc/hosts", *local_paths(settings)]
    enter = """
        system=$1; shared=$2; shift 2
        for path in $shared; do
            if [ -d "$path" ]; then mkdir -p "$system$path"; else mkdir -p "$system$(dirname "$path")"; : >>"$system$path"; fi
            mount --rbind "$path" "$system$path"
        done
        exec chroot "$system" env -C "$PWD" "$@"
    """
    inside = ("unshare", "--mount", "sh", "-ec", enter, "sh", str(system), " ".join(shared))
    return Environment(folder, f"/usr/bin/python{version}", settings, inside)


def debootstrap(folder: Path) -> tuple[str, dict[str, str]]:
    """The command that makes a Debian, and its variables: the one on the path, or one that is unpacked, not installed."""
    if found := shutil.which("debootstrap"):
        return found, {}
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise Failed("there is no debootstrap")
    call(["apt-get", "download", "-q", "debootstrap"], {}, cwd=folder)
    [package] = folder.glob("debootstrap_*.deb")
    call(["dpkg", "-x", str(package), "unpacked"], {}, cwd=folder)
    usr = folder / "unpacked" / "usr"
    return str(usr / "sbin" / "debootstrap"), {"DEBOOTSTRAP_DIR": str(usr / "share" / "debootstrap")}


def local_paths(settings: Mapping[str, str]) -> list[str]:
    """What uv's settings name on this machine; of an index also what lies beside it, where its links lead."""
    named = [part for value in settings.values() for part in re.split(r"[\s,]+", value)]
    found = {Path(p.removeprefix("file://")).parent for p in named if p.startswith("file:///")}
    found |= {Path(p) for p in named if p.startswith("/")}
    return sorted(str(path) for path in found if path.exists())


def make_uv(folder: Path) -> tuple[Path, Mapping[str, str]]:
    """uv from the index that pip knows, and pip's settings as uv reads them; what is set for uv itself is left."""
    call([sys.executable, "-m", "venv", str(folder)], {}, cwd=ROOT)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    call([*pip, "install", "-q", "uv"], {}, cwd=ROOT)
    settings = uv_settings(call([*pip, "config", "list"], {}, cwd=ROOT))
    return folder / "bin" / "uv", {**settings, **{k: v for k, v in os.environ.items() if k.startswith("UV_")}}


def uv_settings(listed: str) -> dict[str, str]:
    """What `pip config list` tells, as variables of uv. pip takes the best version of all indexes: so does uv then."""
    found: dict[str, dict[str, str]] = {}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.rpartition(".")
        found.setdefault(section, {})[key] = str(ast.literal_eval(value))
    settings = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for section in ("global", "install", ":env:"):  # the later one counts
        for key, value in found.get(section, {}).items():
            if key in TWINS:
                settings[TWINS[key]] = ("," if key == "find-links" else " ").join(value.split())
    return settings


def tenths() -> Callable[[str], None]:
    """Listens to pytest and tells of each tenth done."""
    told = 0

    def heard(line: str) -> None:
        nonlocal told
        if (found := re.search(r"\[ *(\d+)%\]$", line)) and int(found[1]) >= told + 10:
            told = int(found[1])
            print(f"  {told} %", flush=True)

    return heard


def counted(output: str) -> str:
    """The counts in pytest's last line, or that line."""
    last = last_line(output)
    return ", ".join(re.findall(r"\d+ (?:passed|failed|skipped|xfailed|xpassed|errors?)\b", last)) or last


def last_line(text: str) -> str:
    """The last line that says something."""
    return next(
        (line.strip(" =") for line in reversed(text.splitlines()) if line.strip()), "nothing was said"
    )


def write(result: Result) -> None:
    """Lay a result down in the page."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), result), encoding="utf-8")


def written(page: str, result: Result) -> str:
    """The page with this result in its table; a row that was skipped keeps the line it has."""
    if not result.ran:
        return page
    cells = (result.row.name, result.python, result.torch, result.core, result.said.replace("|", "/"))
    line = f"| {' | '.join((*cells, datetime.date.today().isoformat()))} |"
    page, times = re.subn(rf"(?m)^\| {re.escape(result.row.name)} \|.*$", lambda _: line, page)
    if times != 1:
        raise SystemExit(f"docs/versions.md has {times} lines for the row {result.row.name}; it needs one")
    return page


def call(
    command: list[str], settings: Mapping[str, str], *, cwd: Path, heard: Callable[[str], None] | None = None
) -> str:
    """Run a command and give what it says; on Ctrl-C nothing of it lives on."""
    ours = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    said: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        cwd=cwd, env={**ours, **settings}, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            for line in process.stdout:
                said.append(line)
                if heard is not None:
                    heard(line.rstrip())
            code = process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if code != 0:
        raise Failed("".join(said))
    return "".join(said)


if __name__ == "__main__":
    main()
