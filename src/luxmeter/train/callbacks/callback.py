"""Callbacks: plain objects with the methods they need, called in a defined order."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from luxmeter.errors import UsageError, suggestion

if TYPE_CHECKING:
    from types import TracebackType

    from luxmeter.train.trainer import Trainer

C = TypeVar("C", bound="Callback")
Hook = Callable[..., Any]
# What can be hooked: each is called with the trainer and what stands behind it.
HOOKS = {
    "setup": (),
    "before_train": (),
    "after_train": (),
    "before_epoch": (),
    "after_epoch": ("meter",),
    "before_batch": ("batch",),
    "after_batch": ("result",),
    "before_eval": (),
    "after_eval": ("meter",),
    "before_test": (),
    "after_test": ("meter",),
    "on_exception": ("error",),
}
DEFAULT_PRIORITY = 50
_ONCE = ("setup", "before_train", "after_train", "on_exception")  # never filtered


class Callback:
    """What is called around a training. A subclass defines the methods it needs; any object that has them will do.

    setup (models and data are there, no checkpoint is put back yet), before_train, after_train, before_epoch, before_eval, before_test (trainer); before_batch (trainer, batch);
    after_batch (trainer, result); after_epoch, after_eval, after_test (trainer, meter); on_exception (trainer, error).
    Lower priorities come first; of equal ones the one that was hooked first. State that belongs into a checkpoint:
    state_dict() and load_state_dict().
    """

    priority = DEFAULT_PRIORITY

    def hook(
        self: C, trainer: Trainer, *, priority: int | None = None, every: int = 1, once: bool = False
    ) -> C:
        """Have it called in a trainer: with `every=n`, at each n-th batch, epoch, evaluation; `once`, at the first one."""
        trainer.callbacks.add(self, priority=priority, every=every, once=once)
        return self

    def unhook(self, trainer: Trainer) -> None:
        """Undo `hook`."""
        trainer.callbacks.remove(self)


@dataclass(frozen=True)
class Hooked:
    """A callback as it was hooked."""

    callback: Any
    priority: int
    every: int = 1
    once: bool = False

    @property
    def name(self) -> str:
        """What it is called."""
        given = getattr(self.callback, "name", None)
        return given if isinstance(given, str) and given else type(self.callback).__name__

    def methods(self) -> list[str]:
        """The hooks it has, in the order of a training."""
        return [name for name in HOOKS if callable(getattr(self.callback, name, None))]

    def hook(self, name: str) -> Hook:
        """Its method, filtered."""
        method: Hook = getattr(self.callback, name)
        if name in _ONCE or (self.every == 1 and not self.once):
            return method
        return _filtered(method, name, self.every, once=self.once)


def _filtered(method: Hook, name: str, every: int, *, once: bool) -> Hook:
    """Called at each n-th batch or epoch by their own numbers, so that a resumed training keeps the rhythm; others by count."""
    calls = 0

    @functools.wraps(method)
    def call(trainer: Trainer, *given: Any) -> Any:
        nonlocal calls
        at = trainer.position
        calls += 1
        number = {"batch": at.global_step + 1, "epoch": at.eidx}.get(name.partition("_")[2], calls)
        if number % every == 0 and not (once and number != every):
            return method(trainer, *given)
        return None

    return call


class Hooks:
    """The methods of all callbacks, in order, for each hook that anybody has: looked up once, not at every batch."""

    def __init__(self, hooked: list[Hooked]) -> None:
        self._hooks = {name: [one.hook(name) for one in hooked if name in one.methods()] for name in HOOKS}

    def __getitem__(self, name: str) -> list[Hook]:
        return self._hooks[name]

    def call(self, name: str, *given: Any) -> None:
        """Call a hook of all that have it."""
        for hook in self._hooks[name]:
            hook(*given)


class Callbacks:
    """The callbacks of a trainer, in the order they are called; print it to see them."""

    def __init__(self) -> None:
        self._hooked: list[Hooked] = []

    def add(self, callback: Any, *, priority: int | None = None, every: int = 1, once: bool = False) -> None:
        """Hook a callback: an object with any of the methods of HOOKS."""
        if isinstance(callback, type):
            raise UsageError(
                "callback-class",
                f"{callback.__name__} is a class; a callback is an object.",
                f"Hook {callback.__name__}().",
            )
        if type(every) is not int or every < 1:
            raise UsageError("callback-every", f"every={every!r} is never.", "Give a whole number from 1 on.")
        chosen = getattr(callback, "priority", DEFAULT_PRIORITY) if priority is None else priority
        hooked = Hooked(callback, chosen, every, once)
        if not hooked.methods():
            near = [
                hint
                for name in dir(callback)
                if name.startswith(("before_", "after_", "on_")) and (hint := suggestion(name, HOOKS))
            ]
            raise UsageError(
                "callback-without-hooks",
                f"{hooked.name} has none of the methods that are called.",
                near[0] if near else f"They are {', '.join(HOOKS)}.",
            )
        if any(one.callback is callback for one in self._hooked):
            raise UsageError(
                "callback-twice", f"{hooked.name} is hooked already.", "Hook another object of its class."
            )
        self._hooked.append(hooked)
        self._hooked.sort(key=lambda one: one.priority)

    def remove(self, callback: Any) -> None:
        """Take a callback out."""
        left = [one for one in self._hooked if one.callback is not callback]
        if len(left) == len(self._hooked):
            raise UsageError(
                "callback-absent",
                f"{type(callback).__name__} is not hooked.",
                f"Hooked are {', '.join(one.name for one in self._hooked) or 'none'}.",
            )
        self._hooked = left

    def find(self, kind: type) -> Any:
        """The first callback of a class; None if there is none."""
        return next((one.callback for one in self._hooked if isinstance(one.callback, kind)), None)

    def hooks(self) -> Hooks:
        """All methods, ready to be called."""
        return Hooks(self._hooked)

    def stateful(self) -> dict[str, Any]:
        """What of them belongs into a checkpoint, under a name of its own."""
        found: dict[str, Any] = {}
        for one in self._hooked:
            if callable(getattr(one.callback, "state_dict", None)):
                same = sum(1 for name in found if name.partition("#")[0] == one.name)
                found[f"{one.name}#{same + 1}" if same else one.name] = one.callback
        return found

    def blamed(self, traceback: TracebackType | None) -> str:
        """`EarlyStop.after_epoch` if an error came out of a callback; empty if not."""
        while traceback is not None:
            frame, called = traceback.tb_frame, traceback.tb_frame.f_code.co_name
            if called in HOOKS:
                for one in self._hooked:
                    method = getattr(one.callback, called, None)
                    if getattr(method, "__code__", None) is frame.f_code:
                        return f"{one.name}.{called}"
            traceback = traceback.tb_next
        return ""

    def __iter__(self) -> Iterator[Any]:
        return (one.callback for one in self._hooked)

    def __len__(self) -> int:
        return len(self._hooked)

    def __contains__(self, callback: object) -> bool:
        return any(one.callback is callback for one in self._hooked)

    def __str__(self) -> str:
        lines = []
        for one in self._hooked:
            rhythm = (f" every {one.every}" if one.every > 1 else "") + (" once" if one.once else "")
            lines.append(f"{one.priority:>4} {one.name}{rhythm}: {', '.join(one.methods())}")
        return "\n".join(lines) or "no callbacks"

    __repr__ = __str__
