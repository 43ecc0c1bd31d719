"""The logger: any values, levels, files, listeners, ranks, and its place in stdlib logging."""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from luxmeter import Logger, Meter
from luxmeter.errors import LuxmeterWarning, UsageError
from luxmeter.experiment.log.logger import LogLine


@pytest.fixture
def logger(request: pytest.FixtureRequest) -> Iterator[Logger]:
    with Logger(f"test.{request.node.name}") as made:
        yield made


def test_any_values(logger: Logger, capsys: pytest.CaptureFixture[str]) -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("no")

    logger.info(1, 2, 3, {4: 4})
    logger.info()
    logger.info(
        "100% of %s", None, [1], torch.tensor([1.0]), np.array([2]), Meter({"a": 0.5}), b"x", prefix="p"
    )
    logger.warn(Broken())
    logger.error("two\nlines")
    out = capsys.readouterr().out
    assert f"INFO    test_log.py:{line_of('logger.info(1, 2, 3')} 1 2 3 {{4: 4}}\n" in out
    assert "p: 100% of %s None [1] tensor([1.]) [2] @a=0.5000 b'x'\n" in out
    assert "WARNING test_log.py" in out
    assert "<Broken that cannot be shown: RuntimeError>" in out
    assert "two\nlines\n" in out


def line_of(text: str) -> int:
    return next(
        i
        for i, line in enumerate(Path(__file__).read_text().splitlines(), 1)
        if line.strip().startswith(text)
    )


def test_a_logger_is_named_after_its_module(capsys: pytest.CaptureFixture[str]) -> None:
    logger = Logger()
    assert logger.name == __name__
    assert logger._log is logging.getLogger(__name__)
    Path("model.py").write_text("from luxmeter import Logger\nlogger = Logger()\nlogger.info('built')\n")
    done = subprocess.run(
        [sys.executable, "-c", "import model; print(model.logger.name)"], capture_output=True, text=True
    )
    assert done.stdout.splitlines()[0].endswith("INFO    model.py:3 built")
    assert done.stdout.splitlines()[1] == "model"


def test_levels(logger: Logger, capsys: pytest.CaptureFixture[str]) -> None:
    logger.debug("hidden")
    logger.set_level("debug")
    logger.debug("shown")
    logger.set_level("error")
    logger.warn("hidden")
    logger.fatal("end")
    try:
        raise ValueError("inner")
    except ValueError:
        logger.exception("failed")
    out = capsys.readouterr().out
    assert "hidden" not in out
    assert "shown" in out
    assert "CRITICAL" in out
    assert "ValueError: inner" in out
    with pytest.raises(UsageError, match="Did you mean 'warning'"):
        logger.set_level("warnin")


def test_a_level_given_before_stays() -> None:
    logging.getLogger("test.quiet").setLevel(logging.WARNING)
    assert Logger("test.quiet")._log.level == logging.WARNING
    Logger("test.loud").set_level("debug")
    assert Logger("test.loud")._log.level == logging.DEBUG


def test_values_that_are_not_shown_are_not_made_into_text(logger: Logger) -> None:
    class Costly:
        def __str__(self) -> str:
            raise AssertionError("read")

    logger.debug(Costly())
    logger.set_level("warn")
    logger.inline(Costly())


def test_other_handlers_get_the_records_too(logger: Logger, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        logger.info("hello", 3, prefix="p")
    record = caplog.records[-1]
    assert record.getMessage() == "p: hello 3"
    assert (record.name, record.funcName) == (logger.name, "test_other_handlers_get_the_records_too")


def test_a_child_module_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    parent, child = Logger("test.family"), Logger("test.family.child")
    again = Logger("test.family.child")
    child.info("once")
    again.info("twice")
    parent.info("thrice")
    out = capsys.readouterr().out
    assert [out.count(word) for word in ("once", "twice", "thrice")] == [1, 1, 1]


def test_the_stream_given_last_is_the_one(capsys: pytest.CaptureFixture[str]) -> None:
    Logger("test.twice").info("first")
    with open("own.txt", "w") as own:
        Logger("test.twice", stream=own).info("second")
        Logger("test").info("parent")
        Logger("test.twice", stream=own).info("third")
    out = capsys.readouterr().out
    assert [out.count(word) for word in ("first", "second", "parent", "third")] == [1, 0, 1, 0]
    assert [Path("own.txt").read_text().count(word) for word in ("second", "third")] == [1, 1]


def test_a_program_that_set_up_logging_itself_keeps_its_way(
    logger: Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = logging.StreamHandler(sys.stderr)
    theirs.setFormatter(logging.Formatter("theirs %(message)s"))
    logging.getLogger().addHandler(theirs)
    try:
        logger.info("hello")
    finally:
        logging.getLogger().removeHandler(theirs)
    out, err = capsys.readouterr()
    assert (out, err) == ("", "theirs hello\n")


def test_other_libraries_can_be_included(logger: Logger, capsys: pytest.CaptureFixture[str]) -> None:
    library = logging.getLogger("some.library")
    library.info("before")
    path = logger.add_log_dir("logs")
    logger.include("some.library", level="debug")
    library.debug("after %d", 3)
    assert "DEBUG   test_log.py" in (out := capsys.readouterr().out)
    assert "after 3" in out
    assert "before" not in out
    library.info("kept")
    assert "some.library test_log.py" in path.read_text()
    assert "after" not in path.read_text()  # the file asked for info and above


def test_log_files(logger: Logger, capsys: pytest.CaptureFixture[str]) -> None:
    other = Logger("test.other.module")
    path = logger.add_log_dir("logs/deep")
    assert path == Path("logs/deep/run.log").absolute()
    assert logger.add_log_dir("logs/deep") == path
    logger.info("one", {"a": "参数"}, prefix="p")
    other.info("two")
    late = Logger("test.late.module")
    late.info("three")
    logger.inline("not kept")
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 3
    assert lines[0].endswith("p: one {'a': '参数'}")
    assert lines[0][:2] == "20"
    assert "test.other.module test_log.py" in lines[1]
    logger.close()
    other.info("four")
    assert len(path.read_text(encoding="utf-8").splitlines()) == 3
    assert capsys.readouterr().out.count("four") == 1


def test_a_file_for_one_logger_only(logger: Logger) -> None:
    other = Logger("test.other.module")
    path = logger.add_log_dir("logs", name="mine", only_this=True)
    logger.info("one")
    other.info("two")
    assert path.name == "mine.log"
    assert "two" not in path.read_text()


def test_a_file_can_hold_more_than_the_console_shows(
    logger: Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    path = logger.add_log_dir("logs", level="debug", only_this=True)
    logger.debug("detail")
    assert "detail" in path.read_text()
    assert "detail" not in capsys.readouterr().out


def test_files_rotate(logger: Logger) -> None:
    path = logger.add_log_dir("logs", max_bytes=2000, backups=2, only_this=True)
    for i in range(100):
        logger.info("number", i)
    assert sorted(p.name for p in path.parent.iterdir()) == ["run.log", "run.log.1", "run.log.2"]
    assert all(p.stat().st_size <= 2000 for p in path.parent.iterdir())
    assert "number 99" in path.read_text()


def test_a_folder_that_cannot_be_made(logger: Logger) -> None:
    Path("file").write_text("")
    with pytest.raises(UsageError) as caught:
        logger.add_log_dir("file/logs")
    assert caught.value.slug == "log-folder"


def test_listeners(logger: Logger) -> None:
    seen: list[LogLine] = []
    logger.add_listener(seen.append)
    logger.info(1, "a", prefix="p")
    logger.inline(2)
    logger.debug("hidden")
    logger.remove_listener(seen.append)
    logger.info("unheard")
    assert [(line.level, line.prefix, line.text, line.values) for line in seen] == [
        ("info", "p", "p: 1 a", (1, "a")),
        ("inline", "", "2", (2,)),
    ]
    assert seen[0].name == logger.name


def test_a_listener_that_fails_is_dropped(logger: Logger, capsys: pytest.CaptureFixture[str]) -> None:
    calls = []

    def broken(line: LogLine) -> None:
        calls.append(line)
        raise RuntimeError("listener")

    logger.add_listener(broken)
    with pytest.warns(LuxmeterWarning, match="log-listener-failed"):
        logger.info("one")
    logger.info("two")
    assert len(calls) == 1
    assert "two" in capsys.readouterr().out


def test_every_so_many_calls_and_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    logger = Logger("test.every", clock=lambda: now)
    for i in range(10):
        logger.info("count", i, every=4)
        logger.info("other", i, every=5)
    for i in range(10):
        now += 1.0
        logger.info("timed", i, every_s=3)
    out = capsys.readouterr().out
    shown = {
        word: [int(line.split()[-1]) for line in out.splitlines() if f" {word} " in line]
        for word in ("count", "other", "timed")
    }
    assert shown == {"count": [0, 4, 8], "other": [0, 5], "timed": [0, 3, 6, 9]}


@pytest.mark.parametrize("all_ranks", [False, True])
def test_other_ranks_are_quiet_below_a_warning(
    all_ranks: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with Logger(f"test.rank.{all_ranks}", all_ranks=all_ranks) as logger:
        path = logger.add_log_dir("logs", only_this=True)
        logger.info("detail")
        logger.inline("line")
        logger.warn("careful")
    out = capsys.readouterr().out
    assert ("detail" in out) is all_ranks
    assert ("line" in out.split()) is all_ranks
    assert "[rank 1] careful" in out
    assert path.name == "run.rank1.log"
    assert "[rank 1] detail" in path.read_text()


def test_the_main_rank_says_which_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    Logger("test.main").info("hello")
    assert "[rank 0] hello" in capsys.readouterr().out


def test_threads(logger: Logger) -> None:
    path = logger.add_log_dir("logs", only_this=True)

    def write(number: int) -> None:
        for i in range(100):
            logger.info("thread", number, i)
            logger.inline(i)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = path.read_text().splitlines()
    assert len(lines) == 400
    assert all(line.split()[-3] == "thread" for line in lines)


def test_a_logger_goes_through_pickle(logger: Logger, capsys: pytest.CaptureFixture[str]) -> None:
    logger.set_level("warn")
    twin = pickle.loads(pickle.dumps(logger))
    twin.info("hidden")
    twin.warn("shown")
    out = capsys.readouterr().out
    assert "hidden" not in out
    assert out.count("shown") == 1
