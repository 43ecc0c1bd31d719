"""Tables for a terminal: what is left out where it is narrow, and that numbers are never broken."""

from __future__ import annotations

import io
import os
import pty

from luxmeter.render.tables import print_table, terminal_width, that_fit

from luxmeter.calls.table import CallTable, Row

ROWS = [["torch.nn.functional.linear", "12.5", "3.25", "40.0%"]]
COLUMNS = ["api", "total ms", "mean us", "share"]


def test_columns_go_in_their_order_until_a_line_fits() -> None:
    def fit(width: int | None) -> list[int]:
        return that_fit(COLUMNS, ROWS, width=width, expendable=[("mean us",), ("total ms", "share")])

    assert fit(None) == fit(200) == fit(52) == [0, 1, 2, 3]
    assert fit(51) == [0, 1, 3]
    assert fit(30) == fit(1) == [0]


def test_columns_to_the_right() -> None:
    stream = io.StringIO()
    print_table(["api", "ms"], [["a", "1.5"], ["bb", "100.5"]], right=[1], stream=stream)
    assert stream.getvalue().splitlines() == ["api     ms", "a      1.5", "bb   100.5"]


def test_the_width_of_a_terminal_and_of_a_pipe() -> None:
    assert terminal_width(io.StringIO()) is None
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0), os.fdopen(theirs, "w") as stream:
        import fcntl
        import struct
        import termios

        fcntl.ioctl(stream.fileno(), termios.TIOCSWINSZ, struct.pack("HHHH", 24, 77, 0, 0))
        assert terminal_width(stream) == 77


def row(name: str, detail: str) -> Row:
    return Row(name, 10, 10_000, 9_000, 1000.0, 1, 2, 3, 4, 5, 6, 0.5, detail)


def test_a_table_of_calls_fits() -> None:
    rows = [row("torch.nn.functional.linear", "f32[4,64,128], f32[5000,128], None"), row("+", "f32[1]")]
    for by, heads in (("api", ["api", "n", "self"]), ("signature", ["signature", "of", "n", "self"])):
        table = CallTable(rows, by=by)
        assert "first us" in table.text() and len(table.text().splitlines()[0]) > 100
        narrow = table.text(width=72).splitlines()
        assert max(map(len, narrow)) <= 72 and "first us" not in narrow[0] and "share" in narrow[0]
        assert [word for word in narrow[0].split() if word in heads] == heads
    assert "f32[4,64,128], f32[5..." in "\n".join(narrow)
