"""The chapter on logs of the thexp document: its snippet, with the import lines changed and its undefined name quoted."""

from __future__ import annotations

import re
import runpy
import time
from pathlib import Path

import pytest

SNIPPET = """\
import time
from luxmeter import Logger
from luxmeter import Meter
from luxmeter import Params
logger = Logger()

meter = Meter()
meter.a = 3.13524635465
meter.b = "long text;long text;long text;long text;long text;long text;long text;long text;long text;long text;"

for i in range(100):
    logger.inline(meter,prefix="examples")
    time.sleep(0.2)
logger.info(1,2,3,{4:4},prefix="examples")
logger.info(meter,prefix="examples")
"""


def test_the_snippet_into_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("snippet.py").write_text(SNIPPET)
    slept = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "sleep", slept.append)
        runpy.run_path("snippet.py", run_name="__main__")
    assert slept == [0.2] * 100
    lines = capsys.readouterr().out.splitlines()
    values = "@a=3.1352  @b=" + "long text;" * 10
    assert lines[0] == f"examples: {values}"
    assert re.fullmatch(r"\d\d:\d\d:\d\d INFO    snippet.py:14 examples: 1 2 3 \{4: 4\}", lines[-2])
    assert lines[-1].endswith(f"snippet.py:15 examples: {values}")
    assert len(lines) == 3
