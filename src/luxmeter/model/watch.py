"""Which module is at work: a tree of module calls, forward by the calls themselves, backward by autograd's order.

Autograd numbers its nodes as they are made. Noting that number whenever a module is entered or left tells, in the
backward pass, in whose forward the node at work was made.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from luxmeter.nested import tensors_of

_is_grad_enabled = torch.is_grad_enabled
_NO_SEQUENCE = 2**62  # gradient accumulation carries the largest number: it belongs to no module


NamedModules = list[tuple[str, nn.Module]]  # names and modules, in torch's order


def every_module(model: nn.Module) -> NamedModules:
    """Every name of every module, as `named_modules(remove_duplicate=False)` gives them, in a tenth of the time."""
    found: NamedModules = []
    _walk("", model, found)
    return found


def _walk(prefix: str, module: Any, found: NamedModules) -> None:
    found.append((prefix, module))
    dotted = f"{prefix}." if prefix else ""
    for name, child in module._modules.items():
        if child is not None:
            _walk(dotted + name, child, found)


def distinct_modules(modules: NamedModules) -> NamedModules:
    """Each module once, under its first name; where it stands in this list is its index."""
    first: dict[int, tuple[str, nn.Module]] = {}
    for named in modules:
        first.setdefault(id(named[1]), named)
    return list(first.values())


class CallNode:
    """A module as called from one place: its caller, and the costs met while it was innermost."""

    __slots__ = ("calls", "children", "costs", "index", "made_bytes", "time_ns")

    def __init__(self, index: int) -> None:
        self.index = index
        self.children: dict[int, CallNode] = {}
        self.calls = 0
        self.made_bytes = 0
        self.time_ns = 0
        self.costs: dict[
            tuple[str, bool], list[int]
        ] = {}  # (operator, backward) -> calls, macs, flops, bytes

    def child(self, index: int) -> CallNode:
        node = self.children.get(index)
        if node is None:
            node = self.children[index] = CallNode(index)
        return node


class Watch:
    """Follows the calls of a model's modules, given by their index."""

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        self._clock = clock  # with one, the time spent in each module is noted
        self.root = CallNode(-1)
        self.backward = False
        self.shapes: dict[int, tuple[Any, Any]] = {}  # first call's arguments and result, as shapes
        self._stack = [self.root]
        self._numbers: list[int] = []
        self._owners: list[CallNode] = []
        self._entered: set[int] = set()

    def node(self) -> CallNode:
        """Where an operator that runs now belongs."""
        if self.backward and len(self._stack) == 1:
            at_work: Any = torch._C._current_autograd_node()
            if at_work is None:
                return self.root
            number = at_work._sequence_nr()
            if number >= _NO_SEQUENCE:
                return self.root
            place = bisect_right(self._numbers, number) - 1
            return self._owners[place] if place >= 0 else self.root
        return self._stack[-1]

    def innermost(self) -> CallNode:
        """The module at work in a forward pass."""
        return self._stack[-1]

    def path(self) -> list[int]:
        """Indices of the modules at work, outermost first."""
        return [node.index for node in self._stack[1:]]

    def wrap(self, index: int, original: Callable[..., Any]) -> Callable[..., Any]:
        """`original`, with its module noted as at work while it runs."""

        def watched(*args: Any, **kwargs: Any) -> Any:
            if self._entered and self._stack[-1].index == index and index in self._entered:
                self._entered.discard(index)  # forward of the module that was just entered by its call
                return original(*args, **kwargs)
            return self._run(index, original, args, kwargs)

        watched.__wrapped__ = original  # type: ignore[attr-defined]
        return watched

    def wrap_call(self, index: int, original: Callable[..., Any]) -> Callable[..., Any]:
        """The same for a module's call, hooks included; the forward inside is not a second call."""

        def watched(*args: Any, **kwargs: Any) -> Any:
            self._entered.add(index)
            try:
                return self._run(index, original, args, kwargs)
            finally:
                self._entered.discard(index)

        watched.__wrapped__ = original  # type: ignore[attr-defined]
        return watched

    def begin(self) -> None:
        """Forget what was seen so far: a new pass starts."""
        self.root = CallNode(-1)
        self.shapes.clear()
        self._stack = [self.root]
        self._entered = set()
        self._numbers, self._owners = [], []
        self.backward = False
        if _is_grad_enabled():
            self._mark()

    def _run(
        self, index: int, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        stack, clock = self._stack, self._clock
        node = stack[-1].child(index)
        if not self.backward:
            node.calls += 1
        stack.append(node)
        if _is_grad_enabled():
            self._mark()
        start_ns = clock() if clock is not None else 0
        try:
            result = original(*args, **kwargs)
        except Exception as problem:
            if not hasattr(problem, "_luxmeter_failure"):  # the innermost is the first to see it
                problem._luxmeter_failure = (index, args, kwargs)  # type: ignore[attr-defined]
            raise
        finally:
            if clock is not None:
                node.time_ns += clock() - start_ns
            stack.pop()
            if _is_grad_enabled():
                self._mark()
        if index not in self.shapes:
            given = args[0] if len(args) == 1 and not kwargs else (args, kwargs)
            self.shapes[index] = (shapes_of(given), shapes_of(result))
        return result

    def _mark(self) -> None:
        self._numbers.append(torch._C._autograd._get_sequence_nr())
        self._owners.append(self._stack[-1])


def shapes_of(value: Any, *, limit: int = 16) -> tuple[tuple[int, ...], ...]:
    """Shapes of the tensors in `value`, at most `limit` of them."""
    if type(value) is torch.Tensor:
        return () if value.is_nested else (tuple(value.shape),)
    return tuple(tuple(t.shape) for t in tensors_of(value, in_objects=True)[:limit] if not t.is_nested)
