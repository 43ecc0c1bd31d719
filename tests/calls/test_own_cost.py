"""What tracing itself costs: bounded, no part of what it measures, invisible to the user's own tools, told apart."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import luxmeter as lux
from luxmeter.calls import records
from luxmeter.render import span
from luxmeter.signature import Facts, Looks, facts_of
from luxmeter.signature import torch as signature_torch

pytestmark = pytest.mark.usefixtures("core_name")


# -- seen by nobody


def work() -> torch.Tensor:
    """A little of everything that the recorder looks into at first sight."""
    x = torch.rand(8, 8)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.LayerNorm(8))
    optimizer = torch.optim.Adam(model.parameters())
    model(x).sum().backward()
    optimizer.step()
    torch.cat([x, x.t()], 1)
    x[x > 0.5], x[1:, 2], x.bfloat16() + 1
    torch.rand(4, dtype=torch.cfloat).conj().imag.abs()
    torch.eye(3).to_sparse().to_dense()
    nn.functional.cross_entropy(x.softmax(-1), torch.arange(8))
    return torch.relu(x @ x)


class Dispatched(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


def by_profiler(run: Callable[[], Any]) -> Counter[str]:
    with torch.profiler.profile() as profile:
        run()
    return Counter(event.name for event in profile.events())


def by_autograd_profiler(run: Callable[[], Any]) -> Counter[str]:
    with torch.autograd.profiler.profile() as profile:
        run()
    return Counter(event.name for event in profile.function_events)


def by_dispatch_mode(run: Callable[[], Any]) -> Counter[str]:
    with Dispatched() as mode:
        run()
    return Counter(mode.seen)


def by_function_mode(run: Callable[[], Any]) -> Counter[str]:
    with Functions() as mode:
        run()
    return Counter(mode.seen)


@pytest.fixture(
    params=[by_profiler, by_autograd_profiler, by_dispatch_mode, by_function_mode], ids=lambda f: f.__name__
)
def watched(request: pytest.FixtureRequest) -> Iterator[Callable[[Callable[[], Any]], Counter[str]]]:
    yield request.param


@pytest.mark.parametrize("inside", [False, True])
def test_tools_of_the_user_see_what_they_see_without_a_trace(watched: Any, inside: bool):
    work()
    plain = watched(work)
    with lux.trace(inside=inside):
        traced = watched(work)
    assert traced == plain and sum(plain.values()) > 20

    def around() -> None:
        with lux.trace(inside=inside):
            work()

    assert watched(around) == plain, "also when the trace starts and stops in its sight"


def test_the_first_trace_of_a_process_is_not_seen_either(monkeypatch: pytest.MonkeyPatch):
    from luxmeter.calls import arguments, cost
    from luxmeter.calls.targets.torch import callables

    def start() -> None:
        callables.listing.cache_clear()
        with lux.trace():
            pass

    lux.trace()
    monkeypatch.setattr(arguments, "_known_samples", [])
    monkeypatch.setattr(cost, "_known", {})
    kept = callables.listing()
    try:
        assert by_profiler(start) == Counter()
    finally:
        callables.listing.cache_clear()
        assert callables.listing() == kept


# -- right, of any tensor


def expected(t: torch.Tensor) -> Facts:
    """The same by torch's own operations."""
    flat = t.detach().reshape(-1)
    if t.dtype is torch.bool:
        return Facts(density=pytest.approx(float(flat.double().mean())))
    low, high = (v.item() for v in torch.aminmax(flat))
    if not t.is_floating_point():
        in_order = bool((flat[1:] >= flat[:-1]).all()) if t.dim() == 1 else None
        return Facts(low, high, sorted=in_order, values=tuple(flat.tolist()) if t.numel() <= 32 else None)
    density = int(flat.count_nonzero()) / len(flat) if low <= 0 <= high else None
    sums = None
    for dim in [-1, 1] if t.dim() > 2 else [-1]:
        if 0 <= low <= high <= 1 and t.dim() and t.shape[dim] > 1 and sums is None:
            close = torch.allclose(t.float().sum(dim), torch.ones(()), atol=1e-2)
            sums = dim % t.dim() if close else None
    return Facts(low, high, density, sums_to_one=sums)


def tensors() -> Iterator[torch.Tensor]:
    torch.manual_seed(0)
    wide = torch.randn(6, 7, 5)
    yield from (
        wide,
        wide.relu(),
        wide[:, ::2],
        wide.transpose(0, 2),
        wide[2:, 3],
        wide.double(),
        torch.tensor(2.5),
    )
    yield from (torch.randn(3, 1).expand(3, 9), torch.tensor(0.0).expand(4, 4), torch.rand(5, 5) > 0.5)
    yield from (wide.half(), wide.bfloat16(), wide.bfloat16().relu(), torch.rand(9).bfloat16())
    yield from (wide[0].softmax(-1), wide.softmax(1), wide.half().softmax(-1), wide.softmax(-1)[::2])
    yield from (torch.arange(50), torch.randint(-9, 9, (50,)), torch.randint(0, 9, (2, 3)), torch.tensor(7))
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        yield torch.randint(0, 100, (40,), dtype=dtype)
    yield torch.randn(6, dtype=torch.cfloat).conj().imag  # its values lie there without their sign
    yield wide._neg_view()
    yield nn.Parameter(torch.rand(3, 3))
    with torch.inference_mode():
        yield torch.rand(4)


def test_facts_are_those_that_torch_finds():
    for t in tensors():
        assert facts_of(t) == expected(t), (t.dtype, tuple(t.shape), t.stride())


def test_unsigned_integers_that_torch_has_no_minimum_of():
    assert facts_of(torch.tensor([3, 2**16 - 1], dtype=torch.uint16)) == Facts(
        3, 2**16 - 1, sorted=True, values=(3, 2**16 - 1)
    )
    assert facts_of(torch.tensor([2**63 + 1], dtype=torch.uint64)).high == 2**63 + 1  # type: ignore[union-attr]


def test_what_is_no_number_is_passed_over():
    t = torch.tensor([math.nan, -1.0, 2.0, math.nan])
    assert facts_of(t) == Facts(-1.0, 2.0, density=1.0)
    assert facts_of(torch.full((3,), math.nan)) is None
    assert facts_of(torch.tensor([-math.inf, math.inf])) == Facts(-math.inf, math.inf, density=1.0)


class Subclass(torch.Tensor):
    pass


def test_tensors_without_readable_memory_have_no_facts():
    freed = torch.ones(8)
    freed.untyped_storage().resize_(0)
    short = torch.ones(1 << 16)
    short.untyped_storage().resize_(16)
    lazy = torch._lazy_clone(torch.ones(3))  # type: ignore[attr-defined]
    odd = [
        freed, short, lazy, torch.empty(0), torch.rand(3, dtype=torch.cfloat), torch.empty(3, device="meta"),
        torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr(), torch.zeros(2).to(torch.float8_e4m3fn),
        torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), torch._efficientzerotensor((3,)),
        torch.ones(3).as_subclass(Subclass), torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    ]  # fmt: skip
    for t in odd:
        assert facts_of(t) is None, t.dtype
    assert torch._C._is_cow_tensor(lazy)  # type: ignore[attr-defined]
    seen = []
    torch.func.vmap(lambda t: (seen.append(facts_of(t)), t)[1])(torch.ones(2, 3))
    assert seen == [None]


# -- bounded


def test_of_a_large_tensor_a_sample_of_all_of_it_is_read(monkeypatch: pytest.MonkeyPatch):
    sizes: list[int] = []
    numbers = signature_torch._numbers
    monkeypatch.setattr(
        signature_torch, "_numbers", lambda some, t: (sizes.append(some.size), numbers(some, t))[1]
    )
    large = torch.linspace(-1, 1, 1 << 20)
    for t in (
        large,
        large.view(1024, 1024),
        large.view(1, 1, -1, 2),
        large.view(4, -1, 8, 1),
        large.view(2, -1),
    ):
        found = facts_of(t)
        assert found is not None and found.low == -1 and found.high is not None and found.high > 0.99
    assert signature_torch._MOST_VALUES / 8 < min(sizes) <= max(sizes) <= signature_torch._MOST_VALUES
    shares = torch.rand(512, 16, 64).softmax(-1)
    assert facts_of(shares).sums_to_one == 2  # type: ignore[union-attr]
    assert facts_of(torch.arange(1 << 20)).sorted and not facts_of(torch.randperm(1 << 20)).sorted  # type: ignore[union-attr]


def test_a_signature_has_a_budget_of_tensors_and_values(monkeypatch: pytest.MonkeyPatch):
    asked: list[int] = []
    monkeypatch.setattr(signature_torch, "facts_of", lambda t, most: (asked.append(most), Facts())[1])
    looks = Looks()
    look = looks.of_signature()
    found = [look(torch.ones(1)) for _ in range(1000)]
    assert sum(f is not None for f in found) == signature_torch._SIGNATURE_TENSORS
    assert looks.skipped == 1000 - signature_torch._SIGNATURE_TENSORS
    asked.clear()
    look = looks.of_signature()
    large = torch.ones(1).expand(1 << 20)
    for _ in range(100):
        look(large)
    assert sum(asked) <= signature_torch._SIGNATURE_VALUES + 100 * signature_torch._LEAST_VALUES


def test_all_signatures_together_have_a_budget_of_time_that_grows():
    used = iter(range(0, 10**15, 10**8))  # each look takes a tenth of a second
    now = [0]
    looks = Looks(lambda: now[0], lambda: next(used))
    found = [looks.of_signature()(torch.ones(1)) is not None for _ in range(20)]
    assert found == [True] * 3 + [False] * 17 and looks.skipped == 17
    now[0] = 10**10  # ten seconds later a tenth of a second is allowed
    assert [looks.of_signature()(torch.ones(1)) is not None for _ in range(3)] == [True, False, False]


def test_what_was_not_looked_at_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(signature_torch, "_SIGNATURE_TENSORS", 1)
    with lux.trace() as t:
        torch.add(torch.ones(2), torch.ones(2))
    assert "the values of 1 tensors were not looked at: it would take too long" in t.result.notes()


# -- no part of what is measured, and told apart


def test_first_sight_is_in_nobodys_time(monkeypatch: pytest.MonkeyPatch, core: Any):
    """With a clock of our own: describing takes a second, nothing else takes more than a thousandth."""
    if core.__name__.endswith("_core"):
        pytest.skip("the clock of the C core is the processor's: see the next test")
    now = [0]
    monkeypatch.setattr(
        "luxmeter.calls.core._pycore.now_ns", lambda: now.__setitem__(0, now[0] + 1) or now[0]
    )
    made = _nested(core, lambda *_: now.__setitem__(0, now[0] + 10**9))
    assert all(row[2] < 10**6 for row in made.live())


def test_the_sums_of_the_core_are_without_the_recorders_work(core: Any):
    """What an event has by the clock is what the sums have and the own work inside it."""
    for totals in (False, True):
        made = _nested(core, lambda *_: sum(range(20_000)), totals=totals)
        if totals:
            sums = Counter[int]()
            for row in made.totals():
                sums[row[0]] += row[6] if not row[4] & records.OWN else 0
            assert +sums == {row[0]: row[2] for row in made.live()}
            continue
        events = np.frombuffer(b"".join(made.drain()), dtype=records.EVENT_DTYPE)
        own = events[(events["flags"] & records.OWN) != 0]
        assert len(own) == made.stats()["described"] == 4
        for number, n, total_ns, child_ns, *_ in made.live():
            mine = events[events["callable"] == number]
            held = sum(
                int(o["duration_ns"])
                for e in mine
                for o in own
                if e["start_ns"] <= o["start_ns"] < e["start_ns"] + e["duration_ns"]
            )
            assert total_ns == mine["duration_ns"].sum() - held
            assert total_ns - child_ns == (mine["duration_ns"] - mine["child_ns"]).sum()


def _nested(core: Any, on_signature: Callable[..., None], **modes: bool) -> Any:
    made = core.Recorder(inside=True, on_signature=on_signature, **modes)
    inner = made.wrap(lambda x: x, made.add_callable("inner"))
    outer = made.wrap(lambda x: (inner(x), inner(x)), made.add_callable("outer", kind=core.SPAN))
    section = made.add_callable("section", kind=core.SECTION)
    made.start()
    span = made.enter(section)
    outer(1), outer("a")
    made.leave(span)
    made.stop()
    return made


def test_once_costs_and_costs_a_call_are_told_apart(capsys: pytest.CaptureFixture[str], tmp_path: Any):
    from luxmeter.calls import export

    with lux.trace() as t:
        model = nn.Linear(4, 4)
        for _ in range(3):
            model(torch.ones(2, 4))
    cost = t.cost()
    assert cost.calls == sum(row.n for row in t.table())
    assert (
        cost.setup_ns > 0
        and cost.described_ns > 0
        and cost.described == t.result.recording.processes[0].end["stats"]["described"]
    )
    assert cost.once_ns == cost.setup_ns + cost.described_ns
    assert cost.calls_ns == cost.calls * cost.per_call_ns + cost.passed * cost.per_passed_ns
    assert cost.total_ns == cost.calls_ns + cost.once_ns
    assert cost.share == pytest.approx(cost.total_ns / (cost.setup_ns + cost.elapsed_ns))
    first, *_, last = str(t).splitlines()
    assert f"(recording cost about {cost.calls_share:.1%}, {span(cost.per_call_ns)} a call)" in first
    assert (
        last == cost.of_once
        and f" to describe {cost.described} signature" in last
        and "to start and stop" in last
    )
    page = export.write(t, tmp_path / "t.html").read_text()
    assert cost.of_once in page and cost.of_calls in page
    assert cost.of_once in lux.load_trace(t.save(tmp_path / "kept")).text("thread")


def test_the_report_in_words():
    with lux.trace(framework=None) as t:
        t.wrap(len, name="work")("")
    said = str(t.cost()).splitlines()
    assert said == [t.cost().of_calls, t.cost().of_once] and said[0].startswith("recording cost about")
