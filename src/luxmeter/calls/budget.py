"""A share of the time that tracing may take: past it, recording pauses until it has been earned back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from luxmeter.calls.core._core import Recorder


class Budget:
    """Pauses and starts one recorder. `share` None: never."""

    def __init__(self, share: float | None) -> None:
        self._share = share
        self._paused = False

    def keep(self, recorder: Recorder, *, added_ns: float, elapsed_ns: int) -> None:
        """To be called now and then, with what a call costs and the time since the start."""
        if self._share is None:
            return
        stats = recorder.stats()
        spent = stats["events"] * added_ns + stats["described_ns"]
        allowed = self._share * elapsed_ns
        if not self._paused and spent > allowed:
            self._paused = True
            recorder.pause()
        elif self._paused and spent < 0.8 * allowed:
            self._paused = False
            recorder.start()
