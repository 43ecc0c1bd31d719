"""The chapter on meters of the thexp document: its snippets, only the import lines changed, print what it shows."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest


def run(snippet: str, capsys: pytest.CaptureFixture[str]) -> str:
    import torch

    Path("snippet.py").write_text(snippet)
    rand = torch.rand
    with pytest.MonkeyPatch.context() as patch:
        # Random numbers that torch prints without an exponent, as those of the document happened to be.
        patch.setattr(torch, "rand", lambda *size: rand(*size) * 0.9 + 0.05)
        runpy.run_path("snippet.py", run_name="__main__")
    return capsys.readouterr().out


METER = """\
from luxmeter import Meter
import torch

m = Meter()
m.a = 1
m.b = "2"
m.c = torch.rand(1)[0]

m.c1 = torch.rand(1)
m.c2 = torch.rand(2)
m.c3 = torch.rand(4, 4) # 会只保留第一行
print(m)
"""

FORMAT = """\
from luxmeter import Meter
m = Meter()
m.a = 0.236
m.percent(m.a_) # 此外还有 m.float m.int 等格式化方法
print(m)
"""

AVERAGE = """\
from luxmeter import AvgMeter
from luxmeter import Meter
import torch
am = AvgMeter()
for j in range(5):
    for i in range(100):
        m = Meter()
        m.percent(m.c_)
        m.a = 1
        m.b = "2"
        m.c = torch.rand(1)[0]

        m.c1 = torch.rand(1)
        m.c2 = torch.rand(2)
        m.c3 = torch.rand(4, 4)
        m.d = [4]
        m.e = {5: "6"}
        # print(m)
        am.update(m)
    print(am)
"""

# The document's output with its random digits as patterns: 0.7072 -> four places, 33.27% -> two.
NUMBER, PERCENT = r"0\.\d{4}", r"\d{1,2}\.\d\d%"
PAIR = rf"tensor\(\[{NUMBER}, {NUMBER}\]\)"
ROWS = rf"tensor\(\[\[{NUMBER}, {NUMBER}, {NUMBER}, {NUMBER}\],\.\.\."


def test_meter(capsys: pytest.CaptureFixture[str]) -> None:
    shown = run(METER, capsys)
    assert re.fullmatch(rf"@a=1  @b=2  @c={NUMBER}  @c1={NUMBER}  @c2={PAIR}  @c3={ROWS}\n", shown), shown


def test_format(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(FORMAT, capsys) == "@a=23.60%\n"


def test_average(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(AVERAGE, capsys).splitlines()
    assert len(lines) == 5
    line = (
        rf"@a=1  @b=2  @c={PERCENT}\({PERCENT}\)  @c1={NUMBER}\({NUMBER}\)  @c2={PAIR}  @c3={ROWS}"
        r"  @d=\[4\]  @e=\{5: '6'\}"
    )
    for shown in lines:
        assert re.fullmatch(line, shown), shown
    averages = [float(re.search(r"\((\d+\.\d+)%\)", shown)[1]) for shown in lines]  # type: ignore[index]
    assert all(abs(average - 50) < 10 for average in averages)
