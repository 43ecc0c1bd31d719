"""Recurrent cells and layers where they come as one operator; elsewhere they are counted as their products."""

from __future__ import annotations

from math import prod
from typing import Any

from luxmeter.flops.formulas import Cost, formula, products

# Element-wise operations a step for each hidden unit, both biases included: what the same cell costs when it runs
# as separate operators (the meta device shows them).
_PER_UNIT = {0: 4, 1: 4, 2: 21, 3: 16}  # mode of a cudnn or oneDNN layer: tanh, relu, lstm, gru
_GATES_TO_MODE = {1: 1, 3: 3, 4: 2}


def _steps(x: Any, batch_sizes: Any) -> int:
    """Positions of all sequences together: time x batch, or the packed length."""
    return int(prod(x.shape[:-1])) if not batch_sizes else int(sum(batch_sizes))


@formula("mkldnn_rnn_layer")
def onednn_layer(
    x: Any, weight_ih: Any, weight_hh: Any, bias_ih: Any, bias_hh: Any, hx: Any, cx: Any, reverse: bool,
    batch_sizes: Any, mode: int, hidden_size: int, *_: Any,
) -> Cost:  # fmt: skip
    steps = _steps(x, batch_sizes)
    macs = steps * (prod(weight_ih.shape) + prod(weight_hh.shape))
    return products(int(macs), int(_PER_UNIT.get(mode, 4) * hidden_size * steps))


@formula("mkldnn_rnn_layer_backward")
def onednn_layer_backward(x: Any, weight_ih: Any, weight_hh: Any, *rest: Any) -> Cost:
    """Two products for each of the forward's: the gradients of what came in and of the weight."""
    steps = int(prod(x.shape[:-1]))
    macs = 2 * steps * (prod(weight_ih.shape) + prod(weight_hh.shape))
    hidden = weight_hh.shape[-1]
    mode = _GATES_TO_MODE.get(weight_hh.shape[0] // max(hidden, 1), 1)
    return products(int(macs), int(2 * _PER_UNIT[mode] * hidden * steps))


@formula("_cudnn_rnn", "miopen_rnn")
def cudnn(x: Any, weights: Any, *rest: Any, **__: Any) -> Cost:
    """All layers and directions: every step of every sequence meets each weight matrix once."""
    matrices = [w for w in weights if len(w.shape) == 2]
    steps = int(prod(x.shape[:-1]))
    hidden = [w.shape for w in matrices[1::2]]
    extra = sum(_PER_UNIT[_GATES_TO_MODE.get(s[0] // max(s[1], 1), 1)] * s[1] for s in hidden)
    return products(steps * int(sum(prod(w.shape) for w in matrices)), steps * int(extra))


@formula("_cudnn_rnn_backward", "miopen_rnn_backward")
def cudnn_backward(x: Any, weights: Any, *rest: Any, **__: Any) -> Cost:
    forward = cudnn(x, weights)
    return Cost(2 * forward.macs, 2 * forward.flops)


@formula("_thnn_fused_lstm_cell", "_thnn_fused_gru_cell")
def fused_gates(input_gates: Any, hidden_gates: Any, state: Any, *_: Any, **__: Any) -> Cost:
    """The products were done before: here are the gates' functions only."""
    gates = input_gates.shape[-1] // max(state.shape[-1], 1)
    return Cost(0, int((13 if gates == 4 else 10) * prod(state.shape)))


@formula(
    "_thnn_fused_lstm_cell_backward_impl",
    "_thnn_fused_gru_cell_backward",
    "_thnn_differentiable_lstm_cell_backward",
)
def fused_gates_backward(grad: Any, *rest: Any, **__: Any) -> Cost:
    known = next((t for t in (grad, *rest) if hasattr(t, "shape")), None)
    return Cost(0, int(20 * prod(known.shape)) if known is not None else 0)


@formula(
    "quantized::quantized_lstm_cell_dynamic", "quantized::quantized_gru_cell_dynamic",
    "quantized::quantized_rnn_relu_cell_dynamic", "quantized::quantized_rnn_tanh_cell_dynamic",
)  # fmt: skip
def packed_cell(x: Any, hx: Any, *rest: Any, out: Any = None, **__: Any) -> Cost:
    """The packed weights say their shapes."""
    shapes = [packed.unpack()[0].shape for packed in rest if hasattr(packed, "unpack")]
    steps = int(prod(x.shape[:-1]))
    mode = _GATES_TO_MODE.get(shapes[1][0] // max(shapes[1][1], 1), 1)
    return products(steps * int(sum(prod(s) for s in shapes)), int(_PER_UNIT[mode] * shapes[1][1] * steps))


def _packed_layers(x: Any, hidden: int, gates: int, num_layers: int, bidirectional: bool) -> Cost:
    directions = 2 if bidirectional else 1
    width, macs = x.shape[-1], 0
    for _ in range(num_layers):
        macs += directions * gates * hidden * (width + hidden)
        width = directions * hidden
    steps = int(prod(x.shape[:-1]))
    extra = _PER_UNIT[_GATES_TO_MODE[gates]] * hidden * num_layers * directions
    return products(int(steps * macs), int(steps * extra))


@formula("quantized_lstm")
def packed_lstm(
    x: Any, hx: Any, params: Any, has_biases: Any, num_layers: Any, dropout: Any = 0, train: Any = False,
    bidirectional: Any = False, *_: Any, **__: Any,
) -> Cost:  # fmt: skip
    return _packed_layers(x, hx[0].shape[-1], 4, int(num_layers), bidirectional is True)


@formula("quantized_gru")
def packed_gru(
    x: Any, hx: Any, params: Any, has_biases: Any, num_layers: Any, dropout: Any = 0, train: Any = False,
    bidirectional: Any = False, *_: Any, **__: Any,
) -> Cost:  # fmt: skip
    return _packed_layers(x, hx.shape[-1], 3, int(num_layers), bidirectional is True)
