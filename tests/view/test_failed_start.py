"""A trace that cannot begin: one line says why, and the program runs as it would without; a strict one ends it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from luxmeter.view import startup
from luxmeter.view.startup import OFF, Request, read_request

HERE = Path(startup.__file__).parent
LINE = Path(__file__).parents[2] / "luxmeter_startup.pth"
STRICT = Request(strict=True, keep=("kept",)).text()

# What the program does before it imports its framework, and what it says when that is done: nothing of ours is left.
PROGRAM = """
import os, sys, threading
{before}
import torch
left = [type(f).__module__ for f in sys.meta_path if type(f).__module__.startswith("luxmeter")]
left += [t.name for t in threading.enumerate()[1:]] + [v for v in os.environ if v.endswith("_PARENT") and {own_parent}]
if "luxmeter.calls.session" in sys.modules:
    from luxmeter.calls import active
    from luxmeter.calls.patching import patcher
    left += [x for x in (active(), patcher.installed()) if x is not None]
print("ran", left)
sys.exit(7)
"""
# A torch that nobody can trace (quick to import, too), and a dependency of ours that is broken.
NO_TORCH = "__version__ = '99.0'\n"
BROKEN = "raise ImportError('libarrow.so:\\n cannot open shared object file')\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*args: str, path: tuple[str, ...] = (), **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LUXMETER_")}
    paths = os.pathsep.join([str(HERE), *path])
    return subprocess.run(
        [sys.executable, *args], capture_output=True, text=True, check=False,
        env={**kept, "PYTHONPATH": paths, **environ},
    )  # fmt: skip


def package(name: str, text: str) -> str:
    folder = Path("packages", name)
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(text)
    return str(folder.parent.absolute())


CALLS = "import luxmeter.calls.session as s, luxmeter.calls.patching.patcher as p\ndef fails(*a, **k): raise {error}\n"
FAILURES = {
    "a torch that cannot be traced": ("stub", ""),
    "a broken dependency": ("stub and arrow", ""),
    "a full disk": (
        "real",
        CALLS.format(error="OSError(28, 'No space left on device')") + "s.Spill.start = fails",
    ),
    "stand-ins that do not fit": (
        "real",
        CALLS.format(error="KeyError('__call__')") + "p.Binding.put = fails",
    ),
    "at the last moment": (
        "real",
        CALLS.format(error="RuntimeError('late')")
        + "import types\ns.time = types.SimpleNamespace(perf_counter_ns=s.time.perf_counter_ns, time=fails)",
    ),
    "an exit from below": (
        "real",
        CALLS.format(error="SystemExit('a library ended it')") + "s.load_core = fails",
    ),
}


@pytest.mark.parametrize(
    ("case", "strict"),
    [*((case, False) for case in FAILURES), ("a torch that cannot be traced", True), ("a full disk", True)],
)
def test_a_failed_start(case: str, strict: bool) -> None:
    kind, before = FAILURES[case]
    places = [package("torch", NO_TORCH)] if kind.startswith("stub") else []
    if "arrow" in kind:
        places.append(package("pyarrow", BROKEN))
    Path("s.py").write_text(PROGRAM.format(before=before, own_parent=True))
    done = run("s.py", path=tuple(places), LUXMETER_TRACE=STRICT if strict else "keep=kept")
    (line,) = done.stderr.splitlines()
    assert line.startswith("luxmeter: not traced: ") and len(line) > len("luxmeter: not traced: ") + 5
    assert (done.returncode, done.stdout) == ((2, "") if strict else (7, "ran []\n"))
    assert not Path("kept").exists()


def test_a_failed_start_leaves_a_folder_that_was_there() -> None:
    Path("kept").mkdir()
    Path("s.py").write_text(PROGRAM.format(before=FAILURES["a full disk"][1], own_parent=True))
    assert run("s.py", LUXMETER_TRACE="keep=kept").stdout == "ran []\n"
    assert Path("kept").is_dir() and not list(Path("kept").iterdir())


@pytest.mark.parametrize(
    ("parent", "strict"),
    [
        ("{", False),
        ("[1]", True),
        ('{"folder": "x", "rank": "one", "options": {}}', False),
        ('{"folder": "gone", "rank": 0, "options": {}}', False),
        ('{"folder": "gone", "rank": 0, "options": {}}', True),
        ('{"folder": ".", "rank": 0, "options": {"no_such_option": 1}}', False),
    ],
)
def test_a_parent_that_cannot_be_joined(parent: str, strict: bool) -> None:
    Path("s.py").write_text(PROGRAM.format(before="", own_parent=False))
    done = run(
        "s.py", path=(package("torch", NO_TORCH),), LUXMETER_TRACE=STRICT if strict else "1",
        LUXMETER_TRACE_PARENT=parent,
    )  # fmt: skip
    (line,) = done.stderr.splitlines()
    assert line.startswith("luxmeter: not traced: ")
    over = "gone" in parent  # nobody waits for that trace: no reason to end a program
    assert "trace-parent-gone" in line if over else "trace-parent-gone" not in line
    assert (done.returncode, done.stdout) == ((2, "") if strict and not over else (7, "ran []\n"))


@pytest.mark.parametrize(
    "text", ["{", '{"strict":true', "{}}", "[]", "'", "sample=0", "strict=true smaple=3", '{"keep":3}']
)
def test_a_variable_that_cannot_be_read(text: str) -> None:
    done = run("-c", "print(1); raise SystemExit(7)", LUXMETER_TRACE=text)
    if "strict" in text:
        assert (done.returncode, done.stdout) == (2, "") and "not traced" in done.stderr
    else:
        assert (done.returncode, done.stdout) == (7, "1\n")
    assert "Traceback" not in done.stderr and done.stderr.count("\n") <= 1


def test_a_thread_that_swallows_the_end_does_not_hide_it() -> None:
    Path("s.py").write_text(
        "import threading\nt = threading.Thread(target=__import__, args=['torch'])\nt.start(); t.join(); print('on')\n"
    )
    done = run("s.py", path=(package("torch", NO_TORCH),), LUXMETER_TRACE=STRICT)
    assert (done.returncode, done.stdout) == (2, "on\n")


def test_ctrl_c_while_it_starts_passes() -> None:
    before = CALLS.format(error="KeyboardInterrupt") + "s.load_core = fails"
    Path("s.py").write_text(
        f"{before}\nimport sys\ntry:\n    import torch\nexcept KeyboardInterrupt:\n    print('stopped', s.active())\n"
    )
    done = run("s.py", LUXMETER_TRACE="keep=kept")
    assert (done.stdout, done.stderr, done.returncode) == ("stopped None\n", "", 0)
    assert not Path("kept").exists()


@pytest.mark.parametrize("stream", ["sys.stderr = None", "sys.stderr.close()"])
def test_without_a_stderr(stream: str) -> None:
    Path("s.py").write_text(PROGRAM.format(before=stream, own_parent=True))
    done = run("s.py", path=(package("torch", NO_TORCH),), LUXMETER_TRACE="1")
    assert (done.returncode, done.stdout) == (7, "ran []\n")


def start(*, value: str | None, code: str = "", luxmeter: bool = True) -> subprocess.CompletedProcess[str]:
    """A Python that has nothing but our two files that it reads when it starts."""
    site = Path("site")
    site.mkdir(exist_ok=True)
    (site / "luxmeter_startup.pth").write_text(LINE.read_text())
    kept = {name: v for name, v in os.environ.items() if not name.startswith(("LUXMETER_", "PYTHON"))}
    paths = [str(HERE), *([str(HERE.parents[2])] if luxmeter else [])]
    program = "import sys, site; before = set(sys.modules); site.addsitedir('site'); import sitecustomize\n"
    return subprocess.run(
        [sys.executable, "-S", "-c", program + code], capture_output=True, text=True, check=False,
        env={**kept, "PYTHONPATH": os.pathsep.join(paths), **({} if value is None else {"LUXMETER_TRACE": value})},
    )  # fmt: skip


OFF_VALUES = [None, *OFF, *(word.upper() for word in OFF), " 0 ", "\toff\n"]


@pytest.mark.skipif(not LINE.exists(), reason="an installed package: the line lies elsewhere")
@pytest.mark.parametrize("value", OFF_VALUES)
def test_no_costs_nothing(value: str | None) -> None:
    assert value is None or read_request(value) is None
    done = start(value=value, code="print(sorted(set(sys.modules) - before))")
    assert (done.stdout, done.stderr) == ("['sitecustomize']\n", "")


@pytest.mark.skipif(not LINE.exists(), reason="an installed package: the line lies elsewhere")
@pytest.mark.parametrize("value", ["1", STRICT])
def test_a_package_that_is_gone_or_in_pieces(value: str) -> None:
    """The .pth file is left, the package is not: a program goes on, as strict as its parent may have been."""
    gone = start(value=value, code="print(1)", luxmeter=False)
    assert (gone.returncode, gone.stdout) == (0, "1\n")
    assert gone.stderr == "luxmeter: not traced: it cannot be imported: No module named 'luxmeter'\n"
    Path("site", "luxmeter").mkdir()  # __pycache__ of a package that was removed keeps its folder
    pieces = start(value=value, code="print(1)", luxmeter=False)
    assert "not traced" in pieces.stderr and "Traceback" not in pieces.stderr
    assert (pieces.returncode, pieces.stdout) == ((2, "") if value == STRICT else (0, "1\n"))
