"""The line that made a call: found right in every kind of code, told in words, kept with its text."""

from __future__ import annotations

import gc
import inspect
import linecache
import multiprocessing
import os
import sys
import threading
import types
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import luxmeter as lux
from luxmeter.calls.core import _pycore
from luxmeter.calls.diff import diff_traces
from luxmeter.calls.records import SiteNames
from luxmeter.calls.sites import Sources, UserCode, _places_of, read_source, short_names, site_names
from luxmeter.errors import UsageError

ONE_CORE = "what records runs on both cores; the rest are the words for it"

HERE = str(Path(__file__).absolute())


def lines_of(t: Any, name: str) -> list[tuple[str, int, str]]:
    """File, line and function of each call of an API, in the order of the calls."""
    events = t.events()
    rows = sorted(
        zip(*(events[c].to_pylist() for c in ("start_ns", "name", "file", "line", "function")), strict=True)
    )
    return [(file, line, function) for _, called, file, line, function in rows if called == name]


def here(offset: int = 0) -> int:
    return inspect.currentframe().f_back.f_lineno + offset  # type: ignore[union-attr]


def test_each_call_knows_its_file_line_and_function(core_name: str) -> None:
    def train(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x)

    x = torch.ones(2)
    with lux.trace() as t:
        train(x)
        _, at = torch.cos(x), here()
    inner = train.__code__.co_firstlineno + 1
    name = f"{test_each_call_knows_its_file_line_and_function.__qualname__}"
    assert lines_of(t, "torch.sin") == [(HERE, inner, f"{name}.<locals>.train")]
    assert lines_of(t, "torch.cos") == [(HERE, at, name)]


def test_generators_lambdas_and_comprehensions(core_name: str) -> None:
    x = torch.ones(2)

    def produce() -> Any:
        yield torch.sin(x)
        yield torch.sin(x)

    double = lambda: torch.cos(x)  # noqa: E731
    with lux.trace() as t:
        list(produce()), double()
        [torch.exp(x) for _ in range(2)]
        at = here(-1)
        list(map(torch.tan, [x]))
        called = here(-1)
    first = produce.__code__.co_firstlineno
    whole = "test_generators_lambdas_and_comprehensions"
    assert lines_of(t, "torch.sin") == [(HERE, first + n, f"{whole}.<locals>.produce") for n in (1, 2)]
    assert lines_of(t, "torch.cos") == [(HERE, double.__code__.co_firstlineno, f"{whole}.<locals>.<lambda>")]
    # A comprehension is a function of its own up to Python 3.11: it is the function around it all the same.
    assert lines_of(t, "torch.exp") == [(HERE, at, whole)] * 2
    assert lines_of(t, "torch.tan") == [(HERE, called, whole)]


def test_what_torch_calls_inside_has_the_line_that_led_to_it(core_name: str) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    x = torch.ones(1, 2)
    with lux.trace(inside=True) as t:
        net(x)
        at = here(-1)
    events = t.events().to_pydict()
    inside = [n for n, within in zip(events["name"], events["inside"], strict=True) if within]
    assert "torch.nn.functional.linear" in inside or "torch.nn.functional.relu" in inside
    told = {
        (n, line)
        for n, line, own in zip(events["name"], events["line"], events["own"], strict=True)
        if not own
    }
    assert {line for _, line in told} == {at}
    (row,) = t.table("line")
    assert row.name.endswith(f"test_sites.py:{at}") and row.n == len(inside) + 3
    whole = max(ns for ns, own in zip(events["duration_ns"], events["own"], strict=True) if not own)
    assert row.total_ns == whole, "a moment of it was counted twice"


def test_code_without_a_file(core_name: str) -> None:
    """Of exec, of a doctest or a notebook's cell: it is the user's, and has the text that Python knows of it."""
    x = torch.ones(2)
    text = "y = torch.sin(x)\nz = torch.cos(y)\n"
    name = "<ipython-input-7-luxmeter>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    try:
        with lux.trace() as t:
            exec(compile(text, name, "exec"), {"torch": torch, "x": x})
            exec("torch.tan(x)", {"torch": torch, "x": x})
    finally:
        del linecache.cache[name]
    assert lines_of(t, "torch.cos") == [(name, 2, "<module>")]
    assert lines_of(t, "torch.tan") == [("<string>", 1, "<module>")]
    assert t.source()[name].lines[1].text == "z = torch.cos(y)" and t.source()[name].lines[1].n == 1


def test_a_notebooks_cell_is_called_as_the_notebook_calls_it(core_name: str, ipython: Any) -> None:
    ipython.run_cell("import torch, luxmeter as lux\nx = torch.ones(2)", store_history=True)
    ipython.run_cell("with lux.trace() as t:\n    torch.sin(x)", store_history=True)
    ipython.run_cell("t.result.recording;", store_history=True)  # read while the shell is there
    t = ipython.user_ns["t"]
    ((file, line, function),) = lines_of(t, "torch.sin")
    assert (file, line, function) == ("In[2]", 2, "<module>")
    assert t.source()["In[2]"].lines[1].text == "    torch.sin(x)"


def test_a_decorator_of_ones_own_is_ones_own_code(core_name: str) -> None:
    def twice(function: Any) -> Any:
        def call(*args: Any) -> Any:
            torch.cos(*args)
            return function(*args)

        return call

    @twice
    def work(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x)

    with lux.trace() as t:
        work(torch.ones(2))
    assert lines_of(t, "torch.cos")[0][2].endswith("twice.<locals>.call")
    assert lines_of(t, "torch.sin")[0][2].endswith("<locals>.work")


def test_a_place_whose_code_has_gone_is_still_known(core_name: str) -> None:
    """Its code is kept: another one that takes its place in memory is not taken for it."""
    x = torch.ones(2)
    with lux.trace() as t:
        for number in range(40):
            space: dict[str, Any] = {"torch": torch, "x": x}
            exec(compile("\n" * number + "torch.sin(x)", f"<made {number}>", "exec"), space)
            del space
            gc.collect(0)
    assert lines_of(t, "torch.sin") == [(f"<made {n}>", n + 1, "<module>") for n in range(40)]


def test_other_threads_have_lines_of_their_own(core_name: str) -> None:
    x = torch.ones(2)

    def work() -> None:
        torch.sin(x)

    with lux.trace() as t:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert lines_of(t, "torch.sin") == [(HERE, work.__code__.co_firstlineno + 1, f"{test_other_threads_have_lines_of_their_own.__name__}.<locals>.work")]  # fmt: skip


def _forked(x: torch.Tensor) -> None:
    torch.cos(x)


def test_a_forked_worker_tells_its_lines(core_name: str) -> None:
    x = torch.ones(2)
    with lux.trace() as t:
        torch.sin(x)
        child = multiprocessing.get_context("fork").Process(target=_forked, args=(x,))
        child.start()
        child.join()
    assert child.exitcode == 0
    assert lines_of(t, "torch.cos") == [(HERE, _forked.__code__.co_firstlineno + 1, "_forked")]
    assert {row.detail for row in t.table("line")} == {"_forked", "test_a_forked_worker_tells_its_lines"}


def test_a_section_knows_where_it_was_opened(core_name: str) -> None:
    with lux.trace() as t:
        with t.section("part"):
            torch.ones(2)
        at = here(-2)
    assert lines_of(t, "part")[0][:2] == (HERE, at)


def test_lines_can_be_left_out(core_name: str) -> None:
    with lux.trace(lines=False) as t:
        torch.ones(2)
    assert lines_of(t, "torch.ones") == [("", 0, "")]
    with pytest.raises(UsageError, match="Trace again with lines"):
        t.table("line")
    with pytest.raises(UsageError, match="Trace again with lines"):
        t.source()


def test_the_lines_of_a_package_that_is_named(core_name: str, tmp_path: Path, monkeypatch: Any) -> None:
    """What is installed is not the user's code, unless lines_in says so."""
    package = tmp_path / "site-packages" / "lent"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import torch\ndef work(x):\n    return torch.sin(x)\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(package.parent)
    import lent  # type: ignore[import-not-found]

    x = torch.ones(2)
    try:
        with lux.trace() as t:
            lent.work(x)
            at = here(-1)
        assert lines_of(t, "torch.sin")[0][:2] == (HERE, at)
        with lux.trace(lines_in=["lent"]) as t:
            lent.work(x)
        assert lines_of(t, "torch.sin") == [(str(package / "__init__.py"), 3, "work")]
    finally:
        del sys.modules["lent"]
    with pytest.raises(UsageError, match="no-such-thing"):
        lux.trace(lines_in=["no-such-thing"]).start()


def test_totals_know_their_lines(core_name: str) -> None:
    x = torch.ones(2)
    with lux.trace(totals=True) as t:
        for _ in range(3):
            torch.sin(x)
            torch.cos(x)
        at = here()
    found = {row.name.rpartition(":")[2]: row.n for row in t.table("line")}
    assert found == {str(at - 2): 3, str(at - 1): 3}
    assert {line.number: line.n for line in t.source()["test_sites.py"].lines if line.n} == {
        at - 2: 3,
        at - 1: 3,
    }


def test_the_text_is_that_of_the_run(core_name: str, tmp_path: Path, monkeypatch: Any) -> None:
    script = tmp_path / "script_of_a_test.py"
    script.write_text("import torch\ndef work(x):\n    return torch.sin(x)  # as it ran\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import script_of_a_test as module  # type: ignore[import-not-found]

    x = torch.ones(2)
    with lux.trace() as t:
        module.work(x)
    script.write_text("changed\n", encoding="utf-8")
    del sys.modules["script_of_a_test"]
    saved = lux.load_trace(t.save(tmp_path / "kept"))
    (line,) = (x for x in saved.source()["script_of_a_test.py"].lines if x.n)
    assert (line.number, line.text, line.share) == (3, "    return torch.sin(x)  # as it ran", 1.0)
    assert "as it ran" in saved.source().text() and "100.0%" in saved.source().text()


def test_a_line_that_only_moved_is_the_same_line(core_name: str, tmp_path: Path) -> None:
    """Between two traces: by the texts. One that was edited is still that line."""
    before = "def work(x):\n    for _ in range(30):\n        x.sin()\n        x.cos()\n"
    after = "# a new line\ndef work(x):\n    for _ in range(30):\n        x.sin()\n        x.cos().tan()\n        x.exp()\n"
    made = []
    for number, text in enumerate((before, after)):
        path = tmp_path / str(number) / "model_of_a_test.py"
        path.parent.mkdir()
        path.write_text(text, encoding="utf-8")
        space: dict[str, Any] = {}
        exec(compile(text, str(path), "exec"), space)
        with lux.trace() as t:
            space["work"](torch.ones(2))
        made.append(t.result)
    found = {c.name: c.kind for c in diff_traces(*made, by="line").changes}
    assert {n.rpartition(":")[2] for n in found if n.startswith("model")} == {"4", "5", "6"}
    assert [n.rpartition(":")[2] for n, kind in found.items() if kind == "new"] == ["6"]


def test_operators_know_their_lines(core_name: str, tmp_path: Path) -> None:
    x = torch.ones(2, 2)
    with lux.trace() as t:
        torch.mm(x, x)
        at = here(-1)
    found = t.operators()
    assert found[0].lines == (f"test_sites.py:{at}",)
    found.save(tmp_path / "ops.jsonl")
    assert lux.load_operators(tmp_path / "ops.jsonl")[0].lines == found[0].lines


def test_the_core_keeps_the_code_of_a_site(core: types.ModuleType, recorded: Any) -> None:
    recorder = core.Recorder(signatures=False, is_mine=lambda code: code.co_filename == "<mine>")
    call = recorder.wrap(len, recorder.add_callable("f"))
    recorder.start()
    space = {"f": call}
    exec(compile("def g():\n    return f([])\n", "<mine>", "exec"), space)
    space["g"]()
    gone = weakref.ref(space["g"].__code__)
    del space["g"]
    gc.collect()
    call([])
    assert recorded(recorder)["site"].tolist() == [1, 0]
    code, at = recorder.site(1)
    assert code is gone() and site_names(code, at, "<mine>", "") == SiteNames("<mine>", "g", 2)
    for wrong in (0, 2, -1):
        with pytest.raises(ValueError):
            recorder.site(wrong)
    del code, recorder, call, space
    gc.collect()
    assert gone() is None


def test_past_the_room_for_places_calls_have_none_and_it_is_told(
    core: types.ModuleType, recorded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = 1 << 17
    if core.__name__.endswith("_pycore"):
        room = 300
        monkeypatch.setattr(_pycore, "_MAX_SITES", room)
    recorder = core.Recorder(
        signatures=False, max_pending=1 << 20, is_mine=lambda code: code.co_filename == "<made>"
    )
    space = {"f": recorder.wrap(len, recorder.add_callable("f"))}
    recorder.start()
    made = "".join(f"def g{n}():\n" + "    f('')\n" * 500 for n in range(room // 500 + 1))
    exec(compile(made, "<made>", "exec"), space)
    for n in range(room // 500 + 1):
        space[f"g{n}"]()
    space["g0"]()  # in places that are known
    sites = recorded(recorder)["site"].tolist()
    calls, places = 500 * (room // 500 + 1), max(sites)
    assert room - 1 <= places <= room  # the Python core's own frame is a place, too
    assert sites[:calls] == [*range(1, places + 1), *[0] * (calls - places)]
    known = min(500, places)
    assert sites[calls:] == [*range(1, known + 1), *[0] * (500 - known)]
    assert recorder.stats()["unplaced"] == calls - places + 500 - known


def test_a_decision_that_fails_is_counted_and_breaks_nothing(core: types.ModuleType, recorded: Any) -> None:
    def fails(code: types.CodeType) -> bool:
        raise RuntimeError("odd")

    recorder = core.Recorder(signatures=False, is_mine=fails)
    call = recorder.wrap(len, recorder.add_callable("f"))
    recorder.start()
    assert call([1]) == 1
    assert recorded(recorder)["site"].tolist() == [0] and recorder.stats()["hook_errors"] > 0

    def interrupted(code: types.CodeType) -> bool:
        raise KeyboardInterrupt

    recorder = core.Recorder(signatures=False, is_mine=interrupted)
    call = recorder.wrap(len, recorder.add_callable("f"))
    recorder.start()
    with pytest.raises(KeyboardInterrupt):
        call([1])


def test_the_c_core_reads_the_interpreters_own_frames() -> None:
    """On Pythons whose frames are known; ONE_CORE: it is the C core's way."""
    core = pytest.importorskip("luxmeter.calls.core._core")
    assert core.frames() == ("direct" if sys.version_info < (3, 15) else "objects")


def test_files_are_named_by_as_much_as_tells_them_apart() -> None:
    paths = ["/a/x/train.py", "/a/y/train.py", "/a/x/model.py", "<string>", "train.py"]
    assert short_names(paths) == {
        "/a/x/train.py": "x/train.py", "/a/y/train.py": "y/train.py", "/a/x/model.py": "model.py",
        "<string>": "<string>", "train.py": "train.py",
    }  # fmt: skip


def test_whose_code_it_is() -> None:
    mine = UserCode()

    def of(name: str) -> bool:
        return mine(compile("0", name, "exec"))

    assert of(HERE) and of("<string>") and of("<stdin>") and of("/tmp/ipykernel_1/2.py") and of("script.py")
    assert not of(torch.nn.__file__) and not of(np.__file__) and not of(os.__file__) and not of(lux.__file__)
    assert not of("<frozen runpy>") and not of("<eval_with_key>.3")


def test_calls_in_a_section_on_their_own_line_keep_their_time(core_name: str) -> None:
    x = torch.ones(2)
    text = 'with t.section("forward"): torch.sin(x)'
    with lux.trace() as t:
        exec(text, {"t": t, "torch": torch, "x": x})
    (row,) = [row for row in t.table("line") if row.n]
    assert row.n == 1 and row.total_ns == t.table()["torch.sin"].total_ns > 0


def test_whose_code_a_module_or_no_module_is() -> None:
    (place,) = _places_of("json.decoder")
    assert place.endswith("decoder.py") and UserCode(["json.decoder"])._decide(place)
    for name in ("json.no_such_part", "no_such.part", ".", "json.decoder.below"):
        with pytest.raises(UsageError, match="unknown-lines-package"):
            _places_of(name)


def test_a_text_that_was_not_kept_is_not_known(tmp_path: Path) -> None:
    kept = Sources(tmp_path / "b")
    name = kept.keep(__file__, __file__)
    assert read_source([tmp_path / "a", tmp_path / "b"], name) == Path(__file__).read_text(encoding="utf-8")
    assert read_source([tmp_path / "a"], name) is None and read_source([tmp_path / "b"], "") is None


def test_calls_that_no_line_of_ones_own_made(core_name: str) -> None:
    space: dict[str, Any] = {"torch": torch}
    exec(
        compile("def f():\n    return torch.ones(2)\n", str(Path(torch.__file__).parent / "made.py"), "exec"),
        space,
    )
    thread = threading.Thread(target=space["f"])
    with lux.trace() as t:
        thread.start()
        thread.join()
        torch.ones(2)  # mine
    assert str(t.source()).endswith("% of the time is of calls that no line of yours made")
    shown = t.source()._repr_html_()
    assert "# mine" in shown and shown.count("<table") == 1 == len(t.source().files)


def test_a_line_that_is_gone_keeps_its_name_where_another_one_has_it(core_name: str, tmp_path: Path) -> None:
    texts = (
        "def work(x):\n    x.sin()\n    x.cos()\n",
        "def work(x):\n    torch.nn.functional.softmax(input=other, dim=-1)\n    x.cos()\n",
    )
    made = []
    for number, text in enumerate(texts):
        path = tmp_path / str(number) / "model_of_a_test.py"
        path.parent.mkdir()
        path.write_text(text, encoding="utf-8")
        space: dict[str, Any] = {"torch": torch, "other": torch.ones(2)}
        exec(compile(text, str(path), "exec"), space)
        with lux.trace() as t:
            space["work"](torch.ones(2))
        made.append(t.result)
    found = {c.name: c.kind for c in diff_traces(*made, by="line").changes}
    assert found["model_of_a_test.py:2 (of A)"] == "gone" and found["model_of_a_test.py:2"] == "new"
    assert found["model_of_a_test.py:3"] not in ("gone", "new")
