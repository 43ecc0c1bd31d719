"""The stand-ins of the Python core: they call through the recorder and look like what they wrap."""

from __future__ import annotations

import copy
import sys
from types import MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from luxmeter.calls.core._pycore import Recorder


def reduce(wrapper: Any) -> Any:
    """Pickled by the name it stands for if that name leads to it, otherwise as what it wraps.

    Either way nothing of this package is needed to read it again: copy.copy of a function is the function.
    """
    wrapped = wrapper.__wrapped__
    found: Any = sys.modules.get(getattr(wrapped, "__module__", None) or "")
    name = getattr(wrapped, "__qualname__", "")
    for part in name.split("."):
        found = getattr(found, part, None)
    return name if found is wrapper else (copy.copy, (wrapped,))


class PlainWrapper:
    """Stands in for a callable that does not bind as a method (builtin functions)."""

    __slots__ = ("__dict__", "__weakref__", "_callable_id", "_recorder", "_resolve", "_through", "_wrapped")
    _recorder: Recorder
    _wrapped: Any
    _through: Any
    _callable_id: int
    _resolve: Callable[[Any], int] | None

    def __init__(
        self,
        recorder: Recorder,
        function: Any,
        through: Any,
        callable_id: int,
        resolve: Callable[[Any], int] | None,
    ) -> None:
        keep = object.__setattr__  # every other attribute is set on what it wraps
        keep(self, "_recorder", recorder)
        keep(self, "_wrapped", function)
        keep(self, "_through", through)
        keep(self, "_callable_id", callable_id)
        keep(self, "_resolve", resolve)
        # Found on the type before __getattr__ is asked: an entry of the instance comes first.
        for name in ("__module__", "__doc__"):
            self.__dict__[name] = getattr(function, name, None)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        recorder, callable_id = self._recorder, self._callable_id
        if not recorder._running:
            return self._through(*args, **kwargs)
        if self._resolve is not None and args:
            callable_id = recorder._resolve(self, args[0])
        if callable_id < 0:
            return self._through(*args, **kwargs)
        return recorder._call(callable_id, self._through, args, kwargs)

    @property
    def __wrapped__(self) -> Any:
        return self._wrapped

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # isinstance() then agrees with what it wraps
        return type(self._wrapped)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._wrapped, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._wrapped, name)

    def __hash__(self) -> int:
        return hash(self._wrapped)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PlainWrapper):
            other = other._wrapped
        return bool(self._wrapped is other or self._wrapped == other)

    def __repr__(self) -> str:
        return repr(self._wrapped)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return reduce(self)

    def __copy__(self) -> PlainWrapper:
        return self

    def __deepcopy__(self, memo: object) -> PlainWrapper:
        return self


class Wrapper(PlainWrapper):
    """Stands in for a callable that binds as a method (functions, method descriptors)."""

    __slots__ = ()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)


class PropertyWrapper:
    """Stands in for a property or getset descriptor."""

    __slots__ = ("__dict__", "__weakref__", "_callable_id", "_get", "_recorder", "_wrapped")

    def __init__(self, recorder: Recorder, descriptor: Any, callable_id: int) -> None:
        self._recorder = recorder
        self._wrapped = descriptor
        self._get = descriptor.__get__
        self._callable_id = callable_id
        self.__dict__["__doc__"] = descriptor.__doc__

    @property
    def __wrapped__(self) -> Any:
        return self._wrapped

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self._wrapped
        recorder = self._recorder
        if not recorder._running or self._callable_id < 0:
            return self._get(instance, owner)
        # The owner is no argument of the user's: it takes no part in the signature.
        return recorder._call(self._callable_id, self._get, (instance,), {})

    def __set__(self, instance: Any, value: Any) -> None:
        self._wrapped.__set__(instance, value)

    def __delete__(self, instance: Any) -> None:
        self._wrapped.__delete__(instance)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)


# Dynamo and torch.jit.script look through what has these two on its type (torch/_dynamo/variables/builder.py).
# Set from outside: in a class body both names would be mangled.
setattr(PlainWrapper, "__script_if_tracing_wrapper", True)
setattr(PlainWrapper, "__original_fn", property(lambda self: self._wrapped))
