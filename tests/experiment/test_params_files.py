"""Parameters in YAML, TOML and JSON files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from luxmeter import BaseParams, Params
from luxmeter.errors import UsageError
from luxmeter.experiment.params.schedules import CosSchedule

YAML = """\
# comment
lr: 1e-3
day: 2026-11-15
commit: 12e4567
zeros: 007
switch: on
flag: true
nothing:
tilde: ~
pair: (1, 2)
list: [1, a, 0.10]
quoted: "3"
base: &base {x: 1, y: 2}
optim:
  <<: *base
  y: 3
optim.z: 4
"""


def test_yaml_reads_words_as_the_command_line_does() -> None:
    Path("p.yml").write_text(YAML)
    p = BaseParams().from_file("p.yml")
    assert p.to_dict() == {
        "lr": 1e-3, "day": "2026-11-15", "commit": "12e4567", "zeros": "007", "switch": "on", "flag": True,
        "nothing": None, "tilde": None, "pair": (1, 2), "list": [1, "a", 0.1], "quoted": "3",
        "base": {"x": 1, "y": 2}, "optim": {"x": 1, "y": 3, "z": 4},
    }  # fmt: skip


def test_toml_and_json() -> None:
    Path("p.toml").write_text('lr = 1e-3\nname = "007"\n[optim]\nwd = 0\n')
    Path("p.json").write_text('{"lr": 0.001, "name": "007", "optim": {"wd": 0}}')
    a, b = BaseParams().from_toml("p.toml"), BaseParams().from_json("p.json")
    assert a == b == {"lr": 1e-3, "name": "007", "optim": {"wd": 0}}


@pytest.mark.parametrize("suffix", ["yaml", "json", "toml"])
def test_what_is_written_is_read_back(suffix: str) -> None:
    values = {
        "n": 3, "x": 1e-05, "big": 1e22, "inf": float("inf"), "flag": False, "text": "a: b # c", "number": "3",
        "date": "2026-11-15", "word": "on", "none_text": "none", "empty": "", "space": " x ", "lines": "a\nb\t\x7f",
        "chinese": "参数", "list": [1, [2, "3"]], "optim": {"lr": 0.1, "deep": {"odd key!": 1}},
    }  # fmt: skip
    p = BaseParams(values)
    path = p.to_file(f"out/p.{suffix}")
    assert BaseParams().from_file(path).to_dict() == values
    assert BaseParams().from_file(path).hash() == p.hash()


def test_yaml_keeps_tuples_and_none() -> None:
    p = BaseParams(topk=(1, 2), one=(1,), none=None, classes={0: "cat"})
    assert BaseParams().from_file(p.to_file("p.yaml")).to_dict() == {
        "topk": (1, 2), "one": (1,), "none": None, "classes": {"0": "cat"},
    }  # fmt: skip


TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.from_regex("[a-z]{1,4}", fullmatch=True), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(st.dictionaries(st.from_regex("[a-z]{1,6}_x", fullmatch=True), VALUES, max_size=4))
def test_any_plain_values_survive_yaml_and_json(values: dict[str, Any]) -> None:
    for name in ("p.yaml", "p.json"):
        p = BaseParams()
        for key, value in values.items():
            p[key] = value
        path = p.to_file(name)
        fresh = BaseParams()
        for key in values:  # known names: a generated one may look like a slip of another
            fresh[key] = None
        assert fresh.from_file(path).to_dict() == p.to_dict()


@pytest.mark.parametrize(
    ("name", "text", "slug"),
    [
        ("p.yaml", "a: [1", "params-file-damaged"),
        ("p.yaml", "a: 1\na: 2\n", "params-file-damaged"),
        ("p.yaml", "a: !!python/object/apply:os.system ['true']", "params-file-damaged"),
        ("p.yaml", "- 1\n- 2\n", "params-file-shape"),
        ("p.json", '{"a": 1, "a": 2}', "params-file-damaged"),
        ("p.json", "{'a': 1}", "params-file-damaged"),
        ("p.json", "[" * 100_000, "params-file-damaged"),
        ("p.toml", "a = ", "params-file-damaged"),
        ("p.ini", "a = 1", "params-file-kind"),
        ("p.yaml", "\xff".encode("latin-1"), "params-file-damaged"),
        ("p.yaml", b"a: " + b"x" * (17 * 1024 * 1024), "params-file-large"),
    ],
)  # fmt: skip
def test_bad_files_are_refused(name: str, text: str | bytes, slug: str) -> None:
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    p = Params()
    before = repr(p)
    with pytest.raises(UsageError) as caught:
        p.from_file(name)
    assert caught.value.slug == slug
    assert name in str(caught.value)
    assert repr(p) == before


def test_a_missing_file() -> None:
    with pytest.raises(UsageError, match="No such file"):
        Params().from_file("nope.yaml")


def test_aliases_that_stand_for_billions_of_values_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    Path("p.yaml").write_text("\n".join(lines))
    with pytest.raises(UsageError, match="more than 1000000 values"):
        BaseParams().from_file("p.yaml")


def test_merges_that_stand_for_billions_of_names_are_refused() -> None:
    lines = ["a0: &a0 {" + ", ".join(f"k{i}: {i}" for i in range(10)) + "}"]
    lines += [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}], own: {i}}}" for i in range(1, 10)]
    Path("p.yaml").write_text("\n".join(lines))
    with pytest.raises(UsageError, match="merges more than 1000000 names"):
        BaseParams().from_file("p.yaml")
    Path("p.yaml").write_text("\n".join(lines[:3]))
    found = BaseParams().from_file("p.yaml")
    assert (found.a2.k7, found.a2.own, found.a1.own) == (7, 2, 1)


def test_mistyped_names_in_a_file_are_refused() -> None:
    Path("p.yaml").write_text("epochs: 3\n")
    with pytest.raises(UsageError, match=r"from p.yaml.*Did you mean 'epoch'"):
        Params().from_file("p.yaml")


def test_what_a_file_cannot_hold_is_refused_and_nothing_is_written() -> None:
    p = BaseParams(optim={"weights": torch.ones(2)})
    for name in ("p.yaml", "p.json", "p.toml"):
        with pytest.raises(UsageError, match=r"optim\.weights"):
            p.to_file(name)
        assert not Path(name).exists()
    with pytest.raises(UsageError, match="TOML"):
        BaseParams(a=None).to_file("p.toml")
    with pytest.raises(UsageError):
        p.to_file("p.txt")


def test_json_text_and_plain_values() -> None:
    p = BaseParams(a=(1, 2), where=Path("x"), device=torch.device("cpu"))
    text = p.to_json("any.name")
    assert json.loads(text) == {"a": [1, 2], "where": "x", "device": "cpu"}
    assert Path("any.name").read_text() == text
    odd = BaseParams(sched=CosSchedule(1, 0, 0, 10), fn=len, w=torch.ones(1)).to_plain()
    assert odd["sched"] == {"kind": "CosSchedule", "start": 1, "end": 0, "left": 0, "right": 10}
    assert json.dumps(odd)
