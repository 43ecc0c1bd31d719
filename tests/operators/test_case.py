"""Operators as data: saved, loaded, merged, filtered; damaged files named by line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from luxmeter.errors import UsageError
from luxmeter.operators.case import Case, Operators, load_operators
from luxmeter.signature import Facts, ListOf, ModuleSpec, Signature, SliceOf, TensorSpec, Word

X = TensorSpec((2, 3), "float32", facts=Facts(low=0.0, high=1.0))
LINEAR = Case(
    "torch.nn.functional.linear",
    Signature((X, TensorSpec((4, 3), "float32", kind="Parameter"))),
    5,
    500,
    ("Net.head",),
)
CAT = Case("torch.cat", Signature((ListOf((X, X)), 1)), 2, 900, ("Net.body.0",))
CONV = Case(
    "torch.nn.Conv2d",
    Signature((ModuleSpec("torch.nn.Conv2d", (("stride", (1, 1)),), (("weight", X),)), TensorSpec((1, 3, 8, 8), "float32"))),
    1, 50, ("Net.body.1",),
)  # fmt: skip
INDEX = Case(
    "Tensor.__getitem__",
    Signature((X, (SliceOf(None, 1, None), Word("ellipsis", "..."))), (("k", float("inf")),), ((0.0, 1.0),)),
)
ALL = Operators([LINEAR, CAT, CONV, INDEX])


def test_save_and_load_without_loss(tmp_path: Path) -> None:
    path = ALL.save(tmp_path / "ops.jsonl")
    assert load_operators(path) == ALL
    head, *lines = path.read_text().splitlines()
    assert json.loads(head) == {"what": "luxmeter operators", "version": 2, "cases": 4}
    assert len(lines) == 4 and all(json.loads(line)["op"] for line in lines)


def test_a_sequence_of_distinct_cases() -> None:
    assert len(ALL) == 4 and list(ALL)[1] == CAT and ALL[-1] == INDEX
    assert isinstance(ALL[:2], Operators) and list(ALL[:2]) == [LINEAR, CAT]
    again = ALL + Operators([Case(LINEAR.op, LINEAR.signature, 3, 100, ("Net.tail",))])
    assert len(again) == 4
    assert (again[0].count, again[0].total_ns, again[0].where) == (8, 600, ("Net.head", "Net.tail"))
    assert repr(ALL) == "<4 operators of 4 names, 9 calls>"


def test_top_share_and_filters() -> None:
    assert [c.op for c in ALL.top(2)] == ["torch.cat", "torch.nn.functional.linear"]
    assert ALL.share(CAT) == pytest.approx(900 / 1450)
    assert Operators([INDEX]).share(INDEX) == 1.0
    assert list(ALL.filter(name="linear")) == [LINEAR]
    assert list(ALL.filter(name="*n*", module="Net.body.*")) == [CONV]
    with pytest.raises(UsageError, match="Did you mean 'linear'"):
        ALL.filter(name="linaer")
    with pytest.raises(UsageError, match="no-such-module"):
        ALL.filter(module="Net.tail")


@pytest.mark.parametrize(
    ("change", "slug", "said"),
    [
        (lambda t: t[:-40], "operators-damaged", "line 5"),
        (lambda t: t.replace('"count": 2', '"count": "two"'), "operators-damaged", "line 3"),
        (
            lambda t: t.replace('"op": "torch.cat"', '"no": "torch.cat"'),
            "operators-damaged",
            "it has no 'op'",
        ),
        (lambda t: t.replace('"float32"', "7", 1), "operators-damaged", "line 2"),
        (
            lambda t: "\n".join(t.splitlines()[:-1]) + "\n",
            "operators-damaged",
            "promises 4 cases and holds 3",
        ),
        (lambda t: t.replace('"version": 2', '"version": 9'), "operators-newer", "version 9"),
        (lambda t: "hello\n" + t, "not-operators", "line 1"),
        (lambda t: "", "not-operators", "no operator"),
    ],
)
def test_damaged_and_foreign_files(tmp_path: Path, change, slug: str, said: str) -> None:
    path = ALL.save(tmp_path / "ops.jsonl")
    path.write_text(change(path.read_text()))
    with pytest.raises(UsageError, match=slug) as caught:
        load_operators(path)
    assert said in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="operators-unreadable"):
        load_operators(tmp_path / "none.jsonl")


@pytest.mark.parametrize("forged", [{}, [], [[]], {"$float": []}, {"$dict": 1}, {"$float": 10**400}, 10**400])
def test_forged_arguments_are_called_damage(tmp_path: Path, forged: object) -> None:
    """Wherever in a line they stand: what comes out is a case or our own error."""
    path = ALL.save(tmp_path / "ops.jsonl")
    head, *lines = path.read_text().splitlines()

    def places(value: object) -> list[tuple[object, object]]:
        inner = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        return [place for key, below in list(inner) for place in [(value, key), *places(below)]]

    refused = 0
    for number, line in enumerate(lines):
        for at in range(len(places(json.loads(line)))):
            said = json.loads(line)
            holder, key = places(said)[at]
            holder[key] = forged  # type: ignore[index]
            path.write_text("\n".join([head, *lines[:number], json.dumps(said), *lines[number + 1 :]]))
            try:
                str(list(load_operators(path)))
            except UsageError:
                refused += 1
    assert refused
