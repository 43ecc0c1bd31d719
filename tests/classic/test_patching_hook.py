"""The micro-benchmarking document: each snippet with only its import lines changed, and what it promises."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import luxmeter as lux
from luxmeter.classic import patching_hook
from luxmeter.errors import LuxmeterWarning, UsageError

ONE_CORE = "a running trace is met, not looked into"

MODULE_HOOK = """
from torch import nn

def hook(module, input):
    # Do something in the hook
    pass

nn.modules.module.register_module_forward_pre_hook(hook)
"""
USAGE = """
    import sys
    sys.path.append('<PATH/TO/patching_hook.py>')
    from luxmeter.classic.patching_hook import init, hook
    from torch import nn
    nn.modules.module.register_module_forward_pre_hook(hook)
    init()
"""
TRAINING = """
    import torch
    net = nn.Sequential(nn.Linear(6, 4), nn.ReLU())
    x = torch.rand(2, 6)
    for _ in range(3):
        y = net(x)
        y.repeat(2, 1).view(-1).ne(0).cumsum(0)
        nn.functional.softmax(y, dim=-1)
"""


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    hooks = dict(torch.nn.modules.module._global_forward_pre_hooks)
    yield
    patching_hook.remove_wrappers()
    patching_hook.export()
    torch.nn.modules.module._global_forward_pre_hooks.clear()
    torch.nn.modules.module._global_forward_pre_hooks.update(hooks)


def test_the_documents_usage_in_a_script(tmp_path: Path) -> None:
    """Nothing but the import line is changed; the file lies in the lab and the script says where."""
    script = tmp_path / "train.py"
    script.write_text("def main():" + USAGE + TRAINING + "\nmain()\n")
    (tmp_path / "lab").mkdir()
    subprocess.run(
        [sys.executable, "-m", "luxmeter", "init"], cwd=tmp_path / "lab", check=True, capture_output=True
    )
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path / "lab", capture_output=True, text=True, check=True
    )
    said = done.stdout.strip().splitlines()[-1]
    assert said.startswith("patching_hook: ") and " written to " in said, done.stdout + done.stderr
    path = Path(said.rpartition(" written to ")[2])
    assert path.is_relative_to(tmp_path / "lab") and path.parent.name == "operators"
    found = {case.op: case for case in lux.load_operators(path)}
    for name in ("Tensor.repeat", "Tensor.view", "Tensor.ne", "Tensor.cumsum", "torch.nn.functional.softmax",
                 "torch.nn.Linear", "torch.nn.ReLU"):  # fmt: skip
        assert found[name].count == 3, name
    assert str(found["torch.nn.functional.softmax"].signature) == "f32[2,4], dim=-1"


def test_the_documents_module_hook_runs_as_it_stands() -> None:
    names: dict[str, object] = {}
    exec(MODULE_HOOK, names)
    assert torch.nn.Linear(2, 2)(torch.ones(1, 2)).shape == (1, 2)


def test_add_wrapper_shows_functions_to_module_hooks() -> None:
    seen = []
    torch.nn.modules.module.register_module_forward_pre_hook(
        lambda module, input: seen.append((type(module).__name__, [tuple(t.shape) for t in input]))
    )
    original = F.relu
    patching_hook.add_wrapper(F, "relu")
    patching_hook.add_wrapper(torch.Tensor, "cumsum")
    x = torch.tensor([[-1.0, 2.0]])
    assert F.relu(x, inplace=False).tolist() == [[0.0, 2.0]]
    assert F.relu.__name__ == "relu" and F.relu.__doc__ == original.__doc__
    assert x.cumsum(dim=1).tolist() == [[-1.0, 1.0]]
    assert seen == [("relu", [(1, 2)]), ("cumsum", [(1, 2)])]
    patching_hook.remove_wrappers()
    assert F.relu is original and "cumsum" not in vars(torch.Tensor)


def test_a_name_that_is_not_there_is_told_and_passed_over() -> None:
    with pytest.warns(LuxmeterWarning, match="no_such_function"):
        patching_hook.add_wrapper(F, "no_such_function")
    assert not hasattr(F, "no_such_function")


def test_path_and_export_before_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert patching_hook.init(tmp_path / "new" / "ops.jsonl") is None
    with pytest.raises(UsageError, match="hook-twice"):
        patching_hook.init()
    torch.rand(3, 2).cumsum(0)
    path = patching_hook.export()
    assert path == tmp_path / "new" / "ops.jsonl"
    assert capsys.readouterr().out == f"patching_hook: 2 operators of 2 calls written to {path}\n"
    assert {c.op for c in lux.load_operators(path)} == {"torch.rand", "Tensor.cumsum"}
    assert patching_hook.export() is None


def test_the_hook_alone_begins_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUXMETER_HOME", str(tmp_path / "lab"))
    torch.nn.modules.module.register_module_forward_pre_hook(patching_hook.hook)
    net = torch.nn.Sequential(torch.nn.Linear(2, 3))
    for _ in range(2):
        net(torch.rand(1, 2))
    path = patching_hook.export()
    assert path is not None and "torch.nn.Linear" in {c.op for c in lux.load_operators(path)}


def test_inside_a_trace_there_is_nothing_to_begin() -> None:
    with lux.trace(), pytest.raises(UsageError, match="hook-in-trace"):
        patching_hook.init()


def test_no_pickle_is_written(tmp_path: Path) -> None:
    patching_hook.init(tmp_path / "o.jsonl")
    path = patching_hook.export()
    assert path is not None and path.read_text().startswith('{"what": "luxmeter operators"')
    assert textwrap.dedent(path.read_text()).count("\n") == 1  # nothing was called: the head alone
