"""Every class of torch.nn built in many ways: as torch's own samples have it, and with each setting at other values."""

from __future__ import annotations

import copy
import inspect
import itertools
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
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
    "custom_encoder": [nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 24), 2, enable_nested_tensor=False)],
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
