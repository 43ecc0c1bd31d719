"""Mini-models over scales, from Python, from a file, and from a script without a main guard."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import luxmeter as lux
from luxmeter.errors import UsageError
from luxmeter.operators.case import Case
from luxmeter.operators.mini import bench_model_file, read_model_file
from luxmeter.operators.mini_work import kernels_of_mini
from luxmeter.signature import describe, module_of

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
    result = bench_model_file(path, budget_s=1, quiet=True)
    assert [(r.scale, r.dtype, r.backend) for r in result] == [
        (f"batch={b},d_in=16,d_out=8", dtype, "pt") for b in (1, 4) for dtype in ("fp32", "bf16")
    ]
    assert all(r.status in ("ok", "doubtful") and r.op == "Linear" for r in result)
    assert result.rows[2].flops == 4 * result.rows[0].flops and result.rows[0].flops >= 2 * 16 * 8
    assert result.to_csv(tmp_path / "out.csv").read_text().count("\n") == 5


def test_kernels_have_rows_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "linear.yaml"
    path.write_text(SPEC.replace(", [bf16, pt]", "") + "kernels: true\n")
    with_kernels = bench_model_file(path, budget_s=1, quiet=True)
    aten = [r for r in with_kernels if r.backend == "pt" and "batch=4" in r.scale]
    assert [(r.kernel, r.signature, r.status in ("ok", "doubtful")) for r in aten] == [
        ("", "[4,16]", True), ("aten.t.default", "f32[8,16]", True),
        ("aten.addmm.default", "f32[8], f32[4,16], f32[16,8]", True),
    ]  # fmt: skip
    assert all(r.op == "Linear" and r.times_s for r in aten) and len({r.key for r in with_kernels}) == len(
        with_kernels
    )
    place = {"module": "torch.nn", "name": "Linear"}
    assert kernels_of_mini(place, [16, 8], [[4, 16]], {}, "fp32", backend="compile") == (
        "compile fuses kernels: they cannot be told apart"
    )
    said = list(csv.DictReader(with_kernels.to_csv(tmp_path / "out.csv").read_text().splitlines()))
    assert [r["kernel"] for r in said] == [r.kernel for r in with_kernels] and {r["calls"] for r in said} == {
        "1"
    }
    path.write_text(SPEC + "kernels: 3\n")
    with pytest.raises(UsageError, match="kernels is 3"):
        bench_model_file(path)


def test_equal_kernels_are_one_row_with_their_number() -> None:
    found = lux.bench_model(
        "torch.nn:Flatten",
        [],
        [["batch", 3]],
        {"batch": [2]},
        [["fp32", "pt"]],
        kernels=True,
        budget_s=0.5,
        quiet=True,
    )
    assert (found.rows[0].kernel, found.rows[0].calls) == ("", 1)
    twice = lux.bench_model(
        "torch.nn:GRUCell",
        ["d", "d"],
        [["batch", "d"]],
        {"batch": [2], "d": [3]},
        kernels=True,
        budget_s=0.5,
        quiet=True,
    )
    counted = {r.kernel: r.calls for r in twice if r.kernel}
    assert counted["aten.t.default"] == 2 and "aten.t.default x2" in str(twice)


@pytest.mark.slow
def test_kernels_of_onnxruntime() -> None:
    pytest.importorskip("onnxruntime")
    found = lux.bench_model(
        torch.nn.Linear, ["d", "d"], [["batch", "d"]], {"batch": [2], "d": [8]}, [["fp32", "ort"]], kernels=True,
        budget_s=1, quiet=True,
    )  # fmt: skip
    whole, *kernels = found
    assert whole.status in ("ok", "doubtful") and [r.kernel for r in kernels] == ["onnxruntime.Gemm"]
    assert kernels[0].n > 4 and "float[2,8]" in kernels[0].signature and "profiler" in kernels[0].reason
    assert kernels[0].median_us == pytest.approx(sorted(kernels[0].times_s)[kernels[0].n // 2] * 1e6, abs=1)
    linear = Case("torch.nn.Linear", describe((torch.nn.Linear(8, 4), torch.rand(2, 8)), module=module_of))
    both = lux.bench(linear, backends=["eager", "onnxruntime"], kernels=True, budget_s=1, quiet=True)
    assert [(r.backend, r.kernel) for r in both] == [
        ("eager", ""), ("onnxruntime", ""), ("eager", "aten.t.default"), ("eager", "aten.addmm.default"),
        ("onnxruntime", "onnxruntime.Gemm"),
    ]  # fmt: skip


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


@pytest.mark.parametrize(
    ("name", "value"),
    [("model", 3), ("model", ".."), ("model", "a\x1b[31m:B"), ("model_init_params", "d_in"), ("model_init_params", [[1]]), ("input_params", 3),
     ("input_params", [3]), ("input_params", [["n", -1]]), ("input_params", [["n", 2**70]]), ("input_scales", []), ("input_scales", {"n": "x"}),
     ("input_scales", {"n": [1.5]}), ("input_scales", {name: [1] * 10 for name in "abcdefgh"}), ("job_configs", 3), ("job_configs", [3]),
     ("integer_inputs", [1]), ("integer_inputs", {"x": 1}), ("integer_inputs", {"0": 1.5}), ("integer_inputs", {"9" * 5000: 1}), ("kernels", "yes")],
    ids=repr,
)  # fmt: skip
def test_a_forged_file_measures_nothing(name: str, value: object, tmp_path: Path) -> None:
    said = {
        "model": "torch.nn:Linear",
        "model_init_params": ["a"],
        "input_params": [["n", "a"]],
        "input_scales": {"n": [1], "a": 4},
    }
    file = tmp_path / "mini.yaml"
    file.write_text(json.dumps(said))
    assert read_model_file(file) == said
    file.write_text(json.dumps({**said, name: value}))
    with pytest.raises(UsageError, match="bad-model-spec"):
        read_model_file(file)


def test_a_few_lines_that_stand_for_billions(tmp_path: Path) -> None:
    lines = ["model: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"x{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    file = tmp_path / "mini.yaml"
    file.write_text("\n".join(lines))
    with pytest.raises(UsageError, match="it stands for more than"):
        read_model_file(file)
