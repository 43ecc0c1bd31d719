"""The mapping: what it claims is run again here, on inputs of its own."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

import luxmeter.operators.backends.mindspore as backend
import mindspore
from luxmeter.operators.counterparts import DATA, GOOD, Target, counterpart_of, counterparts, made_from
from luxmeter.operators.counterparts.agreement import agreement
from luxmeter.operators.counterparts.calling import call_on, named
from luxmeter.operators.counterparts.cells import cell_call
from luxmeter.operators.counterparts.composed_cells import BODIES
from luxmeter.operators.counterparts.values import NotConvertible, settle, to_mindspore, to_torch
from luxmeter.operators.inputs import Call
from luxmeter.operators.resolve import callable_of

LEAST = 280


def x(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape) + len(shape)))


def ids(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(1))


def test_enough_operators_give_the_same_numbers() -> None:
    functions = [
        op for op in counterparts() if op.startswith("torch.") and not op.rpartition(".")[2][0].isupper()
    ]
    equal = [op for op in functions if counterparts()[op].status == "equal"]
    assert len(equal) >= LEAST
    assert len({op.rpartition(".")[2] for op in equal}) >= LEAST  # aliases in other spaces not counted twice


def test_every_entry_says_how_it_was_found_out() -> None:
    assert made_from() == {"torch": "2.13.0", "mindspore": "2.10.0"}
    for op, entry in counterparts().items():
        if entry.status == "equal":
            best = entry.targets[0]
            assert best.agree > 0 and (best.agree == best.samples or "empty inputs" in best.why), op
        elif entry.status != "random":
            assert entry.why, op
        if entry.status == "absent":
            assert not entry.targets, op
        elif entry.status in GOOD:
            assert entry.targets, op


def test_every_target_is_there() -> None:
    if mindspore.__version__ != made_from()["mindspore"]:
        pytest.skip(
            f"the mapping is of MindSpore {made_from()['mindspore']}, this is {mindspore.__version__}"
        )
    for op, entry in counterparts().items():
        for target in entry.targets:
            if target.name.removeprefix("composed.") not in BODIES:
                assert callable(named(target.name)), op


def test_the_file_is_written_one_operator_a_line_and_sorted() -> None:
    lines = DATA.read_text().splitlines()
    names = [json.loads("{" + line.rstrip(",") + "}") for line in lines[1:-1]]
    assert [n for entry in names for n in entry] == sorted(counterparts())


@pytest.mark.parametrize(
    ("op", "args", "kwargs"),
    [
        ("torch.add", (x(3, 4), x(4)), {"alpha": 2}),
        ("Tensor.__add__", (x(3, 4), 1.5), {}),
        ("Tensor.__matmul__", (x(3, 4), x(4, 2)), {}),
        ("torch.matmul", (x(2, 3, 4), x(4, 2)), {}),
        ("torch.sum", (x(3, 4),), {"dim": 1, "keepdim": True}),
        ("Tensor.mean", (x(3, 4), -1), {}),
        ("torch.cat", ([x(2, 3), x(4, 3)],), {"dim": 0}),
        ("torch.stack", ([x(2, 3), x(2, 3)], 1), {}),
        ("Tensor.permute", (x(2, 3, 4), 2, 0, 1), {}),
        ("Tensor.view", (x(2, 6), 3, -1), {}),
        ("Tensor.__getitem__", (x(4, 5), (slice(1, 3), 2)), {}),
        ("torch.argmax", (x(3, 4),), {"dim": 1}),
        ("torch.topk", (x(3, 7), 2), {}),
        ("torch.where", (x(3, 4) > 0, x(3, 4), x(4)), {}),
        ("torch.gather", (x(3, 4), 1, ids(4, 3, 2)), {}),
        ("torch.roll", (x(3, 4), 1, 0), {}),
        ("torch.nn.functional.linear", (x(3, 4), x(5, 4), x(5)), {}),
        ("torch.nn.functional.conv2d", (x(1, 3, 8, 8), x(4, 3, 3, 3), x(4)), {"padding": 1, "stride": 2}),
        ("torch.nn.functional.layer_norm", (x(3, 8), (8,)), {}),
        ("torch.nn.functional.softmax", (x(3, 4),), {"dim": -1}),
        ("torch.nn.functional.cross_entropy", (x(5, 3), ids(3, 5)), {}),
        ("torch.nn.functional.gelu", (x(3, 4),), {}),
        ("torch.nn.functional.leaky_relu", (x(3, 4),), {}),
        ("torch.nn.functional.embedding", (ids(7, 2, 3), x(7, 4)), {}),
        (
            "torch.nn.functional.scaled_dot_product_attention",
            (x(1, 2, 3, 4), x(1, 2, 5, 4), x(1, 2, 5, 4)),
            {},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_common_operators_agree(op: str, args: tuple, kwargs: dict) -> None:
    entry = counterpart_of(op)
    assert entry is not None and entry.is_good, entry
    wanted = callable_of(op)(*args, **kwargs)
    found = agreement(wanted, to_torch(call_on(entry.targets[0], op, args, kwargs).run()))
    assert found.kind == "equal", found


@pytest.mark.parametrize(
    ("module", "args"),
    [
        (nn.Linear(4, 3), (x(2, 4),)),
        (nn.Conv1d(2, 3, 3, padding=1), (x(1, 2, 8),)),
        (nn.Conv2d(4, 6, 3, padding=1, stride=2, groups=2), (x(1, 4, 8, 8),)),
        (nn.BatchNorm2d(3).eval(), (x(2, 3, 4, 4),)),
        (nn.LayerNorm(6), (x(2, 6),)),
        (nn.GroupNorm(2, 4), (x(2, 4, 3),)),
        (nn.Embedding(9, 4), (ids(9, 2, 3),)),
        (nn.LSTM(3, 4, batch_first=True), (x(2, 5, 3),)),
        (nn.ReLU(), (x(2, 3),)),
        (nn.GELU(), (x(2, 3),)),
        (nn.SiLU(), (x(2, 3),)),
        (nn.MaxPool2d(2), (x(1, 2, 4, 4),)),
        (nn.AvgPool2d(2, padding=1), (x(1, 2, 4, 4),)),
        (nn.AdaptiveAvgPool2d(1), (x(1, 2, 4, 4),)),
        (nn.Dropout(0.5).eval(), (x(3, 4),)),
        (nn.CrossEntropyLoss(), (x(4, 3), ids(3, 4))),
        (nn.MSELoss(), (x(4, 3), x(4, 3))),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_modules_agree_with_their_weights_copied(module: nn.Module, args: tuple) -> None:
    for parameter in module.parameters():
        nn.init.normal_(parameter)  # not the ones and zeros that both would start from
    entry = counterpart_of(f"torch.nn.{type(module).__name__}")
    assert entry is not None and entry.is_good, entry
    with torch.no_grad():
        wanted = module(*args)
    errors = []
    for target in entry.targets:
        try:
            got = to_torch(cell_call(target, module, args, {}).run())
        except NotConvertible as error:
            errors.append(str(error))
            continue
        found = agreement(wanted, got)
        assert found.kind == "equal", (target.name, found)
        return
    pytest.fail(str(errors))


def test_what_disagrees_really_does() -> None:
    added = counterpart_of("Tensor.add_")
    assert added is not None and added.status == "value" and "not changed" in added.why
    tensor = mindspore.Tensor(np.ones(3, np.float32))
    assert tensor.add_(tensor).asnumpy().tolist() == [2, 2, 2] and tensor.asnumpy().tolist() == [1, 1, 1]
    assert counterpart_of("torch.cholesky").status == "crashes"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.bool, torch.complex64]
)
def test_values_come_back_as_they_went(dtype: torch.dtype) -> None:
    tensor = (x(3, 4) * 3).to(dtype)
    there = to_mindspore(tensor)
    assert there.shape == (3, 4)
    assert to_torch(there).dtype is dtype and torch.equal(to_torch(there), tensor)
    turned = tensor.t()
    assert torch.equal(to_torch(to_mindspore(turned)), turned)
    nested = to_torch(to_mindspore([tensor, (tensor, 2)]))
    assert torch.equal(nested[1][0], tensor) and nested[1][1] == 2


def test_what_mindspore_has_not_is_said() -> None:
    with pytest.raises(NotConvertible, match="float8_e5m2"):
        to_mindspore(torch.zeros(2).to(torch.float8_e5m2))
    with pytest.raises(NotConvertible, match="sparse"):
        to_mindspore(torch.eye(2).to_sparse())
    with pytest.raises(NotConvertible, match="out="):
        call_on(Target("mindspore.mint.add"), "torch.add", (x(2), x(2)), {"out": x(2)})


def test_agreement_names_what_is_wrong() -> None:
    a = x(3, 4)
    assert agreement(a, a.clone()).kind == "equal"
    assert agreement(a, a + 1e-7).kind == "equal"
    assert agreement(a, a + 0.1).kind == "value"
    assert agreement(a, a.double()).kind == "dtype"
    assert agreement(a, a[:2]).kind == "shape"
    assert agreement((a, a), [a]).kind == "shape"
    assert agreement(ids(5, 4), ids(5, 4) + 1).kind == "value"
    assert agreement(torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("nan")])).kind == "equal"
    assert agreement(torch.tensor([1.0]), torch.tensor([float("nan")])).kind == "value"
    assert agreement(a, a + 5, values=False).kind == "equal"


def test_a_late_failure_is_not_blamed_on_the_next_operator() -> None:
    """mint.bincount has no kernel on a CPU: that is told at a later call, whichever it is, at times at two of them."""
    counts, ones = to_mindspore(torch.tensor([1, 2, 3])), to_mindspore(torch.ones(3))
    mindspore.mint.bincount(counts)
    with pytest.raises(RuntimeError, match="BincountExt"):
        (ones + 1).asnumpy()
    for _ in range(20):
        settle()
        assert to_torch(ones + 1).tolist() == [2.0, 2.0, 2.0]
        mindspore.mint.bincount(counts)
    settle()


def test_the_backend_tries_the_next_target(monkeypatch: pytest.MonkeyPatch) -> None:
    targets = (Target("mindspore.mint.bincount"), Target("mindspore.ops.bincount"))
    monkeypatch.setattr(backend, "_targets", lambda call: iter(targets))
    call = Call(torch.bincount, (torch.tensor([1, 2, 2]),), {}, "torch.bincount")
    prepared = backend.MindSpore().prepare(call, backward=False, threads=1)
    assert prepared.outputs().tolist() == [0.0, 1.0, 2.0]
