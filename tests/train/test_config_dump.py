"""A config written out as Python gives an equal one; two are compared."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from luxmeter.errors import UsageError
from luxmeter.experiment import Params
from luxmeter.experiment.params.params import ABSENT
from luxmeter.train import PyConfig
from luxmeter.train.config.dump import importable_module, source_of


def load(text: str, name: str = "a.py", *overrides: str) -> PyConfig:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text))
    return PyConfig.fromfile(path, overrides)


def test_it_is_readable() -> None:
    config = load(
        """\
        lr = 0.1
        name = "it's"
        optimizer = dict(type="SGD", lr=lr, betas=(0.9,))
        labels = {0: "a", "b c": 1, "class": None}
        data = dict(train=dict(type="Digits", batch_size=64, shuffle=True, num_workers=2), eval=dict(type="Digits", batch_size=256))
        """,
        "a.py",
        "lr=0.5",
    )
    assert config.dump() == (
        "# A config of luxmeter, as resolved from: a.py lr=0.5\n\n"
        "lr = 0.5\n"
        'name = "it\'s"\n'
        'optimizer = dict(type="SGD", lr=0.5, betas=(0.9,))\n'
        'labels = {0: "a", "b c": 1, "class": None}\n'
        "data = dict(\n"
        '    train=dict(type="Digits", batch_size=64, shuffle=True, num_workers=2),\n'
        '    eval=dict(type="Digits", batch_size=256),\n'
        ")\n"
    )
    assert str(config) == config.dump()


def test_what_it_writes_runs_again_and_is_equal(tmp_path: Path) -> None:
    config = load(
        """\
        import torch, enum
        from pathlib import Path
        from torch.optim import SGD
        from luxmeter import Params
        class Mode(enum.Enum):
            FAST = 1
        def halve(x): return x / 2
        class Net(torch.nn.Module): ...
        values = dict(f=1e-9, inf=float("inf"), nan=float("nan"), big=10**30, b=b"x", c=2j, t=(), n=[[], {}], e=...)
        sets = [{1, 2}, set(), frozenset({3}), range(3)]
        objects = dict(dtype=torch.bfloat16, device=torch.device("cpu"), home=Path("/x"), kind=SGD, builtin=len, whole=int)
        own = dict(net=Net, f=halve, mode=Mode.FAST)
        schedule = Params.SCHE.Cos(start=0.1, end=0.0, left=0, right=10)
        SGD_ = 1
        text = "quotes \\" and ' and \\\\ and \\n"
        """
    )
    config.dump(tmp_path / "out" / "deep.py")
    again = PyConfig.fromfile(tmp_path / "out" / "deep.py")
    assert again == config and config.diff(again) == {}
    assert sorted(p.name for p in (tmp_path / "out").rglob("*.py")) == ["a.py", "deep.py"]
    again.dump(tmp_path / "further.py")
    assert PyConfig.fromfile(tmp_path / "further.py") == config
    assert again.params.own.net is not config.params.own.net and issubclass(
        again.params.own.net, torch.nn.Module
    )
    assert torch.optim.SGD is again.params.objects.kind


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(
            st.text(max_size=4) | st.integers() | st.just("lr") | st.just("for"), inner, max_size=4
        )
    ),
    max_leaves=30,
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(["lr", "data", "type", "dict_"]), VALUES))
def test_any_plain_values_come_back(values: dict[str, object]) -> None:
    text = source_of(values, heading="of a test", find=importable_module)
    names: dict[str, object] = {}
    exec(text, names)
    found = {name: names[name] for name in values}
    assert repr(found) == repr(values)


def test_a_plain_config_needs_nothing_of_luxmeter(tmp_path: Path) -> None:
    load("import os\nlr = 0.1\nmodel = dict(type='Linear', n=[1, 2])\n").dump(tmp_path / "b.py")
    assert [p.name for p in tmp_path.glob("*")] and not (tmp_path / "config_sources").exists()
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import runpy; print(runpy.run_path('b.py')['model'])"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "{'type': 'Linear', 'n': [1, 2]}\n"


def test_files_that_register_something_run_again_with_it(tmp_path: Path) -> None:
    """What a run keeps: the config as resolved and the files it was made of; those run, for what they register."""
    Path("shared").mkdir()
    Path("shared/nets.py").write_text(
        "import builtins\nbuiltins._luxmeter_seen.append('nets')\nclass Net: ...\n"
    )
    config_file = "experiments/my-config.py"
    import builtins

    builtins._luxmeter_seen = []  # type: ignore[attr-defined]
    try:
        config = load(
            "from ..shared.nets import Net\nlr = 0.1\nmodel = dict(type=Net)\n", config_file, "lr=0.2"
        )
        written = config.written()
        assert sorted(written) == [
            "config.py", "config_sources/experiments/my_config.py", "config_sources/shared/nets.py",
        ]  # fmt: skip
        for name, body in written.items():
            (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "run" / name).write_bytes(body)
        again = PyConfig.fromfile(tmp_path / "run" / "config.py")
        assert again == config and again.values["lr"] == 0.2
        assert builtins._luxmeter_seen == ["nets", "nets"]  # type: ignore[attr-defined]
    finally:
        del builtins._luxmeter_seen  # type: ignore[attr-defined]


def test_modules_that_a_config_imports_are_imported_again() -> None:
    text = load("import torch.nn\nfrom torch import optim\nimport os\nlr = 1\n").dump()
    assert "import torch.nn\nimport torch\nimport torch.optim\n" in text and "import os" not in text


def test_it_does_not_overwrite_what_it_is_made_of() -> None:
    config = load("lr = 1\n")
    with pytest.raises(UsageError, match="config-dump-over"):
        config.dump("a.py")
    assert Path("a.py").read_text() == "lr = 1\n"


def test_names_that_clash() -> None:
    config = load("from torch.optim import SGD as _SGD\nSGD = 3\noptimizer = dict(type=_SGD)\n")
    assert "from torch.optim import SGD as _SGD\n" in config.dump()
    config.dump("out/b.py")
    assert PyConfig.fromfile("out/b.py") == config


def test_two_configs_compared() -> None:
    one = load("lr = 0.1\nmodel = dict(depth=1, width=2)\nsame = [1]\n")
    two = load("lr = 0.2\nmodel = dict(depth=1)\nsame = [1]\nnew = 'x'\n", "b.py")
    assert one.diff(two) == {"lr": (0.1, 0.2), "model.width": (2, ABSENT), "new": (ABSENT, "x")}
    assert one != two and one == load("lr = 0.1\nmodel = dict(width=2, depth=1)\nsame = [1]\n", "c.py")
    assert one.diff(Params(lr=0.1, model={"depth": 1, "width": 2}, same=[2])) == {"same": ([1], [2])}
    assert one != 3
