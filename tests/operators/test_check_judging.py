"""Right or wrong: what a check's tolerance lets pass, what it finds, and what it excuses."""

from __future__ import annotations

import functools
import math
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from luxmeter.operators.checks import comparing, judging
from luxmeter.operators.checks.comparing import Compared, compare
from luxmeter.operators.checks.excuses import ANY_ORDER, DRAWS, ITERATED, ON_AN_EDGE, REFUSED, SIGNS, UNFILLED
from luxmeter.operators.checks.judging import Judged, Where, judge
from luxmeter.operators.checks.script import script_of, written
from luxmeter.operators.checks.shrinking import shrunk
from luxmeter.operators.checks.sources import module_database, optimizer_database
from luxmeter.operators.checks.trial import Copier, Side, Trial

F32 = torch.float32


def compared(
    got: Any, wanted: Any, moved: Sequence[Any] = (), coarsest: torch.dtype | None = F32, **more: Any
) -> Compared:
    return compare(
        [got], [wanted], part="output", coarsest=coarsest, moved=lambda: [[m] for m in moved], **more
    )


def test_roundings_pass_and_a_thousandth_does_not() -> None:
    right = torch.linspace(-3, 7, 101, dtype=torch.float64)
    assert not compared(right.float(), right).why
    assert not compared((right * (1 + 1e-7)).float(), right).why
    found = compared((right * 1.001).float(), right)
    assert "101 values are wrong" in found.why or "100 of 101 values are wrong" in found.why
    assert found.error == pytest.approx(1e-3, rel=1e-2) and found.allowed < 1e-5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_tolerance_goes_with_the_dtype(dtype: torch.dtype) -> None:
    right = torch.linspace(1, 2, 50, dtype=torch.float64)
    eps = torch.finfo(dtype).eps
    assert not compared(right.to(dtype), right, coarsest=dtype).why
    assert compared((right * (1 + 64 * eps)).to(dtype), right, coarsest=dtype).why


def test_what_rounded_inputs_explain_is_excused_and_no_more() -> None:
    right = torch.tensor([1.0, 2.0, 1e-3], dtype=torch.float64)
    moves = [right + torch.tensor([1e-4, 0, 0]), right - torch.tensor([1e-4, 0, 0])]
    near, far = right + torch.tensor([1e-3, 0, 0]), right + torch.tensor([1e-1, 0, 0])
    assert compared(near.float(), right, moves).excused == comparing.ILL_CONDITIONED
    assert "1 of 3 values are wrong" in compared(far.float(), right, moves).why
    assert compared(torch.tensor([3, 1]), torch.tensor([1, 3]), [torch.tensor([3, 1])]).excused
    assert compared(torch.tensor([3, 1]), torch.tensor([1, 3]), [torch.tensor([1, 3])]).why


def test_not_a_number_is_a_number_of_its_own() -> None:
    right = torch.tensor([1.0, math.nan, math.inf], dtype=torch.float64)
    assert not compared(right.float(), right).why
    assert compared(torch.tensor([1.0, 2.0, math.inf]), right).why
    assert compared(torch.tensor([math.nan, math.nan, math.inf]), right).why
    assert not compared(
        torch.tensor([math.inf]), torch.tensor([1e300], dtype=torch.float64)
    ).why  # beyond float32


@pytest.mark.parametrize(
    ("got", "wanted", "why"),
    [
        (torch.zeros(2), torch.zeros(3, dtype=torch.float64), r"gives \[2\], the reference \[3\]"),
        (torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.float64), "gives int64, the reference float64"),
        (3, 4, "gives 3, the reference 4"),
        (1.5, 1.6, "gives 1.5, right is 1.6"),
        (None, torch.ones(2, dtype=torch.float64), "gives none where the reference gives one"),
    ],
)  # fmt: skip
def test_other_forms_are_told(got: Any, wanted: Any, why: str) -> None:
    import re

    assert re.search(why, compared(got, wanted).why)


def trial(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Trial:
    return Trial("torch.thing", function, args, kwargs, written="torch.thing")


def off(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, a thousandth too large in single precision."""

    def wrong(x: torch.Tensor, *args: Any) -> Any:
        result = function(x, *args)
        return result * 1.001 if x.dtype is F32 else result

    return wrong


def judged(one: Trial, where: Where | None = None) -> Judged:
    return judge(one, where or Where(), seed=3)


def test_right_wrong_and_wrong_in_the_gradient() -> None:
    x = torch.randn(4, 3, requires_grad=True)
    assert judged(trial(torch.cos, x)).status == "passed"
    found = judged(trial(off(torch.cos), x))
    assert (found.status, found.part) == ("failed", "output") and found.error == pytest.approx(1e-3, rel=0.01)

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            (x,) = ctx.saved_tensors
            return g * x.cos() * (1.001 if x.dtype is F32 else 1.0)

    found = judged(trial(Wrong.apply, x))
    assert (found.status, found.part) == ("failed", "gradient")
    assert judged(trial(Wrong.apply, x), Where(backward=False)).status == "passed"


def test_what_is_excused_is_named() -> None:
    x = torch.rand(50)
    assert judged(trial(lambda x: x.clone().normal_(), x)).excused == DRAWS
    assert judged(Trial("torch.empty_like", torch.empty_like, (x,))).excused == UNFILLED
    assert judged(trial(torch.reshape, x, (7, 7))).excused == REFUSED


def test_ill_conditioned_inputs_are_no_fault_of_the_operator() -> None:
    hilbert = torch.tensor([[1 / (i + j + 1) for j in range(7)] for i in range(7)])
    found = judged(trial(torch.linalg.inv, hilbert))
    assert found.status == "passed" and found.excused == comparing.ILL_CONDITIONED
    assert judged(trial(off(torch.linalg.inv), torch.eye(5) + 0.1)).status == "failed"


def test_vectors_have_either_sign_and_eigenvalues_any_order() -> None:
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(2))
    flip = torch.tensor([1.0, -1.0, 1.0, -1.0])

    def svd(x: torch.Tensor, by: float = 1.0) -> Any:
        u, s, vh = torch.linalg.svd(x)
        return (u * flip, s * by, vh * flip[:, None]) if x.dtype is F32 else (u, s, vh)

    def eigvals(x: torch.Tensor, by: float = 1.0) -> Any:
        return torch.linalg.eigvals(x).flip(0) * by if x.dtype is F32 else torch.linalg.eigvals(x)

    for function, api, excuse in (
        (svd, "torch.linalg.svd", SIGNS),
        (eigvals, "torch.linalg.eigvals", ANY_ORDER),
    ):
        assert judged(Trial(api, function, (x,))).excused == excuse
        assert judged(Trial(api, function, (x, 1.001))).status == "failed"


def test_a_number_on_an_edge_falls_into_either_bin() -> None:
    def histogram(x: torch.Tensor, by: float = 1.0) -> torch.Tensor:
        return (
            torch.tensor([0.0, 1.0]) * by if x.dtype is F32 else torch.tensor([1.0, 0.0], dtype=torch.float64)
        )

    x = torch.tensor(-3.71)
    assert judged(Trial("torch.histogram", histogram, (x,))).excused == ON_AN_EDGE
    assert judged(Trial("torch.histogram", histogram, (x, 1.001))).status == "failed"


def test_one_jump_is_no_excuse_for_the_others() -> None:
    def steps(x: torch.Tensor, by: float = 0.0) -> torch.Tensor:
        return torch.floor(x * 3) + (by if x.dtype is F32 else 0.0)

    x = torch.cat([torch.tensor([1 / 3]), torch.linspace(0.4, 0.6, 19)])
    assert judged(trial(steps, x)).status == "passed"
    assert judged(trial(steps, x, 0.5)).status == "failed"


def test_sparse_results_are_compared_part_by_part() -> None:
    x = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    for layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
        assert (
            judged(trial(lambda x, layout=layout: (x * 1.1).to_sparse(layout=layout), x)).status == "passed"
        )
        found = judged(trial(lambda x, layout=layout: off(torch.clone)(x).to_sparse(layout=layout), x))
        assert found.status == "failed" and found.error == pytest.approx(1e-3, rel=0.01)


def test_an_operator_that_changes_its_input_gets_a_fresh_one() -> None:
    x = torch.ones(3)
    assert judged(trial(torch.Tensor.add_, x, 1)).status == "passed"
    assert x.tolist() == [1, 1, 1]


def test_what_only_raises_there_is_a_failure() -> None:
    def picky(x: torch.Tensor) -> torch.Tensor:
        if x.dtype is F32:
            raise RuntimeError("no single precision today")
        return x

    found = judged(trial(picky, torch.ones(2)))
    assert found.status == "failed" and "no single precision today" in found.detail

    def absent(x: torch.Tensor) -> torch.Tensor:
        if x.dtype is F32:
            raise NotImplementedError("thing not implemented for 'Float'")
        return x

    assert judged(trial(absent, torch.ones(2))).status == "missed"


def test_copies_keep_strides_aliases_and_widen() -> None:
    base = torch.arange(12.0).reshape(3, 4)
    a = base.t()
    one, two = Copier(Side()).copy((a, [a]))
    assert one is two[0] and one.stride() == a.stride() and one.data_ptr() != a.data_ptr()
    wide = Copier(Side(wide=True)).copy(
        {"x": base, "dtype": torch.float32, "n": [torch.ones(1, dtype=torch.int64)]}
    )
    assert (
        wide["x"].dtype is torch.float64
        and wide["dtype"] is torch.float64
        and wide["n"][0].dtype is torch.int64
    )
    moved = Copier(Side(wide=True, noise=1e-3)).copy(base)
    assert torch.allclose((moved - base).abs(), base.abs().double() * 1e-3)


def test_a_failing_input_is_made_small() -> None:
    def wrong(x: torch.Tensor, y: torch.Tensor, *, alpha: float = 1.0) -> torch.Tensor:
        result = x + alpha * y
        return torch.where(x > 2, result * 1.01, result) if x.dtype is F32 else result

    x = torch.randn(6, 5, 4, generator=torch.Generator().manual_seed(1)) * 2
    whole = trial(wrong, x, torch.randn(6, 5, 4), alpha=0.5)
    assert judged(whole).status == "failed"
    small = shrunk(whole, lambda t: judged(t).status == "failed")
    assert small.args[0].numel() == 1 and not small.kwargs and judged(small).status == "failed"
    assert float(small.args[0]) > 2 and len(str(float(small.args[0]))) <= 5  # a plain number


def test_a_script_stands_alone(tmp_path: Path) -> None:
    (tmp_path / "fault.py").write_text(
        "import torch\nright = torch.cos\n"
        "torch.cos = lambda x: right(x) * 1.001 if x.dtype is torch.float32 else right(x)\n"
    )
    one = Trial("torch.cos", torch.cos, (torch.tensor([0.1, -2.5]),), written="torch.cos")
    case = {"source": "operator", "name": "torch.cos"}
    for setup, code in (([str(tmp_path / "fault.py")], 1), ([], 0)):
        text = script_of(
            one, case, title="torch.cos", said="it is off", dtype="float32", device="cpu", backend="eager", seed=1,
            round_seed=1, gradient=False, allowed=4e-6, narrow=F32, setup=setup, dies=False, sampled=one,
        )  # fmt: skip
        assert "luxmeter." not in text and "torch.tensor([0.1, -2.5], dtype=torch.float32)" in text
        (tmp_path / "again.py").write_text(text)
        done = subprocess.run(
            [sys.executable, "-I", str(tmp_path / "again.py")], capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert ("error of 1.00e-03" in done.stdout) == bool(code)


@pytest.mark.parametrize(
    "value",
    [torch.tensor([0.1, math.inf, -0.0]), torch.tensor([[1, 2]]), torch.tensor(True), torch.randn(2, 3).t(),
     torch.randn(2, dtype=torch.complex64), torch.rand(300, dtype=torch.float16), torch.empty(0, 2), [1, (2.5, None)],
     {"dim": slice(None, 3), "dtype": torch.float16}, torch.rand(3, dtype=torch.bfloat16)],
    ids=lambda value: None,  # by number: what is drawn differs from process to process
)  # fmt: skip
def test_inputs_are_written_exactly(value: Any) -> None:
    back = eval(written(value), {"torch": torch})
    if isinstance(value, torch.Tensor):
        assert back.dtype is value.dtype and back.stride() == value.stride()
        torch.testing.assert_close(back, value, rtol=0, atol=0, equal_nan=True)
    else:
        assert back == value


def test_a_fault_is_found_in_operators_drawn_by_a_seed() -> None:
    """A sample of benchmarks/check_quality.py: right as they are, and found with an error of 1e-3."""
    pytest.importorskip("expecttest")
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    try:
        import check_quality
    finally:
        sys.path.pop(0)
    from luxmeter.operators.checks.sources import opinfo

    cases = opinfo.cases()
    random.Random(18).shuffle(cases)
    answers = {}
    for case in cases[:14]:
        answers[case["name"]] = check_quality.is_found(case, rounds=1)
        dtype = opinfo.dtype_of(case, "float32", "cpu")
        for number, one in enumerate(opinfo.trials_of(case, dtype=dtype, seed=5, device="cpu")):
            found = judge(one, Where(), seed=5 + number)
            assert found.status in ("passed", "missed"), (case["name"], number, found)
            if number == 9:
                break
    assert False not in answers.values(), answers
    assert sum(bool(found) for found in answers.values()) >= 8


def _shows(trial: Trial, case: dict[str, Any], *, gradient: bool) -> str:
    """What the script of a trial ends with; empty: all is right."""
    text = script_of(
        trial, case, title=case["name"], said="it is off", dtype="float32", device="cpu", backend="eager", seed=1, round_seed=1,
        gradient=gradient, allowed=1e-4, narrow=F32, setup=[], dies=False, sampled=trial,
    )  # fmt: skip
    assert text and "luxmeter." not in text
    with pytest.raises(SystemExit) as end:
        exec(compile(text, case["name"], "exec"), {"__name__": "__main__"})
    return str(end.value.code or "")


def _shown(source: Any, most: int | None) -> list[str]:
    """The cases whose script shows a fault that is not there."""
    cases = source.cases()
    random.Random(18).shuffle(cases)
    wrong = []
    for case in cases[:most]:
        if not source.dtype_of(case, "float32", "cpu"):
            continue
        for number, trial in enumerate(source.trials_of(case, dtype="float32", seed=1, device="cpu")):
            if number % 4:
                continue
            judged = judge(trial, Where(), seed=1)
            if judged.status == "passed" and not judged.excused and _shows(trial, case, gradient=False):
                wrong.append(f"{case['name']} {number}")
    return wrong


@pytest.mark.parametrize("source", [module_database, optimizer_database])
def test_layers_and_optimizers_have_scripts_too(source: Any) -> None:
    assert _shown(source, 6) == []


@pytest.mark.soak
@pytest.mark.parametrize("source", [module_database, optimizer_database])
def test_all_layers_and_optimizers_have_scripts(source: Any) -> None:
    assert _shown(source, None) == []


@pytest.mark.parametrize(
    ("source", "name", "place", "gradient"),
    [
        (optimizer_database, "torch.optim.Adam", "torch.Tensor.addcdiv_", False),
        (module_database, "torch.nn.MultiheadAttention", "torch.nn.functional.linear", False),
        (module_database, "torch.nn.LSTM", "torch._VF.lstm", True),
        (module_database, "torch.nn.LazyConv2d", "torch.nn.functional.conv2d", False),
    ],
)
def test_their_scripts_show_a_fault(
    source: Any, name: str, place: str, gradient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (case,) = (c for c in source.cases() if c["name"] == name)
    trial = next(source.trials_of(case, dtype="float32", seed=1, device="cpu"))
    assert not _shows(trial, case, gradient=gradient)
    owner = functools.reduce(getattr, place.split(".")[1:-1], torch)
    right = getattr(owner, place.rpartition(".")[2])

    def wrong(*args: Any, **kwargs: Any) -> Any:
        result = right(*args, **kwargs)
        first = result[0] if isinstance(result, tuple) else result
        if first.dtype is torch.float64:
            return result
        return (
            (first * 1.01, *result[1:])
            if isinstance(result, tuple)
            else first.mul_(1.01)
            if "_" in place[-1:]
            else first * 1.01
        )

    monkeypatch.setattr(owner, place.rpartition(".")[2], wrong)
    assert _shows(trial, case, gradient=gradient) == "reproduced: it is wrong"


@pytest.mark.parametrize(
    ("gives", "said"),
    [
        (lambda x: torch.tensor([math.nan, math.inf, 1.0]), ""),
        (lambda x: torch.zeros(3, dtype=torch.bool), ""),
        (lambda x: x.to_sparse(), ""),
        (lambda x: torch.tensor([math.nan if x.dtype is F32 else 1.0]), "reproduced: it is wrong"),
        (lambda x: torch.tensor([math.inf if x.dtype is F32 else 1.0]), "reproduced: it is wrong"),
        (
            lambda x: x.bool() if x.dtype is F32 else torch.zeros(3, dtype=torch.bool),
            "reproduced: it is wrong",
        ),
        (lambda x: x[:1] if x.dtype is F32 else x, "reproduced: it is wrong"),
        (lambda x: [x, x] if x.dtype is F32 else x, "reproduced: it is wrong"),
    ],
)
def test_a_script_compares_whatever_comes(gives: Callable[[Any], Any], said: str) -> None:
    trial = Trial("torch.cos", gives, (torch.ones(3),), written="torch.gives")
    torch.gives = gives  # type: ignore[attr-defined]
    try:
        assert _shows(trial, {"name": "torch.gives", "source": "captured"}, gradient=False) == said
    finally:
        del torch.gives  # type: ignore[attr-defined]


def test_what_is_iterated_is_compared_to_half_of_the_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(4):
        torch.manual_seed(seed)
        a, x = torch.randn(5, 5), torch.randn(5, 1)
        given = ((a + a.T) / 2 + 5 * torch.eye(5), x)
        trial = Trial("torch.lobpcg", lambda a, x: torch.lobpcg(a, X=x), given)
        assert judge(trial, Where(backward=False), seed=seed).excused == ITERATED

    def wrong(a: torch.Tensor, x: torch.Tensor) -> Any:
        values, vectors = torch.lobpcg(a, X=x)
        return values * (1.002 if a.dtype is F32 else 1), vectors

    monkeypatch.setattr(judging, "NOISES", 0)  # steps with noise take long
    assert judge(Trial("torch.lobpcg", wrong, given), Where(backward=False), seed=0).status == "failed"


def test_the_reference_is_moved_no_more_often_than_it_takes() -> None:
    runs = 0

    def ill(x: torch.Tensor) -> torch.Tensor:
        nonlocal runs
        runs += 1
        return torch.sin(x * 1e4)

    found = judge(Trial("ill", ill, (torch.rand(50) * 3,)), Where(backward=False), seed=0)
    assert found.excused == comparing.ILL_CONDITIONED and runs == 3  # there, the reference, and moved once
