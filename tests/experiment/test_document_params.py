"""The chapter on parameters of the thexp document: its snippets, only the import lines changed, print what it shows."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest


def run(snippet: str, capsys: pytest.CaptureFixture[str], *, after: str = "") -> str:
    script = Path("p.py")
    script.write_text(snippet + after)
    runpy.run_path(str(script), run_name="__main__")
    return capsys.readouterr().out


BASIC = """\
from luxmeter import Params

params = Params()
params.epoch = 400
params.batch_size = 25
print(params)
"""

BASIC_OUTPUT = """\
Params[('epoch', 400),
 ('eidx', 1),
 ('idx', 0),
 ('global_step', 0),
 ('device', 'cpu'),
 ('batch_size', 25)]
"""

OWN_CLASS = """\
from luxmeter import Params

class BaseParams(Params):

    def __init__(self):
        super().__init__()
        self.batch_size = 50
        self.topk = (1,2,3,4)
        self.optim_option(lr=0.009,moment=0.9) 
        # 显示声明变量可以使用：
        # self.optim = self.optim_option(lr=0.009,moment=0.9)

params = BaseParams()
...
"""  # noqa: W291

OWN_CLASS_OUTPUT = """\
BaseParams[('epoch', 10),
 ('eidx', 1),
 ('idx', 0),
 ('global_step', 0),
 ('device', 'cpu'),
 ('batch_size', 50),
 ('topk', (1, 2, 3, 4)),
 ('optim', {'lr': 0.009, 'moment': 0.9})]
"""

COMMAND_LINE = """\
from luxmeter import Params

params = Params()
params.from_args()
print(params)

# 运行（注意optim.lr）：
# python p.py --epoch=400 --optim.lr=0.01
"""

# The document shows 0.001 here, a slip of its own: the command line says 0.01.
COMMAND_LINE_OUTPUT = """\
Params[('epoch', 400),
 ('eidx', 1),
 ('idx', 0),
 ('global_step', 0),
 ('device', 'cpu'),
 ('optim', {'lr': 0.01})]
"""


@pytest.fixture(autouse=True)
def on_a_machine_without_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """The document was written on one: it shows `cpu`."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)


def test_basic_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(BASIC, capsys) == BASIC_OUTPUT


def test_own_class(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(OWN_CLASS, capsys, after="print(params)\n") == OWN_CLASS_OUTPUT


def test_own_class_with_the_explicit_form(capsys: pytest.CaptureFixture[str]) -> None:
    explicit = OWN_CLASS.replace("        self.optim_option", "        self.optim = self.optim_option")
    assert explicit != OWN_CLASS
    assert run(explicit, capsys, after="print(params)\n") == OWN_CLASS_OUTPUT


def test_command_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["p.py", "--epoch=400", "--optim.lr=0.01"])
    assert run(COMMAND_LINE, capsys) == COMMAND_LINE_OUTPUT
