"""What an operators file may name: an allow-list. Nothing in it loads, saves, imports, compiles, spawns or opens."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db

import luxmeter as lux
from luxmeter.errors import UsageError
from luxmeter.operators import resolve
from luxmeter.operators.case import Case, load_operators
from luxmeter.operators.inputs import replay
from luxmeter.operators.mini import bench_model_file
from luxmeter.operators.resolve import callable_of, is_operator, named_value
from luxmeter.signature import ModuleSpec, Signature, TensorSpec, Word

ONE_CORE = "names are looked up while a trace runs, not recorded"

TENSOR = {"tensor": {"shape": [2], "dtype": "float32"}}


def file_with(folder: Path, *cases: dict[str, object]) -> Path:
    path = folder / "ops.jsonl"
    head = {"what": "luxmeter operators", "version": 1, "cases": len(cases)}
    path.write_text("\n".join(json.dumps(line) for line in (head, *cases)) + "\n")
    return path


def test_a_file_imports_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack as it was tried: the module leaves a mark when it is imported."""
    (tmp_path / "evil_module.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w').close()\nf = print\n")
    monkeypatch.syspath_prepend(tmp_path)
    evil = {"word": ["function", "evil_module:f"]}
    cases: list[dict[str, object]] = [
        {"op": "torch._import_dotted_name", "args": ["evil_module"]},
        {"op": "torch._preload_cuda_lib", "args": [str(tmp_path), "evil.so"]},
        {"op": "torch.neg", "args": [{"word": ["dtype", "_inductor"]}]},
        {"op": "torch.nn.functional.triplet_margin_with_distance_loss", "args": [TENSOR] * 3, "kwargs": {"distance_function": evil}},
        {"op": "torch.nn.TransformerEncoderLayer", "args": [{"module": {"name": "torch.nn.TransformerEncoderLayer",
         "settings": {"d_model": 2, "nhead": 1, "activation": evil}, "tensors": {}, "training": False}}, TENSOR]},
        {"op": "torch.nn.Linear", "args": [{"module": {"name": "evil_module.Net", "settings": {}, "tensors": {}, "training": False}}]},
    ]  # fmt: skip
    loaded = load_operators(file_with(tmp_path, *cases))
    assert len(loaded) == len(cases)
    before = set(sys.modules)
    for case in loaded:
        with pytest.raises(UsageError, match=r"operator-gone|not-replayable|module-not-replayable"):
            replay(case)
    assert not (tmp_path / "mark").exists() and "evil_module" not in sys.modules
    assert not {name for name in set(sys.modules) - before if name.startswith("torch._inductor")}
    rows = lux.bench(loaded[:2], budget_s=1, quiet=True)  # in a worker, as `luxmeter bench` does
    assert {row.status for row in rows} == {"error"} and not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    "op",
    ["torch._preload_cuda_lib", "torch._import_dotted_name", "torch._load_global_deps", "torch._from_blob", "torch._initExtension",
     "torch._register_device_module", "torch._disable_dynamo", "torch.functional.overload", "torch.functional.boolean_dispatch",
     "torch.prepare_multiprocessing_environment", "torch.nn.functional.handle_torch_function", "torch.nn.functional._verify_spatial_size",
     "torch.nn.init._no_grad_fill_", "torch.sparse.as_sparse_gradcheck", "torch.from_dlpack", "torch.from_file", "torch.frombuffer",
     "Tensor._make_subclass", "Tensor.__torch_function__", "Tensor._reduce_ex_internal", "Tensor.__dict__", "Tensor.__dlpack__",
     "Tensor.apply_", "Tensor.map_", "Tensor.share_memory_", "Tensor.data_ptr", "Tensor.const_data_ptr", "Tensor.__deepcopy__",
     "aten.add.op", "aten.add.__class__", "aten.__file__", "aten::__class__", "aten.add.Tensor.decompose", "aten.from_file.out",
     "aten::append", "aten::format", "aten._print.default", "aten::open", "quantized::add", "profiler::_record_function_enter_new",
     "torch.nn.DataParallel", "torch.nn._reduction", "torch.nn.modules.linear.Linear", "torch.nn.parallel.DataParallel",
     "torch.utils.cpp_extension.load", "torch.classes.load_library", "torch.ops.load_library", "mindspore.load", "", ".", "torch."],
)  # fmt: skip
def test_names_off_the_list(op: str) -> None:
    with pytest.raises(UsageError, match="operator-gone"):
        callable_of(op)
    assert not is_operator(op)


def test_no_other_name_begins_with_an_underscore() -> None:
    """Of all names in all namespaces; and of the rest none says that it does what none may do."""
    named = {f"{space}.{n}" for space, owner in resolve._NAMESPACES.items() for n in dir(owner)}
    found = {op for op in named if resolve._find(op) is not None}
    hidden = {op for op in found if op.rpartition(".")[2].startswith("_")}
    assert {op for op in hidden if not op.startswith("torch._foreach_")} == {
        op for op in hidden if op.startswith(("Tensor.__", "torch.Tensor.__"))
    }
    assert not {
        op
        for op in hidden
        if re.search(r"__(reduce|set(state|attr)|get(attr|state)|del|init|new|class|torch|dlpack|array)", op)
    }
    worded = re.compile(
        r"(^|_)(load|save|import|compile|fork|spawn|open|exec|eval|file|script|jit|hook|pickle|library|seed)(_|$)"
    )
    assert not {op for op in found if worded.search(op.rpartition(".")[2])}
    assert len(found) > 2000


def test_only_operators_on_tensors_of_the_dispatcher() -> None:
    """All of aten and prims that take or give tensors, by each overload: what public logs hold is among them."""
    resolve._kernels.cache_clear()  # another test may have imported Inductor since, which adds some of its own to prims
    refused = []
    for full in torch._C._dispatch_get_all_op_names():
        space, _, rest = full.partition("::")
        name, _, overload = rest.partition(".")
        if space in ("aten", "prims") and resolve._find(f"{space}.{name}.{overload or 'default'}") is None:
            refused.append(full)
            on_tensors = [
                s
                for s in torch._C._jit_get_schemas_for_operator(f"{space}::{name}")
                if s.overload_name == overload
            ]
            assert not any(map(resolve._has_tensors, on_tensors)) or resolve._FORBIDDEN_KERNELS.fullmatch(
                name
            ), full
    assert "aten::from_file" in refused and len(refused) < 60


def test_all_that_a_trace_captures_is_on_the_list() -> None:
    """torch's own database of operators and modules, by the names that a trace gives them."""
    homes = (
        "torch",
        "torch.nn.functional",
        "torch.linalg",
        "torch.fft",
        "torch.special",
        "torch.signal.windows",
        "Tensor",
    )
    unknown = []
    for op in {op.name: op for op in op_db}.values():
        space, _, name = f"torch.{op.name}".rpartition(".")
        if (
            space in homes
            and not name.startswith("_")
            and callable(getattr(resolve._NAMESPACES[space], name, None))
        ):
            unknown += (
                [] if is_operator(f"{space}.{name}") or name in resolve._NO_OPERATORS else [f"{space}.{name}"]
            )
        method = getattr(op.method_variant, "__name__", "")
        if (
            hasattr(torch.Tensor, method)
            and method not in resolve._NO_OPERATORS
            and not method.startswith("_")
        ):
            unknown += [] if is_operator(f"Tensor.{method}") else [f"Tensor.{method}"]
    assert unknown == []
    public = [
        f"torch.nn.{info.module_cls.__name__}"
        for info in module_db
        if hasattr(torch.nn, info.module_cls.__name__)
    ]
    assert len(public) > 90 and all(map(is_operator, public))


def test_the_list_holds_while_a_trace_runs() -> None:
    """Names are found by where they stand, also when a stand-in takes the place of the function."""
    resolve._find.cache_clear()
    with lux.trace():
        assert all(
            map(
                is_operator,
                [
                    "torch.relu",
                    "torch.nn.functional.softsign",
                    "torch.nn.functional.logsigmoid",
                    "Tensor.add_",
                ],
            )
        )
        assert not is_operator("torch._preload_cuda_lib")
    resolve._find.cache_clear()  # stand-ins, kept by the cache


FUNCTIONS = [
    "torch.nn.functional:relu", "torch._C._nn:gelu", "torch:_VariableFunctionsClass.tanh", "torch.nn.functional:silu",
]  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_as_arguments(name: str) -> None:
    spec = ModuleSpec("torch.nn.TransformerEncoderLayer", (("d_model", 4), ("nhead", 2), ("dim_feedforward", 4),
                      ("activation", Word("function", name))), training=False)  # fmt: skip
    replay(Case("torch.nn.TransformerEncoderLayer", Signature((spec, TensorSpec((2, 3, 4), "float32")))))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("function", "torch.utils.cpp_extension:load"), ("function", "torch.hub:load"), ("function", "torch:load"),
        ("function", "torch.serialization:load"), ("function", "os:system"), ("function", "torch.nn.functional:_pair"),
        ("function", "torch:os.system"), ("function", "torch._tensor:Tensor.__reduce_ex__"), ("function", "builtins:eval"),
        ("function", ":"), ("function", ""), ("class", "torch.utils.tensorboard:SummaryWriter"), ("class", "subprocess:Popen"),
        ("class", "torch.nn.parallel.data_parallel:DataParallel"), ("class", "torch.multiprocessing:Process"),
        ("class", "torch.utils.data:DataLoader"), ("enum", "signal:Signals.SIGKILL"), ("enum", "torch._C:x"),
        ("enum", "torch.utils.tensorboard:x.y"), ("enum", "torch:nn.Module"),
    ],
)  # fmt: skip
def test_arguments_off_the_list(kind: str, name: str) -> None:
    before = set(sys.modules)
    assert named_value(kind, name) is None
    assert set(sys.modules) == before


def test_classes_and_enums_as_arguments() -> None:
    assert named_value("class", "torch.nn.modules.normalization:LayerNorm") is torch.nn.LayerNorm
    assert named_value("class", "torch:FloatTensor") is torch.FloatTensor
    assert named_value("class", "torch:Tensor") is torch.Tensor
    from torch.nn.attention.bias import CausalVariant  # loaded by the user, not by the name

    assert named_value("enum", "torch.nn.attention.bias:CausalVariant.UPPER_LEFT") is CausalVariant.UPPER_LEFT


def test_libraries_that_the_user_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lab's settings name none: they may have come with the file."""
    from luxmeter.settings import globs
    from luxmeter.store import Lab

    def forget() -> None:
        resolve._find.cache_clear()
        resolve._kernels.cache_clear()

    try:
        Lab.open().close()
        globs.update("local", "operators.libraries", ["quantized"])
        forget()
        assert resolve._find("quantized::add") is None
        monkeypatch.setenv("LUXMETER_OPERATORS_LIBRARIES", "[quantized]")
        forget()
        assert resolve._find("quantized::add") is not None
        assert (
            resolve._find("quantized::nothing") is None and resolve._find("mkldnn::_linear_pointwise") is None
        )
    finally:
        monkeypatch.undo()
        forget()


@pytest.mark.parametrize(
    "model",
    ["os:kill", "subprocess:Popen", "builtins:exit", "torch:load", "torch.nn.functional:relu", "os:no"],
)
def test_a_model_file_names_modules_alone(tmp_path: Path, model: str) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(
        f"model: {model}\nmodel_init_params: [a]\ninput_params: [[a]]\ninput_scales: {{a: 1}}\njob_configs: [[fp32, pt]]\n"
    )
    with pytest.raises(UsageError, match="bad-model-spec"):
        bench_model_file(path)
