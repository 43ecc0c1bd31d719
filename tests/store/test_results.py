"""Results in a run: put, numbered, found by name, read back, and what of them may come from elsewhere."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from luxmeter.errors import LuxmeterWarning, StoreError, UsageError
from luxmeter.store import (
    Lab,
    Run,
    RunWriter,
    activate,
    find_result,
    put_result,
    results_folder,
    results_into,
    results_of,
    split_name,
    without_results,
)


@pytest.fixture
def run(tmp_path: Path) -> RunWriter:
    return Lab.open(tmp_path / "lab").create_run("r")


def put(text: str, kind: str = "bench") -> Path | None:
    return put_result(kind, f"title of {text}", "x.json", lambda path: path.write_text(text))


def test_a_result_rests_in_the_active_run_and_nowhere_else(run: RunWriter) -> None:
    assert put("outside") is None
    with run, activate(run):
        first, second = put("one"), put("two")
        with without_results():
            assert put("a step on the way") is None
    assert put("after the end") is None
    assert first == run.folder / "results" / "bench" / "0001" / "x.json"
    assert second is not None and second.read_text() == "two"
    found = Run(run.folder).results("bench")
    assert [(r.name, r.title, r.path) for r in found] == [
        ("bench~1", "title of one", first),
        ("bench", "title of two", second),
    ]
    assert Run(run.folder).record()["results"][1]["name"] == "bench"
    assert Run(run.folder).results("model") == [] and Run(run.folder).model is None


def test_the_same_as_the_last_is_not_written_again(run: RunWriter) -> None:
    with run, activate(run):
        assert put("same") == put("same")
        other, back = put("other"), put("same")
    assert len(results_of(run.folder)) == 3 and other != back


def test_results_can_be_put_into_a_run_that_has_ended(run: RunWriter) -> None:
    run.finish()
    with results_into(run.folder):
        put("later")
    assert [r.title for r in results_of(run.folder)] == ["title of later"]
    with results_into(None):
        assert results_folder() is None


def test_threads_that_put_at_once_overwrite_nothing(run: RunWriter) -> None:
    with run, activate(run):
        threads = [threading.Thread(target=put, args=(f"{n}",)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = results_of(run.folder, "bench")
    assert {r.path.read_text() for r in found} == {str(n) for n in range(16)}
    names = sorted(path.name for path in (run.folder / "results" / "bench").iterdir())
    assert names == [f"{n:04}" for n in range(1, 17)]


def test_what_cannot_be_written_warns_and_leaves_nothing(run: RunWriter) -> None:
    def broken(path: Path) -> None:
        path.write_text("half")
        raise OSError("no room")

    with run, activate(run), pytest.warns(LuxmeterWarning, match=r"no room.*result-not-put"):
        assert put_result("bench", "t", "x.json", broken) is None
    assert not list((run.folder / "results" / "bench").iterdir())


def test_a_removed_run_is_not_made_again(run: RunWriter) -> None:
    import shutil

    with activate(run):
        shutil.rmtree(run.folder)
        with pytest.warns(LuxmeterWarning, match="result-not-put"):
            put("late")
        assert not run.folder.exists()
    with pytest.warns(LuxmeterWarning):
        run.finish()


def test_of_ranks_that_share_a_run_the_first_writes(run: RunWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    with run, activate(run):
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
        assert results_folder() == run.folder  # its own run
        monkeypatch.setattr(run, "_owner", os.getpid() + 1)  # as in a process that was forked inside the run
        assert results_folder() is None
        monkeypatch.setenv("RANK", "0")
        assert results_folder() == run.folder


def test_names() -> None:
    assert split_name("latest~2/bench~1") == ("latest~2", "bench", 1)
    assert split_name("a/b/trace") == ("a/b", "trace", 0)
    for other in ("bench", "latest", "latest/checks", "a/bench/x", "a/bench~", "a/bench~x"):
        assert split_name(other) is None


def test_what_is_not_there_says_what_is(run: RunWriter) -> None:
    with run, activate(run):
        put("one")
        with pytest.raises(StoreError, match=r"has no model. It has bench.*result-missing"):
            find_result(run.folder, "model")
        with pytest.raises(StoreError, match=r"has 1 of bench"):
            find_result(run.folder, "bench", 1)
        with pytest.raises(UsageError, match="result-kind"):
            Run(run.folder).results("benchmark")


@pytest.mark.parametrize(
    "head",
    [
        {"file": "../../run.json"}, {"file": "/etc/passwd"}, {"file": ".."}, {"file": 3}, {"title": None},
        {"made_ns": "now"}, {"kind": "model"}, {"format": 99}, {"format": True},
    ],
)  # fmt: skip
def test_a_head_from_elsewhere_is_not_believed(run: RunWriter, head: dict[str, object]) -> None:
    with run, activate(run):
        path, _ = put("one"), put("two")
    assert path is not None
    file = path.parent / "result.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **head}))
    bad, good = results_of(run.folder, "bench")
    assert good.title == "title of two" and bad.title.startswith("cannot be read")
    assert bad.path.parent.parent == run.folder / "results"
    with pytest.raises(StoreError, match=r"run-damaged|result-format"):
        bad.load()


def test_links_and_strange_names_are_no_results(run: RunWriter, tmp_path: Path) -> None:
    with run, activate(run):
        path = put("one")
    assert path is not None
    place = path.parents[1]
    (place / "0002").symlink_to(path.parent)
    (place / "..x").mkdir()
    (place / "..x" / "result.json").write_text("{}")
    assert len(results_of(run.folder, "bench")) == 1
    outside = tmp_path / "secret"
    outside.write_text("secret")
    path.unlink()
    path.symlink_to(outside)
    assert results_of(run.folder, "bench")[0].title.startswith("cannot be read")


def test_a_damaged_trace_hides_no_other(run: RunWriter) -> None:
    calls = run.folder / "calls"
    for name, text in (("a", '{"started_at": 1e999}'), ("b", "{"), ("c", "[]"), ("d", '{"started_at": 5.5}')):
        (calls / name).mkdir(parents=True)
        (calls / name / "trace.json").write_text(text)
    (calls / "d" / "rank0-1").mkdir()
    (calls / "d" / "rank0-1" / "events").mkdir()
    (calls / "d" / "rank0-1" / "events" / "0000.parquet").write_bytes(b"PAR1 and nothing")
    found = Run(run.folder).results("trace")
    assert [result.folder.name for result in found] == ["a", "b", "c", "d"] and found[
        -1
    ].made_ns == 5_500_000_000
    assert found[-1].title.startswith("cannot be read") and found[0].title == "no calls"
    run.finish()


def test_a_folder_that_cannot_get_its_number_is_told(run: RunWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two that take the same number one takes the next; a disk that refuses is no such case."""
    with run, activate(run):
        assert put("one") is not None
        real, refused = Path.rename, [OSError(28, "No space left on device")]

        def rename(path: Path, target: Path) -> Path:
            if refused:
                raise refused.pop()
            target.mkdir()  # another process was faster
            (target / "result.json").write_text("{}")
            monkeypatch.setattr(Path, "rename", real)
            return real(path, target)

        monkeypatch.setattr(Path, "rename", rename)
        with pytest.warns(LuxmeterWarning, match=r"No space left.*result-not-put"):
            assert put("two") is None
        found = put("three")
        assert found is not None and found.parent.name == "0003"


def test_a_result_is_loaded_by_its_kind(run: RunWriter) -> None:
    source = Path(__file__).parents[1] / "golden" / "inputs" / "bench-a.json"
    with run, activate(run):
        put_result("bench", "a benchmark", "x.json", lambda path: path.write_bytes(source.read_bytes()))
    read = Run(run.folder)
    assert read.bench is not None and len(read.bench) == len(find_result(run.folder, "bench").load())
    assert "bench" in read._repr_html_()
    with pytest.raises(StoreError, match="has 1 of bench"):
        find_result(run.folder, "bench", 1)
