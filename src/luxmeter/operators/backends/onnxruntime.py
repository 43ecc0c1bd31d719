"""ONNX Runtime on its CPU provider, each operator exported by torch.onnx (dynamo). What it cannot run is
unsupported, with the reason.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
import time
import warnings
from typing import Any

import torch

from luxmeter.errors import MissingExtraError
from luxmeter.operators.backends import Prepared, Unsupported, tensors_of
from luxmeter.operators.inputs import Call

_BFLOAT16 = 16  # onnx.TensorProto.BFLOAT16


class _Operator(torch.nn.Module):
    """One call with its tensors as inputs and everything else fixed."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self._function = call.function
        self._args, self._kwargs = call.args, call.kwargs
        for i, module in enumerate(a for a in call.args if isinstance(a, torch.nn.Module)):
            self.add_module(f"part{i}", module)

    def forward(self, *tensors: torch.Tensor) -> Any:
        rest = iter(tensors)
        args = tuple(_put(a, rest) for a in self._args)
        return self._function(*args, **{k: _put(v, rest) for k, v in self._kwargs.items()})


def _put(value: Any, tensors: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return next(tensors)
    if isinstance(value, list | tuple) and tensors_of(value):
        return type(value)(_put(v, tensors) for v in value)
    return value


class OnnxRuntime:
    """Exports, then runs through an inference session."""

    def prepare(self, call: Call, *, backward: bool, threads: int) -> Prepared:
        """The exported operator in a session of its own, inputs bound once."""
        try:
            import onnxruntime as ort
            import onnxscript  # noqa: F401
        except ImportError as error:
            raise MissingExtraError(
                "onnx-missing", f"The onnxruntime backend needs {error.name}.", 'pip install "luxmeter[onnx]"'
            ) from error
        if backward:
            raise Unsupported("ONNX Runtime runs forward only")
        tensors = [t.detach() for t in tensors_of((*call.args, *call.kwargs.values()))]
        start = time.perf_counter()
        model = _exported(call, tensors)
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 4
        try:
            session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            names = [i.name for i in session.get_inputs()]
            # The exporter drops inputs that nothing reads; the others keep their order and number.
            feeds = {name: _value(ort, tensors[int(name.rpartition("_")[2])]) for name in names}
            outputs = [o.name for o in session.get_outputs()]
            session.run_with_ort_values(outputs, feeds)
        except Exception as error:
            raise Unsupported(f"onnxruntime: {_first_line(error)}") from error

        def run() -> Any:
            return [_tensor(v) for v in session.run_with_ort_values(outputs, feeds)]

        return Prepared(run, time.perf_counter() - start)


def _exported(call: Call, tensors: list[torch.Tensor]) -> bytes:
    names = [f"input_{i}" for i in range(len(tensors))]
    module = (
        _Operator(call).eval()
        if not any(isinstance(a, torch.nn.Module) for a in call.args)
        else _Operator(call)
    )
    quiet = [logging.getLogger(n) for n in ("torch.onnx", "onnxscript", "torch.export")]
    levels = [logger.level for logger in quiet]
    try:
        for logger in quiet:
            logger.setLevel(logging.CRITICAL)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module, tuple(tensors), input_names=names, dynamo=True, verbose=False, optimize=True
            )
        assert program is not None
        data: bytes = program.model_proto.SerializeToString()
        return data
    except Exception as error:
        raise Unsupported(f"torch.onnx.export: {_first_line(error)}") from error
    finally:
        for logger, level in zip(quiet, levels, strict=True):
            logger.setLevel(level)


def _value(ort: Any, tensor: torch.Tensor) -> Any:
    tensor = tensor.contiguous()
    if tensor.dtype is torch.bfloat16:
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(tensor.view(torch.uint16).numpy(), _BFLOAT16)
    return ort.OrtValue.ortvalue_from_numpy(tensor.numpy())


def _tensor(value: Any) -> Any:
    if not value.is_tensor():
        return None
    if value.data_type() == "tensor(bfloat16)":
        return torch.utils.dlpack.from_dlpack(value._get_c_value().to_dlpack())
    return torch.from_numpy(value.numpy())


def _first_line(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    said = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", (str(error).strip().splitlines() or [""])[0])
    return f"{type(error).__name__}: {said[:200]}"


def make() -> OnnxRuntime:
    """The backend."""
    return OnnxRuntime()
