"""apitimewrapper's document, the torch side: each snippet with only its import lines changed, and its promises."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # replaces torch.manual_seed when it is first imported: not during a test

from luxmeter.classic import apitimewrapper as door
from luxmeter.classic.apitimewrapper.torch_wrap import global_param
from luxmeter.errors import LuxmeterWarning, UsageError

# As a script that parses the lines of 0.0.7 would: `name cost_time:` and what Python reads as seconds.
LINE = re.compile(r"(torch\.[\w.]+) cost_time:([\d.e+-]+)$", re.MULTILINE)
LOGGED = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - INFO: (.*)$", re.MULTILINE)


@pytest.fixture(autouse=True)
def unhooked() -> Iterator[None]:
    path = global_param.g_torch_log_path
    yield
    door.stop_hook_torch_net()
    global_param.g_torch_log_path, global_param.g_stop_torch_print = path, False


def snippet(text: str, **names: Any) -> dict[str, Any]:
    known = {"__name__": "__main__", **names}
    exec(text, known)
    return known


def calls(text: str) -> list[str]:
    return [found[1] for found in LINE.finditer(text)]


NETWORK = """
# step1
################################
from luxmeter.classic.apitimewrapper import start_hook_torch_net as start_hook_net, print
################################

if __name__ == '__main__':
    # step2
    ################################
    hook_inside = False
    start_hook_net(hook_inside)
    ################################


    # create dataset
    ...
    # load pretrained model, only load backbone
    ...
    # create model with loss scale
    ...
    # training loop
    ...
"""
SERIAL = "start_hook_torch_net(hook_inside)\n"
PARALLEL = "start_hook_torch_net(hook_inside, parall_execute=True)\n"
ANALYSIS = """
start_analysis()
for _ in range(100):
    torch.reshape(torch_input_a, (4000, 500))
end_analysis()
"""
SWITCH = """
from luxmeter.classic.apitimewrapper.torch_wrap import global_param as torch_gp
torch_gp.g_stop_torch_print = True
"""
# The document's whole example without its MindSpore half and without the copy to a GPU.
WHOLE = """
import os

import torch

import numpy as np
from luxmeter.classic.apitimewrapper import start_hook_torch_net, print, start_analysis, end_analysis

input_a = np.random.randn(1000, 2000)
input_b = np.random.randn(1000, 2000)

torch_input_a = torch.tensor(input_a, dtype=torch.float32)
torch_input_b = torch.tensor(input_b, dtype=torch.float32)

hook_inside = False
start_hook_torch_net(hook_inside, parall_execute=True)

torch_input_a.reshape((4000, 500))
torch_input_a.reshape((4000, 500))
print("------排除框架启动执行耗时------")

start_analysis()
for _ in range(100):
    # torch_input_a.reshape((4000, 500))
    torch.reshape(torch_input_a, (4000, 500))
end_analysis()
"""


def test_the_network_snippet(capsys: pytest.CaptureFixture[str]) -> None:
    names = snippet(NETWORK)
    layer = torch.nn.Linear(2, 2)
    capsys.readouterr()
    layer(torch.ones(1, 2)) + 1
    names["print"]("epoch", 1, sep="=")
    said = capsys.readouterr().out
    assert calls(said) == ["torch.ones", "torch.nn.Linear", "torch.Tensor.__add__"]
    assert said.endswith("epoch=1\n")
    logged = Path("performance.log").read_text()
    assert LOGGED.findall(logged)[-4:] == said.splitlines() and len(LOGGED.findall(logged)) == len(
        logged.splitlines()
    )


@pytest.mark.parametrize("start", [SERIAL, PARALLEL])
def test_the_start_and_analysis_snippets(start: str, capsys: pytest.CaptureFixture[str]) -> None:
    public = {name: getattr(door, name) for name in door.__all__}
    given = {"torch": torch, "torch_input_a": torch.ones(1000, 2000), "hook_inside": False}
    snippet(start + ANALYSIS, **given, **public)
    said = capsys.readouterr().out
    assert calls(said) == ["torch.reshape"] * 100
    assert said.splitlines()[0] == "start_analysis" and said.splitlines()[-2] == "end_analysis"
    row = re.fullmatch(
        r"torch\.reshape共执行了100次,总耗时(.+)秒,平均耗时(.+)秒,最低耗时(.+),最高耗时(.+)\.",
        said.splitlines()[-1],
    )
    assert row is not None
    costs = [float(found[2]) for found in LINE.finditer(said)]
    assert [float(n) for n in row.groups()] == [sum(costs), sum(costs) / 100, min(costs), max(costs)]
    assert all(0 < cost < 1 for cost in costs)  # seconds
    logged = LOGGED.findall(Path("performance.log").read_text())
    assert logged[0] == "start_analysis" and logged[-1] == "end_analysis"


def test_the_table_of_ours_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    door.start_hook_torch_net()
    door.start_analysis()
    torch.ones(1)
    door.end_analysis(table=True)
    said = capsys.readouterr().out.splitlines()
    assert said[-2].split() == ["name", "count", "total", "mean", "min", "max"]
    assert said[-1].split()[:2] == ["torch.ones", "1"]


def test_the_log_begins_anew_in_each_program(tmp_path: Path) -> None:
    """And not within one: hooks that are put in again go on in it."""
    Path("performance.log").write_text("of the run before\n")
    program = (
        "import torch\nfrom luxmeter.classic.apitimewrapper import start_hook_torch_net as go, stop_hook_torch_net as stop\n"
        "go(); torch.ones(1); stop(); go(); torch.zeros(1)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    logged = LOGGED.findall(Path("performance.log").read_text())
    assert [line.partition(" cost_time:")[0] for line in logged] == ["torch.ones", "torch.zeros"]


def test_the_whole_example(capsys: pytest.CaptureFixture[str]) -> None:
    snippet(WHOLE)
    said = capsys.readouterr().out
    assert calls(said) == ["torch.Tensor.reshape"] * 2 + ["torch.reshape"] * 100
    assert "------排除框架启动执行耗时------\n" in said
    assert "排除框架启动执行耗时" in Path("performance.log").read_text(encoding="utf-8")


def test_the_switch_is_read_at_each_call(capsys: pytest.CaptureFixture[str]) -> None:
    door.start_hook_torch_net()
    torch.ones(1)
    snippet(SWITCH)
    torch.zeros(1)
    global_param.g_stop_torch_print = False
    torch.empty(1)
    assert calls(capsys.readouterr().out) == ["torch.ones", "torch.empty"]
    assert calls(Path("performance.log").read_text()) == ["torch.ones", "torch.zeros", "torch.empty"]


def test_a_caught_exception_loses_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    door.start_hook_torch_net(False)
    with pytest.raises(RuntimeError):
        torch.mm(torch.ones(2), torch.ones(2))
    torch.meshgrid(torch.ones(2), torch.ones(3), indexing="ij")
    torch.ones(4).split(2)
    a = torch.ones(2)
    a * 2 - a / 3
    said = capsys.readouterr().out
    assert calls(said) == ["torch.ones"] * 4 + ["torch.meshgrid", "torch.ones",
        "torch.Tensor.split", "torch.ones", "torch.Tensor.__mul__", "torch.Tensor.__truediv__", "torch.Tensor.__sub__"]  # fmt: skip


def test_inside(capsys: pytest.CaptureFixture[str]) -> None:
    layer, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
    door.start_hook_torch_net(True)
    layer(x)
    assert calls(capsys.readouterr().out) == ["torch.nn.function.linear", "torch.nn.Linear"]


def test_unhook_and_hook_again(capsys: pytest.CaptureFixture[str]) -> None:
    before = torch.ones, torch.Tensor.__add__
    door.start_hook_torch_net()
    door.start_hook_torch_net(log="other.log")
    torch.ones(1)
    door.stop_hook_torch_net()
    door.stop_hook_torch_net()
    assert (torch.ones, torch.Tensor.__add__) == before and torch.ones is before[0]
    torch.zeros(1)
    assert calls(capsys.readouterr().out) == calls(Path("other.log").read_text()) == ["torch.ones"]


def test_several_sections(capsys: pytest.CaptureFixture[str]) -> None:
    door.start_hook_torch_net()
    global_param.g_stop_torch_print = True
    for n in (1, 2):
        door.start_analysis()
        for _ in range(n):
            torch.ones(1)
        door.end_analysis()
    assert re.findall(r"^torch\.ones共执行了(\d+)次", capsys.readouterr().out, re.MULTILINE) == ["1", "2"]
    with pytest.raises(UsageError, match="no-analysis"):
        door.end_analysis()


def test_lists_of_operators(capsys: pytest.CaptureFixture[str]) -> None:
    Path("ops.yaml").write_text(
        "torch:\n  - zeros\n  - gone_for_good\ntensor:\n  - __add__\nfunctional:\n  - gelu\n"
    )
    with pytest.warns(LuxmeterWarning, match=r"torch\.gone_for_good"):
        door.start_hook_torch_net(ops="ops.yaml")
    torch.nn.functional.gelu(torch.zeros(1) + torch.ones(1))
    assert calls(capsys.readouterr().out) == [
        "torch.zeros",
        "torch.Tensor.__add__",
        "torch.nn.function.gelu",
    ]


@pytest.mark.parametrize(
    "text", ["- add\n", "tensr: [add]\n", "torch: [no_such_operator]\n", "a: [", "torch: 3\n"]
)
def test_unusable_lists(text: str) -> None:
    Path("ops.yaml").write_text(text)
    with pytest.raises(UsageError, match="ops-list"):
        door.start_hook_torch_net(ops="ops.yaml")


def test_a_log_that_cannot_be_written() -> None:
    with pytest.raises(UsageError, match="performance-log-unwritable"):
        door.start_hook_torch_net(log="/proc/none/x.log")
