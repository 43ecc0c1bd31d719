"""torch's operator database: every operator with the samples that torch's own tests run."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from typing import Any

import torch

from luxmeter.errors import MissingExtraError
from luxmeter.operators.checks.trial import Trial

# Of an operator that does not take the dtype that is asked for, the first of these that it takes.
_INSTEAD = (torch.float32, torch.complex64, torch.int64, torch.int32, torch.bool, torch.uint8)

_IMPORT = "from torch.testing._internal.common_methods_invocations import op_db"
_DRAWN = f"""{_IMPORT}

op = [o for o in op_db if o.full_name == {{entry!r}}][0]
{{seeds}}
samples = op.sample_inputs_func(op, "cpu", {{dtype}}, {{grad}})
sample = [next(samples) for _ in range({{count}})][-1]
args, kwargs = (sample.input, *sample.args), sample.kwargs


def function(*args, **kwargs):
    return (sample.output_process_fn_grad or (lambda result: result))(op.op(*args, **kwargs))
"""


def cases() -> list[dict[str, Any]]:
    """All cases of the database."""
    found = []
    for op in database():
        api = api_of(op)
        name = f"{api}/{op.variant_test_name}" if op.variant_test_name else api
        found.append({"source": "opinfo", "api": api, "name": name, "entry": op.full_name})
    return found


def dtype_of(case: dict[str, Any], dtype: str, device: str) -> str:
    """The dtype that is asked for, or what the operator takes instead: whole numbers, if it is made for them."""
    op = _entry(case["entry"])
    known = op.supported_dtypes(torch.device(device).type)
    wanted = getattr(torch, dtype)
    if wanted in known:
        return dtype
    return next((str(d).removeprefix("torch.") for d in _INSTEAD if d in known), "")


def trials_of(case: dict[str, Any], *, dtype: str, seed: int, device: str) -> Iterator[Trial]:
    """The samples, drawn from the seed."""
    op = _entry(case["entry"])
    kind = getattr(torch, dtype)
    grad = bool(op.supports_autograd) and (kind.is_floating_point or kind.is_complex)
    seed_all(seed)
    written, defined = written_as(case["api"], op.op), ""
    if not written:
        written, defined = f"[o for o in op_db if o.full_name == {op.full_name!r}][0].op", f"{_IMPORT}\n\n"
    for number, sample in enumerate(op.sample_inputs_func(op, "cpu", kind, grad)):
        state = _states()
        yield Trial(
            case["api"],
            op.op,
            (sample.input, *sample.args),
            sample.kwargs,
            process=sample.output_process_fn_grad or _as_it_is,
            backward=grad,
            written=written,
            defined=defined,
            drawn=_DRAWN.format(
                entry=op.full_name, seeds=seed_lines(seed), dtype=kind, grad=grad, count=number + 1
            ),
        )
        _put_back(state)


def _as_it_is(result: Any) -> Any:
    return result


def written_as(api: str, function: Any) -> str:
    """The name under which a script finds the function; empty if it is no name's own."""
    found: Any = torch
    for part in api.removeprefix("torch.").split("."):
        found = getattr(found, part, None)
    return api if found is function else ""


def seed_all(seed: int) -> None:
    """Python's, numpy's and torch's random numbers from one seed."""
    import numpy as np

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)


def seed_lines(seed: int) -> str:
    """The same in a script."""
    return f"import random, numpy; random.seed({seed}); numpy.random.seed({seed % 2**32}); torch.manual_seed({seed})"


def _states() -> tuple[Any, ...]:
    import numpy as np

    return random.getstate(), np.random.get_state(), torch.get_rng_state()


def _put_back(states: tuple[Any, ...]) -> None:
    """What a run drew must not change the next sample: a shrunk or resumed run has the same ones."""
    import numpy as np

    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])


@functools.cache
def database() -> tuple[Any, ...]:
    """torch's own operators."""
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ModuleNotFoundError as error:
        raise no_database(error) from error
    return tuple(op_db)


def no_database(error: ModuleNotFoundError) -> MissingExtraError:
    """What torch's own databases need, and is not there."""
    return MissingExtraError(
        "check-database-missing",
        f"torch's database of operators needs {error.name}.",
        'pip install "luxmeter[check]"',
    )


@functools.cache
def _by_name() -> dict[str, Any]:
    return {op.full_name: op for op in database()}


def _entry(name: str) -> Any:
    found = _by_name().get(name)
    if found is None:  # another interpreter has another torch
        raise NotImplementedError(f"the database of this torch ({torch.__version__}) has no {name}")
    return found


def api_of(op: Any) -> str:
    """How a program calls it: `torch.linalg.svd`, `torch.Tensor.__getitem__`."""
    name = op.name.removeprefix("torch.")
    for start in ("torch.", "torch.Tensor."):
        found: Any = torch
        for part in f"{start}{name}".split(".")[1:]:
            found = getattr(found, part, None)
        if callable(found):
            return f"{start}{name}"
    return f"torch.{name}"
