"""ONNX Runtime on its CPU provider, each operator exported by torch.onnx (dynamo). What it cannot run is
unsupported, with the reason.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

from luxmeter import scratch, stats
from luxmeter.errors import MissingExtraError
from luxmeter.nested import tensors_of
from luxmeter.operators.backends import Prepared, Unsupported
from luxmeter.operators.inputs import Call

_WARM = 3  # runs of a profile that are not counted
_MOST_RUNS = 200
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
        if backward:
            raise Unsupported("ONNX Runtime runs forward only")
        start = time.perf_counter()
        session, outputs, feeds = _session(call, threads)

        def run() -> Any:
            return [_tensor(v) for v in session.run_with_ort_values(outputs, feeds)]

        return Prepared(run, time.perf_counter() - start)


def kernels(call: Call, *, threads: int, budget_s: float = 0.5) -> list[dict[str, Any]]:
    """Kernel, signature, calls and times of each kernel of the exported operator, as ONNX Runtime's own profiler says."""
    with scratch.folder("onnxruntime") as folder:
        session, outputs, feeds = _session(call, threads, profile=f"{folder}/profile")
        runs, deadline = 1, time.perf_counter() + budget_s
        while runs < _WARM + 5 or (runs < _MOST_RUNS and time.perf_counter() < deadline):
            session.run_with_ort_values(outputs, feeds)
            runs += 1
        events = json.loads(Path(session.end_profiling()).read_text())
    return _kernel_rows(events, runs)


def _kernel_rows(events: list[dict[str, Any]], runs: int) -> list[dict[str, Any]]:
    """Equal kernels of the graph together: the times of each, after the first runs."""
    nodes: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and str(event.get("name", "")).endswith("_kernel_time"):
            nodes[event["name"]].append(event)
    found: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    for seen in nodes.values():
        args = seen[0]["args"]
        shapes = [
            f"{kind}{size}".replace(" ", "")
            for one in args.get("input_type_shape", [])
            for kind, size in one.items()
        ]
        times = [event["dur"] / 1e6 for event in seen[_WARM * len(seen) // runs :]]
        found[f"onnxruntime.{args['op_name']}", ", ".join(shapes)].append(times)
    rows = []
    for (kernel, signature), each in found.items():
        times = [t for one in each for t in one]
        interval = stats.median_interval(times)
        rows.append({
            "kernel": kernel, "signature": signature, "calls": len(each), "status": "ok", "times_s": times,
            "ci_low_s": interval.low, "ci_high_s": interval.high,
            "reason": "timed by ONNX Runtime's profiler, in whole microseconds",
        })  # fmt: skip
    return rows


def _session(call: Call, threads: int, *, profile: str = "") -> tuple[Any, list[str], dict[str, Any]]:
    """A session with the operator, the names of its outputs and its inputs; it has run once."""
    try:
        import onnxruntime as ort
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            "onnx-missing", f"The onnxruntime backend needs {error.name}.", 'pip install "luxmeter[onnx]"'
        ) from error
    tensors = [t.detach() for t in tensors_of((*call.args, *call.kwargs.values()))]
    model = _exported(call, tensors)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    if profile:
        options.enable_profiling = True
        options.profile_file_prefix = profile
    try:
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        names = [i.name for i in session.get_inputs()]
        # The exporter drops inputs that nothing reads; the others keep their order and number.
        feeds = {name: _value(ort, tensors[int(name.rpartition("_")[2])]) for name in names}
        outputs = [o.name for o in session.get_outputs()]
        session.run_with_ort_values(outputs, feeds)
    except Exception as error:
        raise Unsupported(f"onnxruntime: {_first_line(error)}") from error
    return session, outputs, feeds


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
