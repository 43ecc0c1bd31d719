"""Pictures of benchmarks: the exponent is that of the times, lines and bars are where they belong."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from luxmeter.errors import UsageError
from luxmeter.operators.results import BenchResult, Row, with_speedup
from luxmeter.operators.series import series_of


def row(op: str, scale: str, us: float, *, backend: str = "eager", dtype: str = "fp32", **more: Any) -> Row:
    return Row(op, f"f32[{scale}]", scale, dtype, backend, n=5, median_us=us, ci_low_us=us * 0.98, ci_high_us=us * 1.02,
               case=op, **more)  # fmt: skip


SIZES = (1, 4, 16, 64)
SQUARE = BenchResult(
    tuple(row("torch.mm", f"batch={n}", 2.0 * n**2) for n in SIZES)
    + tuple(row("torch.add", f"batch={n}", 3.0 * math.sqrt(n)) for n in SIZES)
)
BACKENDS = BenchResult(
    tuple(
        with_speedup(
            [
                row("torch.mm", "", 10.0),
                row("torch.mm", "", 5.0, backend="compile"),
                row("torch.mm", "", 40.0, backend="onnxruntime"),
                row("torch.add", "", 4.0),
                row("torch.add", "", 1.0, backend="compile"),
            ]
        )
    )
)


def test_exponents() -> None:
    assert SQUARE.exponents() == {"mm": pytest.approx(2.0), "add": pytest.approx(0.5)}
    [mm, add] = series_of(SQUARE)
    assert mm.sizes == SIZES and add.median_us[1] == 6.0


def test_two_scales_are_two_pictures_with_the_other_one_held() -> None:
    result = BenchResult(
        tuple(row("torch.mm", f"batch={b},width={w}", float(b * w**2)) for b in (1, 2, 4) for w in (8, 16))
    )
    assert result.exponents() == {
        **{f"mm width={w}": pytest.approx(1.0) for w in (8, 16)},
        **{f"mm batch={b}": pytest.approx(2.0) for b in (1, 2, 4)},
    }


def texts(path: Path) -> str:
    """What a reader of the SVG finds: matplotlib writes each text as a comment beside its outlines."""
    return " | ".join(re.findall(r"<!-- (.*?) -->", path.read_text()))


def test_time_against_scale(tmp_path: Path) -> None:
    said = texts(SQUARE.plot(tmp_path / "s.svg"))
    for part in ("mm: size^2.00", "add: size^0.50", "batch", "time against scale", "64"):
        assert part in said
    png = SQUARE.plot(tmp_path / "s.png").read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n" and len(png) > 10_000


def test_speedup_bars(tmp_path: Path) -> None:
    said = texts(BACKENDS.plot(tmp_path / "b.svg"))
    for part in ("2.00", "0.25", "4.00", "compile", "onnxruntime", "speed-up against eager"):
        assert part in said
    dtypes = BenchResult((row("torch.mm", "", 10.0), row("torch.mm", "", 4.0, dtype="bf16")))
    said = texts(dtypes.to_file(tmp_path / "d.svg"))
    assert "2.50" in said and "bf16" in said and "first dtype" in said


def test_the_same_benchmark_gives_the_same_file(tmp_path: Path) -> None:
    one, two = (SQUARE.plot(tmp_path / f"{i}.png").read_bytes() for i in range(2))
    assert one == two


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    lone = BenchResult((row("torch.mm", "", 10.0),))
    for call, slug in (
        (lambda: lone.plot(tmp_path / "x.svg"), "nothing-to-draw"),
        (lambda: lone.plot(tmp_path / "x.svg", kind="scaling"), "nothing-to-draw"),
        (lambda: SQUARE.plot(tmp_path / "x.pdf"), "unknown-picture"),
        (lambda: SQUARE.plot(tmp_path / "x.svg", kind="pie"), "unknown-picture"),
        (lambda: SQUARE.to_file(tmp_path / "x.xls"), "unknown-benchmark-format"),
    ):
        with pytest.raises(UsageError, match=slug):
            call()
    assert not list(tmp_path.glob("x.*"))
