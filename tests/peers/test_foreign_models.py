"""Models that nobody here wrote: traced without changing a bit, and counted alike on meta and on the CPU."""

from __future__ import annotations

import pytest
import torch

import luxmeter as lux

pytestmark = pytest.mark.peers


def gpt2() -> torch.nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=2, n_head=4, n_embd=64, vocab_size=100, n_positions=32)
    return transformers.GPT2LMHeadModel(config)


def bert() -> torch.nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        num_hidden_layers=2, num_attention_heads=4, hidden_size=64, intermediate_size=128, vocab_size=100
    )
    return transformers.BertModel(config)


@pytest.mark.parametrize("make", [gpt2, bert])
def test_results_are_the_same_under_tracing(make) -> None:
    torch.manual_seed(0)
    model = make().eval()
    tokens = torch.randint(0, 100, (2, 16))
    with torch.no_grad():
        bare = model(input_ids=tokens)[0]
        with lux.trace() as trace:
            traced = model(input_ids=tokens)[0]
    assert torch.equal(bare, traced)
    names = {row.name for row in trace.table()}
    assert "torch.nn.LayerNorm" in names
    assert any(row.detail == "torch.nn.LayerNorm" and "." in row.name for row in trace.table(by="module"))


@pytest.mark.parametrize("make", [gpt2, bert])
def test_counts_are_the_same_on_meta(make) -> None:
    tokens = torch.zeros(2, 16, dtype=torch.long)
    here = lux.analyze(make().eval(), {"input_ids": tokens}, device="cpu", backward=False)
    with torch.device("meta"):
        model = make().eval()
    away = lux.analyze(model, {"input_ids": tokens}, backward=False)
    assert (here.params, here.macs) == (away.params, away.macs)
    assert here.macs > 0 and not here.unknown_ops
