"""Sees every operator below autograd, says what it costs and what it makes, and on meta tensors does without computing.

Tensors without data stay without; small whole-number tensors keep their data, so that code that looks at a mask or an
index still runs. Where both meet, the result is without data.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from luxmeter.flops import CREATES, Cost, cost_of, moved_bytes, version
from luxmeter.model.lifetimes import Lifetimes
from luxmeter.model.shortcuts import SHORTCUTS
from luxmeter.model.watch import Watch, shapes_of
from luxmeter.nested import tensors_of

SMALL = 1 << 20  # elements a tensor may have and keep its data while the rest is without
_KEPT_MOST = 20_000
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_META = torch.device("meta")


class _Kind(NamedTuple):
    """What is always true of an operator."""

    func: Any  # held, so that its identity stays its own
    name: str
    fresh: bool  # every result is a new tensor
    free: bool  # views and the like: nothing moved
    needs_data: bool
    takes_device: bool
    in_place: bool  # element-wise on its first argument, which is also the result
    creates: bool


class _Known(NamedTuple):
    """What an operator does with arguments of one form."""

    results: Any  # (shape, stride, dtype), a tuple of such, or None where the result is something else
    cost: Cost | None
    moved_bytes: int
    reason: str


# By identity: an operator's own hash is computed in Python, as long as the rest of a step takes.
_kinds: dict[int, _Kind] = {}
_known: dict[Any, _Known] = {}
_known_version = -1


class Unknown(NamedTuple):
    """One operator without a formula: how often, with which shapes, where."""

    reason: str
    shapes: list[tuple[tuple[int, ...], ...]]
    modules: list[list[int]]
    calls: list[int]


class AttentionSeen(BaseException):
    """Attention came taken apart: the run is to be made again with its fused form (no `except Exception` stops it)."""


class Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what runs while it is entered. `paused` lets operators through uncounted."""

    supports_higher_order_operators = True

    def __init__(self, watch: Watch, lifetimes: Lifetimes, *, stop_at_attention: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.watch = watch
        self.lifetimes = lifetimes
        self.unknown: dict[str, Unknown] = {}
        self.paused = False
        self.stop_at_attention = stop_at_attention
        _drop_stale()
        if not hasattr(TorchDispatchMode, "supports_higher_order_operators"):
            _teach_higher_order()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # the guard would import the whole compiler at the first operator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kind = _kinds.get(id(func))
        if kind is None:
            kind = _kinds[id(func)] = _kind_of(func)
        if kind.free:  # a view makes and moves nothing
            return func(*args, **kwargs) if kwargs else func(*args)
        kwargs = kwargs or {}
        if kind.creates:
            if kind.name == "aten::empty" and kwargs.get("device") == _META:
                if args[0] == [0] and not _is_grad_enabled():
                    return _no_elements(kwargs.get("dtype") or torch.get_default_dtype())
                out = func(*args, **kwargs)
            else:
                out = self._run(func, kind, args, kwargs)[0]
            self._made(out)
            return out
        if kind.name == "aten::_safe_softmax" and self.stop_at_attention:
            raise AttentionSeen
        form = _form((args, tuple(kwargs.items())) if kwargs else args)
        known = _known.get((id(func), form)) if form is not None else None
        if known is None:
            out, args, kwargs, remember = self._run(func, kind, args, kwargs)
            known = _learn(func, kind, args, kwargs, out)
            if remember and form is not None:
                if len(_known) >= _KEPT_MOST:
                    _known.clear()
                _known[id(func), form] = known if kind.fresh else known._replace(results=None)
        elif known.results is not None:  # only operators on tensors without data are remembered
            out = _made(known.results)
        else:
            out = args[0] if kind.in_place else func(*args, **kwargs)
        if not self.paused:
            self._count(kind, known, args, kwargs, out)
        return out

    def _run(self, func: Any, kind: _Kind, args: Any, kwargs: Any) -> tuple[Any, Any, Any, bool]:
        """Run the operator, on meta if anything in it is; says also whether its form tells all about it."""
        without, with_data = _data_in(args, kwargs)
        if not without:
            return _run_with_data(func, kind, args, kwargs), args, kwargs, False
        if with_data:
            args, kwargs = _drop_data(func, args, kwargs)
        if kind.needs_data:
            raise NotImplementedError(f"{kind.name} needs the values of a tensor that has none")
        shortcut = SHORTCUTS.get(kind.name) if kind.fresh else None
        form = shortcut(*args, **kwargs) if shortcut is not None else None
        out = _made(form) if form is not None else func(*args, **kwargs)
        return out, args, kwargs, not with_data

    def _count(self, kind: _Kind, known: _Known, args: Any, kwargs: Any, out: Any) -> None:
        watch = self.watch
        node = watch.node() if watch.backward else watch.innermost()
        if kind.in_place:
            made = 0
        elif type(out) is torch.Tensor:
            made = self.lifetimes.saw(out)
        else:
            made = sum([self.lifetimes.saw(t) for t in tensors_of(out)])
        if made and not watch.backward:
            node.made_bytes += made
        macs, flops = known.cost or (0, 0)
        totals = node.costs.get(name := (kind.name, watch.backward))
        if totals is None:
            node.costs[name] = [1, macs, flops, known.moved_bytes]
        else:
            totals[0] += 1
            totals[1] += macs
            totals[2] += flops
            totals[3] += known.moved_bytes
        if known.cost is None:
            self._note_unknown(kind.name, known.reason, args, kwargs)

    def _note_unknown(self, name: str, reason: str, args: Any, kwargs: Any) -> None:
        unknown = self.unknown.setdefault(name, Unknown(reason, [], [], []))
        unknown.calls.append(1)
        if len(unknown.shapes) < 4 and (shapes := shapes_of((args, kwargs))) not in unknown.shapes:
            unknown.shapes.append(shapes)
        if (path := self.watch.path()) not in unknown.modules:
            unknown.modules.append(path)

    def _made(self, out: Any) -> None:
        """Note the memory of new tensors."""
        made = sum(self.lifetimes.saw(t) for t in tensors_of(out))
        if not self.watch.backward:
            self.watch.node().made_bytes += made


def _teach_higher_order() -> None:
    """Before torch 2.10 no mode is given operators that take functions (`flex_attention`) unless each knows the mode."""
    for func in torch._ops._higher_order_ops.values():
        if Counter not in func.python_key_table:
            func.py_impl(Counter)(partial(_given_by, func))


def _given_by(func: Any, mode: Counter, *args: Any, **kwargs: Any) -> Any:
    return mode.__torch_dispatch__(func, (), args, kwargs)


def _drop_stale() -> None:
    global _known_version
    if _known_version != version():
        _known.clear()
        _known_version = version()


def _kind_of(func: Any) -> _Kind:
    if not isinstance(func, torch._ops.OpOverload):  # a higher order operator
        name = func.name() if callable(getattr(func, "name", None)) else str(getattr(func, "_name", func))
        return _Kind(func, f"higher_order::{name}", False, False, False, False, False, False)
    name = str(func.name()).partition(".")[0]  # type: ignore[no-untyped-call]
    fresh = all(r.alias_info is None for r in func._schema.returns) and bool(func._schema.returns)
    needs_data = torch.Tag.data_dependent_output in func.tags
    free = (
        bool(func.is_view)
        or torch.Tag.inplace_view in func.tags
        or name
        in (
            "aten::detach",
            "aten::alias",
            "aten::lift_fresh",
            "aten::_unsafe_view",
        )
    )
    takes_device = any(a.name == "device" for a in func._schema.arguments)
    in_place = name.endswith("_") and torch.Tag.pointwise in func.tags
    creates = name in CREATES and name != "aten::fill" and not name.endswith("_")
    return _Kind(func, name, fresh and not free, free, needs_data, takes_device, in_place, creates)


def _form(value: Any) -> Any:
    """The shapes, strides, types and scalars of arguments as a hashable value; None if something else is in them."""
    parts: list[Any] = []
    for item in value:
        t = type(item)
        if t in _PLAIN:
            if not item.is_meta:
                return None
            parts.append((item.shape, item.stride(), item.dtype))
        elif t in _AS_THEY_ARE:
            parts.append(item)
        elif t is list or t is tuple:
            inside = tuple(item) if item and type(item[0]) is int else _form(item)  # all of them, then
            if inside is None:
                return None
            parts.append(inside)
        elif t is float:
            parts.append((t, item))
        else:
            return None
    return tuple(parts)


_AS_THEY_ARE = frozenset(
    (int, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
)


def _made(form: Any) -> Any:
    """New meta tensors of the remembered form."""
    if form[0] != "several":
        return _empty_strided(form[1], form[2], dtype=form[3], device=_META)
    return tuple([None if f is None else _one(f) for f in form[1]])


def _one(form: Any) -> torch.Tensor:
    if form[1] == _NO_ELEMENTS and not _is_grad_enabled():
        return _no_elements(form[3])
    return _empty_strided(form[1], form[2], dtype=form[3], device=_META)


def _no_elements(dtype: torch.dtype) -> torch.Tensor:
    """What batch norm keeps for a backward pass that will not come: one for all, it is never looked at."""
    shared = _nothing.get(dtype)
    if shared is None:
        shared = _nothing[dtype] = torch.empty(0, dtype=dtype, device=_META)
    return shared


_NO_ELEMENTS = (0,)
_nothing: dict[torch.dtype, torch.Tensor] = {}
_empty_strided = torch.empty_strided
_is_grad_enabled = torch.is_grad_enabled


def form_of(out: Any) -> Any:
    """What `_made` needs to make `out` again; None if it is not made of plain meta tensors."""
    if type(out) in _PLAIN:
        return (0, out.shape, out.stride(), out.dtype) if out.is_meta else None
    if type(out) is tuple and out and all(o is None or (type(o) in _PLAIN and o.is_meta) for o in out):
        return ("several", tuple(None if o is None else (0, o.shape, o.stride(), o.dtype) for o in out))
    return None


def _learn(func: Any, kind: _Kind, args: Any, kwargs: Any, out: Any) -> _Known:
    reason = "no formula"
    try:
        cost = cost_of(func if isinstance(func, torch._ops.OpOverload) else kind.name, args, kwargs, out)
    except (AttributeError, IndexError, KeyError, TypeError, RuntimeError, StopIteration) as problem:
        cost, reason = None, f"its formula failed: {type(problem).__name__}: {problem}"
    try:
        moved = moved_bytes(args, kwargs, out)
    except (RuntimeError, NotImplementedError):  # nested and sparse tensors do not say
        moved = 0
    return _Known(form_of(out), cost, moved, reason)


def _data_in(args: Any, kwargs: Any) -> tuple[bool, bool]:
    """Whether tensors without data, and whether tensors with data, are among the arguments."""
    without = with_data = False
    for tensor in tensors_of((args, kwargs)):
        if tensor.is_meta:
            without = True
        else:
            with_data = True
    return without, with_data


def _run_with_data(func: Any, kind: _Kind, args: Any, kwargs: Any) -> Any:
    """Operators on tensors with data, and factories: what is small and of whole numbers has data, even on meta."""
    on_meta = kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "meta"
    given = tensors_of(args)
    if given:  # a small constant sent to where the model is keeps its data
        keep = on_meta and sum(t.numel() for t in given) <= SMALL
        return func(*args, **({**kwargs, "device": None} if keep else kwargs))
    if (
        not kind.takes_device
        or kwargs.get("generator") is not None
        or (on_meta and kind.name == "aten::empty")
    ):
        return func(*args, **kwargs)
    probe = func(*args, **{**kwargs, "device": _META})
    if not isinstance(probe, torch.Tensor) or probe.numel() > SMALL:
        return probe
    if on_meta and (probe.is_floating_point() or probe.is_complex()):
        return probe
    return func(*args, **({**kwargs, "device": "cpu"} if on_meta else kwargs))


def _drop_data(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments with every tensor on meta; masks used as an index become the positions they select."""
    if "index" in func.name().partition(".")[0] and len(args) > 1 and isinstance(args[1], list | tuple):
        positions: list[Any] = []
        for index in args[1]:
            if (
                isinstance(index, torch.Tensor)
                and index.dtype in (torch.bool, torch.uint8)
                and not index.is_meta
            ):
                positions.extend(index.nonzero(as_tuple=True))
            else:
                positions.append(index)
        args = (args[0], positions, *args[2:])
    return _without(args), {name: _without(value) for name, value in kwargs.items()}


def _without(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value if value.is_meta else value.to("meta")
    if type(value) in (list, tuple):
        return type(value)(_without(item) for item in value)
    return value
