"""Counterparts that no rule finds: other names, other arguments. Everything here is run and compared as well."""

from __future__ import annotations

from typing import Any

_COMPOSED = """
    conv1d conv2d conv3d layer_norm rms_norm normalize batch_norm dot clone bitwise_not index_add index_fill topk sort
    cummin median diag roll soft_margin_loss scaled_dot_product_attention std_mean var_mean linspace leaky_relu equal
    adaptive_avg_pool1d avg_pool1d avg_pool2d
"""
# torch's name (without its space) -> names of MindSpore.
_OTHER_NAMES = {
    "concatenate": ["mindspore.mint.cat"], "special.expit": ["mindspore.mint.sigmoid"], "pinverse": ["mindspore.ops.pinv"],
    "special.gammaln": ["mindspore.ops.lgamma"], "special.psi": ["mindspore.ops.digamma"],
    "special.multigammaln": ["mindspore.ops.mvlgamma"], "linalg.pinv": ["mindspore.ops.pinv"],
    "special.logit": ["mindspore.ops.logit"], "linalg.det": ["mindspore.ops.det"], "linalg.matmul": ["mindspore.mint.matmul"],
    "linalg.norm": ["mindspore.ops.norm"], "linalg.vector_norm": ["mindspore.ops.vector_norm"],
    "linalg.matrix_norm": ["mindspore.ops.matrix_norm"], "linalg.inv": ["mindspore.ops.inverse"],
    "linalg.slogdet": ["mindspore.ops.slogdet"], "linalg.cross": ["mindspore.ops.cross"],
    "linalg.cholesky": ["mindspore.ops.cholesky"], "linalg.svd": ["mindspore.ops.svd"],
    "nn.functional.embedding": ["mindspore.mint.nn.functional.embedding", "composed.embedding"],
    "tensordot": ["mindspore.ops.tensor_dot"], "clamp_min": ["composed.clamp_min"], "clamp_max": ["composed.clamp_max"],
    "addr": ["composed.outer_added"], "nn.functional.linear": ["mindspore.mint.nn.functional.linear", "mindspore.ops.dense"],
    "rsub": ["composed.rsub"], "take_along_dim": ["composed.take_along_dim"], "scalar_tensor": ["composed.scalar_tensor"],
    "split_with_sizes": ["mindspore.mint.split"], "unsafe_split": ["mindspore.mint.split"],
    "unsafe_chunk": ["mindspore.mint.chunk"], "complex": ["mindspore.ops.Complex"], "isin": ["composed.isin"],
    "transpose_copy": ["mindspore.mint.transpose"], "permute_copy": ["mindspore.mint.permute"],
    "squeeze_copy": ["mindspore.mint.squeeze"], "unsqueeze_copy": ["mindspore.mint.unsqueeze"],
    "view_copy": ["mindspore.mint.reshape"], "expand_copy": ["mindspore.mint.broadcast_to"], "t_copy": ["mindspore.mint.t"],
    "unbind_copy": ["mindspore.mint.unbind"], "diagonal_copy": ["mindspore.ops.diagonal"],
    "resolve_conj": ["composed.clone"], "resolve_neg": ["composed.clone"], "alias_copy": ["composed.clone"],
    "trapezoid": ["mindspore.ops.trapz"], "nn.functional.silu": ["mindspore.mint.nn.functional.silu", "mindspore.ops.silu"],
    "Tensor.contiguous": ["Tensor.contiguous"], "Tensor.type_as": ["Tensor.type_as"],
    "Tensor.expand": ["Tensor.broadcast_to", "Tensor.expand"], "constant_pad_nd": ["composed.constant_pad_nd"],
    "nn.functional.max_pool1d": ["mindspore.ops.max_pool1d", "composed.max_pool1d"],
    "conj_physical": ["mindspore.ops.conj"], "unflatten": ["composed.unflatten"],
}  # fmt: skip


def _by_hand() -> dict[str, list[str | dict[str, Any]]]:
    found: dict[str, list[str | dict[str, Any]]] = {}
    for name in _COMPOSED.split():
        for space in ("torch", "torch.nn.functional", "Tensor"):
            found.setdefault(f"{space}.{name}", []).append(f"composed.{name}")
    for name, targets in _OTHER_NAMES.items():
        spaces = (
            ("",) if name.startswith("Tensor.") else ("torch.",) if "." in name else ("torch.", "Tensor.")
        )
        for space in spaces:
            found.setdefault(f"{space}{name}", []).extend(targets)
    return found


_COMPOSED_CELLS = """
    BatchNorm1d BatchNorm2d BatchNorm3d LayerNorm RMSNorm GroupNorm GELU SELU ELU Softplus MaxPool1d MaxPool2d AvgPool1d
    AvgPool2d CrossEntropyLoss SoftMarginLoss KLDivLoss Conv1d Conv2d Conv3d Dropout
    Flatten Identity PixelShuffle
"""
# mindspore.nn speaks differently: no padding unless pad_mode says so.
_CELLS: dict[str, list[str | dict[str, Any]]] = {
    "torch.nn.Linear": ["mindspore.mint.nn.Linear", "mindspore.nn.Dense"],
    "torch.nn.Conv1d": [{"name": "mindspore.nn.Conv1d", "fixed": {"pad_mode": "pad"}}],
    "torch.nn.Conv2d": [{"name": "mindspore.nn.Conv2d", "fixed": {"pad_mode": "pad"}}],
    "torch.nn.Conv3d": [{"name": "mindspore.nn.Conv3d", "fixed": {"pad_mode": "pad"}}],
    **{f"torch.nn.{name}": [{"name": f"mindspore.nn.{name}", "names": {"bias": "has_bias", "proj_size": ""}}]
       for name in ("LSTM", "GRU", "RNN")},
    "torch.nn.ConvTranspose1d": [{"name": "mindspore.nn.Conv1dTranspose", "fixed": {"pad_mode": "pad"}}],
    "torch.nn.ConvTranspose2d": [{"name": "mindspore.nn.Conv2dTranspose", "fixed": {"pad_mode": "pad"}}],
    "torch.nn.ConvTranspose3d": [{"name": "mindspore.nn.Conv3dTranspose", "fixed": {"pad_mode": "pad"}}],
    "torch.nn.MaxPool2d": [{"name": "mindspore.nn.MaxPool2d", "fixed": {"pad_mode": "pad"}}],
    "torch.nn.MaxPool3d": [{"name": "mindspore.nn.MaxPool3d", "fixed": {"pad_mode": "pad"}}],
    "torch.nn.AvgPool1d": [{"name": "mindspore.nn.AvgPool1d", "fixed": {"pad_mode": "pad"}}],
    "torch.nn.AvgPool2d": [{"name": "mindspore.nn.AvgPool2d", "fixed": {"pad_mode": "pad"}}],
    "torch.nn.AvgPool3d": [{"name": "mindspore.nn.AvgPool3d", "fixed": {"pad_mode": "pad"}}],
    "torch.nn.Hardswish": [{"name": "mindspore.nn.HSwish"}],
    "torch.nn.Hardsigmoid": [{"name": "mindspore.nn.HSigmoid"}],
    "torch.nn.Hardshrink": [{"name": "mindspore.nn.HShrink"}],
    "torch.nn.Softshrink": [{"name": "mindspore.nn.SoftShrink"}],
    "torch.nn.SELU": [{"name": "mindspore.nn.SeLU"}],
}  # fmt: skip


def _cells() -> dict[str, list[str | dict[str, Any]]]:
    found = {name: list(targets) for name, targets in _CELLS.items()}
    for name in _COMPOSED_CELLS.split():
        found.setdefault(f"torch.nn.{name}", [f"mindspore.mint.nn.{name}", f"mindspore.nn.{name}"])
        found[f"torch.nn.{name}"].append(f"composed.{name}")
    return found


BY_HAND: dict[str, list[str | dict[str, Any]]] = {**_by_hand(), **_cells()}
