"""The far side of flops_accuracy.py: builds a model of a published table and counts it once, with one counter.

Runs in a worker process of its own for each counter: some leave patches behind, some never come back.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import luxmeter as lux
from luxmeter.model.records import ModelCost

_SKIPPED = ("normal_", "uniform_", "trunc_normal_", "erfinv_", "orthogonal_")
_kept: list[torch.library.Library] = []


def count(table: str, model: str, size: int, counter: str) -> dict[str, Any]:
    """MACs of `model` for one image of `size` by `counter`; ours says its parameters and unknown operators too."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # what lies in fresh memory can slow a run a hundred times
    if counter in OURS:
        cost = OURS[counter](table, model, size)
        return {
            "macs": cost.macs,
            "with_norms": cost.macs + _norms(cost),
            "params": cost.params,
            "unknown": [op.name for op in cost.unknown_ops],
            "notes": list(cost.notes),
        }
    import_torchvision()  # before the peers: some import it, and find it broken otherwise
    try:
        by = PEERS[counter]()
    except ImportError as error:
        return {"absent": str(error)}
    net = build(table, model, size)
    with contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
        return {"macs": float(by(net, torch.zeros(1, 3, size, size)))}


def _norms(cost: ModelCost) -> int:
    """What timm's published numbers (fvcore's) have beside products: 2 an element for batch norm, 5 for the others."""
    ours = {op.name: op.flops for op in cost.operators}
    layers = ours.get("aten::native_layer_norm", 0) + ours.get("aten::native_group_norm", 0)
    return ours.get("aten::native_batch_norm", 0) + layers * 5 // 8  # we count 8 for a layer norm


class _NoInit(TorchFunctionMode):
    """Random initial weights cost minutes and change no count: zeros do.

    Memory left as it is does not: torch draws truncated normals until all fit, and a model's run may crawl on it.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _SKIPPED and args:
            with torch.no_grad():
                args[0].zero_()
            return args[0]
        return func(*args, **(kwargs or {}))


def import_torchvision() -> Any:
    """The wheel is a CUDA build: beside a CPU torch it imports once its one missing operator is declared."""
    if "torchvision" not in sys.modules:
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        sys.modules["torchvision._meta_registrations"] = types.ModuleType("torchvision._meta_registrations")
        _kept.append(library)
    import torchvision

    return torchvision


def build(table: str, name: str, size: int, *, device: str = "cpu") -> nn.Module:
    """A model by its name in a table (`vit_b_16@384` is that model at another size), in evaluation."""
    base = name.partition("@")[0]
    make = _torchvision if table == "torchvision" else _timm
    with _NoInit(), torch.device(device):
        return make(base, size).eval()


def _torchvision(name: str, size: int) -> nn.Module:
    options: dict[str, Any] = {"image_size": size} if name.startswith("vit_") else {}
    if name == "googlenet":  # published without its auxiliary heads
        options = {"aux_logits": False, "init_weights": False}
    elif name == "inception_v3":
        options = {"init_weights": False}
    return getattr(import_torchvision().models, name)(**options)  # type: ignore[no-any-return]


def _timm(name: str, size: int) -> nn.Module:
    import_torchvision()
    import timm

    if name not in timm.list_models():
        raise LookupError(f"timm {timm.__version__} has no {name}")
    configured = timm.get_pretrained_cfg(name)
    if configured is not None and size not in configured.input_size:  # many have their size built in
        with contextlib.suppress(TypeError):
            return timm.create_model(name, img_size=size)  # type: ignore[no-any-return]
    return timm.create_model(name)  # type: ignore[no-any-return]


def _ours(table: str, model: str, size: int) -> ModelCost:
    """As a user would: built on meta, so that no memory is needed; with memory where a model cannot be built so."""
    try:
        net = build(table, model, size, device="meta")
    except LookupError:
        raise
    except Exception:
        net = build(table, model, size)
    try:
        return lux.analyze(net, input_size=(1, 3, size, size), backward=False)
    except lux.errors.UsageError:
        if not any(p.is_meta for p in net.parameters()):
            raise
        return lux.analyze(build(table, model, size), input_size=(1, 3, size, size), backward=False)


def _ours_for_real(table: str, model: str, size: int) -> ModelCost:
    return lux.analyze(build(table, model, size), input_size=(1, 3, size, size), backward=False, device="cpu")


OURS: dict[str, Callable[[str, str, int], ModelCost]] = {
    "luxmeter": _ours,
    "luxmeter (cpu)": _ours_for_real,
}

Count = Callable[[nn.Module, torch.Tensor], float]


def _torch() -> Count:
    from torch.utils.flop_counter import FlopCounterMode

    def by(model: nn.Module, x: torch.Tensor) -> float:
        with FlopCounterMode(display=False) as counter:
            model(x)
        return counter.get_total_flops() / 2

    return by


def _fvcore() -> Count:
    from fvcore.nn import FlopCountAnalysis

    def by(model: nn.Module, x: torch.Tensor) -> float:
        counted = FlopCountAnalysis(model, x).unsupported_ops_warnings(False)
        return counted.uncalled_modules_warnings(False).total()  # type: ignore[no-any-return]

    return by


def _torchinfo() -> Count:
    import torchinfo

    return lambda model, x: torchinfo.summary(model, input_data=x, verbose=0).total_mult_adds


def _ptflops(backend: str) -> Count:
    from ptflops import get_model_complexity_info

    def by(model: nn.Module, x: torch.Tensor) -> float:
        macs, _ = get_model_complexity_info(
            model, tuple(x.shape[1:]), as_strings=False, print_per_layer_stat=False, verbose=False, backend=backend
        )  # fmt: skip
        if macs is None:
            raise RuntimeError("ptflops gave no number")
        return macs  # type: ignore[no-any-return]

    return by


def _calflops() -> Count:
    from calflops import calculate_flops

    def by(model: nn.Module, x: torch.Tensor) -> float:
        counted = calculate_flops(
            model, input_shape=tuple(x.shape), print_results=False, output_as_string=False
        )
        return counted[1]  # type: ignore[no-any-return]

    return by


def _thop() -> Count:
    import thop

    return lambda model, x: thop.profile(model, inputs=(x,), verbose=False)[0]


PEERS: dict[str, Callable[[], Count]] = {
    "torch": _torch,
    "ptflops (aten)": lambda: _ptflops("aten"),
    "calflops": _calflops,
    "torchinfo": _torchinfo,
    "fvcore": _fvcore,
    "thop": _thop,
    "ptflops": lambda: _ptflops("pytorch"),
}
COUNTERS = (*OURS, *PEERS)
"""The two ways of ours, then the others: those that are right most often first."""
