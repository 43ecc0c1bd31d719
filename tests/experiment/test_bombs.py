"""Small files that claim to be huge are refused before they fill memory or disk."""

from __future__ import annotations

import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from made_runs import make_run
from safetensors.torch import save_file

from luxmeter import files
from luxmeter.errors import CheckpointError, StoreError
from luxmeter.experiment.checkpoint.format import FORMAT_VERSION, read_file, write_file
from luxmeter.experiment.transfer import archive
from luxmeter.experiment.transfer.archive import export_run, import_run
from luxmeter.store import Lab


@pytest.mark.parametrize(
    "tree",
    [
        {"$": "numbers", "in": "list", "t": {"t": "x", "shape": [40_000_000], "stride": [0]}},
        {"$": "bytes", "t": {"t": "x", "dtype": "uint8", "shape": [40_000_000], "stride": [0]}},
        {"$": "bytearray", "t": {"t": "x", "dtype": "uint8", "shape": [9000, 9000], "stride": [1, 0]}},
        {
            "$": "numpy",
            "dtype": "|u1",
            "fortran": False,
            "shape": [40_000_000],
            "t": {"t": "x", "dtype": "uint8", "shape": [40_000_000], "stride": [0]},
        },
        [{"$": "numbers", "in": "list", "t": {"t": "y"}}] * 500,
    ],
    ids=["numbers", "bytes", "bytearray", "array", "one list many times"],
)
def test_a_view_of_the_same_memory_is_not_copied_out(tmp_path: Path, tree: Any) -> None:
    path = tmp_path / "bomb.safetensors"
    said = json.dumps({"version": FORMAT_VERSION, "tree": tree})
    save_file(
        {"x": torch.zeros(9000, dtype=torch.uint8), "y": torch.zeros(40_000, dtype=torch.int64)},
        path,
        metadata={"luxmeter": said},
    )
    with pytest.raises(CheckpointError, match="checkpoint-damaged"):
        read_file(path)


def test_what_is_shown_many_times_is_saved_and_read(tmp_path: Path) -> None:
    state = {
        "expanded": torch.ones(3).expand(1000, 3),
        "lists": [list(range(100))] * 3,
        "bytes": [b"x" * 100] * 3,
        "tuple": tuple(range(99)),
    }
    write_file(tmp_path / "a.safetensors", state)
    found = read_file(tmp_path / "a.safetensors")
    assert (
        found["lists"] == state["lists"]
        and found["bytes"] == state["bytes"]
        and torch.equal(found["expanded"], state["expanded"])
    )


def test_a_packed_torch_file_is_refused(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(1_000_000)}, tmp_path / "plain.pt")
    with (
        zipfile.ZipFile(tmp_path / "plain.pt") as plain,
        zipfile.ZipFile(tmp_path / "packed.pt", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for member in plain.infolist():
            packed.writestr(member.filename, plain.read(member))
    assert read_file(tmp_path / "plain.pt")["w"].numel() == 1_000_000
    with pytest.raises(CheckpointError, match="claim"):
        read_file(tmp_path / "packed.pt")


@pytest.mark.parametrize("ending", [".zip", ".tar.gz", ".tar.zst"])
def test_an_archive_of_zeros_stops_at_a_multiple_of_its_size(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "_SMALL_BYTES", 1 << 20)
    lab = Lab.open(tmp_path / "lab")
    run = make_run(lab, metrics={"loss": [1.0]})
    (run.folder / "files").mkdir(exist_ok=True)
    (run.folder / "files" / "zeros").write_bytes(bytes(32 << 20))
    made = export_run(run, tmp_path / f"run{ending}")
    assert made.stat().st_size < 200_000
    with pytest.raises(StoreError, match="archive-too-large"):
        import_run(Lab.open(tmp_path / "other"), made)
    assert not [p for p in (tmp_path / "other").iterdir() if p.name.startswith(".import")]
    assert tarfile.is_tarfile(made) or ending != ".tar.gz"


def test_a_huge_json_file_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_JSON_BYTES", 1 << 20)
    lab = Lab.open(tmp_path / "lab")
    run = make_run(lab, metrics={"loss": [1.0]})
    (run.folder / "params.json").write_bytes(b'{"a": "' + bytes(2 << 20) + b'"}')
    with pytest.raises(StoreError, match="more than 1 MiB"):
        assert run.params
