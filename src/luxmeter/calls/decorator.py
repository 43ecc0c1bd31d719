"""`@lux.trace()`: each call of a function is traced."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from luxmeter.calls.session import Trace

F = TypeVar("F", bound=Callable[..., Any])


def traced(function: F, *, fresh: Callable[[], Trace], running: Callable[[], Trace | None]) -> F:
    """`function` with each call traced by a fresh trace, the last one as its attribute `trace`.

    While another trace runs, the call is a section of that one, named after the function.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        outer = running()
        if outer is not None:
            call.trace = outer  # type: ignore[attr-defined]
            with outer.section(function.__qualname__):
                return function(*args, **kwargs)
        own = call.trace = fresh()  # type: ignore[attr-defined]
        with own:
            return function(*args, **kwargs)

    return call  # type: ignore[return-value]
