"""A real server: streams, its end, a port in use, who writes meanwhile; and what people see of it in a real browser."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from made_app import EVIL, client, named

import luxmeter as lux
from browser import needs_browser, opened
from luxmeter.experiment import find_run, open_lab
from postgres_server import PostgresServer

TRAINING = """
import os, sys, time
from luxmeter.experiment import open_lab
lab = open_lab()
with lab.create_run("going") as run:
    for step in range(int(sys.argv[1])):
        run.log({"loss": 1.0 / (step + 1)}, step=step)
        if step % 20 == 0:
            run.flush()
        if os.path.exists("stop"):
            break
        time.sleep(0.005)
"""
SIXTEEN = """
import os, sys
from luxmeter.experiment import open_lab
children = []
for number in range(16):
    child = os.fork()
    if child == 0:
        lab = open_lab()
        for _ in range(2):
            with lab.create_run("many", params={"number": number}) as run:
                for step in range(50):
                    run.log({"loss": float(step)}, step=step)
                    run.flush()
        os._exit(0)
    children.append(child)
sys.exit(sum(os.waitpid(child, 0)[1] for child in children))
"""


@pytest.fixture
def server(lab: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "luxmeter", "ui", "--port", "0", "--no-browser", "--edit"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = process.stderr.readline()
    found = re.search(r"http://\S+/", said)
    assert found is not None, said + process.stderr.read()
    try:
        yield found[0], process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(20)
        process.stderr.close()


@contextlib.contextmanager
def training(steps: int) -> Iterator[subprocess.Popen[bytes]]:
    """A program that logs."""
    process = subprocess.Popen([sys.executable, "-c", TRAINING, str(steps)], stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def running(lab: Path) -> str:
    """The id of the run that goes on, once it has logged something."""
    for _ in range(600):
        found = [run for run in lux.runs(name="going", state="running", lab=lab) if run.metrics]
        if found:
            return found[0].id
        time.sleep(0.05)
    raise AssertionError("nothing runs")


def test_a_stream_sends_what_is_new_and_the_server_ends(
    lab: Path, server: tuple[str, subprocess.Popen[str]]
) -> None:
    address, process = server
    with training(100_000):
        run = running(lab)
        page = urllib.request.urlopen(f"{address}run/{run}", timeout=60).read().decode()
        live = re.search(r'data-live="([^"]*)"', page)
        shown = re.search(r'<script type="application/json">(\{"title":"loss".*?)</script>', page)
        assert live is not None and shown is not None
        seen: list[float] = []
        with urllib.request.urlopen(f"{address.rstrip('/')}{live[1]}", timeout=60) as stream:
            for line in stream:
                if line.startswith(b"data: "):
                    seen += [x for x, _ in json.loads(line[6:]).get("points", {}).get("loss", [])]
                if len(seen) > 100:
                    break
        last = json.loads(shown[1])["lines"][0]["x"][-1]
        assert seen == [last + 1 + i for i in range(len(seen))]  # none twice, none missing
        # Open streams do not hold the end up.
        held = [threading.Thread(target=_read_all, args=(f"{address}run/{run}/live",)) for _ in range(3)]
        for thread in held:
            thread.start()
        process.send_signal(signal.SIGINT)
        assert process.wait(15) == 0
        for thread in held:
            thread.join(15)
            assert not thread.is_alive()


def _read_all(address: str) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):
        urllib.request.urlopen(address, timeout=30).read()


def test_a_port_in_use_and_paths_as_they_are(lab: Path, server: tuple[str, subprocess.Popen[str]]) -> None:
    host = urlsplit(server[0]).netloc
    port = host.rpartition(":")[2]
    done = subprocess.run([sys.executable, "-m", "luxmeter", "ui", "--port", port, "--no-browser"], capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 2 and "ui-port" in done.stderr and "Traceback" not in done.stderr
    run = named("first", lab).id
    for path in ("/run/..", "/trace/..", "/web/../../lab.json", f"/run/{run}/files/../../../lab.json", f"/run/{run}/files//etc/passwd", "//etc/passwd", "/..%2f..%2fetc%2fpasswd"):  # fmt: skip
        connection = http.client.HTTPConnection(host, timeout=30)
        connection.putrequest("GET", path, skip_host=True)
        connection.putheader("Host", host)
        connection.endheaders()
        answer = connection.getresponse()
        text = answer.read().decode()
        assert answer.status in (400, 404) and "root:" not in text and '"format"' not in text, path
        connection.close()


def test_on_another_address_a_token_is_needed(lab: Path) -> None:
    command = [sys.executable, "-m", "luxmeter", "ui", "--port", "0", "--host", "0.0.0.0", "--no-browser"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        found = re.search(r"http://0\.0\.0\.0:(\d+)/\?token=(\S+)", process.stderr.readline())
        assert found is not None and len(found[2]) > 20
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/runs", timeout=30)
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        assert b"10 runs" in opener.open(f"http://127.0.0.1:{found[1]}/runs?token={found[2]}", timeout=60).read()  # fmt: skip
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)
        process.stderr.close()


@pytest.mark.parametrize("index", ["sqlite", "postgres"])
def test_while_sixteen_processes_write(
    index: str, lab: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every page answers, and in the end all runs are there, whichever database the index is."""
    if index == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        monkeypatch.setenv("LUXMETER_STORE_URL", server.new_database("app"))
    ask = client(lab)
    assert "10 runs" in ask.get("/runs").text
    writers = subprocess.Popen([sys.executable, "-c", SIXTEEN])
    asked = 0
    while writers.poll() is None:
        for address in ("/", "/runs?where=param.number+%3E+3&sort=-metric.loss", "/compare?where=many&by=param.number", "/run/latest"):  # fmt: skip
            answer = ask.get(address)
            assert answer.status_code == 200 and 'role="alert"' not in answer.text, address
            asked += 1
    assert writers.returncode == 0 and asked >= 4
    assert "32 runs" in ask.get("/runs?where=name+%3D+many").text
    assert "page 1 of 1, 24 runs" in ask.get("/runs?where=param.number+%3E+3").text
    open_lab(lab).close()


# -- in a browser ---------------------------------------------------------------------------------------------------


@needs_browser
def test_in_a_browser(lab: Path, server: tuple[str, subprocess.Popen[str]]) -> None:
    address, _ = server
    third, first = named("third", lab).id, named("first", lab).id
    evil = named(EVIL, lab).id
    with opened(f"{address}runs") as tab:
        tab.evaluate("() => { window.same = 1; }")
        tab.locator("main input[name=where]").fill("tag = one")
        tab.keyboard.press("Enter")
        tab.get_by_text("2 runs").wait_for()
        tab.locator("th a", has_text="name").click()  # sorted on the server
        tab.wait_for_function("() => location.search.includes('sort=name')")
        tab.locator("details summary", has_text="columns").click()
        tab.locator("input[name=columns][value='metric.loss']").check()
        tab.locator("input[name=columns][value='id']").check()
        tab.locator("details button", has_text="show").click()
        tab.wait_for_function("() => document.querySelectorAll('main thead th').length === 3")
        shared = tab.url
        tab.locator(f"main tbody a[href='/run/{third}']").click()
        tab.locator("path.curve").first.wait_for()
        assert (
            tab.url.endswith(f"/run/{third}") and tab.evaluate("() => window.same") == 1
        )  # nothing was loaded anew
        tab.get_by_role("link", name="trace", exact=True).click()
        tab.locator(".lux-f").first.wait_for()
        canvas = tab.locator("canvas")
        canvas.focus()
        for _ in range(3):
            tab.keyboard.press("+")
        tab.wait_for_function("() => new URL(location.href).searchParams.has('start')")
        part = tab.url
        tab.locator("tr[data-name='torch.rand']").first.click()
        assert tab.locator(".lux-f.lux-dim").count() > 0
        tab.go_back()
        tab.locator("path.curve").first.wait_for()
        tab.go_back()
        tab.get_by_text("2 runs").wait_for()
        assert tab.url == shared
        tab.goto(f"{address}run/{evil}")
        tab.locator("path.curve").first.wait_for()
        assert EVIL in tab.locator("h1").inner_text()
        tab.goto(part)  # somebody else opens what was shared
        tab.wait_for_function(
            "() => document.querySelector('canvas').parentElement.textContent.includes('shown')"
        )
        assert "ms shown" in tab.locator("[data-lux=timeline]").inner_text() or "us shown" in tab.locator("[data-lux=timeline]").inner_text()  # fmt: skip
    with opened(f"{address}compare?where=sweep&by=param.lr", width=390, dark=True) as tab:
        tab.locator("path.band").first.wait_for()
        assert tab.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0
        tab.locator("select[name=by]").select_option("repeats")
        tab.wait_for_function("() => location.search.includes('by=repeats')")
        tab.locator("path.band").first.wait_for()
        for path in ("", "runs", f"run/{third}", f"run/{third}/trace", f"compare?run={third}&run={first}"):
            tab.goto(f"{address}{path}")
            assert tab.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0, path
    with opened(f"{address}runs", script=False) as tab:
        tab.locator("main input[name=where]").fill("name = first")
        tab.keyboard.press("Enter")
        tab.get_by_text("1 run", exact=False).first.wait_for()
        tab.locator(f"main tbody a[href='/run/{first}']").first.click()
        assert tab.get_by_text("Parameters").first.is_visible() and tab.locator("svg path.curve, svg polyline, svg path").count()  # fmt: skip
        tab.locator("summary", has_text="change note and tags").click()
        tab.locator("input[name=tags]").fill("kept")
        tab.locator("button", has_text="keep the tags").click()
        tab.wait_for_url(f"**/run/{first}")
    assert find_run("first").tags == ["kept"]


@needs_browser
def test_runs_are_chosen_with_the_keyboard_alone(lab: Path, server: tuple[str, subprocess.Popen[str]]) -> None:  # fmt: skip
    with opened(f"{server[0]}runs?where=sweep") as tab:
        tab.locator("tbody input[type=checkbox]").first.focus()
        tab.keyboard.press("Space")
        for _ in range(3):  # past the links of the row, to the next box
            tab.keyboard.press("Tab")
        tab.keyboard.press("Space")
        assert tab.locator("tbody input:checked").count() == 2
        tab.locator("button", has_text="compare the chosen").focus()
        tab.keyboard.press("Enter")
        tab.get_by_text("Compared with another run").wait_for()
        assert tab.url.count("run=") == 2


@needs_browser
def test_a_running_training_is_seen_live_to_its_end(lab: Path, server: tuple[str, subprocess.Popen[str]]) -> None:  # fmt: skip
    address, _ = server
    with training(100_000) as process:
        run = running(lab)
        with opened(f"{address}run/{run}") as tab:
            tab.locator("path.curve").first.wait_for()
            tab.wait_for_function("() => /step \\d/.test(document.getElementById('progress').textContent)")
            before = tab.locator("path.curve").first.get_attribute("d")
            tab.wait_for_function(
                "(old) => document.querySelector('path.curve').getAttribute('d') !== old", arg=before
            )
            count = "() => document.querySelector('[data-metrics] tr[data-name] td:nth-child(2)').textContent"
            told = tab.evaluate(count)
            tab.wait_for_function(f"(old) => ({count})() !== old", arg=told, timeout=30_000)
            start = tab.context.new_page()  # what goes on is brought up to date there, too
            start.goto(address)
            stands = "() => document.querySelector('[aria-label=Running]').innerText"
            told = start.evaluate(stands)
            start.wait_for_function(f"(old) => ({stands})() !== old", arg=told, timeout=30_000)
            start.close()
            Path("stop").touch()
            process.wait(60)
            tab.wait_for_function("() => document.getElementById('state').textContent === 'finished'")
            tab.wait_for_function("() => document.querySelector('path.curve') !== null")


@needs_browser
def test_a_run_removed_and_a_server_gone_are_told_on_the_page(lab: Path, server: tuple[str, subprocess.Popen[str]]) -> None:  # fmt: skip
    address, process = server
    with training(100_000) as trained, contextlib.ExitStack() as stack:
        run = running(lab)
        tab = stack.enter_context(opened(f"{address}run/{run}", may_fail=True))
        tab.locator("path.curve").first.wait_for()
        os.kill(trained.pid, signal.SIGSTOP)
        shutil.move(str(lab / "runs" / run), lab / "away")
        tab.get_by_text("This run was removed.").wait_for()
        assert tab.locator("#state").inner_text() == "removed"
        shutil.move(str(lab / "away"), lab / "runs" / run)
        tab.goto(address)
        lab.rename(lab.with_name("elsewhere"))
        tab.get_by_text("There is no lab").wait_for(timeout=30_000)
        lab.with_name("elsewhere").rename(lab)
        tab.get_by_text("There is no lab").wait_for(state="detached", timeout=30_000)
        os.kill(trained.pid, signal.SIGCONT)
        tab.goto(f"{address}runs")
        process.send_signal(signal.SIGINT)
        process.wait(20)
        tab.locator("main tbody a").first.click()
        tab.get_by_text("The server does not answer").wait_for()


TRAINER = """
import time, torch, luxmeter as lux

class Points(lux.Trainer):
    def initial_trainer(self, params):
        self.model = torch.nn.Linear(4, 2)
        self.optim = torch.optim.SGD(self.model.parameters(), lr=params.lr)
        points = torch.randn(64, 4)
        self.register_data(train=lux.DataLoader(list(zip(points, (points.sum(1) > 0).long())), batch_size=32))

    def train_batch(self, eidx, idx, global_step, batch_data, params, device):
        xs, ys = batch_data
        time.sleep(0.01)
        return torch.nn.functional.cross_entropy(self.model(xs), ys)

Points({"lr": 0.1, "epoch": 100000}).train()
"""


def test_a_training_is_paused_resumed_and_stopped(lab: Path) -> None:
    Path("points.py").write_text(TRAINER)
    ask = client(lab, edit=True)
    process = subprocess.Popen([sys.executable, "points.py"], stdout=subprocess.DEVNULL)
    try:
        for _ in range(600):
            going = lux.runs(state="running", lab=lab)
            at = f"/run/{going[0].id}" if len(going) else "/"
            if 'value="pause"' in ask.get(at).text:
                break
            time.sleep(0.05)
        assert 'value="pause"' in ask.get(at).text and 'value="pause"' not in client(lab).get(at).text
        for what in ("pause", "resume", "checkpoint", "stop"):
            answer = ask.post(f"{at}/control", data={"what": what})
            assert answer.status_code == 303 and answer.headers["location"] == f"{at}?answered={what}"
            if what == "pause":
                said = ask.get(answer.headers["location"]).text
                assert "it is paused at step" in said and "paused" in ask.get("/").text
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    ended = ask.post(f"{at}/control", data={"what": "pause"})
    assert ended.status_code == 400 and "control-ended" in ended.text
