"""`luxmeter trace --from`: a trace that exists, shown again or written to files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch._dynamo  # replaces torch.manual_seed when it is first imported: not during a test

import luxmeter as lux
from luxmeter.errors import UsageError
from luxmeter.view.cli import build_app

ONE_CORE = "a command reads recordings, whichever core made them"


def command(*args: str) -> None:
    build_app()(["trace", "--from", "kept", *args], standalone_mode=False)


def test_tables_and_files(capsys: pytest.CaptureFixture[str]) -> None:
    with lux.trace(keep="kept", inside=True):
        torch.nn.functional.linear(torch.ones(1, 2), torch.ones(3, 2))
        torch.nn.functional.normalize(torch.ones(4, 2))
    command()
    assert "torch.nn.functional.linear" in capsys.readouterr().out
    command("--by", "signature")
    assert "f32[1,2], f32[3,2]" in capsys.readouterr().out
    command("--by", "signature", "--json")
    assert {"(1, 2)", "1, 2"} & {row["detail"] for row in json.loads(capsys.readouterr().out)}
    command("--by", "api", "-o", "apis.csv")
    assert Path("apis.csv").read_text().startswith("api,")
    command("-o", "all.perfetto.json")
    command("--depth", "1", "-o", "flat.perfetto.json")
    sizes = [len(json.loads(Path(f"{n}.perfetto.json").read_text())["traceEvents"]) for n in ("all", "flat")]
    assert sizes[0] > sizes[1] > 4
    capsys.readouterr()
    command("--depth", "1", "--json")
    assert "torch.nn.functional.normalize" in (said := capsys.readouterr().out) and "Tensor.norm" not in said
    for wrong, slug in (
        (["--by", "apis"], "unknown-grouping"),
        (["-o", "x.htm"], "unknown-trace-format"),
        (["--window", "2:1", "-o", "x.csv"], "bad-window"),
        (["--window", "99:", "-o", "x.csv"], "empty-window"),
        (["--window", "99:"], "empty-window"),
        (["--by", "api", "-o", "x.html"], "no-table-in-format"),
        (["--inside"], "trace-from-runs-nothing"),
        (["--only", "torch.*"], "trace-from-runs-nothing"),
        (["script.py"], "trace-from-runs-nothing"),
    ):
        with pytest.raises(UsageError) as told:
            command(*wrong)
        assert told.value.slug == slug
    assert not list(Path().glob("x.*"))
