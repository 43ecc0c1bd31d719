"""Structure strings: read with positions, written back the same, and wrong ones told where and why."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from luxmeter.errors import UsageError
from luxmeter.model.plainnet import (
    PlainNet,
    PlainNetBasicBlockClass,
    SuperResK3K3,
    SuperResK5K5,
    SuperResKXKX,
    parse_structure,
    write_structure,
)
from luxmeter.model.plainnet.parser import Call, Number

NAMES = st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_]{0,8}\Z")
CALLS = st.recursive(
    st.builds(
        Call,
        name=NAMES,
        numbers=st.lists(st.builds(Number, st.integers(-999, 9999)), max_size=5).map(tuple),
        label=st.none() | st.from_regex(r"\A[a-z][a-z0-9]{0,4}\Z"),
    ),
    lambda inner: st.builds(
        Call,
        name=NAMES,
        numbers=st.lists(st.builds(Number, st.integers(0, 99)), max_size=2).map(tuple),
        branches=st.lists(st.lists(inner, min_size=1, max_size=3).map(tuple), min_size=1, max_size=3).map(
            tuple
        ),
    ),
    max_leaves=8,
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(CALLS, min_size=1, max_size=4))
def test_what_is_written_is_read_back(calls: list[Call]) -> None:
    text = write_structure(tuple(calls))
    assert parse_structure(text) == tuple(calls)
    assert write_structure(parse_structure(text)) == text


def test_positions_are_those_of_the_text() -> None:
    text = "A(1, 2)\n  B(x|3,C(44))"
    first, second = parse_structure(text)
    (inner,) = second.branches[0]
    assert [text[c.start : c.end] for c in (first, second, inner)] == ["A(1, 2)", "B(x|3,C(44))", "C(44)"]
    assert text[first.numbers[1].start] == "2"
    assert text[inner.numbers[0].start :][:2] == "44"
    assert second.label == "x"


GOOD = "SuperConvK3BNRELU(3,8,1,1)"
WRONG = [
    # text, slug, the offset told, words of the message
    (GOOD + "SuperResK3K4(8,16,1,8,1)", "structure-block", 26, ["'SuperResK3K4'", "Did you mean 'SuperResK3K3'"]),
    (GOOD + "SuperResK3K3(8,16,1,8)", "structure-arguments", 26, ["takes 5 arguments, 4 were given"]),
    (GOOD + "SuperResK3K3(8,16,1,8,1,2)", "structure-arguments", 26, ["takes 5 arguments, 6 were given"]),
    (GOOD + "SuperResK3K3(8,16,0,8,1)", "structure-arguments", 44, ["stride of SuperResK3K3 is 0", "at least 1"]),
    (GOOD + "SuperResK3K3(8,16,1,-8,1)", "structure-arguments", 46, ["bottleneck_channels", "-8"]),
    (GOOD + "SuperResK3K3(16,16,1,8,1)", "structure-channels", 39, ["takes 16 channels", "(SuperConvK3BNRELU) gives 8"]),
    ("ConvKX(3,8,3,1)BN(4)", "structure-channels", 18, ["Block 2 (BN) takes 4", "gives 8"]),
    ("ConvKX(3,8,3,1)ResBlock(8,ConvKX(4,8,1,1))", "structure-channels", 33, ["takes 4 channels", "input gives 8"]),
    ("MultiCatBlock(ConvKX(3,8,1,1);ConvKX(4,8,1,1))", "structure-channels", 37, ["takes 4 channels"]),
    ("MultiSumBlock(ConvKX(3,8,1,1);ConvKX(3,9,1,1))", "structure-arguments", 0, ["cannot be added", "8, 9"]),
    ("MultiSumBlock(ConvKX(3,8,1,1);ConvKX(3,8,1,2))", "structure-arguments", 0, ["differently"]),
    (GOOD + "ResBlock(8,2,ConvKX(8,8,3,1))", "structure-arguments", 26, ["stride of ResBlock is 2", "stride 1"]),
    ("ResBlock(ConvKX(3,3,2,1))", "structure-arguments", 0, ["shortcut cannot follow"]),
    ("ResBlock(3,1)", "structure-arguments", 0, ["holds blocks"]),
    ("ResBlock(3,1,BN(3);BN(3))", "structure-arguments", 0, ["one structure"]),
    ("BN(8,BN(8))", "structure-arguments", 0, ["integers only"]),
    ("ConvKXG4(8,6,3,1)", "structure-arguments", 11, ["out_channels", "multiple of 4"]),
    ("Linear(8,6,2)", "structure-arguments", 11, ["bias of Linear is 2", "0 or 1"]),
    (GOOD[:-1], "structure-syntax", 17, ["never closed"]),
    ("ConvKX(3,8,,1)", "structure-syntax", 11, ["Argument 3 of ConvKX is empty"]),
    ("ConvKX(3,8,x,1)", "structure-syntax", 11, ["Argument 3 of ConvKX is no integer"]),
    ("ConvKX(3,8,1.5,1)", "structure-syntax", 12, ["after argument 3 of ConvKX", "'.'"]),
    ("ConvKX 3", "structure-syntax", 7, ["'(' was expected after ConvKX"]),
    (GOOD + "!", "structure-syntax", 26, ["'!' was found"]),
    (GOOD + ")", "structure-syntax", 26, ["')' was found"]),
    ("ConvKX", "structure-syntax", 6, ["the string ends"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "slug", "offset", "words"), WRONG, ids=[w[0] for w in WRONG])
def test_a_wrong_string_is_told_where_and_why(text: str, slug: str, offset: int, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        PlainNet(text)
    message = caught.value.what
    assert caught.value.slug == slug
    assert f"at character {offset}:" in message
    line, caret = message.splitlines()[1:3]
    assert line[2:] == text
    assert caret.index("^") - 2 == offset
    for word in words:
        assert word in str(caught.value)


def test_a_long_string_is_shown_around_the_place() -> None:
    text = GOOD + "SuperResK3K3(8,8,1,8,1)" * 40 + "SuperResK3K3(9,8,1,8,1)" + "SuperResK3K3(8,8,1,8,1)" * 40
    with pytest.raises(UsageError, match="Block 42") as caught:
        PlainNet(text)
    line, caret = caught.value.what.splitlines()[1:3]
    assert len(line) < 90
    assert line[caret.index("^") :].startswith("9,8,1,8,1)")


@pytest.mark.parametrize("text", ["", "  \n "])
def test_an_empty_string(text: str) -> None:
    with pytest.raises(UsageError, match="empty"):
        PlainNet(text)


def test_create_from_str_wants_one_block_of_its_name() -> None:
    one = "SuperResK3K3(8,16,1,8,1)"
    assert SuperResK3K3.is_instance_from_str(one)
    assert not SuperResK3K3.is_instance_from_str("SuperResK5K5(8,16,1,8,1)")
    assert str(SuperResK3K3.create_from_str(one)) == one
    with pytest.raises(UsageError, match="more follows, at character 24"):
        SuperResK3K3.create_from_str(one + one)
    with pytest.raises(UsageError, match="SuperResK5K5 was found"):
        SuperResK3K3.create_from_str("SuperResK5K5(8,16,1,8,1)")


def test_a_family_takes_its_members() -> None:
    for family in (PlainNetBasicBlockClass, SuperResKXKX):
        assert family.is_instance_from_str("SuperResK5K5(8,16,1,8,1)")
        assert type(family.create_from_str("SuperResK5K5(8,16,1,8,1)", no_create=True)) is SuperResK5K5
    assert not SuperResKXKX.is_instance_from_str("BN(8)")
    assert not SuperResKXKX.is_instance_from_str("Nothing(8)")
    assert not SuperResK5K5.is_instance_from_str("SuperResK5K5")
    with pytest.raises(UsageError, match="One SuperResKXKX was expected, BN was found"):
        SuperResKXKX.create_from_str("BN(8)")
    with pytest.raises(UsageError, match="no block called 'Nothing'"):
        SuperResKXKX.create_from_str("Nothing(8)")


def test_arguments_by_name_and_wrong_ones() -> None:
    block = SuperResK3K3(in_channels=8, out_channels=16, stride=1, bottleneck_channels=8, sub_layers=1)
    assert str(block) == "SuperResK3K3(8,16,1,8,1)"
    with pytest.raises(UsageError, match="takes 5 arguments, 2 were given"):
        SuperResK3K3(8, 16)
    with pytest.raises(UsageError, match="no argument depth"):
        SuperResK3K3(8, 16, 1, 8, 1, depth=2)
