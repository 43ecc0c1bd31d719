"""Operators whose values differ from run to run: of those no error can be told."""

from __future__ import annotations

from luxmeter.operators.resolve import plain_name

# Words of a name, between underscores: `normal` is one of log_normal and no part of normalize.
_WORDS = frozenset(
    {"rand", "randn", "randint", "randperm", "random", "bernoulli", "multinomial", "binomial", "normal", "uniform",
     "poisson", "exponential", "cauchy", "geometric", "gumbel", "rrelu", "empty"}
)  # fmt: skip
# Parts of a name, as in Dropout2d, alpha_dropout or FractionalMaxPool3d.
_PARTS = ("dropout", "fractionalmaxpool")
# A loss or a gradient computes from what it is given: poisson_nll_loss, native_dropout_backward.
_COMPUTED = ("loss", "backward")
_SHAPES = "torch.signal.windows."  # an exponential window is a shape, not a draw


def is_random(op: str) -> bool:
    """Whether an operator of this name draws numbers, or leaves memory as it found it (empty).

    >>> is_random("torch.normal"), is_random("torch.nn.functional.normalize"), is_random("torch.nn.Dropout2d")
    (True, False, True)
    """
    if op.endswith("__") or op.startswith(_SHAPES):  # Tensor.__rand__ is `and`, reflected
        return False
    name = plain_name(op).lower()
    if name.endswith(_COMPUTED):
        return False
    return not _WORDS.isdisjoint(name.split("_")) or any(part in name.replace("_", "") for part in _PARTS)
