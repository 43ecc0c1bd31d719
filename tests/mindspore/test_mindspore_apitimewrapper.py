"""apitimewrapper's document: its complete test case with only import lines changed and the CUDA lines guarded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import mindspore as ms
from luxmeter.classic import apitimewrapper as door
from luxmeter.classic.apitimewrapper.ms_wrap import global_param as ms_gp
from luxmeter.classic.apitimewrapper.torch_wrap import global_param as torch_gp
from mindspore import Tensor, ops

CASE = '''
import os

import torch
import mindspore
import mindspore as ms
from mindspore import ops, nn, Tensor

import numpy as np
from luxmeter.classic.apitimewrapper import start_hook_net, start_hook_torch_net, print, start_analysis, end_analysis
from mindspore.common.api import _pynative_executor

# 需自定义测试的部分
#########################################
# np格式的输入
input_a = np.random.randn(1000, 2000)
input_b = np.random.randn(1000, 2000)

# 转为ms的tensor
ms_input_a = Tensor(input_a, mindspore.float32)
ms_input_b = Tensor(input_b, mindspore.float32)

# 转为torch的tensor
torch_input_a = torch.tensor(input_a, dtype=torch.float32)
torch_input_b = torch.tensor(input_b, dtype=torch.float32)

# 手动将torch的Tensor拷贝到对应设备上，卡号需手动修改
device_id = int(os.environ.get('DEVICE_ID', 0))
if torch.cuda.is_available():
    torch_input_a.to(device=torch.device(f'cuda:{device_id}'))
    torch_input_b.to(device=torch.device(f'cuda:{device_id}'))

hook_inside = False
start_hook_net(hook_inside, parall_execute=True)
start_hook_torch_net(hook_inside, parall_execute=True)

"""
这段代码的作用是为了先启动框架，排除框架首次启动时长以及host侧到device侧tensor拷贝时长的耗时影响。
"""
ms_input_a.reshape((4000, 500))
torch_input_a.reshape((4000, 500))
ms_input_a.reshape((4000, 500))
torch_input_a.reshape((4000, 500))
print("------排除框架启动执行耗时------")

# 在0.0.3版本，我们可以通过在执行代码前后增添start_analysis()和end_analysis()的方式，自动对执行部分代码进行性能分析。
start_analysis()
for _ in range(100):
    # ms_input_a.reshape((4000, 500))
    ops.reshape(ms_input_a, (4000, 500))
_pynative_executor.sync()
for _ in range(100):
    # torch_input_a.reshape((4000, 500))
    torch.reshape(torch_input_a, (4000, 500))
if torch.cuda.is_available():
    torch.cuda.synchronize()
end_analysis()
'''
LINE = re.compile(r"(?:^|INFO: )([\w.]+) cost_time:([\d.e+-]+)$", re.MULTILINE)
X = np.ones((2, 3), np.float32)


@pytest.fixture(autouse=True)
def unhooked() -> Iterator[None]:
    path = torch_gp.g_torch_log_path
    yield
    door.stop_hook_net()
    door.stop_hook_torch_net()
    torch_gp.g_torch_log_path, torch_gp.g_stop_torch_print, ms_gp.g_stop_ms_print = path, False, False


def lines(text: str) -> list[str]:
    return [found[1] for found in LINE.finditer(text)]


def test_the_complete_test_case(capsys: pytest.CaptureFixture[str]):
    exec(CASE, {"__name__": "__main__"})
    said = capsys.readouterr().out
    log = Path("performance.log").read_text(encoding="utf-8")
    assert lines(said) == lines(log)
    first, _, rest = said.partition("------排除框架启动执行耗时------\n")
    assert lines(first) == ["Tensor.reshape", "torch.Tensor.reshape"] * 2
    assert lines(rest) == ["ops.reshape"] * 100 + ["torch.reshape"] * 100
    for name in ("ops.reshape", "torch.reshape"):
        assert re.search(rf"^{re.escape(name)}共执行了100次,总耗时[\d.e-]+秒,", rest, re.MULTILINE), rest


def test_the_switches_are_read_at_each_call(capsys: pytest.CaptureFixture[str]):
    x, y = Tensor(X), torch.from_numpy(X)
    door.start_hook_net()
    door.start_hook_torch_net()
    ms_gp.g_stop_ms_print = True
    ops.relu(x)
    torch.relu(y)
    ms_gp.g_stop_ms_print, torch_gp.g_stop_torch_print = False, True
    ops.exp(x)
    torch.exp(y)
    assert lines(capsys.readouterr().out) == ["torch.relu", "ops.exp"]
    logged = lines(Path("performance.log").read_text())
    assert logged == ["ops.relu", "torch.relu", "ops.exp", "torch.exp"]


def test_each_framework_has_its_own_settings(capsys: pytest.CaptureFixture[str]):
    door.start_hook_net(hook_inside=True, log="both.log")
    door.start_hook_torch_net(hook_inside=False)
    ops.relu(Tensor(X))
    torch.nn.functional.relu(torch.ones(2))
    heard = lines(capsys.readouterr().out)
    assert "ops.relu" in heard and any(name.startswith("ops.") and name != "ops.relu" for name in heard)
    assert [name for name in heard if name.startswith("torch")] == ["torch.ones", "torch.nn.function.relu"]
    door.stop_hook_net()
    ops.relu(Tensor(X))
    torch.ones(2)
    assert lines(capsys.readouterr().out) == ["torch.ones"]
    assert not hasattr(ops.relu, "__wrapped__") and Path("both.log").is_file()


def test_a_failing_call_ends_nothing(capsys: pytest.CaptureFixture[str]):
    door.start_hook_net()
    with pytest.raises(TypeError):
        ops.relu("no tensor")
    ops.relu(Tensor(X))
    said = capsys.readouterr().out
    assert lines(said) == ["ops.relu"]
    with pytest.raises(RuntimeError):  # a kernel that fails later is waited for, and told where it was called
        ops.gather(Tensor(np.arange(4, dtype=np.float32)), Tensor(np.array([7], np.int32)), 0)


def test_performance_cmp(capsys: pytest.CaptureFixture[str]):
    ratio = door.performance_cmp(ops.relu, torch.relu, 3, 1e9, X)
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("mindspore relu run 3 times cost time: ")
    assert said[1].startswith("torch relu run 3 times cost time: ")
    assert float(said[2]) == ratio > 0
    with pytest.raises(ValueError, match="bad-run-time"):
        door.performance_cmp(ops.relu, torch.relu, 0, 2, X)
    assert ms.get_context("mode") == ms.PYNATIVE_MODE
