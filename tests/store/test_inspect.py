"""`luxmeter doctor --lab`: all that is damaged, where, and what mends it; gc removes what killed commands left."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import luxmeter as lux
from luxmeter.errors import LuxmeterError
from luxmeter.store import Lab, damage_of_lab, results_into
from luxmeter.view.cli import build_app

ONE_CORE = "damage is found in files, whichever core wrote them"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setenv("LUXMETER_HOME", str(tmp_path / "lab"))
    made = Lab.open(tmp_path / "lab")
    for name in "abc":
        with made.create_run(name, params={"lr": 0.1}) as run:
            run.put_blob(name.encode() * 99)
            for step in range(50):
                run.log({"loss": 1.0 / (step + 1), "acc": 0.5}, step=step)
    return made


KILLED = """
import os, sys
from luxmeter.store import Lab
run = Lab.open(sys.argv[1]).create_run("killed")
run.log({"loss": 1.0}, step=0)
run.flush()
os._exit(9)
"""


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 4
    path.chmod(0o644)
    path.write_bytes(data)


def test_a_lab_in_order_says_so(lab: Lab) -> None:
    lab.runs()
    assert damage_of_lab(lab.folder) == []
    done = CliRunner().invoke(build_app(), ["doctor", "--lab"])
    assert done.exit_code == 0 and "Nothing in the lab" in done.stdout


def test_each_damage_is_listed_with_what_mends_it(lab: Lab) -> None:
    a, b, c = sorted((lab.folder / "runs").iterdir())
    flip(a / "tables" / "metrics" / "table.parquet")
    (b / "params.json").write_text("{broken")
    flip(next((c / "blobs").glob("*/*")))
    (lab.folder / ".import-1234abcd").mkdir()
    (lab.folder / "runs" / "half").mkdir()
    (lab.folder / "index").mkdir(exist_ok=True)
    (lab.folder / "index" / "host.sqlite").write_bytes(b"no database" * 500)
    done = CliRunner().invoke(build_app(), ["doctor", "--lab", "--json"])
    assert done.exit_code == 1
    found = {one["place"]: one for one in json.loads(done.stdout)["damaged"]}
    assert found.keys() - {place for place in found if "/blobs/" in place or place.startswith("blobs/")} == {
        f"runs/{a.name}/tables/metrics", f"runs/{b.name}", ".import-1234abcd", "runs/half", "index/host.sqlite",
    }  # fmt: skip
    assert any(place.startswith(f"runs/{c.name}/blobs/") for place in found)
    assert "luxmeter rm" in found[f"runs/{b.name}"]["mend"]
    assert [one["mend"] for place, one in found.items() if place.startswith("index/")] == [
        "luxmeter reindex makes it anew"
    ]
    assert found["runs/half"]["mend"] == found[".import-1234abcd"]["mend"] == "luxmeter gc removes it"


def garble(path: Path) -> None:
    path.unlink()
    path.write_bytes(b"\xff\xfe{garbage")


def cut(path: Path) -> None:
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[: len(data) // 2])


@pytest.fixture(scope="module")
def full_lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lab with a file of each kind that a run may hold."""
    torch = pytest.importorskip("torch")
    place = tmp_path_factory.mktemp("full") / "lab"
    lab = Lab.open(place)
    with lab.create_run("all") as run, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run.log({"loss": 1.0})
        files = run.folder / "files"
        files.mkdir(exist_ok=True)
        for name in ("command", "code", "random", "ending", "trainer"):
            (files / f"{name}.json").write_text("{}\n")
        (run.folder / "sources.json").write_text('{"loss": "output"}\n')
        with lux.trace(keep=run.folder / "calls" / "trace"):
            torch.nn.Linear(4, 8)(torch.ones(2, 4)).sum()
        model = torch.nn.Linear(4, 8)
        with results_into(run.folder):
            lux.analyze(model, torch.ones(2, 4))
        saver = lux.Saver(files / "save")
        saver.save_checkpoint(1, {"model": model.state_dict()})
        saver.close()
    with lux.trace(keep=place / "traces" / "alone"):
        torch.ones(3).sum()
    queued = place / "queue" / "code" / "c1"
    (queued / "blobs" / "ab").mkdir(parents=True)
    body = b"print(1)"
    name = hashlib.sha256(body).hexdigest()
    (queued / "blobs" / "ab" / name).write_bytes(body)
    (queued / "code.json").write_text("{}\n")
    return place


@pytest.mark.parametrize("damage", [garble, cut])
def test_damage_of_every_kind_of_file_is_listed(
    full_lab: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    lab = tmp_path / "lab"
    shutil.copytree(full_lab, lab)
    assert damage_of_lab(lab) == []
    run = next((lab / "runs").iterdir())
    patterns = [
        "files/command.json", "files/code.json", "files/random.json", "files/ending.json", "files/trainer.json",
        "sources.json", "summary.json", "results/model/0001/result.json", "results/model/0001/model.json",
        "files/save/*.ckpt", "files/save/*.ckpt.json", "calls/trace/trace.json", "calls/trace/rank*/end.json",
        "calls/trace/rank*/words.jsonl", "calls/trace/rank*/events/*.parquet", "calls/trace/sources/*.txt",
    ]  # fmt: skip
    looked_at = [path for pattern in patterns for path in [next(run.glob(pattern))]]
    looked_at += [
        next((lab / "traces").glob("alone/rank*/events/*.parquet")),
        next((lab / "queue" / "code").glob("*/blobs/*/*")),
        next((lab / "queue" / "code").glob("*/code.json")),
    ]
    unlisted = []
    for path in looked_at:
        whole = path.read_bytes()
        damage(path)
        found = damage_of_lab(lab)
        if not found or not all(one.mend for one in found):
            unlisted.append(path.relative_to(lab).as_posix())
        path.write_bytes(whole)
    assert unlisted == []
    assert damage_of_lab(lab) == []


def test_gc_removes_what_killed_commands_left(lab: Lab) -> None:
    left = [lab.folder / ".import-1234abcd", lab.folder / "runs" / ".abc-1.77"]
    for folder in left:
        (folder / "tables").mkdir(parents=True)
    assert lab.gc()["half_made"] == 0, "young: perhaps at work"
    for folder in left:
        for path in (folder / "tables", folder):
            os.utime(path, (1, 1))
    assert lab.gc()["half_made"] == 2 and not any(folder.exists() for folder in left)


def test_two_gc_at_once(lab: Lab) -> None:
    trash = lab.folder / "trash"
    for number in range(60):
        (trash / f"r{number}" / "tables").mkdir(parents=True)
    failed: list[Exception] = []

    def collect() -> None:
        try:
            Lab.open(lab.folder).gc()
        except Exception as error:  # whatever it is
            failed.append(error)

    threads = [threading.Thread(target=collect) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and not list(trash.iterdir())


@pytest.mark.skipif(
    os.getuid() == 0 and not Path("/usr/bin/setpriv").exists(), reason="root may write anywhere"
)
@pytest.mark.parametrize(
    "command",
    [["runs"], ["show", "latest"], ["gc"], ["tag", "latest", "x"], ["note", "latest", "x"], ["rm", "latest"], ["reindex"],
     ["config", "--local", "a", "1"], ["archive", "latest"], ["import", "x.zip"], ["doctor", "--lab"], ["diff", "latest", "latest~1"]],
    ids=" ".join,
)  # fmt: skip
def test_no_command_ends_in_a_traceback_in_a_lab_that_is_read_only(
    lab: Lab, tmp_path: Path, command: list[str]
) -> None:
    if command[0] == "import":
        from luxmeter.experiment.transfer.archive import export_run

        command = ["import", str(export_run(lab.find("a"), tmp_path / "x.zip"))]
    subprocess.run([sys.executable, "-c", KILLED, str(lab.folder)], check=False)  # what gc compacts
    for path in [lab.folder, *lab.folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        caps = (
            ["setpriv", "--bounding-set", "-dac_override,-dac_read_search,-fowner", "--inh-caps=-all"]
            if os.getuid() == 0
            else []
        )
        words = [
            sys.executable,
            "-c",
            "import ctypes; ctypes.CDLL(None).prctl(24, 1, 0, 0, 0); from luxmeter.view.cli import main; main()",
        ]
        done = subprocess.run(
            [*caps, *words, *command], capture_output=True, text=True, input="y\n", cwd=tmp_path
        )
    finally:
        for path in [lab.folder, *lab.folder.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert "Traceback" not in done.stderr and done.returncode in (0, 1, 2), done.stderr
    if done.returncode == 2:
        assert done.stderr.strip().endswith("]"), done.stderr
    if command[0] == "doctor":
        assert "readonly" not in done.stdout, "that nothing may be written is no damage"


def test_damage_is_said_where_it_is_read(lab: Lab) -> None:
    run = lab.find("a")
    flip(run.folder / "tables" / "metrics" / "table.parquet")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            run.table("metrics")
        except LuxmeterError:
            return
    assert any("rows-damaged" in str(one.message) for one in said)


def test_a_blob_that_may_not_be_read_is_no_damaged_one(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    assert damage_of_lab(lab.folder) == []
    monkeypatch.setattr("luxmeter.store.inspect.sha256_of", refuse)
    found = damage_of_lab(lab.folder)
    assert len(found) == 6 and all("Permission denied" in one.what for one in found)
    assert {one.mend for one in found} == {"give rights to read it"}
