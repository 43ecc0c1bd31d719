"""Every module of torch.nn, with settings that are not the default, described, written, read, and built again: the same."""

from __future__ import annotations

import copy
import inspect
import json
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import luxmeter as lux
from luxmeter.errors import UsageError
from luxmeter.operators.case import Case, case_from_json, case_to_json
from luxmeter.operators.inputs import NOT_REPLAYABLE, make_call, replay
from luxmeter.operators.work import bench_one
from luxmeter.signature import ModuleSpec, Signature, Word, describe, module_of

pytest.importorskip("expecttest")
from module_samples import EVERY, KINDS, variations

ONE_CORE = "operators are taken from recordings, whichever core made them"


def written(module: nn.Module, *args: Any) -> Case:
    """As a trace would have it, through its saved form."""
    case = Case(
        f"torch.nn.{type(module).__name__.removeprefix('Parametrized')}",
        describe((module, *args), module=module_of),
    )
    return case_from_json(json.loads(json.dumps(case_to_json(case), allow_nan=False)))


def called(module: nn.Module, given: tuple[tuple[Any, ...], dict[str, Any]]) -> Any:
    torch.manual_seed(3)
    try:
        with torch.no_grad():
            return module(*copy.deepcopy(given[0]), **copy.deepcopy(given[1]))
    except Exception as error:
        return type(error)


def state(module: nn.Module) -> Any:
    """All of a module that can matter, but the values of its tensors: attributes, modes, tensors, of every part."""
    plain = (bool, int, float, str, type(None), tuple, list, torch.Size)
    hidden = ("_flat_weights", "_flat_weight_refs")  # the tensors themselves once more
    return {
        path: (
            type(part).__name__,
            {k: v for k, v in vars(part).items() if isinstance(v, plain) and k not in hidden},
            {k: v for k, v in vars(part).items() if inspect.isroutine(v)},
            [(k, _tensor(t)) for k, t in (*part._parameters.items(), *part._buffers.items())],
        )
        for path, part in module.named_modules()
    }


def _tensor(t: Any) -> Any:
    if t is None or isinstance(t, nn.parameter.UninitializedTensorMixin):
        return type(t).__name__
    return tuple(t.shape), t.dtype, t.stride(), t.requires_grad, type(t).__name__


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("name", sorted(KINDS))
def test_built_again_every_module_is_the_same(name: str) -> None:
    check(name, most=3)


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(KINDS))
def test_built_again_every_sample_is_the_same(name: str) -> None:
    check(name, most=EVERY)


def wrapped() -> Iterator[tuple[str, nn.Module, Any]]:
    """Modules whose weights are made of others by torch's own parametrizations."""
    from torch.nn.utils import parametrizations as p

    x = ((torch.rand(2, 4, 6, 6),), {})
    row = ((torch.rand(2, 6),), {})
    yield "weight_norm", p.weight_norm(nn.Conv2d(4, 3, 3, bias=False), dim=1), x
    yield "weight_norm of all", p.weight_norm(nn.Linear(6, 3), dim=None), row
    yield (
        "weight_norm of two",
        p.weight_norm(p.weight_norm(nn.LSTM(6, 3), "weight_hh_l0"), "weight_ih_l0"),
        row,
    )
    yield "spectral_norm", p.spectral_norm(nn.ConvTranspose2d(4, 3, 3), n_power_iterations=3, eps=0.5), x
    yield "orthogonal", p.orthogonal(nn.Linear(6, 6), orthogonal_map="cayley"), row
    yield "not trivial", p.orthogonal(nn.Linear(6, 3), use_trivialization=False), row
    yield "both", p.weight_norm(p.spectral_norm(nn.Linear(6, 6))), row


def test_parametrized_modules() -> None:
    check_all(wrapped())


def check(name: str, *, most: int) -> None:
    check_all(variations(name, most))


def check_all(cases: Iterator[tuple[str, nn.Module, Any]]) -> None:
    wrong = []
    for what, module, given in cases:
        for training in (True, False):
            module.train(training)
            try:
                made = make_call(written(module)).args[0]
            except Exception as error:
                wrong.append(f"{what}: {error!r}")
                continue
            if state(made) != state(module):
                wrong.append(f"{what}: {state(made)} instead of {state(module)}")
        if not wrong:
            if not isinstance(module, nn.modules.lazy.LazyModuleMixin):
                made.load_state_dict(module.state_dict())
            expected, found = called(module, given), called(made, given)
            if isinstance(expected, type):
                same = expected is found
            else:
                torch.testing.assert_close(found, expected, equal_nan=True)
                same = True
            if not same:
                wrong.append(f"{what}: {found} instead of {expected}")
    assert not wrong, "\n".join(wrong)


def test_a_transformers_layer_in_a_trace() -> None:
    layer, x = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), torch.rand(2, 5, 32)
    with lux.trace() as trace:
        expected = layer(x)
    [case] = [c for c in trace.operators() if c.op == "torch.nn.TransformerEncoderLayer"]
    assert str(case) == (
        "torch.nn.TransformerEncoderLayer(TransformerEncoderLayer(d_model=32, nhead=4, dim_feedforward=64, dropout=0.1, "
        "activation='relu', layer_norm_eps=1e-05, batch_first=True, norm_first=False, bias=True), f32[2,5,32])"
    )
    call = make_call(case)
    assert call.run().shape == expected.shape
    assert sum(p.numel() for p in call.args[0].parameters()) == sum(p.numel() for p in layer.parameters())


def test_tensors_are_as_they_were() -> None:
    """Frozen weights stay frozen, channels last stays so, and parts keep their own modes and dtypes."""
    conv = nn.Conv2d(4, 3, 3).to(memory_format=torch.channels_last)
    conv.bias.requires_grad_(False)
    mixed = nn.TransformerEncoderLayer(8, 2, 16)
    mixed.norm1.double()
    mixed.dropout1.eval()
    for module in (conv, mixed, nn.LSTM(3, 4).half()):
        assert state(make_call(written(module)).args[0]) == state(module)


class Own(nn.Linear):
    def __init__(self, size: int) -> None:
        super().__init__(size, size)


def spoilt() -> Iterator[tuple[nn.Module, str]]:
    """Modules that were changed after they were built, and a word of why they cannot be built again."""
    layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
    layers.layers[1].dropout1.p = 0.75
    yield layers, "its layers are not alike"
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    layer.dropout1.p = 0.75
    yield layer, "in dropout1, p is 0.1 instead of 0.75"
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    layer.linear1 = nn.Sequential(nn.Linear(8, 16))
    yield layer, "'Sequential' object has no attribute 'out_features'"
    layer = nn.TransformerDecoderLayer(8, 2, 16)
    layer.norm3 = nn.Identity()
    yield layer, "norm3"
    yield copy.deepcopy(nn.TransformerDecoderLayer(8, 2, 16, activation=nn.GELU())), "activation was replaced"
    yield Own(3), "no module of torch.nn"
    yield nn.TransformerEncoder(Own(8), 2), "no module of torch.nn"
    yield nn.TransformerEncoderLayer(8, 2, 16, activation=lambda x: x), "builtins.function"
    adaptive = nn.AdaptiveLogSoftmaxWithLoss(16, 20, [5, 10])
    adaptive.cutoffs = [5, 20]
    yield adaptive, "tail.1"
    tied = nn.Transformer(8, 2, 1, 1, 16)
    tied.decoder.layers[0].linear1.weight = tied.encoder.layers[0].linear1.weight
    yield tied, "decoder.layers.0.linear1.weight is there only in the new one"


def test_a_changed_module_is_not_measured_as_another() -> None:
    for module, why in spoilt():
        with pytest.raises(UsageError) as refused:
            make_call(Case("torch.neg", written(module).signature))
        assert why in str(refused.value)
        assert refused.value.slug in NOT_REPLAYABLE


def test_a_replay_is_held_against_the_shapes_that_were_recorded() -> None:
    """A hook changes what the module gives, and no setting says so."""
    plain, hooked = nn.Linear(3, 4), nn.Linear(3, 5)
    hooked.register_forward_hook(lambda module, args, output: output[:1])
    with lux.trace() as t:
        plain(torch.ones(2, 3))
        hooked(torch.ones(2, 3))
        torch.ones(3).nonzero()
    read = {
        case.op + str(case.outputs): case_from_json(json.loads(json.dumps(case_to_json(case))))
        for case in t.operators()
    }
    linear, other = read["torch.nn.Linear((2, 4),)"], read["torch.nn.Linear((1, 5),)"]
    assert replay(linear).shape == (2, 4)
    with pytest.raises(UsageError, match=r"gives \[2, 5\], the recorded one gave \[1, 5\]"):
        replay(other)
    assert read["Tensor.nonzero((3, 1),)"].outputs == ((3, 1),)
    found = bench_one(
        case_to_json(other), dtype="fp32", backend="eager", backward=False, threads=1, budget_s=0, target_ci=1
    )
    assert found["status"] == "unsupported" and "the recorded one gave [1, 5]" in found["reason"]


def test_settings_of_another_version_are_refused_with_a_reason() -> None:
    spec = ModuleSpec("torch.nn.Linear", (("in_features", 3), ("out_features", 4), ("surprise", 1)))
    with pytest.raises(UsageError, match=r"unexpected keyword argument 'surprise'"):
        make_call(Case("torch.nn.Linear", Signature((spec,))))


@pytest.mark.parametrize(
    ("kind", "name"),
    [("function", "torch:load"), ("function", "torch.serialization:os.system"), ("class", "torch.serialization:os.system"),
     ("class", "torch.utils.data:DataLoader"), ("enum", "torch:load"), ("enum", "torch.os:system")],
)  # fmt: skip
def test_settings_name_nothing_but_operators(kind: str, name: str) -> None:
    spec = ModuleSpec(
        "torch.nn.TransformerEncoderLayer", (("d_model", 8), ("nhead", 2), ("activation", Word(kind, name)))
    )
    with pytest.raises(UsageError, match="not-replayable"):
        make_call(Case("torch.nn.TransformerEncoderLayer", Signature((spec,))))
