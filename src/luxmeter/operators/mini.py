"""Mini-models over input scales: `lux.bench_model`, in Python and as a YAML or TOML file.

    bench_model(torch.nn.Linear, ["d_in", "d_out"], [["batch", "d_in"]], {"batch": [1, 8], "d_in": 64, "d_out": [10]})

Names in `model_init_params` and `input_params` take their values from `input_scales`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import math
import reprlib
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

from luxmeter.errors import UsageError, suggestion
from luxmeter.isolate import Pool
from luxmeter.nested import check_written_out
from luxmeter.operators.dtypes import float_dtype
from luxmeter.operators.engine import Engine, Pools
from luxmeter.operators.jobs import Job, aten_kernel_jobs, onnx_kernel_jobs, short_hash
from luxmeter.operators.options import BenchOptions
from luxmeter.operators.results import BenchResult, put_benchmark
from luxmeter.supported import check_torch

ModelLike: TypeAlias = str | Callable[..., Any]
_BACKENDS = {
    "pt": "eager",
    "eager": "eager",
    "ort": "onnxruntime",
    "onnxruntime": "onnxruntime",
    "compile": "compile",
}
_FIELDS = (
    "model",
    "model_init_params",
    "input_params",
    "input_scales",
    "job_configs",
    "integer_inputs",
    "kernels",
)


def bench_model(
    model: ModelLike,
    model_init_params: Sequence[str],
    input_params: Sequence[Sequence[str | int]],
    input_scales: Mapping[str, int | Sequence[int]],
    job_configs: Sequence[str | Sequence[str]] = ("fp32", "pt"),
    *,
    integer_inputs: Mapping[int, int | str] | None = None,
    kernels: bool = False,
    threads: int = 1,
    budget_s: float = 60.0,
    resume: str | Path | None = None,
    quiet: bool = False,
) -> BenchResult:
    """Measure a mini-model at every combination of scales and configurations.

    `model` is a class, or `package.module:Class`; `job_configs` are pairs such as ("fp16", "ort"), or one pair's words.
    `integer_inputs` says which inputs are integers below a number or a named scale: {0: "vocabulary"}.
    `kernels` adds a row for each aten kernel of `pt`, and for each kernel of ONNX Runtime of `ort`.
    `budget_s`, `resume`, Ctrl-C and what a run gets are as for `bench`.
    """
    check_torch()
    configs = _configs(job_configs)
    place = _class_source(model)
    scales = {name: [v] if isinstance(v, int) else list(v) for name, v in input_scales.items()}
    _check_names(model_init_params, input_params, integer_inputs or {}, scales)
    options = BenchOptions(threads=threads, budget_s=budget_s, resume=resume, quiet=quiet)
    jobs = _jobs(place, model_init_params, input_params, integer_inputs or {}, scales, configs, threads)
    with ExitStack() as stack:
        pools = Pools(options, stack, preload="luxmeter.operators.mini_work")
        if kernels:
            jobs = _with_kernels(jobs, pools.of("eager"), options.patience_s)
        result = Engine("luxmeter.operators.mini_work:bench_mini", options, pools).run(list(jobs))
    return put_benchmark(result)


def _with_kernels(jobs: Iterator[Job], pool: Pool, patience_s: float) -> Iterator[Job]:
    for job in jobs:
        yield job
        outcome = pool.run("luxmeter.operators.mini_work:kernels_of_mini", job.args, timeout_s=patience_s)
        aten = job.args["backend"] == "eager"
        yield from (aten_kernel_jobs if aten else onnx_kernel_jobs)(job, outcome)


def bench_model_file(path: str | Path, **settings: Any) -> BenchResult:
    """`bench_model` with its arguments from a YAML or TOML file."""
    return bench_model(**{**read_model_file(path), **settings})


def read_model_file(path: str | Path) -> dict[str, Any]:
    """The arguments that a file has for `bench_model`, of the types they have; the module that it names is imported."""
    path = Path(path)
    said = _read(path)
    unknown = [key for key in said if key not in _FIELDS]
    if unknown:
        raise UsageError(
            "bad-model-spec",
            f"{path} has a field {unknown[0]!r}.",
            suggestion(unknown[0], _FIELDS) or f"Known: {_FIELDS}.",
        )
    missing = [key for key in _FIELDS[:4] if key not in said]
    if missing:
        raise UsageError(
            "bad-model-spec", f"{path} has no {missing[0]!r}.", f"It needs {', '.join(_FIELDS[:4])}."
        )
    if "integer_inputs" in said:
        said["integer_inputs"] = _by_number(said["integer_inputs"])
    for name, test, what in _TYPES:
        if name in said and not test(said[name]):
            raise UsageError(
                "bad-model-spec", f"{path}: {name} is {reprlib.repr(said[name])}.", f"Write {what}."
            )
    many = math.prod(len(v) if isinstance(v, list) else 1 for v in said["input_scales"].values())
    if many > _MOST_SCALES:
        raise UsageError(
            "bad-model-spec",
            f"{path}: input_scales make {many:,} combinations.",
            f"Give fewer values: at most {_MOST_SCALES:,} are measured at once.",
        )
    _check_class(said["model"])
    return said


_MOST_SCALES = 100_000


def _by_number(said: Any) -> Any:
    """Keys of JSON and TOML are texts."""
    if not isinstance(said, dict):
        return said
    is_number = {
        key: isinstance(key, str) and key.isascii() and key.isdecimal() and len(key) < 10 for key in said
    }
    return {int(key) if is_number[key] else key: value for key, value in said.items()}


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _is_list_of(value: Any, *tests: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(any(test(one) for test in tests) for one in value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_TYPES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("model", lambda v: _is_text(v) and v.isprintable() and len(v) < 1000, "package.module:Class"),
    ("model_init_params", lambda v: _is_list_of(v, _is_text), "a list of names of input_scales"),
    ("input_params", lambda v: _is_list_of(v, lambda one: _is_list_of(one, _is_text, _is_size)), "a list of shapes"),
    ("input_scales", lambda v: isinstance(v, dict) and all(map(_is_text, v)) and all(_is_size(one) or _is_list_of(one, _is_size) for one in v.values()),
     "numbers, or lists of numbers, under names"),
    ("job_configs", lambda v: _is_list_of(v, _is_text, lambda one: _is_list_of(one, _is_text)), 'pairs such as ["fp16", "ort"]'),
    ("integer_inputs", lambda v: isinstance(v, dict) and all(map(_is_size, v)) and all(_is_size(one) or _is_text(one) for one in v.values()),
     "numbers or names of input_scales under numbers of inputs"),
    ("kernels", lambda v: isinstance(v, bool), "true or false"),
)  # fmt: skip


def _check_class(model: str) -> None:
    """A file may name a module's class alone: not `os:kill`, nor whatever else takes a few numbers."""
    import torch

    place = _class_source(model)
    found: Any = importlib.import_module(place["module"])
    for part in place["name"].split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and issubclass(found, torch.nn.Module)):
        raise UsageError(
            "bad-model-spec",
            f"The model {model!r} is no class of torch.nn.Module.",
            "A file may name no other; from Python, bench_model takes any callable.",
        )


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text()
        if path.suffix == ".toml":
            found: Any = tomllib.loads(text)
        else:
            import yaml

            found = yaml.safe_load(text)
        check_written_out(found)
    except OSError as error:
        raise UsageError("bad-model-spec", f"{path} cannot be read: {error}.", "Check the path.") from error
    except Exception as error:
        raise UsageError(
            "bad-model-spec", f"{path} is damaged: {error}.", "Write it as YAML or TOML."
        ) from error
    if not isinstance(found, dict):
        raise UsageError("bad-model-spec", f"{path} holds no fields.", f"It needs {', '.join(_FIELDS[:4])}.")
    return found


def _configs(job_configs: Sequence[str | Sequence[str]]) -> list[tuple[str, str]]:
    one = all(isinstance(c, str) for c in job_configs)
    pairs: list[tuple[str, ...]] = [tuple(map(str, c)) for c in ([job_configs] if one else job_configs)]
    for pair in pairs:
        if len(pair) != 2 or pair[1] not in _BACKENDS:
            raise UsageError(
                "bad-model-spec",
                f"{pair!r} is no job configuration.",
                'Write pairs such as ["fp16", "ort"] or ["fp32", "pt"].',
            )
        float_dtype(pair[0])
    return [(pair[0], pair[1]) for pair in pairs]


def _class_source(model: ModelLike) -> dict[str, str]:
    """Where a worker finds the class: a module, or the file of a script (whose classes alone are taken)."""
    if isinstance(model, str):
        module, _, name = model.replace("/", ":").rpartition(":")
        if not module:
            module, _, name = model.rpartition(".")
        try:
            found = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError, TypeError) as error:
            raise UsageError(
                "bad-model-spec",
                f"The model {model!r} cannot be found: {error}.",
                "Write package.module:Class.",
            ) from error
        return {"module": found.__module__ if found.__module__ != "__main__" else module, "name": name}
    if "<" in model.__qualname__:
        raise UsageError(
            "bad-model-spec",
            f"{model.__qualname__} is made inside a function, where a worker cannot find it.",
            "Put it at the top level of the script or of a module.",
        )
    if model.__module__ != "__main__":
        return {"module": model.__module__, "name": model.__qualname__}
    return {"source": _source(model), "name": model.__name__}


def _source(model: Callable[..., Any]) -> str:
    """A class of the script itself: its text with the script's imports, functions and constants; nothing else runs."""
    try:
        file = inspect.getsourcefile(model)
        tree = ast.parse(Path(file or "").read_text())
    except (OSError, TypeError, SyntaxError) as error:
        raise UsageError(
            "bad-model-spec",
            f"The source of {model.__name__} cannot be read: {error}.",
            "Put it into a module.",
        ) from error
    kinds = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef)

    def stays(node: ast.stmt) -> bool:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            try:
                ast.literal_eval(node.value)  # DIM = 64: a constant that the class may use
            except ValueError:
                return False
            return True
        return isinstance(node, kinds)

    return "\n".join(ast.unparse(node) for node in tree.body if stays(node))


def _check_names(
    init: Sequence[str],
    inputs: Sequence[Sequence[str | int]],
    integers: Mapping[int, int | str],
    scales: Mapping[str, Any],
) -> None:
    used = [*init, *(n for shape in inputs for n in shape), *integers.values()]
    for name in used:
        if isinstance(name, str) and name not in scales:
            raise UsageError(
                "bad-model-spec",
                f"{name!r} has no values in input_scales.",
                suggestion(name, scales) or f"Known: {', '.join(scales)}.",
            )
    for number in integers:
        if not 0 <= number < len(inputs):
            raise UsageError(
                "bad-model-spec", f"There is no input {number} to be of integers.", "Count from 0."
            )


def _jobs(
    place: dict[str, str], init: Sequence[str], inputs: Sequence[Sequence[str | int]], integers: Mapping[int, int | str],
    scales: Mapping[str, list[int]], configs: list[tuple[str, str]], threads: int,
) -> Iterator[Job]:  # fmt: skip
    for values in itertools.product(*scales.values()):
        sizes = dict(zip(scales, values, strict=True))
        shapes = [[n if isinstance(n, int) else sizes[n] for n in shape] for shape in inputs]
        below = {str(i): n if isinstance(n, int) else sizes[n] for i, n in integers.items()}
        for dtype, backend in configs:
            args = {"place": place, "init": [sizes[n] for n in init], "shapes": shapes, "integers": below, "dtype": dtype,
                    "backend": _BACKENDS[backend], "threads": threads}  # fmt: skip
            key = short_hash(args)
            base = {
                "op": place["name"], "signature": ", ".join(f"[{','.join(map(str, s))}]" for s in shapes),
                "scale": ",".join(f"{k}={v}" for k, v in sizes.items()), "dtype": dtype, "backend": backend,
                "threads": threads, "key": key,
            }  # fmt: skip
            yield Job(base, args)
