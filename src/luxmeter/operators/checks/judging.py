"""One trial judged: run where it is to be checked, run as reference, compared forward and backward."""

from __future__ import annotations

import contextlib
import functools
import math
import re
import traceback
import types
import unittest
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from luxmeter.nested import tensors_of
from luxmeter.operators.agreeing import restorer
from luxmeter.operators.backends import BACKENDS, Backend, Unsupported
from luxmeter.operators.checks.comparing import NOISES, Compared, compare
from luxmeter.operators.checks.excuses import (
    ANY_ORDER,
    CANCELLING_OPERATORS,
    CANCELS,
    DRAWS,
    EDGE_OPERATORS,
    ITERATED,
    ITERATED_OPERATORS,
    OF_THE_DTYPE,
    ON_AN_EDGE,
    REFUSED,
    SAME_PRECISION,
    SIGN_OPERATORS,
    SIGNS,
    UNFILLED,
    UNFILLED_OPERATORS,
    UNORDERED_OPERATORS,
    VECTORS_OFF,
)
from luxmeter.operators.checks.trial import REFERENCE, Noise, Ran, Side, Trial, call_on, ran
from luxmeter.operators.randomness import is_random

_OF_PYTHON = ("eager", "compile")  # backends whose results may be plain numbers
_ELSEWHERE = 1 << 20  # another random state than the one compared
_NOT_THERE = re.compile(
    r"not implemented for|Could not run '|not currently (implemented|supported)|is not supported on",
    re.IGNORECASE,
)
# What torch says where a program asks for a device by name that is not built in, or not plugged in.
_NO_DEVICE = re.compile(
    r"Torch not compiled with \w+ enabled|CUDA is not available|No CUDA GPUs are available|Found no NVIDIA driver"
    r"|Cannot access accelerator device when none is available|CUDA_HOME environment variable is not set"
)
_NO_NAME = re.compile(r"cannot import name '(\w+)' from '(torch[\w.]*)'")
_backends: dict[str, Backend] = {}


@dataclass(frozen=True)
class Where:
    """What is checked: a device and a backend; and whether gradients are, too."""

    device: str = "cpu"
    backend: str = "eager"
    backward: bool = True


@dataclass(frozen=True)
class Judged:
    """`status` is passed, failed or missed; `reason` one line, `detail` a traceback."""

    status: str
    reason: str = ""
    error: float | None = None
    allowed: float | None = None
    part: str = ""
    excused: str = ""
    detail: str = ""
    forward_ns: int = 0
    ratio: float = 0.0


def judge(trial: Trial, where: Where, *, seed: int) -> Judged:
    """Is it right there? The same seed gives the same answer."""
    narrow = coarsest_of(trial)
    got, unsupported = _tested(trial, where, seed, narrow)
    if unsupported:
        return Judged("missed", unsupported)
    judge = _Judge(trial, where, seed, narrow or _coarsest(tensors_of(list(got.values))))
    reference = judge.reference()
    if isinstance(got.error, unittest.SkipTest):
        return Judged("missed", f"skipped: {got.error}")
    if got.error is not None:
        return judge.of_error(got.error, reference)
    if reference.error is not None and trial.is_program:
        return judge.of_error(reference.error, Ran(), part="reference")
    if reference.error is not None:
        return Judged("passed", excused=REFUSED, forward_ns=got.forward_ns)
    found = judge.compared(got, reference)
    return replace(found, forward_ns=got.forward_ns)


def _tested(trial: Trial, where: Where, seed: int, narrow: torch.dtype | None) -> tuple[Ran, str]:
    """What it gives there; or why this backend does not run it."""
    try:
        call = call_on(trial, Side(where.device))
    except Exception as error:  # noqa: BLE001  (a device that does not even take the inputs)
        return Ran(error=error), ""
    run: Callable[[], Any] = call.run
    backward = where.backward
    if where.backend != "eager":
        restore = restorer(call)  # preparing runs it, which may change its inputs
        try:
            with torch.set_grad_enabled(backward and trial.backward):
                prepared = _backend(where.backend).prepare(
                    call, backward=False, threads=torch.get_num_threads()
                )
        except Unsupported as reason:
            return Ran(), str(reason)
        except Exception as error:  # noqa: BLE001  (what the operator raises while it is prepared is its result)
            return Ran(error=error), ""
        run = prepared.outputs
        restore()
        backward = backward and where.backend == "compile"
    return _in_tensors(ran(run, call, trial, backward=backward, seed=seed, narrow=narrow), where), ""


def _in_tensors(found: Ran, where: Where) -> Ran:
    """A graph of another runtime gives tensors where Python gives a number: there, both sides give tensors."""
    return (
        found if where.backend in _OF_PYTHON else replace(found, values=tuple(map(_as_tensor, found.values)))
    )


def _backend(name: str) -> Backend:
    if name not in _backends:
        _backends[name] = BACKENDS.get(name)()
    return _backends[name]


def coarsest_of(trial: Trial) -> torch.dtype | None:
    """The coarsest floating-point dtype that it is made of."""
    tensors = [*tensors_of((trial.args, dict(trial.kwargs)))]
    for module in trial.args:
        if isinstance(module, torch.nn.Module):
            tensors += [*module.parameters(), *module.buffers()]
    return _coarsest(tensors, trial.dtype)


def _coarsest(tensors: Iterable[torch.Tensor], *dtypes: torch.dtype | None) -> torch.dtype | None:
    known = {*(t.dtype for t in tensors), *(d for d in dtypes if d is not None)}
    floats = {d for d in known if d.is_floating_point or d.is_complex}
    return max(floats, key=lambda d: torch.finfo(d).eps, default=None)


class _Judge:
    """A trial's references: as it is, moved by a rounding, drawn anew."""

    def __init__(self, trial: Trial, where: Where, seed: int, narrow: torch.dtype | None) -> None:
        self._trial, self._where, self._seed, self._narrow = trial, where, seed, narrow
        self._side = REFERENCE
        self._same_precision = False
        self._name = trial.api.removeprefix("torch.")
        self._moved: list[Ran] = []
        self._tried = 0

    def reference(self) -> Ran:
        found = self._run(self._side)
        if found.error is not None:
            self._side = Side()
            narrow = self._run(self._side)
            self._same_precision = narrow.error is None
            return narrow
        return found

    def _run(self, side: Side) -> Ran:
        try:
            call = call_on(self._trial, side)
        except Exception as error:  # noqa: BLE001
            return Ran(error=error)
        mode = Noise(side.noise, side.noise_seed) if side.noise else contextlib.nullcontext()
        with mode:
            found = ran(
                call.run, call, self._trial, backward=self._where.backward, seed=self._seed + side.draw, narrow=self._narrow
            )  # fmt: skip
        return _in_tensors(found, self._where)

    def moved(self) -> Iterator[Ran]:
        """The reference with what is rounded moved, run when the next one is asked for, and once."""
        number = 0
        while number < len(self._moved) or self._another():
            yield self._moved[number]
            number += 1

    def _another(self) -> bool:
        """One more of `moved`, if there is one."""
        eps = torch.finfo(self._narrow).eps if self._narrow is not None else 0.0
        while eps and self._tried < NOISES:
            side = replace(
                self._side,
                noise=eps,
                noise_seed=self._seed + self._tried,
                noise_in_numbers=self._tried % 2 == 0,
            )
            self._tried += 1
            found = self._run(side)
            if found.error is None:
                self._moved.append(found)
                return True
        return False

    def compared(self, got: Ran, reference: Ran) -> Judged:
        """Values, then gradients."""
        if self._name in UNFILLED_OPERATORS:
            return self._shapes_only(got, reference, UNFILLED)
        if self._name in ITERATED_OPERATORS:
            ours, theirs = ([_unsigned(v) for v in values] for values in (got.values, reference.values))
            if self._is_near(ours, theirs):
                return Judged("passed", excused=ITERATED)
        values = self._compare(
            got.values, reference.values, "output", lambda: (m.values for m in self.moved())
        )
        if values.why and self._name in CANCELLING_OPERATORS:
            relative = self._compare(
                got.values, reference.values, "output", list, floor=self._largest_rounding(reference)
            )
            values = values if relative.why else replace(relative, excused=CANCELS)
        found = values
        if not values.why and got.gradients is not None and reference.gradients is not None:
            gradients = self._compare(
                got.gradients, reference.gradients, "gradient",
                lambda: (m.gradients for m in self.moved() if m.gradients is not None),
            )  # fmt: skip
            if gradients.why and self._name in CANCELLING_OPERATORS:
                relative = self._compare(
                    got.gradients,
                    reference.gradients,
                    "gradient",
                    list,
                    floor=self._largest_rounding(reference),
                )
                gradients = gradients if relative.why else replace(relative, excused=CANCELS)
            if gradients.why or gradients.ratio > values.ratio:
                found = replace(gradients, excused=gradients.excused or values.excused)
        if not found.why and got.backward_error is not None and reference.gradients is not None:
            return self.of_error(got.backward_error, reference, part="gradient")
        if found.why and self._name in EDGE_OPERATORS:
            ours, theirs = ([_sorted(v) for v in values] for values in (got.values, reference.values))
            if not self._compare(ours, theirs, "output", list).why:
                return Judged("passed", excused=ON_AN_EDGE)
        if found.why and self._name in UNORDERED_OPERATORS:
            ours, theirs = _in_order(got.values, reference.values), [*reference.values]
            found_in_order = self._compare(ours, theirs, "output", lambda: (m.values for m in self.moved()))
            if not found_in_order.why:
                return Judged("passed", excused=ANY_ORDER)
        if found.why and self._name in SIGN_OPERATORS:
            ours, theirs = ([_unsigned(v) for v in values] for values in (got.values, reference.values))
            without = lambda: ([_unsigned(v) for v in m.values] for m in self.moved())  # noqa: E731
            if not self._compare(ours, theirs, "output", without).why:
                return Judged("passed", excused=SIGNS)
        if found.why and self._trial.is_program and self._of_the_dtype(got, reference):
            return Judged("passed", excused=OF_THE_DTYPE)
        if found.why and self._draws(reference):
            return self._shapes_only(got, reference, DRAWS)
        if found.why:
            return Judged(
                "failed",
                found.why,
                _finite(found.error),
                _finite(found.allowed),
                found.part,
                ratio=found.ratio,
            )
        excused = found.excused or (SAME_PRECISION if self._same_precision else "")
        return Judged(
            "passed", "", _finite(found.error), _finite(found.allowed), found.part, excused, ratio=found.ratio
        )

    def _compare(
        self, got: Sequence[Any], wanted: Sequence[Any], part: str, moved: Callable[[], Iterable[Sequence[Any]]], *, floor: float = 0.0
    ) -> Compared:  # fmt: skip
        tolerance = self._trial.tolerance
        return compare(
            got, wanted, part=part, coarsest=self._narrow, moved=moved, tolerance=tolerance, floor=floor
        )

    def _is_near(self, got: list[Any], wanted: list[Any]) -> bool:
        """Whether values agree in half of the digits; vectors are off by more, where eigenvalues lie close together."""
        near = math.sqrt(torch.finfo(self._narrow).eps) if self._narrow is not None else 0.0
        parts = ((slice(0, 1), near), (slice(1, None), VECTORS_OFF * near))
        return len(got) == len(wanted) and not any(
            compare(
                got[part], wanted[part], part="output", coarsest=self._narrow, moved=list, tolerance=share
            ).why
            for part, share in parts
        )

    def _largest_rounding(self, reference: Ran) -> float:
        """One rounding of the largest number that goes in or comes out, or of one."""
        tensors = [t.detach() for t in tensors_of((self._trial.args, list(reference.values)))]
        largest = [float(t.abs().max()) for t in tensors if t.is_floating_point() and t.numel()]
        finite = [n for n in largest if math.isfinite(n)]
        return torch.finfo(self._narrow).eps * max([1.0, *finite]) if self._narrow is not None else 0.0

    def _of_the_dtype(self, got: Ran, reference: Ran) -> bool:
        """Whether a test of one's own is right, but for plain numbers that the CPU gives in this dtype, too."""
        here = functools.partial(self._trial.function, device="cpu")
        call = call_on(replace(self._trial, function=here, reference=None), Side())
        narrow = ran(call.run, call, self._trial, backward=False, seed=self._seed, narrow=self._narrow)
        if not len(got.values) == len(narrow.values) == len(reference.values):
            return False
        wanted = [
            b if isinstance(a, torch.Tensor) else c
            for a, b, c in zip(got.values, reference.values, narrow.values, strict=True)
        ]
        return not self._compare(got.values, wanted, "output", list).why

    def _draws(self, reference: Ran) -> bool:
        """Whether it is known to draw, or the reference itself gives something else from another random state."""
        if is_random(self._trial.api):
            return True
        other = self._run(replace(self._side, draw=_ELSEWHERE))
        return other.error is None and not all(map(_equal, other.values, reference.values))

    def _shapes_only(self, got: Ran, reference: Ran, why: str) -> Judged:
        shapes = [_shapes(found) for found in (got, reference)]
        if shapes[0] != shapes[1]:
            other = self._run(replace(self._side, draw=_ELSEWHERE))
            if why is not DRAWS or _shapes(other) == shapes[1]:  # what draws may draw its shape, too
                return Judged("failed", f"gives {shapes[0]}, the reference {shapes[1]}", part="output")
        return Judged("passed", excused=why)

    def of_error(self, error: BaseException, reference: Ran, *, part: str = "") -> Judged:
        absent = absent_api(error) if self._trial.is_program else ""
        if absent:
            return Judged("missed", absent)
        said = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:300]}"
        if reference.error is not None and not part and self._trial.is_program:
            return Judged(
                "failed", f"fails on the CPU in higher precision, too: {said}", detail=_traceback(error)
            )
        if reference.error is not None and not part:
            return Judged("passed", said, excused=REFUSED)
        if not self._trial.is_program and (
            isinstance(error, NotImplementedError) or _NOT_THERE.search(str(error))
        ):
            return Judged("missed", said, part=part)
        if not self._trial.is_program and self._raises_on_the_cpu(part):
            return Judged("passed", said, excused=REFUSED)
        return Judged("failed", said, None, None, part, detail=_traceback(error))

    def _raises_on_the_cpu(self, part: str) -> bool:
        """In the dtype that is checked: then no device can be blamed."""
        if self._where.device == "cpu" and self._where.backend == "eager":
            return False  # what raises is what is checked
        found = self._run(Side())
        return found.error is not None or (bool(part) and found.backward_error is not None)


def _not_importable(error: ImportError) -> str:
    """The module of torch, or the name from one, that an import asked for in vain; empty if it is of another package."""
    if isinstance(error, ModuleNotFoundError):
        name = error.name or ""
    else:  # which name it was stands nowhere else before Python 3.12
        said = _NO_NAME.search(str(error))
        name = ".".join(said.group(2, 1)) if said else ""
    return name if name.startswith("torch.") else ""


def absent_api(error: BaseException) -> str:
    """Says what a program asked of this torch that it lacks, a name or a device; empty if that is not what went wrong."""
    if said := _NO_DEVICE.search(str(error)):
        return f"this torch ({torch.__version__}) has no such device here: {said.group()}"
    if isinstance(error, ImportError):
        return f"this torch ({torch.__version__}) has no {name}" if (name := _not_importable(error)) else ""
    owner = getattr(error, "obj", None)
    if not isinstance(error, AttributeError) or not isinstance(owner, type | types.ModuleType | torch.Tensor):
        return ""
    if isinstance(owner, types.ModuleType):
        home = owner.__name__
    else:
        kind = owner if isinstance(owner, type) else torch.Tensor
        home = f"{kind.__module__}.{kind.__qualname__}"
    return (
        f"this torch ({torch.__version__}) has no {home}.{error.name}"
        if home.partition(".")[0] == "torch"
        else ""
    )


def _in_order(got: Sequence[Any], reference: Sequence[Any]) -> list[Any]:
    """Eigenvalues, and what stands in columns beside them, each in the place of the nearest of the reference."""
    from scipy.optimize import linear_sum_assignment

    gaps = (reference[0][..., :, None] - got[0].to(reference[0].dtype)[..., None, :]).abs()
    n = gaps.shape[-1]
    flat = gaps.reshape(-1, n, n)
    places = [torch.as_tensor(linear_sum_assignment(one.nan_to_num(1e300).numpy())[1]) for one in flat]
    order = torch.stack(places).reshape(gaps.shape[:-1]) if places else gaps[..., 0].long()
    found = [got[0].gather(-1, order)]
    for beside in got[1:]:
        found.append(beside.gather(-1, order[..., None, :].expand(beside.shape)))
    return found


def _as_tensor(value: Any) -> Any:
    if not isinstance(value, bool | int | float | complex):
        return value
    wide = (
        torch.complex128
        if isinstance(value, complex)
        else torch.float64
        if isinstance(value, float)
        else None
    )
    return torch.tensor(value, dtype=wide)


def _unsigned(value: Any) -> Any:
    return value.abs() if isinstance(value, torch.Tensor) else value


def _shapes(found: Ran) -> list[Any]:
    return [list(v.shape) if isinstance(v, torch.Tensor) else type(v).__name__ for v in found.values]


def _sorted(value: Any) -> Any:
    return value.flatten().sort().values if isinstance(value, torch.Tensor) else value


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.shape != b.shape:
            return False
        a, b = (t.to_dense() if t.layout is not torch.strided else t for t in (a, b))
        return (
            bool(((a == b) | (a.isnan() & b.isnan())).all())
            if a.is_floating_point()
            else bool((a == b).all())
        )
    return bool(a == b)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-8000:]
