"""Run the C core under the address and undefined-behaviour sanitizers: alone, looking for leaks, and its tests with torch loaded.

python tools/sanitize.py  # build with -fsanitize=address,undefined, exercise the core, run tests/calls/test_core_*.py on it

As a plugin of pytest (`-p sanitize`) this file puts the built core in the place of the installed one.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.util
import os
import resource
import subprocess
import sys
import sysconfig
import tempfile
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "src" / "luxmeter" / "calls" / "core" / "_core.c"
_FLAGS = ["-g", "-O1", "-fno-omit-frame-pointer", "-Wall", "-Wextra", "-Wno-unused-parameter"]
_NAME = "luxmeter.calls.core._core"


def build(folder: Path) -> Path:
    """The core as an extension module in `folder`."""
    target = folder / f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"
    extra = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    include = sysconfig.get_paths()["include"]
    subprocess.run(
        ["gcc", "-shared", "-fPIC", *_FLAGS, *extra, f"-I{include}", str(CORE), "-o", str(target)], check=True
    )
    return target


def run(command: list[str], *libraries: str, **more: str) -> int:
    """A Python process with the sanitizer before all else, and other libraries that it needs at once; its exit code."""
    asked = [["gcc", f"-print-file-name={name}"] for name in ("libasan.so", *libraries)]
    found = [subprocess.run(one, capture_output=True, text=True, check=True).stdout.strip() for one in asked]
    environment = {
        **os.environ,
        "PYTHONMALLOC": "malloc",
        "LD_PRELOAD": " ".join(found),
        # The interpreter itself keeps memory until its end: leaks are looked for by counting, below.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:quarantine_size_mb=1",
        **more,
    }
    return subprocess.run([sys.executable, *command], env=environment, check=False).returncode


def run_tests(target: Path) -> int:
    """The core's own tests on the built core, torch and its C++ around it; their exit code."""
    tests = sorted(map(str, (ROOT / "tests" / "calls").glob("test_core_*.py")))
    command = ["-m", "pytest", "-q", "-p", "sanitize", "-k", "not python", "-W", "ignore", *tests]
    # torch throws: what the sanitizer puts around exceptions must find the real thing when it begins.
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    return run(command, "libstdc++.so", PYTHONPATH=path, LUXMETER_SANITIZED_CORE=str(target))


def pytest_configure(config: Any) -> None:
    """Every test that asks for the C core gets the built one."""
    sys.modules[_NAME] = load(Path(os.environ["LUXMETER_SANITIZED_CORE"]))


def pytest_unconfigure(config: Any) -> None:
    """Nobody has put another one in its place meanwhile; and torch was there."""
    assert sys.modules[_NAME].__file__ == os.environ["LUXMETER_SANITIZED_CORE"], "another core was tested"
    assert "torch" in sys.modules, "without torch"


def load(target: Path) -> Any:
    """Import the extension from its file."""
    spec = importlib.util.spec_from_file_location(_NAME, target)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def exercise(core: Any, calls: int) -> None:
    """Every path of the core: calls, errors, nesting, threads, sections, signatures, instances, totals, fork, strays."""
    for totals in (False, True):
        for inside in (False, True):
            stray = _one_recorder(core, calls, totals=totals, inside=inside)
            gc.collect()
            assert stray(1) is None  # its recorder is gone
    _fork(core)
    _holding(core)
    _packed(core)
    _leaks(core, calls)


def _one_recorder(core: Any, calls: int, *, totals: bool, inside: bool) -> Any:

    class Model:
        def run(self, value: int) -> int:
            return value

        @property
        def size(self) -> int:
            return 1

    def fail() -> None:
        raise ValueError

    waits: list[int] = []
    recorder = core.Recorder(
        totals=totals,
        inside=inside,
        max_signatures=50,
        max_pending=8192,
        classify=lambda kind: core.KEY if kind is complex else core.OPAQUE,
        key=lambda value: ("key", value),
        on_signature=lambda *described: None,
        on_thread=lambda number: None,
        on_chunk=lambda: None,
        sync=lambda: waits.append(1) if not waits else None,
    )
    wrapped = recorder.wrap(lambda *args, **kwargs: None, recorder.add_callable("f"))
    failing = recorder.wrap(fail, recorder.add_callable("fail"))
    outer = recorder.wrap(lambda: wrapped(1), recorder.add_callable("outer", kind=core.SPAN, module=True))
    hidden = recorder.wrap(lambda: wrapped(1), recorder.add_callable("hidden", record=False))
    number = recorder.add_callable("run", boundary=True)
    run = recorder.wrap_resolved(Model.run, lambda model: number)
    section = recorder.add_callable("part", kind=core.SECTION)
    Model.size = recorder.wrap_property(vars(Model)["size"], recorder.add_callable("size"))  # type: ignore[method-assign]
    recorder.start()
    recorder.sample(2)

    def work() -> None:
        for i in range(calls):
            span = recorder.enter(section)
            wrapped(i, 0.5 * i, "text", [1, (2, {"a": None})], slice(1, i), key=2**80, other=1j, kind=int)
            outer(), hidden()
            with contextlib.suppress(ValueError):
                failing()
            model = Model()
            run(model, i)
            assert model.size == 1
            recorder.leave(span)
            if i % 500 == 0:
                (
                    recorder.drain(),
                    recorder.stats(),
                    recorder.live(),
                    recorder.float_ranges(),
                    recorder.totals(),
                )
            if i % 997 == 0:
                recorder.forget_instances(), recorder.pause(), recorder.start(), recorder.step()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    left = recorder.enter(section)
    inner = recorder.enter(section)
    recorder.leave(left)
    assert recorder.section() == section
    recorder.leave(inner)
    for _ in range(100):  # callables and names grow
        recorder.add_callable(f"more {_}"), recorder.wrap(len, recorder.add_callable(f"other {_}"))
    recorder.stop()
    assert wrapped(1) is None and repr(wrapped) and hash(wrapped) and wrapped == wrapped.__wrapped__
    recorder.drain()
    return wrapped


def _fork(core: Any) -> None:
    recorder = core.Recorder(signatures=False)
    wrapped = recorder.wrap(len, recorder.add_callable("len"))
    recorder.start()
    wrapped([])

    def fork() -> None:
        child = os.fork()
        if child == 0:
            recorder.after_fork()
            wrapped([])
            os._exit(0 if recorder.stats()["events"] == 1 else 1)
        assert os.waitpid(child, 0)[1] == 0

    recorder.wrap(fork, recorder.add_callable("fork"))()
    assert recorder.stats()["events"] == 2


def _holding(core: Any) -> None:
    """Namespaces of every size, wanted objects in and not in them, and what is no namespace or no address."""
    objects = [object() for _ in range(1000)]
    for count in (0, 1, 15, 16, 17, 1000):
        wanted = {id(value): value for value in objects[:count]}
        namespaces: list[Any] = [{str(i): value} for i, value in enumerate(objects)]
        namespaces += [{}, {str(i): i for i in range(5000)}, "no dictionary", None]
        assert core.holding(namespaces, wanted) == namespaces[:count]
    assert core.holding([{}], {0: None}) == []
    for wrong in ({"no address": 1}, {2**80: 1}):
        with contextlib.suppress(TypeError, OverflowError):
            core.holding([{}], wrong)
            raise AssertionError("was taken for an address")
    before = sys.getrefcount(objects[0])
    for _ in range(100):
        core.holding([{"a": objects[0]}], {id(objects[0]): objects[0]})
    assert sys.getrefcount(objects[0]) == before


def _packed(core: Any) -> None:
    """Pieces as they are, cut anywhere, and with any byte changed: events or a ValueError, nothing read behind the end."""
    recorder = core.Recorder(max_pending=1 << 16)
    wrapped = recorder.wrap(lambda *args: None, recorder.add_callable("f"))
    recorder.start()
    for i in range(5000):
        wrapped([0] * (i % 700))
    pieces = recorder.take()
    assert len(b"".join(map(core.unpack, pieces))) % core.EVENT_SIZE == 0
    for piece in (pieces[0], *core.pack(core.unpack(pieces[0])[: 40 * core.EVENT_SIZE])):
        for at in range(0, len(piece), 1 + len(piece) // 3000):
            for forged in (piece[:at], piece[:at] + bytes([piece[at] ^ 255]) + piece[at + 1 :]):
                with contextlib.suppress(ValueError):
                    assert len(core.unpack(forged)) % core.EVENT_SIZE == 0


def _leaks(core: Any, calls: int) -> None:
    """Blocks of memory held must not grow with the number of calls."""
    recorder = core.Recorder(on_signature=lambda *described: None)
    wrapped = recorder.wrap(lambda *args, **kwargs: None, recorder.add_callable("f"))
    recorder.start()

    def some() -> None:
        for i in range(calls):
            wrapped(i % 7, [i % 3, "x"], scale=0.5 * i)
            if i % 1000 == 0:
                recorder.drain()

    some()
    gc.collect()
    before = _memory_kb()
    for _ in range(10):
        some()
    recorder.drain()
    gc.collect()
    grown = _memory_kb() - before
    assert grown < 8192, f"{grown} KiB more after {10 * calls} calls"


def _memory_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--exercise", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--calls", type=int, default=20000)
    chosen = parser.parse_args()
    if chosen.exercise is not None:
        exercise(load(chosen.exercise), chosen.calls)
        again = load(chosen.exercise)  # a module of its own, that goes when the last of it goes
        stray = _one_recorder(again, 100, totals=False, inside=False)
        del again
        gc.collect()
        assert stray(1) is None and stray.__class__ is type(main)
        print("the core ran clean", flush=True)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        target = build(Path(folder))
        return run([__file__, "--exercise", str(target)]) or run_tests(target)


if __name__ == "__main__":
    sys.exit(main())
