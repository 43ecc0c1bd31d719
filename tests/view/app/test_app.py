"""The web app: pages, filters, who may ask, what can be reached, what may be changed; and a real server to its end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="needs luxmeter[ui]")
from starlette.testclient import TestClient

import luxmeter as lux
from browser import needs_browser, opened
from luxmeter.experiment import find_run, open_lab
from luxmeter.view.app.guard import POLICY
from luxmeter.view.app.server import build

ONE_CORE = "what the app shows of a trace is the same, whichever core recorded it"
EVIL = "<img src=x onerror=alert(1)>'\"&</script>"
HOST = "127.0.0.1:8265"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    import torch

    for number, name in enumerate(("first", EVIL, "third")):
        with lux.Experiment(name, params={"lr": 0.1 * number, EVIL: EVIL}, quiet=True) as exp:
            for step in range(20):
                exp.log({"loss": 1.0 / (step + 1), EVIL: float(step)}, step)
            if number == 2:
                with lux.trace():
                    for _ in range(30):
                        torch.rand(4, 4) @ torch.rand(4, 4)
            exp.writer.put_file("evil<b>.txt", EVIL)
            exp.writer.put_file("sub/page.html", "<script>alert(1)</script>")
            print("said", EVIL)
    with pytest.raises(ZeroDivisionError), lux.Experiment("broken", quiet=True):
        raise ZeroDivisionError("why it failed")
    return open_lab().folder


def client(lab: Path, *, edit: bool = False, token: str = "", host: str = HOST) -> TestClient:
    app = build(lab, edit=edit, hosts=(HOST,), token=token, port=8265)
    return TestClient(app, base_url=f"http://{host}", follow_redirects=False)


def test_pages(lab: Path) -> None:
    ask = client(lab)
    start = ask.get("/").text
    assert "Running" in start and "Failed last" in start and "why it failed" in start
    third = find_run("third")
    page = ask.get(f"/run/{third.id}").text
    for part in ("Summary", "Parameters", "Metrics", "Curves", "Files", "Output"):
        assert f'aria-label="{part}"' in page, part
    trace = ask.get(f"/run/{third.id}/trace")
    assert "Flame graph" in trace.text and "torch.rand" in trace.text and 'data-lux="timeline"' in trace.text
    window = ask.get(f"/run/{third.id}/trace/window?start=0&end=100000&width=500").json()
    assert window["lanes"][0]["bars"] and "torch.rand" in window["words"]
    assert "test_app.py" in ask.get(f"/run/{third.id}/code").text
    assert "said" in ask.get(f"/run/{third.id}/log").text
    both = ask.get(f"/compare?run={third.id}&run={find_run('first').id}").text
    assert "Compared with another run" in both and 'data-lux="chart"' in both
    assert "names no run" in ask.get("/compare?run=").text or "Choose runs" in ask.get("/compare").text


def test_a_list_is_filtered_sorted_and_paged_by_its_address(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = client(lab)
    assert "4 runs" in ask.get("/runs").text
    few = ask.get("/runs", params={"where": "param.lr > 0.15"}).text
    assert "1 runs" in few and ">third<" in few and ">first<" not in few
    chosen = ask.get("/runs", params={"columns": "id,metric.loss.max", "where": "name = first"}).text
    assert ">loss.max<" in chosen and "param" not in re.findall(r"<th[^>]*>.*?</th>", chosen)[1]
    names = re.findall(
        r'href="/run/[^"]*">([^<]*)</a></td><td class="w"><span', ask.get("/runs?sort=name").text
    )
    assert names == sorted(names)
    bad = ask.get("/runs", params={"where": "param.lr >"})
    assert bad.status_code == 200 and 'role="alert"' in bad.text and 'value="param.lr &gt;"' in bad.text
    monkeypatch.setattr("luxmeter.view.app.pages.PAGE", 3)
    first, second = ask.get("/runs").text, ask.get("/runs?page=2").text
    assert "page 1 of 2" in first and "page=2" in first and "page 2 of 2" in second
    assert not set(re.findall(r'value="([^"]*)" form="compare"', first)) & set(
        re.findall(r'value="([^"]*)" form="compare"', second)
    )


def test_nothing_becomes_markup(lab: Path) -> None:
    ask = client(lab)
    run = find_run(EVIL)
    for address in ("/", "/runs", f"/run/{run.id}", f"/run/{run.id}/log", f"/compare?run={run.id}", f"/runs?where={EVIL}", f"/run/{run.id}/code?path={EVIL}",
                    "/run/%3Cimg%20src=x%20onerror=alert(1)%3E"):  # fmt: skip
        answer = ask.get(address)
        assert "<img" not in answer.text and "onerror=alert(1)>" not in answer.text, address
        assert "alert(1)</script" not in answer.text and " style=" not in answer.text, address
        assert answer.headers["content-security-policy"] == POLICY and "unsafe" not in POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_no_file_outside_of_the_run_can_be_reached(lab: Path) -> None:
    ask = client(lab)
    run = find_run("first")
    (lab / "secret.txt").write_text("secret")
    (run.folder / "files" / "link.txt").symlink_to(lab / "secret.txt")
    for path in ("../secret.txt", "..%2f..%2fsecret.txt", "%2e%2e/%2e%2e/secret.txt", "/etc/passwd", "%2fetc%2fpasswd", "..\\secret.txt",
                 "sub/../../../secret.txt", "%00", "link.txt", "", "."):  # fmt: skip
        answer = ask.get(f"/run/{run.id}/files/{path}")
        assert answer.status_code in (400, 404) and "secret" not in answer.text.replace("secret.txt", ""), (
            path
        )
    for address in (
        "/run/..%2f..%2fsecret.txt",
        "/run/%2e%2e",
        "/web/..%2fapp.py",
        "/web/__init__.py",
        "/web/../cli/ui.py",
    ):
        assert ask.get(address).status_code in (400, 404), address
    evil = ask.get(f"/run/{run.id}/files/sub/page.html")
    assert evil.status_code == 200 and evil.headers["content-type"] == "application/octet-stream"
    assert evil.headers["content-disposition"].startswith("attachment")


def test_who_may_ask(lab: Path) -> None:
    ask = client(lab)
    assert ask.get("/", headers={"host": "evil.example:8265"}).status_code == 403
    assert ask.get("/", headers={"host": "127.0.0.1:9999"}).status_code == 403
    for origin in ("http://evil.example", "null", "http://127.0.0.1:9999"):
        assert ask.get("/", headers={"origin": origin}).status_code == 403
    assert ask.get("/", headers={"origin": f"http://{HOST}"}).status_code == 200
    guarded = client(lab, token="right", host="lab.example:8265")
    assert guarded.get("/").status_code == 403 and guarded.get("/?token=wrong").status_code == 403
    entered = guarded.get("/runs?token=right&where=name%20=%20first")
    assert entered.status_code == 303 and entered.headers["location"] == "/runs?where=name+%3D+first"
    assert (
        "HttpOnly" in entered.headers["set-cookie"]
        and "samesite=strict" in entered.headers["set-cookie"].lower()
    )
    assert guarded.get("/").status_code == 200
    assert (
        client(lab, token="right").get("//evil.example/?token=right").headers["location"].startswith("/evil")
    )


def test_it_is_read_only_unless_asked(lab: Path) -> None:
    run = find_run("first")
    refused = client(lab).post(f"/run/{run.id}/note", data={"note": "x"})
    assert refused.status_code == 403 and "--edit" in refused.text and find_run("first").note == ""
    ask = client(lab, edit=True)
    assert (
        ask.post(
            f"/run/{run.id}/note", data={"note": "a\r\nb"}, headers={"origin": "http://evil.example"}
        ).status_code
        == 403
    )
    assert ask.post(f"/run/{run.id}/note", data={"note": "a\r\nb"}).status_code == 303
    assert ask.post(f"/run/{run.id}/tags", data={"tags": "good new"}).status_code == 303
    assert find_run("first").note == "a\nb" and sorted(find_run("first").tags) == ["good", "new"]
    ask.post(f"/run/{run.id}/tags", data={"tags": "good"})
    assert find_run("first").tags == ["good"]
    over = ask.post(f"/run/{run.id}/control", data={"what": "pause"})
    assert over.status_code == 400 and 'role="alert"' in over.text  # it has ended


def test_what_is_gone_or_damaged_is_one_sentence(lab: Path) -> None:
    ask = client(lab)
    assert ask.get("/run/nothing").status_code == 404 and "nothing" in ask.get("/run/nothing").text
    assert ask.get("/nowhere").status_code == 404
    third = find_run("third")
    assert ask.get(f"/run/{find_run('first').id}/trace").status_code == 404
    for file in (third.folder / "tables").rglob("*.parquet"):
        file.write_bytes(b"PAR1 torn")
    torn = ask.get(f"/run/{third.id}")
    assert torn.status_code in (200, 400, 500) and "cannot be" in torn.text.replace("can't", "cannot")
    lab.rename(lab.with_name("moved"))
    gone = ask.get("/runs")
    assert 'role="alert"' in gone.text and "Traceback" not in gone.text
    lab.with_name("moved").rename(lab)
    assert ask.get("/runs").status_code == 200


# -- a real server ------------------------------------------------------------------------------------------------

TRAINING = """
import sys, time, luxmeter as lux
with lux.Experiment("going", quiet=True) as exp:
    for step in range(int(sys.argv[1])):
        exp.log({"loss": 1.0 / (step + 1)}, step)
        if step % 20 == 0:
            exp.flush()
            print("at", step, flush=True)
        time.sleep(0.005)
"""


@pytest.fixture
def server(lab: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "luxmeter", "ui", "--port", "0", "--no-browser", "--edit"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=lab.parent)
    assert process.stderr is not None
    said = process.stderr.readline()
    found = re.search(r"http://\S+/", said)
    assert found is not None, said + process.stderr.read()
    for _ in range(100):
        try:
            urllib.request.urlopen(found[0], timeout=5).read()
            break
        except OSError:
            time.sleep(0.05)
    try:
        yield found[0], process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(20)
        process.stderr.close()


def started(lab: Path, steps: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", TRAINING, str(steps)], cwd=lab.parent, stdout=subprocess.DEVNULL
    )


def running(lab: Path) -> str:
    for _ in range(600):
        found = [run for run in lux.runs(state="running", lab=lab) if run.metrics]
        if found:
            return found[0].id
        time.sleep(0.05)
    raise AssertionError("nothing runs")


def test_a_stream_sends_what_is_new_and_the_server_ends(
    lab: Path, server: tuple[str, subprocess.Popen[str]]
) -> None:
    address, process = server
    training = started(lab, 600)
    try:
        run = running(lab)
        page = urllib.request.urlopen(f"{address}run/{run}", timeout=20).read().decode()
        live = re.search(r'data-live="([^"]*)"', page)
        assert live is not None
        seen: list[float] = []
        with urllib.request.urlopen(f"{address.rstrip('/')}{live[1]}", timeout=20) as stream:
            for line in stream:
                if line.startswith(b"data: "):
                    news = json.loads(line[6:])
                    seen += [x for x, _ in news.get("points", {}).get("loss", [])]
                if len(seen) > 100:
                    break
        shown = json.loads(
            re.search(r'<script type="application/json">(\{"title":"loss".*?)</script>', page)[1]
        )  # type: ignore[index]
        last = shown["lines"][0]["x"][-1]
        assert seen == [last + 1 + i for i in range(len(seen))]  # none twice, none missing
    finally:
        training.kill()
        training.wait()
    # An open stream does not hold the end up.
    held = threading.Thread(
        target=lambda: urllib.request.urlopen(f"{address}run/{run}/live", timeout=30).read()
    )
    held.start()
    process.send_signal(signal.SIGINT)
    assert process.wait(15) == 0
    held.join(15)
    assert not held.is_alive()


def test_a_port_in_use(lab: Path, server: tuple[str, subprocess.Popen[str]]) -> None:
    port = server[0].rstrip("/").rpartition(":")[2]
    done = subprocess.run(
        [sys.executable, "-m", "luxmeter", "ui", "--port", port, "--no-browser"],
        capture_output=True,
        text=True,
        cwd=lab.parent,
    )
    assert done.returncode == 2 and "ui-port" in done.stderr and "Traceback" not in done.stderr


@needs_browser
def test_in_a_browser(lab: Path, server: tuple[str, subprocess.Popen[str]]) -> None:
    address, _ = server
    third = find_run("third").id
    with opened(f"{address}runs") as tab:
        tab.evaluate("() => { window.same = 1; }")
        tab.locator("main input[name=where]").fill("name = third")
        tab.locator("main button", has_text="show").click()
        tab.get_by_text("1 runs").wait_for()
        assert "where=name+%3D+third" in tab.url
        tab.locator("main tbody a").first.click()
        tab.locator("path.curve").first.wait_for()
        assert (
            tab.url.endswith(f"/run/{third}") and tab.evaluate("() => window.same") == 1
        )  # no page was loaded anew
        tab.get_by_role("link", name="trace").click()
        tab.locator(".lux-f").first.wait_for()
        canvas = tab.locator("canvas")
        canvas.focus()
        for _ in range(3):
            tab.keyboard.press("+")
        tab.locator("tr[data-name='torch.rand']").first.click()
        assert tab.locator(".lux-f.lux-dim").count() > 0
        tab.go_back()
        tab.locator("path.curve").first.wait_for()
        tab.go_back()
        tab.get_by_text("1 runs").wait_for()
        assert tab.locator("main input[name=where]").input_value() == "name = third"
    with opened(f"{address}compare?run={third}&run={find_run('first').id}", width=390, dark=True) as tab:
        tab.locator("path.curve").first.wait_for()
        assert tab.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0
    with opened(f"{address}runs", script=False) as tab:
        tab.locator("main input[name=where]").fill("name = first")
        tab.keyboard.press("Enter")
        tab.get_by_text("1 runs").wait_for()


@needs_browser
def test_a_running_training_is_seen_live(lab: Path, server: tuple[str, subprocess.Popen[str]]) -> None:
    address, _ = server
    training = started(lab, 500)
    try:
        run = running(lab)
        with opened(f"{address}run/{run}") as tab:
            tab.locator("path.curve").first.wait_for()
            before = tab.locator("path.curve").first.get_attribute("d")
            tab.wait_for_function(
                "(old) => document.querySelector('path.curve').getAttribute('d') !== old", arg=before
            )
            os.kill(training.pid, signal.SIGCONT)
            training.wait(60)
            tab.wait_for_function("() => document.getElementById('state').textContent === 'finished'")
    finally:
        training.kill()
        training.wait()
