"""The snippets of the tools that Luxmeter replaces, with new import lines."""

import tempfile
from pathlib import Path

import torch

from luxmeter.classic.apitimewrapper import (
    end_analysis,
    print,
    start_analysis,
    start_hook_torch_net,
    stop_hook_torch_net,
)
from luxmeter.classic.torchwrapper import TorchWrapper, getAPIName


def my_code() -> torch.Tensor:
    a = torch.randn(1, 3)
    b = torch.randn(1, 3)
    return a + b


with tempfile.TemporaryDirectory() as folder:
    wrapper = TorchWrapper({"out_dir": f"{folder}/output", "format": "csv"})
    result = wrapper.start(my_code)
    assert result.shape == (1, 3)
    assert list(wrapper.callRecords) == ["torch.randn", "torch.Tensor.__add__"]
    assert getAPIName(torch.optim.Adam) == "torch.optim.Adam"

    start_hook_torch_net(False, log=f"{folder}/performance.log")
    start_analysis()
    for _ in range(3):
        torch.reshape(result, (3, 1))
    end_analysis()
    print("done")
    stop_hook_torch_net()
    lines = Path(folder, "performance.log").read_text().splitlines()
    assert sum("INFO: torch.reshape cost_time:" in line for line in lines) == 3
    assert lines[-1].endswith("INFO: done")
