"""Small networks that the tests of this room share."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Called(nn.Module):
    """A function over some modules, as a model."""

    def __init__(self, function, *parts):
        super().__init__()
        self.function = function
        self.parts = nn.ModuleList(parts)

    def forward(self, *args, **kwargs):
        return self.function(*self.parts, *args, **kwargs)


class Attention(nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.head = heads, kv_heads, width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, kv_heads * self.head, bias=False)
        self.v = nn.Linear(width, kv_heads * self.head, bias=False)
        self.o = nn.Linear(width, width, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q = self.q(x).view(b, t, self.heads, self.head).transpose(1, 2)
        k = self.k(x).view(b, t, self.kv_heads, self.head).transpose(1, 2)
        v = self.v(x).view(b, t, self.kv_heads, self.head).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, width, heads, kv_heads, inner):
        super().__init__()
        self.norm1, self.attention = nn.RMSNorm(width), Attention(width, heads, kv_heads)
        self.norm2 = nn.RMSNorm(width)
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """The shape of a Llama: grouped-query attention, gated feed-forward, no biases."""

    def __init__(self, *, width=8192, heads=64, kv_heads=8, inner=28672, layers=80, vocabulary=128256):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, kv_heads, inner) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def mlp():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


def cnn():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 10),
    )


def counting_backend(compiled):
    """A torch.compile backend that notes every compilation in `compiled`."""

    def backend(graph, examples):
        compiled.append(graph)
        return graph.forward

    return backend


__all__ = ["Called", "Llama", "cnn", "counting_backend", "mlp", "torch"]
