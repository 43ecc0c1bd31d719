"""Each rule of the house is shown to fail on a planted fault (those of order, options, messages and public names plant their own)."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
from both_cores import one_core
from plain_words import RETIRED, retired, saying_nothing
from typed import untyped

import residue

pytest_plugins = ["pytester"]


def plant(root: Path, **files: str) -> Path:
    """Files by their path without .py, with __ for a slash."""
    for name, text in files.items():
        path = root / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    return root


# -- names


@pytest.mark.parametrize("word", RETIRED)
def test_a_retired_word_is_found_wherever_it_names_something(word: str, tmp_path: Path) -> None:
    camel = "".join(part.capitalize() for part in word.split("_"))
    assert retired(plant(tmp_path / "module", **{f"a_{word}": ""}))
    assert retired(plant(tmp_path / "folder", **{f"{word}__x": ""}))
    assert retired(plant(tmp_path / "class", x=f"class Call{camel}: ..."))
    assert retired(plant(tmp_path / "function", x=f"def read_{word}(): ..."))
    assert retired(plant(tmp_path / "method", x=f"class X:\n    def {word}(self): ..."))
    option = f"--no-{word.replace('_', '-')}"
    assert retired(plant(tmp_path / "option", x=f"import typer\na = typer.Option(1, '{option}')"))
    assert retired(plant(tmp_path / "declared", x=f"class X:\n    {word}: int = option(1, '')"))
    assert retired(plant(tmp_path / "parameter", x=f"@app.command()\ndef x({word}: int): ..."))
    assert not retired(plant(tmp_path / "prose", x=f'"""It is {word}."""\n{word} = 1\nclass Un{word}ed: ...'))


def test_a_module_that_says_nothing_is_found(tmp_path: Path) -> None:
    assert saying_nothing(plant(tmp_path / "a", room__utils=""))
    assert saying_nothing(plant(tmp_path / "b", helpers__x=""))
    assert not saying_nothing(plant(tmp_path / "c", room__based=""))


# -- types

TYPED = """
    from __future__ import annotations
    import functools
    from dataclasses import dataclass
    from typing import Any

    @dataclass(frozen=True)
    class Row:
        size: int
        def share(self, of: int = 1) -> float: ...

    class Table:
        def rows(self) -> list[Row]: ...
        @property
        def first(self) -> Row: ...
        def __len__(self) -> int: ...
        def _own(self, any, thing): ...

    def decorated(function):
        @functools.wraps(function)
        def call(*args, **kwargs): ...
        return call

    @decorated
    def make(size: int, *sizes: int, fill: Any = None, **options: Any) -> Table: ...
"""
UNTYPED = {
    "a parameter": ("make(size: int,", "make(size,"),
    "more of them": ("*sizes: int", "*sizes"),
    "a result behind a decorator": ("**options: Any) -> Table", "**options: Any)"),
    "anything": ("**options: Any) -> Table", "**options: Any) -> Any"),
    "a method of what is handed out": ("def rows(self) -> list[Row]", "def rows(self)"),
    "a property": ("def first(self) -> Row", "def first(self)"),
    "a special method": ("def __len__(self) -> int", "def __len__(self)"),
    "a method of what that hands out": ("of: int = 1", "of=1"),
}


@pytest.mark.parametrize("fault", [None, *UNTYPED])
def test_what_has_no_type_is_found(
    fault: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = UNTYPED[fault] if fault else ("", "")
    assert before in TYPED
    plant(tmp_path, planted=TYPED.replace(before, after))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "planted", raising=False)
    import planted  # type: ignore[import-not-found]

    found = untyped(planted.make, package="planted")
    monkeypatch.delitem(sys.modules, "planted")
    assert len(found) == (1 if fault else 0), found


# -- cores

ONE = {
    "calls__test_a": "def test_a(): ...",
    "calls__test_b": "ONE_CORE = ''\ndef test_b(): ...",
    "calls__test_c": "class TestC:\n    def test_c(self): ...",
    "view__test_d": "def test_d():\n    with lux.trace(): ...",
    "view__test_e": "def begin():\n    return lux.start()\ndef test_e(): begin()",
    "view__test_f": "@pytest.fixture\ndef traced():\n    with lux.trace(): yield\ndef test_f(traced): ...",
}
BOTH = {
    "calls__test_g": "def test_g(core_name): ...",
    "calls__test_h": "ONE_CORE = 'made-up events'\ndef test_h(): ...",
    "calls__test_i": "pytestmark = pytest.mark.usefixtures('core_name')\ndef test_i(): ...",
    "calls__test_j": "@pytest.mark.parametrize('core', CORES)\ndef test_j(core): ...",
    "calls__test_k": "@pytest.mark.one_core('no core is reached')\ndef test_k(): ...",
    "calls__test_l": "@pytest.fixture\ndef made(core): ...\ndef test_l(made): ...",
    "view__test_m": "def test_m():\n    run('with lux.trace(): ...')",
}


def test_a_trace_test_that_sees_one_core_is_found(tmp_path: Path) -> None:
    found = one_core(plant(tmp_path, **ONE, **BOTH))
    assert [line.rpartition("::")[2] for line in found] == [f"test_{letter}" for letter in "abcdef"]


# -- residue


def test_a_thread_that_lives_on_is_found() -> None:
    before, end = residue.state(), threading.Event()
    thread = threading.Thread(target=end.wait, name="anybody's")
    thread.start()
    found = residue.faults(before, patience_s=0)
    end.set()
    thread.join()
    assert found == ["a thread lives on: anybody's"]
    assert not residue.faults(before)


def test_what_stays_patched_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    import multiprocessing.spawn

    import torch

    before = residue.state()
    monkeypatch.setattr(torch, "relu", len)
    monkeypatch.setattr(torch.Tensor, "added", len, raising=False)
    monkeypatch.delattr(torch.nn.functional, "relu")
    monkeypatch.setattr(os, "fork", len)
    monkeypatch.setattr(multiprocessing.spawn, "get_preparation_data", len)
    monkeypatch.setattr(sys, "excepthook", len)
    ours = type("Planted", (), {"__module__": "luxmeter.planted"})()
    monkeypatch.setattr(sys, "meta_path", [ours, *sys.meta_path])
    monkeypatch.setitem(sys.modules, "__main__", type(sys)("__main__"))
    handler = signal.signal(signal.SIGTERM, lambda *_: None)
    found = residue.faults(before)
    signal.signal(signal.SIGTERM, handler)
    monkeypatch.undo()
    patched = {line.removeprefix("not as it was: ") for line in found}
    assert patched >= {
        "torch.relu", "torch:Tensor.added", "torch.nn.functional.relu", "os.fork", "sys.excepthook", "signal.SIGTERM", "sys.modules.__main__",
        "multiprocessing.spawn.get_preparation_data", f"sys.meta_path.Planted at {id(ours)}",
    }  # fmt: skip
    assert not residue.faults(before)


def test_a_file_in_the_repository_is_found(tmp_path: Path) -> None:
    plant(tmp_path, src__x="")
    before = residue.state(tmp_path)
    plant(tmp_path, left="", src__y="")
    assert residue.faults(before, repository=tmp_path) == [
        "left in the repository: left.py",
        "left in the repository: src/y.py",
    ]


FAULTY = """
    import os, subprocess, sys, tempfile, threading, time
    import luxmeter as lux

    def test_good():
        with lux.trace(framework=None): ...

    def test_temporary_file():
        tempfile.mkdtemp()

    def test_of_a_killed_child():
        code = "import luxmeter as lux, os; lux.start(framework=None); os.kill(os.getpid(), 9)"
        subprocess.run([sys.executable, "-c", code])

    HELD = []

    def test_active_run():
        from luxmeter.store import Lab, activate
        run = Lab.open("lab").create_run("x")
        HELD.append(activate(run))
        HELD[0].__enter__()
        run.finish()
"""


def test_the_fixture_of_all_tests_finds_what_they_leave(pytester: pytest.Pytester) -> None:
    """The conftest.py of tests/ itself, over tests that leave something."""
    here = Path(__file__).parent.parent
    for name in ("conftest.py", "residue.py", "postgres_server.py"):
        pytester.makepyfile(**{name.removesuffix(".py"): (here / name).read_text(encoding="utf-8")})
    pytester.makepyfile(test_faulty=textwrap.dedent(FAULTY))
    result: Any = pytester.runpytest_subprocess(
        "-q", "-p", "no:cacheprovider", f"--basetemp={pytester.path / 'b'}"
    )
    result.assert_outcomes(passed=4, errors=3)
    text = result.stdout.str()
    assert "left among the temporary files: tmp" in text
    assert "left among the temporary files: luxmeter-trace-" in text
    assert "a run is still active" in text
