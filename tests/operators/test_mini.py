"""Mini-models over scales, from Python, from a file, and from a script without a main guard."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import luxmeter as lux
from luxmeter.errors import UsageError
from luxmeter.operators.mini import bench_model_file

SPEC = """
model: torch.nn:Linear
model_init_params: [d_in, d_out]
input_params: [[batch, d_in]]
input_scales: {batch: [1, 4], d_in: 16, d_out: 8}
job_configs: [[fp32, pt], [bf16, pt]]
"""


def test_names_take_their_values_from_the_scales(tmp_path: Path) -> None:
    path = tmp_path / "linear.yaml"
    path.write_text(SPEC)
    result = bench_model_file(path, csv=tmp_path / "out.csv", budget_s=1, quiet=True)
    assert [(r.scale, r.dtype, r.backend) for r in result] == [
        (f"batch={b},d_in=16,d_out=8", dtype, "pt") for b in (1, 4) for dtype in ("fp32", "bf16")
    ]
    assert all(r.status in ("ok", "doubtful") and r.op == "Linear" for r in result)
    assert result.rows[2].flops == 4 * result.rows[0].flops and result.rows[0].flops >= 2 * 16 * 8
    assert (tmp_path / "out.csv").read_text().count("\n") == 5


def test_a_scripts_own_class_with_integer_inputs(tmp_path: Path) -> None:
    """Its top level runs once: the worker takes only the imports, classes and functions."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import torch
        import luxmeter as lux

        class Tiny(torch.nn.Module):
            def __init__(self, words, dim):
                super().__init__()
                self.table = torch.nn.Embedding(words, dim)

            def forward(self, ids, x):
                return torch.relu(self.table(ids) + x)

        print("top level")
        result = lux.bench_model(
            Tiny, ["words", "dim"], [["batch", 3], ["batch", 3, "dim"]], {"words": 50, "dim": 4, "batch": [2]},
            [["fp32", "pt"]], integer_inputs={0: "words"}, budget_s=1, quiet=True,
        )
        print([(r.op, r.signature, r.status in ("ok", "doubtful")) for r in result])
        """)
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.splitlines() == ["top level", "[('Tiny', '[2,3], [2,3,4]', True)]"], done.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("input_params: [[batch, d_in]]", ""), "no 'input_params'"),
        (("input_params: [[batch, d_in]]", "input_params: [[bacth, d_in]]"), "Did you mean 'batch'"),
        (("torch.nn:Linear", "torch.nn:Liner"), "cannot be found"),
        (("[fp32, pt]", "[fp32, tensorflow]"), "no job configuration"),
        (("[fp32, pt]", "[fp23, pt]"), "fp23"),
        (("job_configs", "job_config"), "Did you mean 'job_configs'"),
        (("{batch", "{{batch"), "damaged"),
    ],
)
def test_bad_specs_name_the_place(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(SPEC.replace(*change))
    with pytest.raises(UsageError) as caught:
        bench_model_file(path)
    assert said in str(caught.value)


def test_toml_and_absent_files(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text('model = "torch.nn:Linear"\nmodel_init_params = ["a"]\n')
    with pytest.raises(UsageError, match="no 'input_params'"):
        bench_model_file(path)
    with pytest.raises(UsageError, match="cannot be read"):
        bench_model_file(tmp_path / "none.yaml")
    with pytest.raises(UsageError, match="no input 3"):
        lux.bench_model(torch.nn.ReLU, [], [["n"]], {"n": 1}, integer_inputs={3: 5})
