"""What others captured, read: text logs, Chrome traces, execution traces; nothing is evaluated."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from luxmeter.errors import LuxmeterWarning, UsageError
from luxmeter.operators.case import Case, load_operators
from luxmeter.operators.foreign import load
from luxmeter.operators.foreign.input_logs import NotReadable, cases_in, signature_in
from luxmeter.operators.foreign.load import load_foreign
from luxmeter.operators.inputs import outputs_of, replay
from luxmeter.signature import ListOf, TensorSpec, Word

LOG = """
Operator: aten.add.Tensor
cnt: 3, ((T([2, 3], f32), T([2, 3], f32, stride=(1, 2))), {'alpha': 2})
cnt: 1, ((T([], f16), 1e-05), {})
Operator: aten._to_copy.default
cnt: 12, ((T([12, 14, 3], i32),), {'dtype': i64, 'device': 'cuda', 'layout': torch.strided})
Operator: aten.cat.default
cnt: 7, (([T([4, 2], b8), T([4, 5], b8)], 1), {})
Operator: aten.masked_fill.Scalar
cnt: 2, ((T([3], f32), T([3], b8), -inf), {})
Operator: aten.index.Tensor
cnt: 2, ((T([5, 4], f32), [None, T([3], i64)]), {})
"""


def test_a_text_log(tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    path.write_text(LOG)
    captured = load_foreign(path)
    assert captured.entries == len(captured.operators) == 6 and not captured.problems
    add, scalar, copy, cat, fill, index = captured.operators
    assert add.count == 3 and add.signature.args[1] == TensorSpec((2, 3), "float32", stride=(1, 2))
    assert add.signature.kwargs == (("alpha", 2),)
    assert scalar.signature.args == (TensorSpec((), "float16"), 1e-05)
    assert dict(copy.signature.kwargs)["dtype"] == Word("dtype", "int64")
    assert isinstance(cat.signature.args[0], ListOf)
    assert fill.signature.args[2] == float("-inf")
    assert outputs_of(replay(index)) == ["f32[5,3]"]
    assert outputs_of(replay(copy)) == ["i64[12,14,3]"]
    assert load_operators(path) == captured.operators


def test_a_bad_line_is_named_and_the_rest_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    path.write_text(LOG + "cnt: 1, ((T([2], f99),), {})\nnonsense\n")
    captured = load_foreign(path)
    assert len(captured.operators) == 6 and captured.entries == 8
    assert captured.problems[0].place.endswith("line 13") and "f99" in captured.problems[0].why
    assert captured.problems[1].place.endswith("line 14")


@pytest.mark.parametrize(
    "text",
    [
        "((__import__('os').system('true'),), {})",
        "((open('x'),), {})",
        "((1 + 1,), {})",
        "((lambda: 1,), {})",
        "((T([2], f32, stride=(1, 1)),), {})",
        "((T([-2], f32),), {})",
        "((1,), {}",
        "((1,), {}) 2",
        "(1, 2)",
        "((1,), {1: 2})",
        "(" * 200,
    ],
)
def test_text_that_is_no_signature(text: str) -> None:
    with pytest.raises(NotReadable):
        signature_in(text)


def test_what_is_left_out_is_said(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    path = tmp_path / "model.txt"
    path.write_text(LOG)
    load_operators(path)
    assert not recwarn.list
    path.write_text(
        LOG + "cnt: 3, ((T([2], f99),), {})\nOperator: no operator!\ncnt: 9, ((T([2], f32),), {})\n"
    )
    with pytest.warns(
        LuxmeterWarning, match=r"3 of 9 inputs .*model.txt, line 13: .*f99.*operators-left-out"
    ) as said:
        found = load_operators(path)
    assert said[0].filename == __file__ and len(found) == 6
    # Nothing below a line that names no operator is taken for the operator before it.
    assert next(c for c in found if c.op == "aten.index.Tensor").count == 2
    events = [{"ph": "X", "name": "aten::relu", "dur": 1}, {"ph": "X", "name": "aten::relu", "ts": 1, "dur": "x"},
              {"ph": "X", "name": "aten::relu", "ts": 5, "dur": 1, "args": {"Input Dims": [[2]], "Input type": ["float"]}}]  # fmt: skip
    path.write_text(json.dumps({"traceEvents": events}))
    with pytest.warns(LuxmeterWarning, match="2 of 3 inputs could not be read.*it has no time"):
        assert len(load_operators(path)) == 1


def test_devices_written_as_text() -> None:
    said = signature_in("""((T([2], f16),), {'device': "torch.device('cpu')", 'dtype': f32})""")
    assert dict(said.kwargs)["device"] == Word("device", "cpu")
    said = signature_in("((T([2], f16),), {'device': torch.device('cuda', index=0)})")
    assert dict(said.kwargs)["device"] == Word("device", "cuda")


@given(st.text(alphabet="T([])f32, {}':=stride-1.einNo\\\"", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    for _, found in cases_in(iter(["Operator: aten.add.Tensor", f"cnt: 1, {text}"]), source=""):
        assert isinstance(found, Case | NotReadable)


def step() -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
    table = torch.nn.Embedding(50, 8)
    x = torch.rand(2, 3, 8, 8)
    F.cross_entropy(net(x).flatten(1), torch.randint(0, 9, (2,))).backward()
    e = table(torch.randint(0, 50, (4, 7)))
    torch.cat([e, e], 1)
    torch.stack([e, e])
    torch.where(e > 0, e, 1.0)
    e.transpose(0, 1).sum((0, 1), keepdim=True)
    e.to(torch.float64)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A real profile and a real execution trace of one training step."""
    folder = tmp_path_factory.mktemp("foreign")
    observer = torch.profiler.ExecutionTraceObserver()
    observer.register_callback(str(folder / "execution.json"))
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        record_shapes=True,
        execution_trace_observer=observer,
    ) as profile:
        step()
    observer.unregister_callback()
    profile.export_chrome_trace(str(folder / "chrome.json"))
    yield folder


@pytest.mark.parametrize("name", ["chrome.json", "execution.json"])
def test_real_traces_of_torch_are_read_and_replayed(recorded: Path, name: str) -> None:
    captured = load_foreign(recorded / name)
    assert not captured.problems
    by_name = {}
    for case in captured.operators:
        outputs = outputs_of(replay(case))
        by_name.setdefault(case.op, (case, outputs))
    conv, outputs = by_name["aten.conv2d.default"]
    assert outputs == ["f32[2,4,8,8]"]
    assert by_name["aten.embedding.default"][1] == ["f32[4,7,8]"]
    assert by_name["aten.cat.default"][1] == ["f32[4,14,8]"]
    assert by_name["aten.stack.default"][1] == ["f32[2,4,7,8]"]
    assert by_name["aten.sum.dim_IntList"][1] == ["f32[1,1,8]"]
    assert any(o == ["f64[4,7,8]"] for c, o in by_name.values() if c.op.startswith("aten.to."))
    assert "aten.convolution.default" not in by_name  # inside conv2d
    if name == "chrome.json":
        assert conv.total_ns and conv.total_ns > 0
    else:
        first, second = by_name["aten.cat.default"][0].signature.args[0].items
        assert first.memory == second.memory == 0


def test_compressed_traces(recorded: Path, tmp_path: Path) -> None:
    packed = tmp_path / "chrome.json.gz"
    packed.write_bytes(gzip.compress((recorded / "chrome.json").read_bytes()))
    assert load_foreign(packed).operators == load_operators(packed)
    packed.write_bytes(packed.read_bytes()[:-50])
    with pytest.raises(UsageError, match="damaged gzip"):
        load_foreign(packed)


def test_a_packed_log_that_unpacks_to_more_than_logs_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "_SMALL_BYTES", 1 << 20)
    packed = tmp_path / "chrome.json.gz"
    packed.write_bytes(gzip.compress(bytes(4 << 20)))
    with pytest.raises(UsageError, match="unpacks to more than 1,048,576 bytes"):
        load_foreign(packed)


@pytest.mark.parametrize(
    "data",
    [
        {},
        [],
        {"traceEvents": []},
        {"traceEvents": [{"ph": "X", "name": "aten::add", "ts": 1, "args": {}}]},
        {"nodes": [{"id": 1, "name": "aten::add", "inputs": {"values": [1]}}]},
        {"nodes": [{"id": 1, "name": "aten::add", "ctrl_deps": 1}]},
    ],
)
def test_json_without_operators(tmp_path: Path, data: object) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(data))
    with pytest.raises(UsageError, match="not-operators"):
        load_foreign(path)


CHROME = {
    "ph": "X", "name": "aten::add", "ts": 1, "dur": 2,
    "args": {"Input Dims": [[2, 3], [2, 3], []], "Input type": ["float", "float", "Scalar"],
             "Input Strides": [[3, 1], [3, 1], []], "Concrete Inputs": ["", "", "1"]},
}  # fmt: skip
EXECUTION = {
    "id": 3, "name": "aten::add", "ctrl_deps": 2, "attrs": [{"name": "op_schema", "value": ""}],
    "inputs": {"values": [[1, 2, 0, 6, 4, "cpu"], [1, 2, 0, 6, 4, "cpu"], 1], "shapes": [[2, 3], [2, 3], []],
               "strides": [[3, 1], [3, 1], []], "types": ["Tensor(float)", "Tensor(float)", "Int"]},
}  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    made = dict(value) if isinstance(value, dict) else list(value)
    made[path[0]] = changed(value[path[0]], path[1:], new)
    return made


@pytest.mark.parametrize(("kind", "entry"), [("traceEvents", CHROME), ("nodes", EXECUTION)])
def test_an_entry_that_no_tool_writes_is_a_problem_and_no_other_is_lost(
    tmp_path: Path, kind: str, entry: dict[str, Any]
) -> None:
    path, refused = tmp_path / "x.json", 0
    for place in places(entry):
        for new in ({"a": 1}, [{"a": 1}], None, [[]], 1e308, 10**400, -1, "\ud800"):
            forged = changed({**entry, "ts": 9, "id": 4}, place, new)
            path.write_text(json.dumps({kind: [entry, forged]}))
            found = load_foreign(path)
            assert "aten.add.Tensor" in [case.op for case in found.operators], (place, new)
            refused += len(found.problems)
            for case in found.operators:
                assert str(case) and (case.total_ns is None or case.total_ns < 10**18)
    assert refused > 20


def test_damaged_json(recorded: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text((recorded / "chrome.json").read_text()[:-200])
    with pytest.raises(UsageError, match="damaged JSON"):
        load_operators(path)
