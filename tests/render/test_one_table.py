"""The one table: kinds of columns, what is left out where it is narrow, and that nothing in it steers a terminal."""

from __future__ import annotations

import io
import os
import pty
import re

import pytest

from luxmeter.calls.table import CallTable, Row
from luxmeter.render import table_html
from luxmeter.render.table import (
    AMOUNT,
    BYTES,
    DURATION,
    NUMBER,
    SHARE,
    Column,
    Kind,
    Table,
    shortened,
    terminal_width,
)

ROWS = [["torch.nn.functional.linear", 12.5, 3.25, 0.4]]
COLUMNS = [Column("api"), Column("total ms", NUMBER, goes=2), Column("mean us", NUMBER, goes=1), Column("share", SHARE, goes=2)]  # fmt: skip


class Screen(io.StringIO):
    """A terminal that is so many columns wide."""

    def isatty(self) -> bool:
        return True


def printed(table: Table, columns: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """What stands on a terminal, without its colours, and which columns found no room."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "dumb")
    screen = Screen()
    left_out = table.print(screen)
    return screen.getvalue().splitlines(), left_out


def test_columns_go_in_their_order_until_a_line_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    def heads(width: int | None) -> list[str]:
        return Table(COLUMNS, ROWS).text(width).splitlines()[0].split()

    everything = ["api", "total", "ms", "mean", "us", "share"]
    assert heads(None) == heads(200) == heads(52) == everything
    assert heads(51) == ["api", "total", "ms", "share"]  # the lowest number first
    assert heads(30) == ["api"]  # those of one number together
    assert printed(Table(COLUMNS, ROWS), 45, monkeypatch)[1] == ["mean us"]
    assert printed(Table(COLUMNS, ROWS), 30, monkeypatch)[1] == ["total ms", "mean us", "share"]
    assert printed(Table(COLUMNS, ROWS), 200, monkeypatch)[1] == []


def test_one_column_always_stays() -> None:
    assert (
        Table([Column("a", goes=1), Column("b", goes=2)], [["x" * 30, "y" * 30]]).text(10).split()[0] == "b"
    )


def test_the_kind_says_how_a_value_is_written_and_where_it_stands() -> None:
    table = Table(
        [Column("t"), Column("n", NUMBER), Column("a", AMOUNT), Column("d", DURATION), Column("b", BYTES), Column("s", SHARE),
         Column("us", DURATION, unit="us", form=",.1f")],
        [["x", 12345.6, 4089184256, 1234567, 102228128, 0.1234, 1234567], [True, None, 7, None, 100, None, None]],
    )  # fmt: skip
    assert table.cells == [
        ["x", "12,346", "4.09 G", "1.23 ms", "97.5 MiB", "12.3%", "1,234.6"],
        ["yes", "-", "7", "-", "100 B", "-", "-"],
    ]
    lines = table.text().splitlines()
    assert lines[0] == "t         n       a        d         b      s       us"
    assert lines[2] == "yes       -       7        -     100 B      -        -"
    assert all(Column("x", kind).text("reference") == "reference" for kind in Kind)  # a word among numbers


def test_a_table_keeps_raw_values() -> None:
    assert Table(COLUMNS, ROWS).records() == [
        {"api": "torch.nn.functional.linear", "total ms": 12.5, "mean us": 3.25, "share": 0.4}
    ]


def test_columns_that_say_nothing_are_hidden() -> None:
    columns = [
        Column("a"),
        Column("b", hidden="empty"),
        Column("c", NUMBER, hidden="same"),
        Column("d", hidden="same"),
    ]
    table = Table(columns, [["x", "", 1, "p"], ["y", None, 1, "q"]])
    assert table.names == ["a", "d"] and table.cells == [["x", "p"], ["y", "q"]]
    assert Table(columns, [["x", "", 1, "p"], ["y", "z", 2, "p"]]).names == ["a", "b", "c"]


def test_numbers_stand_to_the_right_also_where_one_is_missing() -> None:
    text = Table([Column("api"), Column("ms", NUMBER)], [["a", 1.5], ["bb", 100.5], ["c", None]]).text()
    assert text.splitlines() == ["api     ms", "a      1.5", "bb   100.5", "c        -"]


def test_text_is_folded_and_a_number_never(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table([Column("words"), Column("n", NUMBER, form=",")], [["one two three four", 1234567890]])
    lines, _ = printed(table, 30, monkeypatch)
    assert len(lines) == 3 and sum("1,234,567,890" in line for line in lines) == 1


def test_in_a_pipe_no_line_is_broken() -> None:
    long = "word " * 100
    assert (
        Table([Column("a"), Column("b")], [[long, long]]).text().splitlines()[1] == f"{long}  {long}".rstrip()
    )


def test_a_text_is_cut_where_it_is_longer_than_asked() -> None:
    assert shortened("abcdefgh", 6) == "abc..." and shortened("abcdef", 6) == "abcdef" == shortened(
        "abcdef", None
    )
    assert Table([Column("a", most=6)], [["abcdefgh"]]).cells == [["abc..."]]
    shrinks = Table([Column("a", least=8), Column("n", NUMBER)], [["abcdefghijklmnop", 1]])
    assert shrinks.text(15).splitlines()[1] == "abcdefghi...  1"
    assert shrinks.text(5).splitlines()[1] == "abcde...  1"  # no further than that


EVIL = "a\x1b[31mb\u202ec\nd\te[bold]f[/]"


@pytest.mark.parametrize("on_screen", [False, True])
def test_nothing_in_a_table_steers_a_terminal(on_screen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table([Column(EVIL), Column("n", NUMBER)], [[EVIL, EVIL]], title=EVIL, notes=[EVIL])
    text = "\n".join(printed(table, 300, monkeypatch)[0]) if on_screen else table.text()
    assert "\x1b[31m" not in text and "\u202e" not in text
    title, head, row, *note = text.splitlines()  # and a value takes no line of its own
    spelled = r"a\x1b[31mb\u202ec\nd\te[bold]f[/]"
    assert title == spelled and spelled in head and row.count(spelled) == 2
    assert note == [r"a\x1b[31mb\u202ec", "d\te[bold]f[/]"]  # a note may have several lines


def test_the_width_of_a_terminal_and_of_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert terminal_width(io.StringIO()) is None
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0), os.fdopen(theirs, "w") as stream:
        import fcntl
        import struct
        import termios

        fcntl.ioctl(stream.fileno(), termios.TIOCSWINSZ, struct.pack("HHHH", 24, 77, 0, 0))
        assert terminal_width(stream) == 77
        monkeypatch.setenv("COLUMNS", "50")
        assert terminal_width(stream) == 50


def row(name: str, detail: str) -> Row:
    return Row(name, 10, 10_000, 9_000, 1000.0, 1, 2, 3, 4, 5, 6, 0.5, detail)


def test_a_table_of_calls_fits() -> None:
    rows = [row("torch.nn.functional.linear", "f32[4,64,128], f32[5000,128], None"), row("+", "f32[1]")]
    for by, heads in (("api", ["api", "n", "self"]), ("signature", ["signature", "of", "n", "self"])):
        table = CallTable(rows, by=by)
        assert "first" in table.text() and len(table.text().splitlines()[0]) > 100
        narrow = table.text(width=72).splitlines()
        assert max(map(len, narrow)) <= 72 and "first" not in narrow[0] and "share" in narrow[0]
        assert [word for word in narrow[0].split() if word in heads] == heads
    shown = "\n".join(narrow)
    assert "f32[4,64,128]," in shown and "f32[5000,128], None" in shown  # folded, no shape cut


def test_text_is_folded_before_a_column_goes() -> None:
    columns = [Column("name"), Column("why", folds=8), Column("n", NUMBER, goes=1)]
    table = Table(columns, [["abc", "some words that are long", 12345]])
    assert (
        table.text(21).splitlines()[0].split() == ["name", "why", "n"]
        and len(table.text(21).splitlines()) > 2
    )
    assert table.text(20).splitlines()[0].split() == ["name", "why"]


def test_a_number_is_never_cut() -> None:
    table = Table(
        [Column("words"), Column("a", NUMBER), Column("b", AMOUNT)], [["one two three", 1234567, 6910]]
    )
    for width in range(1, 40):
        assert "1234567" in table.text(width) and "6.91 K" in table.text(width)


@pytest.mark.parametrize(
    ("given", "most", "shown"),
    [
        ("Linear(in_features=64, out_features=256), f32[32,64]", None, "f32[32,64], Linear(in_features=64, out_features=256)"),
        ("Linear(in_features=64, out_features=256, bias=True), f32[32,64]", 48, "f32[32,64], Linear(64, 256, True)"),
        ("f32[2,3], f32[3], dim=1", 48, "f32[2,3], f32[3], dim=1"),
        ("f32[128,128,128,128], f32[128,128,128], i64[9]", 30, "f32[128,128,128,128], f32[128,128,128], i64[9]"),
        ("f32[2,3], a_rather_long_word_of_many_letters=1", 30, None),
        ("<a.b.Block>, f32[2,3]", None, "f32[2,3], <a.b.Block>"),
        ("<a.b.Block>", None, "<a.b.Block>"),
        ("Linear(in_features=64), 3", None, "Linear(in_features=64), 3"),
        ("Linear(in_features=[4, ", None, "Linear(in_features=[4, "),
    ],
)  # fmt: skip
def test_a_signature_has_its_shapes_first_and_keeps_them(
    given: str, most: int | None, shown: str | None
) -> None:
    found = Column("signature", is_signature=True, most=most).text(given)
    assert shown is None or found == shown
    assert [shape for shape in re.findall(r"\w+\[[\d,]+\]", given) if shape not in found] == []
    assert most is None or len(found) <= most or found == given


def test_a_table_tells_apart_what_is_too_long_to_show_whole() -> None:
    layer = "Conv2d(in_channels=3, out_channels={}, kernel_size=(7, 7), stride=(2, 2), padding=(3, 3)), f32[1,3,224,224]"
    table = Table(
        [Column("op"), Column("of", is_signature=True, most=30)],
        [["conv", layer.format(64)], ["conv", layer.format(65)], ["linear", "f32[1,1]"], ["conv", layer.format(64)]],
    )  # fmt: skip
    shown = [line[1] for line in table.cells]
    assert shown[0] == shown[3] != shown[1] and shown[2] == "f32[1,1]"
    assert all(text.startswith("f32[1,3,224,224], Conv2d(3, 6") and "..." in text for text in shown[:2])
    page = table_html(table)
    assert shown[0] in page and shown[1] in page


def test_two_sizes_of_one_layer_look_different() -> None:
    column = Column("signature", is_signature=True, most=40)
    layer = "Conv2d(in_channels=3, out_channels=64, kernel_size=(7, 7), stride=(2, 2), padding=(3, 3)), f32[{},3,224,224]"
    assert column.text(layer.format(1)) != column.text(layer.format(8))
    assert column.text("Linear(in_features=64, out_features=256, bias=True), f32[32,64]") != column.text(
        "Linear(in_features=64, out_features=512, bias=True), f32[32,64]"
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [(9999.96, "10,000"), (12345.6, "12,346"), (999.96, "1000"), (0.12345, "0.1235"), (3e-9, "3e-09")],
)
def test_a_number_is_no_power_of_ten_that_a_person_can_read(value: float, shown: str) -> None:
    assert Column("x", NUMBER).text(value) == shown


def test_a_page_cuts_no_text_and_a_row_may_be_called_minus() -> None:
    columns = [Column("API"), Column("of", is_signature=True), Column("note", most=8), Column("n", NUMBER)]
    given = "Linear(in_features=64, out_features=256, bias=True), f32[32,64]"
    made = table_html(Table(columns, [["-", given, "x" * 30, None], ["mm", "-", "-", 3]]))
    assert '<td class="w">-</td>' in made  # subtraction
    assert made.count("lux-none") == 3  # nothing: the rest of the dashes
    assert ">f32[32,64], Linear(in_features=64" in made and "x" * 30 in made
