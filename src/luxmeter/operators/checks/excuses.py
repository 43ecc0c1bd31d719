"""What a check does not hold against an operator, and why: all of it stands here or in `comparing`.

Nothing is left out: an operator that is excused is still run, and must give the right number of values of the right
shapes. How often each reason was used is in every result.
"""

from __future__ import annotations

# Operators that give out memory as it was found (names without `torch.`).
UNFILLED = "memory as it was found: only shapes are compared"
UNFILLED_OPERATORS = frozenset(
    {"empty", "empty_like", "empty_strided", "empty_permuted", "Tensor.new_empty",
     "Tensor.new_empty_strided", "Tensor.resize_", "Tensor.resize_as_"}
)  # fmt: skip
# Found by running the reference twice from other random states, where a first comparison fails.
DRAWS = "draws random numbers: only shapes are compared"
# Operators that count into bins whose edges they make of the inputs: a number on an edge falls to either side.
ON_AN_EDGE = "an input lies on the edge of two bins: the counts are compared, not which is whose"
EDGE_OPERATORS = frozenset({"histogram", "histogramdd", "histc"})
# Operators whose values come in any order; they are brought into the reference's before they are compared.
ANY_ORDER = "eigenvalues come in any order: compared in the reference's, without gradients"
UNORDERED_OPERATORS = frozenset({"linalg.eig", "linalg.eigvals"})
# Losses computed inside of one kernel from numbers that are much larger: a difference of logits, a sum of logarithms.
CANCELS = "made of larger numbers inside of a kernel: compared relative to these"
CANCELLING_OPERATORS = frozenset({"nn.functional.linear_cross_entropy", "nn.functional.ctc_loss"})
# Decompositions whose vectors are unique up to their sign (a phase, of complex ones). torch's own samples take care of it.
SIGNS = "vectors have either sign: compared without, and without gradients"
SIGN_OPERATORS = frozenset(
    {"linalg.eigh", "linalg.svd", "linalg.qr", "svd", "qr", "linalg.eig", "lobpcg", "Tensor.svd", "Tensor.qr"}
)
# Eigenvalues and vectors that are made better step by step until what is left is a root of the dtype's rounding. That is how far values
# may be off; vectors by so many times more, because there it is divided by the distance of the eigenvalues.
ITERATED = "ends when it is near enough: compared to half of the digits, without signs and gradients"
ITERATED_OPERATORS = frozenset({"lobpcg"})
VECTORS_OFF = 32.0
# Plain numbers of a test of one's own, as the bytes of a tensor.
OF_THE_DTYPE = "a number that depends on the dtype: compared with the CPU in the same one"
# The reference itself raises, in the wider dtype and in the one that is checked.
REFUSED = "torch on the CPU refuses this input"
# The wider dtype is refused, or the operator is made of whole numbers: the CPU's own result is the reference.
SAME_PRECISION = "compared in the same precision: there is no higher one"
