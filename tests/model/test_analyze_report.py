"""The ways a cost is shown, and the command."""

from __future__ import annotations

import csv
import io
import json
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import luxmeter as lux
from luxmeter.errors import UsageError
from luxmeter.model import compare_models
from luxmeter.model.latency import shares

sys.path.insert(0, str(Path(__file__).parent))
from networks import Called, cnn, mlp


@pytest.fixture(scope="module")
def cost():
    return lux.analyze(
        nn.Sequential(cnn(), nn.Linear(10, 2)), input_size=(2, 3, 16, 16), name="<small>", backward=True
    )


def test_tree_goes_as_deep_as_asked(cost):
    assert [
        line.split()[0]
        for line in cost.tree(depth=1).splitlines()
        if line.startswith("  ") and "Linear" in line
    ] == ["1"]
    assert "Conv2d" not in cost.tree(depth=1)
    assert "Conv2d" in cost.tree(depth=2) == str(cost)
    assert cost.tree(depth=0).count("\n") < cost.tree(depth=2).count("\n")


def test_show_prints_every_number(cost, capsys):
    cost.show(memory=True)
    text = capsys.readouterr().out
    assert "<small>" in text and f"({cost.params:,})" in text and "adamw" in text and "float32 master" in text


def test_json_csv_and_frame_agree(cost, tmp_path):
    plain = json.loads(cost.to_json(tmp_path / "cost.json"))
    assert plain == json.loads((tmp_path / "cost.json").read_text())
    assert (plain["params"], plain["macs"], plain["peak_bytes"]) == (cost.params, cost.macs, cost.peak_bytes)
    rows = list(csv.DictReader(io.StringIO(cost.to_csv(tmp_path / "cost.csv"))))
    frame = cost.to_dataframe()
    assert [r["name"] for r in rows] == list(frame.index) == [m.name for m in cost.modules]
    assert [int(r["flops"]) for r in rows] == list(frame["flops"]) == [m["flops"] for m in plain["modules"]]
    with pytest.raises(UsageError, match="no-such-folder"):
        cost.to_csv(tmp_path / "nowhere" / "cost.csv")


def test_html_is_one_whole_page(cost, tmp_path):
    class Tags(HTMLParser):
        def __init__(self):
            super().__init__()
            self.rows, self.outside = 0, []

        def handle_starttag(self, tag, attrs):
            self.rows += tag == "tr" and any(k == "data-depth" for k, _ in attrs)
            self.outside += [v for k, v in attrs if k in ("src", "href")]

    page = cost.to_html(tmp_path / "cost.html")
    tags = Tags()
    tags.feed(page)
    assert tags.rows == len(cost.modules) and not tags.outside
    assert "<small>" not in page and "&lt;small&gt;" in page


def test_unknown_operators_are_shown():
    net = Called(lambda x: torch.linalg.eigvalsh(x))
    text = str(lux.analyze(net, torch.eye(3)))
    assert "Unknown operator aten::_linalg_eigh: 1 call " in text and "flops_of" in text


def test_models_side_by_side():
    small, large = (lux.analyze(nn.Linear(16, n), input_size=(1, 16), backward=True) for n in (4, 8))
    both = compare_models([small, large])
    assert both.line("MACs").values == (64, 128) and both.line("MACs").ratios == (1.0, 2.0)
    assert json.dumps(both.to_dict())
    with pytest.raises(UsageError, match="nothing-to-compare"):
        compare_models([small])


def test_latency_by_batch_size_and_module():
    net = cnn().train()
    cost = lux.analyze(net, input_size=(2, 3, 16, 16), latency=[1, 4])
    assert [b.batch for b in cost.latency.batches] == [1, 4]
    for batch in cost.latency.batches:
        assert 0 < min(batch.times_ns) <= batch.median_ns <= batch.p95_ns
        assert batch.throughput_per_s == pytest.approx(batch.batch * 1e9 / batch.median_ns)
    whole = cost.modules[0].time_ns
    assert whole == pytest.approx(cost.latency.median_ns, abs=1)
    assert sum(row.own_time_ns for row in cost.modules) == pytest.approx(whole, abs=len(cost.modules))
    assert "batch 2, as given: median" in str(
        cost
    )  # what the modules are parts of, though 1 and 4 were asked for
    assert "as given" not in str(lux.analyze(net, input_size=(2, 3, 16, 16), latency=[2]))
    assert net.training and int(net[1].num_batches_tracked) == 0
    assert (
        "latency" in str(cost) and json.loads(cost.to_json())["latency"]["batches"][0]["throughput_per_s"] > 0
    )


def test_modules_are_parts_of_the_latency_whatever_single_runs_took():
    """Medians of each module would sum to 30 here, below a whole of 110."""
    from luxmeter.model.latency import _parts_of

    slow = ({0: 110, 1: 100, 2: 10}, {0: 0, 1: 100, 2: 10})
    other = ({0: 110, 1: 10, 2: 100}, {0: 0, 1: 10, 2: 100})
    lucky = ({0: 30, 1: 10, 2: 10}, {0: 10, 1: 10, 2: 10})
    parts = _parts_of(220.0, [slow, other, slow, other, lucky])
    assert parts[0][0] == 220 and sum(own for _, own in parts.values()) == 220
    assert parts[1][0] + parts[2][0] + parts[0][1] == 220


class Itself(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.small = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        big = x.new_ones(300, 300)
        for _ in range(3):
            big = big @ big / 300
        return self.small(x) + big.mean()


def test_what_a_module_does_in_itself_is_told():
    said = str(lux.analyze(Itself(), input_size=(2, 4), latency=True))
    assert (
        " in itself"
        in said.splitlines()[[i for i, line in enumerate(said.splitlines()) if line.startswith("Itself ")][1]]
    )


def test_time_and_flops_that_part_are_marked():
    from dataclasses import replace

    cost = lux.analyze(mlp(), torch.randn(2, 16))
    times = {"": 0, "0": 10, "1": 80, "2": 10}
    timed = replace(
        cost,
        modules=tuple(replace(m, time_ns=times[m.name], own_time_ns=times[m.name]) for m in cost.modules),
    )
    marks = {share.name: share.mark for share in shares(timed)}
    assert marks == {"1": "slow for its FLOPs", "0": "fast for its FLOPs", "2": ""}


NETS = """
import torch
from torch import nn
def small(): return nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 4))
class Large(nn.Sequential):
    def __init__(self): super().__init__(nn.Embedding(10, 8), nn.Linear(8, 8))
def looking():
    class Net(nn.Linear):
        def forward(self, x): return super().forward(x) * x.sum().item()
    return Net(4, 4)
made = nn.Linear(4, 4)
"""


@pytest.fixture
def command(own_home):
    from luxmeter.view.cli import build_app

    Path("somenets.py").write_text(NETS)

    def run(*args):
        result = CliRunner().invoke(build_app(), ["model", *args])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.output

    yield run
    sys.modules.pop("somenets", None)


def test_command_shows_writes_and_compares(command):
    one = command("somenets:small", "--input", "1,7:int64", "--csv", "m.csv", "--html", "m.html")
    assert "112 MACs" in one and Path("m.csv").exists() and Path("m.html").exists()
    plain = json.loads(
        command("somenets.py:small", "-i", "1,7:int64", "--json", "--optimizer", "none", "--forward-only")
    )
    assert plain["macs"] == 112 and plain["backward_flops"] is None and plain["device"] == "meta"
    both = command("somenets:small", "-i", "1,7:int64", "--against", "somenets:Large")
    assert "4.00x" in both and "MACs" in both
    together = json.loads(command("somenets:small", "-i", "1,7:int64", "-a", "somenets:Large", "--json"))
    assert together["comparison"]["quantities"]["MACs"]["ratios"] == [1.0, 4.0]


def test_command_writes_a_file_for_each_model(command):
    others = ["-a", "somenets:Large", "-a", "somenets.py:Large"]
    command(
        "somenets:small", "-i", "1,7:int64", *others, "--csv", "m.csv", "--html", "m.html", "--forward-only"
    )
    assert [Path(name).read_text().splitlines()[1].split(",")[4] for name in ("m.csv", "m-Large.csv")] == [
        "60",
        "152",
    ]
    assert Path("m-Large-2.csv").read_text() == Path("m-Large.csv").read_text()
    page = Path("m.html").read_text()
    assert "Side by side" in page and all(
        f'data-tab="{name}"' in page for name in ("small", "Large (2)", "Large (3)")
    )


def test_command_takes_named_inputs_built_models_and_latency(command):
    assert "16 MACs" in command("somenets:made", "-i", "input=1,4", "--depth", "0")
    timed = json.loads(command("somenets:made", "-i", "2,4", "--batch", "1", "--batch", "3", "--json"))
    assert [b["batch"] for b in timed["latency"]["batches"]] == [1, 3]
    assert json.loads(command("somenets:looking", "-i", "1,4", "--json"))["device"] == "cpu"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["somenets", "-i", "1,4"], "bad-factory"),
        (["somenets:smal", "-i", "1,4"], "Did you mean 'small'"),
        (["nowhere.at_all:x", "-i", "1,4"], "bad-factory"),
        (["nofile.py:x", "-i", "1,4"], "bad-factory"),
        (["somenets:torch", "-i", "1,4"], "bad-factory"),
        (["somenets:small", "-i", "1,7"], "input_dtype"),
        (["somenets:small", "-i", "1,7", "-i", "x=1,7"], "inputs-twice"),
        (["somenets:made", "-i", "1,4", "--batch", "0"], "bad-batch-size"),
        (["somenets:made", "-i", "1,4", "--latency", "--device", "meta"], "latency-without-data"),
        (["somenets:made", "-i", "1,4", "--optimizer", "sparseadam"], "optimizer-does-not-step"),
    ],
)
def test_command_says_what_is_wrong(command, args, message):
    with pytest.raises(UsageError, match=message):
        command(*args)
