"""`luxmeter.operators.check`: rounds in workers; what fails, dies, hangs and is missed; kept, resumed, compared."""

from __future__ import annotations

import csv
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import luxmeter as lux
from luxmeter.errors import UsageError
from luxmeter.experiment import find_run
from luxmeter.operators import CheckResult, check, diff_checks, load_check
from luxmeter.operators.backends import Prepared
from luxmeter.operators.case import Case, Operators
from luxmeter.operators.checks import judging, work
from luxmeter.operators.checks.judging import Where, judge
from luxmeter.operators.checks.records import CheckRow
from luxmeter.operators.checks.runner import seed_of
from luxmeter.operators.checks.sources import captured
from luxmeter.operators.checks.trial import Trial
from luxmeter.operators.inputs import Call
from luxmeter.signature import describe

CASES = """
import ctypes
import random
import time
import unittest

import torch


class Layers(unittest.TestCase):
    def test_training(self):
        net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))
        loss = net(torch.randn(random.randint(4, 9), 4)).pow(2).mean()
        loss.backward()
        return loss, [p.grad for p in net.parameters()]

    def test_wrong(self):
        x = torch.randn(4)
        return torch.cos(x) * (1.001 if x.dtype is torch.float32 else 1)

    def test_raises(self):
        self.assertEqual(torch.ones(2).sum().item(), 3)

    @unittest.skip("not here")
    def test_skipped(self):
        raise AssertionError

    def test_absent(self):
        return torch.no_such_thing(torch.ones(2))

    def test_not_importable(self):
        from torch.nn.functional import no_such_function

    def test_dies(self):
        ctypes.string_at(0)

    def test_hangs(self):
        time.sleep(1000)


class Awaited(unittest.IsolatedAsyncioTestCase):
    async def test_awaited(self):
        x = torch.randn(4)
        return torch.cos(x) * (1.001 if x.dtype is torch.float32 else 1)

    @unittest.expectedFailure
    def test_known(self):
        self.fail("as is known")

    @unittest.expectedFailure
    def test_mended(self): ...


def test_function():
    return torch.sin(torch.rand(10)), torch.randint(5, (3,)), torch.normal(0.0, torch.rand(4))


def test_of_the_dtype():
    x = torch.randn(3, 3, dtype=torch.float64)
    values, vectors = torch.linalg.eigh(x @ x.T)
    z = torch.randn(3, dtype=torch.complex64).conj()
    return z, torch.ones(3).nbytes, x.numpy(), torch.distributions.VonMises(torch.tensor(0.5), 2.0).sample((5,)), values


def test_named():
    return torch.ones(3) * 2


def reference_named():
    return torch.ones(3) * 3


def test_loose():
    return torch.ones(3) * (1.001 if torch.get_default_dtype() is torch.float32 else 1)


test_loose.tolerance = 1e-2
"""
ABSENT = "import torch\nfrom luxmeter.classic.torbencher import TorBencherTestCaseBase, test_api\n@test_api(torch.no_such_thing)\nclass C(TorBencherTestCaseBase):\n    def test_it(self): ...\n"


def rows(result: CheckResult) -> dict[str, CheckRow]:
    return {row.name.rpartition(":")[2]: row for row in result}


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> CheckResult:
    folder = tmp_path_factory.mktemp("cases")
    (folder / "layers.py").write_text(CASES)
    (folder / "torch" / "nn").mkdir(parents=True)
    (folder / "torch" / "nn" / "absent.py").write_text(ABSENT)
    (folder / "broken.py").write_text("import no_such_package\n")
    (folder / "later.py").write_text("import torch.no_such_module\n")
    (folder / "elsewhere.py").write_text("raise AssertionError('Torch not compiled with CUDA enabled')\n")
    return check(folder, rounds=2, timeout_s=6, quiet=True, workers=2)


def test_one_that_dies_or_hangs_costs_only_itself(checked: CheckResult) -> None:
    found = rows(checked)
    assert {name: row.status for name, row in found.items()} == {
        "Layers.test_training": "passed", "Layers.test_wrong": "failed", "Layers.test_raises": "failed",
        "Layers.test_skipped": "missed", "Layers.test_absent": "missed", "Layers.test_not_importable": "missed", " later.py": "missed", "Layers.test_dies": "crashed", "Layers.test_hangs": "hung", "test_function": "passed",
        "test_of_the_dtype": "passed", "test_named": "failed", "test_loose": "passed", "Awaited.test_awaited": "failed",
        "Awaited.test_known": "passed", "Awaited.test_mended": "failed", " torch/nn/absent.py": "missed", "elsewhere.py": "missed", "broken.py": "failed",
    }  # fmt: skip
    assert checked.counts == {"passed": 5, "failed": 6, "missed": 6, "crashed": 1, "hung": 1}
    assert (
        checked.complete
        and not checked.ok
        and all(row.rounds == 2 for row in found.values() if row.status == "passed")
    )


def test_every_error_is_told(checked: CheckResult) -> None:
    found = rows(checked)
    wrong = found["Layers.test_wrong"]
    assert [e.round for e in wrong.errors] == [0, 1] and wrong.errors[0].seed == seed_of(0, wrong.name, 0)
    assert wrong.errors[0].error == pytest.approx(1e-3, rel=0.1) and 0 < (wrong.errors[0].allowed or 0) < 1e-4
    assert "2 != 3" in found["Layers.test_raises"].errors[0].traceback.replace("2.0", "2")
    assert (
        "SIGSEGV" in found["Layers.test_dies"].reason
        and "string_at" in found["Layers.test_dies"].errors[0].traceback
    )
    assert (
        "within 6 s" in found["Layers.test_hangs"].reason
        and "test_hangs" in found["Layers.test_hangs"].errors[0].traceback
    )
    assert found["Layers.test_skipped"].reason == "skipped: not here"
    assert "has no torch.no_such_thing" in found[" torch/nn/absent.py"].reason
    assert found["Layers.test_absent"].reason.endswith("has no torch.no_such_thing")
    assert found["Layers.test_not_importable"].reason.endswith("has no torch.nn.functional.no_such_function")
    assert found[" later.py"].reason.endswith("has no torch.no_such_module")
    assert "no_such_package" in found["broken.py"].reason
    assert (
        found["test_function"].largest == "f32[10], i64[3], f32[4], f32[4]"
        and found["test_function"].elements == 21
    )
    assert wrong.errors[0].signature == wrong.largest == "f32[4]"
    assert found["test_function"].time_us


def test_a_test_of_ones_own_is_shown_again(checked: CheckResult, tmp_path: Path) -> None:
    for name in ("Layers.test_wrong", "test_named"):
        (tmp_path / "shows.py").write_text(rows(checked)[name].errors[0].script)
        done = subprocess.run(
            [sys.executable, str(tmp_path / "shows.py")], capture_output=True, text=True, check=False
        )
        assert done.returncode == 1 and "reproduced" in done.stderr, done.stdout + done.stderr


def test_written_and_read_again(checked: CheckResult, tmp_path: Path) -> None:
    assert load_check(checked.to_file(tmp_path / "c.json")) == checked
    with open(checked.to_file(tmp_path / "c.csv"), newline="") as file:
        lines = {line["name"].rpartition(":")[2]: line for line in csv.DictReader(file)}
    assert [line["status"] for line in lines.values()] == [row.status for row in checked]
    wrong = lines["Layers.test_wrong"]
    assert float(wrong["first_error"]) > 9e-4 and wrong["first_seed"] == str(seed_of(0, wrong["name"], 0))
    assert lines["test_function"]["first_error"] == ""
    page = checked.to_file(tmp_path / "c.html").read_text()
    assert page.count("Traceback (most recent call last)") >= 2 and "found_in(" in page  # beside the scripts
    assert "Layers.test_wrong" in page and "Does it compute right?" in page
    assert "1 crashed, 1 hung" in checked.title
    said = json.loads((tmp_path / "c.json").read_text())
    assert said["counts"]["passed"] == 5 and said["environment"]["machine"]["cores"] and said["started"] > 1e9


def test_two_results_are_compared(checked: CheckResult) -> None:
    better = [replace(r, status="passed", errors=()) if r.name.endswith("test_wrong") else r for r in checked]
    better = [replace(r, status="failed") if r.name.endswith("test_function") else r for r in better]
    better = [r for r in better if not r.name.endswith("test_loose")]
    other = replace(
        checked, rows=tuple(better), environment={**checked.environment, "packages": {"torch": "9.9"}}
    )
    found = diff_checks(checked, other)
    assert [c.case.rpartition(":")[2].split()[0] for c in found.changes] == [
        "test_function",
        "Layers.test_wrong",
        "test_loose",
    ]
    assert [c.kind for c in found.changes] == ["newly failing", "newly passing", "newly missing"]
    assert any(line.startswith("torch: 2.") and line.endswith("and 9.9") for line in found.differences)
    assert "1 newly failing, 1 newly passing, 1 newly missing; 16 as before" in str(found)
    same = diff_checks(checked, checked)
    assert str(same) == f"no case has another status; {same.same} as before"
    with pytest.raises(UsageError, match="no case in common"):
        diff_checks(checked, replace(checked, rows=()))


def operators() -> Operators:
    linear = describe((torch.rand(3, 4), torch.rand(5, 4)))
    gone = Case("torch.no_such_operator", describe((torch.rand(2),)))
    return Operators(
        [Case("torch.nn.functional.linear", linear), gone, Case("torch.cos", describe((torch.rand(70, 9),)))]
    )


def test_captured_operators_with_a_fault_that_is_shrunk_reproduced_kept_and_resumed(tmp_path: Path) -> None:
    (tmp_path / "fault.py").write_text(
        "import torch\nright = torch.cos\n"
        "torch.cos = lambda x: right(x) * 1.001 if x.dtype is torch.float32 else right(x)\n"
    )
    settings = {"rounds": 2, "setup": [str(tmp_path / "fault.py")], "workers": 1, "quiet": True}
    with lux.Experiment("checked"):
        first = check(
            operators(), shrink=True, including_success=False, resume=tmp_path / "k.json", **settings
        )  # type: ignore[arg-type]
    assert {row.api: row.status for row in first} == {
        "torch.no_such_operator": "missed",
        "torch.cos": "failed",
    }
    assert len(first.passed) == 1 and first.counts["passed"] == 1
    assert find_run("latest").check == first
    wrong = first.wrong()[0]
    assert wrong.errors[0].shrunk == "f32[]" and "f32[70,9]" in wrong.errors[0].signature
    (tmp_path / "shows.py").write_text(wrong.errors[0].script)
    done = subprocess.run(
        [sys.executable, "-I", str(tmp_path / "shows.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "reproduced" in done.stderr and "error of 1.0" in done.stdout, (
        done.stdout + done.stderr
    )
    kept = json.loads((tmp_path / "k.json").read_text())
    assert [row["status"] for row in kept["rows"]] == ["passed", "missed", "failed"]
    kept["rows"][2]["reason"] = "as it was kept"
    (tmp_path / "k.json").write_text(json.dumps(kept))
    second = check(operators(), shrink=True, including_success=False, resume=tmp_path / "k.json", **settings)  # type: ignore[arg-type]
    assert "as it was kept" in [row.reason for row in second] and second.statuses() == first.statuses()


def explained(case: dict[str, Any], setup: Path, *, part: str, sample: int = 0) -> str:
    """The script that a worker writes of a first error, with a smaller input, in a process that has the fault."""
    asked = {
        "case": case, "dtype": "float32", "device": "cpu", "backend": "eager", "backward": True, "seed": 3, "sample": sample, "part": part,
        "reason": "wrong", "allowed": None, "setup": [str(setup)], "shrink": part != "", "dies": False,
    }  # fmt: skip
    code = (
        f"import sys, json; sys.path.insert(0, {str(setup.parent)!r}); import {setup.stem}\n"
        "from luxmeter.operators.checks.explaining import explain\n"
        "print(json.dumps(explain(**json.loads(sys.argv[1]))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(asked)], capture_output=True, text=True, check=True
    )
    return str(json.loads(done.stdout)["script"])


def test_a_layer_that_hides_its_settings_is_shown_again_with_a_smaller_input(tmp_path: Path) -> None:
    """A loss does not tell its settings in its repr: it is drawn again, its inputs are written."""
    pytest.importorskip("expecttest")
    fault = tmp_path / "fault.py"
    fault.write_text(
        "import torch\nright = torch.nn.functional.mse_loss\n"
        "def mse_loss(input, *given, **named):\n"
        "    found = right(input, *given, **named)\n"
        "    return found * 1.001 if input.dtype is torch.float32 else found\n"
        "torch.nn.functional.mse_loss = mse_loss\n"
    )
    case = {"source": "module", "api": "torch.nn.MSELoss", "name": "torch.nn.MSELoss", "entry": "nn.MSELoss"}
    script = explained(case, fault, part="output", sample=2)  # one with reduction="sum"
    assert "# made smaller\nargs = (args[0], torch.tensor(" in script
    (tmp_path / "shows.py").write_text(script)
    shows = [sys.executable, "-I", str(tmp_path / "shows.py")]
    done = subprocess.run(shows, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "reproduced" in done.stderr, done.stdout + done.stderr
    fault.write_text("")
    assert subprocess.run(shows, capture_output=True, check=False).returncode == 0


def test_what_raised_is_right_again_once_the_fault_is_gone(tmp_path: Path) -> None:
    """An error without a size allows what the dtype allows, not nothing; a number is compared like a tensor."""
    fault = tmp_path / "fault.py"
    for api, given in (("torch.softmax", (torch.rand(7), 0)), ("Tensor.item", (torch.rand(()),))):
        place = f"torch.{api}" if api.startswith("Tensor") else api
        fault.write_text(
            f"import torch\nright = {place}\n"
            "def broken(x, *given):\n"
            "    if x.dtype is torch.float32:\n        raise ValueError('no')\n    return right(x, *given)\n"
            f"{place} = broken\n"
        )
        case = captured.cases([Case(api, describe(given))])[0]
        (tmp_path / "shows.py").write_text(explained(case, fault, part=""))
        shows = [sys.executable, "-I", str(tmp_path / "shows.py")]
        done = subprocess.run(shows, capture_output=True, text=True, check=False)
        assert done.returncode == 1 and "ValueError: no" in done.stderr, (api, done.stderr)
        fault.write_text("")
        done = subprocess.run(shows, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "an error of" in done.stdout, (api, done.stdout + done.stderr)


def test_a_backend_that_gives_tensors_only_is_right_where_python_gives_a_number() -> None:
    """As a graph of ONNX gives `Tensor.item`; MindSpore gives a number, too."""

    class Tensors:
        def prepare(self, call: Call, *, backward: bool, threads: int) -> Prepared:
            return Prepared(lambda: kind(call.run() * factor))

    trial = Trial("torch.Tensor.item", torch.Tensor.item, (torch.tensor(1.5318),))
    tried = itertools.product((torch.as_tensor, float), ((1.0, "passed"), (1.001, "failed")))
    for kind, (factor, status) in tried:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(judging._backends, "tensors", Tensors())
            found = judge(trial, Where(backend="tensors"), seed=1)
        assert found.status == status, found


def test_a_filter_holds_for_files_that_cannot_be_imported(tmp_path: Path) -> None:
    for path, text in (
        ("torch/linalg/broken.py", "1 / 0"),
        ("torch/nn/broken.py", "1 / 0"),
        ("broken.py", "1 / 0"),
        ("torch/nn/relu.py", "import torch\ndef test_it():\n    return torch.relu(torch.randn(3))"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    found = check(tmp_path, only=["torch.nn"], workers=1, quiet=True)
    assert {row.name.partition(":")[0]: row.status for row in found} == {
        "torch/nn/relu.py": "passed", "torch/nn/broken.py": "failed", "broken.py": "failed",
    }  # fmt: skip


def test_what_was_changed_since_is_run_again_on_resuming(tmp_path: Path) -> None:
    """A test that was mended, a plug-in, another torch: what was kept of the old one answers no question of the new one."""
    mine, plugin, kept = tmp_path / "mine.py", tmp_path / "plugin.py", tmp_path / "k.json"
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tmp_path / "python").chmod(0o755)
    right, wrong = (
        "import torch\ndef test_it():\n    return torch.randn(3)",
        "import torch\ntorch.randn = lambda n: torch.ones(n) * (1 + 1e-3 * (torch.get_default_dtype() is torch.float32))\n",
    )
    mine.write_text("import torch\ndef test_it():\n    raise ValueError('never')\n")
    plugin.write_text("")

    def statuses(**settings: object) -> list[str]:
        found = check(mine, resume=kept, setup=[str(plugin)], workers=1, quiet=True, **settings)  # type: ignore[arg-type]
        assert found.environment["packages"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
        return [row.status for row in found]

    assert statuses() == ["failed"]
    mine.write_text(right)
    assert statuses() == ["passed"]
    plugin.write_text(wrong)
    assert statuses() == ["failed"]
    plugin.write_text("")
    assert statuses(python=str(tmp_path / "python")) == ["passed"]
    told = load_check(kept).environment
    assert told["executable"] == sys.executable and str(tmp_path / "python") in told["interpreters"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a smaller input is tried in a fork")
def test_an_input_that_ends_the_process_is_shrunk_and_reproduced(tmp_path: Path) -> None:
    (tmp_path / "fault.py").write_text(
        "import ctypes, torch\nright = torch.cos\n"
        "torch.cos = lambda x: ctypes.string_at(0) if x.dtype is torch.float32 and x.numel() > 3 else right(x)\n"
    )
    found = check(
        operators(), shrink=True, setup=[str(tmp_path / "fault.py")], rounds=1, workers=1, quiet=True
    )
    wrong = found.wrong()[0]
    assert (wrong.api, wrong.status) == ("torch.cos", "crashed")
    assert "f32[70,9]" in wrong.errors[0].signature
    assert wrong.errors[0].shrunk in ("f32[1,4]", "f32[4,1]", "f32[2,2]", "f32[4]"), wrong.errors[0].shrunk
    (tmp_path / "shows.py").write_text(wrong.errors[0].script)
    done = subprocess.run(
        [sys.executable, "-I", str(tmp_path / "shows.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGSEGV, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("sources", "settings", "slug"),
    [
        ((), {"rounds": 0}, "bad-check-option"),
        ((), {"epochs": 3}, "unknown-check-option"),
        ((), {"samples": 0}, "bad-check-option"),
        ((), {"dtypes": ["recorded"]}, "unknown-dtype"),
        ((), {"dtypes": ["int8"]}, "unknown-dtype"),
        ((), {"backends": ["egaer"]}, "unknown-name"),
        ((), {"device": "meta"}, "check-device"),
        ((), {"device": ""}, "bad-check-option"),
        ((), {"dtypes": []}, "bad-check-option"),
        ((), {"backends": ""}, "bad-check-option"),
        ((), {"resume": "no/such/folder/kept.json"}, "no-such-folder"),
        ((), {"resume": "."}, "file-unwritable"),
        ((), {"setup": ["nowhere.py"]}, "check-setup"),
        (("opinf",), {}, "check-source"),
        ((lambda: 1,), {}, "check-import"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_before_anything_runs(
    sources: tuple[object, ...], settings: dict[str, object], slug: str
) -> None:
    with pytest.raises(UsageError) as caught:
        check(*sources, **settings)  # type: ignore[arg-type]
    assert caught.value.slug == slug


def test_bad_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import no_such_package\n")
    with pytest.raises(UsageError, match=r"No module named 'no_such_package'(.|\n)*check-import") as refused:
        check(tmp_path / "broken.py", quiet=True, workers=1)
    assert "import no_such_package" in str(refused.value) and "programs.py" not in str(refused.value)
    (tmp_path / "broken.py").write_text("class TestOfPytest:\n    def test_it(self): ...\n")
    with pytest.raises(
        UsageError, match=r"broken\.py\. A test is a method test_\.\.\. of a unittest\.TestCase"
    ):
        check(tmp_path / "broken.py", quiet=True, workers=1)
    (tmp_path / "kept.json").write_text("{")
    with pytest.raises(UsageError, match="Give --resume another name"):
        check(tmp_path / "broken.py", quiet=True, workers=1, resume=tmp_path / "kept.json")
    for text, slug in (("{}", "check-damaged"), ('{"what": "luxmeter check", "version": 9}', "check-newer")):
        (tmp_path / "c.json").write_text(text)
        with pytest.raises(UsageError) as caught:
            load_check(tmp_path / "c.json")
        assert caught.value.slug == slug
    with pytest.raises(UsageError, match="check-unreadable"):
        load_check(tmp_path / "nothing.json")


def test_filters_devices_and_setups_that_are_not_there(tmp_path: Path) -> None:
    for settings, said in (
        ({"only": ["torch.nn.functionl"]}, "Did you mean 'torch.nn.functional'"),
        ({"device": "cuda:77"}, "There is no device 'cuda:77' here"),
        ({"setup": ["no_such_plugin"]}, "no_such_plugin cannot be imported"),
    ):
        with pytest.raises(UsageError, match=said):
            check(operators(), quiet=True, workers=1, **settings)  # type: ignore[arg-type]


def test_loading_a_database_slowly_is_no_hang_of_the_first_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine torch's database took longer to import than an input may take."""
    told, twice = list[str](), threading.Event()

    def write(file: int, text: bytes) -> None:
        told.append(text.decode().removeprefix(work.MARK).strip())
        if len(told) == 2:
            twice.set()

    monkeypatch.setattr(work, "_TELL_S", 0.001)
    monkeypatch.setattr(work, "load", lambda source: twice.wait(60))
    monkeypatch.setattr(work, "os", SimpleNamespace(write=write))
    case = {"source": "optimizer", "api": "torch.optim.SGD", "name": "torch.optim.SGD", "entry": "SGD"}
    found = work.check_round(
        case, dtype="float32", device="cpu", backend="eager", backward=False, seed=0, samples=1
    )
    assert found["counts"] == {"passed": 1}
    assert len(told) > 2 and set(told[:-1]) == {"none"} and told[-1] == "0"


@pytest.mark.parametrize("only", ["", " , ", [""]])
def test_a_choice_of_nothing_is_not_everything(only: Any) -> None:
    with pytest.raises(UsageError, match="empty only"):
        check("opinfo", only=only)
