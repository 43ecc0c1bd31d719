"""Which frameworks a trace looks at; without MindSpore here, what is said about it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import luxmeter as lux
from luxmeter.calls import frameworks
from luxmeter.classic import apitimewrapper
from luxmeter.errors import MissingExtraError, UsageError


def test_torch_alone_never_imports_mindspore():
    code = "import luxmeter as lux, sys, torch\nwith lux.trace(): torch.ones(2)\nprint('mindspore' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_auto_is_torch_until_mindspore_is_imported():
    assert frameworks.chosen("auto") == ("torch",) and frameworks.awaited("auto") == ("mindspore",)
    assert (
        frameworks.chosen("torch+mindspore") == ("torch", "mindspore") and frameworks.awaited("torch") == ()
    )
    with pytest.raises(UsageError, match="unknown-framework"):
        frameworks.chosen("torch+jax")


@pytest.mark.parametrize("start", [lambda: lux.trace(framework="mindspore"), apitimewrapper.start_hook_net])
def test_missing_mindspore_is_one_line(start):
    with pytest.raises(MissingExtraError) as told:
        start()
    assert (
        told.value.slug == "mindspore-missing"
        and "pip install" in str(told.value)
        and "\n" not in str(told.value)
    )
    assert "mindspore" not in sys.modules
