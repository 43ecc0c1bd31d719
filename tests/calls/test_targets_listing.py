"""What is timed, what it is called, and why some is not."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from seen import FASTEST, Seen, unchanged

import luxmeter as lux
from luxmeter.calls.patching import patcher
from luxmeter.calls.patching.filters import Filter
from luxmeter.calls.targets import Form, packages, try_part
from luxmeter.calls.targets.torch import callables, optimizers
from luxmeter.calls.targets.torch.names import LABELS, REMOVED, class_name, why_not
from luxmeter.errors import UsageError

ONE_CORE = "what is listed is the framework's matter; the tests that record name both cores"

NAMES = {target.name: target for target in callables.listing().targets}


def test_every_overridable_function_is_timed_or_has_a_reason():
    listing = callables.listing()
    known = {id(inspect.getattr_static(t.owner, t.attribute)) for t in listing.targets}
    reasons = {entry.name: entry.reason for entry in listing.unseen}
    missing = []
    for namespace, functions in torch.overrides.get_overridable_functions().items():
        for function in functions:
            name = torch.overrides.resolve_name(function) or ""
            if id(function) in known or name.endswith(("__get__", "__set__", "__delete__")):
                continue
            short = name.replace("torch.Tensor.", "Tensor.").replace("torch.functional.", "torch.")
            if short not in reasons and not short.rpartition(".")[2].startswith("_"):
                missing.append((namespace, name))
    assert not missing
    assert len(known) > 1_400


@pytest.mark.parametrize(
    "name",
    [
        "torch.nn.functional.gelu", "torch.nn.functional.conv2d", "torch.sin", "torch.zeros", "torch.linalg.eig", "torch.fft.rfft",
        "torch.special.expit", "torch.sparse.mm", "torch.nested.nested_tensor", "torch.autograd.grad", "torch.nn.init.xavier_uniform_",
        "torch.nn.utils.clip_grad_norm_", "torch.utils.checkpoint.checkpoint", "torch.distributed.all_reduce", "torch.save", "torch.load",
        "torch.func.vmap", "torch.compile", "Tensor.backward", "Tensor.add_", "Tensor.T", "Tensor.__getitem__", "torch.unique",
        "torch.einsum", "torch.nn.utils.rnn.pack_padded_sequence", "DataLoader.__next__", "torch.nn.Module.__call__",
    ],
)  # fmt: skip
def test_what_users_look_for_is_timed(name: str):
    assert name in NAMES


@pytest.mark.parametrize(
    "sign", ["+", "-", "*", "/", "@", "**", "//", "%", "[]", "==", "<", "~", "&", "|", "+=", "+ (reflected)"]
)
def test_operators_are_shown_as_they_are_written(sign: str):
    assert sign in {target.label for target in NAMES.values()}


def test_labels_belong_to_targets():
    assert set(LABELS.values()) >= {target.label for target in NAMES.values() if target.label} - {
        "iter(DataLoader)",
        "next(DataLoader)",
    }


def test_a_function_bound_in_two_namespaces_has_its_documented_name():
    assert torch.conv2d is torch.nn.functional.conv2d and "torch.conv2d" not in NAMES


def test_what_runs_the_users_code_is_transparent():
    spans = {name for name, target in NAMES.items() if target.span}
    assert {"torch.utils.checkpoint.checkpoint", "torch.func.vmap", "torch.func.grad", "torch.func.functional_call",
            "torch.autograd.functional.jacobian", "DataLoader.__next__"} <= spans  # fmt: skip
    assert (
        not {"torch.sin", "Tensor.backward", "torch.nn.init.uniform_", "torch.nn.utils.clip_grad_norm_"}
        & spans
    )
    assert NAMES["torch.func.vmap"].form is Form.FACTORY


def test_coverage_gives_a_reason_for_the_rest():
    coverage = lux.trace().coverage()
    assert (
        coverage.reason("torch.sin") == ""
        and "torch.nn.Linear" in coverage.seen
        and "torch.optim.Adam.step" in coverage.seen
    )
    assert "switch" in coverage.reason("torch.is_grad_enabled")
    assert "context manager" in coverage.reason("torch.no_grad")
    assert "computes nothing" in coverage.reason("Tensor.shape")
    assert "torch.ops" in " ".join(entry.name for entry in coverage.unseen)
    assert coverage.reason("torch.nothing_of_the_kind") == "not a public callable"
    assert "are not:" in str(coverage)


def test_the_guide_shows_true_output():
    page = (Path(__file__).parents[2] / "docs" / "what-is-traced.md").read_text()
    code, shown = (
        page.split(mark)[1].split("```")[0] for mark in ("```python\n", "with torch 2.13:\n\n```\n")
    )
    if not torch.__version__.startswith("2.13") or sys.version_info >= (3, 14):
        pytest.skip("the numbers are those of torch 2.13 on Python 3.11 to 3.13")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == shown


def test_every_public_function_of_torch_is_in_the_coverage():
    coverage = patcher.coverage()
    known = {*coverage.seen, *(entry.name for entry in coverage.unseen)}
    homes = {
        id(vars(sys.modules[n])[a])
        for n, _, a in (name.rpartition(".") for name in known)
        if n in sys.modules and a in vars(sys.modules[n])
    }
    missing = [name for name in torch.__all__ if callable(getattr(torch, name, None)) and not name.startswith("_")
               and f"torch.{name}" not in known and id(getattr(torch, name)) not in homes]  # fmt: skip
    assert not missing


@pytest.mark.parametrize(
    ("cls", "name"),
    [(torch.nn.Linear, "torch.nn.Linear"), (torch.optim.Adam, "torch.optim.Adam"), (Seen, "seen.Seen")],
)
def test_names_of_classes(cls: type, name: str):
    assert class_name(cls) == name


class TestFilter:
    def test_keeps_by_pattern_and_label(self):
        chosen = Filter(only=["torch.nn.*", "+"], skip=["*.relu"])
        assert chosen.keeps("torch.nn.Linear") and chosen.keeps("Tensor.__add__", "+")
        assert not chosen.keeps("torch.nn.functional.relu") and not chosen.keeps("torch.sin")

    def test_brackets_are_indexing(self):
        assert Filter(only=["[]"]).keeps("Tensor.__getitem__", "[]")

    @pytest.mark.parametrize("core", ["c", "python"])
    def test_a_filtered_call_still_hides_what_it_calls(self, core: str):
        with Seen(core, only=["torch.nn.functional.*"]) as seen:
            torch.nn.Linear(2, 2)(torch.ones(1, 2))
            torch.nn.functional.relu(torch.ones(2))
        assert seen.counts() == {"torch.nn.functional.relu": 1}

    @pytest.mark.parametrize("what", [{"only": ["torch.nn.functional.reluu"]}, {"skip": ["nothing.*"]}])
    def test_a_filter_that_matches_nothing_is_refused_before_anything_is_patched(
        self, what: dict[str, list[str]]
    ):
        with unchanged(), pytest.raises(UsageError, match="matches no callable") as raised:
            Seen(FASTEST, **what)
        assert raised.value.slug == "filter-matches-nothing"
        assert "only" not in what or "torch.nn.functional.relu" in str(raised.value)

    def test_through_the_front_door(self):
        with unchanged(), pytest.raises(UsageError, match="filter-matches-nothing"):
            lux.trace(only=["no.such.thing"]).start()


class TestAlso:
    @pytest.fixture
    def package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        folder = tmp_path / "lux_layers"
        folder.mkdir()
        (folder / "__init__.py").write_text("from lux_layers.ops import scale, Block, Bag\n")
        (folder / "ops.py").write_text(
            "import torch\nimport lux_layers\n"
            "def scale(x):\n    return torch.mul(x, 2)\n"
            "class Block(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"
            "class Bag:\n    def size(self, x):\n        return torch.sum(x)\n"
            "def fails():\n    raise KeyError('x')\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        yield "lux_layers"
        for name in [n for n in sys.modules if n.startswith("lux_layers")]:
            del sys.modules[name]

    @pytest.mark.parametrize("core", ["c", "python"])
    def test_a_package_is_one_call_each(self, package: str, core: str):
        with Seen(core, also=[package]) as seen:
            import lux_layers

            lux_layers.scale(torch.ones(2))
            lux_layers.ops.scale(torch.ones(2))
            lux_layers.Block()(torch.ones(2))
            lux_layers.Bag().size(torch.ones(2))
        found = seen.counts()
        assert (
            found["lux_layers.ops.scale"] == 2
            and found["lux_layers.ops.Block"] == 1
            and found["lux_layers.ops.Bag.size"] == 1
        )
        assert not {"torch.mul", "torch.relu", "torch.sum"} & found.keys()
        assert not hasattr(lux_layers.scale, "__wrapped__") and lux_layers.scale is lux_layers.ops.scale

    def test_one_function(self, package: str):
        with Seen(FASTEST, also=["lux_layers.ops.scale"]) as seen:
            import lux_layers

            lux_layers.scale(torch.ones(2))
        assert seen.counts()["lux_layers.ops.scale"] == 1

    @pytest.mark.parametrize(
        "name", ["no_such_package_here", "torch.no_such_module", "lux_layers.ops.scal", ""]
    )
    def test_an_unknown_name_is_refused_before_anything_is_patched(self, package: str, name: str):
        with unchanged(), pytest.raises(UsageError) as raised:
            Seen(FASTEST, also=[name])
        assert raised.value.slug == "unknown-target"
        if name.endswith("scal"):
            assert "'scale'" in str(raised.value)


def test_an_unknown_framework_is_refused():
    with pytest.raises(UsageError, match="unknown-framework"):
        Seen(FASTEST, framework="tourch")


def test_a_torch_without_distributed_has_the_rest(monkeypatch: pytest.MonkeyPatch):
    assert [*callables._loaded("torch.distributed"), *callables._ddp(), *callables._work()]
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    assert not [*callables._loaded("torch.distributed"), *callables._ddp(), *callables._work()]
    assert not list(callables._loaded("torch.no_such_namespace"))


def test_what_torch_has_taken_away_is_not_timed():
    assert why_not("symeig", len, namespace="torch", overridable=True) == REMOVED
    assert why_not("solve", len, namespace="torch.linalg", overridable=True) == ""


def test_a_package_that_lacks_something_says_what(tmp_path, monkeypatch):
    (tmp_path / "needs_more_of_a_test.py").write_text("import what_is_nowhere")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="what_is_nowhere"):
        packages._import("needs_more_of_a_test")
    with pytest.raises(UsageError, match="no package called 'needs_nothing_of_a_test'"):
        packages._import("needs_nothing_of_a_test")


def test_an_error_of_ours_is_no_part_of_torch_that_is_missing():
    def lacks():
        raise UsageError("s", "It is wrong.", "Mend it.")

    left_out = []
    with pytest.raises(UsageError):
        try_part("a part", lacks, left_out)
    assert try_part("a part", lambda: torch.no_such_name, left_out) == [] and len(left_out) == 1


def test_objects_that_cannot_be_looked_at_and_very_many_lead_to_no_optimizer():
    space = {}
    exec("made = type('WithoutModule', (), {})()", {"__builtins__": {"type": type}}, space)
    assert optimizers._held_by(space["made"]) == ()
    holder = {"deep": {"in": torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)}}
    assert any(one is holder["deep"]["in"] for one in optimizers._in_reach())
    assert not any(one is holder["deep"]["in"] for one in optimizers._in_reach(most=0))


def test_names_of_a_framework_that_is_not_imported_yet_are_taken_as_they_are():
    known = [("torch.add", "+"), ("torch.sin", "")]
    Filter(only=["mindspore.ops.*", "torch.add"]).check(known, unless=("mindspore",))
    for unless in ((), ("mindspore",)):
        with pytest.raises(UsageError, match="filter-matches-nothing"):
            Filter(only=["torch.no_such_name"]).check(known, unless=unless)
    with pytest.raises(UsageError, match=r"mindspore\.ops"):
        Filter(only=["mindspore.ops.*"]).check(known)
