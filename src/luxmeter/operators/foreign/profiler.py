"""torch.profiler's Chrome traces (record_shapes) and ExecutionTraceObserver JSON -> cases.

Both name aten operators and list their inputs; calls inside another aten call are left out, as the outer one is
replayed whole. A Chrome trace names no overload: the declaration that takes these arguments is looked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from luxmeter.operators.case import Case
from luxmeter.operators.foreign.input_logs import NotReadable
from luxmeter.signature import Argument, ListOf, Signature, TensorSpec, Word, contiguous_stride
from luxmeter.torch_extra import require_torch

_DTYPES = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16",
    "long int": "int64", "long": "int64", "long long": "int64", "int": "int32", "short int": "int16", "short": "int16",
    "signed char": "int8", "unsigned char": "uint8", "char": "int8", "bool": "bool",
    "c10::complex<float>": "complex64", "c10::complex<double>": "complex128", "c10::complex<c10::Half>": "complex32",
}  # fmt: skip
# Numbers that stand for words inside torch (c10/core/ScalarType.h, Layout.h, MemoryFormat.h).
_SCALAR_TYPES = ["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32", "complex64",
                 "complex128", "bool", "qint8", "quint8", "qint32", "bfloat16"]  # fmt: skip
_LAYOUTS = [
    "strided",
    "sparse_coo",
    "sparse_csr",
    "_mkldnn",
    "sparse_csc",
    "sparse_bsr",
    "sparse_bsc",
    "jagged",
]
_FORMATS = ["contiguous_format", "preserve_format", "channels_last", "channels_last_3d"]
_WORDS = {
    "ScalarType": ("dtype", _SCALAR_TYPES),
    "Layout": ("layout", _LAYOUTS),
    "MemoryFormat": ("memory_format", _FORMATS),
}
_PARAMETER = re.compile(r"([A-Za-z]+)[^ ,]* (\w+)")

Found = Iterator[tuple[str, Case | NotReadable]]


_MOST_SIZE = 1 << 63
_MOST_US = 1 << 52  # a hundred years, in microseconds: no time is later, and none is what is no number


def chrome_cases(events: Sequence[Any], *, source: str) -> Found:
    """(place, case or why it is none) for each outermost aten call of a Chrome trace."""
    calls = [
        e for e in events
        if isinstance(e, dict) and e.get("ph") == "X" and str(e.get("name", "")).startswith("aten::")
    ]  # fmt: skip
    yield from ((str(e["name"]), NotReadable("it has no time")) for e in calls if not _timed(e))
    calls = list(filter(_timed, calls))
    calls.sort(key=lambda e: (str(e.get("tid")), e["ts"], -float(e.get("dur", 0))))
    thread, end = None, 0.0
    for event in calls:
        start, duration = float(event["ts"]), float(event.get("dur", 0))
        if str(event.get("tid")) == thread and start < end:
            continue  # inside the call before
        thread, end = str(event.get("tid")), start + duration
        place = f"{event['name']} at {event['ts']}"
        yield place, _read(lambda: _chrome_case(event, round(duration * 1000), source))  # noqa: B023  (called at once)


def _timed(event: dict[str, Any]) -> bool:
    times = event.get("ts"), event.get("dur", 0)
    return all(isinstance(one, int | float) and abs(one) < _MOST_US for one in times)


def _chrome_case(event: dict[str, Any], total_ns: int, source: str) -> Case:
    args = event.get("args")
    if not isinstance(args, dict) or "Input Dims" not in args:
        raise NotReadable("it has no input shapes: record with record_shapes=True")
    dims, types = args["Input Dims"], args.get("Input type", [])
    count = len(dims)
    strides = args.get("Input Strides", [None] * count)
    concrete = args.get("Concrete Inputs", [""] * count)
    if not all(isinstance(v, list) and len(v) == count for v in (types, strides, concrete)):
        raise NotReadable("shapes, types, strides and values differ in number")
    values = [_chrome_value(*entry) for entry in zip(types, dims, strides, concrete, strict=True)]
    return _case(event["name"], values, None, source=source, total_ns=total_ns)


def _chrome_value(kind: str, dims: Any, stride: Any, concrete: str) -> Argument:
    if kind in _DTYPES:
        return _tensor(_DTYPES[kind], dims, stride)
    if kind == "TensorList":
        # The trace does not tell the dtype inside a list: float32 is what most are.
        strides = stride if isinstance(stride, list) and len(stride) == len(dims) else [None] * len(dims)
        return ListOf(tuple(_tensor("float32", d, s) for d, s in zip(dims, strides, strict=True)))
    if kind == "ScalarList":
        inside = concrete.strip()[1:-1]
        return ListOf(tuple(_scalar(item) for item in inside.split(",") if item.strip()))
    if kind in ("Scalar", ""):
        return _scalar(concrete)
    if kind == "GenericList":
        raise NotReadable("the trace does not say what its list holds")
    raise NotReadable(f"unknown input type {kind!r}")


def _scalar(text: str) -> Argument:
    text = text.strip()
    words: dict[str, Argument] = {"": None, "True": True, "False": False, "None": None}
    if text in words:
        return words[text]
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def execution_cases(nodes: Sequence[Any], *, source: str) -> Found:
    """(place, case or why it is none) for each outermost aten call of an execution trace."""
    by_id = {n["id"]: n for n in nodes if isinstance(n, dict) and isinstance(n.get("id"), int)}

    def outer(node: dict[str, Any]) -> dict[str, Any] | None:
        number = node.get("ctrl_deps", node.get("parent"))
        return by_id.get(number) if isinstance(number, int) else None

    def inside(node: dict[str, Any]) -> bool:
        seen = set()
        parent = outer(node)
        while parent is not None and parent["id"] not in seen:
            if str(parent.get("name", "")).startswith("aten::"):
                return True
            seen.add(parent["id"])
            parent = outer(parent)
        return False

    for node in by_id.values():
        if not str(node.get("name", "")).startswith("aten::") or inside(node):
            continue
        place = f"node {node['id']} ({node['name']})"
        yield place, _read(lambda: _execution_case(node, source))  # noqa: B023  (called at once)


def _read(make: Callable[[], Case]) -> Case | NotReadable:
    """A case, or why a call is none, whatever its entry holds."""
    try:
        case = make()
        hash(case)  # not with a mapping where a number belongs
    except NotReadable as problem:
        return problem
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as problem:
        return NotReadable(f"it is damaged ({type(problem).__name__}: {problem})")
    return case


def _execution_case(node: dict[str, Any], source: str) -> Case:
    inputs = node["inputs"]
    strides = inputs.get("strides") or [None] * len(inputs["values"])
    storages: dict[int, list[int]] = {}
    values = [
        _execution_value(*entry, storages)
        for entry in zip(inputs["types"], inputs["values"], inputs["shapes"], strides, strict=True)
    ]
    schema = next((a["value"] for a in node.get("attrs", []) if a.get("name") == "op_schema"), "")
    case = _case(node["name"], values, schema or None, source=source, total_ns=None)
    shared = {storage: i for i, storage in enumerate(s for s, ids in storages.items() if len(ids) > 1)}
    lowest = {s: min(offsets) for s, offsets in storages.items()}

    def numbered(t: TensorSpec) -> TensorSpec:
        number = shared.get(t.memory) if t.memory is not None else None
        offset = t.offset - lowest[t.memory] if number is not None and t.memory is not None else 0
        return TensorSpec(t.shape, t.dtype, t.stride, offset, number)

    return Case(case.op, case.signature.map_tensors(numbered), source=source)


def _execution_value(
    kind: str, value: Any, shape: Any, stride: Any, storages: dict[int, list[int]]
) -> Argument:
    if kind.startswith("Tensor(nullptr"):
        return None  # a tensor that was declared and never given
    if kind.startswith("Tensor("):
        dtype = _DTYPES.get(kind[7:-1])
        if dtype is None:
            raise NotReadable(f"unknown tensor type {kind!r}")
        _, storage, offset, *_ = value
        storages.setdefault(storage, []).append(offset)
        made = _tensor(dtype, shape, stride)
        return TensorSpec(made.shape, made.dtype, made.stride, offset, storage)
    if kind.startswith("GenericList["):
        kinds = _split(kind[12:-1])
        strides = stride if isinstance(stride, list) and len(stride) == len(kinds) else [None] * len(kinds)
        shapes = shape if isinstance(shape, list) and len(shape) == len(kinds) else [[]] * len(kinds)
        entries = zip(kinds, value, shapes, strides, strict=True)
        return ListOf(tuple(_execution_value(*entry, storages) for entry in entries))
    if kind == "None" or value == "<None>":
        return None
    if kind == "Device":
        return Word("device", str(value))
    if kind in ("Int", "Bool", "Double", "String", "Float", "Number"):
        return float(value) if kind in ("Double", "Float") else value
    raise NotReadable(f"unknown input type {kind!r}")


def _split(text: str) -> list[str]:
    """At commas outside brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "[(<") - (c in "])>")
        if c == "," and not depth:
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]] if text else []


def _tensor(dtype: str, dims: Any, stride: Any) -> TensorSpec:
    if not isinstance(dims, list) or not all(type(n) is int and 0 <= n < _MOST_SIZE for n in dims):
        raise NotReadable(f"{str(dims)[:80]} are no sizes")
    shape = tuple(dims)
    if not isinstance(stride, list) or len(stride) != len(shape):
        return TensorSpec(shape, dtype)
    if not all(type(n) is int and abs(n) < _MOST_SIZE for n in stride):
        raise NotReadable(f"{str(stride)[:80]} are no strides")
    steps = tuple(stride)
    return TensorSpec(shape, dtype, None if steps == contiguous_stride(shape) else steps)


def _case(
    name: str, values: list[Argument], schema: str | None, *, source: str, total_ns: int | None
) -> Case:
    require_torch("Reading the calls that another tool has written down")
    import torch

    packet = getattr(torch.ops.aten, name.removeprefix("aten::"), None)
    if packet is None:
        raise NotReadable(f"this torch has no operator {name}")
    if schema is not None:
        overload = schema.split("(")[0].partition(".")[2] or "default"
        overloads = [overload] if overload in packet.overloads() else packet.overloads()
    else:
        overloads = packet.overloads()
    for overload in overloads:
        declared = getattr(packet, overload)._schema
        if _takes(declared.arguments, values):
            return Case(
                f"aten.{name[6:]}.{overload}", _arranged(declared, values), total_ns=total_ns, source=source
            )
    raise NotReadable(f"no declaration of {name} takes these arguments")


def _takes(arguments: Sequence[Any], values: list[Argument]) -> bool:
    if len(values) > len(arguments) or any(a.is_out for a in arguments):
        return False
    if any(not a.has_default_value() and "Optional" not in str(a.type) for a in arguments[len(values) :]):
        return False
    return all(_fits(str(a.type), value) for a, value in zip(arguments, values, strict=False))


def _fits(kind: str, value: Argument) -> bool:
    if kind == "Device" and value is None:
        return True  # a Chrome trace leaves devices out
    if kind.startswith("Optional["):
        return value is None or _fits(kind[9:-1], value)
    if isinstance(value, TensorSpec):
        return kind == "Tensor"
    if isinstance(value, ListOf):
        return kind.startswith("List[") and all(_fits(kind[5:-1], item) for item in value.items)
    if isinstance(value, bool):
        return kind in ("bool", "number")
    if isinstance(value, int):
        return kind in ("int", "number", "float", "SymInt")
    if isinstance(value, float):
        return kind in ("float", "number")
    if isinstance(value, str):
        return kind in ("str", "Device")
    if isinstance(value, Word):
        return kind == "Device"
    return False


def _arranged(declared: Any, values: list[Argument]) -> Signature:
    """Positional and keyword arguments, with the numbers that stand for dtypes and the like as words."""
    meant = {name: kind for kind, name in _PARAMETER.findall(str(declared).partition("(")[2])}
    args: list[Argument] = []
    kwargs: list[tuple[str, Argument]] = []
    for argument, value in zip(declared.arguments, values, strict=False):
        kind, names = _WORDS.get(meant.get(argument.name, ""), ("", []))
        if kind and type(value) is int and 0 <= value < len(names):
            value = Word(kind, names[value])
        elif meant.get(argument.name) == "Device" and (
            isinstance(value, str) or str(argument.type) == "Device"
        ):
            value = Word("device", str(value or "cpu"))
        if not argument.kwarg_only:
            args.append(value)
        elif value is not None:
            kwargs.append((argument.name, value))
    return Signature(tuple(args), tuple(kwargs))
