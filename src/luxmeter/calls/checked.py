"""What the small files of a trace may hold: types and ranges that all who read a trace rely on. They may come from anywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_MOST_ID = 1 << 24  # ids are given one after the other, and tables are made that long
_MOST = 1 << 63
Test = Callable[[Any], bool]


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _whole(value: Any) -> bool:
    return type(value) is int and -_MOST <= value < _MOST


def _number(value: Any) -> bool:
    return _whole(value) or isinstance(value, float)


def _id(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST_ID


def _numbers(value: Any) -> bool:
    return isinstance(value, Mapping) and all(_number(one) for one in value.values())


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _row(value: Any) -> bool:
    """Of totals: eleven numbers, the site from format 2 on, the histogram."""
    return (
        isinstance(value, list)
        and len(value) in (12, 13)
        and all(map(_id, value[:4]))
        and all(map(_whole, value[4:-1]))
        and isinstance(value[-1], list)
        and len(value[-1]) <= 1024
        and all(map(_whole, value[-1]))
    )


def _ranges(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and _id(value[0])
        and isinstance(value[1], list)
        and all(isinstance(pair, list) and len(pair) == 2 and all(map(_number, pair)) for pair in value[1])
    )


def _all(test: Test) -> Test:
    return lambda value: isinstance(value, list) and all(map(test, value))


_LINES: dict[str, dict[str, Test]] = {
    "callable": {"callable": _id, "name": _text, "label": _text, "kind": lambda v: v in (0, 1, 2), "path": _text},
    "signature": {"signature": _id, "of": _id},
    "thread": {"thread": _id, "name": _text},
    "site": {"site": _id, "file": _text, "function": _text, "line": _whole, "source": _text},
}  # fmt: skip
_USUAL: dict[str, dict[str, Test]] = {
    "callable": {"framework": _text},
    "signature": {"general": lambda v: isinstance(v, bool), "outputs": _all(_all(_whole))},
}
_COUNTS = ("lost", "generalised", "unfinished", "hook_errors")
_END: dict[str, Test] = {
    "rank": _id, "clock": _text, "cost": _numbers, "hook_error": _text, "unlooked": _whole, "remarks": _texts, "spawned": _whole,
    "started_ns": _whole, "elapsed_ns": _whole, "float_ranges": _all(_ranges), "totals": _all(_row), "lost_on_disk": _whole,
    "pauses": _all(lambda v: isinstance(v, list) and len(v) == 4 and _text(v[0]) and all(map(_whole, v[1:]))),
    "device": lambda v: isinstance(v, dict) and _text(v.get("name")) and _texts(v.get("remarks")), "short_pauses": _all(_whole), "trouble": _text, "setup_ns": _whole, "stats": lambda v: _numbers(v) and all(name in v for name in _COUNTS),
}  # fmt: skip


_FLAG_NAMES = ("inside", "sync", "device", "signatures", "strides", "facts", "lines", "totals", "lossless")
_OPTIONS: dict[str, Test] = {
    **dict.fromkeys(_FLAG_NAMES, lambda v: isinstance(v, bool)),
    **dict.fromkeys(("only", "skip", "also", "lines_in"), lambda v: _text(v) or (isinstance(v, list | tuple) and all(map(_text, v)))),
    **dict.fromkeys(("sample", "max_signatures", "max_pending"), lambda v: _whole(v) and v > 0),
    "budget": lambda v: v is None or _number(v), "framework": lambda v: v is None or _text(v), "core": lambda v: v is None or _text(v),
}  # fmt: skip


def check_identity(identity: Mapping[str, Any]) -> None:
    """ValueError if trace.json, of a format that is known, says of its options what no trace says."""
    _check(identity, {"options": lambda v: isinstance(v, dict)} if "options" in identity else {})
    options = identity.get("options", {})
    _check(options, {name: test for name, test in _OPTIONS.items() if name in options})


def check_line(told: Any) -> None:
    """ValueError if a line of words.jsonl is none of ours."""
    if not isinstance(told, dict):
        raise ValueError("no object")
    for kind, tests in _LINES.items():
        if kind in told:
            _check(told, tests)
            _check(told, {name: test for name, test in _USUAL.get(kind, {}).items() if name in told})
            return


def check_end(end: Any) -> None:
    """ValueError if end.json says what no trace says."""
    if not isinstance(end, dict):
        raise ValueError("end.json holds no object")
    _check(end, {name: test for name, test in _END.items() if name in end})
    if end and "stats" not in end:
        raise ValueError("end.json has no stats")


def _check(said: Mapping[str, Any], tests: Mapping[str, Test]) -> None:
    for name, test in tests.items():
        if name not in said or not test(said[name]):
            shown = repr(said.get(name))
            raise ValueError(f"its {name} is {shown[:80]}{'...' if len(shown) > 80 else ''}")
