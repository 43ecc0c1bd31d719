"""A pipe where a file of a lab should be: nobody waits on it for ever, the run is one damaged row, the others are there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from luxmeter.errors import LuxmeterError
from luxmeter.files import bytes_of
from luxmeter.store import Lab, Run, damage_of_lab, read_blob, read_segments
from luxmeter.store.records import read_code, read_output, read_output_beginning, read_output_end

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no such files here")


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    made = Lab.open(tmp_path / "lab")
    for name in ("sound", "piped"):
        with made.create_run(name, params={"lr": 0.1}) as run:
            run.log({"loss": 1.0})
            run.put_blob(b"content")
            (run.folder / "logs").mkdir(exist_ok=True)
            (run.folder / "logs" / "output.log").write_text("said")
            (run.folder / "files").mkdir(exist_ok=True)
            (run.folder / "files" / "code.json").write_text("{}")
    return made


def to_pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


@pytest.mark.parametrize(
    "name", ["params.json", "environment.json", "status.json", "marks.json", "summary.json"]
)
def test_the_run_is_damaged_and_the_others_are_listed(lab: Lab, name: str) -> None:
    folder = lab.find("piped").folder
    to_pipe(folder / name)
    shutil.rmtree(lab.folder / "index")
    rows = {row.name: row for row in Lab.open(lab.folder).runs()}
    assert "sound" in rows and rows["sound"].state == "finished"
    damaged = [row for row in rows.values() if row.state == "damaged"]
    assert len(damaged) == 1 and "pipe" in damaged[0].note
    assert any("pipe" in one.what for one in damage_of_lab(lab.folder))


def raising(read: Callable[[Path], object]) -> Callable[[Path], None]:
    def check(run: Path) -> None:
        with pytest.raises((LuxmeterError, OSError)):
            read(run)

    return check


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("files/code.json", raising(read_code)),
        ("tables/metrics/table.parquet", raising(lambda run: read_segments(run / "tables" / "metrics"))),
        ("logs/output.log", lambda run: read_output(run)),
        ("logs/output.log", lambda run: read_output_end(run)),
        ("logs/output.log", lambda run: read_output_beginning(run, 10)),
        ("files/children.txt", lambda run: Run(run).children),
    ],
)
def test_nobody_waits_for_what_is_in_a_pipe(lab: Lab, name: str, check: Callable[[Path], object]) -> None:
    folder = lab.find("piped").folder
    to_pipe(folder / name)
    check(folder)


def test_a_blob_and_a_device(lab: Lab) -> None:
    folder = lab.find("piped").folder
    blob = next((folder / "blobs").glob("*/*"))
    to_pipe(blob)
    with pytest.raises(LuxmeterError, match="pipe"):
        read_blob(folder, blob.name)
    with pytest.raises(OSError, match="pipe or a device"):
        bytes_of(Path("/dev/zero"))
