"""Without torch: runs, the command line, what was traced elsewhere; what needs torch says so in one line.

A Python in which torch and MindSpore cannot be imported stands for one where they are not installed. Every public name
and every command is here with what is to be expected of it: a new one must be put into one of the lists.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import typer

import luxmeter as lux
from luxmeter.view.cli import build_app

ONE_CORE = "what is there without torch, not what is recorded"

WORKS = {
    "__version__", "trace", "start", "stop", "load_trace", "globs", "Params", "BaseParams", "Meter", "AvgMeter", "Logger",
    "FolderState", "RndManager", "random", "Experiment", "runs", "ExperimentViewer", "flops_of", "load_operators", "Operators",
    "Callback",
}  # fmt: skip
NEEDS_TORCH = {
    "Saver",
    "DataLoader",
    "analyze",
    "analyze_model",
    "bench",
    "bench_model",
    "Trainer",
    "TaskFlow",
}

# Put into sitecustomize, so that it holds in every process that is started.
BLOCKER = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "mindspore"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""

NAMES = """
import json, pathlib, sys
import random as python_random
import numpy as np
from luxmeter import *
import luxmeter as lux
from luxmeter.errors import LuxmeterError

def traced():  # nothing could be timed but calls of one's own
    with lux.trace(framework=None) as t:
        t.wrap(len)([1])
    assert t.table()["builtins.len"].n == 1

def started():
    lux.start(framework=None)
    assert lux.stop().table() is not None

def torch_asked_for():
    try:
        with lux.trace():
            pass
    except LuxmeterError as error:
        assert error.slug == "needs-torch"
    else:
        raise AssertionError

def loaded():
    result = lux.load_trace("trace")
    assert result.table()["torch.mm"].n == 2 and "torch.mm" in str(result)
    assert result.events().num_rows >= 2 and result.tree() is not None and result.sql("select count(*) from calls")
    for suffix in ("html", "csv", "json", "parquet", "perfetto.json", "folded"):
        from luxmeter.calls import export
        export.write(result, pathlib.Path(f"calls.{suffix}"))
    try:
        result.operators()
    except LuxmeterError as error:
        assert error.slug == "needs-torch"

def parameters():
    p = lux.Params()
    p.lr = 0.1
    assert p.lr == 0.1 and str(p)

def base_parameters():
    class P(lux.BaseParams):
        def __init__(self):
            super().__init__()
            self.lr = 0.1
    assert P().lr == 0.1 and P().hash()

def metered():
    m = lux.Meter()
    m.loss = 0.5
    assert str(m) == "@loss=0.5000" and m.scalars() == {"loss": 0.5}

def averaged():
    a = lux.AvgMeter()
    for loss in (1.0, 2.0, np.float32(3)):
        a.update({"loss": loss, "n": 3, "name": "x", "array": np.array([0.5])})
    assert a["loss"].mean == 2.0 and "loss" in str(a)
    again = lux.AvgMeter()
    again.load_state_dict(a.state_dict())
    assert again.merge(a)["loss"].count == 6 and a.merge_ranks()["loss"].count == 3

def logged():
    lux.Logger().info("hello")

def folder():
    place = pathlib.Path("kept"); place.mkdir(); (place / "a").write_bytes(b"abc"); (place / "empty").touch()
    state = lux.FolderState(place)
    saved = state.state_dict()
    (place / "a").write_bytes(b"other"); (place / "b").touch()
    state.load_state_dict(saved)
    assert sorted(p.name for p in place.iterdir()) == ["a", "empty"] and (place / "a").read_bytes() == b"abc"

def drawn(manager=None):
    manager = manager or lux.RndManager("marks")
    draw = lambda: (python_random.random(), float(np.random.rand()))
    manager.fix_seed(3)
    state, first = manager.get_state(), draw()
    manager.set_state(state)
    assert draw() == first
    manager.save("state.rnd"); second = draw(); manager.load("state.rnd")
    assert draw() == second
    assert not manager.mark("here"); third = draw()
    assert manager.mark("here") and draw() == third and manager.marks() == ["here"]
    if manager is not lux.random:
        assert lux.RndManager("marks").mark("here") and draw() == third
    with manager.isolated(7):
        draw()
    manager.load_state_dict(manager.state_dict())
    try:
        manager.deterministic()
    except LuxmeterError as error:
        assert error.slug == "needs-torch"

def experimented():
    pathlib.Path("note.txt").write_text("x")
    with lux.Experiment("first", params={"lr": 0.1, "device": "cpu"}, tags=["t"], note="n", system_s=0.01) as e:
        for step in range(3):
            e.log({"loss": 1.0 / (step + 1)}, step=step)
        e.add_file("note.txt")
        print("said")
    assert e.state == "finished" and (e.folder / "files").exists()

def listed():
    (run,) = lux.runs()
    assert run.name == "first"

def viewed():
    viewer = lux.ExperimentViewer()
    assert viewer is not None

class Sized(np.ndarray):
    def numel(self):
        return self.size

def counted():
    @lux.flops_of("mine::square")
    def square(x):
        return x.numel()
    assert square(np.empty((2, 3)).view(Sized)) == 6

def listed_operators():
    ops = lux.load_operators("ops.jsonl")
    assert len(ops) and ops.top(1) and ops.filter(name="*mm*") and repr(ops)
    ops.save("again.jsonl")

def called_back():
    class Mine(lux.Callback):
        pass
    assert Mine().priority == 50

def operators():
    assert len(lux.Operators()) == 0

USES = {
    "__version__": lambda: lux.__version__, "trace": lambda: (traced(), torch_asked_for()), "start": started, "stop": started,
    "load_trace": loaded, "globs": lambda: lux.globs["core"], "Params": parameters, "BaseParams": base_parameters,
    "Meter": metered, "AvgMeter": averaged, "Logger": logged, "FolderState": folder, "RndManager": drawn,
    "random": lambda: drawn(lux.random), "Experiment": experimented, "runs": listed, "ExperimentViewer": viewed,
    "flops_of": counted, "load_operators": listed_operators, "Operators": operators,
    "Saver": lambda: lux.Saver("ckpt"), "DataLoader": lambda: lux.DataLoader([1]), "analyze": lambda: lux.analyze(None, None),
    "analyze_model": lambda: lux.analyze_model(None, None), "bench": lambda: lux.bench(lux.load_operators("ops.jsonl")),
    "bench_model": lambda: lux.bench_model("m", [], [], {}), "Callback": called_back, "Trainer": lambda: lux.Trainer(),
    "TaskFlow": lambda: lux.TaskFlow(),
}
said = {}
for name in sys.argv[1:]:
    try:
        USES[name]()
        said[name] = "works"
    except LuxmeterError as error:
        said[name] = f"{error.slug}: {error}" if error.slug != "needs-torch" else error.slug
    except Exception as error:
        import traceback
        said[name] = traceback.format_exc()
sys.stderr.write(json.dumps(said))
"""


def without_torch(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LUXMETER_")}
    environ = {
        **kept,
        "PYTHONPATH": str(place / "blocked"),
        "HOME": str(place),
        "LUXMETER_CORE": "python",  # without a compiler there is no other, which doctor would call a problem
    }
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, cwd=place, env=environ,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what was made where torch is, and Pythons that have none."""
    place = tmp_path_factory.mktemp("without")
    (place / "blocked").mkdir()
    (place / "blocked" / "sitecustomize.py").write_text(BLOCKER)
    x = torch.ones(4, 4)
    with lux.trace(keep=place / "trace") as trace:
        torch.mm(x, x)
        torch.mm(x, x)
    trace.operators().save(place / "ops.jsonl")
    lux.bench(trace.operators(), budget_s=0.1, quiet=True).to_json(place / "bench.json")
    return place


def test_every_public_name(place: Path) -> None:
    assert set(lux.__all__) == WORKS | NEEDS_TORCH, "say of the new name whether it works without torch"
    (place / "names.py").write_text(NAMES)
    done = without_torch(place, "names.py", *lux.__all__)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stderr[done.stderr.index('{"__version__"') :])
    assert said == {name: "works" if name in WORKS else "needs-torch" for name in lux.__all__}


# Each command with its words (in this order: they build on each other), and whether it works.
SCRIPT = "import random\nimport numpy as np\nimport luxmeter as lux\nwith lux.Experiment('s', params={'lr': 0.1}) as e:\n    e.log({'loss': random.random() + np.random.rand()}, step=0)\n"
COMMANDS: list[tuple[str, str]] = [
    ("init", "works"),
    ("config -l", "works"),
    ("doctor", "works"),
    ("run s.py", "works"),
    ("run --param lr=0.2 plain.py", "works"),
    ("runs", "works"),
    ("runs --json", "works"),
    ("show latest", "works"),
    ("show latest --json", "works"),
    ("show trace", "works"),
    ("show bench.json", "works"),
    ("diff latest~1 latest", "works"),
    ("diff trace trace", "works"),
    ("diff bench.json bench.json", "works"),
    ("note latest hello", "works"),
    ("tag latest best", "works"),
    ("untag latest best", "works"),
    ("plot latest~1 -m loss -o loss.html", "works"),
    ("code latest", "works"),
    ("repeats --metric loss", "works"),
    ("rerun latest", "works"),
    ("reproduce latest~2", "works"),
    ("rollback latest --to before", "works"),
    ("control latest", "works"),
    ("queue add plain.py", "works"),
    ("queue list", "works"),
    ("queue work --drain", "works"),
    ("sweep --grid lr=0.1 plain.py", "works"),
    ("eval latest", "needs-torch"),
    ("report latest -o report.html", "works"),
    ("top --once", "works"),
    ("ui --help", "works"),
    ("export latest -o run.tar.zst", "works"),
    ("import run.tar.zst", "works"),
    ("archive latest", "works"),
    ("rm latest", "works"),
    ("reindex", "works"),
    ("gc", "works"),
    ("ops ops.jsonl", "works"),
    ("ops ops.jsonl --json", "works"),
    ("ops ops.jsonl --backward", "needs-torch"),
    ("ops trace", "needs-torch"),
    ("trace --from trace", "works"),
    ("trace --from trace --by signature -o calls.csv", "works"),
    ("trace --env", "works"),
    ("trace plain.py", "needs-torch"),
    ("trace --coverage", "needs-torch"),
    ("bench ops.jsonl", "needs-torch"),
    ("check opinfo", "needs-torch"),
    ("model nets:net --input 1,3", "needs-torch"),
    ("zen SuperConvK3BNRELU(3,8,1,1)", "needs-torch"),
    ("search", "needs-torch"),
    ("new config", "works"),
    ("new project spirals", "works"),
    ("train config.py", "needs-torch"),
]

# Each command in a fork, as if it were called by itself: most of the time would go into starting so many Pythons.
DRIVER = """
import json, os, sys, tempfile
import duckdb, numpy, pyarrow.parquet, rich.table, scipy.stats, sqlalchemy.orm
from luxmeter.view.cli import main
said = []
for words in sys.argv[1:]:
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if not child:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            sys.argv = ["luxmeter", *words.split()]
            code = 0
            try:
                main()
            except SystemExit as error:
                code = error.code or 0
            except BaseException:
                import traceback
                traceback.print_exc()
                code = 1
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        said.append((code, output.read().decode(errors="replace")))
print(json.dumps(said))
"""


def test_every_command(place: Path) -> None:
    names = set(typer.main.get_command(build_app()).commands)  # type: ignore[attr-defined]
    assert {words.split()[0] for words, _ in COMMANDS} == names, "say of the new command whether it works"
    (place / "s.py").write_text(SCRIPT)
    (place / "plain.py").write_text("print(1)\n")
    (place / "nets.py").write_text("import torch\ndef net(): return torch.nn.Linear(3, 3)\n")
    (place / "commands.py").write_text(DRIVER)
    done = without_torch(place, "commands.py", *(words for words, _ in COMMANDS))
    assert done.returncode == 0, done.stderr
    found = {}
    for (words, expected), (code, output) in zip(COMMANDS, json.loads(done.stdout), strict=True):
        one_line = code == 2 and "[needs-torch]" in output and output.count("\n") == 1
        said = "works" if code == 0 else "needs-torch" if one_line else f"{code}: {output}"
        if said != expected:
            found[words] = said
    assert not found


def test_help_of_every_command(place: Path) -> None:
    code = (
        "import sys\nfrom typer.testing import CliRunner\nimport typer\nfrom luxmeter.view.cli import build_app\n"
        "app = build_app()\n"
        "for name in typer.main.get_command(app).commands:\n"
        "    assert CliRunner().invoke(app, [name, '--help']).exit_code == 0, name\n"
    )
    done = without_torch(place, "-c", code)
    assert done.returncode == 0, done.stderr


def test_doctor_shows_torch_as_an_extra(place: Path) -> None:
    code = (
        "from luxmeter import environment\nfrom luxmeter.view.cli import doctor\n"
        "environment._version = lambda name, real=environment._version: None if name == 'torch' else real(name)\n"
        "found = doctor.examine()\nprint(found.versions['torch'], found.extras['torch'], found.problems)\n"
    )
    done = without_torch(place, "-c", code)
    assert done.stdout.startswith("None pip install 'luxmeter[torch]' (without it: "), done.stderr
    assert done.stdout.endswith(" []\n")


def test_random_states_between_pythons_with_and_without_torch(place: Path) -> None:
    lux.random.save(place / "with.rnd")
    code = "import luxmeter as lux\nlux.random.save('without.rnd')\nlux.random.load('with.rnd')\n"
    done = without_torch(place, "-c", code)
    assert "[needs-torch]" in done.stderr
    before = torch.get_rng_state()
    with pytest.warns(UserWarning, match="random-state-torch"):
        lux.random.load(place / "without.rnd")
    assert torch.equal(torch.get_rng_state(), before)
