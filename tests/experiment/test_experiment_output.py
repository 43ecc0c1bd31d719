"""What a program prints is kept, and the streams notice nothing."""

from __future__ import annotations

import io
import itertools
import logging
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import luxmeter as lux
from luxmeter.errors import LuxmeterWarning
from luxmeter.experiment.capture.output_text import PlainText
from luxmeter.store import records
from luxmeter.store.output_file import OutputFile


def shown(*pieces: str) -> str:
    text = PlainText()
    return "".join(text.feed(piece) for piece in pieces) + text.rest()


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (("a\n", "b"), "a\nb"),
        (("\x1b[31mred\x1b[0m\n",), "red\n"),
        (("\x1b[3", "1mred\x1b", "[0m\n"), "red\n"),
        (("\x1b]0;title\x07x\n", "\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\\n"), "x\nlink\n"),
        (("10%\r", "20%\r", "30%", "\r\n"), "30%\n"),
        (("\r10%", "\r20%", "\n"), "20%\n"),
        (("dos\r\nline\r", "\nend"), "dos\nline\nend"),
        (("50%\r", "100%"), "100%"),
        (("", "\r", "\n"), "\n"),
    ],
)
def test_text_as_it_stands_in_the_end(pieces: tuple[str, ...], expected: str) -> None:
    assert shown(*pieces) == expected


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(alphabet="ab\r\n\x1b[31m;"), st.lists(st.integers(0, 40), max_size=5))
def test_the_pieces_do_not_matter(text: str, cuts: list[int]) -> None:
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    assert shown(*pieces) == shown(text)


def test_streams_are_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = sys.stdout, sys.stderr
    log = logging.getLogger("probe")
    handler = logging.StreamHandler(err)  # holds the stream since before the experiment
    log.addHandler(handler)
    facts = [(s.isatty(), s.encoding, type(s), dict(vars(s))) for s in (out, err)]
    with lux.Experiment("out", quiet=True, code=False) as exp:
        assert sys.stdout is out and sys.stderr is err
        assert [(s.isatty(), s.encoding, type(s)) for s in (out, err)] == [fact[:3] for fact in facts]
        print("to stdout \N{SNOWMAN}")
        sys.stdout.writelines(["a", "b\n"])
        log.warning("through a handler")
        with lux.Experiment("inner", quiet=True, code=False) as inner:
            print("both")
        print("\x1b[1mbold\x1b[0m")
    log.removeHandler(handler)
    print("after")
    assert [(s.isatty(), s.encoding, type(s), dict(vars(s))) for s in (out, err)] == facts
    assert exp.run.log_text == "to stdout \N{SNOWMAN}\nab\nthrough a handler\nboth\nbold\n"
    assert inner.run.log_text == "both\n"
    seen = capsys.readouterr()
    assert seen.out == "to stdout \N{SNOWMAN}\nab\nboth\n\x1b[1mbold\x1b[0m\nafter\n"
    assert seen.err == "through a handler\n"


def test_streams_that_others_change(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = io.StringIO()
    with lux.Experiment("out", quiet=True, code=False) as exp:
        print("first")
        monkeypatch.setattr(sys, "stdout", mine)  # not listened to: it came later
        print("second")
    assert sys.stdout is mine and mine.getvalue() == "second\n" and "write" not in vars(mine)
    assert exp.run.log_text == "first\n"
    patched = io.StringIO()
    own = patched.write
    monkeypatch.setattr(sys, "stdout", patched)
    patched.write = lambda text: own(text.upper())  # type: ignore[method-assign]
    before = patched.write
    with lux.Experiment("out", quiet=True, code=False) as exp:
        print("third")
    assert patched.write is before and patched.getvalue() == "THIRD\n"
    monkeypatch.setattr(sys, "stdout", None)
    with lux.Experiment("none", quiet=True, code=False):
        print("nowhere")


def test_an_end_that_does_not_follow_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    first = lux.Experiment("a", quiet=True, code=False).start_exp()
    second = lux.Experiment("b", quiet=True, code=False).start_exp()
    first.end_exp()
    print("only the second")
    second.end_exp()
    assert first.run.log_text == "" and second.run.log_text == "only the second\n"
    assert "write" not in vars(sys.stdout)


def test_long_output_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    file = OutputFile(tmp_path, most_bytes=4000)
    for number in range(5000):
        file.append(f"line {number}\n")
    while_it_lives = records.read_output(tmp_path)
    file.close()
    text = records.read_output(tmp_path)
    assert text.startswith("line 0\nline 1\n") and text.endswith("line 4998\nline 4999\n")
    assert "bytes left out ...]" in text and "some output left out" in while_it_lives
    assert len(text) < 4200 and [path.name for path in file.path.parent.iterdir()] == ["output.log"]
    left_out = int(text.split("[... ")[1].split(" bytes")[0].replace(",", ""))
    whole = sum(len(f"line {number}\n") for number in range(5000))
    assert whole - left_out == len(text) - len(records.left_out_line(left_out))


def test_a_full_disk_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: OutputFile, text: str) -> None:
        raise OSError(28, "No space left on device")

    with lux.Experiment("full", quiet=True, code=False) as exp:
        monkeypatch.setattr(OutputFile, "append", full)
        with pytest.warns(LuxmeterWarning, match="output-not-kept"):
            print("one")
        print("two")
        exp.log({"loss": 1.0})
    assert exp.state == "finished"


def test_output_can_be_left_out() -> None:
    with lux.Experiment("quiet", quiet=True, output=False) as exp:
        print("not kept")
    assert exp.run.log_text == "" and not (exp.folder / "logs").exists()
