"""torch as it is."""

from __future__ import annotations

from luxmeter.operators.backends import Prepared, backward_of
from luxmeter.operators.inputs import Call


class Eager:
    """Calls the operator."""

    def prepare(self, call: Call, *, backward: bool, threads: int) -> Prepared:
        """The call itself."""
        return Prepared(backward_of(call) if backward else call.run)


def make() -> Eager:
    """The backend."""
    return Eager()
