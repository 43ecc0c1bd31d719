"""What a run prints: its beginning and its end are kept, and followed while it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from luxmeter.store import OutputFile, Run
from luxmeter.store.output_follower import OutputFollower
from luxmeter.store.records import read_output, read_output_beginning, read_output_end


def lines(count: int, start: int = 0) -> str:
    return "".join(f"line {number:05}\n" for number in range(start, start + count))


def test_a_short_one_is_kept_whole(tmp_path: Path) -> None:
    file = OutputFile(tmp_path)
    file.append(lines(3))
    assert read_output(tmp_path) == lines(3) == read_output_beginning(tmp_path, 1000)
    file.close()
    assert read_output(tmp_path) == lines(3) and read_output_end(tmp_path) == lines(3)


@pytest.mark.parametrize("count", [90, 1000])
def test_of_a_long_one_beginning_and_end_are_kept(tmp_path: Path, count: int) -> None:
    """While it goes on, and after."""
    file = OutputFile(tmp_path, most_bytes=1200)
    for number in range(count):
        file.append(lines(1, number))
    going = read_output(tmp_path)
    assert going.startswith(lines(54)) and going.endswith(lines(20, count - 20))
    assert read_output_end(tmp_path, 50) == lines(4, count - 4)
    file.close()
    whole = read_output(tmp_path)
    assert whole.startswith(lines(54)) and whole.endswith(lines(20, count - 20)) and len(whole) < 1400
    assert ("bytes left out" in whole) is (count == 1000)
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["output.log"]


def test_a_single_text_longer_than_all_leaves_its_end(tmp_path: Path) -> None:
    file = OutputFile(tmp_path, most_bytes=400)
    file.append("x" * 5000 + "end\n")
    file.close()
    assert read_output(tmp_path).endswith("xend\n") and "bytes left out" in read_output(tmp_path)


def test_where_nothing_was_printed(tmp_path: Path) -> None:
    assert read_output(tmp_path) == read_output_beginning(tmp_path, 10) == read_output_end(tmp_path) == ""
    assert OutputFollower(tmp_path).new() == ""


def test_a_follower_gives_only_what_came(tmp_path: Path) -> None:
    file = OutputFile(tmp_path, most_bytes=1200)
    file.append("before\n")
    follower, known = OutputFollower(tmp_path), OutputFollower(tmp_path).skip()
    assert (follower.new(), known.new(), follower.new()) == ("before\n", "", "")
    seen = ""
    for number in range(400):  # past the limit, where the end is in files that take turns
        file.append(lines(1, number))
        seen += known.new()
        if number % 7 == 0:
            known = OutputFollower(tmp_path, known.position)
    assert seen == lines(400)
    file.close()


def test_a_letter_torn_in_two_is_put_together(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "output.log"
    data = "ä".encode()
    log.write_bytes(data[:1])
    follower = OutputFollower(tmp_path)
    assert follower.new() == ""
    log.write_bytes(data)
    assert follower.new() == "ä"


def test_a_file_that_begins_anew_is_read_anew(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "output.log"
    log.write_text("first text")
    follower = OutputFollower(tmp_path)
    assert follower.new() == "first text"
    log.write_text("second")  # the same file, shorter
    assert follower.new() == "second"
    number = log.stat().st_ino
    with open(log, "r+") as file:  # ... and with another beginning
        file.write("third, which is longer")
    assert log.stat().st_ino == number and follower.new() == "third, which is longer"


def test_of_very_much_only_the_end_is_read(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "output.log").write_text("a" * (1 << 18) + "end")
    assert len(OutputFollower(tmp_path).new()) == 1 << 18


def test_a_run_gives_a_follower(tmp_path: Path) -> None:
    from luxmeter.store import Lab

    with Lab.open(tmp_path / "lab").create_run("a") as run:
        follower = Run(run.folder).follow_output()
        OutputFile(run.folder).append("said\n")
        assert follower.new() == "said\n" and follower.position
    assert [path.name for path in (run.folder / "logs").iterdir()] == ["output.log"]
