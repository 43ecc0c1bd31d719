"""torch's own operator samples: the same bits with and without tracing, and each call in the table with its count."""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from seen import Seen, Witness, bits, shallow, unchanged

from luxmeter.calls.targets import Target
from luxmeter.calls.targets import torch as torch_targets

pytest.importorskip("expecttest")
from torch.testing._internal.common_methods_invocations import op_db

CHUNKS = 2
# empty memory has no defined content; results of these differ from run to run without any tracing
UNDEFINED = {
    "empty",
    "empty_like",
    "empty_strided",
    "empty_permuted",
    "new_empty",
    "new_empty_strided",
    "bernoulli",
    "resize_",
    "resize_as_",
}
TARGETS: dict[int, list[Target]] = {}
for each in torch_targets.listing().targets:
    TARGETS.setdefault(id(inspect.getattr_static(each.owner, each.attribute)), []).append(each)


def target_of(op: Any) -> Target | None:
    """The target that an operator's function is. One descriptor may serve two names: __rdiv__ and __rtruediv__."""
    found = [t for t in TARGETS.get(id(op.op), ()) if not t.span]
    return next((t for t in found if t.attribute == op.name), found[0] if found else None)


def samples(op: Any, *, all_of_them: bool) -> Iterator[tuple[torch.dtype, int]]:
    preferred = [torch.float32, torch.complex64, torch.int64, torch.bool]
    dtypes = sorted(op.dtypes, key=lambda d: (preferred.index(d) if d in preferred else 9, str(d)))
    for dtype in dtypes if all_of_them else dtypes[:1]:
        grad = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
        count = sum(1 for _ in op.sample_inputs("cpu", dtype, requires_grad=grad)) if all_of_them else 1
        yield from ((dtype, number) for number in range(count))


def sample(op: Any, dtype: torch.dtype, number: int) -> Any:
    torch.default_generator.manual_seed(number)
    grad = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    return next(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=grad), number, None), None)


def run(function: Any, given: Any) -> Any:
    """Result and gradients of one sample, or the error. What the test itself calls is not traced: see `paused`."""
    try:
        result = function(given.input, *given.args, **given.kwargs)
    except Exception as error:
        return type(error).__name__
    return result


def with_gradients(result: Any, given: Any) -> Any:
    tensors = [
        t for t in (result if isinstance(result, tuple | list) else [result]) if isinstance(t, torch.Tensor)
    ]
    wanted = [t for t in tensors if t.requires_grad and t.grad_fn is not None]
    gradients = []
    leaves = [
        t for t in (given.input, *given.args) if isinstance(t, torch.Tensor) and t.requires_grad and t.is_leaf
    ]
    if wanted and leaves:
        total = sum(
            (t.abs() if t.is_complex() else t).to_dense().sum()
            if t.layout != torch.strided
            else t.abs().sum()
            for t in wanted
        )
        try:
            gradients = list(torch.autograd.grad(total, leaves, allow_unused=True))
        except (RuntimeError, NotImplementedError) as error:
            gradients = [type(error).__name__]
    return bits(result), bits(gradients)


def check(ops: list[Any], core: str, *, all_of_them: bool) -> None:
    cases = []
    for op in ops:
        for dtype, number in samples(op, all_of_them=all_of_them):
            given = sample(op, dtype, number)
            if given is None:
                continue
            torch.default_generator.manual_seed(7)
            cases.append((op, dtype, number, with_gradients(run(op.op, given), given)))
    seen = Seen(core)
    probe_id = seen.add("witness")
    probe = seen.recorder.wrap(lambda: None, probe_id)
    wrong: list[str] = []
    suspects: list[Any] = []
    with unchanged(), seen:
        for op, dtype, number, expected in cases:
            seen.recorder.pause()
            given = sample(op, dtype, number)
            target = target_of(op)
            function = getattr(target.owner, target.attribute) if target is not None else op.op
            torch.default_generator.manual_seed(7)
            before = seen.calls()
            seen.recorder.start()
            result = run(function, given)
            seen.recorder.pause()
            found = seen.calls() - before
            label = f"{op.full_name} {dtype} sample {number}"
            if op.name not in UNDEFINED and with_gradients(result, given) != expected:
                suspects.append((op, dtype, number, label))
            if target is not None and found != Counter({target.name: 1}):
                wrong.append(f"{label}: {dict(found)} instead of one {target.name}")
            # The same once more under the witness: whatever it sees must lie inside a call of ours.
            given = sample(op, dtype, number)
            torch.default_generator.manual_seed(7)
            before = seen.calls()
            witness = Witness(probe)
            seen.recorder.start()
            with witness:
                run(function, given)
            seen.recorder.pause()
            again = seen.calls() - before
            if again.pop("witness", 0):
                wrong.append(f"{label}: a call was not seen: {witness.calls[:3]}")
            if again != found:
                wrong.append(f"{label}: {dict(again)} with a mode, {dict(found)} without")
            if found.total() < 1 and witness.calls:
                wrong.append(f"{label}: nothing was recorded")
    excused = {op.full_name for op, dtype, number, _ in suspects if varies_by_itself(op, dtype, number)}
    wrong += [f"{label}: another result" for op, *_, label in suspects if op.full_name not in excused]
    assert not wrong, "\n".join(wrong)


def varies_by_itself(op: Any, dtype: torch.dtype, number: int) -> bool:
    """Some LAPACK routines (lstsq) give other last bits with the alignment of memory: without any tracing, too."""
    kept, results = [], []
    for _ in range(30):
        given = sample(op, dtype, number)
        torch.default_generator.manual_seed(7)
        results.append(with_gradients(run(op.op, given), given))
        kept.append((given, torch.empty(len(kept) + 1)))  # other addresses the next time
    return any(result != results[0] for result in results)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.slow
@pytest.mark.parametrize("core", ["c", "python"])
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_first_sample_of_every_operator(chunk: int, core: str) -> None:
    shallow(check, op_db[chunk::CHUNKS], core, all_of_them=False)


@pytest.mark.soak
@pytest.mark.parametrize("core", ["c", "python"])
@pytest.mark.parametrize("chunk", range(32))
def test_all_samples_of_every_operator(chunk: int, core: str) -> None:
    shallow(check, op_db[chunk::32], core, all_of_them=True)
