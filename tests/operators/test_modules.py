"""Every module of torch.nn, with settings that are not the default, described, written, read, and built again: the same."""

from __future__ import annotations

import copy
import inspect
import itertools
import json
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import luxmeter as lux
from luxmeter.errors import UsageError
from luxmeter.operators.case import Case, case_from_json, case_to_json
from luxmeter.operators.inputs import NOT_REPLAYABLE, make_call
from luxmeter.operators.replay import replay
from luxmeter.operators.work import bench_one
from luxmeter.signature import ModuleSpec, Signature, Word, describe
from luxmeter.signature_torch import module_of

pytest.importorskip("expecttest")
from torch.testing._internal.common_modules import module_db

KINDS = {
    name: kind for name, kind in vars(nn).items() if isinstance(kind, type) and issubclass(kind, nn.Module)
}
# Wraps a model for several devices; on a CPU it forgets all it was given.
KINDS.pop("DataParallel")

X = torch.rand(2, 4, 6)
IMAGE = torch.rand(2, 4, 6, 6)
# How to build those that torch's own database has no sample of, and what to give them.
BASES: dict[str, tuple[dict[str, Any], tuple[Any, ...]]] = {
    "AdaptiveLogSoftmaxWithLoss": ({"in_features": 16, "n_classes": 20, "cutoffs": [5, 10]}, (torch.rand(3, 16), torch.tensor([1, 7, 19]))),
    "ChannelShuffle": ({"groups": 2}, (IMAGE,)),
    "Container": ({}, ()),
    "CosineSimilarity": ({}, (X, X)),
    "CrossMapLRN2d": ({"size": 3}, (IMAGE,)),
    "EmbeddingBag": ({"num_embeddings": 9, "embedding_dim": 3}, (torch.randint(0, 9, (2, 4)),)),
    "Flatten": ({}, (IMAGE,)),
    "Fold": ({"output_size": (6, 6), "kernel_size": (2, 2)}, (torch.rand(2, 16, 25),)),
    "Identity": ({}, (X,)),
    "LazyLinear": ({"out_features": 3}, (X,)),
    "Linear": ({"in_features": 6, "out_features": 3}, (X,)),
    "Module": ({}, ()),
    "ModuleDict": ({"modules": {"a": nn.Linear(2, 3, bias=False), "b": nn.Dropout(0.3)}}, ()),
    "ModuleList": ({"modules": [nn.Linear(2, 3, bias=False), nn.Dropout(0.3)]}, ()),
    "NLLLoss2d": ({}, (torch.rand(2, 4, 6), torch.randint(0, 4, (2, 6)))),
    "PairwiseDistance": ({}, (X, X + 1)),
    "ParameterDict": ({"parameters": {"a": torch.rand(3)}}, ()),
    "ParameterList": ({"values": [torch.rand(3), torch.rand(2, 2)]}, ()),
    "PixelShuffle": ({"upscale_factor": 2}, (IMAGE,)),
    "PixelUnshuffle": ({"downscale_factor": 2}, (IMAGE,)),
    "RNNBase": ({"mode": "GRU", "input_size": 6, "hidden_size": 3}, (X,)),
    "RNNCellBase": ({"input_size": 6, "hidden_size": 3, "bias": True, "num_chunks": 2}, ()),
    "Sequential": ({"args": (nn.Linear(6, 3, bias=False), nn.ReLU())}, (X,)),
    "TransformerDecoder": (
        {"decoder_layer": nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), "num_layers": 2},
        (torch.rand(2, 3, 8), torch.rand(2, 5, 8)),
    ),
    "TripletMarginLoss": ({}, (X, X + 1, X - 2)),
    "TripletMarginWithDistanceLoss": ({}, (X, X + 1, X - 2)),
    "Unflatten": ({"dim": 1, "unflattened_size": (2, 2)}, (IMAGE,)),
    "Unfold": ({"kernel_size": 2}, (IMAGE,)),
    "Upsample": ({"scale_factor": 2}, (IMAGE,)),
    "UpsamplingBilinear2d": ({"scale_factor": 2}, (IMAGE,)),
    "UpsamplingNearest2d": ({"scale_factor": 2}, (IMAGE,)),
    **{f"{lazy}BatchNorm{n}d": ({} if lazy else {"num_features": 4}, (torch.rand(2, 4, *[6] * n),)) for lazy in ("Lazy", "") for n in (1, 2, 3)},
    **{f"LazyInstanceNorm{n}d": ({}, (torch.rand(2, 4, *[6] * n),)) for n in (1, 2, 3)},
    "SyncBatchNorm": ({"num_features": 4}, (IMAGE,)),
    **{name: ({}, (X,)) for name in ("Dropout", "Dropout1d", "AlphaDropout", "FeatureAlphaDropout", "Hardsigmoid", "RReLU")},
    **{name: ({}, (IMAGE,)) for name in ("Dropout2d", "Dropout3d")},
    **{f"MaxUnpool{n}d": ({"kernel_size": 2}, getattr(F, f"max_pool{n}d")(torch.rand(1, 4, *[6] * n), 2, return_indices=True)) for n in (1, 2, 3)},
    "Transformer": (
        {"d_model": 8, "nhead": 2, "num_encoder_layers": 2, "num_decoder_layers": 1, "dim_feedforward": 16},
        (torch.rand(3, 2, 8), torch.rand(4, 2, 8)),
    ),
}  # fmt: skip


def weights(n: int) -> torch.Tensor:
    return torch.arange(1.0, n + 1) / n


ACTIVATIONS = [
    "gelu",
    "relu",
    F.gelu,
    F.silu,
    torch.tanh,
    torch.relu,
    nn.GELU("tanh"),
    nn.LeakyReLU(0.2),
    torch.sigmoid,
]
# By the parameter's name: values that are not its default. (class, name) comes before name.
OTHERS: dict[Any, list[Any]] = {
    "bias": [False, True], "inplace": [True], "eps": [0.125], "momentum": [0.5, None], "affine": [False, True],
    "track_running_stats": [False, True], "elementwise_affine": [False], "p": [0.25, 3], "dim": [0, -1],
    "padding_mode": ["reflect", "circular", "replicate"], "stride": [2], "dilation": [2], "groups": [2], "padding": [1],
    "output_padding": [1], "ceil_mode": [True], "count_include_pad": [False], "divisor_override": [3],
    "return_indices": [True], "reduction": ["sum", "none"], "weight": [], "pos_weight": [], "ignore_index": [1],
    "label_smoothing": [0.25], "margin": [0.75], "swap": [True], "log_target": [True], "full": [True], "blank": [1],
    "zero_infinity": [True], "log_input": [False], "delta": [0.5], "beta": [0.5], "alpha": [0.5], "k": [2.0],
    "size": [5], "lower": [0.05], "upper": [0.5], "negative_slope": [0.5], "threshold": [1.5], "value": [7.0],
    "lambd": [0.25], "min_val": [-3.0], "max_val": [3.0], "approximate": ["tanh"], "init": [0.5], "num_parameters": [4],
    "dropout": [0.5], "add_bias_kv": [True], "add_zero_attn": [True], "kdim": [5], "vdim": [7], "batch_first": [True],
    "norm_first": [True], "activation": ACTIVATIONS, "layer_norm_eps": [0.5], "nonlinearity": ["relu"],
    "num_layers": [1, 3], "bidirectional": [True], "proj_size": [2], "max_norm": [0.5], "norm_type": [1.0],
    "scale_grad_by_freq": [True], "sparse": [True], "padding_idx": [1], "mode": [], "include_last_offset": [True],
    "start_dim": [2], "end_dim": [2], "kernel_size": [3], "output_size": [3], "output_ratio": [0.5],
    "keepdim": [True], "scale_factor": [3], "align_corners": [True], "recompute_scale_factor": [True],
    "div_value": [2.0], "head_bias": [True], "enable_nested_tensor": [False], "mask_check": [False],
    "norm": [nn.LayerNorm(8, eps=0.5), nn.LayerNorm(8, bias=False), nn.RMSNorm(8), nn.Sequential(nn.LayerNorm(8), nn.Dropout(0.5))],
    "num_encoder_layers": [1], "num_decoder_layers": [3], "dim_feedforward": [12], "nhead": [1], "d_model": [],
    "custom_encoder": [nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 24), 2, mask_check=False)],
    "custom_decoder": [nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 4, 16, dropout=0.3), 1, nn.RMSNorm(8))],
    "distance_function": [F.pairwise_distance, nn.PairwiseDistance(1.0), nn.CosineSimilarity(eps=0.1)], "process_group": [],
    "out_features": [7], "options": [], "unflattened_size": [(1, 4)], "encoder_layer": [], "decoder_layer": [],
    "in_features": [], "out_channels": [6], "in_channels": [], "num_features": [5], "num_channels": [], "num_groups": [],
    "normalized_shape": [], "num_embeddings": [], "embedding_dim": [5], "embed_dim": [], "num_heads": [], "input_size": [],
    "hidden_size": [], "n_classes": [], "num_classes": [], "cutoffs": [[3], [2, 8, 12]], "upscale_factor": [1],
    "downscale_factor": [3], "in1_features": [], "in2_features": [], "num_chunks": [1], "modules": [], "values": [],
    "parameters": [], "args": [], "_random_samples": [],
    "device": [torch.device("cpu")], "dtype": [torch.float64, torch.bfloat16],
    "_weight": [], "_freeze": [True], "size_average": [False], "reduce": [False], "min_value": [], "max_value": [],
    ("Conv1d", "padding"): [2, "same"], ("Conv2d", "padding"): [(1, 2), "same", "valid"],
    ("LPPool1d", "norm_type"): [3.0], ("LPPool2d", "norm_type"): [3.0], ("LPPool3d", "norm_type"): [3.0],
    ("Upsample", "mode"): ["bilinear", "bicubic"], ("EmbeddingBag", "mode"): ["sum", "max"],
    ("Upsample", "size"): [(3, 5)], ("RNNBase", "mode"): ["LSTM", "RNN_RELU"],
    ("NLLLoss", "weight"): [weights(9)], ("CrossEntropyLoss", "weight"): [weights(3)], ("NLLLoss2d", "weight"): [weights(4)],
    ("BCELoss", "weight"): [weights(10)], ("BCEWithLogitsLoss", "weight"): [weights(10)],
    ("BCEWithLogitsLoss", "pos_weight"): [weights(10)], ("MultiMarginLoss", "weight"): [weights(10)],
    ("MultiLabelSoftMarginLoss", "weight"): [weights(10)], ("MultiMarginLoss", "p"): [2],
    ("LinearCrossEntropyLoss", "options"): [F.LinearCrossEntropyOptions(batch_chunk_size=2, chunking_method=None)]
    if hasattr(F, "LinearCrossEntropyOptions") else [],
    ("Sequential", "args"): [{"first": nn.Linear(6, 6), "second": nn.Dropout(0.4)}],
    ("FractionalMaxPool2d", "_random_samples"): [torch.rand(1, 3, 2)],
}  # fmt: skip


EVERY = 1_000_000


def sampled(name: str) -> Iterator[tuple[tuple[Any, ...], dict[str, Any], Any]]:
    """torch's own samples: constructor's arguments and the forward call's."""
    for info in module_db:
        if info.module_cls is KINDS[name]:
            for one in info.module_inputs_func(
                info, device="cpu", dtype=torch.float32, requires_grad=False, training=False
            ):
                given = one.constructor_input
                yield given.args, given.kwargs, one.forward_input  # fmt: skip


def named(kind: type[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    if kind in (nn.RNN, nn.GRU, nn.LSTM):
        return {**dict(zip(("input_size", "hidden_size", "num_layers"), args, strict=False)), **kwargs}
    bound = inspect.signature(kind.__init__).bind(None, *args, **kwargs).arguments
    return {k: v for k, v in bound.items() if k != "self" and (k, v) != ("args", ())} | bound.get(
        "kwargs", {}
    )


def parameters(kind: type[Any]) -> list[str]:
    if kind in (nn.RNN, nn.GRU, nn.LSTM):
        more = {nn.RNN: ["nonlinearity"], nn.LSTM: ["proj_size"]}.get(kind, [])
        return [n for n in inspect.signature(nn.RNNBase.__init__).parameters if n not in ("self", "mode")][
            2:
        ] + more
    kinds = inspect.signature(kind.__init__).parameters.values()
    return [p.name for p in kinds if p.name != "self" and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def build(kind: type[Any], settings: dict[str, Any]) -> nn.Module:
    from collections import OrderedDict

    settings = copy.deepcopy(settings)
    args = settings.pop("args", ())
    settings.pop("kwargs", None)
    made: nn.Module = kind(*((OrderedDict(args),) if isinstance(args, dict) else args), **settings)
    return made


def variations(
    name: str, most: int
) -> Iterator[tuple[str, nn.Module, tuple[tuple[Any, ...], dict[str, Any]]]]:
    """(what is different, module, forward's arguments): the base, torch's samples, each parameter with other values."""
    kind = KINDS[name]
    bases = []
    for args, kwargs, forward in itertools.islice(sampled(name), most):
        bases.append((named(kind, args, kwargs), (forward.args, forward.kwargs) if forward else ((), {})))
    if name in BASES:
        bases.insert(0, (BASES[name][0], (BASES[name][1], {})))
    assert bases, f"say in BASES how to build {name}"
    for settings, given in bases:
        yield "as it is", build(kind, settings), given
    for parameter in [*parameters(kind), *(["args"] if name == "Sequential" else [])]:
        for other in OTHERS.get((name, parameter), OTHERS[parameter]):
            for settings, given in bases[:1] if most < EVERY else bases[:1] + bases[-1:]:
                try:
                    yield f"{parameter}={other!r}", build(kind, {**settings, parameter: other}), given
                except (ValueError, TypeError, RuntimeError, AssertionError, IndexError):
                    continue  # it does not go with the others


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
