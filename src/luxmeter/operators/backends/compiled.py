"""torch.compile. The first call compiles (15 s for the first operator of a process, then about one): kept out of
the measurement and reported.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from luxmeter.operators.backends import Prepared, Unsupported, backward_of
from luxmeter.operators.inputs import Call


class Compiled:
    """Compiles each operator for its own shapes."""

    def prepare(self, call: Call, *, backward: bool, threads: int) -> Prepared:
        """The compiled call, compiled."""
        torch._dynamo.reset()
        function = call.function

        def operator(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        fast = Call(torch.compile(operator, dynamic=False), call.args, call.kwargs)
        run = backward_of(fast) if backward else fast.run
        start = time.perf_counter()
        try:
            run()
        except Unsupported:
            raise
        except Exception as error:
            if type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
                raise Unsupported(f"torch.compile: {_first_line(error)}") from error
            raise
        return Prepared(run, time.perf_counter() - start)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


def make() -> Compiled:
    """The backend."""
    return Compiled()
