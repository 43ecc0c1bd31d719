"""Callbacks: plain objects with the methods they need, called in a defined order."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from luxmeter.errors import UsageError, suggestion
from luxmeter.render import NUMBER, Column, Table

if TYPE_CHECKING:
    from types import CodeType, TracebackType

    from luxmeter.train.position import Position
    from luxmeter.train.trainer import Trainer

C = TypeVar("C", bound="Callback")
T = TypeVar("T")
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


@dataclass(eq=False)
class Hooked:
    """A callback as it was hooked."""

    callback: Any
    priority: int
    every: int = 1
    once: bool = False
    is_default: bool = False  # goes when another one of its kind is hooked
    key: str = ""  # of the config that made it
    calls: dict[str, int] = field(default_factory=dict)  # of hooks that have no number of their own
    was_called: list[str] = field(default_factory=list)  # of `once`: the hooks that have had their one call

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

        @functools.wraps(method)
        def filtered(trainer: Trainer, *given: Any) -> Any:
            return method(trainer, *given) if self._is_due(name, trainer.position) else None

        return filtered

    def _is_due(self, name: str, at: Position) -> bool:
        """By the numbers of batches and epochs, so that a resumed training keeps the rhythm; of evaluations, by count."""
        self.calls[name] = self.calls.get(name, 0) + 1
        number = {"batch": at.global_step + 1, "epoch": at.eidx}.get(name.partition("_")[2], self.calls[name])
        if number % self.every or (self.once and name in self.was_called):
            return False
        if self.once:
            self.was_called.append(name)
        return True


class Blamed(NamedTuple):
    """A callback that failed: its name, the hook, and the key of the config that made it."""

    name: str
    hook: str
    key: str

    @property
    def text(self) -> str:
        """`EarlyStop.after_epoch`."""
        return f"{self.name}.{self.hook}"


class Hooks(dict[str, tuple[Hook, ...]]):
    """Hook -> the methods of all callbacks that have it, in order. Looked up when a callback comes or goes, not at every batch."""

    def __init__(self) -> None:
        super().__init__((name, ()) for name in HOOKS)
        self.names: dict[str, tuple[str, ...]] = dict.fromkeys(HOOKS, ())

    def call(self, name: str, *given: Any) -> None:
        """Call a hook of all that have it."""
        for hook in self[name]:
            hook(*given)

    def call_rest(self, name: str, called: list[str], *given: Any) -> None:
        """The same without those that were called already; each is added to `called`."""
        for who, hook in zip(self.names[name], self[name], strict=True):
            if who not in called:
                hook(*given)
                called.append(who)


class Callbacks:
    """The callbacks of a trainer, in the order they are called; print it to see them."""

    def __init__(self) -> None:
        self.hooks = Hooks()  # always those of now
        self._hooked: list[Hooked] = []
        self._named: list[tuple[str, Hooked]] = []  # each with a name that no other has

    def add(
        self, callback: Any, *, priority: int | None = None, every: int = 1, once: bool = False, key: str = ""
    ) -> None:
        """Hook a callback: an object with any of the methods of HOOKS. It takes the place of the trainer's own of its kind.

        `key`: where a config says it, for messages.
        """
        hooked = self._checked(callback, priority, every, once)
        hooked.key = key
        of_trainer = [
            one for one in self._hooked if one.is_default and isinstance(callback, type(one.callback))
        ]
        self._arrange([*(one for one in self._hooked if one not in of_trainer), hooked])

    def add_default(self, callback: Any) -> None:
        """Hook a callback of the trainer's own, unless one of its kind is here."""
        if self.find(type(callback)) is None:
            hooked = self._checked(callback, None, 1, False)
            hooked.is_default = True
            self._arrange([*self._hooked, hooked])

    def remove(self, callback: Any) -> None:
        """Take a callback out."""
        left = [one for one in self._hooked if one.callback is not callback]
        if len(left) == len(self._hooked):
            raise UsageError(
                "callback-absent",
                f"{type(callback).__name__} is not hooked.",
                f"Hooked are {', '.join(one.name for one in self._hooked) or 'none'}.",
            )
        self._arrange(left)

    def find(self, kind: type[T]) -> T | None:
        """The first callback of a class; None if there is none."""
        return next((one.callback for one in self._hooked if isinstance(one.callback, kind)), None)

    def is_default(self, callback: Any) -> bool:
        """Whether the trainer itself hooked it."""
        return any(one.callback is callback and one.is_default for one in self._hooked)

    def stateful(self) -> dict[str, Any]:
        """What of them belongs into a checkpoint, under a name of its own."""
        return {
            name: one.callback
            for name, one in self._named
            if callable(getattr(one.callback, "state_dict", None))
            and callable(getattr(one.callback, "load_state_dict", None))
        }

    def rhythm(self) -> dict[str, Any]:
        """What `every` and `once` have counted, for a checkpoint."""
        return {
            name: {"calls": dict(one.calls), "was_called": list(one.was_called)}
            for name, one in self._named
            if one.calls
        }

    def keep_rhythm(self, saved: Mapping[str, Any]) -> None:
        """Go on counting from what `rhythm` gave."""
        for name, one in self._named:
            if name in saved:
                one.calls, one.was_called = dict(saved[name]["calls"]), list(saved[name]["was_called"])

    def blamed(self, traceback: TracebackType | None, others: tuple[Any, ...] = ()) -> Blamed | None:
        """The callback that an error came out of; None if of none, or out of one of `others` that it called."""
        methods: dict[CodeType, Blamed | None] = {}
        for one in self._hooked:
            for name in one.methods():
                code = getattr(getattr(one.callback, name), "__code__", None)
                if code is not None:
                    methods[code] = Blamed(one.name, name, one.key)
        for other in others:
            if (code := getattr(other, "__code__", None)) is not None:
                methods[code] = None
        blamed: Blamed | None = None
        while traceback is not None:
            blamed = methods.get(traceback.tb_frame.f_code, blamed)
            traceback = traceback.tb_next
        return blamed

    def _checked(self, callback: Any, priority: Any, every: Any, once: bool) -> Hooked:
        if isinstance(callback, type):
            raise UsageError(
                "callback-class",
                f"{callback.__name__} is a class; a callback is an object.",
                f"Hook {callback.__name__}().",
            )
        if type(every) is not int or every < 1:
            raise UsageError(
                "callback-every", f"every={every!r} means never.", "Give a whole number from 1 on."
            )
        chosen = getattr(callback, "priority", DEFAULT_PRIORITY) if priority is None else priority
        hooked = Hooked(callback, chosen, every, once)
        if isinstance(chosen, bool) or not isinstance(chosen, int | float):
            raise UsageError(
                "callback-priority",
                f"The priority of {hooked.name} is {chosen!r}.",
                "Give a number: lower ones are called first, 50 is usual.",
            )
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
        if callback in self:
            raise UsageError(
                "callback-twice", f"{hooked.name} is hooked already.", "Hook another object of its class."
            )
        return hooked

    def _arrange(self, hooked: list[Hooked]) -> None:
        self._hooked = sorted(hooked, key=lambda one: one.priority)
        self._named = _named(self._hooked)
        for hook in HOOKS:
            having = [(name, one) for name, one in self._named if callable(getattr(one.callback, hook, None))]
            self.hooks.names[hook] = tuple(name for name, _ in having)
            self.hooks[hook] = tuple(one.hook(hook) for _, one in having)

    def __iter__(self) -> Iterator[Any]:
        return (one.callback for one in self._hooked)

    def __len__(self) -> int:
        return len(self._hooked)

    def __contains__(self, callback: object) -> bool:
        return any(one.callback is callback for one in self._hooked)

    def __str__(self) -> str:
        if not self._hooked:
            return "no callbacks yet: initial_exp hooks the Trainer's own"
        rows = [
            (one.priority, name, "once" if one.once else "", one.every, ", ".join(one.methods()))
            for name, one in self._named
        ]
        columns = (
            Column("priority", NUMBER),
            Column("callback"),
            Column("once", hidden="empty"),
            Column("every", NUMBER, hidden="same" if all(one.every == 1 for one in self._hooked) else ""),
            Column("called"),
        )
        return Table(columns, rows).text()

    __repr__ = __str__


def _named(hooked: list[Hooked]) -> list[tuple[str, Hooked]]:
    """Each with a name that no other has: `Metrics`, `ModelCheckpoint`, `ModelCheckpoint#2`."""
    found: list[tuple[str, Hooked]] = []
    for one in hooked:
        same = sum(1 for _, other in found if other.name == one.name)
        found.append((f"{one.name}#{same + 1}" if same else one.name, one))
    return found
