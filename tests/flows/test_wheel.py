"""What `make dist` makes is whole, installs into an empty environment, and doctor runs there; a lost core comes back."""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from compiler import compiler_works

REPOSITORY = Path(__file__).parent.parent.parent
# Of the repository, not of its source archive.
NOT_IN_THE_ARCHIVE = {".ci/run", ".gitignore", ".pre-commit-config.yaml"}
MADE_FOR_THE_ARCHIVE = {"PKG-INFO", "setup.cfg"}
STRAYS = (
    "tests/__pycache__/a.cpython-311.pyc",
    "tests/.hypothesis/a",
    "tests/.pytest_cache/v/a",
    "docs/.luxmeter/lab.json",
    "src/luxmeter/calls/core/_core.cpython-37m-x86_64-linux-gnu.so",
    "src/luxmeter/__pycache__/a.pyc",
    "examples/run.log",
    ".venv/lib/a.py",
    "build/lib/a.py",
    "demo/a.py",
)
needs_compiler = pytest.mark.skipif(
    not compiler_works("cc", "gcc"), reason="wheels are made with a C compiler"
)


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


def copy_of_the_sources(target: Path) -> Path:
    """A clean copy: what git knows, or, in an unpacked source archive, all but what was made there."""
    if (REPOSITORY / ".git").exists():
        run("git", "clone", "-q", REPOSITORY, target, cwd=target.parent)
    else:
        shutil.copytree(REPOSITORY, target, ignore=shutil.ignore_patterns(".venv*", "build", "dist", "*.so"))
    return target


@needs_compiler
@pytest.mark.slow
def test_wheel_installs_into_an_empty_environment(tmp_path: Path) -> None:
    source = copy_of_the_sources(tmp_path / "source")
    for name in STRAYS:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("")
    outdir = tmp_path / "dist"
    making = ("--core-only", "--python", sys.executable, "--outdir", outdir)
    run(sys.executable, source / "tools" / "dist.py", *making, cwd=tmp_path)
    (sdist,) = outdir.glob("*.tar.gz")
    (wheel,) = outdir.glob("*.whl")
    check_sdist(sdist, source)
    check_wheel(wheel, source)
    run_tests_of(sdist, tmp_path)

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
    assert seen["core"]["in use"] == "c"
    assert seen["problems"] == []


def check_sdist(sdist: Path, source: Path) -> None:
    """It holds every file of the repository that building, testing and reading takes, and nothing else."""
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    assert {"tests/conftest.py", "tests/calls/conftest.py", "CHANGELOG.md", "docs/index.md"} <= names
    assert "src/luxmeter/calls/core/_core.c" in names
    assert names & set(STRAYS) == set()
    if (source / ".git").exists():
        known = set(run("git", "ls-files", cwd=source).splitlines())
        assert known - names == NOT_IN_THE_ARCHIVE
        extra = {name for name in names - known if not name.startswith("src/luxmeter.egg-info/")}
        assert extra == MADE_FOR_THE_ARCHIVE


def check_wheel(wheel: Path, source: Path) -> None:
    """The package and its data, one stripped core, no C source, no tests; tagged for old systems, too."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        (core,) = [name for name in names if name.endswith((".so", ".pyd"))]
        compiled = archive.read(core)
    package = source / "src"
    wanted = {
        path.relative_to(package).as_posix()
        for path in (package / "luxmeter").rglob("*")
        if path.is_file() and path.suffix not in (".c", ".so", ".pyc")
    }
    shipped = {name for name in names if ".dist-info/" not in name}
    assert shipped == wanted | {core, "luxmeter_startup.pth", "pytest_luxmeter.py"}
    assert {"luxmeter/py.typed", "luxmeter/calls/core/_core.pyi", "luxmeter/view/web/style.css"} <= shipped
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert b".debug_info" not in compiled and b".symtab" not in compiled, "the core is not stripped"
    if sys.platform == "linux":
        tags = wheel.stem.split("-")[-1].split(".")
        glibc = [tuple(map(int, found)) for found in re.findall(r"manylinux_(\d+)_(\d+)_", " ".join(tags))]
        assert glibc or all(tag.startswith("musllinux") for tag in tags), wheel.name
        assert not (os.uname().machine == "x86_64" and glibc) or min(glibc) <= (2, 17)


def run_tests_of(sdist: Path, folder: Path) -> None:
    """Tests run in the unpacked archive: such as need docs and examples beside them, and conftest files."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (root,) = (folder / "unpacked").iterdir()
    some = ("tests/house/test_tidy.py", "tests/calls/test_core_sections.py", "tests/flows/test_readme.py")
    said = run(
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *some, "-k", "not snippets and not todays",
        cwd=root, PYTHONPATH=str(root / "src"), PYTHONDONTWRITEBYTECODE="1", LUXMETER_CORE="python",
    )  # fmt: skip
    assert re.search(r"\b\d+ passed", said) and "failed" not in said


def test_without_a_compiler_nothing_is_published(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, REPOSITORY / "tools" / "dist.py", "--outdir", tmp_path / "dist"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": str(tmp_path)},
    )
    assert done.returncode == 1
    assert done.stdout + done.stderr == (
        "make dist: no C compiler was found, and a wheel without the C core is not published: install gcc\n"
    )
    assert not (tmp_path / "dist").exists()


# -- doctor's advice


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A package index: the folder it shows, and its address."""
    folder = tmp_path / "index"
    (folder / "luxmeter").mkdir(parents=True)
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


def environment_without_luxmeter(folder: Path) -> Path:
    """A new environment that sees every package that is installed here, but luxmeter; its Python."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    here = folder / "here"
    here.mkdir()
    for place in (Path(entry) for entry in sys.path if entry.endswith("-packages")):
        for path in place.iterdir():
            if "luxmeter" not in path.name and not (here / path.name).exists():
                (here / path.name).symlink_to(path)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "here.pth").write_text(f"{here}\n")
    return folder / "bin" / "python"


def doctor(python: Path, cwd: Path, **env: str) -> dict[str, Any]:
    done = subprocess.run(
        [python, "-m", "luxmeter", "doctor", "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, **env},
    )
    assert done.stdout.startswith("{"), done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


@needs_compiler
@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("way", ["index", "archive", "folder", "checkout", "git"])
def test_the_advice_of_doctor_brings_the_c_core(way: str, tmp_path: Path, index: tuple[Path, str]) -> None:
    """Installed without a compiler; then there is one, and what doctor says is done to the letter."""
    source = copy_of_the_sources(tmp_path / "source with space")
    python = environment_without_luxmeter(tmp_path / "env")
    pip_env = {
        "PIP_CACHE_DIR": str(tmp_path / "cache"),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    quick = ["-n"] if int(metadata.version("setuptools").split(".")[0]) >= 77 else []
    if quick:
        pip_env["PIP_NO_BUILD_ISOLATION"] = "0"  # pip's way to say: use the setuptools that is here
    what: list[object] = ["-e", source] if way == "checkout" else [source]
    if way in ("index", "archive"):
        folder, address = index
        run(
            sys.executable,
            "-m",
            "build",
            "-q",
            "--sdist",
            *quick,
            "-o",
            folder / "luxmeter",
            source,
            cwd=tmp_path,
        )
        what = ["luxmeter"] if way == "index" else list((folder / "luxmeter").iterdir())
        if quick:
            pip_env |= {"PIP_INDEX_URL": address, "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}
        else:
            pip_env |= {"PIP_EXTRA_INDEX_URL": address}
    if way == "git":
        what = [f"git+{source.as_uri()}"]
    no_compiler = tmp_path / "bin"
    no_compiler.mkdir()
    git = shutil.which("git")
    if git is not None:
        (no_compiler / "git").symlink_to(git)
    bare = {**pip_env, "PATH": str(no_compiler), "CC": ""}
    run(python, "-m", "pip", "install", "-q", "--no-deps", *what, cwd=tmp_path, **bare)

    seen = doctor(python, tmp_path, **bare)
    assert seen["core"] == {
        "in use": "python",
        "because": "the C core was not built when luxmeter was installed",
    } | {key: value for key, value in seen["core"].items() if "GIL" in key}
    advice = next(step for what, step in seen["problems"] if "Python core" in what)
    assert "Install a C compiler (gcc), then run: " in advice

    command = next(step for what, step in doctor(python, tmp_path)["problems"] if "Python core" in what)
    assert command.partition("Run: ")[2] == advice.partition("run: ")[2], (
        "with a compiler only the command is left"
    )
    run(*shlex.split(command.partition("Run: ")[2]), cwd=tmp_path, **pip_env)
    seen = doctor(python, tmp_path)
    assert seen["core"]["in use"] == "c" and not any("core" in what for what, _ in seen["problems"])


def test_a_broken_and_a_foreign_core_are_told_from_an_absent_one(tmp_path: Path) -> None:
    shutil.copytree(
        REPOSITORY / "src",
        tmp_path / "src",
        ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"),
    )
    env = {"PYTHONPATH": str(tmp_path / "src")}
    place = tmp_path / "src" / "luxmeter" / "calls" / "core"

    def said(**more: str) -> tuple[str, str]:
        seen = doctor(Path(sys.executable), tmp_path, **env, **more)
        (problem,) = [(what, step) for what, step in seen["problems"] if "core" in what]
        assert "-m pip install --force-reinstall" in problem[1] or "LUXMETER_CORE" in problem[1]
        return seen["core"]["because"], problem[1]

    foreign = place / "_core.cpython-37m-x86_64-linux-gnu.so"
    foreign.write_bytes(b"")
    assert said()[0] == f"the C core was built for another Python: {foreign.name}"
    assert "cannot be used: the C core was built for another" in said(LUXMETER_CORE="c")[0]
    assert said(LUXMETER_CORE="rust")[1] == "Set LUXMETER_CORE to c or python."
    import importlib.machinery

    broken = place / f"_core{importlib.machinery.EXTENSION_SUFFIXES[0]}"
    broken.write_bytes(b"not a library")
    reason = said()[0]
    assert reason.startswith("the C core cannot be imported: ") and broken.name in reason
    seen = doctor(Path(sys.executable), tmp_path, **env, LUXMETER_CORE="python")
    assert seen["core"]["because"] == "the setting core (LUXMETER_CORE) asks for it"
    assert not any("core" in what for what, _ in seen["problems"])
