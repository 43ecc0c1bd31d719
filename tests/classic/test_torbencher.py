"""Torbencher's folders of cases run with changed import lines; its runners by their old names."""

from __future__ import annotations

import csv
import importlib.util
import sys
import unittest
from pathlib import Path

import pytest
import torch

from luxmeter.classic.torbencher import (
    SingleTester,
    TorBencherTestCaseBase,
    bencherDebugger,
    test_api,
    test_api_version,
    torbencher,
)
from luxmeter.errors import UsageError

HEAD = """
import random
import torch
from luxmeter.classic.torbencher import TorBencherTestCaseBase, test_api, test_api_version
"""
ADD = (
    HEAD
    + """
@test_api(torch.add)
class TorchAddTestCase(TorBencherTestCaseBase):
    @test_api_version.larger_than("1.1.3")
    def test_add(self):
        size = [random.randint(1, 5) for _ in range(random.randint(1, 4))]
        return torch.add(torch.randn(size), torch.randn(size))

    @test_api_version.less_than("1.1.3")
    def test_add_of_old(self):
        return torch.add(torch.randn(1), 1)
"""
)
RELU = (
    HEAD
    + """
@test_api(torch.nn.functional.relu)
class TorchReluTestCase(TorBencherTestCaseBase):
    def test_relu(self):
        x = torch.randn(3)
        return torch.nn.functional.relu(x) + (x.dtype is torch.float32)

    def test_raises(self):
        raise ValueError("never")
"""
)
LATER = (
    HEAD
    + """
@test_api(torch.not_yet)
class TorchLaterTestCase(TorBencherTestCaseBase):
    def test_later(self):
        return torch.not_yet(torch.randn(3))
"""
)


@pytest.fixture
def folder() -> Path:
    root = Path("src/testcase")
    for path, text in (
        ("torch/add.py", ADD),
        ("torch/nn/functional/relu.py", RELU),
        ("torch/not_yet.py", LATER),
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path.rpartition("/")[0] / "__init__.py").write_text(
            "raise RuntimeError('no script of ours is needed')\n"
        )
        (root / path).write_text(text)
    return root


def test_the_three_runners(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {
        "seed": 1234567890,
        "devices": ["cpu"],
        "format": "json",
        "num_epoches": 2,
        "including_success": True,
    }
    result = bencherDebugger(config).run()
    with open("test_results.csv", newline="") as file:
        found = {row["testcase"].rpartition(".")[2]: row for row in csv.DictReader(file)}
    assert {name: row["status"] for name, row in found.items()} == {
        "test_add": "Success", "test_add_of_old": "Missed", "test_relu": "Failed", "test_raises": "Failed", "py": "Missed",
    }  # fmt: skip
    assert (
        found["test_relu"]["failures"] == "2" and "ValueError: never" in found["test_raises"]["error_details"]
    )
    assert {row.api for row in result} == {"torch.add", "torch.nn.functional.relu", "torch.not_yet"}

    said = torbencher({"test_modules": ["torch.nn.functional"], "devices": ["cpu"]}).run()
    [device] = said["results"]
    assert (device["apis"], device["api_passed"], device["api_failed"], device["api_missed"]) == (1, 0, 1, 0)
    assert device["detail"] == {
        "torch.nn.functional": {"relu": {"test_relu": "failed", "test_raises": "failed"}}
    }
    assert said["version"] == torch.__version__.partition("+")[0] or said["version"] == torch.__version__

    spec = importlib.util.spec_from_file_location(
        "relu_cases", folder / "torch" / "nn" / "functional" / "relu.py"
    )
    assert spec is not None and spec.loader is not None
    relu = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "relu_cases", relu)
    spec.loader.exec_module(relu)
    assert SingleTester().run(relu.TorchReluTestCase, seed=443, debug=False) == -1


@pytest.mark.parametrize(
    ("decorator", "runs"),
    [
        (test_api_version.larger_than("1.1.3"), True), (test_api_version.larger_than("99.0"), False),
        (test_api_version.larger_than("2.8.99"), torch.__version__ >= (2, 9)),
        (test_api_version.less_than("1.1.3"), False), (test_api_version.less_than("99"), True),
        (test_api_version.between("1.0", "99.0"), True), (test_api_version.between("1.0", "1.9"), False),
        (test_api_version.equal(torch.__version__), True), (test_api_version.equal("1.0"), False),
    ],
)  # fmt: skip
def test_versions_are_compared_as_versions(decorator: object, runs: bool) -> None:
    class Case(unittest.TestCase):
        @decorator  # type: ignore[misc,operator,untyped-decorator]
        def test_it(self) -> None: ...

    outcome = unittest.TestResult()
    Case("test_it").run(outcome)
    assert (not outcome.skipped) == runs


def test_the_api_of_a_class_is_its_shortest_name() -> None:
    @test_api(torch.nn.functional.relu)
    class One(TorBencherTestCaseBase): ...

    assert One.api == "torch.nn.functional.relu" and issubclass(One, unittest.TestCase)


def test_a_wrong_config_is_refused() -> None:
    with pytest.raises(UsageError, match="Did you mean 'num_epoches'"):
        bencherDebugger({"num_epochs": 3})
    with pytest.raises(UsageError, match="torbencher-format"):
        torbencher({"format": "csv"})
