"""The pages of the app: what they show, who may ask, what can be reached, what may be changed."""

from __future__ import annotations

import html
import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from made_app import EVIL, HOST, client, named

import luxmeter as lux
from luxmeter.experiment import find_run, open_lab
from luxmeter.view.app.guard import POLICY

ONE_CORE = "what the app shows of a trace is the same, whichever core recorded it"


def test_pages(lab: Path) -> None:
    ask = client(lab)
    start = ask.get("/").text
    assert "Running" in start and "Failed last" in start and "ZeroDivisionError: why it failed" in start
    third = named("third", lab)
    page = ask.get(f"/run/{third.id}").text
    for part in ("Summary", "Parameters", "Metrics", "Curves", "Output"):
        assert f'aria-label="{part}"' in page, part
    assert "program.py" in ask.get(f"/run/{third.id}/code").text
    assert "import contextlib" in ask.get(f"/run/{third.id}/code?path=program.py").text
    assert "has no file" in ask.get(f"/run/{third.id}/code?path=../program.py").text
    assert "The code is the same" in ask.get(f"/run/{third.id}/code?against=first").text
    assert "said" in ask.get(f"/run/{third.id}/log").text
    assert ask.get(f"/run/{third.id}/output.txt").headers["content-disposition"].startswith("attachment")
    assert "sub/page.html" in ask.get(f"/run/{third.id}/files").text
    shown = ask.get(f"/run/{third.id}/files?path=sub/page.html")
    assert "&lt;script&gt;alert(1)" in shown.text and shown.headers["content-type"].startswith("text/html")
    assert ask.get("/run/latest").status_code == 200 and ask.get("/run/third").status_code == 200


def test_what_a_page_loads_is_kept_by_the_browser_and_is_all_there_is(lab: Path) -> None:
    ask = client(lab)
    start = ask.get("/").text
    loaded = re.findall(r'(?:src|href)="(/web/[^"]*)"', start)
    assert len(loaded) == 2 and "no-store" in ask.get("/").headers["cache-control"]
    for address in loaded:
        answer = ask.get(address)
        assert answer.status_code == 200 and "immutable" in answer.headers["cache-control"]
    assert "import " not in re.sub(r"//.*", "", ask.get(loaded[1]).text)  # one script: nothing else is got


def test_a_list_is_filtered_sorted_and_paged_by_its_address(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = client(lab)
    assert "10 runs" in ask.get("/runs").text
    few = ask.get("/runs", params={"where": "param.lr > 0.15 and tag = one"}).text
    assert "1 run<" in few and ">third<" in few and ">first<" not in few
    chosen = ask.get(
        "/runs", params={"columns": ["id", "metric.loss.max,name"], "where": "name = first"}
    ).text
    heads = re.findall(r'class="lux-sort"[^>]*>([^<]*)<', chosen)
    assert heads == ["id", "loss.max", "name"]
    assert 'value="metric.loss.max" checked' in chosen and 'value="param.lr"' in chosen
    names = re.findall(r'href="/run/[^"]*">([^<]*)</a></td><td class="w"><span', ask.get("/runs?sort=name").text)  # fmt: skip
    assert names == sorted(names) and len(names) == 10
    first = named("first", lab).id
    assert f'title="{first}" href="/run/{first}">{first.partition("-")[0]}</a>' in ask.get("/runs").text
    bad = ask.get("/runs", params={"where": "param.lr >"})
    assert bad.status_code == 200 and 'role="alert"' in bad.text and 'value="param.lr &gt;"' in bad.text
    assert 'role="alert"' in ask.get("/runs?columns=nonsense").text
    monkeypatch.setattr("luxmeter.view.app.runs_list.PAGE", 6)
    first, second = ask.get("/runs").text, ask.get("/runs?page=2").text
    assert "page 1 of 2" in first and "page=2" in first and "page 2 of 2" in second
    boxes = [set(re.findall(r'value="([^"]*)" form="compare"', text)) for text in (first, second)]
    assert len(boxes[0]) == 6 and len(boxes[1]) == 4 and not boxes[0] & boxes[1]
    assert "There are 2 pages" in ask.get("/runs?page=99").text
    assert "page 1 of 2" in ask.get("/runs?page=x").text


def test_runs_are_compared_and_grouped(lab: Path) -> None:
    ask = client(lab)
    two = ask.get(f"/compare?run=third&run={named('first', lab).id}").text
    assert "Compared with another run" in two and 'data-lux="chart"' in two
    assert "Choose runs" in ask.get("/compare").text
    each = ask.get("/compare?where=sweep").text
    assert "6 runs" in each and "Parallel coordinates" in each and 'value="param.lr"' in each

    def lines(address: str) -> list[dict[str, object]]:
        blocks = re.findall(r'<script type="application/json">(\{"title":"acc".*?)</script>', ask.get(address).text)  # fmt: skip
        return json.loads(blocks[0])["lines"]  # type: ignore[no-any-return]

    assert len(lines("/compare?where=sweep")) == 6
    groups = lines("/compare?where=sweep&by=param.lr")
    assert [(g["name"], g["n"]) for g in groups] == [("lr = 0.5", 3), ("lr = 0.9", 3)]
    assert groups[0]["y"][10] == pytest.approx(0.5 * 10 + 1) and groups[0]["low"][10] < 6 < groups[0]["high"][10]  # type: ignore[index]  # fmt: skip
    assert [g["n"] for g in lines("/compare?where=sweep&by=repeats")] == [3, 3]
    assert 'href="/runs?where=sweep">sweep</a>' in each  # a shared address says what it compares
    mixed = ask.get(f"/compare?run={named('third', lab).id}&run={named('swept', lab).id}").text
    numbers = {
        title: json.loads(found)
        for title, found in re.findall(r'\{"title":"(\w+)"[^{]*?"lines":.*?"numbers":(\[[^]]*\])', mixed)
    }
    assert numbers["loss"] == [0] and numbers["acc"] == [1]  # each run has its colour in every chart
    refused = ask.get("/compare?where=sweep&by=duration").text
    assert "not grouped by duration" in refused and "Parallel coordinates" in refused
    assert 'role="alert"' in ask.get("/compare", params={"where": "param.lr >"}).text


def test_metrics_are_chosen_and_paged(lab: Path) -> None:
    with lux.Experiment("many", quiet=True) as exp:
        exp.log({f"layer{k}/norm": float(k) for k in range(30)}, 0)
    ask = client(lab)
    first, third = ask.get("/run/many").text, ask.get("/run/many?page=3").text
    assert first.count('data-lux="chart"') == 12 and "page 1 of 3, 30 metrics" in first
    assert third.count('data-lux="chart"') == 6
    assert ask.get("/run/many?metrics=layer7").text.count('data-lux="chart"') == 1
    assert "No metric is called" in ask.get("/run/many?metrics=nothing").text


def test_of_a_long_curve_every_peak_is_drawn_and_a_part_comes_in_full(lab: Path) -> None:
    with lux.Experiment("long", quiet=True) as exp:
        for step in range(20_000):
            exp.log({"loss": 9.0 if step == 12_345 else 1.0}, step)
    ask = client(lab)
    page = ask.get("/run/long").text
    drawn = json.loads(re.findall(r'<script type="application/json">(\{"title":"loss".*?)</script>', page)[0])["lines"][0]  # fmt: skip
    assert len(drawn["x"]) < 2000 and drawn["y"][drawn["x"].index(12_345)] == 9.0
    part = ask.get("/run/long/points?metric=loss&start=12000&end=12500").json()
    assert part["x"] == list(range(12_000, 12_501)) and max(part["y"]) == 9.0
    assert ask.get("/run/long/points?metric=nothing").status_code == 400


def test_a_trace_is_explored(lab: Path) -> None:
    ask = client(lab)
    third = named("third", lab)
    page = ask.get(f"/run/{third.id}/trace").text
    assert "Flame graph" in page and "torch.rand" in page and 'data-lux="timeline"' in page
    assert "<li>3,000 calls of" in page and '"title":"3,000 calls in' in page  # ours are not among them
    by_signature = ask.get(f"/run/{third.id}/trace?by=signature").text
    assert ">Signature</th>" in by_signature and ">Signature</th>" not in page and ">API</th>" in page
    assert ask.get(f"/run/{third.id}/trace?by=nonsense").status_code == 200
    whole = ask.get(f"/run/{third.id}/trace/window?width=100").json()
    bars = whole["lanes"][0]["bars"]
    assert (
        len(bars) < 1500 and sum(bar[6] for bar in bars) == 3000
    )  # thin calls are drawn together, none is lost
    part = ask.get(f"/run/{third.id}/trace/window?start=0&end=100000&width=500").json()
    assert part["lanes"][0]["bars"] and "torch.rand" in part["words"]
    assert all(bar[2] <= 100_000 for bar in part["lanes"][0]["bars"])
    assert '"window":[5,100000]' in ask.get(f"/run/{third.id}/trace?start=5&end=100000").text
    for odd in ("start=9&end=3", "start=x", "start=-5&end=99999999999999999999", "width=-1", "n=0"):
        assert ask.get(f"/run/{third.id}/trace/window?{odd}").status_code == 200, odd
    assert ask.get(f"/run/{third.id}/trace?n=7").status_code == 404
    assert ask.get(f"/run/{named('first', lab).id}/trace").status_code == 404
    shutil.copytree(third.results("trace")[0].folder, lab / "traces" / "alone-20261118-200000")
    assert "alone-20261118-200000" in ask.get("/traces").text
    assert "torch.rand" in ask.get("/trace/alone-20261118-200000").text
    assert ask.get("/trace/alone-20261118-200000/window").json()["lanes"]
    assert ask.get("/trace/nothing").status_code == 404


def test_all_traces_of_the_lab_are_listed_those_of_runs_with_their_run(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = client(lab)
    third = named("third", lab)
    with lux.Experiment(EVIL, quiet=True):
        for _ in range(2):
            with lux.trace():
                torch.ones(1)
    shutil.copytree(third.results("trace")[0].folder, lab / "traces" / "alone-20261118-200000")
    page = ask.get("/traces").text
    assert (
        "page 1 of 1, 4 traces" in page
        and f">third {third.id.partition('-')[0]}</a>" in page
        and "<img" not in page
    )
    links = re.findall(r'href="(/(?:run|trace)/[^"]*)"', page)
    assert len([at for at in links if "trace" in at]) == 4 and "/trace/alone-20261118-200000" in links
    evil = named(EVIL, lab)
    assert links[:3] == [
        f"/run/{evil.id}/trace?n=1",
        f"/run/{evil.id}",
        f"/run/{evil.id}/trace?n=0",
    ]  # the newest first
    for at in links:
        assert ask.get(at).status_code == 200, at
    assert page.count("1 call in") == 2 and page.count("3,000 calls in") == 2
    (third.folder / "status.json").write_text("{")
    shutil.rmtree(evil.folder)
    left = ask.get("/traces")
    assert left.status_code == 200 and "page 1 of 1, 2 traces" in left.text and evil.id not in left.text
    monkeypatch.setattr("luxmeter.view.app.trace_pages.PAGE", 1)
    first, second = ask.get("/traces").text, ask.get("/traces?page=2").text
    assert "page 1 of 2" in first and 'href="/traces?page=2"' in first and "page 2 of 2" in second
    assert (
        "There are 2 pages" in ask.get("/traces?page=9").text
        and "page 1 of 2" in ask.get("/traces?page=-1").text
    )
    for run in (lab / "runs").iterdir():
        shutil.rmtree(run)
    shutil.rmtree(lab / "traces")
    assert "No trace is kept here yet" in ask.get("/traces").text
    shutil.rmtree(lab)
    assert "There is no lab in" in ask.get("/traces").text


def test_a_step_leads_to_its_part_of_the_timeline(lab: Path) -> None:
    weight = torch.nn.Parameter(torch.rand(4))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with lux.Experiment("stepped", quiet=True), lux.trace() as trace:
        for _ in range(5):
            (weight * 2).sum().backward()
            optimizer.step()
    ask = client(lab)
    at = f"/run/{named('stepped', lab).id}/trace"
    assert "No training step was found" in ask.get(f"/run/{named('third', lab).id}/trace?by=steps").text
    page = ask.get(f"{at}?by=steps").text
    links = re.findall(r'href="([^"]*by=steps&amp;start=[^"]*)#timeline">(\d)</a>', page)
    assert [number for _, number in links] == ["2", "3", "4", "5"] and 'id="timeline"' in page
    steps = trace.steps()
    found = ask.get(links[1][0].replace("&amp;", "&")).text
    start, end = map(int, re.findall(r'"window":\[(\d+),(\d+)\]', found)[0])
    assert end - start == steps[1].total_ns and start > 0
    bars = ask.get(f"{at}/window?start={start}&end={end}").json()
    assert "SGD.step" in " ".join(bars["words"])


def test_code_has_the_numbers_of_its_lines(lab: Path) -> None:
    first = named("first", lab)
    page = client(lab).get(f"/run/{first.id}/code?path=program.py").text
    assert re.search(r'aria-hidden="true">1\n2\n3\n', page) and "import contextlib" in page


def test_a_run_that_only_its_machine_logged_says_so(lab: Path) -> None:
    with lux.Experiment("silent", quiet=True) as exp:
        exp.writer.metric("system/cpu_percent", 3.0, 0)
    page = client(lab).get("/run/silent").text
    assert "no metric of its own" in page and 'aria-label="Metrics"' not in page


def test_nothing_becomes_markup(lab: Path) -> None:
    ask = client(lab)
    run = named(EVIL, lab)
    for address in ("/", "/runs", f"/run/{run.id}", f"/run/{run.id}/log", f"/run/{run.id}/files", f"/compare?run={run.id}&run=third", f"/compare?where=one&by={EVIL}",
                    f"/run/{run.id}/files?path=evil<b>.txt", f"/runs?where={EVIL}", f"/runs?columns=param.{EVIL}", f"/run/{run.id}/code?path={EVIL}",
                    f"/run/{run.id}?metrics={EVIL}&answered={EVIL}", f"/run/{run.id}/files?path={EVIL}", "/run/%3Cimg%20src=x%20onerror=alert(1)%3E", "/<img>"):  # fmt: skip
        answer = ask.get(address)
        outside = re.sub(r'<script type="application/json">[^<]*</script>', "", answer.text)
        assert "<img" not in outside and "onerror=alert(1)>" not in outside, address
        assert "alert(1)</script" not in answer.text and " style=" not in outside, address
        assert answer.headers["content-security-policy"] == POLICY and "unsafe" not in POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"


# -- what can be reached --------------------------------------------------------------------------------------------


def test_no_file_outside_of_the_run_can_be_reached(lab: Path) -> None:
    ask = client(lab)
    run = named("first", lab)
    (lab / "of-the-lab.txt").write_text("open")
    outside = lab.parent.parent / "secret.txt"
    outside.write_text("open sesame")
    (run.folder / "files" / "link.txt").symlink_to(outside)
    (run.folder / "files" / "place").symlink_to(outside.parent)
    for path in ("../../../secret.txt", "..%2f..%2fsecret.txt", "%2e%2e/%2e%2e/%2e%2e/secret.txt", "/etc/passwd", "%2fetc%2fpasswd", "..\\secret.txt",
                 "sub/../../../../secret.txt", "%00", "link.txt", "place/secret.txt", "", "..%252fsecret.txt"):  # fmt: skip
        for address in (f"/run/{run.id}/files/{path}", f"/run/{run.id}/files?path={path}"):
            answer = ask.get(address)
            assert "sesame" not in answer.text and "root:" not in answer.text, address
            assert answer.status_code in (400, 404) or (answer.status_code == 200 and address.endswith("path=")), address  # fmt: skip
    for address in ("/run/..%2f..%2fsecret.txt", "/run/%2e%2e", "/run/.", "/run/%5c", "/run/%00", f"/run/{lab.parent}", "/web/..%2fapp.py", "/web/x/__init__.py",
                    "/web/%2e%2e/cli/ui.py", "/trace/..%2fruns"):  # fmt: skip
        assert ask.get(address).status_code in (307, 400, 404), address
    evil = ask.get(f"/run/{run.id}/files/sub/page.html")
    assert evil.status_code == 200 and evil.headers["content-type"] == "application/octet-stream"
    assert evil.headers["content-disposition"].startswith("attachment")


def test_a_run_that_leads_out_of_the_lab_is_not_shown(lab: Path, tmp_path: Path) -> None:
    ask = client(lab)
    first, third = named("first", lab), named("third", lab)
    elsewhere = tmp_path / "elsewhere"
    shutil.move(str(first.folder), elsewhere)
    first.folder.symlink_to(elsewhere)
    (third.folder / "logs" / "output.log").unlink()
    (elsewhere / "secret.txt").write_text("open sesame")
    (third.folder / "logs" / "output.log").symlink_to(elsewhere / "secret.txt")
    for run in (first, third):
        for part in ("", "/log", "/output.txt", "/files", "/code", "/live", "/files/sub/page.html"):
            answer = ask.get(f"/run/{run.id}{part}")
            assert answer.status_code in (400, 404) and "sesame" not in answer.text, part
    assert "leads out of the lab" in ask.get(f"/run/{third.id}").text
    # A run's folder where the server was started is none of this lab.
    shutil.copytree(named("broken", lab).folder, Path("beside"))
    assert ask.get("/run/beside").status_code == 404


def test_who_may_ask(lab: Path) -> None:
    ask = client(lab)
    assert ask.get("/", headers={"host": "evil.example:8265"}).status_code == 403
    assert ask.get("/", headers={"host": "127.0.0.1:9999"}).status_code == 403
    for origin in ("http://evil.example", "null", "http://127.0.0.1:9999", "https://127.0.0.1:8265"):
        assert ask.get("/", headers={"origin": origin}).status_code == 403, origin
    assert ask.get("/", headers={"origin": f"http://{HOST}"}).status_code == 200
    assert ask.get("/", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}).status_code == 403  # fmt: skip
    guarded = client(lab, token="right", host="lab.example:8265")
    assert guarded.get("/").status_code == 403 and guarded.get("/?token=wrong").status_code == 403
    assert guarded.get("/?token=ü").status_code == 403
    entered = guarded.get("/runs?token=right&where=name%20=%20first")
    assert entered.status_code == 303 and entered.headers["location"] == "/runs?where=name+%3D+first"
    assert "HttpOnly" in entered.headers["set-cookie"] and "samesite=strict" in entered.headers["set-cookie"].lower()  # fmt: skip
    assert guarded.get("/").status_code == 200
    assert client(lab, token="right").get(f"http://{HOST}//evil.example/?token=right").headers["location"] == "/evil.example/"  # fmt: skip
    wrong = client(lab, token="right")
    assert wrong.get("/", headers={"cookie": "luxmeter-8265=wrong"}).status_code == 403
    assert wrong.get("/", headers={"cookie": 'luxmeter-8265="'}).status_code == 403


# -- what may be changed --------------------------------------------------------------------------------------------


def test_it_is_read_only_unless_asked(lab: Path) -> None:
    run = named("first", lab)
    at = f"/run/{run.id}"
    for what in ("note", "tags", "control"):
        refused = client(lab).post(f"{at}/{what}", data={"note": "x", "tags": "x", "what": "stop"})
        assert refused.status_code == 403 and "--edit" in refused.text
    assert find_run("first").note == "" and 'method="post"' not in client(lab).get(at).text
    ask = client(lab, edit=True)
    assert ask.get(f"{at}/note").status_code == 405
    stranger = ask.post(f"{at}/note", data={"note": "x"}, headers={"origin": "http://evil.example"})
    assert stranger.status_code == 403
    assert ask.post(f"{at}/note", data={"note": "a\r\nbä"}).status_code == 303
    assert ask.post(f"{at}/tags", data={"tags": "good new"}).status_code == 303
    assert find_run("first").note == "a\nbä" and sorted(find_run("first").tags) == ["good", "new"]
    ask.post(f"{at}/tags", data={"tags": "good"})
    assert find_run("first").tags == ["good"] and "good" in ask.get(at).text
    assert ask.post(f"{at}/note", data={"note": "x" * (2 << 20)}).status_code == 413
    over = ask.post(f"{at}/control", data={"what": "pause"})
    assert over.status_code == 400 and 'role="alert"' in over.text  # it has ended
    assert ask.post(f"{at}/control", data={"what": "rm -rf"}).status_code == 400


# -- what is gone or damaged ----------------------------------------------------------------------------------------


def test_what_is_gone_or_damaged_is_one_sentence(lab: Path) -> None:
    ask = client(lab)
    for gone in ("/run/nothing", "/nowhere", "/run/nothing/live"):
        answer = ask.get(gone)
        assert answer.status_code == 404 and ("nothing" in answer.text or "no page" in answer.text), gone
    third = named("third", lab)
    assert [file.write_bytes(b"PAR1 torn") for file in third.folder.rglob("*.parquet")]
    torn = ask.get(f"/run/{third.id}")
    assert torn.status_code == 200 and "This cannot be read" in torn.text and 'aria-label="Output"' in torn.text  # fmt: skip
    trace = ask.get(f"/run/{third.id}/trace")
    assert trace.status_code in (200, 400, 500) and "lux-error" in trace.text
    for address in ("/", "/runs", "/compare?run=third&run=first", "/compare?where=one&by=repeats"):
        assert ask.get(address).status_code == 200, address
    (third.folder / "run.json").write_text("{torn")
    assert "damaged" in ask.get(f"/run/{third.id}").text and ask.get("/runs").status_code == 200
    open_lab(lab).delete(named("first", lab).id)
    assert "9 runs" in ask.get("/runs").text
    lab.rename(lab.with_name("moved"))
    for address in ("/", "/runs", f"/run/{third.id}", "/compare?where=one", "/traces"):
        answer = ask.get(address)
        assert 'role="alert"' in answer.text and "Traceback" not in answer.text, address
    lab.with_name("moved").rename(lab)
    assert ask.get("/runs").status_code == 200


def test_a_note_comes_back_as_it_was_written(lab: Path) -> None:
    """The field of a form sends what stands in it: what is spelled out to be read would be kept so."""
    ask = client(lab, edit=True)
    first = named("first", lab)
    note = "\n <b>\u202e 'q' \"d\"</textarea>\n\\u202e"
    sent = {"origin": f"http://{HOST}"}
    assert ask.post(f"/run/{first.id}/note", data={"note": note}, headers=sent).status_code == 303
    page = ask.get(f"/run/{first.id}").text
    field = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", page, re.DOTALL)
    assert field is not None and html.unescape(field[1]) == note == named("first", lab).note


def test_no_text_that_is_read_turns_the_writing_round(lab: Path) -> None:
    with lux.Experiment("gnp.\u202ecod", {"p": "\u202e" * 50}, quiet=True) as exp:
        exp.log({"loss": 1.0}, 0)
    ask = client(lab)
    for part in ("/run/{}", "/run/{}/code", "/run/{}/files", "/runs?where=id={}"):
        page = re.sub(
            r'<script type="application/json">.*?</script>', "", ask.get(part.format(exp.run.id)).text
        )
        assert "\\u202ecod" in page and "\u202e" not in page, part
