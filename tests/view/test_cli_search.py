"""`luxmeter zen` and `luxmeter search`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import luxmeter as lux
from luxmeter.errors import LuxmeterError
from luxmeter.model.plainnet import PlainNet
from luxmeter.model.scores import SCORES
from luxmeter.model.zen import zen_score
from luxmeter.store import Lab
from luxmeter.view.cli import build_app

START = "SuperConvK3BNRELU(3,8,2,1)SuperResK3K3(8,16,2,8,1)SuperConvK1BNRELU(16,32,1,1)"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run(*words: str) -> str:
    """What the command writes to stdout."""
    done = CliRunner().invoke(build_app(), words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_zen(tmp_path: Path) -> None:
    options = ["--input", "4,3,16,16", "--repeat", "2", "--seed", "3"]
    expected = zen_score(PlainNet(START), input_size=(4, 3, 16, 16), repeat=2, seed=3)
    told = json.loads(run("zen", START, *options, "--json"))
    assert told["zen"] == expected.value
    assert told["scores"] == list(expected.scores)
    assert told["params"] == PlainNet(START).get_model_size()
    # One word for one thing: analyze and model call this number MACs, and about twice of it FLOPs.
    counted = lux.analyze(PlainNet(START), input_size=(1, 3, 16, 16), backward=False)
    assert told["macs"] == PlainNet(START).get_FLOPs(16) == counted.macs and "flops" not in told
    assert told["structure"] == START
    text = run("zen", START, *options)
    assert f"MACs        {counted.macs:,}" in text and f"FLOPs       {counted.macs:,}" not in text
    assert f"Zen score   {expected.value:.2f} ± {expected.precision:.2f} (stationary, 2 x 4 images" in text
    (tmp_path / "net.txt").write_text(START + "\n")
    assert run("zen", str(tmp_path / "net.txt"), *options) == text
    published = json.loads(run("zen", START, *options, "--mode", "published", "--json"))
    assert published["zen"] < expected.value


@pytest.mark.parametrize("score", ["naswot", "synflow", "grad_norm"])
def test_other_scores(score: str) -> None:
    options = ["--input", "4,3,16,16", "--seed", "3", "--classes", "10", "--score", score]
    net, size = PlainNet(START, num_classes=10), (4, 3, 16, 16)
    expected = [SCORES[score](net, input_size=size, seed=seed) for seed in (3, 4)]
    told = json.loads(run("zen", START, *options, "--json"))
    assert (told["score"], told[score], told["scores"]) == (score, expected[0], expected[:1])
    assert told["params"] == net.get_model_size()
    twice = json.loads(run("zen", START, *options, "--repeat", "2", "--json"))
    assert twice["scores"] == expected
    assert f"{sum(expected) / 2:.2f} ± " in run("zen", START, *options, "--repeat", "2")


def test_zen_of_any_model(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(
        "from torch import nn\n"
        "def small():\n"
        "    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1))\n"
    )
    told = json.loads(run("zen", f"{tmp_path}/nets.py:small", "--input", "2,3,8,8", "--json"))
    assert told["params"] == 3 * 4 + 4 + 8
    assert told["macs"] == 3 * 4 * 64 and "flops" not in told
    assert "structure" not in told


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["zen", "SuperConvK3BNRELU(3,8,2)"], "takes 4 arguments, 3 were given"),
        (["zen", START, "--input", "4,3,x,16"], "16,3,32,32"),
        (["zen", START, "--score", "naswoot"], "Did you mean 'naswot'"),
        (["zen", START, "--score", "naswot", "--mode", "published"], "--mode was given, and naswot has none"),
        (["zen", START, "--score", "synflow", "--repeat", "0"], "repeat is 0"),
        (["zen", "nets.py:small", "--classes", "10"], "--classes was given with nets.py:small"),
        (["zen", "nofile.txt"], "'nofile.txt' is no structure string, and there is no such file"),
        (["search", "nofile.txt"], "no such file"),
        (["search"], "no structure to start from"),
        (["search", "--resume", "latest", "--params", "5", "--se"], "--params, --se was given"),
        (["search", START, "--resume", "latest"], "not both"),
    ],
)
def test_wrong_words(words: list[str], message: str) -> None:
    with pytest.raises(LuxmeterError, match=message):
        CliRunner().invoke(build_app(), words, catch_exceptions=False)


def test_search_and_going_on(own_home: Path) -> None:
    small = [
        "--input",
        "2,3,8,8",
        "--population",
        "3",
        "--score",
        "naswot",
        "--params",
        "20000",
        "--macs",
        "1e7",
    ]
    first = json.loads(run("search", START, *small, "--generations", "1", "--json"))
    assert len(first["history"]) == 1
    assert first["population"][0]["params"] <= 20_000
    lab = Lab.open(create=False)
    assert lab.find("latest").id == first["run"]
    lab.close()
    text = run("search", "--resume", first["run"], "--generations", "3", "--top", "2")
    longer = json.loads(run("search", START, *small, "--generations", "3", "--json"))
    assert f"best: {longer['population'][0]['structure']}\n" in text
    assert text.splitlines()[0].split()[:4] == ["score", "params", "MACs", "layers"]
    assert 0 < first["population"][0]["macs"] <= 1e7 and "flops" not in first["population"][0]
    assert (
        json.loads(run("search", "--resume", first["state"], "--generations", "3", "--json"))["population"]
        == (longer["population"])
    )
