"""`luxmeter run`: the program runs as without it, and its run is kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import luxmeter as lux
from luxmeter.errors import UsageError
from luxmeter.experiment.params.command_line import params_of
from luxmeter.store import Lab
from luxmeter.view.cli import build_app

FACTS = '''"""Its doc."""
import json, os, sys
here = {"argv": sys.argv, "name": __name__, "path": sys.path, "file": __file__, "doc": __doc__,
        "main": sys.modules["__main__"].__file__, "package": __package__, "torch": "torch" in sys.modules, "spec": getattr(__spec__, "name", None),
        "names": sorted(n for n in globals() if n.startswith("__")),
        "variables": sorted(n for n in os.environ if n.startswith("LUXMETER") and n != "LUXMETER_PARENT")}
sys.stdout.write(json.dumps(here) + "\\n")
'''


def run(*args: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **more},
        timeout=120,
    )


def luxmeter(*args: str, **more: str) -> subprocess.CompletedProcess[str]:
    return run("-m", "luxmeter", *args, **more)


def the_line(done: subprocess.CompletedProcess[str]) -> str:
    """The last line on stderr, which is ours."""
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("end", "code", "state", "exit_code", "by"),
    [
        ("", 0, "finished", 0, None),
        ("sys.exit(5)", 5, "failed", 5, None),
        ("raise SystemExit('words')", 1, "failed", 1, None),
        ("def f():\n    raise KeyError('lost')\nf()", 1, "failed", 1, None),
        ("import broken", 1, "failed", 1, None),
        (
            "import signal; signal.signal(2, signal.default_int_handler); os.kill(os.getpid(), 2)",
            -signal.SIGINT,
            "interrupted",
            None,
            "SIGINT",
        ),
        (
            "import time; os.kill(os.getpid(), 15); time.sleep(60)",
            -signal.SIGTERM,
            "interrupted",
            None,
            "SIGTERM",
        ),
    ],
    ids=["normal", "exit", "words", "exception", "syntax", "interrupt", "terminate"],
)
def test_a_script_runs_as_without_it(
    end: str, code: int, state: str, exit_code: int | None, by: str | None
) -> None:
    Path("broken.py").write_text("1 +\n")
    Path("dir").mkdir()
    Path("dir/s.py").write_text(FACTS + end + "\n")
    plain = run("dir/s.py", "--lr", "0.1", "-m", "x y")
    kept = luxmeter("run", "--tag", "a", "dir/s.py", "--lr", "0.1", "-m", "x y")
    assert kept.returncode == plain.returncode == code
    assert json.loads(kept.stdout) == json.loads(plain.stdout)
    assert kept.stderr.startswith(plain.stderr)  # the very same traceback, then our line
    assert len(kept.stderr[len(plain.stderr) :].splitlines()) == 1
    found = Lab.open().find("s")
    assert the_line(kept).startswith(f"luxmeter: s {found.id[:5]} {state} in")
    assert (found.state, found.tags, found.params) == (state, ["a"], {"lr": 0.1, "m": "x y"})
    ending = found.ending
    assert ending is not None and (ending.exit_code, ending.signal) == (exit_code, by)
    assert "program.py" not in ending.error and ("KeyError: 'lost'" in ending.error) == ("lost" in end)
    expected = plain.stdout + ("" if by == "SIGTERM" else plain.stderr)
    assert found.log_text == expected
    command = found.command
    assert command is not None and command.argv == ("dir/s.py", "--lr", "0.1", "-m", "x y")
    assert command.script == "s.py"
    assert set(found.snapshot.files) == {"s.py"}  # type: ignore[union-attr]


def test_the_users_own_frames_come_first() -> None:
    """Those of installed packages are left out, and the run has all."""
    Path("s.py").write_text("import json\ndef read(text):\n    return json.loads(text)\nread('no json')\n")
    plain, kept = run("s.py"), luxmeter("run", "s.py")
    assert kept.returncode == plain.returncode == 1 and "json/decoder.py" in plain.stderr
    shown, _, rest = kept.stderr.partition("(3 frames in installed packages left out: luxmeter show ")
    assert (
        "json/" not in shown
        and shown.count('s.py", line') == 2
        and "JSONDecodeError: Expecting value" in shown
    )
    whole = luxmeter("show", rest.split()[0], "--error").stdout
    assert whole == plain.stderr


def test_modules_folders_and_workers() -> None:
    Path("pack").mkdir()
    Path("pack/__init__.py").write_text("")
    Path("pack/__main__.py").write_text(FACTS + "raise KeyError('lost')\n")
    for plain_args, args in (
        (("-m", "pack", "x"), ("run", "-m", "pack", "x")),
        (("pack", "x"), ("run", "pack", "x")),
    ):
        plain, kept = run(*plain_args), luxmeter(*args)
        assert kept.returncode == plain.returncode == 1
        assert json.loads(kept.stdout) == json.loads(plain.stdout)
        assert (
            "raise KeyError('lost')" in kept.stderr and "runpy" not in kept.stderr
        )  # the program's own frames
        assert Lab.open().find("pack").state == "failed"
    assert Lab.open().find("pack~1").command.module == "pack"  # type: ignore[union-attr]
    Path("s.py").write_text(
        "import multiprocessing as mp\n"
        "class Thing:\n    pass\n"
        "def work(thing):\n    print('in the worker', type(thing).__name__, flush=True)\n"
        "if __name__ == '__main__':\n"
        "    p = mp.get_context('spawn').Process(target=work, args=(Thing(),)); p.start(); p.join()\n"
        "    raise SystemExit(p.exitcode)\n"
    )
    done = luxmeter("run", "s.py")
    assert (done.returncode, done.stdout) == (0, "in the worker Thing\n"), done.stderr
    assert len(Lab.open().runs("name = s")) == 1


def test_what_the_program_does_at_its_exit_is_kept() -> None:
    Path("s.py").write_text("import atexit\natexit.register(lambda: print('the last words'))\n")
    done = luxmeter("run", "--quiet", "s.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, "the last words\n", "")
    assert Lab.open().find("s").log_text == "the last words\n"


NATIVE = """
import os, subprocess, sys, time
print('python', flush=True)
os.write(1, b'native \x1b[31mred\x1b[0m\n')
os.write(2, b'to stderr\n')
subprocess.run(['echo', 'a child'])
print('after', flush=True)
above = os.getpid()
if os.fork() == 0:
    while os.getppid() == above:
        time.sleep(0.02)
    os.write(1, b'outlived\n')
    os._exit(0)
"""


@pytest.mark.parametrize("together", [True, False])
def test_output_of_native_code_and_of_other_processes(together: bool) -> None:
    Path("s.py").write_text(NATIVE.replace("\n')", "\\n')").replace("\x1b", "\\x1b"))
    done = subprocess.run(
        [sys.executable, "-m", "luxmeter", "run", "--quiet", "s.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if together else subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
    )
    lines = ["python", "native red", "to stderr", "a child", "after", "outlived"]
    shown = done.stdout.replace("\x1b[31m", "").replace("\x1b[0m", "").splitlines()
    kept = Lab.open().find("s").log_text.splitlines()
    if together:
        assert shown == lines == kept  # in the order they were written
    else:
        assert shown == [line for line in lines if line != "to stderr"] and done.stderr == "to stderr\n"
        assert sorted(kept) == sorted(lines)


def test_a_reader_that_goes_away() -> None:
    Path("s.py").write_text("while True:\n    print('more', flush=True)\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "luxmeter", "run", "s.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    told = process.stderr.read()
    assert process.wait(60) == 1 and "BrokenPipeError" in told
    process.stderr.close()
    assert Lab.open().find("s").state == "failed"


def test_parameters_of_argparse_and_of_the_user() -> None:
    Path("s.py").write_text(
        "import argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--lr', type=float, default=0.5)\np.add_argument('--epochs', type=int, default=3)\n"
        "p.add_argument('--api-key')\nprint(vars(p.parse_args()))\n"
    )
    done = luxmeter(
        "run", "--param", "seed=7", "--name", "named", "s.py", "--lr", "1e-3", "--api-key", "hush"
    )
    assert done.returncode == 0 and "'api_key': 'hush'" in done.stdout
    found = Lab.open().find("named")
    assert found.params == {"lr": 0.001, "epochs": 3, "api_key": "(hidden)", "seed": 7}
    command = found.command
    assert command is not None and command.seed == 7
    assert command.argv == ("s.py", "--lr", "1e-3", "--api-key", "(hidden)")


@pytest.mark.parametrize(
    ("name", "expected"), [((), ("own", {"lr": 0.2})), (("--name", "mine"), ("mine", {"lr": 0.2}))]
)
def test_a_script_with_an_experiment_of_its_own_makes_one_run(
    name: tuple[str, ...], expected: tuple[str, dict[str, Any]]
) -> None:
    with lux.Experiment("above", quiet=True, code=False) as above:
        pass
    Path("s.py").write_text(
        "import luxmeter as lux\nprint('before')\n"
        f"with lux.Experiment('own', {{'lr': 0.2}}, tags=['b'], watch=['made'], parent='{above.id}') as exp:\n"
        "    exp.log({'loss': 1.0}, step=0)\n    print('inside')\n"
        "    import pathlib; pathlib.Path('made').mkdir(); pathlib.Path('made/x.txt').write_text('x')\n"
    )
    done = luxmeter("run", "--tag", "a", *name, "s.py", "--lr", "0.1")
    assert done.returncode == 0, done.stderr
    (row,) = Lab.open().runs("name != above")
    found = Lab.open().find(row.id)
    assert found.identity["parent"] == above.id and above.run.children == [found.id]
    assert (row.name, row.params) == expected == (found.name, found.params)
    assert (
        found.tags == ["a", "b"]
        and found.metric("loss").to_arrow().num_rows == 1
        and found.state == "finished"
    )
    assert found.log_text == "before\ninside\n"
    assert [change.path for change in found.changed_files] == ["x.txt"]
    assert done.stderr.count("luxmeter:") == 1


def test_the_second_experiment_of_a_script_and_one_in_another_lab() -> None:
    Path("s.py").write_text(
        "import luxmeter as lux\nfor seed in range(3):\n"
        "    with lux.Experiment('loop', {'seed': seed}) as exp:\n        exp.log({'loss': float(seed)})\n"
    )
    assert luxmeter("run", "s.py").returncode == 0
    assert sorted(row.params["seed"] for row in Lab.open().runs()) == [0, 1, 2]
    Path("t.py").write_text("import luxmeter as lux\nwith lux.Experiment('there', lab='other'): pass\n")
    assert luxmeter("run", "t.py").returncode == 0
    assert len(Lab.open().runs()) == 3 and [row.name for row in Lab.open("other").runs()] == ["there"]


def test_random_state_of_what_the_program_imports() -> None:
    Path("s.py").write_text(
        "import random, numpy, torch\nprint(random.random(), numpy.random.rand(), torch.rand(1).item())\n"
    )
    assert luxmeter("run", "s.py").returncode == 0
    kept = Lab.open().find("s")
    Path("again.py").write_text(
        "import sys, random, numpy, torch\n"
        "from luxmeter.experiment.seed import start_state\n"
        "from luxmeter.store import Lab\nstart_state.restore(Lab.open().find('s').random_state)\n"
        "print(random.random(), numpy.random.rand(), torch.rand(1).item())\n"
    )
    assert run("again.py").stdout == kept.log_text


def test_wrong_use_is_told_before_the_script_runs() -> None:
    Path("s.py").write_text("open('ran', 'w')\n")
    for args, slug in {
        ("run", "nowhere.py"): "no-script",
        ("run", "-m", "no_such_module_here"): "no-script",
        ("run",): "no-script",
        ("run", "--param", "lr", "s.py"): "param-form",
    }.items():
        with pytest.raises(UsageError) as told:
            build_app()(list(args), standalone_mode=False)
        assert told.value.slug == slug
    done = luxmeter("run", "s.py", LUXMETER_HOME="/proc/nothing")
    assert done.returncode == 2 and "[lab-not-writable]" in done.stderr and "Traceback" not in done.stderr
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("--lr 0.1 --n=5 --flag", {"lr": 0.1, "n": 5, "flag": True}),
        ("-b 32 --layers 64 32 --x", {"b": 32, "layers": [64, 32], "x": True}),
        ("--optim.lr 0.1 --optim.name adam", {"optim": {"lr": 0.1, "name": "adam"}}),
        ("lr=0.1 +model=big data.csv", {"lr": 0.1, "model": "big", "args": ["data.csv"]}),
        (
            "--shift -3 --date 2026-11-16 --hash 12e4567",
            {"shift": -3, "date": "2026-11-16", "hash": "12e4567"},
        ),
        ("--tag a --tag b --tag c", {"tag": ["a", "b", "c"]}),
        ("--a-b 1 -- --c d", {"a_b": 1, "args": ["--c", "d"]}),
        ("--a 1 --a.b 2", {"a": 1, "a.b": 2}),
        ("", {}),
    ],
)
def test_parameters_of_a_command_line(argv: str, expected: dict[str, Any]) -> None:
    assert params_of(argv.split()) == expected


def test_a_program_with_more_files_than_select_can_name() -> None:
    Path("s.py").write_text(
        "import os, resource, sys\n"
        "import luxmeter as lux\n"
        "most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, most), most))\n"
        "held = [open(os.devnull) for _ in range(1500)]\n"
        "with lux.Experiment('s', output='all'):\n"
        "    print('python'); sys.stdout.flush()\n"
        "    os.write(1, b'native\\n'); os.system('echo a child')\n"
    )
    done = subprocess.run([sys.executable, "s.py"], capture_output=True, text=True)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert done.stdout.split("\n")[:3] == ["python", "native", "a child"]
    assert Lab.open().find("s").log_text.splitlines()[:3] == ["python", "native", "a child"]


KILLS_ITS_PUMP = """
import os, signal, time
import psutil

def pumps():
    found = []
    for process in psutil.Process().children(True):
        try:
            found += [process.pid] if "output_pump" in " ".join(process.cmdline()) else []
        except psutil.Error:
            pass
    return found

for i in range({kills}):
    print("before", i, flush=True)
    time.sleep(0.3)
    [pump] = pumps()
    os.kill(pump, signal.SIGKILL)
    print("x" * 200_000, flush=True)
    os.system("echo child " + str(i))
    while i < 7 and pumps() in ([], [pump]):
        time.sleep(0.05)
print("after", flush=True)
"""


@pytest.mark.parametrize("kills", [1, 8])
def test_a_program_outlives_what_keeps_its_output(kills: int) -> None:
    """Killed by whoever runs out of memory: another goes on, with the same pipes; after eight what is printed is only carried."""
    Path("s.py").write_text(KILLS_ITS_PUMP.format(kills=kills))
    done = luxmeter("run", "s.py")
    shown = [line for line in done.stdout.splitlines() if not line.startswith("xxx")]
    wanted = [line for i in range(kills) for line in (f"before {i}", f"child {i}")] + ["after"]
    assert done.returncode == 0 and shown == wanted, done.stderr
    assert done.stdout.count("x" * 200_000) == kills
    run = Lab.open().find("s")
    assert run.state == "finished" and "before 0" in run.log_text
    assert ("after" in run.log_text) == (kills < 8)
