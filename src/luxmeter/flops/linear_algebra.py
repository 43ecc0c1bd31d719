"""Factorisations and solvers with a fixed cost (textbook leading terms). Iterative ones have no formula on purpose."""

from __future__ import annotations

from math import prod
from typing import Any

from luxmeter.flops.formulas import Cost, formula


def _batch(x: Any) -> int:
    return int(prod(x.shape[:-2]))


@formula("cholesky", "linalg_cholesky_ex", "linalg_cholesky")
def cholesky(x: Any, *_: Any, **__: Any) -> Cost:
    return Cost(0, _batch(x) * int(x.shape[-1] ** 3 / 3))


@formula(
    "linalg_lu_factor_ex",
    "linalg_lu",
    "_lu_with_info",
    "_linalg_det",
    "_linalg_slogdet",
    "linalg_ldl_factor_ex",
)
def lu(x: Any, *_: Any, **__: Any) -> Cost:
    rows, columns = x.shape[-2:]
    small = min(rows, columns)
    return Cost(
        0, _batch(x) * int(rows * columns * small - (rows + columns) * small**2 / 2 + small**3 / 3) * 2
    )


@formula("linalg_inv_ex", "inverse", "cholesky_inverse")
def inverse(x: Any, *_: Any, **__: Any) -> Cost:
    return Cost(0, _batch(x) * 2 * int(x.shape[-1] ** 3))


@formula("_linalg_solve_ex", "linalg_solve")
def solve(a: Any, b: Any, *_: Any, **__: Any) -> Cost:
    columns = b.shape[-1] if len(b.shape) >= len(a.shape) else 1
    return Cost(0, _batch(a) * int(2 * a.shape[-1] ** 3 / 3 + 2 * a.shape[-1] ** 2 * columns))


@formula("linalg_solve_triangular", "triangular_solve", "linalg_lu_solve", "cholesky_solve")
def triangular(a: Any, b: Any, *_: Any, out: Any = None, **__: Any) -> Cost:
    result = out[0] if isinstance(out, list | tuple) and not hasattr(out, "shape") else out
    return Cost(0, int(prod(result.shape) * min(a.shape[-1], a.shape[-2])))


@formula("linalg_qr", "geqrf")
def qr(x: Any, *_: Any, **__: Any) -> Cost:
    rows, columns = max(x.shape[-2:]), min(x.shape[-2:])
    return Cost(0, _batch(x) * int(2 * rows * columns**2 - 2 * columns**3 / 3))


@formula("linalg_cross")
def cross(x: Any, *_: Any, out: Any = None, **__: Any) -> Cost:
    return Cost(0, 3 * int(prod(out.shape)))
