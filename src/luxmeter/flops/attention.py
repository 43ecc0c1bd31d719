"""Attention in every fused form, forward and backward, and the transformer fast paths."""

from __future__ import annotations

from math import prod
from typing import Any

from luxmeter.flops.formulas import Cost, TensorLike, formula, products

SOFTMAX = 5  # a score: largest, difference, exponential, sum, quotient


def _scores(query: Any, key: Any) -> int:
    """How many scores: every query against every key, in each head (grouped heads share keys, not scores)."""
    return int(prod(query.shape[:-1]) * key.shape[-2])


def sdpa(query: Any, key: Any, value: Any) -> Cost:
    """Query x key and scores x value over (..., heads, length, width); a causal mask saves nothing here."""
    scores = _scores(query, key)
    return products(scores * (query.shape[-1] + value.shape[-1]), (SOFTMAX + 1) * scores)


@formula(
    "scaled_dot_product_attention", "_scaled_dot_product_attention_math", "_scaled_dot_product_attention_math_for_mps",
    "_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable", "higher_order::flex_attention",
)  # fmt: skip
def attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> Cost:
    return sdpa(query, key, value)


@formula(
    "_scaled_dot_product_flash_attention_backward", "_scaled_dot_product_flash_attention_for_cpu_backward",
    "_scaled_dot_product_efficient_attention_backward", "_scaled_dot_product_cudnn_attention_backward",
    "_scaled_dot_product_fused_attention_overrideable_backward",
)  # fmt: skip
def attention_backward(grad: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> Cost:
    """Five products: the scores again (they were not kept), and the gradients of value, scores, query, key."""
    scores = _scores(query, key)
    return products(scores * (3 * query.shape[-1] + 2 * value.shape[-1]), (SOFTMAX + 4) * scores)


@formula("higher_order::flex_attention_backward")
def flex_backward(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> Cost:
    return attention_backward(None, query, key, value)


def _packed_lengths(
    query: Any, key: Any, cumulative: Any, longest_q: Any, longest_k: Any
) -> tuple[int, int, int]:
    """Sequences, their length and their keys' length; packed ones by the longest (their real lengths are data)."""
    if cumulative is not None and hasattr(cumulative, "shape"):
        return cumulative.shape[0] - 1, int(longest_q), int(longest_k)
    return query.shape[0], query.shape[1], key.shape[1]


@formula("_flash_attention_forward")
def flash_forward(
    query: Any, key: Any, value: Any, cum_q: Any, cum_k: Any, max_q: Any, max_k: Any, *_: Any, **__: Any
) -> Cost:
    """Here the layout is (batch, length, heads, width), or packed (all lengths, heads, width)."""
    batch, length, keys = _packed_lengths(query, key, cum_q, max_q, max_k)
    scores = int(batch * length * keys * query.shape[-2])
    return products(scores * (query.shape[-1] + value.shape[-1]), (SOFTMAX + 1) * scores)


@formula("_efficient_attention_forward")
def efficient_forward(
    query: Any,
    key: Any,
    value: Any,
    bias: Any,
    cum_q: Any,
    cum_k: Any,
    max_q: Any,
    max_k: Any,
    *_: Any,
    **__: Any,
) -> Cost:
    return flash_forward(query, key, value, cum_q, cum_k, max_q, max_k)


@formula("_flash_attention_backward")
def flash_backward(
    grad: Any, query: Any, key: Any, value: Any, out_: Any, lse: Any, cum_q: Any, cum_k: Any, max_q: Any, max_k: Any,
    *_: Any, **__: Any,
) -> Cost:  # fmt: skip
    batch, length, keys = _packed_lengths(query, key, cum_q, max_q, max_k)
    scores = int(batch * length * keys * query.shape[-2])
    return products(scores * (3 * query.shape[-1] + 2 * value.shape[-1]), (SOFTMAX + 4) * scores)


@formula("_efficient_attention_backward")
def efficient_backward(
    grad: Any, query: Any, key: Any, value: Any, bias: Any, out_: Any, cum_q: Any, cum_k: Any, max_q: Any, max_k: Any,
    *_: Any, **__: Any,
) -> Cost:  # fmt: skip
    return flash_backward(grad, query, key, value, out_, None, cum_q, cum_k, max_q, max_k)


def _multi_head(query: Any, key: Any, value: Any, width: int) -> Cost:
    batch, length, keys = prod(query.shape[:-2]), query.shape[-2], key.shape[-2]
    projections = batch * width * width * (2 * length + 2 * keys)  # query and result; key and value
    scores_all_heads = batch * length * keys
    macs = projections + 2 * scores_all_heads * width
    return products(int(macs), int(batch * width * (3 * length + 2 * keys)))


@formula("_native_multi_head_attention", "_triton_multi_head_attention")
def multi_head(query: Any, key: Any, value: Any, embed_dim: int, num_head: int, *_: Any, **__: Any) -> Cost:
    """`nn.MultiheadAttention` in one operator: three projections in, attention, one projection out."""
    if getattr(query, "is_nested", False):
        parts = [TensorLike((1, *lengths)) for lengths in query._nested_tensor_size().tolist()]
        costs = [multi_head(part, part, part, embed_dim, num_head) for part in parts]
        return Cost(sum(c.macs for c in costs), sum(c.flops for c in costs))
    cost = _multi_head(query, key, value, embed_dim)
    softmax = (SOFTMAX + 1) * num_head * prod(query.shape[:-2]) * query.shape[-2] * key.shape[-2]
    return Cost(cost.macs, cost.flops + int(softmax))


@formula("_transformer_encoder_layer_fwd")
def encoder_layer(src: Any, embed_dim: int, num_heads: int, *rest: Any, **__: Any) -> Cost:
    """`nn.TransformerEncoderLayer` in one operator: attention, two norms, two residual sums, the feed-forward pair."""
    if getattr(src, "is_nested", False):  # padded sequences were packed: each has its own length
        parts = [TensorLike((1, *lengths)) for lengths in src._nested_tensor_size().tolist()]
        costs = [encoder_layer(part, embed_dim, num_heads, *rest) for part in parts]
        return Cost(sum(c.macs for c in costs), sum(c.flops for c in costs))
    weights = [t for t in rest if hasattr(t, "dtype")]
    hidden = weights[8].shape[0]  # qkv w b, proj w b, norm1 w b, norm2 w b, ffn1 w b, ffn2 w b
    attended = multi_head(src, src, src, embed_dim, num_heads)
    tokens = prod(src.shape[:-1])
    feed_forward = 2 * tokens * embed_dim * hidden
    elementwise = tokens * (2 * hidden + embed_dim) + (2 * 8 + 2) * tokens * embed_dim
    return Cost(attended.macs + int(feed_forward), attended.flops + int(2 * feed_forward + elementwise))
