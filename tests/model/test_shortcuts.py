"""Shapes found without torch must be the ones torch finds: same shape, stride and type."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from luxmeter.model.counter import _made, form_of
from luxmeter.model.shortcuts import SHORTCUTS


def meaning(form):
    """The form without the strides of dimensions of length one, which mean nothing."""
    if form is None or form[0] == "several":
        return form and tuple(meaning(f) for f in form[1])
    return (*form[1], *(s for s, n in zip(form[2], form[1], strict=True) if n > 1), form[3])


class Both(TorchDispatchMode):
    """Runs every operator both ways and keeps what differs."""

    def __init__(self):
        super().__init__()
        self.asked, self.answered, self.wrong = set(), set(), []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        name = func.name().partition(".")[0]
        fresh = all(r.alias_info is None for r in func._schema.returns)
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        if name in SHORTCUTS and fresh and tensors and all(t.is_meta for t in tensors):
            self.asked.add(name)
            form = SHORTCUTS[name](*args, **kwargs)
            if form is not None:
                self.answered.add(name)
                if meaning(form_of(_made(form))) != meaning(form_of(out)):
                    self.wrong.append(
                        (name, form_of(_made(form)), form_of(out), [tuple(t.shape) for t in tensors])
                    )
        return out


def meta(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta", requires_grad=dtype.is_floating_point)


def networks():
    nn = torch.nn
    with torch.device("meta"):
        yield (
            nn.Sequential(
                nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.Hardswish(), nn.AdaptiveAvgPool2d(1)
            ),
            meta(2, 3, 9, 9),
        )
        yield (
            nn.Sequential(nn.Conv1d(4, 8, 3, groups=2, dilation=2), nn.GELU(), nn.LayerNorm(11)),
            meta(2, 4, 15),
        )
        yield (
            nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu", dropout=0.0),
            meta(2, 5, 16),
        )
        yield nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 4), nn.Softmax(-1)), meta(3, 4)
        yield (
            nn.Sequential(nn.Conv2d(3, 4, 1), nn.ELU(), nn.Mish(), nn.LeakyReLU(), nn.LogSoftmax(1)),
            meta(1, 3, 5, 1),
        )
        yield nn.LSTM(8, 4), meta(3, 2, 8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_whole_networks(dtype):
    mode = Both()
    for net, x in networks():
        net, x = net.to(dtype), x.detach().to(dtype).requires_grad_()
        with mode:
            out = net(x)
            (out[0] if isinstance(out, tuple) else out).sum().backward()
    assert not mode.wrong, mode.wrong
    assert len(mode.answered) >= 18, mode.asked - mode.answered


SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)
POINTWISE = sorted(n for n, rule in SHORTCUTS.items() if rule.__name__ == "_same" and "backward" not in n)


@settings(max_examples=150, deadline=None)
@given(shape=SHAPES, name=st.sampled_from(POINTWISE), data=st.data())
def test_pointwise_of_any_layout(shape, name, data):
    def one():
        layout = data.draw(st.permutations(range(len(shape))))
        t = torch.empty([shape[i] for i in layout], device="meta").permute(
            [layout.index(i) for i in range(len(shape))]
        )
        narrow = data.draw(st.booleans())
        return t[tuple(slice(0, 1) for _ in shape)] if narrow and data.draw(st.booleans()) else t

    operator = getattr(torch.ops.aten, name.removeprefix("aten::"))
    for args in ((one(),), (one(), one()), (one(), 2.0)):
        mode = Both()
        try:
            with mode:
                operator(*args)
        except (RuntimeError, TypeError, ValueError):  # not a signature of this operator
            continue
        assert not mode.wrong, mode.wrong


@pytest.mark.parametrize("shared", [1, 4], ids=["a key for each query", "four queries share a key"])
def test_attention_backward(shared):
    """Against a real pass, since not every torch knows these shapes on meta."""
    query, key, value = (
        torch.randn(2, heads, 5, 16, requires_grad=True) for heads in (4, 4 // shared, 4 // shared)
    )
    seen = {}

    class Looks(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if (name := func.name().partition(".")[0]).endswith("flash_attention_for_cpu_backward"):
                seen[name] = (SHORTCUTS[name](*args, **(kwargs or {}))[1], out)
            return out

    with Looks():
        torch.nn.functional.scaled_dot_product_attention(query, key, value, enable_gqa=True).sum().backward()
    if not seen:
        pytest.skip("this torch takes such attention apart where there is data")
    [(forms, out)] = seen.values()
    assert [form[1:] for form in forms] == [(t.shape, t.stride(), t.dtype) for t in out]
