"""A short script that shows one error again and stands alone: torch, the inputs, the call, the comparison."""

from __future__ import annotations

import base64
import itertools
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from luxmeter.nested import tensors_of
from luxmeter.operators.checks.trial import Trial

_MOST_WRITTEN = 256  # numbers of a tensor that are written out
_MOST_BYTES = 1 << 16  # of a tensor that is written as text


class NotWritable(Exception):
    """An input that cannot be written down; it can be drawn again from its seed."""


_SHORT = """{head}

args = {args}
kwargs = {kwargs}
{function}


def run(function, device, wide):
    {purpose}

    def move(value):
        if not isinstance(value, torch.Tensor):
            return value
        return value.clone().to(device, torch.float64 if wide and value.is_floating_point() else value.dtype)

    torch.manual_seed({seed})
    result = function(*map(move, args), **{{name: move(value) for name, value in kwargs.items()}})
    result = result if isinstance(result, (list, tuple)) else [result]
    numbers = [value for value in result if isinstance(value, (torch.Tensor, int, float))]
    return [torch.as_tensor(v, dtype=torch.float64 if isinstance(v, float) else None).detach().cpu() for v in numbers]

{compare}
"""
_LONG = """{head}

{inputs}

def on(value, device, wide):
    {purpose}
    if isinstance(value, torch.Tensor):
        made = value.detach().clone().to(device)
        if wide:
            made = made.to(torch.complex128) if made.is_complex() else made.double() if made.is_floating_point() else made
        return made.requires_grad_(value.requires_grad)
    if isinstance(value, torch.nn.Module):
        made = copy.deepcopy(value).to(device)
        return made.double() if wide else made
    if isinstance(value, (list, tuple)):
        return type(value)(on(v, device, wide) for v in value)
    if isinstance(value, torch.dtype) and wide and value.is_floating_point:
        return torch.float64
    return {{k: on(v, device, wide) for k, v in value.items()}} if isinstance(value, dict) else value


def leaves(value):
    value = list(value.values()) if isinstance(value, dict) else value
    nested = isinstance(value, (list, tuple))
    return [leaf for v in value for leaf in leaves(v)] if nested else [] if value is None else [value]


def run(function, device, wide):
    given, named = on(args, device, wide), on(kwargs, device, wide)
    torch.manual_seed({seed})
    found = leaves(function(*given, **named))
{gradient}    found = [torch.tensor(t, dtype=torch.float64) if isinstance(t, float) else torch.as_tensor(t) for t in found if t is not None]
    return [t.detach().cpu() for t in found]

{compare}
"""
_GRADIENT = """    inputs = leaves([given, named])
    inputs += [p for m in inputs if isinstance(m, torch.nn.Module) for p in m.parameters()]
    inputs = [t for t in inputs if isinstance(t, torch.Tensor) and t.requires_grad]
    outputs = [t for t in found if isinstance(t, torch.Tensor) and t.requires_grad]
    drawn = torch.Generator().manual_seed({seed})
    weights = [torch.randn(t.shape, generator=drawn).to({narrow}).to(t) for t in outputs]
    found = torch.autograd.grad(outputs, inputs, weights, allow_unused=True)
"""
_COMPARE = """
found, wanted = run({tested}, {device!r}, False), run({right}, "cpu", True)
wrong = [t.shape for t in found] != [t.shape for t in wanted]
for got, right in zip(found, wanted):
    print(f"gives {{got}}\\nright {{right}}")
    if got.shape == right.shape:
        got, right = (t.to_dense().to(torch.complex128) for t in (got, right))
        same = (got == right) | ((got != got) & (right != right))  # nan is nan
        off, size = torch.where(same, 0, (got - right).abs()), torch.where(right.isfinite(), right.abs(), 0)
        error = float(off.max() / size.max().clamp_min(1e-30)) if same.numel() else 0.0
        print(f"an error of {{error:.2e}}, {allowed} is allowed")
        wrong |= not error <= {allowed}
raise SystemExit("reproduced: it is wrong" if wrong else 0)"""

_PROGRAM = """{head}
from luxmeter.operators.checks.same_draws import drawn
from luxmeter.operators.checks.sources.programs import found_in
from luxmeter.operators.checks.trial import leaves_of

function, reference, _ = found_in({case})


def run(function, device, wide):
    # the same numbers on every device; wide: in double precision
    found = drawn(function, {round_seed}, dtype=torch.{dtype}, device=device, wide=wide)
    return [v.detach().cpu() if isinstance(v, torch.Tensor) else torch.tensor(v) for v in leaves_of(found)]

{compare}
"""
_DIES = """{head}

{inputs}


def move(value):
    if isinstance(value, (list, tuple)):
        return type(value)(map(move, value))
    return value.to({device!r}) if isinstance(value, (torch.Tensor, torch.nn.Module)) else value


torch.manual_seed({seed})
print("calling it ...", flush=True)
print({tested}(*map(move, args), **{{name: move(value) for name, value in kwargs.items()}}))
print("it came back")
"""


def script_of(
    trial: Trial, case: dict[str, Any], *, title: str, said: str, dtype: str, device: str, backend: str, seed: int,
    round_seed: int, gradient: bool, allowed: float, narrow: torch.dtype | None, setup: list[str], dies: bool, sampled: Trial,
) -> str:  # fmt: skip
    """The script; empty if it cannot be made. `sampled`: the trial that was drawn, of which this one is a smaller one, or the same."""
    tested = {"eager": "function", "compile": "torch.compile(function, dynamic=False)"}.get(backend, "")
    imports = [*_setup_lines(setup), "import torch"]
    if not tested:
        imports += [
            "from luxmeter.operators.backends import BACKENDS",
            "from luxmeter.operators.inputs import Call",
        ]
        made = f"BACKENDS.get({backend!r})().prepare(Call(function, a, k, {trial.api!r}), backward=False, threads=1)"
        tested = f"(lambda *a, **k: {made}.outputs())"
    said = said.replace('"""', "'").replace("\\", "/")
    first = f'"""{title}: {said}. Written by luxmeter check."""'
    words: dict[str, Any] = {
        "head": "\n".join([first, "", *imports]), "device": device, "seed": seed, "allowed": f"{allowed:.2e}", "tested": tested,
        "narrow": repr(narrow or torch.float32), "purpose": '"""On a device; wide: in double precision."""',
    }  # fmt: skip
    right = "reference or function" if case["source"] == "program" else "function"
    words["compare"] = _COMPARE.format(**words, right=right)
    if case["source"] == "program":
        named = {k: case[k] for k in ("file", "program")}
        return _PROGRAM.format(**words, case=named, dtype=dtype, round_seed=round_seed)
    try:
        if not _is_plain(trial):
            raise NotWritable("its result is processed")
        parts = {
            "args": _tuple(trial.args, gradient),
            "kwargs": written(dict(trial.kwargs), gradient),
            "function": _function_lines(trial),
        }
    except NotWritable:
        lines = trial.drawn if trial is sampled else _smaller_lines(trial, sampled, gradient)
    else:
        if not dies and not gradient and _is_flat(trial):
            return _SHORT.format(**words, **parts)
        lines = f"args = {parts['args']}\nkwargs = {parts['kwargs']}\n{parts['function']}\n"
    if not lines:
        return ""
    if not dies:
        words["head"] = "\n".join([first, "", "import copy", *imports])
    words["gradient"] = _GRADIENT.format(**words) if gradient else ""
    return (_DIES if dies else _LONG).format(**words, inputs=lines)


def _smaller_lines(trial: Trial, sampled: Trial, gradient: bool) -> str:
    """Lines that draw the inputs again and put the smaller ones in their place; empty if there are none.

    A layer that does not tell its settings is never made smaller: it stays the one that is drawn.
    """
    if not sampled.drawn:
        return ""
    try:
        args = [
            f"args[{at}]" if value is sampled.args[at] else written(value, gradient)
            for at, value in enumerate(trial.args)
        ]
        kwargs = [
            f"{name!r}: "
            + (f"kwargs[{name!r}]" if value is sampled.kwargs[name] else written(value, gradient))
            for name, value in trial.kwargs.items()
        ]
    except NotWritable:
        return ""
    return (
        f"{sampled.drawn}# made smaller\n"
        f"args = ({', '.join(args)}{',' if len(args) == 1 else ''})\nkwargs = {{{', '.join(kwargs)}}}\n"
    )


def _is_flat(trial: Trial) -> bool:
    """Plain real tensors and plain values, nothing nested."""
    values = [*trial.args, *trial.kwargs.values()]
    return not any(isinstance(v, dict | torch.nn.Module | torch.dtype) or (isinstance(v, list | tuple) and tensors_of(v))
                   or (isinstance(v, torch.Tensor) and v.is_complex()) for v in values)  # fmt: skip


def _is_plain(trial: Trial) -> bool:
    same = (lambda x: x).__code__.co_code
    code = getattr(trial.process, "__code__", None)
    return code is not None and (code.co_code == same or trial.process.__name__ in ("_same", "_as_it_is"))


def _function_lines(trial: Trial) -> str:
    if not trial.written:
        raise NotWritable("its function has no name")
    return f"{trial.defined}function = {trial.written}"


def _setup_lines(setup: list[str]) -> list[str]:
    lines = []
    for name in setup:
        if name.endswith(".py"):
            lines += [
                "import sys",
                f"sys.path.insert(0, {str(Path(name).parent)!r})",
                f"import {Path(name).stem}",
            ]
        else:
            lines.append(f"import {name}")
    return list(dict.fromkeys(lines))


def _tuple(values: tuple[Any, ...], gradient: bool = True) -> str:
    return f"({', '.join(written(v, gradient) for v in values)}{',' if len(values) == 1 else ''})"


def written(value: Any, gradient: bool = True) -> str:
    """A value as Python reads it, with `gradient` whether it wants one; NotWritable if it cannot."""
    if isinstance(value, torch.Tensor):
        return _tensor(value, gradient)
    if value is None or isinstance(value, bool | int | str | complex):
        return repr(value)
    if isinstance(value, float):
        return _number(value, repr(value))
    if isinstance(value, torch.Size):
        return f"torch.Size({list(value)!r})"
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
        return str(value)
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if value is Ellipsis:
        return "..."
    if isinstance(value, slice):
        return f"slice({written(value.start)}, {written(value.stop)}, {written(value.step)})"
    if type(value) is tuple:
        return _tuple(value, gradient)
    if type(value) is list:
        return f"[{', '.join(written(v, gradient) for v in value)}]"
    if type(value) is dict:
        return "{" + ", ".join(f"{written(k)}: {written(v, gradient)}" for k, v in value.items()) + "}"
    if isinstance(value, torch.nn.Module):
        return _module(value)
    raise NotWritable(type(value).__name__)


def _module(module: torch.nn.Module) -> str:
    """A layer as its `repr` says, if that builds the same one, with its weights; `made` is put into the script."""
    text = f"torch.nn.{module!r}"
    state = module.state_dict()
    try:
        built = eval(text, {"torch": torch})  # noqa: S307  (what torch itself wrote)
        built.load_state_dict(state)
    except Exception as error:
        raise NotWritable(f"a {type(module).__name__}") from error
    if not _is_built_alike(built, module):  # a loss does not tell its settings
        raise NotWritable(f"a {type(module).__name__}")
    dtypes = {p.dtype for p in module.parameters()} or {torch.float32}
    weights = "".join(f", {name!r}: {_dense(t.cpu().contiguous())}" for name, t in state.items())
    loaded = f"(lambda m: (m.load_state_dict({{{weights[2:]}}}), m)[1])" if weights else ""
    mode = "" if module.training else ".eval()"
    return f"{loaded}({text}.to({dtypes.pop()}){mode})" if loaded else f"{text}{mode}"


def _is_built_alike(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    """Whether two modules are of the same parts with the same settings; weights are not looked at, nor is the mode."""
    if type(a) is not type(b) or a._modules.keys() != b._modules.keys():
        return False
    settings = [
        {k: v for k, v in vars(m).items() if not k.startswith("_") and k != "training"} for m in (a, b)
    ]
    if settings[0].keys() != settings[1].keys():
        return False
    same = all(
        settings[1][k] is v or (not callable(v) and not tensors_of(v) and v == settings[1][k])
        for k, v in settings[0].items()
    )
    parts = zip(a.children(), b.children(), strict=True)
    return same and all(itertools.starmap(_is_built_alike, parts))


def _tensor(tensor: torch.Tensor, gradient: bool) -> str:
    if (
        type(tensor) not in (torch.Tensor, torch.nn.Parameter)
        or tensor.is_quantized
        or tensor.is_conj()
        or tensor.is_neg()
    ):
        raise NotWritable("a tensor of another kind")
    values = tensor.detach().cpu()
    if values.layout is not torch.strided:
        return f"{_dense(values.to_dense())}.to_sparse(layout={values.layout})"
    made = _dense(values.contiguous())
    if not values.is_contiguous():
        made = f"torch.empty_strided({tuple(values.shape)}, {values.stride()}, dtype={values.dtype}).copy_({made})"
    return f"{made}.requires_grad_()" if gradient and tensor.requires_grad else made


def _dense(values: torch.Tensor) -> str:
    dtype = values.dtype
    if values.numel() > _MOST_WRITTEN:
        data = zlib.compress(values.flatten().view(torch.uint8).numpy().tobytes(), 9)
        if len(data) > _MOST_BYTES:
            raise NotWritable("a tensor that is too large")
        text = base64.b64encode(data).decode()
        return (
            f"torch.frombuffer(bytearray(__import__('zlib').decompress(__import__('base64').b64decode('{text}'))), dtype={dtype})"
            f".reshape({tuple(values.shape)})"
        )
    if not values.numel():
        return f"torch.empty({tuple(values.shape)}, dtype={dtype})"
    return f"torch.tensor({_nested(values)}, dtype={dtype})"


def _nested(values: torch.Tensor) -> str:
    if values.dim():
        return f"[{', '.join(map(_nested, values))}]"
    if values.is_complex():
        real, imaginary = (_shortest(part) for part in (values.real, values.imag))
        return f"complex({real}, {imaginary})"
    return _shortest(values) if values.is_floating_point() else repr(values.item())


def _shortest(value: torch.Tensor) -> str:
    """The shortest text that gives the same number in its dtype."""
    kind = {torch.float64: np.float64, torch.float16: np.float16}.get(value.dtype, np.float32)
    number = float(value)
    return _number(number, repr(float(str(kind(number)))))


def _number(value: float, text: str) -> str:
    return text if np.isfinite(value) else f'float("{value}")'
