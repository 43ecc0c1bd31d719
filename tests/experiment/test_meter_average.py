"""Averages: weights, recent ones, devices, ranks."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from luxmeter import AvgMeter, Meter
from luxmeter.errors import MissingNameError, UsageError
from luxmeter.experiment.meter import pending as meter_pending

# torch loads its Python kernels for the meta device, and wraps manual_seed, at the first use: before any test looks.
torch.zeros((), device="meta") + 1


def test_floats_and_tensors_of_one_element_are_averaged_all_else_keeps_its_last() -> None:
    am = AvgMeter()
    for i in range(4):
        am.update(
            Meter({
                "f": float(i), "t": torch.tensor(float(i)), "t1": torch.tensor([2.0 * i]), "n": np.float32(i), "a": np.array([i]),
                "it": torch.tensor(i), "i": i, "s": str(i), "l": [i], "b": bool(i), "v": torch.full((2,), i), "none": None,
            })
        )  # fmt: skip
    assert [am[k].mean for k in ("f", "t", "t1", "n", "a", "it")] == [1.5, 1.5, 3.0, 1.5, 1.5, 1.5]
    assert (am.i, am.s, am.l, am.b, am.none) == (3, "3", [3], True, None)
    assert am.v.tolist() == [3, 3]
    assert str(am) == (
        "@f=3.0000(1.5000)  @t=3.0000(1.5000)  @t1=6.0000(3.0000)  @n=3.0000(1.5000)  @a=3.0000(1.5000)"
        "  @it=3.0000(1.5000)  @i=3  @s=3  @l=[3]  @b=True  @v=tensor([3, 3])  @none=None"
    )
    assert am.to_dict()["f"] == 1.5
    assert am.scalars()["i"] == 3
    assert str(am.last()).startswith("@f=3.0000  @t=3.0000")


def test_all_statistics() -> None:
    am = AvgMeter(window=3, decay=0.5)
    values, weights = [4.0, 1.0, 3.0, 2.0], [1, 2, 3, 4]
    for value, weight in zip(values, weights, strict=True):
        am.update({"x": value}, weight=weight)
    x = am.x
    assert (x.count, x.weight, x.sum, x.min, x.max, x.last) == (4, 10.0, 23.0, 1.0, 4.0, 2.0)
    assert x.mean == 2.3
    assert float(x) == x.avg == 2.3
    assert f"{x:.1f}" == "2.3"
    assert x.windowed == pytest.approx((1 * 2 + 3 * 3 + 2 * 4) / 9)
    top, bottom = 0.0, 0.0
    for value, weight in zip(values, weights, strict=True):
        top, bottom = 0.5 * top + 0.5 * value * weight, 0.5 * bottom + 0.5 * weight
    assert x.ema == pytest.approx(top / bottom)


def test_the_average_uses_its_weight() -> None:
    am = AvgMeter()
    am.update({"acc": 1.0}, weight=30)
    am.update({"acc": 0.0}, weight=10)
    am.percent("acc")
    assert str(am) == "@acc=0.00%(75.00%)"


def test_average_forces() -> None:
    am = AvgMeter()
    am.average(am.n_)
    for n in (1, 2, 6):
        am.update({"n": n})
    assert am.n.mean == 3
    assert str(am) == "@n=6(3.0000)"


def test_one_name_at_a_time() -> None:
    am = AvgMeter()
    am.loss = 1.0
    am["loss"] = 3.0
    assert am.loss.mean == 2.0
    assert "loss" in am
    assert list(am) == ["loss"]
    del am.loss
    assert "loss" not in am
    with pytest.raises(MissingNameError):
        _ = am.loss
    with pytest.raises(UsageError):
        am.mergee_ = 1
    with pytest.raises(UsageError):
        am.merge = 1.0  # type: ignore[method-assign,assignment]


def test_what_cannot_be_added() -> None:
    am = AvgMeter()
    am.update(None)
    for wrong in (3, [1], {1: 2}, AvgMeter()):
        with pytest.raises(UsageError):
            am.update(wrong)  # type: ignore[arg-type]
    for spans in ({"window": 0}, {"decay": 1.0}, {"decay": -0.1}):
        with pytest.raises(UsageError):
            AvgMeter(**spans)  # type: ignore[arg-type]
    assert len(am) == 0


def test_names_may_come_and_go_and_change_their_kind() -> None:
    am = AvgMeter()
    am.update({"a": 1.0})
    am.update({"a": 3.0, "b": 1.0})
    am.update({"b": "text", "a": torch.tensor(5.0)})
    am.update({"a": "gone"})
    assert am.a.mean == 3.0
    assert am.a.count == 3
    assert am.b.mean == 1.0
    assert list(am) == ["a", "b"]


def test_a_meter_of_ones_own_class() -> None:
    class Mine(Meter):
        def __init__(self) -> None:
            super().__init__()
            self._secret = 3
            self.percent("acc")

    am = AvgMeter()
    for value in (0.25, 0.75):
        m = Mine()
        m.acc = value
        am.update(m)
    assert str(am) == "@acc=75.00%(50.00%)"
    assert m._secret == 3


def test_long_runs_are_folded_and_nothing_is_lost() -> None:
    am = AvgMeter()
    count = meter_pending.CHUNK * 2 + 17
    for i in range(count):
        am.update({"x": float(i), "s": "text", "t": torch.tensor(float(i))})
    assert am.x.count == am.t.count == count
    assert am.x.sum == am.t.sum == sum(range(count))
    quick = AvgMeter()
    for i in range(count):
        quick.update({"x": float(i), "y": 1.0})
    assert quick.x.sum == am.x.sum
    assert quick.x.ema == pytest.approx(am.x.ema)
    assert quick.x.recent == am.x.recent
    assert len(quick._pending) == 0


def test_a_tensor_changed_in_place_afterwards_counts_as_it_was() -> None:
    am, mixed = AvgMeter(), AvgMeter()
    total = torch.zeros(())
    for _ in range(3):
        total += 1
        am.update({"total": total})
        mixed.update({"total": total, "text": "x"})
    assert am.total.mean == mixed.total.mean == 2.0


def test_a_meter_used_again_counts_as_it_was() -> None:
    am, m = AvgMeter(), Meter()
    for i in range(3):
        m.x = float(i)
        am.update(m)
    m.x = 99.0
    assert am.x.mean == 1.0


def test_no_graph_and_no_big_tensor_is_held() -> None:
    am = AvgMeter()
    alive = []
    for i in range(5):
        weights = torch.ones(3, requires_grad=True)
        big = weights * i
        alive.append(weakref.ref(big))
        am.update({"loss": big.sum(), "big": big, "array": np.zeros(3)})
    del big, weights
    gc.collect()
    assert [ref() for ref in alive] == [None] * 5
    assert not am.big.last.requires_grad and not am.big.mean.requires_grad
    assert am.loss.mean == 6.0


@pytest.mark.parametrize("host_only", [True, False])
def test_an_update_never_reads_a_device(host_only: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors on the meta device have no values at all: whatever would wait for one raises."""
    monkeypatch.setattr(meter_pending, "no_accelerator", lambda: host_only)
    monkeypatch.setattr(meter_pending, "CHUNK", 16)
    am = AvgMeter()
    for i in range(21):
        loss = torch.zeros((), device="meta", requires_grad=True) * 1
        am.update(Meter({
            "loss": loss, "acc": torch.zeros(1, device="meta"),
            "n": torch.zeros((), dtype=torch.int64, device="meta"), "lr": float(i),
        }))  # fmt: skip
    assert list(am) == ["loss", "acc", "n", "lr"]
    blocks = am._pending.blocks
    assert [tuple(block.rows.shape) for block in blocks] == [(16, 2), (16, 1), (5, 2), (5, 1)]
    assert not any(block.rows.requires_grad for block in blocks)
    with pytest.raises(NotImplementedError, match="meta"):
        _ = am.loss  # reading the average is what reads the device
    blocks.clear()
    assert am.lr.count == 21


def test_values_from_a_device_are_averaged_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of device tensors, walked with tensors that only say they are not in host memory."""
    monkeypatch.setattr(meter_pending, "no_accelerator", lambda: False)
    monkeypatch.setattr(meter_pending, "_is_cpu", lambda value: False)
    monkeypatch.setattr(meter_pending, "scalar_of", lambda value: None)
    monkeypatch.setattr(meter_pending, "is_device_scalar", lambda value: isinstance(value, torch.Tensor))
    am = AvgMeter(window=2)
    total = torch.zeros(1)
    for i in range(5):
        total += 1
        am.update({"a": total, "b": torch.tensor([i], dtype=torch.int64), "c": 1.0}, weight=i + 1)
    assert am.a.mean == pytest.approx((1 + 4 + 9 + 16 + 25) / 15)
    assert (am.a.last, am.a.min, am.a.windowed) == (5.0, 1.0, pytest.approx((4 * 4 + 5 * 5) / 9))
    assert am.b.sum == 0 + 2 + 6 + 12 + 20
    assert list(am) == ["a", "b", "c"]
    assert str(am).startswith("@a=5.0000(3.6667)  @b=4.0000(2.6667)  @c=1.0000(1.0000)")
    am.update({"a": 7.0})
    am.update({"a": total})
    assert (am.a.count, am.a.last, am.a.max) == (7, 5.0, 7.0)


def test_nan_and_infinity() -> None:
    am = AvgMeter()
    for value in (1.0, math.nan, 3.0):
        am.update({"x": value, "y": math.inf})
    assert math.isnan(am.x.mean)
    assert (am.x.min, am.x.max, am.x.last) == (1.0, 3.0, 3.0)
    assert am.y.mean == math.inf


ANY_VALUE = st.one_of(
    st.floats(-100, 100),
    st.integers(-5, 5),
    st.sampled_from(["x", "y"]),
    st.floats(-100, 100).map(lambda v: torch.tensor(v, dtype=torch.float64)),
    st.integers(-5, 5).map(lambda v: torch.tensor([v])),
    st.floats(-100, 100).map(lambda v: torch.tensor([v, 1.0])),
    st.floats(-100, 100).map(lambda v: np.array([v, 1.0])),
    st.just(torch.ones(3)),
    st.floats(-100, 100).map(np.float64),
)
UPDATES = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("abc"), ANY_VALUE, max_size=3),
        st.floats(0.5, 4),
        st.integers(1, 3),
        st.booleans(),
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(UPDATES)
def test_any_updates_give_what_a_plain_loop_gives(
    updates: list[tuple[dict[str, object], float, int, bool]],
) -> None:
    am = AvgMeter()
    seen: dict[str, list[tuple[float, float]]] = {}
    vectors: dict[str, list[tuple[Any, float]]] = {}
    last: dict[str, object] = {}
    for values, weight, times, look in updates:
        for _ in range(times):
            am.update(values, weight)
            for name, value in values.items():
                last[name] = value
                if isinstance(value, float) or (isinstance(value, torch.Tensor) and value.numel() == 1):
                    seen.setdefault(name, []).append((float(value), weight))
                elif isinstance(value, torch.Tensor | np.ndarray):
                    vectors.setdefault(name, []).append((value, weight))
        if look:
            str(am)
    assert set(am) == set(last)
    for name, value in last.items():
        if name in seen:
            pairs, average = seen[name], am[name]
            assert average.count == len(pairs)
            assert average.sum == pytest.approx(sum(v * w for v, w in pairs), abs=1e-9)
            assert average.weight == pytest.approx(sum(w for _, w in pairs))
            assert (average.min, average.max) == (min(pairs)[0], max(pairs)[0])
            assert average.last == pairs[-1][0]
        elif isinstance(value, torch.Tensor | np.ndarray):
            values_, weights = zip(*vectors[name], strict=True)
            if len({(type(one), one.shape) for one in values_}) > 1:
                assert np.array_equal(am[name], value)
                continue
            average = am[name]
            assert type(average.mean) is type(value) and (average.count, average.weight) == (
                len(values_),
                sum(weights),
            )
            rows = np.stack(values_).astype(float)
            assert np.asarray(average.mean) == pytest.approx(np.average(rows, 0, weights), rel=1e-5, abs=1e-5)
            assert np.asarray(average.min).tolist() == rows.min(0).tolist()
            assert np.asarray(average.max).tolist() == rows.max(0).tolist()
        else:
            assert am[name] == value


@pytest.mark.parametrize("make", [torch.tensor, lambda rows: np.array(rows, np.float32)])
def test_vectors_are_averaged_element_by_element(make: Any) -> None:
    am = AvgMeter(window=2, decay=0.5)
    rows, weights = [[[1.0, 8.0]], [[math.nan, 2.0]], [[3.0, 5.0]]], [1, 2, 1]
    buffer = make(rows[0])
    for row, weight in zip(rows, weights, strict=True):
        buffer[:] = make(row)  # the program's own buffer, filled anew each time
        am.update(
            {"v": buffer.clone() if isinstance(buffer, torch.Tensor) else buffer.copy(), "x": 1.0}, weight
        )
    v = am.v
    assert type(v.mean) is type(buffer) and v.mean.dtype == buffer.dtype and v.mean.shape == (1, 2)
    assert (v.count, v.weight) == (3, 4.0)
    assert math.isnan(v.mean[0, 0]) and v.mean[0, 1] == (8 + 2 * 2 + 5) / 4 == v.avg[0, 1]
    assert v.windowed[0, 1] == 3.0
    assert v.ema[0, 1] == pytest.approx((0.125 * 8 + 0.25 * 2 * 2 + 0.5 * 5) / (0.125 + 0.5 + 0.5))
    assert (v.min.tolist(), v.max.tolist(), v.last.tolist()) == ([[1.0, 2.0]], [[3.0, 8.0]], [[3.0, 5.0]])
    assert am.to_dict()["v"].tolist()[0][1] == 4.25 and am.scalars() == {"x": 1.0}
    assert str(am).startswith("@v=" + str(v.last)) and am.last().v.tolist() == [[3.0, 5.0]]
    before = v.mean.tolist()[0][1]
    am.update({"v": make([[0.0, 0.0]])})
    assert v.mean.tolist()[0][1] == before and am.v.count == 4, "what was read once changes no more"


def test_a_buffer_may_be_filled_anew() -> None:
    am, tensor, array = AvgMeter(), torch.zeros(2), np.zeros(2)
    for i in range(3):
        tensor.fill_(i)
        array.fill(i)
        am.update({"t": tensor, "a": array})
    assert (am.t.mean.tolist(), am.a.mean.tolist()) == ([1.0, 1.0], [1.0, 1.0])


def test_which_vectors_keep_their_last() -> None:
    am = AvgMeter()
    am.average("wanted")
    large = torch.zeros(65_537)
    for i in range(1, 4):
        am.update({
            "ints": torch.tensor([i, i]), "wanted": torch.tensor([i, i]), "large": large, "bools": np.array([True, False]),
            "shape": torch.full((i + 1,), 1.0), "kind": np.ones(2) if i == 3 else torch.ones(2),
            "sparse": torch.eye(2).to_sparse(), "complex": torch.ones(2, dtype=torch.complex64),
        })  # fmt: skip
    assert am.ints.tolist() == [3, 3] and am.wanted.mean.tolist() == [2.0, 2.0]
    assert am.large.shape == large.shape and am.bools.tolist() == [True, False]
    assert (
        am.shape.shape == (4,)
        and am.kind.tolist() == [1.0, 1.0]
        and am.sparse.is_sparse
        and am.complex.is_complex()
    )
    am.shape = torch.ones(4)
    assert isinstance(am.shape, torch.Tensor), "once unfit, it stays so until reset()"
    am.reset()
    am.shape = torch.ones(3)
    assert am.shape.count == 1
    am.shape = "a word"
    assert am.shape == "a word"


def test_vectors_in_and_out_of_inference_mode_and_vmap() -> None:
    am = AvgMeter()
    for mode in (torch.inference_mode, torch.enable_grad, torch.no_grad, torch.inference_mode):
        with mode():
            am.update({"v": torch.ones(2) * 2})
    assert am.v.mean.tolist() == [2.0, 2.0] and not am.v.mean.requires_grad
    inside = AvgMeter()
    torch.vmap(lambda row: inside.update({"v": row}) or row)(torch.ones(3, 2))
    assert str(AvgMeter()) == ""


def test_vectors_are_kept_and_merged() -> None:
    am, other = AvgMeter(window=3), AvgMeter(window=3)
    for i in range(4):
        am.update({"t": torch.tensor([i, 1.0]), "a": np.array([i, 2.0]), "odd": torch.ones(i + 2)})
        other.update({"t": torch.tensor([10.0, i]), "a": np.array([1.0, i]), "odd": torch.ones(2)}, 3)
    fresh = AvgMeter()
    fresh.load_state_dict(am.state_dict())
    for meter in (am, fresh):
        meter.update({"t": torch.tensor([5.0, 5.0]), "a": np.array([5.0, 5.0]), "odd": torch.ones(2)})
    for twin in (fresh, copy.deepcopy(am), pickle.loads(pickle.dumps(am)), am.merge(), am.merge_ranks()):
        assert twin.t.mean.tolist() == am.t.mean.tolist() == [2.2000000476837158, 1.7999999523162842]
        assert twin.a.windowed.tolist() == am.a.windowed.tolist() == pytest.approx([10 / 3, 3.0])
        assert (twin.a.ema.tolist(), twin.t.count, twin.odd.tolist()) == (am.a.ema.tolist(), 5, [1.0, 1.0])
    both = am.merge(other)
    assert both.t.weight == 17 and both.t.mean.tolist() == pytest.approx([(11 + 120) / 17, (9 + 18) / 17])
    assert both.a.min.tolist() == [0.0, 0.0] and both.a.last.tolist() == [1.0, 3.0]
    assert am.t.count == 5 and other.t.count == 4 and isinstance(both.odd, torch.Tensor)


def test_saved_and_gone_on_from() -> None:
    am = AvgMeter(window=5)
    for i in range(3):
        am.update({"x": float(i), "n": i, "v": torch.ones(2), "odd": object()})
    am.percent("x")
    fresh = AvgMeter()
    fresh.load_state_dict(am.state_dict())
    fresh.percent("x")
    for meter in (am, fresh):
        meter.update({"x": 8.0})
    assert fresh.x == am.x
    assert list(fresh) == ["x", "n", "v"]
    for twin in (copy.deepcopy(am), pickle.loads(pickle.dumps(am))):
        assert twin.x == am.x
        assert str(twin).startswith("@x=800.00%")
    am.reset()
    assert len(am) == 0
    am.update({"x": 0.5})
    assert str(am) == "@x=50.00%(50.00%)"
