"""TorchWrapper's document: each snippet with only its import lines changed, and what the document promises."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # replaces torch.manual_seed when it is first imported: not during a test

from luxmeter.classic.torchwrapper import COLUMNS, TorchWrapper, getAPIName, getAttributes
from luxmeter.errors import UsageError

IMPORTS = """
from luxmeter.classic.torchwrapper import TorchWrapper, getAPIName;
import torch;
"""
CONFIG = """
config = {
    "out_dir": "./output",
    "format": "csv",
    "file_max_size": "10MB",
    "file_name_spec": "timestamp"
};
"""
DEFAULT_CONFIG = """
config = {
    "out_dir": "./output",
    "format": "json",
    "file_max_size": "128MB",
    "file_name_spec": "timestamp"
};
"""
INSTANCE = """
wrapper = TorchWrapper(config);
"""
CODE = """
def myCode():
    a = torch.randn(1, 3);
    b = torch.randn(1, 3);
    c = a + b;
    return c;
"""
START = """
wrapper.start(myCode);
"""
NAME = """
import torch
import torch.optim as optim
getAPIName(optim.Adam) # rather than Adam or torch.
"""


def snippets(*parts: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec("".join(parts), names)
    return names


@pytest.mark.parametrize("config", [CONFIG, DEFAULT_CONFIG])
def test_the_document_as_it_stands(config: str) -> None:
    names = snippets(IMPORTS, config, INSTANCE, CODE, START, NAME)
    wrapper = names["wrapper"]
    assert set(wrapper.callRecords) == {"torch.randn", "torch.Tensor.__add__"}
    format = names["config"]["format"]
    (file,) = Path("output").iterdir()
    assert re.fullmatch(rf"\d+\.{format}", file.name)
    if format == "csv":
        with open(file, newline="") as stream:
            head, *rows = csv.reader(stream)
        assert head == list(COLUMNS) and len(rows) == 3
    else:
        assert json.loads(file.read_text()) == json.loads(json.dumps(wrapper.callRecords))


def test_records_have_the_documented_shape() -> None:
    wrapper = TorchWrapper()

    def code(n: int, *, times: float) -> torch.Tensor:
        x = torch.randn(n, 3)
        torch.mul(x, times)
        return torch.cat([x, x], dim=1)

    assert wrapper.start(code, 2, times=0.5).shape == (2, 6)
    cat = wrapper.callRecords["torch.cat"]
    assert set(cat) == {"TotalTime(ms)", 1}
    assert set(cat[1]) == {"detailedAPIName", "StartTimestamp", "CostTime(ms)", "Arguments"}
    assert cat["TotalTime(ms)"] == cat[1]["CostTime(ms)"] > 0
    assert len(str(cat[1]["StartTimestamp"])) == 19
    tensor = "Tensor((2, 3), torch.float32, cpu)"
    assert str(cat[1]["Arguments"]) == f"(([{tensor}, {tensor}],), {{'dim': 1}})"
    assert str(wrapper.callRecords["torch.mul"][1]["Arguments"]) == f"(({tensor}, 0.5), {{}})"
    frame = wrapper.getDFFormattedCallRecords()
    assert tuple(frame.columns) == COLUMNS
    assert list(frame["API Name"]) == ["torch.randn", "torch.mul", "torch.cat"]


def test_every_scalar_is_that_of_its_own_call() -> None:
    wrapper = TorchWrapper()
    wrapper.start(lambda: [torch.full((1,), v) for v in (0.25, 0.5, float("nan"))])
    calls = wrapper.callRecords["torch.full"]
    assert [calls[i]["Arguments"][0][1] for i in (1, 2)] == [0.25, 0.5]
    told = json.loads(wrapper.files[0].read_text(), parse_constant=lambda name: pytest.fail(name))
    assert told["torch.full"]["3"]["Arguments"][0][1] == "nan"


def test_an_exception_passes_after_saving() -> None:
    wrapper = TorchWrapper({"out_dir": "kept"})

    def broken() -> None:
        torch.ones(2)
        torch.mm(torch.ones(2), torch.ones(2))

    before = torch.mm
    with pytest.raises(RuntimeError, match="matrix"):
        wrapper.start(broken)
    assert torch.mm is before
    (file,) = Path("kept").iterdir()
    told = json.loads(file.read_text())
    assert len(told["torch.ones"]) == 4 and "torch.mm" in told


@pytest.mark.parametrize("format", ["csv", "json"])
def test_files_roll_over(format: str) -> None:
    wrapper = TorchWrapper({"format": format, "file_max_size": "2KB", "file_name_spec": "serial"})
    wrapper.start(lambda: [torch.ones(2) + n for n in range(12)])
    assert len(wrapper.files) >= 2 and sorted(Path("output").iterdir()) == sorted(wrapper.files)
    assert [f.name for f in wrapper.files] == [f"1_{i + 1}.{format}" for i in range(len(wrapper.files))]
    numbers: dict[str, list[int]] = {}
    for file in wrapper.files:
        assert file.stat().st_size <= 2000
        if format == "json":
            for name, calls in json.loads(file.read_text()).items():
                inner = {k: v for k, v in calls.items() if k != "TotalTime(ms)"}
                assert calls["TotalTime(ms)"] == pytest.approx(sum(c["CostTime(ms)"] for c in inner.values()))
                numbers.setdefault(name, []).extend(int(k) for k in inner)
        else:
            with open(file, newline="") as stream:
                for row in csv.DictReader(stream):
                    assert tuple(row) == COLUMNS
                    numbers.setdefault(row["API Name"], []).append(int(row["Call Number"]))
    assert numbers == {"torch.ones": list(range(1, 13)), "torch.Tensor.__add__": list(range(1, 13))}
    wrapper.start(lambda: None)
    assert [f.name for f in wrapper.files] == [f"2.{format}"]


def test_names_by_date() -> None:
    wrapper = TorchWrapper({"file_name_spec": "datetime"})
    for _ in range(2):
        wrapper.start(lambda: torch.ones(1))
    names = [p.name for p in Path("output").iterdir()]
    assert len(names) == 2
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d-\d\d-\d\d-\d\d(-2)?\.json", name) for name in names)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"out_dirs": "x"}, "'out_dir'"),
        ({"format": "jsn"}, "'json'"),
        ({"file_name_spec": "timestmp"}, "timestamp"),
        ({"file_max_size": "ten MB"}, "10MB"),
        ({"file_max_size": "0MB"}, "10MB"),
        ({"file_max_size": "5parsecs"}, "10MB"),
        ({"out_dir": 3}, "out_dir=3.*bad-wrapper-value"),
        ("out", "'out'.*bad-wrapper-value"),
    ],
)
def test_wrong_configs(config: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        TorchWrapper(config)


def test_a_folder_that_cannot_be_written() -> None:
    called = []
    with pytest.raises(UsageError, match="out-dir-unwritable"):
        TorchWrapper({"out_dir": "/proc/none/x"}).start(lambda: called.append(1))
    assert not called


@pytest.mark.parametrize(
    ("api", "name"),
    [
        (torch.optim.Adam, "torch.optim.Adam"),
        (torch.nn.Linear, "torch.nn.Linear"),
        (torch.nn.functional.gelu, "torch.nn.functional.gelu"),
        (torch.randn, "torch.randn"),
        (torch.Tensor.add, "torch.Tensor.add"),
        (torch.Tensor.split, "torch.Tensor.split"),
        (torch.nn.Module.to, "torch.nn.Module.to"),
        (torch.optim.Adam.step, "torch.optim.Adam.step"),
        (torch.ones(1).cos, "torch.Tensor.cos"),
        (torch.linalg.svd, "torch.linalg.svd"),
        (torch.Tensor, "torch.Tensor"),
        (torch.utils.data.DataLoader, "torch.utils.data.DataLoader"),
        (torch.int16, "torch.int16"),
        (torch.channels_last, "torch.channels_last"),
    ],
)
def test_names(api: Any, name: str) -> None:
    assert getAPIName(api) in (name, "torch.short")  # the other name of torch.int16
    assert eval(name) is not None


def test_a_method_that_torch_replaced_since() -> None:
    code = """
import torch
from luxmeter.classic.torchwrapper import getAPIName
before = torch.optim.Adamax.step
getAPIName(torch.randn)
torch.optim.Adamax([torch.zeros(1, requires_grad=True)])  # the first one in a process wraps the step() of its class
assert torch.optim.Adamax.step is not before
print(getAPIName(before), getAPIName(torch.optim.Adamax.step))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["torch.optim.Adamax.step"] * 2


def test_what_has_no_name() -> None:
    with pytest.raises(UsageError, match="no-api-name"):
        getAPIName(test_names)


def test_attributes() -> None:
    found = getAttributes(torch.nn.Linear)
    assert "forward" in found and "to" in found and "training" not in found
    assert {"randn", "Tensor", "no_grad"} <= set(getAttributes(torch))
