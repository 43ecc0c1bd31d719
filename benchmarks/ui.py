"""The web app: pages of 10,000 runs, a trace of a million calls, a curve of a million points; beside Trackio and Aim; and beside a training.

    python benchmarks/ui.py                        # all; or --only server, browser, live
    python benchmarks/ui.py --keep FOLDER          # what is made for it stays there and is used again
    python benchmarks/ui.py --peers .venv-peers/bin/python

`server`: milliseconds until the whole answer is here, asked over one connection, medians (and the first answer, where it counts).
`browser`: each in turns in Chromium with an empty cache, 1,000 runs each: from the address to the first run's name on the screen, and the bytes
that came over the wire. `live`: a training that logs 1,000 points a second, in turns with and without its page open in Chromium.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

PEER_RUNS, METRICS, POINTS = 1000, 10, 20
FIRST = "run-0999"  # the newest, which every list shows
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
TRAINING = """
import sys, time, luxmeter as lux
seconds, flag = float(sys.argv[1]), sys.argv[2]
with lux.Experiment("going", quiet=True) as exp:
    exp.log({f"m{k}": 0.0 for k in range(10)}, 0)
    exp.flush()
    print(exp.id if hasattr(exp, "id") else exp.writer.id, flush=True)
    sys.stdin.readline()                       # until the page is there, or is not to be
    start, step, spent = time.perf_counter(), 0, []
    while (now := time.perf_counter()) - start < seconds:
        step += 1
        begun = time.perf_counter()
        sum(i * i for i in range(20000))       # the work of a step
        exp.log({f"m{k}": step / (k + 1) for k in range(10)}, step)
        spent.append(time.perf_counter() - begun)
        left = start + step / 100 - time.perf_counter()   # 100 steps of 10 points a second
        if left > 0:
            time.sleep(left)
    spent.sort()
    print(sum(spent) / len(spent), spent[len(spent) // 2], step, flush=True)
"""


def main() -> None:
    """Entry."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", choices=("server", "browser", "live"), default=["server", "browser", "live"])  # fmt: skip
    parser.add_argument("--keep", type=Path)
    parser.add_argument(
        "--peers", default=sys.executable, help="the Python that has trackio and aim, if another"
    )
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--make", nargs=2, metavar=("PEER", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        {"trackio": make_trackio, "aim": make_aim, "luxmeter": make_ours}[options.make[0]](
            Path(options.make[1])
        )
        return
    with tempfile.TemporaryDirectory() as scratch:
        place = (options.keep or Path(scratch)).absolute()
        place.mkdir(parents=True, exist_ok=True)
        if "server" in options.only:
            measure_server(place, options)
        if "browser" in options.only:
            measure_browser(place, options)
        if "live" in options.only:
            measure_live(place, options)


# -- the server ---------------------------------------------------------------------------------------------------------


def measure_server(place: Path, options: argparse.Namespace) -> None:
    """How long each page takes."""
    import luxmeter as lux
    import store as store_benchmark
    from luxmeter.store import Lab
    from luxmeter.store.layout import RUNS

    folder = place / "lab"
    if not (folder / "lab.json").exists():
        lab = Lab.open(folder)
        store_benchmark.make_runs(lab, options.runs)
        os.environ["LUXMETER_HOME"] = str(folder)
        _make_curve(options.points)
        _make_trace(options.calls)
    aged = time.time() - 60  # as it is when nobody made a run just now
    os.utime(folder / RUNS, (aged, aged))
    found = {name: lux.runs(name=name, lab=folder)[0].id for name in ("curve", "traced")}
    with served(folder) as address:
        ask = Asker(address)
        rows = [
            ("first page of all, before anything was asked", ask("/runs"), None),
            (f"list of {options.runs:,} runs", *ask.median("/runs")),
            ("page 50 of it", *ask.median("/runs?page=50")),
            ("filter by parameter and metric", *ask.median("/runs?where=" + quote("param.lr <= 0.01 and metric.acc > 0.9"))),
            ("the same, sorted by the metric", *ask.median("/runs?sort=-metric.acc&where=" + quote("param.lr <= 0.01 and metric.acc > 0.9"))),
            ("start page", *ask.median("/")),
            (f"run with a curve of {options.points:,} points", *ask.median(f"/run/{found['curve']}")),
            ("a hundredth of that curve, in full", *ask.median(f"/run/{found['curve']}/points?metric=loss&start=500000&end=510000")),
            (f"trace of {options.calls:,} calls: first click", ask(f"/run/{found['traced']}/trace"), None),
            ("the same again", *ask.median(f"/run/{found['traced']}/trace")),
            ("its timeline, whole", *ask.median(f"/run/{found['traced']}/trace/window?start=0&width=1280")),
            ("its timeline, one hundredth", *ask.median(f"/run/{found['traced']}/trace/window?start=500000000&end=510000000&width=1280")),
        ]  # fmt: skip
    print(f"\n{'page':52} {'ms':>9} {'kB, as sent':>12}")
    for name, ms, *_ in rows:
        print(f"{name:52} {ms[0]:9.1f} {ms[1] / 1e3:12.1f}")


class Asker:
    """Asks over one connection."""

    def __init__(self, address: str) -> None:
        self._host = urlsplit(address).netloc

    def __call__(self, path: str) -> tuple[float, int]:
        """Milliseconds and bytes of one answer."""
        connection = http.client.HTTPConnection(self._host, timeout=120)
        connection.connect()
        start = time.perf_counter()
        connection.request("GET", path, headers={"accept-encoding": "gzip"})
        answer = connection.getresponse()
        size = len(answer.read())
        taken = (time.perf_counter() - start) * 1e3
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status}")
        connection.close()
        return taken, size

    def median(self, path: str, times: int = 9) -> tuple[tuple[float, int], None]:
        """The median of several, after one that warms up."""
        self(path)
        taken = [self(path) for _ in range(times)]
        return (statistics.median(ms for ms, _ in taken), taken[0][1]), None


def _make_curve(points: int) -> None:
    import math

    import luxmeter as lux

    with lux.Experiment("curve", quiet=True) as exp:
        for step in range(points):
            exp.log({"loss": math.sin(step / 30000) + (9.0 if step == points // 3 else 0.0)}, step)


def _make_trace(calls: int) -> None:
    import torch

    import luxmeter as lux

    net = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU()) for _ in range(6)])
    x = torch.ones(4)
    with lux.Experiment("traced", quiet=True), lux.trace() as trace:
        made = 0
        while made < calls:
            for _ in range(1000):
                net(x).add(x).mul(x)
            made += 1000 * 21
    print(f"made a trace of about {made:,} calls ({trace is not None})", flush=True)


@contextlib.contextmanager
def served(folder: Path, *more: str) -> Iterator[str]:
    """`luxmeter ui` over a lab; yields its address."""
    command = [sys.executable, "-m", "luxmeter", "ui", "--port", "0", "--no-browser", *more]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder.parent, env={**os.environ, "LUXMETER_HOME": str(folder)})  # fmt: skip
    assert process.stderr is not None
    said = process.stderr.readline()
    found = re.search(r"http://\S+/", said)
    if found is None:
        raise SystemExit(said + process.stderr.read())
    try:
        yield found[0]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)


# -- the browser --------------------------------------------------------------------------------------------------------


def measure_browser(place: Path, options: argparse.Namespace) -> None:
    """First useful page and bytes, beside Trackio and Aim."""
    from playwright.sync_api import sync_playwright

    folders = {name: place / f"peer-{name}" for name in ("luxmeter", "trackio", "aim")}
    for name, folder in folders.items():
        if not folder.exists():
            python = sys.executable if name == "luxmeter" else options.peers
            start = time.perf_counter()
            subprocess.run(
                [python, __file__, "--make", name, str(folder)], check=True, stdout=subprocess.DEVNULL
            )
            print(f"made {PEER_RUNS} runs in {name}: {time.perf_counter() - start:.0f} s", flush=True)
    with contextlib.ExitStack() as open_servers, sync_playwright() as playwright:
        pages = {
            "luxmeter": open_servers.enter_context(served(folders["luxmeter"])) + "runs",
            "trackio": open_servers.enter_context(trackio_served(folders["trackio"], options.peers)),
            "aim": open_servers.enter_context(aim_served(folders["aim"], options.peers)) + "runs",
        }
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        taken: dict[str, list[tuple[float, int, int]]] = {name: [] for name in pages}
        for turn in range(options.rounds + 1):
            for name, address in pages.items():
                found = looked_at(browser, address)
                if turn:  # the first warms the server up
                    taken[name].append(found)
    print(f"\n{PEER_RUNS} runs, empty cache: {'first run seen, ms':>24} {'requests':>9} {'kB':>9}")
    for name, several in taken.items():
        ms, requests, size = (statistics.median(one[k] for one in several) for k in range(3))
        spread = f"{min(s[0] for s in several):.0f} to {max(s[0] for s in several):.0f}"
        print(f"{name:23} {ms:12.0f} ({spread:>14}) {requests:9.0f} {size / 1e3:9.0f}")


def looked_at(browser: object, address: str) -> tuple[float, int, int]:
    """Milliseconds until the newest run's name is seen; requests and bytes until all is quiet."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})  # type: ignore[attr-defined]
    page = context.new_page()
    page.set_default_timeout(90_000)
    wire = context.new_cdp_session(page)
    wire.send("Network.enable")
    sizes: list[int] = []
    wire.on("Network.loadingFinished", lambda told: sizes.append(int(told["encodedDataLength"])))
    start = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.get_by_text(FIRST).first.wait_for(state="visible")
    taken = (time.perf_counter() - start) * 1e3
    with contextlib.suppress(Exception):
        page.wait_for_load_state("networkidle", timeout=5000)
    context.close()
    return taken, len(sizes), sum(sizes)


def _values(run: int) -> Iterator[tuple[int, dict[str, float]]]:
    for step in range(POINTS):
        yield step, {f"metric{k}": (run + k) / (step + 1) for k in range(METRICS)}


def make_ours(folder: Path) -> None:
    """The runs as lux.Experiment keeps them."""
    from luxmeter.store import Lab

    lab = Lab.open(folder)
    for i in range(PEER_RUNS):
        with lab.create_run(f"run-{i:04}", params={"lr": 10 ** -(i % 5), "batch": 2 ** (i % 8)}) as run:
            for step, values in _values(i):
                run.log(values, step=step)


def make_trackio(folder: Path) -> None:
    """The runs as trackio keeps them."""
    os.environ["TRACKIO_DIR"] = str(folder)
    from trackio.sqlite_storage import SQLiteStorage

    for i in range(PEER_RUNS):
        steps, values = zip(*_values(i), strict=True)
        config = {"lr": 10 ** -(i % 5), "batch": 2 ** (i % 8)}
        SQLiteStorage.bulk_log("bench", f"run-{i:04}", list(values), steps=list(steps), config=config)


def make_aim(folder: Path) -> None:
    """The runs as aim keeps them."""
    from aim import Repo, Run

    folder.mkdir(parents=True)
    Repo.from_path(str(folder), init=True)
    for i in range(PEER_RUNS):
        run = Run(repo=str(folder), experiment="bench", system_tracking_interval=None, capture_terminal_logs=False)  # fmt: skip
        run.name = f"run-{i:04}"
        run["hparams"] = {"lr": 10 ** -(i % 5), "batch": 2 ** (i % 8)}
        for step, values in _values(i):
            for key, value in values.items():
                run.track(value, name=key, step=step)
        run.close()


@contextlib.contextmanager
def trackio_served(folder: Path, python: str) -> Iterator[str]:
    """Trackio's dashboard."""
    port = _free_port()
    code = f"import trackio, time; trackio.show(project='bench', open_browser=False, block_thread=False, server_port={port}); time.sleep(1e6)"
    with _peer([python, "-c", code], {"TRACKIO_DIR": str(folder)}):
        _answers(f"http://127.0.0.1:{port}/")
        yield f"http://127.0.0.1:{port}/?project=bench"


@contextlib.contextmanager
def aim_served(folder: Path, python: str) -> Iterator[str]:
    """Aim's server."""
    port = _free_port()
    command = [str(Path(python).with_name("aim")), "up", "--port", str(port), "--repo", str(folder), "-y"]
    with _peer(command, {"AIM_UI_TELEMETRY_ENABLED": "0"}):
        _answers(f"http://127.0.0.1:{port}/")
        yield f"http://127.0.0.1:{port}/"


@contextlib.contextmanager
def _peer(command: list[str], variables: dict[str, str]) -> Iterator[None]:
    quiet = {**os.environ, **variables, "DO_NOT_TRACK": "1", "GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_OFFLINE": "1"}  # fmt: skip
    process = subprocess.Popen(command, env=quiet, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def _free_port() -> int:
    import socket

    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def _answers(address: str) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            urllib.request.urlopen(address, timeout=30).read()
            return
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"{address} does not answer")


# -- a training ---------------------------------------------------------------------------------------------------------


def measure_live(place: Path, options: argparse.Namespace) -> None:
    """The time of a training's step, with its page open and without, in turns."""
    from playwright.sync_api import sync_playwright

    folder = place / "lab-live"
    from luxmeter.store import Lab

    Lab.open(folder)
    ratios: dict[str, list[float]] = {"mean": [], "median": []}
    with served(folder) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        shown = 0
        for turn in range(2 * options.rounds + 1):
            both = {}
            for is_open in (False, True) if turn % 2 else (True, False):
                process = subprocess.Popen(
                    [sys.executable, "-c", TRAINING, "5", str(is_open)], cwd=folder.parent, env={**os.environ, "LUXMETER_HOME": str(folder)},
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                )  # fmt: skip
                assert process.stdin is not None and process.stdout is not None
                run = process.stdout.readline().strip()
                page = None
                if is_open:
                    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
                    page.goto(f"{address}run/{run}")
                    page.locator("svg").first.wait_for()
                process.stdin.write("go\n")
                process.stdin.flush()
                mean, median, steps = map(float, process.stdout.readline().split())
                process.wait()
                both[is_open] = (mean, median, steps)
                if page is not None:
                    page.locator("#state", has_text="finished").wait_for()
                    shown += 1
                    page.context.close()
            if turn:
                ratios["mean"].append(both[True][0] / both[False][0])
                ratios["median"].append(both[True][1] / both[False][1])
    print(
        f"\na step of a training that logs 1,000 points a second, its page open / not ({shown} pages followed it to its end)"
    )
    for name, several in ratios.items():
        several.sort()
        print(
            f"{name:8} ratio {statistics.median(several):.3f} (of {len(several)} pairs: {several[0]:.3f} to {several[-1]:.3f})"
        )


if __name__ == "__main__":
    main()
