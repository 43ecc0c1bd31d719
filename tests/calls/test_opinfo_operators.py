"""torch's own operator samples: the same bits with and without tracing, and each call in the table with its count."""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from seen import Seen, Witness, bits, shallow, unchanged

from luxmeter.calls.targets import Target
from luxmeter.calls.targets.torch import callables

pytest.importorskip("expecttest")
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import set_rng_seed

CHUNKS = 2
SOAK_CHUNKS = 32
ROUNDS = 600  # at most
EXCUSED_SHARE, EXCUSED_LEAST = 0.001, 20  # of the samples of a chunk; lstsq alone has had ten
# Give out memory as it is. In torch's deterministic mode it is filled, so that these can be compared as well.
UNFILLED = {
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize_", "resize_as_",
}  # fmt: skip
TARGETS: dict[int, list[Target]] = {}
for each in callables.listing().targets:
    TARGETS.setdefault(id(inspect.getattr_static(each.owner, each.attribute)), []).append(each)


@dataclass
class Report:
    """What a check saw."""

    operators: int = 0
    samples: int = 0
    by_name: int = 0  # samples whose operator is one target: exactly one call of that name
    calls: int = 0
    failing: int = 0  # samples that torch refuses, traced or not
    wrong: list[str] = field(default_factory=list)
    excused: list[str] = field(default_factory=list)  # differ from themselves without any tracing

    def __str__(self) -> str:
        return (
            f"{self.operators} operators, {self.samples} samples ({self.by_name} of one name, {self.failing} refused), "
            f"{self.calls} calls, {len(self.wrong)} wrong, {len(self.excused)} vary without tracing"
        )


def target_of(op: Any) -> Target | None:
    """The target that an operator's function is. One descriptor may serve two names: __rdiv__ and __rtruediv__."""
    found = [t for t in TARGETS.get(id(op.op), ()) if not t.span]
    return next((t for t in found if t.attribute == op.name), found[0] if found else None)


def dtypes(op: Any) -> list[torch.dtype]:
    preferred = [torch.float32, torch.complex64, torch.int64, torch.bool]
    return sorted(op.dtypes, key=lambda d: (preferred.index(d) if d in preferred else 9, str(d)))


def samples(op: Any, dtype: torch.dtype, most: int) -> list[Any]:
    """Made anew from the same seeds: to run a sample may change it, and others that share its tensors.

    What op.sample_inputs() gives, without its look at the source of every frame of the stack for each of them.
    """
    grad = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    set_rng_seed(1234)
    given, found = iter(op.sample_inputs_func(op, "cpu", dtype, grad)), []
    try:
        while len(found) < most and (one := next(given, None)) is not None:
            found.append(one)
            set_rng_seed(1234)
    except RuntimeError as error:
        if "NVIDIA driver" not in str(error):  # some ask what the GPU can do, in a CUDA build without one
            raise
    return found


def run(function: Any, given: Any) -> Any:
    """The result of one sample, or the error."""
    torch.default_generator.manual_seed(7)
    try:
        return function(given.input, *given.args, **given.kwargs)
    except Exception as error:
        return Refused(f"{type(error).__name__}: {error}")


class Refused(str):
    """The error of a sample."""


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


def outcomes(op: Any, dtype: torch.dtype, most: int) -> Iterator[Any]:
    """Bits of the results of an operator's samples, run as the program has them."""
    for given in samples(op, dtype, most):
        yield with_gradients(run(op.op, given), given)


@contextlib.contextmanager
def filled(op: Any) -> Iterator[None]:
    """No memory is given out as it is."""
    if op.name not in UNFILLED:
        yield
        return
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def check(ops: list[Any], core: str, *, all_of_them: bool) -> Report:
    most, kinds = (10**9, None) if all_of_them else (1, 1)
    report = Report(operators=len(ops))
    expected = []
    for op in ops:
        for dtype in dtypes(op)[:kinds]:
            with filled(op):
                expected.append((op, dtype, list(outcomes(op, dtype, most))))
    seen = Seen(core)
    probe = seen.recorder.wrap(lambda: None, seen.add("witness"))
    suspects: list[tuple[Any, torch.dtype, list[Any], list[int]]] = []
    with unchanged(), seen:
        seen.recorder.pause()

        def counted(function: Any, given: Any) -> tuple[Any, Counter[str]]:
            before = seen.calls()
            seen.recorder.start()
            result = run(function, given)
            seen.recorder.pause()
            return result, seen.calls() - before

        for op, dtype, results in expected:
            different: list[int] = []
            target = target_of(op)
            function = getattr(target.owner, target.attribute) if target is not None else op.op
            with seen.patcher.suspended():  # some samples are made for `op.op is torch.special.i0e` alone
                given_to = samples(op, dtype, most), samples(op, dtype, most)
            with filled(op):
                for number, (given, twin, right) in enumerate(zip(*given_to, results, strict=True)):
                    label = f"{op.full_name} {dtype} sample {number}"
                    result, found = counted(function, given)
                    report.samples += 1
                    report.calls += found.total()
                    report.failing += isinstance(result, Refused)
                    if with_gradients(result, given) != right:
                        different.append(number)
                    if target is not None:
                        report.by_name += 1
                        if found != Counter({target.name: 1}):
                            report.wrong.append(f"{label}: {dict(found)} instead of one {target.name}")
                    # The same once more under the witness: whatever it sees must lie inside a call of ours.
                    with Witness(probe) as witness:
                        _, again = counted(function, twin)
                    if again.pop("witness", 0):
                        report.wrong.append(f"{label}: a call was not seen: {witness.calls[:3]}")
                    if again != found:
                        report.wrong.append(f"{label}: {dict(again)} with a mode, {dict(found)} without")
                    if found.total() < 1 and witness.calls:
                        report.wrong.append(f"{label}: nothing was recorded")
            if different:
                suspects.append((op, dtype, results, different))
    for op, dtype, results, numbers in suspects:
        varying = varying_by_themselves(op, dtype, most, results, set(numbers))
        for number in numbers:
            (report.excused if number in varying else report.wrong).append(
                f"{op.full_name} {dtype} sample {number}: another result"
            )
    return report


def varying_by_themselves(
    op: Any, dtype: torch.dtype, most: int, first: list[Any], suspects: set[int]
) -> set[int]:
    """Suspects whose result differs from run to run without any tracing.

    Some LAPACK routines (lstsq) give other last bits with the alignment of memory, some of their samples once in fifty runs.
    """
    found: set[int] = set()
    kept = []
    for count in range(ROUNDS):
        kept.append(torch.empty(count + 1))  # other addresses the next time
        with filled(op):
            for number, result in enumerate(outcomes(op, dtype, most)):
                kept.append(torch.empty(count % 7 + 1))
                if number in suspects and result != first[number]:
                    found.add(number)
        if found == suspects:
            break
    return found


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def assert_right(report: Report, note: Callable[[str, object], None]) -> None:
    """No sample is wrong; few are excused, and the test's output says how many."""
    note("samples", str(report))
    print(report, *report.excused, sep="\n")
    assert not report.wrong, "\n".join(report.wrong)
    assert len(report.excused) <= max(EXCUSED_SHARE * report.samples, EXCUSED_LEAST), report.excused


@pytest.mark.slow
@pytest.mark.parametrize("core", ["c", "python"])
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_first_sample_of_every_operator(
    chunk: int, core: str, record_property: Callable[[str, object], None]
) -> None:
    assert_right(shallow(check, op_db[chunk::CHUNKS], core, all_of_them=False), record_property)


@pytest.mark.soak
@pytest.mark.parametrize("core", ["c", "python"])
@pytest.mark.parametrize("chunk", range(SOAK_CHUNKS))
def test_all_samples_of_every_operator(
    chunk: int, core: str, record_property: Callable[[str, object], None]
) -> None:
    assert_right(shallow(check, op_db[chunk::SOAK_CHUNKS], core, all_of_them=True), record_property)
