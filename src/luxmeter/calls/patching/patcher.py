"""Puts the recorder's stand-ins in place of a framework's callables, and takes them out again, exactly."""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from luxmeter.calls import frameworks, processes
from luxmeter.calls.patching import aliases, survivors
from luxmeter.calls.patching.bindings import ABSENT, Binding
from luxmeter.calls.patching.filters import Filter
from luxmeter.calls.patching.suspended import Stretch, Suspended, suspended_imports
from luxmeter.calls.records import OPENS
from luxmeter.calls.targets import SILENT, Coverage, Target, Unseen, left_out_for, told
from luxmeter.errors import LuxmeterError, TraceError, warn_once

if TYPE_CHECKING:
    from luxmeter.calls.core._core import Recorder


class Names(Protocol):
    """Keeps what ids stand for; the recorder knows only numbers."""

    def add(
        self,
        name: str,
        *,
        label: str = "",
        kind: int = 0,
        path: str = "",
        module: bool = False,
        record: bool = True,
        boundary: bool = False,
        framework: str = "",
    ) -> int:
        """A new callable id of the recorder."""

    def child_token(self) -> Any:
        """What a spawned worker needs to join the trace; None when it cannot."""


class Framework(Protocol):
    """What the patcher has to know about torch or MindSpore."""

    def targets(self) -> Iterable[Target]:
        """Everything to replace, as it is now."""

    def left_out(self) -> Sequence[Unseen]:
        """What could not be listed in this version, or found when it was put in place."""

    def coverage(self, left_out: Sequence[Unseen] = ()) -> Coverage:
        """What is seen and what is not, for one of these reasons or of its own."""

    def known_names(self) -> Iterator[tuple[str, str]]:
        """(name, label) of all that can turn up in a trace."""

    def stand_in(self, target: Target, original: Any, patcher: Patcher) -> Any:
        """What takes the place of `original`."""

    def instances(self, patcher: Patcher) -> Iterator[Binding]:
        """Names bound in instances that are known at the start."""

    def removed(self) -> None:
        """The stand-ins were taken out."""

    def after_fork(self) -> None:
        """In a forked child, where this thread is the only one, with all stand-ins in place."""


_lock = threading.Lock()
_installed: Patcher | None = None


def installed() -> Patcher | None:
    """The patcher whose stand-ins are in place in this process."""
    return _installed


def prepare(framework: str = "torch") -> None:
    """Do now what the first `install` of the process would have to do: list the targets, read the modules' functions."""
    frameworks.make_all(framework)
    list(aliases.in_defaults({}))


def coverage(framework: str = "torch", *, also: Sequence[str] = ()) -> Coverage:
    """Which public callables a trace would see, which not, and why."""
    made, left_out = frameworks.make_all(framework, also)
    return _joined([each.coverage() for each in made.values()], left_out)


def original_of(value: Any) -> Any:
    """What `value` stands in for, or itself."""
    patcher = _installed
    return patcher.original_of(value) if patcher is not None else value


class Patcher:
    """One set of stand-ins for one recorder. Everything that can be refused is refused here, before `install`."""

    def __init__(
        self,
        recorder: Recorder,
        names: Names,
        *,
        also: Sequence[str] = (),
        only: Sequence[str] = (),
        skip: Sequence[str] = (),
        framework: str = "torch",
        waits: bool = False,
        run_worker: Callable[..., Any] | None = None,
        during: Callable[[str], AbstractContextManager[None]] = lambda _: contextlib.nullcontext(),
    ) -> None:
        self.recorder = recorder
        self.during = during  # what torch.compile prepares, and imports, are done in there
        self.waits = waits  # whether the recorder waits for the device after each call
        self.run_worker = (
            run_worker  # (token, module, name, *args): a DataLoader worker's loop, recorded; None: left alone
        )
        self.names = names
        self.filter = Filter(only=only, skip=skip)
        self._also = tuple(also)
        self._frameworks, self.left_out = frameworks.make_all(framework, also)
        awaited = frameworks.awaited(framework)
        if (only or skip) and not awaited:
            self.filter.check(pair for each in self._frameworks.values() for pair in each.known_names())
        elif only or skip:  # names of a framework that is not here yet cannot be checked
            known = (pair for each in self._frameworks.values() for pair in each.known_names())
            self.filter.check(known, unless=awaited)
        self._opening: int | None = None
        self._ids: dict[tuple[str, str, bool, str, Hashable], int] = {}
        self._ids_lock = threading.Lock()
        self._bindings: list[Binding] = []
        self._targets: dict[tuple[int, str], tuple[Target, Framework]] = {}  # by owner of the name
        self._stand_ins: dict[int, tuple[Any, Any]] = {}  # id(original) -> (original, stand-in)
        self._ours: dict[int, tuple[Any, Any]] = {}  # id(stand-in) -> (original, stand-in)
        self._imports = suspended_imports(
            (*self._frameworks, *awaited), self.suspended, awaited, self.arrived, during
        )
        self._suspended = Suspended(self._take_all, self._put_all)
        self.spawned: processes.Spawned | None = None

    @property
    def frameworks(self) -> tuple[str, ...]:
        """Whose stand-ins these are."""
        return tuple(self._frameworks)

    # -- in and out

    def install(self) -> None:
        """Replace every target and every name that is bound to one.

        What does not fit this version of the framework is left out, and told in `left_out`. All the rest or, when
        nothing at all can be seen, nothing.
        """
        global _installed
        with _lock:
            if _installed is not None:
                raise TraceError(
                    "already-tracing",
                    "Another trace of this process is running.",
                    "Stop it first, or use its section() to time a part.",
                )
            _installed = self
        try:
            for framework in self._frameworks.values():
                self._put(framework)
            self._check_sight()
            self._imports.put()
            with self._leaving_out("processes that multiprocessing spawns"):
                self._watch_spawning()
        except BaseException:
            self.remove()
            raise

    def _put(self, framework: Framework) -> None:
        for target in framework.targets():
            try:
                self._replace(target, framework)
            except (LuxmeterError, MemoryError):
                raise
            except Exception as error:  # noqa: BLE001 - as in _leaving_out, which would take longer for thousands
                self.left_out.append(left_out_for(target.name, error))
        with self._leaving_out("names that modules took with `from ... import`"):
            self._replace_aliases()
        with self._leaving_out("names bound in instances"):
            for binding in framework.instances(self):
                self.bind(binding)
        self.left_out.extend(framework.left_out())

    @contextlib.contextmanager
    def _leaving_out(self, name: str) -> Iterator[None]:
        """What does not fit this version of the framework is left out, and told; the rest goes on."""
        try:
            yield
        except (LuxmeterError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the other parts work
            self.left_out.append(left_out_for(name, error))

    def _check_sight(self) -> None:
        if self._frameworks and all(target.form in SILENT for target, _ in self._targets.values()):
            said = told(self.left_out) or ["there is nothing to replace"]
            raise TraceError(
                "nothing-to-trace",
                f"No call of {' or '.join(self._frameworks)} can be seen; {said[0]}.",
                "Use a version that was tested: docs/versions.md names them.",
            )

    def _watch_spawning(self) -> None:
        """Children that multiprocessing spawns join the trace."""
        token = self.names.child_token()
        if token is not None:
            from multiprocessing import spawn

            original = spawn.get_preparation_data
            self.spawned = processes.Spawned(original, token)
            self._bindings.append(Binding(vars(spawn), "get_preparation_data", original, self.spawned))
            self._bindings[-1].put()

    def arrived(self, name: str) -> None:
        """A framework was imported while the stand-ins are in place: it gets its own. Another trace's business: not."""
        if not self.in_place or name in self._frameworks:
            return
        try:
            framework = self._frameworks[name] = frameworks.make(name, self._also)
            self._put(framework)
        except Exception as error:  # noqa: BLE001 - the program imports a framework, and must not fail for being traced
            warn_once(
                "framework-not-traced",
                f"{name} was imported while a trace ran, and its calls are not timed: {error}",
                f"Import {name} before the trace starts to see the error.",
            )

    def remove(self) -> None:
        """Bind everything as it was before `install`. Modules that were imported meanwhile are set right too."""
        global _installed
        self._imports.remove()
        try:
            for framework in self._frameworks.values():
                framework.removed()
        finally:
            for binding in reversed(self._bindings):
                binding.take()
                del binding  # and with it the last stand-in
            self._bindings.clear()
            self._take_strays()
            self._stand_ins.clear()
            # What stands for a name that only inherited has no original that could be given back.
            survivors.put_back({key: pair for key, pair in self._ours.items() if pair[0] is not ABSENT})
            with _lock:
                if _installed is self:
                    _installed = None

    def suspended(self) -> Stretch:
        """Out of the way while a program is captured (fx, export, jit): all of the stand-ins, on all threads."""
        return self._suspended()

    def after_fork(self) -> None:
        """In a forked child: other threads are gone, with their locks and with what they had begun."""
        global _lock
        _lock, self._ids_lock = threading.Lock(), threading.Lock()
        self._suspended.after_fork()
        if self.spawned is not None:
            self.spawned.n = 0
        if self.in_place:
            self._put_all(imported=False)
            for framework in self._frameworks.values():
                framework.after_fork()

    def coverage(self) -> Coverage:
        """Which public callables are seen, which not, and why."""
        parts = [framework.coverage(self.left_out) for framework in self._frameworks.values()]
        return _joined(parts, self.left_out)

    # -- for the framework

    def id_for(
        self,
        name: str,
        *,
        span: bool = False,
        label: str = "",
        path: str = "",
        module: bool = False,
        boundary: bool = False,
        framework: str = "torch",
        settings: Hashable = None,
    ) -> int:
        """The id of a callable of this name (and path and settings, for a module): one id for the same words."""
        key = (name, path, span, framework, settings)
        with self._ids_lock:
            found = self._ids.get(key)
            if found is None:
                found = self._ids[key] = self.names.add(
                    name,
                    label=label,
                    kind=1 if span else 0,
                    path=path,
                    module=module,
                    record=self.filter.keeps(name, label),
                    boundary=boundary,
                    framework=framework,
                )
            return found

    def hidden_id(self, name: str) -> int:
        """The id of a callable that counts as open and leaves no event."""
        return self.names.add(name, record=False)

    def opening_id(self) -> int:
        """The id of what leaves no event, and in which the program's own calls are its own again."""
        with self._ids_lock:
            if self._opening is None:
                self._opening = self.names.add("closure", kind=OPENS)
            return self._opening

    def bind(self, binding: Binding) -> None:
        """Put a binding in place and remember to undo it."""
        self._bindings.append(binding)
        if not self._suspended:
            try:
                binding.put()
            except Exception:
                self._bindings.remove(binding)
                raise
        self._remember(binding.before, binding.after)

    def rebind(self, binding: Binding) -> None:
        """As `bind`, for a name that is already replaced: what is restored at the end is `binding.before`."""
        self._bindings = [
            old
            for old in self._bindings
            if not (old.owner is binding.owner and old.attribute == binding.attribute)
        ]
        self.bind(binding)

    @property
    def in_place(self) -> bool:
        """Whether the stand-ins are bound now."""
        return _installed is self and not self._suspended

    def bindings_of(self, ids: set[int]) -> Iterator[Binding]:
        """The bindings that replace an object, or a function whose code is an object, with one of these ids."""
        for binding in self._bindings:
            before = binding.before if binding.before is not ABSENT else self.original_of(binding.after)
            parts = before if binding.attribute == "__defaults__" else (before,)
            if any(id(part) in ids or id(getattr(part, "__code__", None)) in ids for part in parts):
                yield binding

    def remember(self, original: Any, stand_in: Any) -> None:
        """A stand-in that was handed out: names that the user bound it to get the original back at the end."""
        self._ours[id(stand_in)] = (original, stand_in)

    def is_stand_in(self, value: Any) -> bool:
        """Whether `value` is one of this patcher's stand-ins."""
        found = self._ours.get(id(value))
        return found is not None and found[1] is value

    def original_of(self, value: Any) -> Any:
        """What a stand-in of this patcher stands in for; any other value itself."""
        return self._ours[id(value)][0] if self.is_stand_in(value) else value

    def stand_in_for(self, value: Any) -> Any:
        """The stand-in of an original, or None."""
        found = self._stand_ins.get(id(value))
        return found[1] if found is not None and found[0] is value else None

    # -- inside

    def _take_all(self) -> None:
        for binding in reversed(self._bindings):
            binding.take()

    def _put_all(self, imported: bool) -> None:
        if _installed is not self:
            return
        if imported:
            self._sort_strays()  # while a stand-in was in somebody's hands
        refused = [binding for binding in self._bindings if not binding.put()]
        for binding in refused:
            self._renew(binding)

    def _replace(self, target: Target, framework: Framework) -> None:
        owner: Any = target.owner
        before = vars(owner).get(target.attribute, ABSENT)
        original = before if before is not ABSENT else inspect.getattr_static(owner, target.attribute)
        stand_in = framework.stand_in(target, original, self)
        if stand_in is None:
            return
        place: Any = owner if isinstance(owner, type) else vars(owner)
        # One descriptor may serve several operators (neg and __neg__): only the plain name speaks for it elsewhere.
        alias = not (isinstance(owner, type) and target.attribute.startswith("__"))
        binding = Binding(place, target.attribute, before, stand_in)
        self._bindings.append(binding)
        try:
            binding.put()
        except Exception:  # a class that cannot be changed: its other names keep the original too
            self._bindings.remove(binding)
            raise
        self._remember(original, stand_in, alias=alias)
        self._targets[id(place), target.attribute] = target, framework

    def _renew(self, binding: Binding) -> None:
        """The framework replaced its own function while the stand-ins were suspended: the new one gets a stand-in too.

        Dynamo does so at the first compilation of a process: with Tracer.trace, torch.jit.trace, steps of optimizers.
        """
        found = self._targets.get((id(binding.owner), binding.attribute))
        if found is None:
            return
        now = binding.now()
        if now is ABSENT or now is binding.after:
            return
        if str(getattr(now, "__module__", "")).partition(".")[0] in self._frameworks:
            self._bindings.remove(binding)
            self._replace(*found)

    def _remember(self, original: Any, stand_in: Any, *, alias: bool = True) -> None:
        self._ours[id(stand_in)] = (original, stand_in)
        if alias and original is not ABSENT:
            self._stand_ins[id(original)] = (original, stand_in)

    def _replace_aliases(self) -> None:
        for namespace, name, original in aliases.bound(self._stand_ins):
            binding = Binding(namespace, name, original, self._stand_ins[id(original)][1])
            self._bindings.append(binding)
            binding.put()
        for function in aliases.in_defaults(self._stand_ins):
            before = function.__defaults__
            assert before is not None
            after = tuple(self.stand_in_for(value) or value for value in before)
            binding = Binding(function, "__defaults__", before, after)
            self._bindings.append(binding)
            binding.put()

    def _strays(self) -> Iterator[tuple[dict[str, Any], str, Any, Any]]:
        """Stand-ins that a module bound by itself since `install`: its namespace, the name, original and stand-in."""
        for namespace, name, stand_in in list(aliases.bound(self._ours)):
            original = self._ours[id(stand_in)][0]
            if original is not ABSENT:
                yield namespace, name, original, stand_in

    def _take_strays(self) -> None:
        for namespace, name, original, _ in self._strays():
            namespace[name] = original

    def _sort_strays(self) -> None:
        """The framework's own modules get the original for good; the user's `from torch import relu` stays timed."""
        for namespace, name, original, stand_in in self._strays():
            if str(namespace.get("__name__", "")).split(".")[0] in self._frameworks:
                namespace[name] = original
            else:
                self._bindings.append(Binding(namespace, name, original, stand_in))


def _joined(parts: Sequence[Coverage], left_out: Sequence[Unseen]) -> Coverage:
    unseen = dict.fromkeys((*(entry for part in parts for entry in part.unseen), *left_out))
    gone = {entry.name for entry in left_out}
    return Coverage(tuple(name for part in parts for name in part.seen if name not in gone), tuple(unseen))
