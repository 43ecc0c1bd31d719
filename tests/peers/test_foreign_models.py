"""Models that nobody here wrote: traced without changing a bit, and counted alike on meta and on the CPU."""

from __future__ import annotations

import pytest
import torch

import luxmeter as lux

ONE_CORE = "large models, quick core; calls/ has both"

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


def t5() -> torch.nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(
        d_model=32, d_kv=8, num_heads=4, d_ff=64, num_layers=2, num_decoder_layers=3, vocab_size=50,
        decoder_start_token_id=0, use_cache=False,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config)


def test_an_encoder_with_a_decoder_is_counted_as_by_hand() -> None:
    batch, source, target, width, inner, vocabulary = 2, 7, 5, 32, 64, 50
    long, short = batch * source, batch * target  # tokens
    encoder = 4 * long * width**2 + 2 * long * source * width + 2 * long * width * inner
    itself = 4 * short * width**2 + 2 * short * target * width
    across = 2 * short * width**2 + 2 * long * width**2 + 2 * short * source * width
    decoder = itself + across + 2 * short * width * inner
    by_hand = 2 * encoder + 3 * decoder + short * width * vocabulary
    model = t5().eval()
    inputs = {
        "input_ids": torch.zeros(batch, source, dtype=torch.long),
        "decoder_input_ids": torch.zeros(batch, target, dtype=torch.long),
    }
    with torch.device("meta"):
        empty = t5().eval()
    here = lux.analyze(model, inputs, device="cpu", backward=True)
    for cost in (here, *(lux.analyze(one, inputs, backward=True) for one in (model, empty))):
        assert cost.params == sum(
            p.numel() for p in model.parameters()
        )  # the embedding is shared three times
        assert cost.macs == by_hand
        assert (
            cost.backward_macs == 2 * by_hand
        )  # nothing but tokens comes in: every product has both its gradients
        assert not cost.unknown_ops and not cost.notes
        assert (cost.flops, cost.backward_flops, cost.peak_bytes) == (
            here.flops,
            here.backward_flops,
            here.peak_bytes,
        )
    labelled = {"input_ids": inputs["input_ids"], "labels": inputs["decoder_input_ids"]}
    assert lux.analyze(empty, labelled).macs == by_hand


VISION = {
    "resnet50": 224, "googlenet": 96, "inception_v3": 128, "mobilenet_v3_small": 64, "efficientnet_b0": 64,
    "shufflenet_v2_x0_5": 64, "squeezenet1_1": 64, "densenet121": 64, "convnext_tiny": 64, "vit_b_32": 224,
    "swin_t": 64, "swin_v2_t": 64, "maxvit_t": 224, "mnasnet0_5": 64, "vgg11_bn": 64,
}  # fmt: skip


@pytest.mark.parametrize("name", VISION)
def test_layers_seen_before_change_no_number(name, monkeypatch) -> None:
    from luxmeter.model import leaves

    models = pytest.importorskip("torchvision").models
    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    with torch.device("meta"):
        model = getattr(models, name)(**options)
    said = []
    for enabled in (True, True, False):
        monkeypatch.setattr(leaves, "ENABLED", enabled)
        cost = lux.analyze(model, input_size=(2, 3, VISION[name], VISION[name]), backward=True).to_dict()
        cost.pop("seconds")
        said.append(cost)
    assert said[0] == said[1] == said[2]
    assert said[0]["params"] == sum(p.numel() for p in model.parameters())
