"""Writers of runs: what they are told wrong, in the background and in other processes; and ranks that find their run late."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from luxmeter.errors import LuxmeterWarning, StoreError, UsageError
from luxmeter.process import Process
from luxmeter.store import (
    Lab,
    RankWriter,
    Run,
    RunWriter,
    activate,
    active_folder,
    active_run,
    background,
    beside,
    layout,
    run_around,
    run_of_job,
    runs_begun_here,
    tell_ranks,
)


def test_an_end_that_is_none(lab: Lab) -> None:
    run = lab.create_run("a")
    with pytest.raises(UsageError, match="run-end-state"):
        run.finish("lost")
    run.finish()
    run.finish("failed")  # later ones do nothing
    assert Run(run.folder).state == "finished"


class Hostile:
    """Is put into the buffer, and raises when it is read there."""

    def __float__(self) -> float:
        raise RuntimeError("read too late")


def test_what_the_background_could_not_keep_is_told_at_the_next_call(lab: Lab) -> None:
    with lab.create_run("a") as run:
        run.log({"y": 0.5}, step=0)
        run._queue.extend(("x", Hostile(), 0, 1))
        run.drain()
        with pytest.warns(LuxmeterWarning, match="read too late.*points-dropped"):
            run.log({"y": 1.0}, step=1)
    assert list(Run(run.folder).metrics) == ["y"]


def test_something_nobody_thought_of_ends_no_writer(lab: Lab) -> None:
    with lab.create_run("a") as run:
        run._objects.append(None)  # type: ignore[arg-type]  # no row at all
        run.drain()
        with pytest.warns(LuxmeterWarning, match="store-internal"):
            run.flush()
        run.log({"x": 1.0}, step=0)
    assert [p.value for p in Run(run.folder).metric("x")] == [1.0]


def test_a_disk_that_refuses_at_the_very_end_is_told(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    run = lab.create_run("a")
    run.log({"x": 1.0}, step=0)
    with (
        monkeypatch.context() as patch,
        pytest.warns(LuxmeterWarning, match="No space left.*store-cannot-write"),
    ):
        patch.setattr("luxmeter.store.writer.compact_run", refuse)
        run.finish()
    assert [p.value for p in Run(run.folder).metric("x")] == [1.0]


def _log_object_first(folder: Path, run: RunWriter) -> None:
    run.log({"words": "of the child"}, step=1)
    run.log({"x": 2.0}, step=1)


def test_the_first_of_a_forked_child_may_be_an_object(lab: Lab) -> None:
    with lab.create_run("a") as run:
        run.log({"x": 1.0}, step=0)
        run.flush()
        child = multiprocessing.get_context("fork").Process(target=_log_object_first, args=(run.folder, run))
        child.start()
        child.join()
        assert child.exitcode == 0
    read = Run(run.folder)
    assert [row["text"] for row in read.objects("words")] == ["of the child"]
    assert sorted(p.value for p in read.metric("x")) == [1.0, 2.0]


def test_a_run_that_ended_stays_ended_in_a_child(lab: Lab) -> None:
    run = lab.create_run("a")
    run.finish()
    run.after_fork()
    with pytest.raises(StoreError, match="run-ended"):
        run.metric("x", 1.0, 0)


class Member:
    def __init__(self) -> None:
        self.drained = 0

    def drain(self) -> None:
        self.drained += 1
        background.remove(self)  # from the thread that writes: it must not wait for itself

    def after_fork(self) -> None: ...

    def at_exit(self) -> None: ...


def test_the_writer_lets_go_of_who_leaves_while_it_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "FLUSH_EVERY_S", 0.001)
    member = Member()
    background.add(member)
    background.add(member)  # twice is once
    deadline = time.monotonic() + 30
    while not member.drained and time.monotonic() < deadline:
        time.sleep(0.001)
    background.remove(member)
    background.remove(member)
    assert member.drained == 1


# -- which run is active ----------------------------------------------------------------------------------------------


def test_the_run_that_is_active_in_threads_and_ranks(lab: Lab, tmp_path: Path) -> None:
    assert active_run() is run_around() is active_folder() is None
    with lab.create_run("a") as run, activate(run):
        assert active_run() is run_around() is run and active_folder() == run.folder
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.extend((active_run(), run_around())))
        thread.start()
        thread.join()
        assert found == [run, run] and run.folder in runs_begun_here()

        def other() -> None:
            with lab.create_run("of a thread") as inner, activate(inner):
                found.append(inner)
                entered.set()
                leave.wait()

        entered, leave = threading.Event(), threading.Event()
        thread = threading.Thread(target=other)
        thread.start()
        entered.wait()
        ended = lab.create_run("ended")
        with activate(ended):
            ended.finish()
            assert run_around() is ended or run_around() is run
        leave.set()
        thread.join()
    assert run_around() is None
    writer = RankWriter(1, lab.folder, lambda: None)
    with beside(writer):
        assert active_folder(0.0) is None
        writer.join(run.folder)
        assert active_folder() == run.folder
    writer.finish()


# -- ranks ------------------------------------------------------------------------------------------------------------


def test_a_rank_that_never_finds_its_run_keeps_nothing_and_says_nothing(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("luxmeter.store.rank_writer._PATIENCE_S", 0.0)
    writer = RankWriter(1, lab.folder, lambda: None)
    writer.log({"x": 1.0}, step=0)
    writer._blame(OSError(28, "No space left"))
    writer.drain()
    assert writer.found(0.0) is None
    writer.finish()
    assert list((lab.folder / layout.RUNS).iterdir()) == []


def test_a_blob_of_a_rank_without_a_run_is_lost_and_training_goes_on(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("luxmeter.store.rank_writer._PATIENCE_S", 0.0)
    writer = RankWriter(1, lab.folder, lambda: None)
    writer.log({"array": np.zeros(5000)}, step=0)
    assert writer.lost_rows == 1
    writer.finish()


def test_what_a_rank_logged_before_it_found_its_run_is_in_it(lab: Lab) -> None:
    found: list[Path] = []
    with lab.create_run("a") as run:
        writer = RankWriter(1, lab.folder, lambda: found[0] if found else None)
        writer.log({"x": 1.0}, step=0)
        writer.drain()
        found.append(run.folder)
        writer.finish()  # finds it at its end
        writer.join(run.folder)  # it is there already
        late = RankWriter(2, lab.folder, lambda: None)
        late.log({"x": 2.0}, step=0)
        late.join(run.folder)
        assert late.found() == run.folder
        late.finish()
    read = Run(run.folder)
    assert read.ranks == [1, 2]
    assert [read.metric("x", rank=rank)[0].value for rank in (1, 2)] == [1.0, 2.0]
    with pytest.raises(StoreError, match="rank-not-logged"):
        read.metric("x", rank=3)


def test_a_rank_whose_run_comes_while_it_ends(lab: Lab) -> None:
    """It is looked for once more, with patience, if there is something to be put down."""
    with lab.create_run("a") as run:
        answers: list[Path | None] = [None, None, run.folder]
        writer = RankWriter(1, lab.folder, lambda: answers.pop(0) if len(answers) > 1 else answers[0])
        background.remove(writer)
        writer.log({"x": 1.0}, step=0)
        writer.finish()
        assert len(answers) == 1
    assert Run(run.folder).metric("x", rank=1)[0].value == 1.0


def test_the_run_of_a_job_is_that_of_this_job(lab: Lab) -> None:
    """Notes of an earlier job of the same name, of a newer version, or damaged ones name none."""
    place = lab.folder / layout.RANKS
    assert run_of_job(lab.folder, "job", "a") is None
    with lab.create_run("a") as run:
        tell_ranks(lab.folder, "job", "a", run.id)
        assert run_of_job(lab.folder, "job", "a") == run.folder
        assert (
            run_of_job(lab.folder, "job", "b") is None
            and run_of_job(lab.folder, "job", "a", [run.folder]) is None
        )
        note = place / "job.json"
        said = json.loads(note.read_text())

        def with_note(**changes: Any) -> Path | None:
            runs = [{**said["runs"][0], **changes.pop("of_run", {})}]
            note.write_text(json.dumps({**said, "runs": runs, **changes}))
            return run_of_job(lab.folder, "job", "a")

        assert with_note() == run.folder
        assert with_note(format=99) is None and with_note(runs=7) is None
        assert with_note(of_run={"run": "../out"}) is None and with_note(of_run={"written_ns": "x"}) is None
        assert with_note(of_run={"run": "gone-1"}) is None
        before = {"written_ns": int((Process.here().started - 60) * 1e9)}
        assert with_note(of_run=before) == run.folder, (
            "told before this process began, and rank 0 is at it still"
        )
    assert with_note(of_run=before) is None, "... and it has ended"
    note.write_text("{broken")
    assert run_of_job(lab.folder, "job", "a") is None
    tell_ranks(lab.folder, "job", "a", run.id)  # what is none of ours is written anew
    assert [one["run"] for one in json.loads(note.read_text())["runs"]] == [run.id]


def test_a_rank_whose_run_was_removed_says_so(lab: Lab) -> None:
    run = lab.create_run("a")
    writer = RankWriter(1, lab.folder, lambda: None)
    writer.join(run.folder)
    shutil.rmtree(run.folder)
    writer.log({"x": 1.0}, step=0)
    with pytest.warns(LuxmeterWarning, match="run-folder-gone"):
        writer.flush()
    writer.finish()
    with pytest.warns(LuxmeterWarning):
        run.log({"x": 1.0}, step=0)
        run.finish()
    assert not run.folder.exists() and os.getpid() == run._owner


# -- what is written at once ------------------------------------------------------------------------------------------


def test_names_that_another_source_has_get_that_source_before_them(lab: Lab) -> None:
    with lab.create_run("a") as run:
        run.log({"loss": 1.0}, step=0)
        run.log_from("tensorboard", {"loss": 2.0, "acc": 0.5}, step=0)
        run.log_from("wandb", {"acc": 0.6}, step=0)
        run.log_from("tensorboard", {"acc": 0.7}, step=1)
    read = Run(run.folder)
    assert {key: said["n"] for key, said in read.metrics.items()} == {
        "loss": 1, "tensorboard/loss": 1, "acc": 2, "wandb/acc": 1,
    }  # fmt: skip
    assert read.sources == {"tensorboard/loss": "tensorboard", "acc": "tensorboard", "wandb/acc": "wandb"}


def test_parameters_are_added_and_those_there_stay(lab: Lab) -> None:
    with lab.create_run("a", params={"lr": 0.1, "deep": {"a": 1}}) as run:
        run.add_params({"lr": 9.0, "deep": {"a": 9, "b": 2}, "new": True})
        run.add_params({"lr": 9.0})
        run.rename("b", parent="abcde-1")
    read = Run(run.folder)
    assert read.params == {"lr": 0.1, "deep": {"a": 1, "b": 2}, "new": True}
    assert read.params.deep.b == read.params["deep.b"] == 2 and (read.name, read.parent) == ("b", "abcde-1")
    with pytest.raises(AttributeError, match="deap"):
        _ = read.params.deap
    assert [row.name for row in lab.runs("param.deep.b = 2")] == ["b"]


def test_files_that_were_watched_are_read_by_their_names(lab: Lab) -> None:
    from luxmeter.experiment.capture.watch_files import to_batch
    from luxmeter.store import FileChange

    with lab.create_run("a") as run:
        name = run.put_blob(b"kept")
        seen = [("a.txt", name, True), ("b.txt", "0" * 64, False)]
        run.append_rows(
            "files",
            to_batch(
                [FileChange(path, "/out", "out", "created", sha, 4, 1, kept) for path, sha, kept in seen]
            ),
        )
    read = Run(run.folder)
    names = read.files
    assert read.read_file(names[0]) == b"kept"
    with pytest.raises(StoreError, match="file-not-kept"):
        read.read_file(names[1])


def test_traces_of_no_run_have_folders_of_their_own(lab: Lab) -> None:
    one, two = lab.new_trace(), lab.new_trace()
    assert one != two and one.parent == two.parent == lab.folder / layout.TRACES
