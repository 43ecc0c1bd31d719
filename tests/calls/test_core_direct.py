"""Tensors read where they keep their sizes, through the exchange table, and by their attributes: the same signatures."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from seen import CORES

from luxmeter.calls.arguments import Arguments
from luxmeter.calls.records import EVENT_DTYPE
from luxmeter.supported import has

ONE_CORE = "each test names the ways it compares, those of both cores among them"

DTYPES = [torch.float32, torch.float64, torch.int64, torch.int8, torch.bool, torch.bfloat16, torch.complex64]


class Sub(torch.Tensor):
    """A plain subclass."""


def recorder(way: str, **options: Any) -> Any:
    pytest.importorskip("luxmeter.calls.core._core")
    core = importlib.import_module(CORES["python" if way == "python" else "c"])
    arguments = Arguments(exchange=way != "attributes", strides=options.get("strides", False))
    hooks = arguments.hooks()
    if way != "direct":
        hooks["samples"] = None
    made = core.Recorder(**hooks, **options)
    made.start()
    return made


def groups(way: str, tensors: list[Any], **options: Any) -> list[int]:
    """For each tensor the number of the first one with the same signature."""
    made = recorder(way, **options)
    ids: list[int] = []
    made_ids: dict[int, int] = {}
    call = made.wrap(lambda *_: None, made.add_callable("f"))
    for tensor in tensors:
        call(tensor, 1)
    events = np.frombuffer(b"".join(made.drain()), dtype=EVENT_DTYPE)
    for number, signature in enumerate(events["signature"][events["callable"] == 1].tolist()):
        ids.append(made_ids.setdefault(signature, number))
    assert len(ids) == len(tensors) and 0 not in made_ids
    return ids


WAYS = ["table", "attributes", "python"]


needs_exchange = pytest.mark.skipif(
    not has("torch.Tensor.__dlpack_c_exchange_api__"), reason="this torch has no exchange table"
)


@needs_exchange
def test_this_torch_can_be_read_directly() -> None:
    assert recorder("direct").direct
    assert not recorder("table").direct and not recorder("attributes").direct


def odd_tensors() -> list[Any]:
    with torch.inference_mode():
        inference = torch.ones(2, 3)
    moved, swapped, other = torch.ones(7), torch.ones(2, 3), torch.ones(2, 3)
    moved.resize_(2, 3)
    swapped.data = torch.ones(4, 5)
    other.set_(torch.ones(6).untyped_storage(), 1, (5,), (1,))
    return [
        torch.ones(2, 3), torch.ones(3, 2), torch.ones(6), torch.ones(()), torch.ones(1), torch.ones(0), torch.ones(2, 0, 3),
        torch.ones(2, 3, requires_grad=True), torch.nn.Parameter(torch.ones(2, 3)), torch.nn.Parameter(torch.ones(3, 2)),
        inference, moved, swapped, other, torch.ones(5), torch.ones(4, 5), torch.ones(6, 4)[::3, 1:], torch.ones(3, 2).t(),
        torch.ones(1, 1, 1, 1, 2), torch.ones(1, 1, 1, 1, 1, 2), torch.ones(1, 1, 1, 1, 1, 1, 2), torch.ones(1, 1, 1, 1, 1, 3),
        torch.ones(2, 3).to_sparse(), torch.ones(3, 2).to_sparse(), torch.ones(2, 3).to_sparse_csr(),
        torch.ones(2, 3, device="meta"), torch.ones(3, 2, device="meta"), torch.ones(2, 3, device="meta", dtype=torch.int8),
        torch.ones(2, 3).as_subclass(Sub), torch.ones(3, 2).as_subclass(Sub), torch.ones(2, 3).expand(4, 2, 3),
        torch.ones(4, 2, 3), torch.ones(2, 3, dtype=torch.complex64).conj(), torch.ones(2, 3, dtype=torch.complex64),
        torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 0, torch.quint8), torch.ones(2, 3)._neg_view(),
        *(torch.ones(2, 3).to(dtype) for dtype in (*DTYPES, torch.float8_e4m3fn, torch.uint16)),
    ]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_odd_tensors_get_the_same_signatures(way: str) -> None:
    tensors = odd_tensors()
    assert groups("direct", tensors) == groups(way, tensors)


@pytest.mark.parametrize("way", WAYS)
def test_strides_on_request(way: str) -> None:
    tensors = [torch.ones(2, 3), torch.ones(3, 2).t(), torch.ones(4, 6)[:2, :3], torch.ones(2, 3), torch.ones(1, 2, 3).expand(5, 2, 3)]  # fmt: skip
    assert groups("direct", tensors, strides=True) == groups(way, tensors, strides=True) == [0, 1, 2, 0, 4]
    assert groups("direct", tensors) == [0, 0, 0, 0, 4]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 4), max_size=7), st.sampled_from(DTYPES)), min_size=1, max_size=12
    )
)
def test_any_shapes(made: list[tuple[list[int], torch.dtype]]) -> None:
    tensors = [torch.empty(shape, dtype=dtype) for shape, dtype in made]
    expected = [made.index(each) for each in made]
    assert groups("direct", tensors) == expected == groups("table", tensors)


def test_a_transform_s_tensors_are_not_read_directly() -> None:
    made = recorder("direct")
    call = made.wrap(torch.sin, made.add_callable("f"))
    x = torch.ones(4, 3)
    assert torch.equal(torch.func.vmap(call)(x), torch.sin(x))
    assert torch.equal(torch.func.grad(lambda v: call(v).sum())(x), torch.cos(x))
    assert made.stats()["hook_errors"] == 0 and made.stats()["events"] == 2


WRONG = {
    "good": "True 1",
    "good[:5]": "False 1",  # too few
    "good[:-1]": "False 1",  # none that the table refuses
    "[(t, 0) for t, _ in good[:-1]] + good[-1:]": "False 1",  # data types that cannot be told apart
    "[(t, n) for n, (t, _) in enumerate(good[:-1])] + good[-1:]": "False 1",  # equal ones that should differ
    "good[:-1] + [(torch.ones(1, 1, 1, 1, 1, 1), 0)] + good[-1:]": "False 1",  # sizes elsewhere
    "[*good, (5, None)]": "False 1",  # no tensor
    "[good[0][0]] * 20": "False 1",  # no pairs
}
PROGRAM = """
import os, sys, torch
from luxmeter.calls.arguments import Arguments
from luxmeter.calls.core import _core
torch.set_num_threads(1)
hooks = Arguments().hooks()
good = hooks["samples"]
for wrong in sys.argv[1:]:
    if os.fork() == 0:
        made = _core.Recorder(**{**hooks, "samples": eval(wrong)})
        made.start()
        made.wrap(abs, made.add_callable("f"))(torch.ones(3))
        print(made.direct, made.stats()["signatures"], flush=True)
        os._exit(0)
    os.wait()
"""


@needs_exchange
def test_samples_that_do_not_fit_are_not_trusted() -> None:
    """A layout is learnt once a process: each wrong list switches the short way off in a process of its own."""
    pytest.importorskip("luxmeter.calls.core._core")
    done = subprocess.run([sys.executable, "-c", PROGRAM, *WRONG], capture_output=True, text=True, check=True)
    assert dict(zip(WRONG, done.stdout.splitlines(), strict=True)) == WRONG
